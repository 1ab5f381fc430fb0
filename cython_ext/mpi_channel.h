/* Messages between ranks of one node through channels in the window of `mpi_window.h`.

   There is a channel for each pair of ranks and direction, with room for a few messages. A sender waits while all are
   unread, a receiver until there is one. Both ends must use it: it is for exchanges in which it is known what the other
   side calls (`halo_exchange`), since a message here does not match a receive of MPI.

   A message and what tells that it has come lie together, and the sender looks seldom at what has been read: where two
   cores are far from each other, each line that goes from one to the other takes as long as the message. */

#ifndef MPIJAX_MPI_CHANNEL_H
#define MPIJAX_MPI_CHANNEL_H

#include "mpi_window.h"

static inline mj_channel *mj_channel_of(mj_window *window, int from, int to) {
    return window->channels + from * window->size + to;
}

static void mj_channel_put(mj_window *window, int to, const void *data, int64_t nbytes, int tag) {
    mj_channel *c = mj_channel_of(window, window->rank, to);
    mj_message *slot = &c->slots[c->sent % MJ_SLOTS];
    for (int64_t looks = 0; c->sent - c->seen >= MJ_SLOTS; looks++) {
        c->seen = atomic_load_explicit(&c->read, memory_order_acquire);
        if (looks > MJ_SPINS) mj_pause();
    }
    slot->nbytes = nbytes, slot->tag = tag;
    memcpy(slot->data, data, (size_t)nbytes);
    atomic_store_explicit(&slot->number, ++c->sent, memory_order_release);
}

static int mj_channel_take(mj_window *window, int from, void *data, int64_t nbytes, int tag) {
    mj_channel *c = mj_channel_of(window, from, window->rank);
    uint64_t number = atomic_load_explicit(&c->read, memory_order_relaxed);
    mj_message *slot = &c->slots[number % MJ_SLOTS];
    for (int64_t looks = 0; atomic_load_explicit(&slot->number, memory_order_acquire) != number + 1; looks++)
        if (looks > MJ_SPINS) mj_pause();
    int fits = slot->nbytes == nbytes, code = mj_check_kind(tag, (int)slot->tag);
    if (fits) memcpy(data, slot->data, (size_t)nbytes);
    atomic_store_explicit(&c->read, number + 1, memory_order_release);
    return code != MPI_SUCCESS || fits ? code : MPI_ERR_TRUNCATE;
}

#endif
