#include "leasehold/usertools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOOLS_MODE  0711 /* to be entered, not listed */
#define TOOLS_MAX   1024 /* of a user, static ones too */
#define HEADERS_MAX 128  /* of a program */
#define SCRIPT_LINE 256  /* what the kernel reads of a script */

/* --- what a file is ---------------------------------------------------------------------------- */

#define ELF_CLASS (__ELF_NATIVE_CLASS == 64 ? ELFCLASS64 : ELFCLASS32)

static bool head_is_native(const ElfW(Ehdr) * h)
{
    return memcmp(h->e_ident, ELFMAG, SELFMAG) == 0 && h->e_ident[EI_CLASS] == ELF_CLASS &&
           (h->e_type == ET_EXEC || h->e_type == ET_DYN) && h->e_phentsize == sizeof(ElfW(Phdr));
}

enum kind { KIND_STATIC, KIND_DYNAMIC, KIND_SCRIPT };

/* What each may be to whom: the gateway's, the tools' group, agents. The program of a dynamic tool is
 * mapped by the kernel, so nobody has to read it. */
static const mode_t kind_modes[] = {
    [KIND_STATIC] = 0111, [KIND_DYNAMIC] = 0110, [KIND_SCRIPT] = 0550};

/* NULL: a program of this machine. A static-pie has a dynamic section, but no interpreter. */
static const char *why_no_program(int fd, enum kind *ret)
{
    ElfW(Phdr) segment;
    ElfW(Ehdr) head;

    *ret = KIND_STATIC;
    if (pread(fd, &head, sizeof head, 0) != (ssize_t)sizeof head || !head_is_native(&head))
        return "neither a native program nor a script with #!";
    if (head.e_phnum == 0 || head.e_phnum > HEADERS_MAX)
        return "not a native program (no program headers)";
    for (unsigned i = 0; i < head.e_phnum; i++) {
        off_t at = (off_t)(head.e_phoff + i * sizeof segment);

        if (pread(fd, &segment, sizeof segment, at) != (ssize_t)sizeof segment)
            return "not a native program (cut off)";
        if (segment.p_type == PT_INTERP)
            *ret = KIND_DYNAMIC;
    }
    return NULL;
}

/* As the kernel takes it: the interpreter's path is what follows the blanks behind #!. */
static const char *why_no_script(const char *line)
{
    line += 2 + strspn(line + 2, " \t");
    return *line == '/' ? NULL : "a script without the absolute path of its interpreter";
}

static const char *why_not_runnable(int fd, enum kind *ret)
{
    char line[SCRIPT_LINE + 1];
    ssize_t n = pread(fd, line, SCRIPT_LINE, 0);

    line[n > 0 ? n : 0] = '\0';
    if (strncmp(line, "#!", 2) != 0)
        return why_no_program(fd, ret);
    *ret = KIND_SCRIPT;
    return why_no_script(line);
}

static const char *why_not_open(int dir, const char *name, enum kind *ret)
{
    int fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    const char *why = fd < 0 ? "it cannot be opened" : why_not_runnable(fd, ret);

    if (fd >= 0)
        close(fd);
    return why;
}

/* It stands elsewhere too, where its mode is somebody else's business: a program of the host, maybe. */
static const char *why_shared(const struct statx *st)
{
    if (st->stx_attributes & STATX_ATTR_MOUNT_ROOT)
        return "it is mounted there";
    return !S_ISDIR(st->stx_mode) && st->stx_nlink != 1 ? "has another name (hard link)" : NULL;
}

/* Before anything is opened: a device can mind that. */
static const char *why_no_file(const struct statx *st)
{
    if (S_ISLNK(st->stx_mode))
        return "a symbolic link";
    if (!S_ISREG(st->stx_mode))
        return "not a regular file";
    return st->stx_uid != geteuid() ? "not owned by the gateway's user" : NULL;
}

/* --- one tool ---------------------------------------------------------------------------------- */

/* It stands in requests and records. */
static bool name_is_plain(const char *name)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+@-";

    return name[0] != '.' && name[strspn(name, plain)] == '\0' && strlen(name) < USERTOOLS_NAME_MAX;
}

static const char *why_not_brokered(const char *name)
{
    return name_is_plain(name) ? NULL
                               : "its name has other characters than letters, digits and ._+@-, or "
                                 "is too long";
}

static int mode_failed(const char *name, struct err *e)
{
    return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "the mode of the user tool %.80s", name);
}

static int change_mode(int dir, const char *name, mode_t mode, struct err *e)
{
    return fchmodat(dir, name, mode, AT_SYMLINK_NOFOLLOW) ? mode_failed(name, e) : 0;
}

/* Closed while its group changes. */
static int set_mode(int dir, const char *name, const struct statx *st, mode_t mode, int64_t gid,
                    struct err *e)
{
    bool regroup = gid >= 0 && st->stx_gid != (gid_t)gid;

    if ((st->stx_mode & 07777) == mode && !regroup)
        return 0;
    if (regroup && change_mode(dir, name, 0, e))
        return -1;
    if (regroup && fchownat(dir, name, (uid_t)-1, (gid_t)gid, AT_SYMLINK_NOFOLLOW) != 0)
        return mode_failed(name, e);
    return change_mode(dir, name, mode, e);
}

static void tell_refused(const struct usertools_report *report, const char *name, const char *why)
{
    if (report->refused)
        report->refused(report->ctx, name, why);
}

/* Agents see all that stands there: what is not to be closed by us must be closed already. */
static int refuse_shared(const struct usertools_report *report, const char *name,
                         const struct statx *st, const char *why, struct err *e)
{
    mode_t mode = st->stx_mode & 07777;

    tell_refused(report, name, why);
    if (mode == 0 || (st->stx_uid == geteuid() && (mode & 077) == 0))
        return 0;
    return err_set(e, ERR_SANDBOX_START_FAILED,
                   "the user tool %.80s: %s, so its mode is left as it is, and agents could read "
                   "it (put a copy there)",
                   name, why);
}

/* Symlinks are of no use below a read-only bind, and have no mode. */
static int refuse(const struct usertools_report *report, int dir, const char *name,
                  const struct statx *st, const char *why, struct err *e)
{
    bool ours = S_ISDIR(st->stx_mode) && st->stx_uid == geteuid();

    tell_refused(report, name, why);
    return S_ISLNK(st->stx_mode) ? 0 : set_mode(dir, name, st, ours ? 0700 : 0, -1, e);
}

static int prepare_file(const struct usertools_report *report, int dir, const char *name,
                        const struct statx *st, struct err *e)
{
    enum kind kind = KIND_STATIC;
    const char *why = why_no_file(st);
    bool brokered;

    if (!why)
        why = why_not_open(dir, name, &kind);
    brokered = kind != KIND_STATIC;
    if (!why && brokered)
        why = why_not_brokered(name);
    if (why)
        return refuse(report, dir, name, st, why, e);
    if (set_mode(dir, name, st, kind_modes[kind], brokered ? report->gid : -1, e))
        return -1;
    return report->found(report->ctx, name, brokered)
               ? err_set(e, ERR_INTERNAL, "no memory for the user's tools")
               : 0;
}

static int prepare_one(const struct usertools_report *report, int dir, const char *name,
                       struct err *e)
{
    struct statx st;
    const char *shared;

    if (statx(dir, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &st) != 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "the user tool %.80s", name);
    shared = why_shared(&st);
    return shared && !S_ISLNK(st.stx_mode) ? refuse_shared(report, name, &st, shared, e)
                                           : prepare_file(report, dir, name, &st, e);
}

static int prepare_each(DIR *d, const struct usertools_report *report, struct err *e)
{
    struct dirent *entry;
    int n = 0;

    while ((entry = readdir(d))) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."))
            continue;
        if (geteuid() != 0)
            return err_set(e, ERR_SANDBOX_START_FAILED,
                           "the user has tools, and agents run with the gateway's own uid: they "
                           "could be read (run the gateway as root)");
        if (++n > TOOLS_MAX)
            return err_set(e, ERR_SANDBOX_START_FAILED, "the user has more than %d tools",
                           TOOLS_MAX);
        if (prepare_one(report, dirfd(d), entry->d_name, e))
            return -1;
    }
    return 0;
}

/* --- the directory ----------------------------------------------------------------------------- */

static int not_ours(struct err *e)
{
    return err_set(e, ERR_CONFLICT, "the workspace's tools are not what the gateway made");
}

/* Its parents are closed to all but us, so nobody else can exchange what was checked. */
static int open_tools(const char *root, const struct id *user_id, struct err *e)
{
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int user = root_fd < 0 ? -1
                           : openat(root_fd, ID_STR(user_id),
                                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int fd = -1;

    if (user >= 0 && (mkdirat(user, "tools", TOOLS_MODE) == 0 || errno == EEXIST))
        fd = openat(user, "tools", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && (errno == ELOOP || errno == ENOTDIR))
        not_ours(e);
    else if (fd < 0)
        err_sys(e, ERR_SANDBOX_START_FAILED, errno, "the directory of the user's tools");
    if (user >= 0)
        close(user);
    if (root_fd >= 0)
        close(root_fd);
    return fd;
}

/* What is mounted may be the host's own, with programs of other modes than those of tools. */
static int check_dir(int fd, struct err *e)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &st) != 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "the directory of the user's tools");
    if (st.stx_uid != geteuid())
        return not_ours(e);
    if ((st.stx_mode & 07777) == TOOLS_MODE)
        return 0;
    if (st.stx_attributes & STATX_ATTR_MOUNT_ROOT)
        return err_set(e, ERR_SANDBOX_START_FAILED,
                       "the directory of the user's tools is mounted there: if it is meant to be "
                       "theirs, give it the mode %04o",
                       TOOLS_MODE);
    if (fchmod(fd, TOOLS_MODE) != 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "the mode of the user's tools");
    return 0;
}

static int path_of(const char *root, const struct id *user_id, char *ret, size_t size,
                   struct err *e)
{
    char absolute[PATH_MAX];
    int n;

    if (!realpath(root, absolute))
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "cannot resolve the workspace root %s",
                       root);
    n = snprintf(ret, size, "%s/%s/tools", absolute, ID_STR(user_id));
    return n > 0 && (size_t)n < size
               ? 0
               : err_set(e, ERR_SANDBOX_START_FAILED, "the path of the workspace root is too long");
}

int usertools_prepare(const char *root, const struct id *user_id,
                      const struct usertools_report *report, char *ret, size_t size, struct err *e)
{
    int fd = open_tools(root, user_id, e);
    DIR *d;
    int rc;

    if (fd < 0)
        return -1;
    if (check_dir(fd, e) || path_of(root, user_id, ret, size, e)) {
        close(fd);
        return -1;
    }
    d = fdopendir(fd);
    if (!d) {
        close(fd);
        return err_set(e, ERR_INTERNAL, "no memory to list the user's tools");
    }
    rc = prepare_each(d, report, e);
    closedir(d);
    return rc;
}
