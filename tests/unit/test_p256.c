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

static void threads_sign_side_by_side_and_never_with_one_nonce_twice(void **state)
{
    static struct signing work[THREADS];
    static struct signed_text all[THREADS * EACH];
    struct p256_key *key = key_make();
    pthread_t threads[THREADS];

    (void)state;
    for (int t = 0; t < THREADS; t++) {
        work[t] = (struct signing){.key = key, .thread = t};
        assert_int_equal(pthread_create(&threads[t], NULL, sign_all, &work[t]), 0);
    }
    for (int t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        memcpy(&all[t * EACH], work[t].made, sizeof work[t].made);
    }
    for (size_t i = 0; i < THREADS * EACH; i++) {
        assert_true(p256_verify(key, all[i].text, strlen(all[i].text), all[i].sig));
        all[i].text[0] ^= 1;
        assert_false(p256_verify(key, all[i].text, strlen(all[i].text), all[i].sig));
    }
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
    assert_true(p256_sign(key, "text", 4, sig));
    assert_true(p256_verify(public, "text", 4, sig));
    p256_key_free(public);
    p256_key_free(key);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_sign_side_by_side_and_never_with_one_nonce_twice),
        cmocka_unit_test(a_forked_child_uses_no_nonce_of_its_parent),
        cmocka_unit_test(a_public_key_does_not_sign),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
