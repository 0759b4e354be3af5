/* The ends that all list statements have in common. */
#ifndef STORAGE_LIST_H
#define STORAGE_LIST_H

#include "stmt.h"
#include "tx.h"

/* Only the rows a caller may see. By the key's rows, so that the statement is one for any number of
 * users. Binds: list_bind_seen. */
#define LIST_SEEN "(? = 0 OR user_id IN (SELECT user_id FROM api_key_users WHERE key_id = ?)) "

/* Binds: list_bind_page. */
#define LIST_PAGE(at, id) "AND (" at ", " id ") > (?, ?) ORDER BY " at ", " id " LIMIT ?"

/* A filter that may be absent: "" means all. Binds: list_bind_optional. */
#define LIST_OPTIONAL(column) "(? = '' OR " column " = ?) AND "

void list_bind_seen(struct stmt *st, const struct store_list *l);
void list_bind_page(struct stmt *st, const struct store_list *l);
void list_bind_optional_id(struct stmt *st, const struct id *id); /* zero: absent */
void list_bind_optional(struct stmt *st, const char *text);       /* NULL: absent */

/* Steps through the rows; read() reads one and hands it on. Ends the statement. */
int list_walk(struct stmt *st, int (*read)(struct stmt *st, void *arg, struct err *e), void *arg,
              struct err *e) MUST_CHECK;

#endif
