"""Plants faults into copies of the production sources, for tests/property/test_planted_faults.c.

    faults.py SOURCE_ROOT OUT_DIR FILE...

Each FILE is written to OUT_DIR/FILE with every fault of it behind FAULT(n), which is true of the one
fault that the test has chosen; the production sources stay as they are. OUT_DIR/faults_planted.h is
the table of all faults. One whose text is no longer in the source is planted nowhere: the test then
says so by its name.
"""

import os
import sys

# what it means, file, what is there, what is planted; of a fault in several places more pairs of these
FAULTS = [
    (
        "a withdrawn lease is still admitted",
        "lease/door/core_admit.c",
        "if (!lease || !lease->allowed)",
        "if (!lease || (!FAULT(@) && !lease->allowed))",
    ),
    (
        "the door admits before it has applied rq",
        "lease/door/core_admit.c",
        "if (claims->rq > c->applied)",
        "if (!FAULT(@) && claims->rq > c->applied)",
    ),
    (
        "a used `once` lease is forgotten",
        "lease/door/core_admit.c",
        "if (lease->use == USE_ONCE)",
        "if (!FAULT(@) && lease->use == USE_ONCE)",
    ),
    (
        "one connection too many",
        "lease/door/core_admit.c",
        "if (lease->live >= lease->mc)",
        "if (lease->live >= lease->mc + FAULT(@))",
    ),
    (
        "the timer alone ends an expired connection, and does not run",
        "lease/door/core_admit.c",
        "if (core_gateway_s(c, now_us) < lease->exp)",
        "if (FAULT(@) || core_gateway_s(c, now_us) < lease->exp)",
    ),
    (
        "a revocation cuts nothing",
        "lease/door/core.c",
        "cut = core_lease_cut(c, lease, code);",
        "cut = FAULT(@) ? 0 : core_lease_cut(c, lease, code);",
    ),
    (
        "a snapshot leaves connections that it does not name",
        "lease/door/core.c",
        "if (lease->allowed)\n            continue;",
        "if (lease->allowed || FAULT(@))\n            continue;",
    ),
    (
        "a silent gateway makes no door stale",
        "lease/door/core.c",
        "return c->state == DOOR_LIVE && !c->done && now_us - c->heard_us < c->config.stale_s * US_PER_S;",
        "return c->state == DOOR_LIVE && !c->done &&"
        " (FAULT(@) || now_us - c->heard_us < c->config.stale_s * US_PER_S);",
    ),
    (
        "of a list of revocations the first alone is applied",
        "lease/door/core.c",
        "for (size_t i = 0; i < m->jtis.n; i++)",
        "for (size_t i = 0; i < (FAULT(@) ? 1 : m->jtis.n); i++)",
    ),
    (
        "a door that missed a list is brought up to date without it",
        "lease/broker_door.c",
        "s->recent[s->seq % RECENT_OPS].seq == s->seq);",
        "(FAULT(@) || s->recent[s->seq % RECENT_OPS].seq == s->seq));",
    ),
    (
        "what the log says while a snapshot is under way is lost",
        "lease/broker_snapshot.c",
        "while (s->door && at < held->len)",
        "while (!FAULT(@) && s->door && at < held->len)",
    ),
    (
        "a snapshot shows some of what has changed while it was under way",
        "lease/broker_snapshot.c",
        "if (b->snapshot.begun && n->session == b->snapshots)",
        "if (!FAULT(@) && b->snapshot.begun && n->session == b->snapshots)",
    ),
    (
        "new keys do not reach the door",
        "lease/door/core.c",
        "return keys_swap(c, &m->keys, e);\n    }",
        "return FAULT(@) ? 0 : keys_swap(c, &m->keys, e);\n    }",
    ),
    (
        "an extension takes no effect at the door",
        "lease/door/core.c",
        "if (lease && lease->allowed)\n        lease->exp = m->exp;",
        "if (lease && lease->allowed && !FAULT(@))\n        lease->exp = m->exp;",
    ),
    (
        "a door whose snapshot was lost asks for the same delta for ever",
        "lease/door/core.c",
        "c->damaged = true; /* the same HELLO would bring the same delta */",
        "c->damaged = !FAULT(@);",
    ),
    (
        "a sealed door keeps its connections",
        "lease/door/core_time.c",
        "core_cut_all(c, CLOSE_NOT_LIVE);",
        "if (!FAULT(@))\n            core_cut_all(c, CLOSE_NOT_LIVE);",
    ),
    (
        "a renewal moves the ceiling",
        "lease/rules.c",
        "l.expires_at = min64(expiry_ms(p, now_ms, ttl_s), l.max_expires_at);",
        "if (FAULT(@))\n        l.max_expires_at = expiry_ms(p, now_ms, ttl_s);\n"
        "    l.expires_at = min64(expiry_ms(p, now_ms, ttl_s), l.max_expires_at);",
    ),
    (
        "others' leases are found",
        "lease/rules.c",
        "if (!caller_may_see(caller, &l.user_id))",
        "if (!FAULT(@) && !caller_may_see(caller, &l.user_id))",
    ),
    (
        "rights go by what the request was admitted with",
        "lease/rules.c",
        "if (!id_is_zero(&caller->key_id) &&",
        "if (!FAULT(@) && !id_is_zero(&caller->key_id) &&",
    ),
    (
        "an ended lease is renewed",
        "lease/rules.c",
        "if (l.state != LEASE_PENDING && l.state != LEASE_ACTIVE)",
        "if (!FAULT(@) && l.state != LEASE_PENDING && l.state != LEASE_ACTIVE)",
    ),
    (
        "the token of a lease that ends is told to let in",
        "lease/rules_introspect.c",
        "return lease_is_open(&lease) && id_equal",
        "return (FAULT(@) || lease_is_open(&lease)) && id_equal",
    ),
    (
        "leases are issued whatever the clock does",
        "lease/rules.c",
        "if (behind_ms <= p->skew_s * 1000)",
        "if (FAULT(@) || behind_ms <= p->skew_s * 1000)",
    ),
    (
        "a start forgets how late it was",
        "storage/high_water.c",
        "atomic_store(&h->at_ms, h->saved_ms);",
        "atomic_store(&h->at_ms, FAULT(@) ? 0 : h->saved_ms);",
    ),
    (
        "of several that expire the last is told to no door",
        "lease/rules_expire.c",
        "to->ids[to->n++] = d->lease_id;",
        "to->ids[to->n] = d->lease_id;\n    to->n += !FAULT(@) || to->n == 0;",
    ),
    (
        "a bulk revocation leaves one out",
        "lease/rules_end.c",
        "    s->n++;\n",
        "    s->n++;\n    if (FAULT(@) && s->n == 2)\n        return 0;\n",
    ),
    (
        "a snapshot names what has ended",
        "lease/broker_snapshot.c",
        "if (n->ending_seq)\n        return;",
        "if (n->ending_seq && !FAULT(@))\n        return;",
    ),
    (
        "a door of a lower generation is taken for the session's",
        "lease/broker_door.c",
        "if (!s || m->ep < s->ep) {",
        "if (FAULT(@) && s)\n        ((struct door_msg *)m)->ep = s->ep;\n    if (!s || m->ep < s->ep) {",
    ),
    (
        "the broker takes a HELLO for a confirmation of everything",
        "lease/broker_door.c",
        "if (applied >= s->acked)\n        return;",
        "if (FAULT(@)) {\n        s->acked = s->seq;\n        broker_await_anew(b, s);\n        return;\n    }\n"
        "    if (applied >= s->acked)\n        return;",
    ),
    (
        "the use of a `once` lease is not made durable",
        "lease/broker_door.c",
        "b->hooks.consumed(b->hooks.ctx, lease_id);",
        "if (!FAULT(@))\n        b->hooks.consumed(b->hooks.ctx, lease_id);",
    ),
    (
        "a lease that ends is not counted anew",
        "lease/broker.c",
        "(void)heap_put(&b->due, &n->due, dead_at_ms(b, n));\n    broker_count_lease(b, n);",
        "(void)heap_put(&b->due, &n->due, dead_at_ms(b, n));\n    if (!FAULT(@))\n"
        "        broker_count_lease(b, n);",
    ),
    (
        "nobody asks for expiry",
        "lease/broker.c",
        "if (batch.expired_n)",
        "if (batch.expired_n && !FAULT(@))",
    ),
    (
        "a clock that is set back gives leases more time",
        "lease/broker.c",
        "t->ahead_ms += expected_ms - wall_ms;",
        "t->ahead_ms += FAULT(@) ? 0 : expected_ms - wall_ms;",
    ),
    (
        "a lease closes at once whoever is connected with it",
        "lease/broker.c",
        "s->door->time_ms >= n->l.expires_at && !n->l.connections;",
        "s->door->time_ms >= n->l.expires_at && (FAULT(@) || !n->l.connections);",
    ),
    (
        "the signature is not checked",
        "lease/token_verify.c",
        "if (!p256_verify(key, parts->signed_text, parts->signed_len, parts->sig))",
        "if (!FAULT(@) && !p256_verify(key, parts->signed_text, parts->signed_len, parts->sig))",
    ),
    (
        "a retired key goes on signing",
        "lease/keyset.c",
        "(ks->entries[i].pub.retired_at == 0 || iat <= ks->entries[i].pub.retired_at);",
        "(FAULT(@) || ks->entries[i].pub.retired_at == 0 || iat <= ks->entries[i].pub.retired_at);",
    ),
    (
        "changes are told before they are durable",
        "storage/writer.c",
        'return stmt_exec(&w->conn, "COMMIT", e);',
        "if (FAULT(@) && w->changes.n > 0)\n"
        "        w->options.changed(w->options.changed_ctx, w->changes.items, w->changes.n);\n"
        '    int rc = stmt_exec(&w->conn, "COMMIT", e);\n'
        "    if (FAULT(@))\n        w->changes.n = 0;\n    return rc;",
    ),
    (
        "a commit is not synced",
        "storage/conn.c",
        "return conn_exec(c, mode_pragmas[mode], e);",
        "if (conn_exec(c, mode_pragmas[mode], e) != 0) {\n        return -1;\n    }\n"
        '    return FAULT(@) ? conn_exec(c, "PRAGMA synchronous = OFF;", e) : 0;',
    ),
    (
        "a door is not asked for its secret",
        "lease/broker_door.c",
        "|| !secret_matches(s, m->secret))",
        "|| (!FAULT(@) && !secret_matches(s, m->secret)))",
    ),
    (
        "a door takes no notice of a gap",
        "lease/door/core.c",
        "if (m->seq != c->applied + 1) {",
        "if (m->seq != c->applied + 1 && !FAULT(@)) {",
    ),
    (
        "an older snapshot is taken",
        "lease/door/core.c",
        "if (m->seq < c->applied)\n",
        "if (m->seq < c->applied && !FAULT(@))\n",
    ),
    (
        "a door goes by the scope of the token alone",
        "lease/door/core_admit.c",
        "if (!(peer->scope & peer->lease->scope & SCOPE_WRITE)) {",
        "if (!(peer->scope & (FAULT(@) ? SCOPE_WRITE : peer->lease->scope) & SCOPE_WRITE)) {",
    ),
    (
        "a session has a lease more than it may",
        "lease/rules.c",
        "if (open.of_session >= p->per_session)",
        "if (open.of_session >= p->per_session + FAULT(@))",
    ),
    (
        "a lease is renewed in its last moment",
        "lease/rules.c",
        "if (l.expires_at < now_ms + 1000)",
        "if (l.expires_at < now_ms + (FAULT(@) ? 0 : 1000))",
    ),
    (
        "a key that may only look renews",
        "lease/rules.c",
        "if (!until_ms)\n        return err_set(e, ERR_NOT_FOUND",
        "if (!until_ms && !FAULT(@))\n        return err_set(e, ERR_NOT_FOUND",
    ),
    (
        "the mark is lowered by the first write of a reset, whatever is open",
        "gateway/clock_reset.c",
        "end_all(store, &r, e) || store_write_end(store, lower, &r, e)",
        "(FAULT(@) && store_write_end(store, lower, &r, e)) || end_all(store, &r, e) ||"
        " (!FAULT(@) && store_write_end(store, lower, &r, e))",
        "if (open.all)",
        "if (open.all && !FAULT(@))",
    ),
    (
        "a reset leaves a retired key the time it had",
        "gateway/clock_reset.c",
        "k->state == SIGNING_KEY_RETIRED &&",
        "k->state == SIGNING_KEY_RETIRED && !FAULT(@) &&",
    ),
    (
        "a reset leaves sandboxes the time they had",
        "gateway/clock_reset.c",
        "return later ? store_sandbox_update(tx, s, e) : 0;",
        "return later && !FAULT(@) ? store_sandbox_update(tx, s, e) : 0;",
    ),
    (
        "a reset takes the mark away",
        "storage/high_water.c",
        "bind_int(&st, tx->now_ms);",
        "bind_int(&st, FAULT(@) ? 0 : tx->now_ms);",
    ),
]

HEADER = """#include "planted.h"
#line 1 "{path}"
"""


def c_text(text):
    return text.replace("\\", "\\\\").replace('"', '\\"')


def plant(root, out, name):
    """Writes one file; the numbers of the faults that are in it now."""
    with open(os.path.join(root, name), encoding="utf-8") as source:
        text = source.read()
    done = set()
    for number, (_, path, *places) in enumerate(FAULTS, 1):
        pairs = list(zip(places[::2], places[1::2]))
        if path == name and all(text.count(old) == 1 for old, _ in pairs):
            for old, new in pairs:
                text = text.replace(old, new.replace("@", str(number)))
            done.add(number)
    target = os.path.join(out, name)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as planted:
        planted.write(HEADER.format(path=os.path.join(root, name)) + text)
    return done


def main(root, out, names):
    done = set()
    for name in names:
        done |= plant(root, out, name)
    with open(os.path.join(out, "faults_planted.h"), "w", encoding="utf-8") as table:
        table.write('#include "planted.h"\nstatic const struct planted planted[] = {\n')
        for number, (what, path, *_) in enumerate(FAULTS, 1):
            there = "true" if number in done else "false"
            table.write(f'    {{{number}, "{path}: {c_text(what)}", {there}}},\n')
        table.write("};\n")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
