/* JSON Schema (2020-12, as OpenAPI 3.1 takes it) from field tables, and the little writer both parts
 * of the document use. Any thread. */
#ifndef GATEWAY_OPENAPI_SCHEMA_H
#define GATEWAY_OPENAPI_SCHEMA_H

#include "op.h"

/* --- writer: each puts its own comma; name NULL inside a list -------------------------------- */

void doc_open(struct buf *out, const char *name, char bracket); /* '{' or '[' */
void doc_close(struct buf *out, char bracket);                  /* '}' or ']' */
void doc_str(struct buf *out, const char *name, const char *value);
void doc_int(struct buf *out, const char *name, int64_t value);
void doc_bool(struct buf *out, const char *name, bool value);

/* --- schemas --------------------------------------------------------------------------------- */

/* Whether the field comes in the body of a request, not from its path or query. */
bool schema_in_body(const struct field *f);
bool schema_has_body(const struct op *op);

/* The schema of one parameter. */
void schema_value(const struct field *f, struct buf *out);

/* {"$ref": …} to what schema_components writes: an op's body or answer. */
void schema_ref_request(const struct op *table, const struct op *op, struct buf *out);
void schema_ref_answer(const struct op *table, const struct op *op, struct buf *out);

/* The members of components.schemas. */
void schema_components(const struct op *table, struct buf *out);

#endif
