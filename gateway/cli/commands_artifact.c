/* Options of the commands about artifacts, and how artifacts are shown. */
#include "artifact.h"
#include "command_opts.h"
#include "views.h"

static const char *const artifact_states[] = {
    "created", "stored", "delivered", "delivery_failed", "marked_for_delete", "deleted", NULL};
static const char *const outcomes[] = {"delivered", "failed", NULL};

const struct opt_spec artifact_put_opts[] = {
    OPERAND("CHAT", "the chat it is a result of"),
    UPLOAD,
    {0},
};

const struct opt_spec artifact_get_opts[] = {
    OPERAND("ID", "the artifact's id"),
    OUTPUT("where it goes (default: its name, here; -: standard output)"),
    {0},
};

const struct opt_spec artifact_list_opts[] = {
    ONLY("--chat", "chat_id", "only this chat's"),
    ONLY("--user", "user_id", "only this user's"),
    {.name = "--state",
     .kind = OPT_TEXT,
     .member = "state",
     .value = "STATE",
     .choices = artifact_states,
     .help = "only in this state (default: all but deleted ones)"},
    PAGE,
    {0},
};

const struct opt_spec artifact_id_opts[] = {OPERAND("ID", "the artifact's id"), {0}};

const struct opt_spec artifact_ack_opts[] = {
    OPERAND("ID", "the artifact's id"),
    {.name = "STATUS",
     .kind = OPT_TEXT,
     .flags = OPT_OPERAND | OPT_REQUIRED,
     .member = "status",
     .choices = outcomes,
     .help = "delivered or failed"},
    {.name = "--channel",
     .kind = OPT_TEXT,
     .flags = OPT_REQUIRED,
     .member = "channel",
     .value = "CHANNEL",
     .help = "where it was delivered to"},
    {.name = "--ref",
     .kind = OPT_TEXT,
     .member = "external_ref",
     .value = "REF",
     .help = "what it is called there"},
    {.name = "--detail",
     .kind = OPT_TEXT,
     .member = "detail",
     .value = "TEXT",
     .help = "for people"},
    {0},
};

static const struct field delivery_fields[] = {
    FIELD_STR(struct delivery_view, status),
    FIELD_STR(struct delivery_view, channel),
    FIELD_STR(struct delivery_view, external_ref),
    FIELD_STR(struct delivery_view, detail),
    FIELD_INT(struct delivery_view, attempts),
    FIELD_STR(struct delivery_view, at),
    {0},
};

static const struct field artifact_fields[] = {
    FIELD_STR(struct artifact_view, artifact_id, .flags = FIELD_REQUIRED),
    FIELD_STR(struct artifact_view, chat_id),
    FIELD_STR(struct artifact_view, user_id),
    FIELD_STR(struct artifact_view, name),
    FIELD_STR(struct artifact_view, content_type),
    FIELD_INT(struct artifact_view, size_bytes),
    FIELD_STR(struct artifact_view, sha256),
    FIELD_STR(struct artifact_view, state),
    FIELD_STR(struct artifact_view, created_at),
    FIELD_STR(struct artifact_view, stored_at),
    FIELD_OBJECT(struct artifact_view, delivery, delivery_fields),
    FIELD_STR(struct artifact_view, delete_after),
    {0},
};
const struct view view_artifact = {.fields = artifact_fields, .size = sizeof(struct artifact_view)};

static const struct field artifact_columns[] = {
    FIELD_STR(struct artifact_view, artifact_id), FIELD_STR(struct artifact_view, state),
    FIELD_INT(struct artifact_view, size_bytes),  FIELD_STR(struct artifact_view, created_at),
    FIELD_STR(struct artifact_view, name),        {0},
};
static const struct field artifacts_fields[] = {PAGE_FIELDS(artifact_fields, struct artifact_view),
                                                {0}};
const struct view view_artifacts = PAGE_VIEW(artifacts_fields, artifact_columns);

static const struct field link_fields[] = {
    FIELD_STR(struct artifact_link_view, url, .max = 16384),
    FIELD_STR(struct artifact_link_view, expires_at),
    {0},
};
const struct view view_artifact_link = {.fields = link_fields,
                                        .size = sizeof(struct artifact_link_view)};
