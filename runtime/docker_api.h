/*
 * Calls of the Docker Engine API (1.41 to 1.56, also Podman's form of it) over a unix socket or TCP
 * with TLS. Negotiates the version with the first call that gets through.
 *
 * Any thread; each call takes a kept connection of its own. An answer is what the engine says, not
 * what happened: its status codes differ from what its documentation tells, and a call that timed
 * out is still carried out. So who changes something looks afterwards.
 */
#ifndef RUNTIME_DOCKER_API_H
#define RUNTIME_DOCKER_API_H

#include "leasehold/config.h"
#include "leasehold/http_client.h"
#include "leasehold/json.h"

struct docker_api;

/* Touches nothing outside. */
int docker_api_new(const struct config_docker *cfg, struct docker_api **ret,
                   struct err *e) MUST_CHECK;
void docker_api_free(struct docker_api *a);

struct docker_call {
    const char *method;
    const char *path;       /* behind the version: "/containers/…" */
    const struct buf *body; /* JSON; NULL: none */
    const char *header;     /* one more line; NULL: none */
    const struct http_client_sink *sink;
    const atomic_bool *cancel;
    int64_t timeout_ms; /* HTTP_CLIENT_NO_DEADLINE: a stream that ends by cancel */
    int64_t stall_ms;   /* 0: none */
};

struct docker_answer {
    long status;
    struct buf body;
};

void docker_answer_init(struct docker_answer *a);
void docker_answer_done(struct docker_answer *a);

/* 0 for any status. ERR_ENGINE_UNAVAILABLE: nobody answered, or no engine we can talk to. */
int docker_api_call(struct docker_api *a, const struct docker_call *c, struct docker_answer *ret,
                    struct err *e) MUST_CHECK;

/* The answer's object, or its list as the member `items`. What it has beyond the table is skipped.
 * ERR_ENGINE_UNAVAILABLE: it is not what the API promises. */
int docker_answer_object(const struct docker_answer *a, const struct field *fields, void *obj,
                         struct arena *arena, struct err *e) MUST_CHECK;
int docker_answer_items(struct docker_answer *a, const struct field *fields, void *obj,
                        struct arena *arena, struct err *e) MUST_CHECK;

/* Fills *e with "<what>: <the engine's own words>" and answers -1. */
int docker_answer_refused(const struct docker_answer *a, enum err_code code, const char *what,
                          struct err *e);
/* The engine's own words of a refusal, "" without; one line of what may be shown. */
void docker_answer_words(const struct docker_answer *a, char *ret, size_t size);
/* The engine's own words, for a decision that its status does not allow; also Podman's cause. */
bool docker_answer_says(const struct docker_answer *a, const char *words);

/* Makes one line of what may be shown out of what the engine says. */
void docker_words_clean(char *text);
/* Into what has less room: the beginning and the end; size > 64. */
void docker_words_cut(const char *words, char *ret, size_t size);

/* What was negotiated: "1.41", "" before the first answer. */
void docker_api_version(struct docker_api *a, char ret[static 16]);

/* A connection of one's own, for a stream: http_client_wake(it) makes `cancel` be seen at once. */
struct http_client *docker_api_client_take(struct docker_api *a, struct err *e) MUST_CHECK;
void docker_api_client_put(struct docker_api *a, struct http_client *c);
int docker_api_call_on(struct docker_api *a, struct http_client *client,
                       const struct docker_call *c, struct docker_answer *ret,
                       struct err *e) MUST_CHECK;

/* Appends `text` escaped for a query ("/" too), or for a path, where an image's name keeps its
 * slashes and colons. */
void docker_url_add(struct buf *url, const char *text, bool in_path);

/* A field of the engine's JSON, whose names are not C's. */
#define DOCKER_FIELD(json, T, m, k, ...)                                                           \
    {                                                                                              \
        .name = (json), .kind = (k), .offset = offsetof(T, m), __VA_ARGS__                         \
    }
#define DOCKER_STR(json, T, m)  DOCKER_FIELD(json, T, m, FIELD_KIND_STR, .max = 65536, .def = "")
#define DOCKER_BOOL(json, T, m) DOCKER_FIELD(json, T, m, FIELD_KIND_BOOL)
#define DOCKER_INT(json, T, m)                                                                     \
    DOCKER_FIELD(json, T, m, FIELD_KIND_INT, .min = -(INT64_C(1) << 62), .max = INT64_C(1) << 62)
#define DOCKER_OBJECT(json, T, m, f) DOCKER_FIELD(json, T, m, FIELD_KIND_OBJECT, .fields = (f))
#define DOCKER_LIST(json, T, m, f, S)                                                              \
    DOCKER_FIELD(json, T, m, FIELD_KIND_LIST, .fields = (f), .elem = sizeof(S), .max = 100000)
#define DOCKER_STRLIST(json, T, m)                                                                 \
    DOCKER_FIELD(json, T, m, FIELD_KIND_LIST, .elem_kind = FIELD_KIND_STR, .elem = sizeof(char *), \
                 .max = 10000)

#endif
