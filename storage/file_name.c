#include "leasehold/file_name.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "leasehold/json.h"
#include "leasehold/model.h"

/* What stands beside files/ in a chat's directory, and what SQLite puts there. */
static bool is_reserved(const char *name)
{
    static const char *const names[] = {".",
                                        "..",
                                        "history.md",
                                        "history.db",
                                        "history.db-wal",
                                        "history.db-shm",
                                        "history.db-journal"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* C0 and DEL are bytes; C1 (U+0080 … U+009F) is C2 80 … C2 9F. */
static bool has_control(const char *name)
{
    for (const unsigned char *p = (const unsigned char *)name; *p != '\0'; p++) {
        if (*p < ' ' || *p == 0x7f || (p[0] == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)) {
            return true;
        }
    }
    return false;
}

static const char *fault_of(const char *name)
{
    size_t len = strlen(name);
    if (len == 0 || len > FILE_NAME_MAX) {
        return "a file name has 1 to 255 bytes";
    }
    if (!utf8_valid(name, len)) {
        return "a file name is UTF-8";
    }
    if (strpbrk(name, "/\\") != NULL) {
        return "a file name has no slash or backslash";
    }
    if (has_control(name)) {
        return "a file name has no control characters";
    }
    return is_reserved(name) ? "this name is reserved" : NULL;
}

bool file_name_valid(const char *name)
{
    return fault_of(name) == NULL;
}

int file_name_check(const char *name, struct err *e)
{
    const char *fault = fault_of(name);
    return fault == NULL ? 0 : err_set(e, ERR_INVALID_ATTACHMENT_NAME, "%s", fault);
}

static bool is_ascii(const char *name)
{
    while (*name != '\0' && (*name & 0x80) == 0) {
        name++;
    }
    return *name == '\0';
}

bool file_name_key(const char *name, char ret[static FILE_NAME_KEY_SIZE])
{
    size_t len = strlen(name);
    if (is_ascii(name)) {
        if (len >= FILE_NAME_KEY_SIZE) {
            return false;
        }
        memcpy(ret, name, len + 1);
        return true;
    }
    utf8proc_uint8_t *nfc = NULL;
    utf8proc_ssize_t n = utf8proc_map((const utf8proc_uint8_t *)name, (utf8proc_ssize_t)len, &nfc,
                                      UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    bool ok = n >= 0 && (size_t)n < FILE_NAME_KEY_SIZE;
    if (ok) {
        memcpy(ret, nfc, (size_t)n + 1);
    }
    free(nfc);
    return ok;
}
