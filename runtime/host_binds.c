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

/* The tools see the directory itself, the agent its links; the one with the static ones beside it. */
static int bind_tools(struct host_binds *b, const struct config_sandbox *cfg,
                      const struct rundir *dir, struct err *e)
{
    struct engine_bind *tools = &b->binds[HOST_BINDS_COMMON - 1];

    memcpy(b->of_tools, b->binds, sizeof b->of_tools);
    if ((size_t)snprintf(b->static_tools, sizeof b->static_tools, "%s" TOOL_STATIC,
                         cfg->user_tools_mount_path) >= sizeof b->static_tools)
        return err_set(e, ERR_SANDBOX_START_FAILED, "sandbox.user_tools_mount_path is too long");
    b->binds[b->binds_n++] = (struct engine_bind){tools->source, b->static_tools, false};
    tools->source = dir->tools_links;
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
        .binds = b->of_tools,
        .binds_n = HOST_BINDS_COMMON,
        .tools_path = cfg->user_tools_mount_path,
        .timeout_ms = cfg->user_tools_timeout_seconds * 1000,
        .at_once = cfg->user_tools_at_once,
        .per_second = cfg->user_tools_per_second,
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

    memcpy(ret->binds, common, sizeof common); /* the tools are the last */
    ret->binds_n = HOST_BINDS_COMMON;
    if (host_path("dependencies_host_path", cfg->dependencies_host_path, ret->dependencies, e) ||
        host_path("lambda_tools_host_path", cfg->lambda_tools_host_path, ret->lambda_tools, e))
        return -1;
    if (!tools_dir)
        return 0;
    fill_tools(ret, cfg, in, tools_dir);
    return bind_tools(ret, cfg, tools_dir, e);
}
