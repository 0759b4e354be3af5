/*
 * Artifacts: results for outside, whose bytes are objects (objects.h) and whose rows say what became
 * of them. The row goes before the object when one is made, and behind it when it is removed: so every
 * object has a row, whoever is killed when.
 *
 *   created            the row is there, the object perhaps, in part, or not
 *   stored             the object is proven
 *   delivered, delivery_failed   what the caller told of its delivery
 *   marked_for_delete  no new link is given out; the object goes at delete_after
 *   deleted            the object is proven gone; the row stays
 */
#ifndef LEASEHOLD_ARTIFACTS_H
#define LEASEHOLD_ARTIFACTS_H

#include "leasehold/objects.h"
#include "leasehold/store.h"

enum artifact_state {
    ARTIFACT_CREATED,
    ARTIFACT_STORED,
    ARTIFACT_DELIVERED,
    ARTIFACT_DELIVERY_FAILED,
    ARTIFACT_MARKED,
    ARTIFACT_DELETED
};
extern const char *const artifact_state_names[];

struct artifact_delivery {
    char status[16]; /* "delivered", "failed", "" */
    char channel[65], external_ref[513], detail[513];
    int64_t attempts, at;
};

struct artifact {
    struct id artifact_id, chat_id, user_id;
    char name[256], content_type[129];
    int64_t size_bytes; /* as announced until it is stored */
    char sha256[65];    /* "" until it is stored */
    enum artifact_state state;
    int64_t created_at, stored_at;
    struct artifact_delivery delivery;
    int64_t delete_after; /* 0: not set */
    /* never answered */
    int64_t links_until; /* the last link that was given out ends then */
    char object_key[OBJECT_KEY_MAX + 1], upload_id[OBJECT_UPLOAD_MAX];
};

/* Verbs of the store, as in store.h. */

/* With its bytes in the workspace's sum. ERR_WORKSPACE_QUOTA_EXCEEDED. */
int store_artifact_insert(struct store_tx *tx, const struct artifact *a, struct err *e) MUST_CHECK;
/* ERR_NOT_FOUND. */
int store_artifact_get(struct store_tx *tx, const struct id *artifact_id, struct artifact *ret,
                       struct err *e) MUST_CHECK;
/* Everything that may change; the workspace's sum follows from the state before. */
int store_artifact_update(struct store_tx *tx, const struct artifact *a, struct err *e) MUST_CHECK;
/* Removes a row that never became an artifact. */
int store_artifact_forget(struct store_tx *tx, const struct id *artifact_id,
                          struct err *e) MUST_CHECK;
/* Without a state in the filter: all that are not deleted. One name of a state at most. */
int store_artifact_list(struct store_tx *tx, const struct store_list *l,
                        const struct store_filter *f,
                        int (*each)(void *ctx, const struct artifact *a, struct err *e), void *ctx,
                        struct err *e) MUST_CHECK;

/* What the sweep has to look at, at most `limit`: created ones; those whose time is over and whose
 * links have ended; marked ones whose time is over. Behind `after`, in the order of their ids; `each`
 * must not use the store. */
enum artifact_work { ARTIFACT_WORK_CREATED, ARTIFACT_WORK_EXPIRED, ARTIFACT_WORK_MARKED };
int store_artifact_work(struct store_tx *tx, enum artifact_work work, const struct id *after,
                        int64_t limit,
                        int (*each)(void *ctx, const struct artifact *a, struct err *e), void *ctx,
                        struct err *e) MUST_CHECK;

/* Σ size_bytes of what is not deleted. */
int store_artifact_sum(struct store_tx *tx, const struct id *user_id, int64_t *ret,
                       struct err *e) MUST_CHECK;

/* Of this installation, made with its metadata and kept as long as they are: also by a backup. */
#define INSTALLATION_TEXT 33
int store_installation_id(struct store_tx *tx, char ret[static INSTALLATION_TEXT],
                          struct err *e) MUST_CHECK;

/* Marks all of a chat, as it goes with its chat; they are deleted by the next sweep, or, if links that
 * were given out hold them, by the one after these have ended. */
int store_artifact_mark_chat(struct store_tx *tx, const struct id *chat_id, bool links_hold,
                             struct err *e) MUST_CHECK;

#endif
