/* The rows of artifacts: they count for their workspace until they are deleted, are listed by chat, user
 * and state, and are found by the sweep when it is their time. */
#include "../support/store_fixture.h"

#include "leasehold/artifacts.h"

struct artifact_case {
    struct fixture *f;
    struct artifact a;
    struct artifact got;
    int64_t used;
    enum artifact_work work;
    struct store_filter filter;
    size_t n;
    bool links_hold;
};

static int insert(struct store_tx *tx, void *arg, struct err *e)
{
    return store_artifact_insert(tx, &((struct artifact_case *)arg)->a, e);
}

static int update(struct store_tx *tx, void *arg, struct err *e)
{
    return store_artifact_update(tx, &((struct artifact_case *)arg)->a, e);
}

static int forget(struct store_tx *tx, void *arg, struct err *e)
{
    return store_artifact_forget(tx, &((struct artifact_case *)arg)->a.artifact_id, e);
}

static int mark_chat(struct store_tx *tx, void *arg, struct err *e)
{
    const struct artifact_case *c = arg;
    return store_artifact_mark_chat(tx, &c->a.chat_id, c->links_hold, e);
}

static int look(struct store_tx *tx, void *arg, struct err *e)
{
    struct artifact_case *c = arg;
    return store_artifact_get(tx, &c->a.artifact_id, &c->got, e);
}

static int look_used(struct store_tx *tx, void *arg, struct err *e)
{
    struct artifact_case *c = arg;
    struct store_usage u;
    int64_t sum;
    if (store_usage_get(tx, &c->f->user_id, &u, e) != 0 ||
        store_artifact_sum(tx, &c->f->user_id, &sum, e) != 0) {
        return -1;
    }
    assert_int_equal(sum, u.used_bytes);
    c->used = u.used_bytes;
    return 0;
}

static int count_one(void *ctx, const struct artifact *a, struct err *e)
{
    struct artifact_case *c = ctx;
    (void)e;
    c->got = *a;
    c->n++;
    return 0;
}

static int find_work(struct store_tx *tx, void *arg, struct err *e)
{
    struct artifact_case *c = arg;
    const struct id none = {0};
    c->n = 0;
    return store_artifact_work(tx, c->work, &none, 10, count_one, c, e);
}

static int list(struct store_tx *tx, void *arg, struct err *e)
{
    struct artifact_case *c = arg;
    const struct caller everybody = {.role = ROLE_ADMIN};
    const struct store_list l = {.limit = 10, .caller = &everybody};
    c->n = 0;
    return store_artifact_list(tx, &l, &c->filter, count_one, c, e);
}

static int setup(void **state)
{
    struct fixture *f = fixture_new();
    f->options.quota_bytes = 1000;
    fixture_open(f);
    fixture_add_session(f);
    *state = f;
    return 0;
}

static struct artifact_case new_case(struct fixture *f, int64_t size)
{
    struct artifact_case c = {.f = f,
                              .a = {.chat_id = f->chat_id,
                                    .user_id = f->user_id,
                                    .name = "n",
                                    .content_type = "t",
                                    .size_bytes = size,
                                    .created_at = 1000,
                                    .object_key = "k"}};
    id_random(&c.a.artifact_id);
    return c;
}

static int64_t used(struct fixture *f)
{
    struct artifact_case c = {.f = f};
    fixture_read(f, look_used, &c);
    return c.used;
}

static size_t work(struct fixture *f, enum artifact_work which)
{
    struct artifact_case c = {.f = f, .work = which};
    fixture_read(f, find_work, &c);
    return c.n;
}

static size_t listed(struct fixture *f, struct store_filter filter)
{
    struct artifact_case c = {.f = f, .filter = filter};
    fixture_read(f, list, &c);
    return c.n;
}

static void it_counts_until_it_is_deleted(void **state)
{
    struct fixture *f = *state;
    struct artifact_case c = new_case(f, 600), more = new_case(f, 401);
    struct err e;
    fixture_write(f, insert, &c);
    assert_int_equal(used(f), 600);
    assert_int_equal(store_write(f->store, insert, &more, &e), -1);
    assert_int_equal(e.code, ERR_WORKSPACE_QUOTA_EXCEEDED);
    c.a.state = ARTIFACT_MARKED;
    fixture_write(f, update, &c);
    assert_int_equal(used(f), 600);
    c.a.state = ARTIFACT_DELETED;
    fixture_write(f, update, &c);
    assert_int_equal(used(f), 0);
    fixture_write(f, update, &c);
    assert_int_equal(used(f), 0);
}

static void one_that_never_was_leaves_nothing(void **state)
{
    struct fixture *f = *state;
    struct artifact_case c = new_case(f, 300);
    struct err e;
    fixture_write(f, insert, &c);
    fixture_write(f, forget, &c);
    assert_int_equal(used(f), 0);
    assert_int_equal(store_read(f->store, look, &c, &e), -1);
    assert_int_equal(e.code, ERR_NOT_FOUND);
}

static void every_column_comes_back(void **state)
{
    struct fixture *f = *state;
    struct artifact_case c = new_case(f, 5);
    fixture_write(f, insert, &c);
    c.a.state = ARTIFACT_DELIVERY_FAILED;
    strcpy(c.a.sha256, "sum");
    c.a.stored_at = 2;
    c.a.delete_after = 3;
    c.a.links_until = 4;
    strcpy(c.a.upload_id, "upload");
    c.a.delivery = (struct artifact_delivery){.status = "failed",
                                              .channel = "c",
                                              .external_ref = "r",
                                              .detail = "d",
                                              .attempts = 6,
                                              .at = 7};
    fixture_write(f, update, &c);
    fixture_read(f, look, &c);
    assert_memory_equal(&c.got, &c.a, sizeof c.a);
}

static void the_sweep_finds_what_it_has_to_do(void **state)
{
    struct fixture *f = *state;
    struct artifact_case c = new_case(f, 1);
    const int64_t past = 1, future = INT64_C(1) << 50;
    fixture_write(f, insert, &c);
    assert_int_equal(work(f, ARTIFACT_WORK_CREATED), 1);
    c.a.state = ARTIFACT_STORED;
    c.a.delete_after = future;
    fixture_write(f, update, &c);
    assert_int_equal(work(f, ARTIFACT_WORK_CREATED), 0);
    assert_int_equal(work(f, ARTIFACT_WORK_EXPIRED), 0);
    c.a.delete_after = past;
    c.a.links_until = future; /* somebody may be reading */
    fixture_write(f, update, &c);
    assert_int_equal(work(f, ARTIFACT_WORK_EXPIRED), 0);
    c.a.links_until = past;
    fixture_write(f, update, &c);
    assert_int_equal(work(f, ARTIFACT_WORK_EXPIRED), 1);
    c.a.state = ARTIFACT_MARKED;
    c.a.delete_after = future;
    fixture_write(f, update, &c);
    assert_int_equal(work(f, ARTIFACT_WORK_MARKED), 0);
    c.a.delete_after = past;
    fixture_write(f, update, &c);
    assert_int_equal(work(f, ARTIFACT_WORK_MARKED), 1);
}

static void lists_leave_out_what_is_deleted(void **state)
{
    static const char *const deleted[] = {"deleted", NULL};
    struct fixture *f = *state;
    struct artifact_case kept = new_case(f, 1), gone = new_case(f, 1);
    const struct id stranger = {{1}};
    fixture_write(f, insert, &kept);
    fixture_write(f, insert, &gone);
    gone.a.state = ARTIFACT_DELETED;
    fixture_write(f, update, &gone);
    assert_int_equal(listed(f, (struct store_filter){0}), 1);
    assert_int_equal(listed(f, (struct store_filter){.chat_id = f->chat_id}), 1);
    assert_int_equal(listed(f, (struct store_filter){.user_id = f->user_id}), 1);
    assert_int_equal(listed(f, (struct store_filter){.user_id = stranger}), 0);
    assert_int_equal(listed(f, (struct store_filter){.chat_id = f->chat_id, .user_id = stranger}),
                     0);
    assert_int_equal(listed(f, (struct store_filter){.names = deleted}), 1);
}

static void a_chat_takes_its_artifacts_along(void **state)
{
    struct fixture *f = *state;
    struct artifact_case stored = new_case(f, 1), uploading = new_case(f, 1);
    fixture_write(f, insert, &stored);
    fixture_write(f, insert, &uploading);
    stored.a.state = ARTIFACT_STORED;
    stored.a.delete_after = INT64_C(1) << 50;
    fixture_write(f, update, &stored);
    fixture_write(f, mark_chat, &stored);
    assert_int_equal(work(f, ARTIFACT_WORK_MARKED), 1);
    assert_int_equal(work(f, ARTIFACT_WORK_CREATED), 1); /* its own end sees to it */
}

static void links_hold_what_goes_with_its_chat_only_where_they_do(void **state)
{
    struct fixture *f = *state;
    struct artifact_case held = new_case(f, 1), free = new_case(f, 1);
    held.a.state = free.a.state = ARTIFACT_STORED;
    held.a.links_until = free.a.links_until = INT64_C(1) << 50;
    held.links_hold = true;
    fixture_write(f, insert, &held);
    fixture_write(f, mark_chat, &held);
    assert_int_equal(work(f, ARTIFACT_WORK_MARKED), 0);
    fixture_write(f, insert, &free);
    fixture_write(f, mark_chat, &free);
    assert_int_equal(work(f, ARTIFACT_WORK_MARKED), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_counts_until_it_is_deleted, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(one_that_never_was_leaves_nothing, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(every_column_comes_back, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(the_sweep_finds_what_it_has_to_do, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(lists_leave_out_what_is_deleted, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(a_chat_takes_its_artifacts_along, setup, fixture_teardown),
        cmocka_unit_test_setup_teardown(links_hold_what_goes_with_its_chat_only_where_they_do,
                                        setup, fixture_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
