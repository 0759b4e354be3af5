/*
 * A hostile agent for tests of files: turns the names of a directory into links, pipes, directories
 * and files again, as fast as it can, until its standard input ends.
 *
 *   file_racer DIR SECRET        DIR: a chat's files/; SECRET: a file outside, which links point to
 *
 * Its own content is always "agent". Run as root it becomes the owner of DIR; one process stays root and
 * makes the hard links to SECRET that the owner may not make.
 */
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMES   6
#define WORKERS 2
#define TURNS   64 /* between two looks at standard input */
#define LINKS   1  /* of the one that makes hard links, which would otherwise be everywhere */

struct race {
    int dir;
    const char *secret;
    unsigned random;
};

static unsigned pick(struct race *r, unsigned n)
{
    r->random = r->random * 1103515245u + 12345u;
    return (r->random >> 16) % n;
}

static const char *name(struct race *r, char ret[static 8])
{
    (void)snprintf(ret, 8, "n%u", pick(r, NAMES));
    return ret;
}

/* A new one: what is written into a file of the API while it is downloaded would be seen there, and no
 * content could be told from a torn one. */
static void write_file(struct race *r, const char *at)
{
    int fd = openat(r->dir, at, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        (void)!write(fd, "agent", 5);
        (void)close(fd);
    }
}

/* What fails fails: it is a race. */
static void turn(struct race *r)
{
    char a[8], b[8];
    name(r, a);
    name(r, b);
    switch (pick(r, 12)) {
    case 0:
        (void)unlinkat(r->dir, a, 0);
        break;
    case 1:
        (void)unlinkat(r->dir, a, AT_REMOVEDIR);
        break;
    case 2:
        (void)!symlinkat(r->secret, r->dir, a);
        break;
    case 3:
        (void)!symlinkat(pick(r, 2) ? ".." : "../history.db", r->dir, a);
        break;
    case 4:
        (void)!linkat(AT_FDCWD, r->secret, r->dir, a, 0);
        break;
    case 5:
        (void)!mkfifoat(r->dir, a, 0600);
        break;
    case 6:
        (void)!mkdirat(r->dir, a, 0700);
        break;
    case 7:
        (void)!linkat(r->dir, a, r->dir, b, 0);
        break;
    case 8:
        (void)!renameat2(r->dir, a, r->dir, b, RENAME_EXCHANGE);
        break;
    case 9:
        (void)!renameat(r->dir, a, r->dir, b);
        break;
    default:
        write_file(r, a);
        break;
    }
}

static void turn_of_root(struct race *r)
{
    char a[8];
    (void)!linkat(AT_FDCWD, r->secret, r->dir, name(r, a), 0);
}

/* Gives up root for good. */
static void become(uid_t uid, gid_t gid)
{
    if (setgroups(0, NULL) != 0 || setgid(gid) != 0 || setuid(uid) != 0) {
        _exit(1);
    }
}

static int work(struct race *r, int turns, void (*one)(struct race *))
{
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    for (;;) {
        for (int i = 0; i < turns; i++) {
            one(r);
        }
        if (poll(&in, 1, 1) != 0) {
            return 0;
        }
    }
}

int main(int argc, char **argv)
{
    if (argc != 3) {
        (void)fprintf(stderr, "usage: file_racer DIR SECRET\n");
        return 2;
    }
    struct race r = {.dir = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC), .secret = argv[2]};
    if (r.dir < 0) {
        perror(argv[1]);
        return 1;
    }
    struct stat st;
    if (fstat(r.dir, &st) != 0) {
        return 1;
    }
    unsigned root = geteuid() == 0;
    for (unsigned i = 0; i < WORKERS + root; i++) {
        r.random = i + 1;
        if (fork() == 0) {
            if (i == WORKERS) {
                _exit(work(&r, LINKS, turn_of_root));
            }
            if (root) {
                become(st.st_uid, st.st_gid);
            }
            _exit(work(&r, TURNS, turn));
        }
    }
    while (wait(NULL) > 0) {
    }
    return 0;
}
