/* Messages between two ranks of a node through shared memory: a ring with a few slots.

   The sender waits while all slots are unread, the receiver until there is a message. A message and its arrival flag
   are adjacent, and the sender rarely checks what has been read: if two cores are far apart, each cache line that moves
   between them takes as long as the message. Messages are counted over the lifetime of the ring, so none is mistaken
   for an earlier one.

   This file has the rings of a communicator for exchanges in which the other side's call is known (`halo_exchange`):
   both ends use them from the first message on. In lanes (mpi_lanes.h) the two ends must first agree, because the other
   side may call MPI itself. */

#ifndef MPIJAX_MPI_RING_H
#define MPIJAX_MPI_RING_H

#include "mpi_calls.h"
#include "mpi_memory.h"
#include <stdatomic.h>

#define MJ_SLOT (1 << 13)           /* maximum bytes of a message */
#define MJ_SLOTS 8                  /* maximum number of unread messages; a power of 2 */

typedef struct {
    _Atomic uint64_t number;        /* the message's number, from 1 on; written last */
    int64_t nbytes, tag;
    char data[MJ_SLOT];
    char unused[MJ_LINE - 3 * sizeof(uint64_t)];
} mj_message;

typedef struct {
    _Atomic uint64_t read;          /* the receiver's: twice the messages read, plus 1 at the end (mpi_lanes.h) */
    char unused[MJ_LINE - sizeof(uint64_t)];
    mj_message slots[MJ_SLOTS];
} mj_ring;

/* One end of a ring. */
typedef struct {
    mj_ring *ring;
    uint64_t count, seen;           /* messages put, or taken; for the sender: those known to be read */
} mj_ring_end;

static inline uint64_t mj_ring_unread(mj_ring_end *e) {
    e->seen = atomic_load_explicit(&e->ring->read, memory_order_acquire) >> 1;
    return e->count - e->seen;
}

/* Puts a message; the caller has checked that fewer than MJ_SLOTS are unread. */
static inline void mj_ring_put(mj_ring_end *e, const void *data, int64_t nbytes, int tag) {
    mj_message *slot = &e->ring->slots[e->count % MJ_SLOTS];
    slot->nbytes = nbytes, slot->tag = tag;
    memcpy(slot->data, data, (size_t)nbytes);
    atomic_store_explicit(&slot->number, ++e->count, memory_order_release);
}

/* The next message, or NULL if it has not arrived. */
static inline mj_message *mj_ring_next(mj_ring_end *e) {
    mj_message *slot = &e->ring->slots[e->count % MJ_SLOTS];
    return atomic_load_explicit(&slot->number, memory_order_acquire) == e->count + 1 ? slot : NULL;
}

/* Marks the next message, which has been copied, as read; fails if the sender has ended the session before. */
static inline int mj_ring_pass(mj_ring_end *e) {
    uint64_t read = 2 * e->count;
    if (!atomic_compare_exchange_strong(&e->ring->read, &read, read + 2)) return 0;
    e->count++;
    return 1;
}

/* Checks the received message against the request: its length, and whether it is a derivative. */
static inline int mj_check_message(mj_message *m, int64_t nbytes, int tag) {
    if (m->nbytes > nbytes) return MPI_ERR_TRUNCATE;
    return m->nbytes < nbytes ? mj_too_short() : mj_check_kind(tag, (int)m->tag);
}

/* ---- a communicator's rings, between all pairs of ranks ---- */

typedef struct {
    mj_shared shared;
    mj_ring_end to[MJ_POLLING_RANKS], from[MJ_POLLING_RANKS];
} mj_rings;

static int mj_rings_key = MPI_KEYVAL_INVALID;

/* NULL if messages go by MPI. Not collective; equal on all ranks. */
static mj_rings *mj_rings_for(MPI_Comm comm) {
    return mj_sleeps ? NULL : mj_shared_of(comm, &mj_rings_key, sizeof(mj_rings), MJ_POLLING_RANKS);
}

static int mj_rings_open(mj_rings *rings, MPI_Comm comm) {
    int own = rings->shared.rank, size = rings->shared.size;
    int rc = mj_shared_open(&rings->shared, comm, sizeof(mj_ring) * (size_t)(size * size));
    for (int other = 0; other < size; other++) {
        rings->to[other].ring = (mj_ring *)rings->shared.memory + own * size + other;
        rings->from[other].ring = (mj_ring *)rings->shared.memory + other * size + own;
    }
    return rc;
}

static void mj_ring_send(mj_ring_end *to, const void *data, int64_t nbytes, int tag) {
    if (to->count - to->seen >= MJ_SLOTS)
        for (int64_t looks = 0; mj_ring_unread(to) >= MJ_SLOTS; looks++) mj_look_again(looks);
    mj_ring_put(to, data, nbytes, tag);
}

static int mj_ring_recv(mj_ring_end *from, void *data, int64_t nbytes, int tag) {
    mj_message *m;
    for (int64_t looks = 0; (m = mj_ring_next(from)) == NULL; looks++) mj_look_again(looks);
    int code = mj_check_message(m, nbytes, tag);
    if (code == MPI_SUCCESS) memcpy(data, m->data, (size_t)nbytes);
    mj_ring_pass(from);
    return code;
}

#endif
