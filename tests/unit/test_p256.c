/* Signatures: valid, of any number of threads, and never two of one nonce. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../lease/p256.h"

#define THREADS 4
#define EACH    100

struct signed_text {
    char text[32];
    uint8_t sig[P256_SIG_BYTES];
};

struct signing {
    const struct p256_key *key;
    int thread;
    struct signed_text made[EACH];
};

static struct p256_key *key_make(void)
{
    char pem[1024];
    size_t len = p256_generate_pem(pem, sizeof pem);
    struct p256_key *key = p256_key_from_pem(pem, len);

    assert_non_null(key);
    return key;
}

static void sign_one(const struct p256_key *key, const char *who, int i, struct signed_text *ret)
{
    snprintf(ret->text, sizeof ret->text, "%s %d", who, i);
    if (!p256_sign(key, ret->text, strlen(ret->text), ret->sig))
        abort();
}

static void *sign_all(void *arg)
{
    struct signing *s = arg;
    char who[16];

    snprintf(who, sizeof who, "thread %d", s->thread);
    for (int i = 0; i < EACH; i++)
        sign_one(s->key, who, i, &s->made[i]);
    return NULL;
}

static int by_r(const void *a, const void *b)
{
    return memcmp(((const struct signed_text *)a)->sig, ((const struct signed_text *)b)->sig,
                  P256_COORD_BYTES);
}

/* r tells of the nonce: two signatures with the same one give the key away. */
static void assert_no_nonce_twice(struct signed_text *made, size_t n)
{
    qsort(made, n, sizeof *made, by_r);
    for (size_t i = 1; i < n; i++)
        assert_int_not_equal(by_r(&made[i - 1], &made[i]), 0);
}

static void sign_by_threads(struct p256_key *key, void *(*run)(void *),
                            struct signed_text ret[THREADS * EACH])
{
    static struct signing work[THREADS];
    pthread_t threads[THREADS];

    for (int t = 0; t < THREADS; t++) {
        work[t] = (struct signing){.key = key, .thread = t};
        assert_int_equal(pthread_create(&threads[t], NULL, run, &work[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        memcpy(&ret[t * EACH], work[t].made, sizeof work[t].made);
    }
}

static void threads_sign_side_by_side_and_never_with_one_nonce_twice(void **state)
{
    static struct signed_text all[THREADS * EACH];
    struct p256_key *key = key_make();

    (void)state;
    sign_by_threads(key, sign_all, all);
    for (size_t i = 0; i < THREADS * EACH; i++) {
        assert_true(p256_verify(key, all[i].text, strlen(all[i].text), all[i].sig));
        all[i].text[0] ^= 1;
        assert_false(p256_verify(key, all[i].text, strlen(all[i].text), all[i].sig));
    }
    assert_no_nonce_twice(all, THREADS * EACH);
    p256_key_free(key);
}

/* --- batches ------------------------------------------------------------------------------------ */

static void batch_fill(struct p256_text *texts, char (*names)[32], size_t n, int round)
{
    for (size_t i = 0; i < n; i++) {
        int len = snprintf(names[i], sizeof names[i], "round %d, %zu", round, i);

        texts[i] = (struct p256_text){.data = names[i], .len = (size_t)len};
    }
}

static void batches_of_every_size_are_signatures_as_others(void **state)
{
    struct p256_key *key = key_make();
    struct p256_text texts[40];
    char names[40][32];

    (void)state;
    for (int n = 1; n <= 40; n++) {
        batch_fill(texts, names, (size_t)n, n);
        assert_true(p256_sign_all(key, texts, (size_t)n));
        for (int i = 0; i < n; i++) {
            assert_true(p256_verify(key, texts[i].data, texts[i].len, texts[i].sig));
            assert_false(p256_verify(key, texts[i].data, texts[i].len - 1, texts[i].sig));
        }
    }
    p256_key_free(key);
}

/* What goes wrong once in many, as a length or a carry, would be here. */
static void thousands_of_signatures_in_batches_hold_under_many_keys(void **state)
{
    struct p256_text texts[16];
    char names[16][32];

    (void)state;
    for (int k = 0; k < 10; k++) {
        struct p256_key *key = key_make();

        for (int round = 0; round < 30; round++) {
            batch_fill(texts, names, 16, round);
            assert_true(p256_sign_all(key, texts, 16));
            for (int i = 0; i < 16; i++)
                assert_true(p256_verify(key, texts[i].data, texts[i].len, texts[i].sig));
        }
        p256_key_free(key);
    }
}

static void one_text_in_many_batches_never_has_a_nonce_twice(void **state)
{
    static struct signed_text all[64 * 16];
    struct p256_key *key = key_make();
    struct p256_text texts[16];

    (void)state;
    for (int round = 0; round < 64; round++) {
        for (int i = 0; i < 16; i++)
            texts[i] = (struct p256_text){.data = "the same", .len = 8};
        assert_true(p256_sign_all(key, texts, 16));
        for (int i = 0; i < 16; i++)
            memcpy(all[round * 16 + i].sig, texts[i].sig, P256_SIG_BYTES);
    }
    assert_no_nonce_twice(all, 64 * 16);
    p256_key_free(key);
}

static void *sign_batches(void *arg)
{
    struct signing *s = arg;
    struct p256_text texts[10];

    for (int i = 0; i < EACH; i += 10) {
        for (int j = 0; j < 10; j++) {
            struct signed_text *made = &s->made[i + j];

            snprintf(made->text, sizeof made->text, "thread %d %d", s->thread, i + j);
            texts[j] = (struct p256_text){.data = made->text, .len = strlen(made->text)};
        }
        if (!p256_sign_all(s->key, texts, 10))
            abort();
        for (int j = 0; j < 10; j++)
            memcpy(s->made[i + j].sig, texts[j].sig, P256_SIG_BYTES);
    }
    return NULL;
}

static void threads_sign_batches_side_by_side(void **state)
{
    static struct signed_text all[THREADS * EACH];
    struct p256_key *key = key_make();

    (void)state;
    sign_by_threads(key, sign_batches, all);
    for (size_t i = 0; i < THREADS * EACH; i++)
        assert_true(p256_verify(key, all[i].text, strlen(all[i].text), all[i].sig));
    assert_no_nonce_twice(all, THREADS * EACH);
    p256_key_free(key);
}

static void a_forked_child_uses_no_nonce_of_its_parent(void **state)
{
    static struct signed_text made[2 * EACH];
    struct p256_key *key = key_make();
    int pipe_fds[2], status;
    pid_t child;

    (void)state;
    sign_one(key, "before", 0,
             &made[0]); /* the rest of its batch is there when the child is made */
    assert_int_equal(pipe(pipe_fds), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        for (int i = 0; i < EACH; i++)
            sign_one(key, "child", i, &made[i]);
        _exit(write(pipe_fds[1], made, EACH * sizeof *made) == EACH * sizeof *made ? 0 : 1);
    }
    for (int i = 0; i < EACH; i++)
        sign_one(key, "parent", i, &made[i]);
    close(pipe_fds[1]);
    for (size_t n = 0; n < EACH * sizeof *made;) {
        ssize_t got = read(pipe_fds[0], (char *)&made[EACH] + n, EACH * sizeof *made - n);

        assert_true(got > 0);
        n += (size_t)got;
    }
    close(pipe_fds[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_no_nonce_twice(made, 2 * EACH);
    p256_key_free(key);
}

static void a_public_key_does_not_sign(void **state)
{
    struct p256_key *key = key_make();
    struct key_public pub;
    uint8_t x[P256_COORD_BYTES], y[P256_COORD_BYTES], sig[P256_SIG_BYTES];
    size_t len;

    (void)state;
    assert_true(p256_key_describe(key, &pub));
    assert_int_equal(base64url_decode(pub.x, strlen(pub.x), x, sizeof x, &len), 0);
    assert_int_equal(base64url_decode(pub.y, strlen(pub.y), y, sizeof y, &len), 0);
    struct p256_key *public = p256_key_from_point(x, y);
    assert_non_null(public);
    assert_false(p256_sign(public, "text", 4, sig));
    assert_false(p256_sign_all(public, &(struct p256_text){.data = "text", .len = 4}, 1));
    assert_true(p256_sign(key, "text", 4, sig));
    assert_true(p256_verify(public, "text", 4, sig));
    p256_key_free(public);
    p256_key_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_sign_side_by_side_and_never_with_one_nonce_twice),
        cmocka_unit_test(batches_of_every_size_are_signatures_as_others),
        cmocka_unit_test(thousands_of_signatures_in_batches_hold_under_many_keys),
        cmocka_unit_test(one_text_in_many_batches_never_has_a_nonce_twice),
        cmocka_unit_test(threads_sign_batches_side_by_side),
        cmocka_unit_test(a_forked_child_uses_no_nonce_of_its_parent),
        cmocka_unit_test(a_public_key_does_not_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
