/* The verbs of the store: what goes in comes out, and what must not go in is refused. */
#include "../support/store_fixture.h"

/* cmocka's asserts leave by longjmp, which must not happen on the writer thread: a write reports
 * through its result, and what it fetched is looked at afterwards. */
struct call {
    struct id id;
    struct workspace workspace;
    bool made;
    struct chat chat;
    struct sandbox sandbox;
    struct lease lease;
    struct api_key key;
    struct arena *arena;
    int64_t number;
    size_t n;
    struct fixture *f;
};

/* --- users, workspaces, chats ------------------------------------------------------------------- */

static int touch(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_workspace_touch(tx, &c->id, &c->workspace, &c->made, e);
}

static void a_workspace_is_made_once_for_a_user(void **state)
{
    struct fixture *f = *state;
    struct call first = {0}, second = {0};
    id_random(&first.id);
    second.id = first.id;
    fixture_write(f, touch, &first);
    fixture_write(f, touch, &second);
    assert_true(first.made);
    assert_false(second.made);
    assert_true(id_equal(&first.workspace.workspace_id, &second.workspace.workspace_id));
    assert_true(id_equal(&second.workspace.user_id, &first.id));
    assert_true(first.workspace.created_at > INT64_C(1600000000000));
}

static int insert_chat(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_chat_insert(tx, &c->chat, e);
}

static int get_chat(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_chat_get(tx, &c->id, c->arena, &c->chat, e);
}

static void a_chat_comes_back_as_it_was_stored(void **state)
{
    struct fixture *f = *state;
    struct call c = {0};
    id_random(&c.id);
    fixture_write(f, touch, &c);
    char metadata[] = "{\"k\":\"\xc3\xa4\"}";
    struct chat chat = {.user_id = c.id,
                        .workspace_id = c.workspace.workspace_id,
                        .metadata = metadata,
                        .created_at = 11,
                        .updated_at = 12};
    id_random(&chat.chat_id);
    memset(chat.title, 't', sizeof(chat.title) - 1);
    c.chat = chat;
    fixture_write(f, insert_chat, &c);

    struct call got = {.id = chat.chat_id, .arena = arena_new(65536)};
    fixture_read(f, get_chat, &got);
    assert_true(id_equal(&got.chat.chat_id, &chat.chat_id));
    assert_true(id_equal(&got.chat.user_id, &chat.user_id));
    assert_true(id_equal(&got.chat.workspace_id, &chat.workspace_id));
    assert_string_equal(got.chat.title, chat.title);
    assert_string_equal(got.chat.metadata, metadata);
    assert_int_equal(got.chat.created_at, 11);
    assert_int_equal(got.chat.updated_at, 12);
    assert_int_equal(got.chat.generation, 0);
    arena_free(got.arena);

    struct err e;
    assert_int_equal(store_write(f->store, insert_chat, &c, &e), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
}

static void a_chat_without_its_workspace_is_a_conflict(void **state)
{
    struct fixture *f = *state;
    struct call c = {0};
    struct err e;
    id_random(&c.chat.chat_id);
    id_random(&c.chat.user_id);
    id_random(&c.chat.workspace_id);
    assert_int_equal(store_write(f->store, insert_chat, &c, &e), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
}

static int bump(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_chat_bump_generation(tx, &c->id, &c->number, e);
}

static void a_generation_only_grows(void **state)
{
    struct fixture *f = *state;
    fixture_add_session(f);
    struct call c = {.id = f->chat_id};
    for (int64_t i = 1; i <= 3; i++) {
        fixture_write(f, bump, &c);
        assert_int_equal(c.number, i);
    }
    fixture_reopen(f);
    fixture_write(f, bump, &c);
    assert_int_equal(c.number, 4);
}

static void what_is_not_there_is_named_so(void **state)
{
    struct fixture *f = *state;
    struct call c = {.arena = arena_new(1024)};
    struct err e;
    id_random(&c.id);
    assert_int_equal(store_read(f->store, get_chat, &c, &e), -1);
    assert_int_equal(e.code, ERR_CHAT_NOT_FOUND);
    assert_int_equal(store_write(f->store, bump, &c, &e), -1);
    assert_int_equal(e.code, ERR_CHAT_NOT_FOUND);
    arena_free(c.arena);
}

/* --- sandboxes ---------------------------------------------------------------------------------- */

static int insert_sandbox(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_sandbox_insert(tx, &c->sandbox, e);
}

static int update_sandbox(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_sandbox_update(tx, &c->sandbox, e);
}

static int get_sandbox(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_sandbox_get(tx, &c->id, &c->sandbox, e);
}

static int active_sandbox(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_sandbox_active(tx, &c->id, &c->sandbox, e);
}

static int next_seq(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_session_next_seq(tx, &c->id, &c->number, e);
}

/* Every member another value, so that two swapped columns are seen. */
static void fill_sandbox(struct sandbox *s)
{
    strcpy(s->container_id, "local-1");
    strcpy(s->engine, "local");
    strcpy(s->node, "node-1");
    strcpy(s->profile, "default");
    strcpy(s->reason, "idle");
    s->status = SANDBOX_STOPPING;
    s->generation = 7;
    s->started_at = 102;
    s->last_activity_at = 103;
    s->expires_at = 104;
    s->max_expires_at = 105;
    s->idle_ttl_s = 106;
    s->uid = 107;
    s->netns = true;
    s->userns = false;
    s->seccomp = true;
    strcpy(s->network, "internal");
    for (size_t i = 0; i < sizeof(s->door_secret_hash); i++) {
        s->door_secret_hash[i] = (uint8_t)(i * 8 + 1);
    }
    s->door_pid = 108;
    s->door_start = 109;
    s->keep_pid = 110;
    s->keep_start = 111;
    s->door_port = 112;
}

static void assert_sandbox_equal(const struct sandbox *a, const struct sandbox *b)
{
    assert_memory_equal(&a->session_id, &b->session_id, sizeof(struct id));
    assert_memory_equal(&a->chat_id, &b->chat_id, sizeof(struct id));
    assert_memory_equal(&a->user_id, &b->user_id, sizeof(struct id));
    assert_memory_equal(&a->workspace_id, &b->workspace_id, sizeof(struct id));
    assert_string_equal(a->container_id, b->container_id);
    assert_string_equal(a->engine, b->engine);
    assert_string_equal(a->node, b->node);
    assert_string_equal(a->profile, b->profile);
    assert_string_equal(a->reason, b->reason);
    assert_int_equal(a->generation, b->generation);
    assert_int_equal(a->status, b->status);
    assert_int_equal(a->created_at, b->created_at);
    assert_int_equal(a->started_at, b->started_at);
    assert_int_equal(a->last_activity_at, b->last_activity_at);
    assert_int_equal(a->expires_at, b->expires_at);
    assert_int_equal(a->max_expires_at, b->max_expires_at);
    assert_int_equal(a->idle_ttl_s, b->idle_ttl_s);
    assert_int_equal(a->uid, b->uid);
    assert_int_equal(a->netns, b->netns);
    assert_int_equal(a->userns, b->userns);
    assert_int_equal(a->seccomp, b->seccomp);
    assert_string_equal(a->network, b->network);
    assert_memory_equal(a->door_secret_hash, b->door_secret_hash, 32);
    assert_int_equal(a->door_pid, b->door_pid);
    assert_int_equal(a->door_start, b->door_start);
    assert_int_equal(a->keep_pid, b->keep_pid);
    assert_int_equal(a->keep_start, b->keep_start);
    assert_int_equal(a->door_port, b->door_port);
    assert_int_equal(a->log_seq, b->log_seq);
}

static void a_sandbox_comes_back_as_it_was_stored_and_updated(void **state)
{
    struct fixture *f = *state;
    fixture_add_session(f);
    struct call c = {.id = f->session_id}, got = {.id = f->session_id};
    fixture_read(f, get_sandbox, &c);
    assert_int_equal(c.sandbox.status, SANDBOX_RUNNING);
    fill_sandbox(&c.sandbox);
    fixture_write(f, update_sandbox, &c);
    fixture_read(f, get_sandbox, &got);
    assert_sandbox_equal(&got.sandbox, &c.sandbox);
}

static void an_update_of_a_sandbox_leaves_its_log_alone(void **state)
{
    struct fixture *f = *state;
    fixture_add_session(f);
    struct call seq = {.id = f->session_id}, c = {.id = f->session_id};
    fixture_read(f, get_sandbox, &c);
    for (int64_t i = 1; i <= 5; i++) {
        fixture_write(f, next_seq, &seq);
        assert_int_equal(seq.number, i);
    }
    fixture_write(f, update_sandbox, &c); /* holds log_seq 0 */
    fixture_read(f, get_sandbox, &c);
    assert_int_equal(c.sandbox.log_seq, 5);
}

static void a_chat_has_at_most_one_active_sandbox(void **state)
{
    struct fixture *f = *state;
    struct err e;
    fixture_add_session(f);
    struct call second = {.sandbox = fixture_sandbox(&f->chat_id, &f->user_id, 2)};
    static const enum sandbox_status active[] = {SANDBOX_STARTING, SANDBOX_RUNNING,
                                                 SANDBOX_STOPPING};
    for (size_t i = 0; i < 3; i++) {
        second.sandbox.status = active[i];
        assert_int_equal(store_write(f->store, insert_sandbox, &second, &e), -1);
        assert_int_equal(e.code, ERR_CONFLICT);
    }
    struct call first = {.id = f->session_id};
    fixture_read(f, get_sandbox, &first);
    first.sandbox.status = SANDBOX_STOPPED;
    fixture_write(f, update_sandbox, &first);
    fixture_write(f, insert_sandbox, &second);

    /* and an ended one does not come back beside it */
    first.sandbox.status = SANDBOX_RUNNING;
    assert_int_equal(store_write(f->store, update_sandbox, &first, &e), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
}

static void a_generation_is_not_used_twice(void **state)
{
    struct fixture *f = *state;
    struct err e;
    fixture_add_session(f);
    struct call again = {.sandbox = fixture_sandbox(&f->chat_id, &f->user_id, 1)};
    again.sandbox.status = SANDBOX_STOPPED;
    assert_int_equal(store_write(f->store, insert_sandbox, &again, &e), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
}

static void the_active_sandbox_is_found_by_chat(void **state)
{
    struct fixture *f = *state;
    struct err e;
    fixture_add_session(f);
    struct call c = {.id = f->chat_id};
    fixture_read(f, active_sandbox, &c);
    assert_true(id_equal(&c.sandbox.session_id, &f->session_id));
    c.sandbox.status = SANDBOX_FAILED;
    fixture_write(f, update_sandbox, &c);
    assert_int_equal(store_read(f->store, active_sandbox, &c, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
}

struct stop_all {
    struct store_tx *tx;
    size_t n;
};

static int stop_one(void *ctx, const struct sandbox *s, struct err *e)
{
    struct stop_all *all = ctx;
    struct sandbox stopped = *s;
    stopped.status = SANDBOX_STOPPED;
    all->n++;
    return store_sandbox_update(all->tx, &stopped, e);
}

static int stop_every(struct store_tx *tx, void *arg, struct err *e)
{
    struct stop_all all = {.tx = tx};
    int rc = store_sandbox_each_active(tx, stop_one, &all, e);
    ((struct call *)arg)->n = all.n;
    return rc;
}

static void every_active_sandbox_is_visited_once_even_when_it_is_changed(void **state)
{
    struct fixture *f = *state;
    struct call c = {0};
    for (int i = 0; i < 20; i++) {
        fixture_add_session(f);
    }
    fixture_write(f, stop_every, &c);
    assert_int_equal(c.n, 20);
    fixture_write(f, stop_every, &c);
    assert_int_equal(c.n, 0);
}

/* --- leases ------------------------------------------------------------------------------------- */

static int insert_lease(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_lease_insert(tx, &c->lease, e);
}

static int update_lease(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_lease_update(tx, &c->lease, e);
}

static int get_lease(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_lease_get(tx, &c->id, &c->lease, e);
}

static void assert_lease_equal(const struct lease *a, const struct lease *b)
{
    assert_memory_equal(&a->lease_id, &b->lease_id, sizeof(struct id));
    assert_memory_equal(&a->session_id, &b->session_id, sizeof(struct id));
    assert_memory_equal(&a->chat_id, &b->chat_id, sizeof(struct id));
    assert_memory_equal(&a->user_id, &b->user_id, sizeof(struct id));
    assert_memory_equal(&a->api_key_id, &b->api_key_id, sizeof(struct id));
    assert_int_equal(a->scope, b->scope);
    assert_int_equal(a->use, b->use);
    assert_int_equal(a->max_connections, b->max_connections);
    assert_int_equal(a->state, b->state);
    assert_int_equal(a->issued_at, b->issued_at);
    assert_int_equal(a->expires_at, b->expires_at);
    assert_int_equal(a->max_expires_at, b->max_expires_at);
    assert_int_equal(a->revoked_at, b->revoked_at);
    assert_string_equal(a->revoked_reason, b->revoked_reason);
    assert_int_equal(a->grant_seq, b->grant_seq);
    assert_int_equal(a->ep, b->ep);
    assert_string_equal(a->kid, b->kid);
    assert_string_equal(a->cnf_jkt, b->cnf_jkt);
    assert_int_equal(a->consumed_at, b->consumed_at);
    assert_string_equal(a->renewed_kid, b->renewed_kid);
    assert_int_equal(a->n, b->n);
}

static void a_lease_comes_back_as_it_was_stored_and_updated(void **state)
{
    struct fixture *f = *state;
    fixture_add_session(f);
    struct call c = {.lease = fixture_lease(&f->session_id, &f->chat_id, &f->user_id)};
    c.lease.use = USE_ONCE;
    c.lease.max_connections = 3;
    strcpy(c.lease.cnf_jkt, "thumbprint");
    fixture_write(f, insert_lease, &c);
    struct call got = {.id = c.lease.lease_id};
    fixture_read(f, get_lease, &got);
    assert_lease_equal(&got.lease, &c.lease);

    c.lease.scope = SCOPE_READ;
    c.lease.max_connections = 2;
    c.lease.expires_at = 3000;
    c.lease.grant_seq = 4;
    memset(c.lease.renewed_kid, 'k', sizeof(c.lease.renewed_kid) - 1);
    c.lease.consumed_at = 2400;
    fixture_write(f, update_lease, &c);
    fixture_read(f, get_lease, &got);
    assert_lease_equal(&got.lease, &c.lease);

    static const enum lease_state ends[] = {LEASE_REVOKING, LEASE_CLOSED, LEASE_CLOSED};
    for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
        c.lease.state = ends[i];
        c.lease.revoked_at = 2500 + (int64_t)i;
        strcpy(c.lease.revoked_reason, "stopped");
        fixture_write(f, update_lease, &c);
        fixture_read(f, get_lease, &got);
        assert_lease_equal(&got.lease, &c.lease);
    }
}

static void a_lease_keeps_the_key_that_issued_it(void **state)
{
    struct fixture *f = *state;
    fixture_add_session(f);
    struct call c = {.lease = fixture_lease(&f->session_id, &f->chat_id, &f->user_id)};
    id_random(&c.lease.api_key_id);
    fixture_write(f, insert_lease, &c);
    struct call got = {.id = c.lease.lease_id};
    fixture_read(f, get_lease, &got);
    assert_true(id_equal(&got.lease.api_key_id, &c.lease.api_key_id));
}

static void a_lease_needs_its_session_and_an_id_of_its_own(void **state)
{
    struct fixture *f = *state;
    struct err e;
    fixture_add_session(f);
    struct call c = {.lease = fixture_lease(&f->session_id, &f->chat_id, &f->user_id)};
    fixture_write(f, insert_lease, &c);
    assert_int_equal(store_write(f->store, insert_lease, &c, &e), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
    c.lease = fixture_lease(&f->chat_id, &f->chat_id, &f->user_id);
    assert_int_equal(store_write(f->store, insert_lease, &c, &e), -1);
    assert_int_equal(e.code, ERR_CONFLICT);
    c.id = c.lease.lease_id;
    assert_int_equal(store_read(f->store, get_lease, &c, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_int_equal(store_write(f->store, update_lease, &c, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
}

struct close_all {
    struct store_tx *tx;
    size_t n;
};

static int close_one(void *ctx, const struct lease *l, struct err *e)
{
    struct close_all *all = ctx;
    struct lease closed = *l;
    closed.state = LEASE_CLOSED;
    all->n++;
    return store_lease_update(all->tx, &closed, e);
}

/* Of the session in c->id. */
static int close_every(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    struct close_all all = {.tx = tx};
    int rc = store_lease_each_open_of(tx, &c->id, close_one, &all, e);
    c->n = all.n;
    return rc;
}

static int count_one(void *ctx, const struct lease *l, struct err *e)
{
    size_t *n = ctx;
    (void)e;
    assert_int_equal(l->state, LEASE_PENDING);
    *n += 1;
    return 0;
}

static int count_every(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    c->n = 0;
    return store_lease_each_open(tx, count_one, &c->n, e);
}

static int skip_lease(void *ctx, const struct lease *l, struct err *e)
{
    (void)ctx;
    (void)l;
    (void)e;
    return 0;
}

static int walk_and_touch(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    err_clear(e);
    int rc = store_lease_each_open(tx, skip_lease, NULL, e);
    rc = rc == 0 ? store_workspace_touch(tx, &c->id, &c->workspace, &c->made, e) : rc;
    c->number = e->code;
    return rc;
}

static void success_leaves_the_error_alone(void **state)
{
    struct fixture *f = *state;
    struct call c = {0};
    id_random(&c.id);
    fixture_write(f, walk_and_touch, &c);
    assert_true(c.made);
    assert_int_equal(c.number, ERR_NONE);
}

static void open_leases_are_visited_once_by_session_or_all(void **state)
{
    struct fixture *f = *state;
    struct call c = {0};
    struct id sessions[3];
    for (size_t i = 0; i < 3; i++) {
        fixture_add_session(f);
        sessions[i] = f->session_id;
        for (int k = 0; k < 10; k++) {
            c.lease = fixture_lease(&f->session_id, &f->chat_id, &f->user_id);
            c.lease.state = k < 2 ? LEASE_CLOSED : LEASE_PENDING;
            fixture_write(f, insert_lease, &c);
        }
    }
    c.id = sessions[1];
    fixture_write(f, close_every, &c);
    assert_int_equal(c.n, 8);
    fixture_write(f, close_every, &c);
    assert_int_equal(c.n, 0);
    fixture_read(f, count_every, &c);
    assert_int_equal(c.n, 16);
}

static int fail_at_third(void *ctx, const struct lease *l, struct err *e)
{
    (void)l;
    size_t *n = ctx;
    return ++*n == 3 ? err_set(e, ERR_NOT_FOUND, "enough") : 0;
}

static int walk_and_fail(struct store_tx *tx, void *arg, struct err *e)
{
    return store_lease_each_open(tx, fail_at_third, &((struct call *)arg)->n, e);
}

static void a_walk_stops_at_the_first_failure_and_passes_it_on(void **state)
{
    struct fixture *f = *state;
    struct call c = {0};
    struct err e;
    fixture_add_session(f);
    for (int k = 0; k < 5; k++) {
        c.lease = fixture_lease(&f->session_id, &f->chat_id, &f->user_id);
        fixture_write(f, insert_lease, &c);
    }
    assert_int_equal(store_read(f->store, walk_and_fail, &c, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
    assert_string_equal(e.msg, "enough");
    assert_int_equal(c.n, 3);
}

/* --- API keys ----------------------------------------------------------------------------------- */

static int insert_key(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_api_key_insert(tx, &c->key, e);
}

static int get_key(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_api_key_get(tx, &c->id, c->arena, &c->key, e);
}

static int count_key(void *ctx, const struct api_key *k, struct err *e)
{
    (void)e;
    struct call *c = ctx;
    c->n++;
    c->number += (int64_t)k->allowed_users.n;
    return 0;
}

static int count_keys(struct store_tx *tx, void *arg, struct err *e)
{
    struct call *c = arg;
    return store_api_key_each(tx, c->arena, count_key, c, e);
}

static void an_api_key_comes_back_with_its_users_in_their_order(void **state)
{
    struct fixture *f = *state;
    struct id users[4];
    for (size_t i = 0; i < 3; i++) {
        id_random(&users[i]);
    }
    users[3] = users[0]; /* named twice, kept once */
    struct api_key key = {.role = ROLE_BOT,
                          .limited = true,
                          .allowed_users = {users, 4},
                          .default_user = users[1],
                          .created_at = 1,
                          .expires_at = 2,
                          .last_used_at = 3,
                          .revoked_at = 4};
    id_random(&key.key_id);
    memset(key.name, 'n', sizeof(key.name) - 1);
    memset(key.secret_hash, 0xa5, sizeof(key.secret_hash));
    struct call c = {.key = key}, got = {.id = key.key_id, .arena = arena_new(65536)};
    fixture_write(f, insert_key, &c);
    fixture_read(f, get_key, &got);
    assert_string_equal(got.key.name, key.name);
    assert_int_equal(got.key.role, ROLE_BOT);
    assert_memory_equal(got.key.secret_hash, key.secret_hash, 32);
    assert_true(got.key.limited);
    assert_int_equal(got.key.allowed_users.n, 3);
    assert_memory_equal(got.key.allowed_users.items, users, 3 * sizeof(struct id));
    assert_true(id_equal(&got.key.default_user, &users[1]));
    assert_int_equal(got.key.created_at, 1);
    assert_int_equal(got.key.expires_at, 2);
    assert_int_equal(got.key.last_used_at, 3);
    assert_int_equal(got.key.revoked_at, 4);
    arena_free(got.arena);
}

static void limited_to_nobody_is_not_unlimited(void **state)
{
    struct fixture *f = *state;
    struct call c = {.key = {.role = ROLE_BOT, .limited = true}, .arena = arena_new(1024)};
    id_random(&c.key.key_id);
    c.id = c.key.key_id;
    fixture_write(f, insert_key, &c);
    fixture_read(f, get_key, &c);
    assert_true(c.key.limited);
    assert_int_equal(c.key.allowed_users.n, 0);
    assert_true(id_is_zero(&c.key.default_user));
    arena_free(c.arena);
}

static void every_api_key_is_visited(void **state)
{
    struct fixture *f = *state;
    struct id users[2];
    id_random(&users[0]);
    id_random(&users[1]);
    struct call c = {.key = {.role = ROLE_ADMIN, .allowed_users = {users, 2}},
                     .arena = arena_new(65536)};
    for (int i = 0; i < 7; i++) {
        id_random(&c.key.key_id);
        fixture_write(f, insert_key, &c);
    }
    fixture_read(f, count_keys, &c);
    assert_int_equal(c.n, 7);
    assert_int_equal(c.number, 14);
    arena_free(c.arena);
}

int main(void)
{
#define T(f) cmocka_unit_test_setup_teardown(f, fixture_setup, fixture_teardown)
    const struct CMUnitTest tests[] = {
        T(a_workspace_is_made_once_for_a_user),
        T(a_chat_comes_back_as_it_was_stored),
        T(a_chat_without_its_workspace_is_a_conflict),
        T(a_generation_only_grows),
        T(what_is_not_there_is_named_so),
        T(a_sandbox_comes_back_as_it_was_stored_and_updated),
        T(an_update_of_a_sandbox_leaves_its_log_alone),
        T(a_chat_has_at_most_one_active_sandbox),
        T(a_generation_is_not_used_twice),
        T(the_active_sandbox_is_found_by_chat),
        T(every_active_sandbox_is_visited_once_even_when_it_is_changed),
        T(a_lease_comes_back_as_it_was_stored_and_updated),
        T(a_lease_keeps_the_key_that_issued_it),
        T(a_lease_needs_its_session_and_an_id_of_its_own),
        T(success_leaves_the_error_alone),
        T(open_leases_are_visited_once_by_session_or_all),
        T(a_walk_stops_at_the_first_failure_and_passes_it_on),
        T(an_api_key_comes_back_with_its_users_in_their_order),
        T(limited_to_nobody_is_not_unlimited),
        T(every_api_key_is_visited),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
