/* The lease behind a conversation: renewed in good time, replaced when the connection was lost. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

#include "request.h"

#define CALL_TIMEOUT_MS  2000
#define OPEN_TIMEOUT_MS  150000 /* the gateway's own start timeout is 60 s by default */
#define GRANT_TIMEOUT_MS 5000
#define RETRY_MIN_MS     500
#define NOT_RUNNING_MS   5000 /* a session whose door has died is still being ended, or made anew */
#define RETRY_DOUBLINGS  4    /* up to 8 s */
#define PATH_MAX_BYTES   128
#define BODY_MAX_BYTES   4096
#define ARENA_CAP        (1024UL * 1024)

void session_lease_started(struct session *s, int64_t now_ms)
{
    int64_t at = grant_renew_at_ms(&s->grant);
    /* A gateway that names the past must not make us spin. */
    s->renew_at_ms = at > now_ms + RETRY_MIN_MS ? at : now_ms + RETRY_MIN_MS;
    s->renew_failures = 0;
}

static void ask(struct session *s, enum session_job job, const char *method, const char *path,
                const struct buf *body, long timeout_ms)
{
    if (buf_ok(body) &&
        caller_start(s->caller, method, path, body->len > 0 ? body : NULL, timeout_ms) == 0) {
        s->job = job;
        return;
    }
    struct err e;
    err_set(&e, ERR_INTERNAL, "no memory");
    session_fail(s, &e);
}

static void add_ttl(struct buf *body, const struct session *s, const char *comma)
{
    const struct opt_value *ttl = options_find(s->options, "--ttl");
    if (ttl != NULL) {
        buf_printf(body, "%s\"ttl_s\":%lld", comma, (long long)ttl->number);
    }
}

static void ask_renewal(struct session *s)
{
    char path[PATH_MAX_BYTES];
    struct buf body;
    buf_init(&body, BODY_MAX_BYTES);
    snprintf(path, sizeof(path), "/leases/%s/renew", s->grant.view->lease->lease_id);
    buf_add_char(&body, '{');
    add_ttl(&body, s, "");
    buf_add_char(&body, '}');
    ask(s, JOB_RENEW, "POST", path, &body, CALL_TIMEOUT_MS);
    buf_done(&body);
}

/* The same session and rights again; the scope is the one of the first grant. A session that has
 * ended meanwhile may have a successor, which somebody else has started. */
static void ask_grant(struct session *s)
{
    const struct lease_view *lease = s->grant.view->lease;
    char *const *words = lease->scope.items;
    struct buf body;
    buf_init(&body, BODY_MAX_BYTES);
    const char *id = s->not_running ? lease->chat_id : lease->session_id;
    buf_add_str(&body, s->not_running ? "{\"chat_id\":" : "{\"session_id\":");
    json_add_string(&body, id, strlen(id));
    for (size_t i = 0; i < lease->scope.n; i++) {
        buf_add_str(&body, i == 0 ? ",\"scope\":[" : ",");
        json_add_string(&body, words[i], strlen(words[i]));
    }
    buf_add_str(&body, lease->scope.n > 0 ? "]" : "");
    add_ttl(&body, s, ",");
    buf_add_char(&body, '}');
    ask(s, JOB_GRANT, "POST", "/leases", &body, GRANT_TIMEOUT_MS);
    buf_done(&body);
}

static void ask_look(struct session *s)
{
    char path[PATH_MAX_BYTES];
    struct buf none;
    buf_init(&none, 0);
    snprintf(path, sizeof(path), "/sandboxes/%s", s->grant.view->lease->session_id);
    ask(s, JOB_LOOK, "GET", path, &none, CALL_TIMEOUT_MS);
    buf_done(&none);
}

static void ask_open(struct session *s)
{
    struct request req;
    struct err e;
    request_init(&req);
    if (request_build("POST", "/sandboxes", s->options, &req, &e) < 0) {
        session_fail(s, &e);
    } else {
        ask(s, JOB_OPEN, req.method, req.path.data, &req.body, OPEN_TIMEOUT_MS);
    }
    request_done(&req);
}

static void ask_release(struct session *s)
{
    char path[PATH_MAX_BYTES];
    struct buf none;
    buf_init(&none, 0);
    snprintf(path, sizeof(path), "/leases/%s?reason=released", s->replaced_lease);
    s->replaced_lease[0] = '\0';
    ask(s, JOB_RELEASE, "DELETE", path, &none, CALL_TIMEOUT_MS);
}

/* Why a call did not bring what it should, in few words. */
static void describe(const struct api_answer *a, int rc, const struct err *e, char out[static 160])
{
    if (rc < 0 || api_answer_ok(a)) {
        snprintf(out, 160, "%s", e->msg);
        return;
    }
    struct arena *arena = arena_new(ARENA_CAP);
    struct api_problem p = {0};
    if (arena != NULL) {
        api_problem_read(a, arena, &p);
    }
    snprintf(out, 160, "%s", p.code != NULL ? p.code : "the gateway's answer was not understood");
    arena_free(arena);
}

static void on_renewal(struct session *s, const struct api_answer *a, int rc, struct err *e,
                       int64_t now_ms)
{
    if (rc == 0 && api_answer_ok(a) && grant_read(&s->grant, a, false, true, now_ms, e) == 0) {
        session_lease_started(s, now_ms);
        events_renewed(s->events, s->grant.view->lease);
        return;
    }
    char why[160];
    describe(a, rc, e, why);
    int64_t wait = (int64_t)RETRY_MIN_MS
                   << (s->renew_failures < RETRY_DOUBLINGS ? s->renew_failures : RETRY_DOUBLINGS);
    s->renew_failures++;
    s->renew_at_ms = now_ms + wait / 2 + arc4random_uniform((uint32_t)wait / 2 + 1);
    events_renew_failed(s->events, why);
}

/* Answers after which asking again makes no sense: no such session, not ours. */
static bool is_final(long status)
{
    return status == 401 || status == 403 || status == 404 || status == 409 || status == 422;
}

/* One that does not run may be about to. */
static bool may_run_soon(struct session *s, const char *code, int64_t now_ms)
{
    if (strcmp(code, "session_not_running") != 0 || s->grant.view->lease->chat_id == NULL) {
        return false;
    }
    s->not_running = true;
    return now_ms < s->lost_at_ms + (s->retry_ms < NOT_RUNNING_MS ? s->retry_ms : NOT_RUNNING_MS);
}

static void on_refused_grant(struct session *s, const struct api_answer *a)
{
    struct arena *arena = arena_new(ARENA_CAP);
    struct api_problem p = {.status = a->status};
    if (arena != NULL) {
        api_problem_read(a, arena, &p);
    }
    events_problem(s->events, &p);
    arena_free(arena);
    session_end(s, api_exit_code(a->status));
}

/* The grant of JOB_GRANT or, `opened`, of JOB_OPEN. */
static void on_grant(struct session *s, const struct api_answer *a, int rc, struct err *e,
                     bool opened, int64_t now_ms)
{
    char old[ID_TEXT];
    char why[160] = "";
    snprintf(old, sizeof(old), "%.36s", s->grant.view->lease->lease_id);
    s->not_running = false;
    if (rc == 0 && api_answer_ok(a) && grant_read(&s->grant, a, opened, false, now_ms, e) == 0) {
        memcpy(s->replaced_lease, old, sizeof(old));
        session_lease_started(s, now_ms);
        session_connect(s, now_ms);
        return;
    }
    describe(a, rc, e, why);
    if (rc < 0 || !is_final(a->status) || may_run_soon(s, why, now_ms)) {
        session_lost(s, s->not_running ? AWAY_SESSION : AWAY_GATEWAY, why, now_ms);
    } else if (s->not_running && !opened) {
        ask_look(s);
    } else {
        on_refused_grant(s, a);
    }
}

/* Who has ended a sandbox, or let it run out of time, does not want it back by our doing. */
static void on_look(struct session *s, const struct api_answer *a, int rc, struct err *e,
                    int64_t now_ms)
{
    struct arena *arena = arena_new(ARENA_CAP);
    struct sandbox_view v = {0};
    struct err bad;
    char why[160] = "";
    if (rc < 0 || !api_answer_ok(a) || arena == NULL ||
        json_decode_lenient(a->body.data, a->body.len, view_sandbox.fields, &v, arena, &bad) < 0 ||
        v.status == NULL) {
        describe(a, rc, e, why);
        session_lost(s, AWAY_GATEWAY, why, now_ms);
    } else if (strcmp(v.status, "failed") == 0) {
        events_reopening(s->events, v.session_id, v.reason);
        ask_open(s);
    } else {
        err_set(&bad, ERR_SESSION_NOT_RUNNING, "the session has ended: %.20s%s%.60s", v.status,
                v.reason != NULL ? ", " : "", v.reason != NULL ? v.reason : "");
        session_fail(s, &bad);
    }
    arena_free(arena);
}

static void take_answer(struct session *s, int64_t now_ms)
{
    struct api_answer answer;
    struct err e;
    int rc;
    if (s->job == JOB_NONE || !caller_take(s->caller, &answer, &rc, &e)) {
        return;
    }
    enum session_job job = s->job;
    s->job = JOB_NONE;
    if (job == JOB_RENEW && s->state == SESSION_LIVE) {
        on_renewal(s, &answer, rc, &e, now_ms);
    } else if (job == JOB_GRANT && s->state == SESSION_GRANTING) {
        on_grant(s, &answer, rc, &e, false, now_ms);
    } else if (job == JOB_LOOK && s->state == SESSION_GRANTING) {
        on_look(s, &answer, rc, &e, now_ms);
    } else if (job == JOB_OPEN && s->state == SESSION_GRANTING) {
        on_grant(s, &answer, rc, &e, true, now_ms);
    }
    api_answer_done(&answer);
}

static bool renewal_due(const struct session *s, int64_t now_ms)
{
    return now_ms >= s->renew_at_ms && now_ms < grant_expires_at_ms(&s->grant);
}

void session_lease_step(struct session *s, int64_t now_ms)
{
    take_answer(s, now_ms);
    if (s->job != JOB_NONE) {
        return;
    }
    if (s->state == SESSION_LIVE && renewal_due(s, now_ms)) {
        ask_renewal(s);
    } else if (s->state == SESSION_LIVE && s->replaced_lease[0] != '\0') {
        ask_release(s);
    } else if (s->state == SESSION_WAITING && now_ms >= s->deadline_ms) {
        s->state = SESSION_GRANTING;
        ask_grant(s);
    }
}

int64_t session_lease_next_ms(struct session *s)
{
    if (s->job != JOB_NONE) {
        return -1;
    }
    if (s->state == SESSION_WAITING) {
        return s->deadline_ms;
    }
    if (s->state != SESSION_LIVE) {
        return -1;
    }
    return s->renew_at_ms < grant_expires_at_ms(&s->grant) ? s->renew_at_ms : -1;
}
