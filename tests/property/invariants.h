/*
 * The invariants of docs/leases.md, each a function that fails the simulation when it does not hold.
 * The other functions are the moments at which they are asked.
 */
#ifndef PROPERTY_INVARIANTS_H
#define PROPERTY_INVARIANTS_H

#include "sim.h"

/* --- the invariants ---------------------------------------------------------------------------- */

void invariant_01_admission_is_signed_and_listed(struct sim *s, const struct sim_door *d,
                                                 const struct client *c);
void invariant_02_no_byte_behind_the_end(struct sim *s, const struct sim_door *d,
                                         const struct client *c);
void invariant_03_cut_in_time(struct sim *s, const struct sim_door *d, const struct client *c);
void invariant_04_terminal_absorbs(struct sim *s, int lease, const char *what);
void invariant_05_durable_before_visible(struct sim *s, const struct op *op);
void invariant_05_only_what_is_durable_is_said(struct sim *s, const struct sim_door *d,
                                               const struct door_msg *m);
void invariant_05_what_was_seen_is_there(struct sim *s);
void invariant_05_active_is_what_the_door_has(struct sim *s, int session);
void invariant_06_seq_has_no_gap(struct sim *s, int session, int64_t seq);
void invariant_06_applied_in_order(struct sim *s, const struct sim_door *d,
                                   const struct door_msg *m, int64_t before, int rc);
void invariant_07_snapshot_is_the_fold(struct sim *s, const struct sim_door *d,
                                       const struct door_msg *m);
void invariant_07_door_equals_the_fold(struct sim *s, const struct sim_door *d);
void invariant_07_door_catches_up(struct sim *s, const struct sim_door *d);
void invariant_08_life_is_bounded(struct sim *s, const struct op *op, const struct lease_fact *f,
                                  const struct lease *before);
void invariant_09_generation_is_its_own(struct sim *s, const struct sim_door *d,
                                        const struct client *c);
void invariant_10_once_lets_in_once(struct sim *s, const struct lease_fact *f);
void invariant_10_use_is_durable(struct sim *s);
void invariant_11_live_within_mc(struct sim *s, const struct sim_door *d);

struct bulk_check {
    bool matches[SIM_LEASES];
    size_t n;
    int leases_n;
};
void invariant_12_bulk_ends_what_was_there(struct sim *s, const struct op *op,
                                           const struct bulk_check *check);
void invariant_13_no_lease_beyond_rights(struct sim *s);
void invariant_14_only_live_admits(struct sim *s, const struct sim_door *d);
void invariant_14_sealed_has_no_connection(struct sim *s, const struct sim_door *d);
void invariant_15_no_authority_no_knowledge(struct sim *s, const struct op *op);
void invariant_15_introspection_is_true(struct sim *s, int lease, bool told, bool is);

/* What has to become of a token that is presented. */
enum expected { EXPECT_ANY, EXPECT_REFUSED, EXPECT_ADMITTED, EXPECT_WAITING, EXPECT_PROVING };
struct present_check {
    enum expected expected;
    uint64_t digest; /* of the door before */
};
void invariant_16_verification_is_total(struct sim *s, const struct client *c,
                                        const struct present_check *check);
void invariant_17_retired_key_signs_no_more(struct sim *s, const struct sim_door *d,
                                            const struct client *c);
void invariant_17_door_has_the_keys(struct sim *s, const struct sim_door *d);
void invariant_18_failed_check_changes_nothing(struct sim *s, const struct sim_door *d,
                                               const struct present_check *check);
void invariant_19_counts_agree(struct sim *s);
void invariant_19_rows_agree(struct sim *s);
void invariant_08_no_end_is_put_off_at_the_end(struct sim *s, const struct op *op,
                                               const struct lease *before);
void invariant_15_no_authority_no_term(struct sim *s, const struct op *op);
void invariant_19_quotas_hold(struct sim *s, const struct op *op);
void invariant_13_no_byte_beyond_the_grant(struct sim *s, const struct client *c, bool in);
void invariant_08_nothing_is_issued_behind(struct sim *s, const struct op *op);
void invariant_20_every_lease_closes(struct sim *s);
void invariant_20_closed_at_once_was_unused(struct sim *s, const struct lease_fact *f);
void invariant_20_reset_leaves_no_lease_open(struct sim *s);
void invariant_20_reset_leaves_no_session_ahead(struct sim *s, const struct op *op,
                                                const struct sandbox *row);
void invariant_17_reset_leaves_no_key_ahead(struct sim *s, const struct op *op,
                                            const struct signing_key *k);
void invariant_21_expiry_is_bounded(struct sim *s);
void invariant_22_no_secret_is_written(struct sim *s);
void invariant_23_lower_generation_never_admits(struct sim *s, const struct sim_door *d);

/* --- when they are asked ----------------------------------------------------------------------- */

void invariants_always(struct sim *s); /* behind every event and step */
void invariants_of_door(struct sim *s, const struct sim_door *d);
void invariants_now_and_then(struct sim *s);
void invariants_at_rest(struct sim *s);
void invariants_at_the_end(struct sim *s);
int invariants_open_leases(const struct sim *s);

void invariants_started(struct sim *s);
void invariants_ticked(struct sim *s);
void invariants_in_write(struct sim *s, const struct store_tx *tx);
void invariants_before_commit(struct sim *s, const struct op *op, struct bulk_check *ret);
void invariants_after_commit(struct sim *s, const struct op *op, const struct bulk_check *check);
void invariants_answered(struct sim *s, const struct op *op);

void invariants_heard(struct sim *s, int session); /* by the gateway, of a door */
void invariants_said(struct sim *s, const struct sim_door *d, const char *data, size_t len);
void invariants_before_receive(struct sim *s, struct sim_door *d, const struct door_msg *m);
void invariants_after_receive(struct sim *s, struct sim_door *d, const struct door_msg *m, int rc);

/* `lease`: whose genuine token it is, -1: none's; `spoiled`: no key has signed it. */
void invariants_before_present(struct sim *s, const struct sim_door *d, const char *token,
                               size_t len, int lease, bool spoiled, struct present_check *ret);
void invariants_after_present(struct sim *s, const struct sim_door *d, const struct client *c,
                              const struct present_check *check);
void invariants_admitted(struct sim *s, const struct sim_door *d, const struct client *c);
void invariants_proved(struct sim *s, const struct client *c);
void invariants_passed(struct sim *s, const struct sim_door *d, const struct client *c, bool in);

#endif
