/*
 * The signer against AWS's own cases (tests/data/sigv4: canonical request, string to sign and
 * signature, by header and by query) and the examples of the S3 documentation.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <dirent.h>
#include <openssl/evp.h>

#include "../../storage/s3_sign.h"

#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define VECTORS_N  38

/* --- the cases of AWS ------------------------------------------------------------------------ */

struct vector {
    const char *name;
    char context[4096], request[8192];
    char *method, *path; /* in request */
    char hash[65], token[1024];
    struct s3_pair query[16], headers[16];
    size_t query_n, headers_n;
};

static void read_file(const char *vector, const char *file, char *ret, size_t size)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", SIGV4_DIR, vector, file);
    FILE *f = fopen(path, "rb");
    if (f == NULL) {
        fail_msg("cannot read %s", path);
    }
    size_t n = fread(ret, 1, size - 1, f);
    assert_true(n < size - 1);
    ret[n] = '\0';
    fclose(f);
}

static void hash_of(const char *body, char ret[65])
{
    uint8_t hash[32];
    assert_int_equal(EVP_Digest(body, strlen(body), hash, NULL, EVP_sha256(), NULL), 1);
    for (size_t i = 0; i < 32; i++) {
        snprintf(ret + 2 * i, 3, "%02x", hash[i]);
    }
}

static char *unescape(char *s)
{
    char *to = s;
    for (const char *from = s; *from != '\0'; to++) {
        if (*from == '%') {
            const char digits[] = {from[1], from[2], '\0'};
            *to = (char)strtol(digits, NULL, 16);
            from += 3;
        } else {
            *to = *from++;
        }
    }
    *to = '\0';
    return s;
}

/* What services other than S3 do to a path before they sign it. */
static void normalize(char *path)
{
    char out[256] = "", *save = NULL, copy[256];
    bool folder = path[strlen(path) - 1] == '/' || path[strlen(path) - 1] == '.';
    snprintf(copy, sizeof copy, "%s", path);
    for (char *part = strtok_r(copy, "/", &save); part; part = strtok_r(NULL, "/", &save)) {
        if (strcmp(part, "..") == 0) {
            char *last = strrchr(out, '/');
            *(last != NULL ? last : out) = '\0';
        } else if (strcmp(part, ".") != 0) {
            size_t n = strlen(out);
            snprintf(out + n, sizeof out - n, "/%s", part);
        }
    }
    strcpy(path, out);
    if (folder || path[0] == '\0') {
        strcat(path, "/");
    }
}

static void parse_query(struct vector *v, char *query)
{
    char *save = NULL;
    for (char *p = strtok_r(query, "&", &save); p != NULL; p = strtok_r(NULL, "&", &save)) {
        char *value = strchr(p, '=');
        if (value != NULL) {
            *value++ = '\0';
        }
        v->query[v->query_n++] = (struct s3_pair){unescape(p), value ? unescape(value) : NULL};
    }
}

static void parse_headers(struct vector *v, char *text)
{
    char *next;
    for (char *line = text; line != NULL && *line != '\0'; line = next) {
        char *end = strchr(line, '\n'), *colon = strchr(line, ':');
        while (end != NULL && (end[1] == ' ' || end[1] == '\t')) { /* folded */
            end = strchr(end + 1, '\n');
        }
        next = end != NULL ? end + 1 : NULL;
        if (end != NULL) {
            *end = '\0';
        }
        assert_non_null(colon);
        *colon = '\0';
        v->headers[v->headers_n++] = (struct s3_pair){line, colon + 1};
    }
}

static void parse_request(struct vector *v)
{
    char *line_end = strchr(v->request, '\n'), *body = strstr(v->request, "\n\n");
    hash_of(body != NULL ? body + 2 : "", v->hash);
    if (body != NULL) {
        *body = '\0';
    }
    assert_non_null(line_end);
    *line_end = '\0';
    char *target = strchr(v->request, ' '), *version = strrchr(v->request, ' ');
    assert_true(target != NULL && target != version);
    *target++ = *version = '\0';
    v->method = v->request;
    char *query = strchr(target, '?');
    if (query != NULL) {
        *query = '\0';
        parse_query(v, query + 1);
    }
    v->path = target;
    parse_headers(v, line_end + 1);
}

static void load(struct vector *v, const char *name)
{
    *v = (struct vector){.name = name};
    read_file(name, "context.json", v->context, sizeof v->context);
    read_file(name, "request.txt", v->request, sizeof v->request);
    parse_request(v);
    if (strstr(v->context, "\"normalize\": true") != NULL) {
        normalize(v->path);
    }
    const char *token = strstr(v->context, "\"token\": \"");
    if (token != NULL && strstr(v->context, "\"omit_session_token\": true") == NULL) {
        assert_int_equal(sscanf(token, "\"token\": \"%1023[^\"]", v->token), 1);
    }
}

static void assert_file(const struct vector *v, const char *file, const char *got)
{
    char want[8192];
    read_file(v->name, file, want, sizeof want);
    if (strcmp(got, want) != 0) {
        fail_msg("%s/%s\n--- want\n%s\n--- got\n%s", v->name, file, want, got);
    }
}

static struct s3_signer *signer_of(const struct vector *v)
{
    const struct s3_credentials c = {.key_id = "AKIDEXAMPLE",
                                     .secret = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                                     .token = v->token[0] != '\0' ? v->token : NULL};
    struct s3_signer *s = s3_signer_new(&c, "us-east-1", "service");
    assert_non_null(s);
    return s;
}

static struct s3_to_sign to_sign_of(const struct vector *v)
{
    return (struct s3_to_sign){.method = v->method,
                               .path = v->path,
                               .query = v->query,
                               .query_n = v->query_n,
                               .headers = v->headers,
                               .headers_n = v->headers_n,
                               .payload_hash = v->hash,
                               .at_s = 1440938160};
}

static void check_header(struct vector *v)
{
    struct s3_signer *s = signer_of(v);
    struct s3_signed got;
    struct err e;
    if (strstr(v->context, "\"sign_body\": true") != NULL) {
        v->headers[v->headers_n++] = (struct s3_pair){"x-amz-content-sha256", v->hash};
    }
    struct s3_to_sign r = to_sign_of(v);
    s3_signed_init(&got);
    assert_int_equal(s3_sign(s, &r, &got, &e), 0);
    assert_file(v, "header-canonical-request.txt", got.canonical.data);
    assert_file(v, "header-string-to-sign.txt", got.to_sign.data);
    assert_file(v, "header-signature.txt", got.signature);
    assert_non_null(strstr(got.authorization.data, got.signature));
    s3_signed_done(&got);
    s3_signer_free(s);
}

static void check_query(struct vector *v)
{
    struct s3_signer *s = signer_of(v);
    struct s3_to_sign r = to_sign_of(v);
    struct s3_signed got;
    struct err e;
    s3_signed_init(&got);
    assert_int_equal(s3_presign(s, &r, 3600, &got, &e), 0);
    assert_file(v, "query-canonical-request.txt", got.canonical.data);
    assert_file(v, "query-string-to-sign.txt", got.to_sign.data);
    assert_file(v, "query-signature.txt", got.signature);
    s3_signed_done(&got);
    s3_signer_free(s);
}

static void each_vector(void (*check)(struct vector *))
{
    DIR *d = opendir(SIGV4_DIR);
    size_t n = 0;
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        struct vector v;
        if (entry->d_name[0] == '.' || strcmp(entry->d_name, "README.md") == 0) {
            continue;
        }
        load(&v, entry->d_name);
        check(&v);
        n++;
    }
    closedir(d);
    assert_int_equal(n, VECTORS_N);
}

static void test_every_case_of_aws_is_signed_by_header(void **state)
{
    (void)state;
    each_vector(check_header);
}

static void test_every_case_of_aws_is_signed_by_query(void **state)
{
    (void)state;
    each_vector(check_query);
}

/* --- the examples of the S3 documentation ------------------------------------------------------ */

#define S3_HOST "examplebucket.s3.amazonaws.com"

static struct s3_signer *documented_signer(void)
{
    const struct s3_credentials c = {.key_id = "AKIAIOSFODNN7EXAMPLE",
                                     .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"};
    struct s3_signer *s = s3_signer_new(&c, "us-east-1", "s3");
    assert_non_null(s);
    return s;
}

/* 2013-05-24T00:00:00Z */
static struct s3_to_sign documented(const char *method, const char *path, const char *hash)
{
    return (struct s3_to_sign){
        .method = method, .path = path, .payload_hash = hash, .at_s = 1369353600};
}

static void assert_ends(const struct s3_to_sign *r, const char *starts, const char *ends)
{
    struct s3_signer *s = documented_signer();
    struct s3_signed got;
    struct err e;
    s3_signed_init(&got);
    assert_int_equal(s3_sign(s, r, &got, &e), 0);
    assert_memory_equal(got.signature, starts, strlen(starts));
    assert_string_equal(got.signature + strlen(got.signature) - strlen(ends), ends);
    s3_signed_done(&got);
    s3_signer_free(s);
}

static void test_the_documented_get_of_a_range(void **state)
{
    const struct s3_pair headers[] = {
        {"Host", S3_HOST}, {"Range", "bytes=0-9"}, {"x-amz-content-sha256", EMPTY_HASH}};
    struct s3_to_sign r = documented("GET", "/test.txt", EMPTY_HASH);
    (void)state;
    r.headers = headers;
    r.headers_n = 3;
    assert_ends(&r, "f0e8bdb87c96", "bdb41");
}

static void test_the_documented_put(void **state)
{
    char hash[65];
    hash_of("Welcome to Amazon S3.", hash);
    const struct s3_pair headers[] = {{"Host", S3_HOST},
                                      {"Date", "Fri, 24 May 2013 00:00:00 GMT"},
                                      {"x-amz-content-sha256", hash},
                                      {"x-amz-storage-class", "REDUCED_REDUNDANCY"}};
    struct s3_to_sign r = documented("PUT", "/test$file.text", hash);
    (void)state;
    r.headers = headers;
    r.headers_n = 4;
    assert_ends(&r, "98ad721746da", "108bd");
}

static void test_the_documented_get_of_a_subresource(void **state)
{
    const struct s3_pair headers[] = {{"Host", S3_HOST}, {"x-amz-content-sha256", EMPTY_HASH}};
    const struct s3_pair query[] = {{"lifecycle", NULL}};
    struct s3_to_sign r = documented("GET", "/", EMPTY_HASH);
    (void)state;
    r.headers = headers;
    r.headers_n = 2;
    r.query = query;
    r.query_n = 1;
    assert_ends(&r, "fea454ca298b", "83543");
}

static void test_the_documented_list(void **state)
{
    const struct s3_pair headers[] = {{"Host", S3_HOST}, {"x-amz-content-sha256", EMPTY_HASH}};
    const struct s3_pair query[] = {{"prefix", "J"}, {"max-keys", "2"}};
    struct s3_to_sign r = documented("GET", "/", EMPTY_HASH);
    (void)state;
    r.headers = headers;
    r.headers_n = 2;
    r.query = query;
    r.query_n = 2;
    assert_ends(&r, "34b48302e7b5", "dc6f7");
}

static void test_the_documented_presigned_url(void **state)
{
    const struct s3_pair headers[] = {{"Host", S3_HOST}};
    struct s3_to_sign r = documented("GET", "/test.txt", S3_UNSIGNED_PAYLOAD);
    struct s3_signer *s = documented_signer();
    struct s3_signed got;
    struct err e;
    (void)state;
    r.headers = headers;
    r.headers_n = 1;
    s3_signed_init(&got);
    assert_int_equal(s3_presign(s, &r, 86400, &got, &e), 0);
    assert_string_equal(got.signature,
                        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
    assert_string_equal(got.query.data,
                        "X-Amz-Algorithm=AWS4-HMAC-SHA256"
                        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2F"
                        "aws4_request&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400"
                        "&X-Amz-SignedHeaders=host&X-Amz-Signature="
                        "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
    s3_signed_done(&got);
    s3_signer_free(s);
}

/* --- what the cases leave out ------------------------------------------------------------------ */

static void assert_path(const char *path, const char *want)
{
    struct s3_signer *s = documented_signer();
    struct s3_to_sign r = documented("GET", path, EMPTY_HASH);
    struct s3_signed got;
    struct err e;
    s3_signed_init(&got);
    assert_int_equal(s3_sign(s, &r, &got, &e), 0);
    assert_string_equal(got.path.data, want);
    s3_signed_done(&got);
    s3_signer_free(s);
}

static void test_a_path_is_encoded_once_and_never_normalised(void **state)
{
    (void)state;
    assert_path("/b/a//b/./../c", "/b/a//b/./../c");
    assert_path("/a b+c%2Fd", "/a%20b%2Bc%252Fd");
    assert_path("/\xc3\xa4~_-.()*'!", "/%C3%A4~_-.%28%29%2A%27%21");
    assert_path("/\xff\x01", "/%FF%01");
}

static void test_names_sort_before_values_are_joined_to_them(void **state)
{
    const struct s3_pair headers[] = {{"x-amz-meta-a-b", "1"}, {"X-Amz-Meta-A", "2"}};
    const struct s3_pair query[] = {{"a-", "1"}, {"a", "2"}, {"a", "10"}, {"a", NULL}};
    struct s3_signer *s = documented_signer();
    struct s3_to_sign r = documented("GET", "/", EMPTY_HASH);
    struct s3_signed got;
    struct err e;
    (void)state;
    r.headers = headers;
    r.query = query;
    r.headers_n = 2;
    r.query_n = 4;
    s3_signed_init(&got);
    assert_int_equal(s3_sign(s, &r, &got, &e), 0);
    assert_string_equal(got.query.data, "a=&a=10&a=2&a-=1");
    assert_non_null(strstr(got.canonical.data, "x-amz-meta-a:2\nx-amz-meta-a-b:1\n"));
    s3_signed_done(&got);
    s3_signer_free(s);
}

static void test_renewed_credentials_sign_as_if_they_had_been_there_from_the_start(void **state)
{
    const struct s3_credentials other = {.key_id = "AKIDOTHER", .secret = "another secret"};
    struct s3_signer *kept = documented_signer();
    struct s3_signer *fresh = s3_signer_new(&other, "us-east-1", "s3");
    const struct s3_to_sign r = documented("GET", "/", EMPTY_HASH);
    struct s3_signed before, got, want;
    struct err e;
    (void)state;
    s3_signed_init(&before);
    s3_signed_init(&got);
    s3_signed_init(&want);
    assert_int_equal(s3_sign(kept, &r, &before, &e), 0);
    assert_int_equal(s3_signer_renew(kept, other.key_id, other.secret, &e), 0);
    assert_int_equal(s3_sign(kept, &r, &got, &e), 0);
    assert_int_equal(s3_sign(fresh, &r, &want, &e), 0);
    assert_string_equal(got.authorization.data, want.authorization.data);
    assert_string_not_equal(got.signature, before.signature);
    s3_signer_free(fresh);
    s3_signer_free(kept);
    s3_signed_done(&before);
    s3_signed_done(&got);
    s3_signed_done(&want);
}

static void test_the_key_of_a_day_is_not_used_on_another(void **state)
{
    struct s3_signer *kept = documented_signer();
    struct s3_to_sign r = documented("GET", "/", EMPTY_HASH);
    struct s3_signed got, again;
    struct err e;
    (void)state;
    s3_signed_init(&got);
    s3_signed_init(&again);
    assert_int_equal(s3_sign(kept, &r, &got, &e), 0);
    r.at_s += 86400;
    assert_int_equal(s3_sign(kept, &r, &got, &e), 0);
    struct s3_signer *fresh = documented_signer();
    assert_int_equal(s3_sign(fresh, &r, &again, &e), 0);
    assert_string_equal(got.signature, again.signature);
    assert_string_equal(got.date, "20130525T000000Z");
    s3_signer_free(fresh);
    s3_signer_free(kept);
    s3_signed_done(&got);
    s3_signed_done(&again);
}

static void test_a_url_lives_a_second_to_a_week(void **state)
{
    struct s3_signer *s = documented_signer();
    struct s3_to_sign r = documented("GET", "/", S3_UNSIGNED_PAYLOAD);
    const struct s3_pair headers[] = {{"host", "h"}};
    struct s3_signed got;
    struct err e;
    (void)state;
    r.headers = headers;
    r.headers_n = 1;
    s3_signed_init(&got);
    assert_int_equal(s3_presign(s, &r, 0, &got, &e), -1);
    assert_int_equal(s3_presign(s, &r, 604801, &got, &e), -1);
    assert_int_equal(e.code, ERR_INVALID_REQUEST);
    assert_int_equal(s3_presign(s, &r, 1, &got, &e), 0);
    assert_int_equal(s3_presign(s, &r, 604800, &got, &e), 0);
    s3_signed_done(&got);
    s3_signer_free(s);
}

static void test_a_request_past_all_bounds_is_refused(void **state)
{
    struct s3_signer *s = documented_signer();
    struct s3_to_sign r = documented("GET", NULL, EMPTY_HASH);
    char *path = malloc(200000);
    struct s3_signed got;
    struct err e;
    (void)state;
    assert_non_null(path);
    memset(path, ' ', 199999);
    path[199999] = '\0';
    r.path = path;
    s3_signed_init(&got);
    assert_int_equal(s3_sign(s, &r, &got, &e), -1);
    assert_int_equal(e.code, ERR_TOO_LARGE);
    s3_signed_done(&got);
    s3_signer_free(s);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_case_of_aws_is_signed_by_header),
        cmocka_unit_test(test_every_case_of_aws_is_signed_by_query),
        cmocka_unit_test(test_the_documented_get_of_a_range),
        cmocka_unit_test(test_the_documented_put),
        cmocka_unit_test(test_the_documented_get_of_a_subresource),
        cmocka_unit_test(test_the_documented_list),
        cmocka_unit_test(test_the_documented_presigned_url),
        cmocka_unit_test(test_a_path_is_encoded_once_and_never_normalised),
        cmocka_unit_test(test_names_sort_before_values_are_joined_to_them),
        cmocka_unit_test(test_renewed_credentials_sign_as_if_they_had_been_there_from_the_start),
        cmocka_unit_test(test_the_key_of_a_day_is_not_used_on_another),
        cmocka_unit_test(test_a_url_lives_a_second_to_a_week),
        cmocka_unit_test(test_a_request_past_all_bounds_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
