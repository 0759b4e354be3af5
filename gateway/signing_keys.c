#include "signing_keys.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "app.h"
#include "bulk_revoke.h"

#define GRACE_S   60
#define NEVER_MS  INT64_MAX
#define STORED_S  1 /* what is signed while a rotation becomes durable is not of a later time */
#define PATH_SIZE 4096

/* A set that was replaced. */
struct former {
    const struct keyset *keys;
    int64_t replaced_us;
    struct former *next;
};

struct signing_keys {
    struct services *s;
    /* of the writer thread, once the gateway runs */
    const struct keyset *pending; /* takes the place of services.keys with the commit */
    int64_t pending_due_ms;
    struct former *former;
    /* any thread */
    _Atomic int64_t due_ms; /* when the first retired key goes */
    /* loop */
    struct job cleanup;
    bool cleaning;
};

struct rows {
    struct signing_key *keys;
    size_t n, size;
};

struct signing_keys *signing_keys_new(struct services *s)
{
    struct signing_keys *sk = calloc(1, sizeof *sk);

    if (sk) {
        sk->s = s;
        sk->due_ms = NEVER_MS;
    }
    return sk;
}

void signing_keys_free(struct signing_keys *sk)
{
    if (!sk)
        return;
    while (sk->former) {
        struct former *f = sk->former;

        sk->former = f->next;
        keyset_free((struct keyset *)f->keys);
        free(f);
    }
    if (sk->pending != sk->s->keys)
        keyset_free((struct keyset *)sk->pending);
    keyset_free((struct keyset *)sk->s->keys);
    free(sk);
}

/* --- files ----------------------------------------------------------------------------------- */

static int path_of(const struct signing_keys *sk, const char *file, char ret[static PATH_SIZE],
                   struct err *e)
{
    int n = snprintf(ret, PATH_SIZE, "%s/" KEYS_DIR "/%s", sk->s->cfg->dir, file);

    return n < PATH_SIZE ? 0 : err_set(e, ERR_INTERNAL, "the configuration's path is too long");
}

static void file_remove(const struct signing_keys *sk, const char *file)
{
    char path[PATH_SIZE];
    struct err e;

    if (!path_of(sk, file, path, &e))
        unlink(path);
}

/* Fills in what the file holds. */
static int describe(const struct signing_keys *sk, struct signing_key *k, struct err *e)
{
    struct keyset *ks = keyset_new();
    struct key_public pub;
    char path[PATH_SIZE];

    if (!ks)
        return err_set(e, ERR_INTERNAL, "no memory for a key");
    if (path_of(sk, k->file, path, e) || keyset_add_signing_file(ks, path, e)) {
        keyset_free(ks);
        return -1;
    }
    keyset_get(ks, 0, &pub);
    memcpy(k->kid, pub.kid, sizeof k->kid);
    memcpy(k->x, pub.x, sizeof k->x);
    memcpy(k->y, pub.y, sizeof k->y);
    keyset_free(ks);
    return 0;
}

static int key_make(const struct signing_keys *sk, struct signing_key *ret, struct err *e)
{
    struct id id;
    char path[PATH_SIZE];

    *ret = (struct signing_key){.state = SIGNING_KEY_NEXT};
    id_random(&id);
    snprintf(ret->file, sizeof ret->file, "lease-%s.pem", ID_STR(&id));
    return path_of(sk, ret->file, path, e) || keyset_generate_file(path, e) || describe(sk, ret, e)
               ? -1
               : 0;
}

/* --- rows ------------------------------------------------------------------------------------ */

static int row_add(void *ctx, const struct signing_key *k, struct err *e)
{
    struct rows *r = ctx;

    if (r->n == r->size) {
        size_t size = r->size ? r->size * 2 : 16;
        struct signing_key *keys = reallocarray(r->keys, size, sizeof *keys);

        if (!keys)
            return err_set(e, ERR_INTERNAL, "no memory for the keys");
        r->keys = keys;
        r->size = size;
    }
    r->keys[r->n++] = *k;
    return 0;
}

static struct signing_key *row_find(const struct rows *r, const char *kid)
{
    for (size_t i = 0; i < r->n; i++)
        if (!strcmp(r->keys[i].kid, kid))
            return &r->keys[i];
    return NULL;
}

static struct signing_key *row_in(const struct rows *r, enum signing_key_state state)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->keys[i].state == state)
            return &r->keys[i];
    return NULL;
}

static bool has_file(const struct signing_key *k)
{
    return k->state == SIGNING_KEY_NEXT || k->state == SIGNING_KEY_SIGNING;
}

static int set_add(const struct signing_keys *sk, struct keyset *ks, const struct signing_key *k,
                   struct err *e)
{
    struct key_public pub = {.retired_at = k->retired_at / 1000};
    char path[PATH_SIZE];

    if (has_file(k))
        return path_of(sk, k->file, path, e) || keyset_add_signing_file(ks, path, e) ? -1 : 0;
    if (k->state != SIGNING_KEY_RETIRED)
        return 0;
    memcpy(pub.kid, k->kid, sizeof pub.kid);
    memcpy(pub.x, k->x, sizeof pub.x);
    memcpy(pub.y, k->y, sizeof pub.y);
    return keyset_add_public(ks, &pub, e);
}

static int64_t gone_at_ms(const struct signing_keys *sk, const struct signing_key *k)
{
    const struct lease_policy *p = &sk->s->policy;

    return k->retired_at + (p->ttl_max_s + p->skew_s) * 1000;
}

/* The set of these rows, to take its place with the commit: the last thing of a write, so that no
 * set is left of one that was taken back. */
static int prepare(struct signing_keys *sk, const struct rows *r, struct err *e)
{
    const struct signing_key *signing = row_in(r, SIGNING_KEY_SIGNING);
    struct keyset *ks = keyset_new();
    int64_t due_ms = NEVER_MS;

    if (!ks)
        return err_set(e, ERR_INTERNAL, "no memory for the keys");
    for (size_t i = 0; i < r->n; i++) {
        const struct signing_key *k = &r->keys[i];

        if (set_add(sk, ks, k, e)) {
            keyset_free(ks);
            return -1;
        }
        if (k->state == SIGNING_KEY_RETIRED && gone_at_ms(sk, k) < due_ms)
            due_ms = gone_at_ms(sk, k);
    }
    if (!signing || keyset_sign_with(ks, signing->kid, e)) {
        keyset_free(ks);
        return signing ? -1 : err_set(e, ERR_INTERNAL, "no key signs");
    }
    if (sk->pending != sk->s->keys) /* of a group that did not come through */
        keyset_free((struct keyset *)sk->pending);
    sk->pending = ks;
    sk->pending_due_ms = due_ms;
    return 0;
}

static void free_former(struct signing_keys *sk, int64_t now_us)
{
    struct former **at = &sk->former;

    while (*at) {
        struct former *f = *at;

        if (now_us - f->replaced_us < GRACE_S * INT64_C(1000000)) {
            at = &f->next;
            continue;
        }
        *at = f->next;
        keyset_free((struct keyset *)f->keys);
        free(f);
    }
}

void signing_keys_committed(struct signing_keys *sk)
{
    int64_t now_us = clock_boot_us(sk->s->clock);
    const struct keyset *former = sk->s->keys;
    struct former *f;

    if (sk->pending == former) /* each session has its change */
        return;
    sk->s->keys = sk->pending;
    sk->due_ms = sk->pending_due_ms;
    free_former(sk, now_us);
    f = former ? calloc(1, sizeof *f) : NULL;
    if (f) { /* without memory it stays for ever */
        *f = (struct former){former, now_us, sk->former};
        sk->former = f;
    }
}

/* --- start ----------------------------------------------------------------------------------- */

static int load_rows(struct store_tx *tx, struct rows *r, struct err *e)
{
    return store_signing_key_each(tx, row_add, r, e);
}

/* The key of `init` signs. */
static int first_row(struct store_tx *tx, struct signing_keys *sk, struct rows *r, struct err *e)
{
    struct signing_key k = {.state = SIGNING_KEY_SIGNING, .file = FIRST_KEY_FILE};

    k.created_at = k.signing_at = store_now_ms(tx);
    return describe(sk, &k, e) || store_signing_key_insert(tx, &k, e) || row_add(r, &k, e) ? -1 : 0;
}

static int next_row(struct store_tx *tx, struct signing_keys *sk, struct rows *r, struct err *e)
{
    struct signing_key k;

    if (key_make(sk, &k, e))
        return -1;
    k.created_at = store_now_ms(tx);
    return store_signing_key_insert(tx, &k, e) || row_add(r, &k, e) ? -1 : 0;
}

static int load(struct store_tx *tx, void *arg, struct err *e)
{
    struct signing_keys *sk = arg;
    struct rows r = {0};
    int rc = load_rows(tx, &r, e) || (!r.n && first_row(tx, sk, &r, e)) ||
                     (!row_in(&r, SIGNING_KEY_NEXT) && next_row(tx, sk, &r, e)) ||
                     prepare(sk, &r, e)
                 ? -1
                 : 0;

    /* A crash may have come between a row and its file. */
    for (size_t i = 0; !rc && i < r.n; i++)
        if (r.keys[i].state == SIGNING_KEY_KILLED || r.keys[i].state == SIGNING_KEY_GONE)
            file_remove(sk, r.keys[i].file);
    free(r.keys);
    return rc;
}

int signing_keys_load(struct signing_keys *sk, struct err *e)
{
    /* A full disk is no reason not to start: what ends could not go on. */
    if (store_write_end(sk->s->store, load, sk, e))
        return -1;
    signing_keys_committed(sk);
    return 0;
}

/* --- a change -------------------------------------------------------------------------------- */

struct key_change {
    struct signing_keys *sk;
    struct call *c;
    const char *kid;
    struct signing_key made; /* the next one, if one is needed */
    bool made_used;
    char dead_file[64]; /* "" or of the key that is no more */
    struct bulk *bulk;
};

static int tell_session(void *ctx, const struct sandbox *session, struct err *e)
{
    struct store_tx *tx = ctx;
    struct change c = {.kind = CHANGE_KEYS, .sandbox = *session};

    if (store_session_next_seq(tx, &session->session_id, &c.seq, e))
        return -1;
    store_emit(tx, &c);
    return 0;
}

/* An entry in every session's log, and one for the gateway itself. */
static int tell(struct store_tx *tx, struct err *e)
{
    store_emit(tx, &(struct change){.kind = CHANGE_KEYS});
    return store_sandbox_each_active(tx, tell_session, tx, e);
}

static int audit(struct store_tx *tx, const struct call *c, const char *action, const char *kid,
                 struct err *e)
{
    return store_audit_deed(
        tx,
        &(struct audit_deed){
            .caller = c ? &c->caller : NULL, .action = action, .kind = "signing_key", .name = kid},
        e);
}

static int add_made(struct store_tx *tx, struct key_change *k, struct rows *r, struct err *e)
{
    k->made.created_at = store_now_ms(tx);
    k->made_used = true;
    return store_signing_key_insert(tx, &k->made, e) || row_add(r, &k->made, e) ? -1 : 0;
}

static int promote(struct store_tx *tx, struct key_change *k, struct rows *r, struct err *e)
{
    struct signing_key *next = row_in(r, SIGNING_KEY_NEXT);

    if (!next)
        return err_set(e, ERR_INTERNAL, "there is no next key");
    next->state = SIGNING_KEY_SIGNING;
    next->signing_at = store_now_ms(tx);
    return store_signing_key_update(tx, next, e) || add_made(tx, k, r, e) ? -1 : 0;
}

static int rotate_rows(struct store_tx *tx, struct key_change *k, struct rows *r, struct err *e)
{
    struct signing_key *old;

    if (load_rows(tx, r, e))
        return -1;
    old = row_in(r, SIGNING_KEY_SIGNING);
    if (!old)
        return err_set(e, ERR_INTERNAL, "no key signs");
    old->state = SIGNING_KEY_RETIRED;
    old->retired_at = store_now_ms(tx) + STORED_S * 1000;
    return store_signing_key_update(tx, old, e) || promote(tx, k, r, e) ||
                   audit(tx, k->c, "key.rotate", old->kid, e) || tell(tx, e) || prepare(k->sk, r, e)
               ? -1
               : 0;
}

static int rotate(struct store_tx *tx, void *arg, struct err *e)
{
    struct rows r = {0};
    int rc = rotate_rows(tx, arg, &r, e);

    free(r.keys);
    return rc;
}

static int run_change(struct key_change *k, store_fn fn, struct err *e)
{
    int rc = key_make(k->sk, &k->made, e) || store_write_end(k->sk->s->store, fn, k, e) ? -1 : 0;

    if (k->made.file[0] && (rc || !k->made_used))
        file_remove(k->sk, k->made.file);
    if (!rc && k->dead_file[0])
        file_remove(k->sk, k->dead_file);
    return rc;
}

int signing_keys_rotate(struct signing_keys *sk, struct call *c, struct err *e)
{
    struct key_change k = {.sk = sk, .c = c};

    return run_change(&k, rotate, e);
}

/* --- kill ------------------------------------------------------------------------------------ */

static int kill_row(struct store_tx *tx, struct key_change *k, struct rows *r,
                    struct signing_key *dead, struct err *e)
{
    enum signing_key_state before = dead->state;

    dead->state = SIGNING_KEY_KILLED;
    dead->ended_at = store_now_ms(tx);
    snprintf(k->dead_file, sizeof k->dead_file, "%s", dead->file);
    if (store_signing_key_update(tx, dead, e) || audit(tx, k->c, "key.kill", dead->kid, e))
        return -1;
    if (before == SIGNING_KEY_SIGNING)
        return promote(tx, k, r, e);
    return before == SIGNING_KEY_NEXT ? add_made(tx, k, r, e) : 0;
}

static int kill_rows(struct store_tx *tx, struct key_change *k, struct rows *r, struct err *e)
{
    struct signing_key *dead;

    if (load_rows(tx, r, e))
        return -1;
    dead = row_find(r, k->kid);
    if (!dead)
        return err_set(e, ERR_NOT_FOUND, "no such key");
    if (dead->state == SIGNING_KEY_KILLED)
        return 0;
    return kill_row(tx, k, r, dead, e) || tell(tx, e) ? -1 : 0;
}

static int kill_end(struct store_tx *tx, void *arg, struct err *e)
{
    struct key_change *k = arg;
    int rc;

    k->c->tx = tx;
    rc = bulk_write(k->bulk, e);
    k->c->tx = NULL;
    return rc;
}

static int kill_begin(struct store_tx *tx, void *arg, struct err *e)
{
    struct key_change *k = arg;
    const struct store_match match = {.by = MATCH_KID, .kid = k->kid};
    struct rows r = {0};
    int rc;

    k->c->tx = tx;
    rc = bulk_collect(k->bulk, &match, e) || kill_rows(tx, k, &r, e) || bulk_write(k->bulk, e) ||
                 prepare(k->sk, &r, e)
             ? -1
             : 0;
    k->c->tx = NULL;
    free(r.keys);
    return rc;
}

int signing_keys_kill(struct signing_keys *sk, struct call *c, const char *kid,
                      int64_t *ret_revoked, struct err *e)
{
    struct key_change k = {.sk = sk, .c = c, .kid = kid, .bulk = bulk_new(c, "signing_key_killed")};

    if (!k.bulk)
        return err_set(e, ERR_INTERNAL, "no memory for the answer");
    if (run_change(&k, kill_begin, e))
        return -1;
    while (k.bulk->next < k.bulk->n)
        if (store_write_end(sk->s->store, kill_end, &k, e))
            return -1;
    *ret_revoked = (int64_t)k.bulk->revoked;
    return 0;
}

/* --- gone ------------------------------------------------------------------------------------ */

static int retire_rows(struct store_tx *tx, struct signing_keys *sk, struct rows *r, struct err *e)
{
    if (load_rows(tx, r, e))
        return -1;
    for (size_t i = 0; i < r->n; i++) {
        struct signing_key *k = &r->keys[i];

        if (k->state != SIGNING_KEY_RETIRED || gone_at_ms(sk, k) > store_now_ms(tx))
            continue;
        k->state = SIGNING_KEY_GONE;
        k->ended_at = store_now_ms(tx);
        if (store_signing_key_update(tx, k, e) || audit(tx, NULL, "key.gone", k->kid, e))
            return -1;
    }
    return tell(tx, e) || prepare(sk, r, e) ? -1 : 0;
}

static int let_go(struct store_tx *tx, void *arg, struct err *e)
{
    struct rows r = {0};
    int rc = retire_rows(tx, arg, &r, e);

    free(r.keys);
    return rc;
}

static int remove_gone(void *ctx, const struct signing_key *k, struct err *e)
{
    (void)e;
    if (k->state == SIGNING_KEY_GONE)
        file_remove(ctx, k->file);
    return 0;
}

static int look_gone(struct store_tx *tx, void *arg, struct err *e)
{
    return store_signing_key_each(tx, remove_gone, arg, e);
}

static void cleanup_run(struct job *job)
{
    struct signing_keys *sk =
        (struct signing_keys *)((char *)job - offsetof(struct signing_keys, cleanup));
    struct err e;

    if (store_write_end(sk->s->store, let_go, sk, &e) ||
        store_read(sk->s->store, look_gone, sk, &e))
        log_error(sk->s->log, "signing_keys_cleanup_failed", &e);
}

static void cleanup_done(struct job *job)
{
    struct signing_keys *sk =
        (struct signing_keys *)((char *)job - offsetof(struct signing_keys, cleanup));

    sk->cleaning = false;
}

void signing_keys_cleanup(struct signing_keys *sk)
{
    struct err e;

    if (sk->cleaning || clock_wall_ms(sk->s->clock) < sk->due_ms)
        return;
    sk->cleanup = (struct job){.run = cleanup_run, .done = cleanup_done};
    sk->cleaning = !lane_submit(sk->s->file, &sk->cleanup, &e);
}
