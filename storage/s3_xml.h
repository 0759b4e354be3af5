/*
 * The few texts we need of S3's answers, which are flat XML: elements by their local name, entities
 * resolved. Made for no other XML. Any thread.
 */
#ifndef STORAGE_S3_XML_H
#define STORAGE_S3_XML_H

#include <stdbool.h>
#include <stddef.h>

struct s3_slice {
    const char *at;
    size_t len;
};

/* What stands in the first element `name` of *in; *in goes on behind it. false: there is none. */
bool s3_xml_next(struct s3_slice *in, const char *name, struct s3_slice *ret);

/* The text of the first element `name`, cut to none where it does not fit: then, and where there is
 * none, false and "". */
bool s3_xml_text(struct s3_slice in, const char *name, char *ret, size_t size);

#endif
