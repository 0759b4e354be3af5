/* The environment of an agent that is started. */
#include <string.h>

#include "sessions_state.h"

static bool is_given(const struct session_open *o, const char *name, size_t len)
{
    for (size_t i = 0; i < o->env_n; i++)
        if (!strncmp(o->env[i].name, name, len) && !o->env[i].name[len])
            return true;
    return false;
}

int session_env(struct arena *arena, const struct config_profile *profile,
                const struct session_open *o, const struct engine_env **ret, size_t *ret_n,
                struct err *e)
{
    char *const *pairs = profile->environment.items;
    struct engine_env *env =
        arena_alloc(arena, (profile->environment.n + o->env_n + 1) * sizeof *env);
    size_t n = 0;

    if (!env)
        return err_set(e, ERR_INTERNAL, "no memory for the environment");
    for (size_t i = 0; i < profile->environment.n; i++) {
        size_t len = strcspn(pairs[i], "=");

        if (is_given(o, pairs[i], len))
            continue;
        env[n].name = arena_strndup(arena, pairs[i], len);
        if (!env[n].name)
            return err_set(e, ERR_INTERNAL, "no memory for the environment");
        env[n++].value = pairs[i] + len + 1;
    }
    for (size_t i = 0; i < o->env_n; i++)
        env[n++] = o->env[i];
    *ret = env;
    *ret_n = n;
    return 0;
}
