/*
 * The gateway's REST face as leasectl sees it: where it is, how we prove who we are, one call at a
 * time, and what its refusals look like to a person and to a script.
 */
#ifndef CLI_API_H
#define CLI_API_H

#include <stdbool.h>
#include <stdint.h>

#include "leasehold/buf.h"
#include "leasehold/err.h"
#include "leasehold/id.h"
#include "leasehold/json.h"

enum exit_code {
    EXIT_OK = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_NOT_FOUND = 3,
    EXIT_DENIED = 4,
    EXIT_UNREACHABLE = 5,
};

#define API_ANSWER_MAX (4 * 1024 * 1024)
#define API_KEY_MAX    512

/* Constant while anything uses it, so threads may share one. */
struct api_access {
    char *base_url;                       /* "http://127.0.0.1:8123/api/v1" */
    const char *ca_file;                  /* NULL: the system's */
    char authorization[API_KEY_MAX + 32]; /* the header line; "" without a key */
    char idempotency[160];                /* the header line of a POST; "" without one */
};

/* Checks the URL; `key` may be NULL. Returns new content of *ret, freed by api_access_done. */
int api_access_init(struct api_access *ret, const char *url, const char *key, const char *ca_file,
                    struct err *e) MUST_CHECK;
void api_access_done(struct api_access *access); /* also cleanses the key */

/* The id of the API key, as the audit trail names it; "" if that cannot be told. */
void api_access_key_id(const struct api_access *access, char ret[static ID_TEXT]);

/* A connection kept alive between calls; one thread at a time. */
struct api;

struct api *api_new(const struct api_access *access); /* borrows; NULL without memory */
void api_free(struct api *api);

struct api_answer {
    long status;
    struct buf body;
    char request_id[65];
};

void api_answer_init(struct api_answer *a);
void api_answer_done(struct api_answer *a); /* cleanses: bodies may hold a token */

/* 0 for any answer. `body` NULL: none. -1: ERR_ENGINE_UNAVAILABLE when nobody answered in time. */
int api_call(struct api *api, const char *method, const char *path, const struct buf *body,
             long timeout_ms, struct api_answer *ret, struct err *e) MUST_CHECK;

/* A GET whose answer is taken while it comes: the pieces of a success go to `data` (false: enough), the
 * text of a refusal into *ret. It may take any time. -1: as api_call. */
struct http_client_source;
struct api_sink {
    void *ctx;
    bool (*data)(void *ctx, const char *data, size_t len);
};
int api_fetch(struct api *api, const char *path, const struct api_sink *sink,
              struct api_answer *ret, struct err *e) MUST_CHECK;

/* A transfer: a body that is made while it is sent, an answer taken while it comes, of any length. It
 * may take any time, but fails when nothing moves for five minutes. */
struct api_transfer {
    const char *method, *path;
    const char *const *headers;              /* further ones; NULL-terminated, may be NULL */
    const struct http_client_source *source; /* NULL: no body */
    const struct api_sink *sink;             /* NULL: the answer is collected */
};
int api_transfer(struct api *api, const struct api_transfer *t, struct api_answer *ret,
                 struct err *e) MUST_CHECK;
/* A header of the answer that comes, or came last; NULL: there is none. */
const char *api_header(const struct api *api, const char *name);

/* Did the answer grant what was asked? */
bool api_answer_ok(const struct api_answer *a);

/* Reads the members of an answer that is ok. -1: something else than a gateway has made it. */
int api_answer_read(const struct api_answer *a, const struct field *fields, void *ret,
                    struct arena *arena, struct err *e) MUST_CHECK;

/* Answers -1 with an error that tells so. */
int api_answer_foreign(struct err *e, const char *why);

/* A refusal in the form of RFC 9457, or the nearest to it that the answer allows. */
struct api_problem {
    char *code, *title, *detail, *request_id;
    struct list errors; /* struct api_problem_at */
    long status;
};

struct api_problem_at {
    char *pointer;
};

void api_problem_read(const struct api_answer *a, struct arena *arena, struct api_problem *ret);

/* "leasectl: chat_not_found: There is no such chat here: … (request id …)" on stderr. */
void api_problem_print(const struct api_problem *p);

/* Prints what a refusal says; its exit code. */
int api_refused(const struct api_answer *a);

int api_exit_code(long status);
int api_exit_code_of_err(const struct err *e);

#endif
