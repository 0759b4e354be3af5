/*
 * file get. The content is known by its sum before the first byte comes (ETag), so what has arrived
 * stands in a file of that sum: whatever broke the download off, the rest is asked for by a Range, of
 * that content alone (If-Match), and the whole is held against the sum at the end.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "file.h"
#include "output_file.h"
#include "progress.h"

#define TRIES_MAX 5 /* without a byte between them */
#define PART_SUM  16

struct download {
    const struct cli *cli;
    struct api *api;
    struct buf path;
    const char *output; /* "-": standard output */
    bool replaces;      /* a file of that name */
    char part[4096];    /* its name until it is complete */
    int fd;
    EVP_MD_CTX *md;
    char sum[SUM_TEXT]; /* of the content; "": not known */
    int64_t size, have;
    struct progress progress;
    struct err fault; /* of writing */
    bool faulty;
};

/* --- what there is --------------------------------------------------------------------------- */

static bool take_nothing(void *ctx, const char *data, size_t len)
{
    (void)ctx;
    (void)data;
    (void)len;
    return false;
}

/* A refused HEAD comes without a body, so a GET is asked for what it says. Returns an exit code. */
static int tell_refusal(struct download *d, const struct api_answer *head)
{
    const struct api_sink sink = {d, take_nothing};
    const struct api_transfer t = {"GET", d->path.data, NULL, NULL, &sink};
    struct api_answer answer;
    struct err e;
    api_answer_init(&answer);
    bool told = api_transfer(d->api, &t, &answer, &e) == 0 && !api_answer_ok(&answer);
    int code = api_refused(told ? &answer : head);
    api_answer_done(&answer);
    return code;
}

/* The sum and the size of now. Returns an exit code. */
static int look(struct download *d)
{
    struct api_answer answer;
    struct err e;
    int code = EXIT_OK;
    const struct api_transfer t = {.method = "HEAD", .path = d->path.data};
    api_answer_init(&answer);
    if (api_transfer(d->api, &t, &answer, &e) != 0) {
        code = report_err(&e);
    } else if (!api_answer_ok(&answer)) {
        code = tell_refusal(d, &answer);
    } else {
        const char *etag = api_header(d->api, "ETag"), *len = api_header(d->api, "Content-Length");
        d->size = len != NULL ? strtoll(len, NULL, 10) : 0;
        if (etag != NULL && strlen(etag) == SUM_TEXT + 1 && etag[0] == '"') {
            memcpy(d->sum, etag + 1, SUM_TEXT - 1);
        }
    }
    api_answer_done(&answer);
    return code;
}

/* What an earlier try has left is read once more, for the sum. */
static int take_part(struct download *d, struct err *e)
{
    char block[65536];
    ssize_t n;
    while ((n = read(d->fd, block, sizeof(block))) > 0) {
        if (EVP_DigestUpdate(d->md, block, (size_t)n) != 1) {
            return err_set(e, ERR_INTERNAL, "SHA-256 does not work");
        }
        d->have += n;
    }
    return n == 0 ? 0 : err_sys(e, ERR_INTERNAL, errno, "read %s", d->part);
}

static int open_part(struct download *d, struct err *e)
{
    struct stat st;
    d->md = sum_new();
    if (d->md == NULL) {
        return err_set(e, ERR_INTERNAL, "no memory");
    }
    if (strcmp(d->output, "-") == 0) {
        d->fd = STDOUT_FILENO;
        return 0;
    }
    if ((size_t)snprintf(d->part, sizeof(d->part), "%s.%.*s.part", d->output, PART_SUM,
                         d->sum[0] != '\0' ? d->sum : "new") >= sizeof(d->part)) {
        return err_set(e, ERR_INVALID_REQUEST, "the name of the output is too long");
    }
    bool resumes = d->sum[0] != '\0';
    d->fd =
        open(d->part, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC | (resumes ? 0 : O_TRUNC), 0644);
    if (d->fd < 0 || fstat(d->fd, &st) != 0) {
        return err_sys(e, ERR_INVALID_REQUEST, errno, "open %s", d->part);
    }
    if (st.st_size > d->size && ftruncate(d->fd, 0) != 0) {
        return err_sys(e, ERR_INTERNAL, errno, "write %s", d->part);
    }
    return take_part(d, e);
}

/* --- the transfer ---------------------------------------------------------------------------- */

static bool on_data(void *ctx, const char *data, size_t len)
{
    struct download *d = ctx;
    if (EVP_DigestUpdate(d->md, data, len) != 1) {
        err_set(&d->fault, ERR_INTERNAL, "SHA-256 does not work");
        d->faulty = true;
    }
    while (len > 0 && !d->faulty) {
        ssize_t n = write(d->fd, data, len);
        if (n < 0 && errno != EINTR) {
            err_sys(&d->fault, ERR_INTERNAL, errno, "write the output");
            d->faulty = true;
        }
        if (n > 0) {
            data += n;
            len -= (size_t)n;
            d->have += n;
            progress_add(&d->progress, n);
        }
    }
    return !d->faulty;
}

/* One request for what is missing. 0: an answer was there, whole or not. */
static int fetch(struct download *d, struct api_answer *ret, struct err *e)
{
    char range[64], match[SUM_TEXT + 32];
    const char *headers[3] = {0};
    const struct api_sink sink = {d, on_data};
    size_t n = 0;
    if (d->have > 0) {
        snprintf(range, sizeof(range), "Range: bytes=%" PRId64 "-", d->have);
        headers[n++] = range;
    }
    if (d->sum[0] != '\0') {
        snprintf(match, sizeof(match), "If-Match: \"%s\"", d->sum);
        headers[n++] = match;
    }
    const struct api_transfer t = {"GET", d->path.data, headers, NULL, &sink};
    return api_transfer(d->api, &t, ret, e);
}

/* Until all is there, or nothing more comes. Returns an exit code. */
static int transfer(struct download *d)
{
    int tries = 0;
    while (d->have < d->size) {
        struct api_answer answer;
        struct err e;
        int64_t before = d->have;
        api_answer_init(&answer);
        int rc = fetch(d, &answer, &e);
        bool refused = rc == 0 && !api_answer_ok(&answer);
        int code = d->faulty ? report_err(&d->fault) : refused ? api_refused(&answer) : EXIT_OK;
        api_answer_done(&answer);
        if (code != EXIT_OK) {
            return code;
        }
        tries = d->have > before ? 0 : tries + 1;
        bool goes_on = d->sum[0] != '\0';
        if (rc != 0 && (tries == TRIES_MAX || !goes_on)) {
            return report_err(&e);
        }
        if (tries > 0) {
            nanosleep(&(struct timespec){.tv_sec = tries}, NULL);
        }
    }
    return EXIT_OK;
}

/* --- the end --------------------------------------------------------------------------------- */

static int complete(struct download *d, struct err *e)
{
    char sum[SUM_TEXT];
    int rc = sum_end(d->md, sum, e);
    d->md = NULL;
    if (rc != 0) {
        return -1;
    }
    if (d->sum[0] != '\0' && strcmp(sum, d->sum) != 0) {
        if (d->part[0] != '\0') {
            (void)unlink(d->part);
        }
        return err_set(e, ERR_INTERNAL, "what has arrived is not what was sent (SHA-256)");
    }
    if (d->part[0] == '\0') {
        return 0;
    }
    if (fsync(d->fd) != 0) {
        return err_sys(e, ERR_INTERNAL, errno, "write %s", d->output);
    }
    return output_file_place(d->part, d->output, d->replaces, e);
}

static int run(struct download *d, const char *name)
{
    struct err e;
    int code = look(d);
    if (code != EXIT_OK) {
        return code;
    }
    bool free = d->replaces || output_file_check_free(d->output, &e) == 0;
    if (!free || open_part(d, &e) != 0) {
        return report_err(&e);
    }
    progress_begin(&d->progress, name, d->have, d->size, d->cli->json);
    code = transfer(d);
    progress_end(&d->progress);
    if (code == EXIT_OK && complete(d, &e) != 0) {
        code = report_err(&e);
    }
    return code;
}

int file_get_run(const struct cli *cli, const struct command *cmd, const struct options *o)
{
    const char *name = options_text(o, "NAME", "");
    struct download d = {.cli = cli, .fd = -1, .output = options_text(o, "--output", name)};
    d.replaces = d.output != name;
    struct err e;
    int code;
    (void)cmd;
    d.api = api_new(&cli->access);
    file_path(o, name, &d.path);
    if (d.api == NULL) {
        err_set(&e, ERR_INTERNAL, "no memory");
        code = report_err(&e);
    } else if (!buf_ok(&d.path) || strchr(d.output, '\n') != NULL ||
               (d.output == name && strchr(name, '/') != NULL)) {
        err_set(&e, ERR_INVALID_REQUEST, "this is no name of a file");
        code = report_err(&e);
    } else {
        code = run(&d, name);
    }
    EVP_MD_CTX_free(d.md);
    if (d.fd > STDERR_FILENO) {
        close(d.fd);
    }
    buf_done(&d.path);
    api_free(d.api);
    return code;
}
