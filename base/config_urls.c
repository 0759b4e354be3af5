/* The URLs of the configuration, so that one that cannot be used is refused with its line. */
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include "config_load.h"

/* What may stand behind the host. */
enum rest {
    REST_NONE,
    REST_PATH,
    REST_QUERY, /* and a path before it */
};

static const char *const rest_texts[] = {
    [REST_NONE] = "with a port if need be and no path",
    [REST_PATH] = "with a port and a path if need be",
    [REST_QUERY] = "with a port, a path and a query if need be",
};

struct url_key {
    char *const *value; /* "": not set */
    const char *name;
    enum rest rest;
};

/* No credentials: they would stand in links, in logs and with whoever is asked. */
static bool is_authority(const char *s, size_t len)
{
    if (len == 0 || s[0] == ':') {
        return false;
    }
    for (size_t i = 0; i < len; i++) {
        if (s[i] <= ' ' || s[i] > '~' || strchr("@\\\"<>", s[i]) != NULL) {
            return false;
        }
    }
    return true;
}

static bool is_rest(const char *s, enum rest most)
{
    if (most == REST_NONE) {
        return *s == '\0' || strcmp(s, "/") == 0;
    }
    for (; *s != '\0'; s++) {
        if (*s <= ' ' || *s > '~' || *s == '#' || (*s == '?' && most < REST_QUERY)) {
            return false;
        }
    }
    return true;
}

static bool is_url(const char *s, enum rest most)
{
    bool tls = strncasecmp(s, "https://", 8) == 0;
    if (!tls && strncasecmp(s, "http://", 7) != 0) {
        return false;
    }
    s += tls ? 8 : 7;
    size_t len = strcspn(s, "/?#");
    return is_authority(s, len) && is_rest(s + len, most);
}

int config_check_urls(struct config_loader *ld)
{
    struct config *c = ld->c;
    bool s3 = strcmp(c->objects.kind, "s3") == 0;
    const struct url_key keys[] = {
        {s3 ? &c->objects.endpoint : NULL, "objects.endpoint", REST_NONE},
        {&c->objects.public_endpoint, "objects.public_endpoint", s3 ? REST_NONE : REST_PATH},
        {&c->otel.traces_endpoint, "otel.traces_endpoint", REST_QUERY},
    };
    for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
        const struct url_key *k = &keys[i];
        if (k->value != NULL && **k->value != '\0' && !is_url(*k->value, k->rest)) {
            return config_fail(ld, k->value, "%s must be http://HOST or https://HOST, %s", k->name,
                               rest_texts[k->rest]);
        }
    }
    return 0;
}
