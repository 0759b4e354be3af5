/*
 * Lists by cursor: `?limit=&cursor=` → {items, next_cursor}.
 *
 * A cursor is the place behind the last row of a page, (created_at, id), so that rows which come or
 * go never shift a page. It is opaque: base64url of the kind of list and the place. Any thread.
 */
#ifndef GATEWAY_PAGE_H
#define GATEWAY_PAGE_H

#include "leasehold/store.h"
#include "op.h"

#define PAGE_MAX     200
#define PAGE_DEFAULT "50"
#define CURSOR_TEXT  40 /* room for its text */

/* First members of the arguments of a list, and their rows. */
struct page_args {
    int64_t limit;
    char *cursor;
};
#define PAGE_IN(T)                                                                                 \
    {.name = "limit",                                                                              \
     .kind = FIELD_KIND_INT,                                                                       \
     .flags = FIELD_QUERY,                                                                         \
     .offset = offsetof(T, page.limit),                                                            \
     .min = 1,                                                                                     \
     .max = PAGE_MAX,                                                                              \
     .def = PAGE_DEFAULT,                                                                          \
     .doc = "most items of one answer"},                                                           \
    {                                                                                              \
        .name = "cursor", .kind = FIELD_KIND_STR, .flags = FIELD_QUERY,                            \
        .offset = offsetof(T, page.cursor), .min = 1, .max = CURSOR_TEXT,                          \
        .doc = "next_cursor of the page before"                                                    \
    }

/* The answer. */
struct page {
    struct list items;
    char *next_cursor; /* NULL: there is no more */
};
#define PAGE_OUT(fields_, T)                                                                       \
    FIELD_OBJLIST(struct page, items, fields_, T, .doc = "one page"),                              \
        FIELD_STR(struct page, next_cursor, .flags = FIELD_NULL_ZERO,                              \
                  .doc = "of the next page; null: this was the last")

/* A list that is being put together, in the call's arena. */
struct page_build {
    struct call *c;
    char kind; /* of the list: a cursor of another one is refused */
    size_t elem, limit;
    char *items; /* room for `limit` of them */
    size_t n;
    struct store_place last; /* of the last item, or of the last row passed over */
    bool more;               /* there is a row behind it */
};

/* *ret_list asks the store for one row more than the page holds. 422 at a bad cursor. */
int page_begin(struct page_build *p, struct call *c, const struct page_args *a, char kind,
               size_t elem, struct store_list *ret_list, struct err *e) MUST_CHECK;

/* Room for a row, zeroed; NULL: the page is full, and there is more. */
void *page_add(struct page_build *p, int64_t created_at, const struct id *id);

int page_end(struct page_build *p, struct page *ret, struct err *e) MUST_CHECK;

void cursor_write(char kind, const struct store_place *place, char ret[static CURSOR_TEXT]);
bool cursor_read(char kind, const char *text, struct store_place *ret);

#endif
