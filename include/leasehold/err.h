/*
 * Errors: one value on the caller's stack, and the one table that gives every code its name and
 * its statuses.
 *
 * A function that can fail returns 0 or -1 and takes `struct err *e` last. It fills *e exactly when
 * it returns -1; outputs (`ret_…`) are untouched then. `msg` is safe to show to a caller except
 * where the code is ERR_INTERNAL (only logged): it never holds a secret, a host path of another
 * user, or bytes that were not checked.
 *
 * Any thread. Nothing is allocated.
 */
#ifndef LEASEHOLD_ERR_H
#define LEASEHOLD_ERR_H

#include <stddef.h>

/*  X(symbol, wire name, HTTP status, WebSocket close code, title) */
#define ERR_CODES(X)                                                                               \
    X(ERR_NONE, "none", 200, 1000, "No error")                                                     \
    X(ERR_MALFORMED_JSON, "malformed_json", 400, 1007, "The body is not valid JSON")               \
    X(ERR_MALFORMED_REQUEST, "malformed_request", 400, 1002, "The request is malformed")           \
    X(ERR_UNAUTHENTICATED, "unauthenticated", 401, 4401, "Credentials are missing or not valid")   \
    X(ERR_FORBIDDEN, "forbidden", 403, 4403, "This is not allowed")                                \
    X(ERR_NOT_FOUND, "not_found", 404, 4404, "There is no such thing here")                        \
    X(ERR_CHAT_NOT_FOUND, "chat_not_found", 404, 4404, "There is no such chat here")               \
    X(ERR_CHAT_FILE_NOT_FOUND, "chat_file_not_found", 404, 4404, "There is no such file here")     \
    X(ERR_WORKSPACE_NOT_FOUND, "workspace_not_found", 404, 4404, "There is no such workspace")     \
    X(ERR_METHOD_NOT_ALLOWED, "method_not_allowed", 405, 1002, "The path has no such method")      \
    X(ERR_LENGTH_REQUIRED, "length_required", 411, 1002, "A body needs Content-Length")            \
    X(ERR_PRECONDITION_FAILED, "precondition_failed", 412, 1008, "A precondition does not hold")   \
    X(ERR_TOO_LARGE, "too_large", 413, 1009, "The request is too large")                           \
    X(ERR_UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", 415, 1003,                             \
      "The content type is not supported")                                                         \
    X(ERR_RANGE_NOT_SATISFIABLE, "range_not_satisfiable", 416, 1008, "The range is outside")       \
    X(ERR_CHAT_HAS_ACTIVE_SANDBOX, "chat_has_active_sandbox", 409, 1008,                           \
      "The chat has an active sandbox")                                                            \
    X(ERR_IDEMPOTENCY_IN_PROGRESS, "idempotency_in_progress", 409, 1008,                           \
      "The first request with this key still runs")                                                \
    X(ERR_EXPECTED_COUNT_MISMATCH, "expected_count_mismatch", 409, 1008,                           \
      "The selector matches another number")                                                       \
    X(ERR_SESSION_NOT_RUNNING, "session_not_running", 409, 1008, "The session is not running")     \
    X(ERR_LEASE_TERMINAL, "lease_terminal", 409, 1008, "The lease has ended")                      \
    X(ERR_CONFLICT, "conflict", 409, 1008, "The request does not fit the present state")           \
    X(ERR_INVALID_REQUEST, "invalid_request", 422, 1008, "The request is not valid")               \
    X(ERR_INVALID_ATTACHMENT_NAME, "invalid_attachment_name", 422, 1008,                           \
      "The file name is not valid")                                                                \
    X(ERR_IDEMPOTENCY_KEY_REUSED, "idempotency_key_reused", 422, 1008,                             \
      "The key was used for another request")                                                      \
    X(ERR_DEFAULT_USER_MISSING, "default_user_missing", 422, 1008, "The key has no default user")  \
    X(ERR_RATE_LIMITED, "rate_limited", 429, 1013, "Too many requests")                            \
    X(ERR_LEASE_QUOTA_EXCEEDED, "lease_quota_exceeded", 429, 1013, "Too many leases")              \
    X(ERR_INTERNAL, "internal", 500, 1011, "Internal error")                                       \
    X(ERR_SANDBOX_STOP_FAILED, "sandbox_stop_failed", 500, 1011, "The sandbox did not stop")       \
    X(ERR_SANDBOX_START_FAILED, "sandbox_start_failed", 503, 1013, "The sandbox did not start")    \
    X(ERR_SANDBOX_LIST_FAILED, "sandbox_list_failed", 503, 1013, "Sandboxes cannot be listed")     \
    X(ERR_ENGINE_UNAVAILABLE, "engine_unavailable", 503, 1013, "The sandbox engine is away")       \
    X(ERR_BUSY, "busy", 503, 1013, "Too much work at once")                                        \
    X(ERR_OBJECT_STORE_UNAVAILABLE, "object_store_unavailable", 503, 1013,                         \
      "The object store is away")                                                                  \
    X(ERR_SERVICE_NOT_READY, "service_not_ready", 503, 1013, "A service did not become ready")     \
    X(ERR_UNKNOWN_OP, "unknown_op", 400, 1008, "There is no such operation")                       \
    X(ERR_UNSUPPORTED_OP, "unsupported_op", 400, 1008, "The operation is not for this transport")  \
    X(ERR_WORKSPACE_QUOTA_EXCEEDED, "workspace_quota_exceeded", 507, 1008,                         \
      "The workspace is full")                                                                     \
    X(ERR_STORAGE_FULL, "storage_full", 507, 1011, "The disk is full")

enum err_code {
#define ERR_ENUM(symbol, name, http, ws, title) symbol,
    ERR_CODES(ERR_ENUM)
#undef ERR_ENUM
        ERR_CODE_COUNT
};

#define ERR_MSG_MAX 160

struct err {
    enum err_code code;
    int sys;          /* errno of the failed call, 0 if there was none */
    char pointer[96]; /* RFC 6901 pointer to the refused member (422), or "" */
    char msg[ERR_MSG_MAX];
};

#define MUST_CHECK __attribute__((warn_unused_result))

/* Fills *e and answers -1, so that `return err_set(e, …);` reads well. Keeps no errno. */
#define err_set(e, ...)                                                                            \
    ({                                                                                             \
        err_fill_code((e), __VA_ARGS__);                                                           \
        -1; /* seen by the compiler, so that it knows which outputs a caller may read */           \
    })

/* The same with the errno of a failed system call, whose text is appended to the message. */
#define err_sys(e, ...)                                                                            \
    ({                                                                                             \
        err_fill_sys((e), __VA_ARGS__);                                                            \
        -1;                                                                                        \
    })

/* A 422 `invalid_request` for the member at `pointer` ("/lease/ttl_s"). */
#define err_field(e, ...)                                                                          \
    ({                                                                                             \
        err_fill_field((e), __VA_ARGS__);                                                          \
        -1;                                                                                        \
    })

void err_fill_code(struct err *e, enum err_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void err_fill_sys(struct err *e, enum err_code code, int sys, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void err_fill_field(struct err *e, const char *pointer, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

void err_clear(struct err *e);

const char *err_code_name(enum err_code code);
const char *err_code_title(enum err_code code);
int err_code_http(enum err_code code);
int err_code_ws(enum err_code code);

#endif
