/* What is in a bucket beneath a prefix: objects, and uploads that were begun and not ended. */
#include <stdio.h>
#include <string.h>

#include "leasehold/clock.h"
#include "objects_s3.h"

#define PAGE_KEYS  "500" /* the longest keys of a page fit into an answer */
#define TOKEN_TEXT 2048

static int list_page(struct objects_s3 *s, const struct s3_pair *query, size_t query_n,
                     const char *what, struct s3_answer *ret, struct err *e)
{
    struct s3_call c = {.method = "GET", .query = query, .query_n = query_n};
    if (s3_call_run(s, &c, ret, e) != 0) {
        return -1;
    }
    return ret->status == 200 ? 0 : s3_call_refused(ret, what, e);
}

static bool is_cut(struct s3_slice page)
{
    char cut[8];
    return s3_xml_text(page, "IsTruncated", cut, sizeof(cut)) && strcmp(cut, "true") == 0;
}

/* Where the next page begins, into `ret`. A list that does not go on would be asked for for ever. */
static int go_on(struct s3_slice page, const char *name, char *ret, size_t size, bool *ret_moved,
                 struct err *e)
{
    char next[TOKEN_TEXT];
    if (!s3_xml_text(page, name, next, size < sizeof(next) ? size : sizeof(next))) {
        return err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "the object store cuts a list short");
    }
    *ret_moved |= strcmp(next, ret) != 0;
    snprintf(ret, size, "%s", next);
    return 0;
}

static int stuck(struct err *e)
{
    return err_set(e, ERR_OBJECT_STORE_UNAVAILABLE, "a list of the object store has no end");
}

/* --- objects ---------------------------------------------------------------------------------- */

static int tell_objects(struct s3_slice page,
                        int (*each)(void *ctx, const char *key, struct err *e), void *ctx,
                        struct err *e)
{
    char key[OBJECT_KEY_MAX + 1];
    struct s3_slice entry;
    while (s3_xml_next(&page, "Contents", &entry)) {
        if (s3_xml_text(entry, "Key", key, sizeof(key)) && each(ctx, key, e) != 0) {
            return -1;
        }
    }
    return 0;
}

int s3_list(struct objects *o, const char *prefix,
            int (*each)(void *ctx, const char *key, struct err *e), void *ctx, struct err *e)
{
    char token[TOKEN_TEXT] = "", beneath[OBJECT_KEY_MAX + 2];
    bool more = true;
    int rc = 0;
    snprintf(beneath, sizeof(beneath), "%s%s", prefix, *prefix != '\0' ? "/" : "");
    while (rc == 0 && more) {
        const struct s3_pair query[] = {{"list-type", "2"},
                                        {"max-keys", PAGE_KEYS},
                                        {"prefix", beneath},
                                        {"continuation-token", token}};
        struct s3_answer a;
        s3_answer_init(&a);
        rc = list_page(objects_s3_of(o), query, token[0] != '\0' ? 4 : 3, "a list of objects", &a,
                       e);
        struct s3_slice page = s3_answer_slice(&a);
        bool moved = false;
        more = rc == 0 && is_cut(page);
        if (more) {
            rc = go_on(page, "NextContinuationToken", token, sizeof(token), &moved, e);
        }
        if (rc == 0) {
            rc = more && !moved ? stuck(e) : tell_objects(page, each, ctx, e);
        }
        s3_answer_done(&a);
    }
    return rc;
}

/* --- uploads ---------------------------------------------------------------------------------- */

static int tell_upload(struct s3_slice entry,
                       int (*each)(void *ctx, const struct object_upload *u, struct err *e),
                       void *ctx, struct err *e)
{
    char key[OBJECT_KEY_MAX + 1], id[OBJECT_UPLOAD_MAX], at[64];
    struct object_upload u = {.key = key, .upload_id = id};
    if (!s3_xml_text(entry, "Key", key, sizeof(key)) ||
        !s3_xml_text(entry, "UploadId", id, sizeof(id))) {
        return 0;
    }
    if (!s3_xml_text(entry, "Initiated", at, sizeof(at)) ||
        time_parse(at, strlen(at), &u.started_at) != 0) {
        u.started_at = 0;
    }
    return each(ctx, &u, e);
}

int s3_uploads(struct objects *o, const char *prefix,
               int (*each)(void *ctx, const struct object_upload *u, struct err *e), void *ctx,
               struct err *e)
{
    char key[OBJECT_KEY_MAX + 1] = "", id[OBJECT_UPLOAD_MAX] = "";
    bool more = true;
    int rc = 0;
    while (rc == 0 && more) {
        const struct s3_pair query[] = {
            {"uploads", NULL}, {"prefix", prefix}, {"key-marker", key}, {"upload-id-marker", id}};
        struct s3_answer a;
        struct s3_slice rest, entry;
        s3_answer_init(&a);
        rc = list_page(objects_s3_of(o), query, key[0] != '\0' ? 4 : 2, "a list of uploads", &a, e);
        bool moved = false;
        rest = s3_answer_slice(&a);
        more = rc == 0 && is_cut(rest);
        if (more && (go_on(rest, "NextKeyMarker", key, sizeof(key), &moved, e) != 0 ||
                     go_on(rest, "NextUploadIdMarker", id, sizeof(id), &moved, e) != 0 ||
                     (!moved && stuck(e) != 0))) {
            rc = -1;
        }
        while (rc == 0 && s3_xml_next(&rest, "Upload", &entry)) {
            rc = tell_upload(entry, each, ctx, e);
        }
        s3_answer_done(&a);
    }
    return rc;
}
