/* Can the bucket be used with what is configured, and if not: which of it is wrong? */
#include <stdio.h>
#include <string.h>

#include "objects_s3.h"

#define CHECK_TRIES    2
#define CHECK_STALL_MS 5000

/* By the codes of AWS, which others have taken over. */
static int explain(const struct s3_answer *a, struct err *e)
{
    static const struct {
        const char *code, *text;
    } causes[] = {
        {"InvalidAccessKeyId", "it knows no such access_key"},
        {"SignatureDoesNotMatch", "the signature is wrong: is it the secret of this access_key?"},
        {"AccessDenied", "the access_key may not list the bucket"},
        {"RequestTimeTooSkewed", "its clock and ours are too far apart"},
        {"InvalidToken", "the session token is not valid"},
        {"ExpiredToken", "the session token has expired"},
    };
    char region[64];
    if (a->status == 404) {
        return err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "object store: there is no such bucket");
    }
    for (size_t i = 0; i < sizeof(causes) / sizeof(causes[0]); i++) {
        if (strcmp(a->code, causes[i].code) == 0) {
            return err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "object store: %s", causes[i].text);
        }
    }
    if (s3_xml_text(s3_answer_slice(a), "Region", region, sizeof(region)) &&
        region[strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-")] == '\0') {
        return err_set(e, ERR_OBJECT_STORE_UNAVAILABLE,
                       "object store: the region is wrong, it says %s", region);
    }
    return err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "object store: it answers %ld %s", a->status,
                   a->code[0] != '\0' ? a->code : "and is none of S3, or in another region");
}

/* HEAD costs little, and says only that something is wrong: a list says what. */
int s3_check(struct objects *o, struct err *e)
{
    struct objects_s3 *s = objects_s3_of(o);
    const struct s3_pair query[] = {{"list-type", "2"}, {"max-keys", "1"}};
    struct s3_call look = {.method = "HEAD", .tries = CHECK_TRIES, .stall_ms = CHECK_STALL_MS};
    struct s3_call ask = {.method = "GET",
                          .query = query,
                          .query_n = 2,
                          .tries = CHECK_TRIES,
                          .stall_ms = CHECK_STALL_MS};
    struct s3_answer a;
    s3_answer_init(&a);
    int rc = s3_call_run(s, &look, &a, e);
    if (rc == 0 && a.status != 200) {
        rc = s3_call_run(s, &ask, &a, e);
    }
    if (rc == 0 && a.status != 200) {
        rc = explain(&a, e);
    }
    s3_answer_done(&a);
    return rc;
}
