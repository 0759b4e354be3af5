/* Artifacts as the gateway answers them, to be shown and to be fetched. */
#ifndef CLI_ARTIFACT_H
#define CLI_ARTIFACT_H

#include "command.h"

struct delivery_view {
    char *status, *channel, *external_ref, *detail, *at;
    int64_t attempts;
};

struct artifact_view {
    char *artifact_id, *chat_id, *user_id, *name, *content_type;
    int64_t size_bytes;
    char *sha256, *state, *created_at, *stored_at, *delete_after;
    struct delivery_view delivery;
};

struct artifact_link_view {
    char *url, *expires_at;
};

extern const struct view view_artifact, view_artifacts, view_artifact_link;

#endif
