/* What file.c and file_get.c share. */
#ifndef CLI_FILE_H
#define CLI_FILE_H

#include <openssl/evp.h>

#include "command.h"
#include "leasehold/buf.h"

#define SUM_TEXT 65

void path_add_escaped(struct buf *path, const char *text);

/* Where the FILE of a command goes: "put" of files and artifacts. */
struct upload_target {
    const char *method;
    void (*path)(const struct options *o, const char *name, struct buf *ret); /* inits ret */
};
int upload_run(const struct cli *cli, const struct command *cmd, const struct options *o,
               const struct upload_target *to);

/* "/chats/<id>/files/<name, escaped>" */
void file_path(const struct options *o, const char *name, struct buf *ret);

EVP_MD_CTX *sum_new(void); /* SHA-256; NULL without memory */
int sum_end(EVP_MD_CTX *md, char ret[static SUM_TEXT], struct err *e) MUST_CHECK; /* frees */

#endif
