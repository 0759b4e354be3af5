#include "host_binds.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* A path of the configuration: the operator may have symlinks in it, what is mounted has none. */
static int host_path(const char *key, const char *path, char ret[static PATH_MAX], struct err *e)
{
    struct stat st;

    if (!realpath(path, ret) || stat(ret, &st) != 0)
        return err_sys(e, ERR_SANDBOX_START_FAILED, errno, "sandbox.%s %s", key, path);
    if (!S_ISDIR(st.st_mode))
        return err_set(e, ERR_SANDBOX_START_FAILED, "sandbox.%s %s is no directory", key, path);
    return 0;
}

/* In the place of each tool that it may run and not read, the agent sees what has it run. */
static int bind_brokered(struct host_binds *b, const struct sandbox_host *h,
                         const struct sandbox_start *in, struct err *e)
{
    const char *dir = h->cfg->sandbox.user_tools_mount_path;
    char bin_dir[PATH_MAX];

    if (!realpath(h->bin_dir, bin_dir) ||
        (size_t)snprintf(b->client, sizeof b->client, "%s/" TOOL_CLIENT, bin_dir) >=
            sizeof b->client)
        return err_set(e, ERR_SANDBOX_START_FAILED, "no way to the directory of the programs");
    for (size_t i = 0; i < in->brokered_n && i < TOOLS_MAX; i++) {
        if ((size_t)snprintf(b->names[i], sizeof b->names[i], "%s/%s", dir, in->brokered[i]) >=
            sizeof b->names[i])
            return err_set(e, ERR_SANDBOX_START_FAILED,
                           "sandbox.user_tools_mount_path is too long");
        b->binds[b->binds_n++] = (struct engine_bind){b->client, b->names[i], false};
    }
    return 0;
}

static void fill_tools(struct host_binds *b, const struct config_sandbox *cfg,
                       const struct sandbox_start *in, const struct rundir *dir)
{
    b->tools = (struct engine_tools){
        .uid = cfg->user_tools_uid,
        .gid = cfg->user_tools_gid,
        .box_path = dir->tools_box,
        .socket_path = dir->tools_socket,
        .runs_path = in->tool_runs_path,
        .binds = b->binds,
        .binds_n = HOST_BINDS_COMMON,
        .tools_path = cfg->user_tools_mount_path,
        .timeout_ms = cfg->user_tools_timeout_seconds * 1000,
        .at_once = cfg->user_tools_at_once,
    };
}

int host_binds_fill(struct host_binds *ret, const struct sandbox_host *h,
                    const struct sandbox_start *in, const struct rundir *tools_dir, struct err *e)
{
    const struct config_sandbox *cfg = &h->cfg->sandbox;
    const struct engine_bind common[HOST_BINDS_COMMON] = {
        {in->files_path, cfg->chat_mount_path, true},
        {in->history_md_path, "/workspace/history.md", false},
        {ret->dependencies, cfg->dependencies_mount_path, false},
        {ret->lambda_tools, cfg->lambda_tools_mount_path, false},
        {in->tools_path, cfg->user_tools_mount_path, false},
    };

    memcpy(ret->binds, common, sizeof common);
    ret->binds_n = HOST_BINDS_COMMON;
    if (host_path("dependencies_host_path", cfg->dependencies_host_path, ret->dependencies, e) ||
        host_path("lambda_tools_host_path", cfg->lambda_tools_host_path, ret->lambda_tools, e))
        return -1;
    if (!tools_dir)
        return 0;
    fill_tools(ret, cfg, in, tools_dir);
    return bind_brokered(ret, h, in, e);
}
