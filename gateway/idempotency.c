#include "idempotency.h"

#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "leasehold/json.h"
#include "services.h"

#define ANSWER_CAP     (8u * 1024 * 1024)
#define CLEANUP_BATCH  500
#define BODY_PARTS_CAP 4096
#define TOKEN_NULL     "\"token\":null"

/* Compared as bytes: what is behind the text is zero. */
struct claim_name {
    struct id key_id;
    char key[IDEMPOTENCY_KEY_MAX + 1];
};

/* In the arena of its call. */
struct idempotent {
    struct claim_name name;
    uint8_t fingerprint[SHA256_DIGEST_LENGTH];
    struct err refusal; /* of the arguments; code ERR_NONE: they are good */
    bool claimed;       /* stands in services.idempotent */
    bool replayed;      /* answered from a record, or refused because of one */
    bool recorded;      /* stands in the store, as soon as its write commits */
    struct look *look;  /* the record, until the body has come that it is compared with */
    struct store_job job;
    struct call *call;
    UT_hash_handle hh;
};

/* --- decisions ------------------------------------------------------------------------------- */

bool idempotency_key_valid(const char *key)
{
    size_t n = 0;

    for (; key[n]; n++)
        if (key[n] < '!' || key[n] > '~')
            return false;
    return n >= 1 && n <= IDEMPOTENCY_KEY_MAX;
}

bool idempotency_keeps(int rc, const struct err *e)
{
    int status = rc ? err_code_http(e->code) : 200;

    return status < 500 && status != 429;
}

char *idempotency_put_token(struct arena *arena, const char *body, const char *token)
{
    const char *at = strstr(body, TOKEN_NULL);
    size_t head = at ? (size_t)(at - body) : strlen(body);
    size_t size = strlen(body) + strlen(token) + sizeof TOKEN_NULL;
    char *out = arena_alloc(arena, size);

    if (out && at)
        snprintf(out, size, "%.*s\"token\":\"%s\"%s", (int)head, body, token,
                 at + sizeof TOKEN_NULL - 1);
    else if (out)
        memcpy(out, body, head + 1);
    return out;
}

/* --- the request ----------------------------------------------------------------------------- */

/* Parts are told apart by the NUL between them. */
static void add_part(struct buf *b, const void *data, size_t len)
{
    buf_add(b, data, len);
    buf_add_char(b, '\0');
}

/* Hashes and frees what was put together; it may hold an environment. */
static int fingerprint(struct call *c, struct buf *b, struct err *e)
{
    bool ok = buf_ok(b);

    if (ok)
        SHA256((const uint8_t *)b->data, b->len, c->idempotent->fingerprint);
    else
        c->idempotent = NULL;
    if (b->data)
        explicit_bzero(b->data, b->size);
    buf_done(b);
    return ok ? 0 : err_set(e, ERR_INTERNAL, "no memory for the request");
}

/* Of arguments that may turn out to be no valid ones. */
static int fingerprint_of_text(struct call *c, const struct http_request *r, struct err *e)
{
    struct buf b;

    buf_init(&b, ANSWER_CAP);
    add_part(&b, c->op->name, strlen(c->op->name));
    add_part(&b, r->path, strlen(r->path));
    add_part(&b, r->query, strlen(r->query));
    add_part(&b, r->body ? r->body : "", r->body_len);
    return fingerprint(c, &b, e);
}

/* It is answered as things stand, each time. What is done behind `after` is no mere reading. */
static bool only_reads(const struct op *op)
{
    return (op->lane == ON_LOOP || op->lane == ON_READ) && !op->after_answers;
}

int idempotency_take(struct call *c, const struct http_request *request, struct err *e)
{
    struct idempotent *r;

    if (!request->idempotency_key[0] || request->method != HTTP_POST || only_reads(c->op) ||
        id_is_zero(&c->caller.key_id))
        return 0;
    if (!idempotency_key_valid(request->idempotency_key))
        return err_field(e, "", "Idempotency-Key must be 1 to %d visible ASCII characters",
                         IDEMPOTENCY_KEY_MAX);
    r = call_alloc(c, sizeof *r);
    if (!r)
        return err_set(e, ERR_INTERNAL, "no memory for the request");
    r->call = c;
    r->name.key_id = c->caller.key_id;
    memcpy(r->name.key, request->idempotency_key, strlen(request->idempotency_key));
    c->idempotent = r;
    return fingerprint_of_text(c, request, e);
}

int idempotency_bind(struct call *c, struct err *e)
{
    struct buf b;

    if (!c->idempotent)
        return 0;
    buf_init(&b, ANSWER_CAP);
    add_part(&b, c->op->name, strlen(c->op->name));
    if (c->op->in)
        json_encode(c->op->in, c->args, &b);
    return fingerprint(c, &b, e);
}

int idempotency_refuse(struct call *c, const struct err *e)
{
    if (!c->idempotent || !idempotency_keeps(-1, e)) {
        c->idempotent = NULL;
        return -1;
    }
    c->idempotent->refusal = *e;
    return 0;
}

int idempotency_claim(struct call *c, struct err *e)
{
    struct idempotent *r = c->idempotent, *first;

    HASH_FIND(hh, c->s->idempotent, &r->name, sizeof r->name, first);
    if (!first) {
        HASH_ADD(hh, c->s->idempotent, name, sizeof r->name, r);
        r->claimed = true;
        return 0;
    }
    c->idempotent = NULL;
    return memcmp(first->fingerprint, r->fingerprint, sizeof r->fingerprint)
               ? err_set(e, ERR_IDEMPOTENCY_KEY_REUSED, "the key is in use for another request")
               : err_set(e, ERR_IDEMPOTENCY_IN_PROGRESS, "the first request still runs");
}

enum op_lane idempotency_lane(const struct call *c)
{
    bool looks = c->idempotent && (c->idempotent->refusal.code || c->op->lane == ON_LOOP);

    return looks ? ON_READ : c->op->lane;
}

bool idempotency_replayed(const struct call *c)
{
    return c->idempotent && c->idempotent->replayed;
}

/* --- an earlier answer ----------------------------------------------------------------------- */

struct look {
    struct call *c;
    bool found;
    struct idempotency record;
    struct lease lease; /* zero: none, or gone with its chat */
};

static int look_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct look *l = arg;
    const struct claim_name *name = &l->c->idempotent->name;
    struct err why;

    if (store_idempotency_get(tx, &name->key_id, name->key, store_now_ms(tx) - IDEMPOTENCY_LIFE_MS,
                              l->c->arena, &l->record, e))
        return e->code == ERR_NOT_FOUND ? 0 : -1;
    l->found = true;
    if (id_is_zero(&l->record.lease_id) ||
        !store_lease_get(tx, &l->record.lease_id, &l->lease, &why))
        return 0;
    l->lease = (struct lease){0};
    if (why.code == ERR_NOT_FOUND)
        return 0;
    *e = why;
    return -1;
}

static int replay_error(const struct idempotency *record, struct err *e)
{
    for (int code = 0; code < ERR_CODE_COUNT; code++) {
        if (strcmp(err_code_name((enum err_code)code), record->code) != 0)
            continue;
        err_set(e, (enum err_code)code, "%s", record->body);
        snprintf(e->pointer, sizeof e->pointer, "%s", record->pointer);
        return -1;
    }
    return err_set(e, ERR_INTERNAL, "a record of an unknown error");
}

static int mint_again(struct call *c, struct look *l, struct err *e)
{
    struct buf token;
    int rc;

    l->lease.expires_at = l->record.expires_at;
    l->lease.grant_seq = l->record.rq;
    buf_init(&token, TOKEN_MAX);
    rc = lease_mint(&c->s->policy, c->s->keys, &l->lease, l->record.iat * 1000, &token, e);
    if (!rc) {
        c->raw = idempotency_put_token(c->arena, l->record.body, token.data);
        if (!c->raw)
            rc = err_set(e, ERR_INTERNAL, "no memory for the answer");
        explicit_bzero(token.data, token.len);
    }
    buf_done(&token);
    return rc;
}

static int replay(struct call *c, struct look *l, struct err *e)
{
    struct idempotent *r = c->idempotent;

    r->replayed = true;
    if (memcmp(r->fingerprint, l->record.fingerprint, sizeof r->fingerprint) != 0)
        return err_set(e, ERR_IDEMPOTENCY_KEY_REUSED, "the key was used for another request");
    c->extra = "Idempotent-Replayed: true\r\n";
    if (l->record.code[0])
        return replay_error(&l->record, e);
    c->status = (int)l->record.status;
    c->raw = l->record.body;
    c->raw_type = "application/json";
    return id_is_zero(&l->lease.lease_id) ? 0 : mint_again(c, l, e);
}

void idempotency_body(struct call *c, const char *const *parts, size_t n)
{
    struct buf b;

    if (!c->idempotent)
        return;
    buf_init(&b, BODY_PARTS_CAP);
    buf_add(&b, c->idempotent->fingerprint, sizeof c->idempotent->fingerprint);
    for (size_t i = 0; i < n; i++)
        add_part(&b, parts[i], strlen(parts[i]));
    if (buf_ok(&b))
        SHA256((const uint8_t *)b.data, b.len, c->idempotent->fingerprint);
    buf_done(&b);
}

int idempotency_compare(struct call *c, struct err *e)
{
    return replay(c, c->idempotent->look, e);
}

/* What was answered before; with a body that is still to come, it is told later. */
static int earlier(struct call *c, const struct look *found, struct err *e)
{
    struct look *l = call_alloc(c, sizeof *l);

    if (!l)
        return err_set(e, ERR_INTERNAL, "no memory for the request");
    *l = *found;
    c->idempotent->look = l;
    c->only_compares = c->body_streams && c->op->compares;
    return c->only_compares ? c->op->run(c, e) : replay(c, l, e);
}

int idempotency_run(struct call *c, struct err *e)
{
    struct look l = {.c = c};

    if (c->tx ? look_row(c->tx, &l, e) : store_read(c->s->store, look_row, &l, e))
        return -1;
    if (l.found)
        return earlier(c, &l, e);
    if (c->idempotent->refusal.code) {
        *e = c->idempotent->refusal;
        return -1;
    }
    if (c->op->run(c, e))
        return -1;
    if (c->op->lane == ON_WRITE && !c->op->after_answers)
        return idempotency_record(c, c->tx, e);
    return 0;
}

/* --- this answer ----------------------------------------------------------------------------- */

/* The answer without its secret; NULL without memory. */
static char *sealed_body(struct call *c, const struct op_secret *secret)
{
    char *kept = secret->text ? *secret->text : NULL, *body;
    struct buf b;

    if (secret->text)
        *secret->text = NULL;
    buf_init(&b, ANSWER_CAP);
    json_encode(c->op->out, c->result, &b);
    if (secret->text)
        *secret->text = kept;
    body = buf_ok(&b) ? arena_strndup(c->arena, b.data, b.len) : NULL;
    buf_done(&b);
    return body;
}

static void fill_success(struct call *c, struct idempotency *record)
{
    struct op_secret secret = {0};

    if (c->op->secret)
        c->op->secret(c, &secret);
    record->status = c->status ? c->status : c->op->status;
    record->body = c->op->out ? sealed_body(c, &secret) : (char *)"";
    if (secret.lease) {
        record->lease_id = secret.lease->lease_id;
        record->iat = secret.iat;
        record->expires_at = secret.lease->expires_at;
        record->rq = secret.lease->grant_seq;
    }
}

static void fill_error(const struct err *e, struct idempotency *record)
{
    record->status = err_code_http(e->code);
    snprintf(record->code, sizeof record->code, "%s", err_code_name(e->code));
    snprintf(record->pointer, sizeof record->pointer, "%s", e->pointer);
    record->body = (char *)(uintptr_t)e->msg;
}

int idempotency_record(struct call *c, struct store_tx *tx, struct err *e)
{
    struct idempotent *r = c->idempotent;
    struct idempotency record = {.created_at = store_now_ms(tx)};

    if (!r)
        return 0;
    record.key_id = r->name.key_id;
    memcpy(record.key, r->name.key, sizeof record.key);
    memcpy(record.fingerprint, r->fingerprint, sizeof record.fingerprint);
    if (c->rc)
        fill_error(&c->e, &record);
    else
        fill_success(c, &record);
    if (!record.body)
        return err_set(e, ERR_INTERNAL, "no memory for the record of an answer");
    if (store_idempotency_put(tx, &record, e))
        return -1;
    r->recorded = true;
    return 0;
}

static int settle_row(struct store_tx *tx, void *arg, struct err *e)
{
    return idempotency_record(arg, tx, e);
}

/* An answer that could not be recorded is given all the same: it is true. */
static void settle_done(struct job *job)
{
    struct idempotent *r =
        (struct idempotent *)((char *)job - offsetof(struct idempotent, job.job));

    if (r->job.rc)
        log_error(r->call->s->log, "idempotency_unrecorded", &r->job.e);
    r->recorded = true;
    call_finish(r->call);
}

static bool wants_record(const struct call *c)
{
    const struct idempotent *r = c->idempotent;

    return r->claimed && !r->replayed && !r->recorded && idempotency_keeps(c->rc, &c->e);
}

bool idempotency_settle(struct call *c)
{
    struct idempotent *r = c->idempotent;
    struct err e;

    if (wants_record(c)) {
        r->call = c; /* an early answer is another call than the one that made the claim */
        r->job = (struct store_job){.job.done = settle_done, .fn = settle_row, .arg = c};
        if (!store_submit(c->s->store, &r->job, &e))
            return false;
        log_error(c->s->log, "idempotency_unrecorded", &e);
    }
    if (r->claimed)
        HASH_DEL(c->s->idempotent, r);
    r->claimed = false;
    return true;
}

/* --- age ------------------------------------------------------------------------------------- */

static int cleanup_row(struct store_tx *tx, void *arg, struct err *e)
{
    (void)arg;
    return store_idempotency_expire(tx, store_now_ms(tx) - IDEMPOTENCY_LIFE_MS, CLEANUP_BATCH, e);
}

static void cleanup_done(struct job *job)
{
    free((char *)job - offsetof(struct store_job, job));
}

/* No memory or a full queue: the next round comes. */
void idempotency_cleanup(struct services *s)
{
    struct store_job *job = calloc(1, sizeof *job);
    struct err e;

    if (!job)
        return;
    *job = (struct store_job){.job.done = cleanup_done, .fn = cleanup_row, .ends = true};
    if (store_submit(s->store, job, &e))
        free(job);
}
