/* The world's life and time. */
#include "sim.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../support/token_forge.h"
#include "invariants.h"

#define START_WALL_MS INT64_C(1800000000000)
#define START_BOOT_US (1000 * SEC)
#define EVENTS_MOST   200000 /* within one advance: more is a loop that does not end */

const char *const seen_names[SEEN_KINDS] = {
    [SEEN_ADMITTED] = "admitted",
    [SEEN_REFUSED] = "refused",
    [SEEN_WAITED] = "waited",
    [SEEN_PROVED] = "proved",
    [SEEN_BYTES] = "bytes",
    [SEEN_CUT] = "cut",
    [SEEN_SEALED] = "sealed",
    [SEEN_SNAPSHOT] = "snapshot",
    [SEEN_DELTA] = "delta",
    [SEEN_RESYNC] = "resync",
    [SEEN_ZOMBIE] = "zombie",
    [SEEN_EXPIRED] = "expired",
    [SEEN_CLOSED_AT_ONCE] = "closed_at_once",
    [SEEN_CONSUMED] = "consumed",
    [SEEN_KILL_IN_WRITE] = "killed_in_a_write",
    [SEEN_POWER_OFF] = "power_off",
    [SEEN_LOST_COMMIT] = "commit_lost",
    [SEEN_KEPT_COMMIT] = "commit_kept",
    [SEEN_CRASH] = "killed",
    [SEEN_ROTATED] = "rotated",
    [SEEN_KILLED_KEY] = "key_killed",
    [SEEN_NARROWED] = "narrowed",
    [SEEN_BULK] = "bulk",
    [SEEN_DENIED_OP] = "denied",
    [SEEN_FORGED] = "forged",
    [SEEN_STEP] = "wall_step",
    [SEEN_SUSPEND] = "suspend",
    [SEEN_DOOR_DEAD] = "door_dead",
    [SEEN_BURST] = "burst",
    [SEEN_FULL] = "disk_full",
    [SEEN_LIST_LOST] = "list_lost",
    [SEEN_SNAPSHOT_LOST] = "snapshot_lost",
    [SEEN_ACTIVE] = "told_active",
    [SEEN_INACTIVE] = "told_inactive",
    [SEEN_GAP] = "gap",
    [SEEN_TWICE] = "told_twice",
    [SEEN_IMPOSTOR] = "impostor",
    [SEEN_QUOTA] = "quota",
    [SEEN_TOO_LATE] = "renewed_too_late",
    [SEEN_WIDER] = "wider_token",
    [SEEN_FAR] = "clock_far_ahead",
    [SEEN_BEHIND] = "refused_behind",
    [SEEN_RESET] = "clock_reset",
    [SEEN_RESET_BROKEN] = "reset_broken_off",
};

/* --- chance and time of the code under test ---------------------------------------------------- */

/* Of the one simulation that runs on this thread: id_random has no argument to know it by. NULL: none
 * does, ids are as ever. */
static _Thread_local struct sim_rng *ids_of;

/* In the place of id_random (linked with --wrap): ids follow from the seed, too. */
void __real_id_random(struct id *ret);
void __wrap_id_random(struct id *ret);
void __wrap_id_random(struct id *ret)
{
    if (!ids_of) {
        __real_id_random(ret);
        return;
    }
    for (size_t i = 0; i < sizeof ret->b; i += 8) {
        uint64_t word = rng_next(ids_of);

        memcpy(ret->b + i, &word, 8);
    }
    ret->b[6] = (uint8_t)((ret->b[6] & 0x0f) | 0x40);
    ret->b[8] = (uint8_t)((ret->b[8] & 0x3f) | 0x80);
}

int64_t sim_wall_ms(const struct sim *s)
{
    return s->boot_us / 1000 + s->wall_offset_ms;
}

static int64_t clock_wall(void *ctx)
{
    return sim_wall_ms(ctx);
}

static int64_t clock_boot(void *ctx)
{
    return ((const struct sim *)ctx)->boot_us;
}

void sim_step_wall(struct sim *s, int64_t ms)
{
    s->wall_offset_ms += ms;
    s->stepped_us = s->boot_us;
    s->seen[SEEN_STEP]++;
    sim_trace(s, "wall clock steps %lld ms", (long long)ms);
}

/* --- trace and failure ------------------------------------------------------------------------- */

const char *short_id(const struct id *id, char out[static 9])
{
    snprintf(out, 9, "%02x%02x%02x%02x", id->b[0], id->b[1], id->b[2], id->b[3]);
    return out;
}

void sim_trace(struct sim *s, const char *format, ...)
{
    char *line = s->tail[s->tail_n++ % 64];
    va_list args;
    int n = snprintf(line, 200, "%lld %lld.%06lld ", (long long)s->step,
                     (long long)(s->boot_us / SEC), (long long)(s->boot_us % SEC));

    va_start(args, format);
    vsnprintf(line + n, 200 - (size_t)n, format, args);
    va_end(args);
    for (const char *c = line; *c; c++)
        s->trace_hash = (s->trace_hash ^ (unsigned char)*c) * UINT64_C(0x100000001b3);
    if (s->trace_on)
        fprintf(stderr, "%s\n", line);
}

void sim_fail(struct sim *s, const char *invariant, const char *format, ...)
{
    va_list args;
    int n;

    if (s->failed)
        return;
    s->failed = true;
    n = snprintf(s->failure, sizeof s->failure, "%s: ", invariant);
    va_start(args, format);
    vsnprintf(s->failure + n, sizeof s->failure - (size_t)n, format, args);
    va_end(args);
    sim_trace(s, "BROKEN %.150s", s->failure);
}

void sim_print_tail(const struct sim *s, FILE *out)
{
    int64_t from = s->tail_n > 64 ? s->tail_n - 64 : 0;

    for (int64_t i = from; i < s->tail_n; i++)
        fprintf(out, "    %s\n", s->tail[i % 64]);
    fprintf(out, "seed %llu broke %s\n", (unsigned long long)s->seed, s->failure);
}

/* --- events ------------------------------------------------------------------------------------ */

struct sim_door *door_next(struct sim *s, int *at)
{
    while (*at < 2 * s->sessions_n) {
        struct session_sim *x = &s->sessions[*at / 2];
        struct sim_door *d = *at % 2 ? &x->zombie : &x->door;

        ++*at;
        if (d->alive)
            return d;
    }
    return NULL;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Does what is due first. False: nothing is until `until_us`. */
static bool one_event(struct sim *s, int64_t until_us)
{
    int64_t gateway = gateway_due_us(s), net = net_due_us(s), first = earlier(gateway, net);
    struct sim_door *d, *first_door = NULL;

    for (int at = 0; (d = door_next(s, &at));) {
        int64_t due = door_due_us(s, d);

        if (due < first) {
            first = due;
            first_door = d;
        }
    }
    if (first > until_us)
        return false;
    if (first > s->boot_us)
        s->boot_us = first;
    if (first_door)
        door_event(s, first_door);
    else if (net <= gateway)
        net_event(s);
    else
        gateway_event(s);
    return true;
}

void sim_advance(struct sim *s, int64_t us)
{
    int64_t until_us = s->boot_us + us;

    for (int n = 0; !s->failed && one_event(s, until_us); n++) {
        invariants_always(s);
        if (n == EVENTS_MOST)
            sim_fail(s, "time", "events without end");
    }
    if (s->boot_us < until_us)
        s->boot_us = until_us;
    invariants_always(s);
}

/* --- life -------------------------------------------------------------------------------------- */

/* Made once a process: the keys are constants. */
static struct signer made[SIM_SIGNERS];

static void signers_remove(void)
{
    for (int i = 0; i < SIM_SIGNERS; i++) {
        keyset_free(made[i].own);
        unlink(made[i].path);
    }
}

static const struct signer *signers_made(void)
{
    if (!made[0].own && atexit(signers_remove))
        abort();
    for (int i = 0; i < SIM_SIGNERS && !made[i].own; i++) {
        char seed[32];
        struct err e;
        EVP_PKEY *key;

        snprintf(seed, sizeof seed, "simulated-signer-%d", i);
        snprintf(made[i].path, sizeof made[i].path, "/tmp/lh-sim-key-XXXXXX");
        key = forge_key(seed);
        forge_key_file(key, made[i].path);
        EVP_PKEY_free(key);
        made[i].own = keyset_new();
        if (!made[i].own || keyset_add_signing_file(made[i].own, made[i].path, &e))
            abort();
        keyset_get(made[i].own, 0, &made[i].pub);
    }
    return made;
}

static void signers_take(struct sim *s)
{
    const struct signer *all = signers_made();

    for (int i = 0; i < SIM_SIGNERS; i++) {
        struct signing_key *row = &s->signers[i].row;

        s->signers[i] = all[i];
        memcpy(row->kid, all[i].pub.kid, sizeof row->kid);
        memcpy(row->x, all[i].pub.x, sizeof row->x);
        memcpy(row->y, all[i].pub.y, sizeof row->y);
        snprintf(row->file, sizeof row->file, "signer-%d.pem", i);
    }
}

/* The key of clients that are bound to one, made of a constant as well. */
static void holder_take(struct sim *s)
{
    static EVP_PKEY *key;
    static struct key_public pub;

    if (!key) {
        char path[] = "/tmp/lh-sim-key-XXXXXX";
        struct keyset *ks = keyset_new();
        struct err e;

        key = forge_key("simulated-holder");
        forge_key_file(key, path);
        if (!ks || keyset_add_signing_file(ks, path, &e))
            abort();
        keyset_get(ks, 0, &pub);
        keyset_free(ks);
        unlink(path);
    }
    s->proof_key = key;
    snprintf(s->proof_x, sizeof s->proof_x, "%s", pub.x);
    snprintf(s->proof_y, sizeof s->proof_y, "%s", pub.y);
    snprintf(s->proof_jkt, sizeof s->proof_jkt, "%s", pub.kid);
}

static void *map(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        abort();
    return p;
}

static void folder_make(struct sim *s)
{
    snprintf(s->dir, sizeof s->dir, "/dev/shm/lh-sim-XXXXXX");
    if (!mkdtemp(s->dir)) {
        snprintf(s->dir, sizeof s->dir, "/tmp/lh-sim-XXXXXX");
        if (!mkdtemp(s->dir))
            abort();
    }
    snprintf(s->path, sizeof s->path, "%s/lh.db", s->dir);
    s->log_fd = memfd_create("log", MFD_CLOEXEC);
    s->log = log_new(s->log_fd, LOG_DEBUG, LOG_JSON);
    if (!s->log)
        abort();
}

struct sim *sim_new(uint64_t seed)
{
    struct sim *s = map(sizeof *s);

    s->seed = seed;
    s->rng.state = seed;
    s->ids.state = seed ^ UINT64_C(0x1d5eed);
    s->questions.state = seed ^ UINT64_C(0xa5ced);
    ids_of = &s->ids;
    s->trace_hash = UINT64_C(0xcbf29ce484222325);
    s->trace_on = getenv("SIM_TRACE") != NULL;
    s->boot_us = START_BOOT_US;
    s->wall_offset_ms = START_WALL_MS - START_BOOT_US / 1000;
    s->clock = (struct clock){clock_wall, clock_boot, s};
    s->policy = (struct lease_policy){.issuer = "iss",
                                      .node = "node",
                                      .ttl_s = 20,
                                      .ttl_max_s = 60,
                                      .max_s = 50,
                                      .max_connections_cap = 8,
                                      .skew_s = 5,
                                      .seal_s = 15,
                                      .per_user = 40,
                                      .per_session = 24,
                                      .global_max = 80};
    if (seed % 4 == 1) {
        s->policy.per_session = 5;
        s->policy.per_user = 7;
        s->policy.global_max = 9;
    }
    s->limits = (struct config_lease){.stale_after_seconds = 3, .seal_after_seconds = 15};
    s->sessions = map(SIM_SESSIONS * sizeof *s->sessions);
    s->leases = map(SIM_LEASES * sizeof *s->leases);
    signers_take(s);
    holder_take(s);
    folder_make(s);
    s->disk = sim_disk_new(&s->rng);
    s->gw.operator_at_us = NEVER;
    gateway_start(s);
    return s;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void sim_free(struct sim *s)
{
    struct sim_door *d;

    if (!s)
        return;
    for (int at = 0; (d = door_next(s, &at));)
        door_die(s, d);
    if (s->gw.up)
        gateway_end(s, DISK_KILLED);
    facts_learn(s, -1);
    net_gateway_dead(s);
    net_free(s);
    sim_disk_free(s->disk);
    for (int i = 0; i < s->leases_n; i++)
        for (int t = 0; t < s->leases[i].tokens_n; t++)
            free(s->leases[i].tokens[t]);
    log_free(s->log);
    close(s->log_fd);
    nftw(s->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    munmap(s->sessions, SIM_SESSIONS * sizeof *s->sessions);
    munmap(s->leases, SIM_LEASES * sizeof *s->leases);
    munmap(s, sizeof *s);
    ids_of = NULL;
}

/* Most steps are short; some are long enough for something to run out. */
static int64_t pause_us(struct sim *s)
{
    switch (rng_index(&s->rng, 12)) {
    case 0:
        return rng_range(&s->rng, 1 * SEC, 4 * SEC);
    case 1:
        return rng_range(&s->rng, 0, 1 * SEC);
    default:
        return rng_range(&s->rng, 0, 60 * MS);
    }
}

bool sim_run(struct sim *s, int64_t steps)
{
    if (!s->step)
        sim_act_first(s);
    for (int64_t end = s->step + steps; s->step < end && !s->failed; s->step++) {
        sim_act(s);
        invariants_always(s);
        if (!s->failed)
            introspect_any(s);
        if (!s->failed)
            sim_advance(s, pause_us(s));
        if (s->step % 16 == 0 && !s->failed)
            invariants_now_and_then(s);
    }
    if (!s->failed)
        sim_rest(s);
    return !s->failed;
}

/* Nothing is on its way. */
static bool at_rest(const struct sim *s)
{
    return s->gw.up && net_quiet(s) && s->gw.turn_at_us == NEVER && s->gw.drain_at_us == NEVER;
}

/* All is mended and left alone until nothing can be open any more. */
void sim_rest(struct sim *s)
{
    int64_t longest_s = s->policy.max_s + s->policy.skew_s + s->policy.seal_s;
    struct sim_door *d;

    sim_trace(s, "rest");
    s->resting = true;
    s->gw.operator_at_us = NEVER;
    s->writes_at_rest = sim_disk_writes(s->disk);
    sim_disk_end_at(s->disk, 0);
    if (s->full_until_us > s->boot_us)
        s->full_until_us = s->boot_us;
    for (int at = 0; (d = door_next(s, &at));)
        d->heal_at_us = s->boot_us;
    if (!s->gw.up)
        s->gw.restart_at_us = s->boot_us;
    sim_advance(s, 5 * SEC);
    for (int i = 0; i < 100 && !s->failed && !at_rest(s); i++)
        sim_advance(s, 20 * MS);
    if (!s->failed)
        invariants_at_rest(s);
    /* A clock that was set back makes it longer. */
    for (int round = 0; round < 20 && !s->failed && invariants_open_leases(s); round++)
        sim_advance(s, (longest_s / 4 + 1) * SEC);
    if (!s->failed)
        invariants_at_the_end(s);
}
