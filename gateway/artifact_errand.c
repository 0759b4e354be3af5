/*
 * What agents ask for by their door: a file of their own chat as an artifact. Whose chat it is, the
 * session says; where the file is, is opened by us beneath the chat's files, whatever the agent names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "artifacts.h"
#include "leasehold/file_name.h"

#define ERRANDS_MAX 64 /* that wait or run; of all sessions */
#define FAULT_TEXT  256

struct errand {
    struct job job;
    struct services *s;
    struct id session_id;
    int64_t n; /* the door's */
    char path[4097], name[256];
    char artifact[ID_TEXT], fault[FAULT_TEXT]; /* the answer */
    struct sandbox sandbox;
};

static int session_row(struct store_tx *tx, void *arg, struct err *e)
{
    struct errand *r = arg;

    return store_sandbox_get(tx, &r->session_id, &r->sandbox, e);
}

/* From a path as the sandbox sees it to one beneath the chat's files. */
static const char *beneath(const struct errand *r)
{
    const char *mount = r->s->cfg->sandbox.chat_mount_path;
    size_t len = strlen(mount);

    return !strncmp(r->path, mount, len) && r->path[len] == '/' ? r->path + len + 1 : "";
}

static int take_name(const struct errand *r, const char *path, struct artifact *a, struct err *e)
{
    const char *slash = strrchr(path, '/');
    const char *name = r->name[0] ? r->name : slash ? slash + 1 : path;

    if (!*path)
        return err_set(e, ERR_CHAT_FILE_NOT_FOUND, "it is not beneath the chat's files");
    if (file_name_check(name, e))
        return -1;
    snprintf(a->name, sizeof a->name, "%s", name);
    snprintf(a->content_type, sizeof a->content_type, "application/octet-stream");
    return 0;
}

static int put(struct errand *r, struct arena *arena, struct err *e)
{
    static const struct caller gateway = {.role = ROLE_BOT};
    char actor[sizeof "door:" + ID_TEXT];
    const char *path = beneath(r);
    struct artifact_upload u = {.s = r->s, .caller = &gateway, .actor = actor, .fd = -1};
    int rc;

    snprintf(actor, sizeof actor, "door:%s", ID_STR(&r->session_id));
    if (store_read(r->s->store, session_row, r, e) || take_name(r, path, &u.a, e))
        return -1;
    u.a.chat_id = r->sandbox.chat_id;
    rc = artifact_upload_open(&u, &r->sandbox.user_id, path, e) ||
                 artifact_upload_begin(&u, arena, e) || artifact_upload_store(&u, e)
             ? -1
             : 0;
    artifact_upload_end(&u);
    if (!rc)
        id_format(&u.a.artifact_id, r->artifact);
    return rc;
}

static void errand_run(struct job *job)
{
    struct errand *r = (struct errand *)((char *)job - offsetof(struct errand, job));
    struct arena *arena = arena_new(64 * 1024);
    struct err e;
    int rc = arena ? put(r, arena, &e) : err_set(&e, ERR_INTERNAL, "no memory");

    if (rc) {
        log_error(r->s->log, "agent_artifact", &e, LF_ID("session_id", &r->session_id));
        snprintf(r->fault, sizeof r->fault, "%s: %s", err_code_name(e.code),
                 e.code == ERR_INTERNAL ? err_code_title(e.code) : e.msg);
    }
    arena_free(arena);
}

static void errand_done(struct job *job)
{
    struct errand *r = (struct errand *)((char *)job - offsetof(struct errand, job));

    artifacts_errand_count(r->s->artifacts, -1);
    if (r->s->broker)
        broker_put_done(r->s->broker, &r->session_id, r->n, r->artifact, r->fault);
    free(r);
}

void artifact_errand(struct services *s, const struct id *session_id, int64_t n, const char *path,
                     const char *name)
{
    struct errand *r =
        artifacts_errand_count(s->artifacts, 0) < ERRANDS_MAX ? calloc(1, sizeof *r) : NULL;
    struct err e;

    if (!r || strlen(path) >= sizeof r->path || strlen(name) >= sizeof r->name) {
        free(r);
        broker_put_done(s->broker, session_id, n, "", "busy: too many files at once");
        return;
    }
    r->job = (struct job){.run = errand_run, .done = errand_done};
    r->s = s;
    r->session_id = *session_id;
    r->n = n;
    snprintf(r->path, sizeof r->path, "%s", path);
    snprintf(r->name, sizeof r->name, "%s", name);
    artifacts_errand_count(s->artifacts, 1);
    if (!lane_submit(s->object, &r->job, &e))
        return;
    snprintf(r->fault, sizeof r->fault, "busy: %s", e.msg);
    errand_done(&r->job);
}
