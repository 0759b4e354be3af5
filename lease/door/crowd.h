/*
 * Who has come and is not admitted yet, by address: when there are too many, the one that has waited
 * longest among those of the address with the most makes room, so that a flood from one address
 * costs no other its place. Pure: no I/O. Loop thread only.
 */
#ifndef LEASEHOLD_DOOR_CROWD_H
#define LEASEHOLD_DOOR_CROWD_H

#include <stddef.h>
#include <stdint.h>

#define CROWD_MAX 64 /* and the one that has just come */

struct sockaddr;

/* An address, or the /64 of IPv6, which one host may have for itself; all of a unix socket are one. */
struct crowd_key {
    uint8_t bytes[16];
};

struct crowd_source {
    struct crowd_key key;
    size_t n;
};

struct crowd_entry {
    struct crowd_source *source; /* NULL: it is in no crowd */
    struct crowd_entry *prev, *next;
};

/* Zeroed before its first use. */
struct crowd {
    struct crowd_source sources[CROWD_MAX + 1]; /* those with n = 0 are free */
    struct crowd_entry *entries;                /* the longest there first */
    size_t n;
};

void crowd_key_of(const struct sockaddr *address, struct crowd_key *ret);

/* There must be at most CROWD_MAX in it. */
void crowd_enter(struct crowd *c, struct crowd_entry *entry, const struct crowd_key *from);
void crowd_leave(struct crowd *c, struct crowd_entry *entry); /* also when it is in none */

/* Who has to go, which may be the last to come; NULL: nobody has to. */
struct crowd_entry *crowd_excess(const struct crowd *c);

#endif
