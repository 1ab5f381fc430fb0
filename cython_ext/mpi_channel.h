/* Messages between ranks of one node through channels in the window of `mpi_window.h`.

   There is a channel for each pair of ranks and direction, with room for two messages. A sender waits while both are
   unread, a receiver until there is one. Both ends must use it: it is for exchanges in which it is known what the other
   side calls (`halo_exchange`), since a message here does not match a receive of MPI. */

#ifndef MPIJAX_MPI_CHANNEL_H
#define MPIJAX_MPI_CHANNEL_H

#include "mpi_window.h"

static inline mj_channel *mj_channel_of(mj_window *window, int from, int to) {
    return window->channels + from * window->size + to;
}

/* Waits until a counter of the other side has come to `value`. */
static inline void mj_await_count(_Atomic uint64_t *count, uint64_t value) {
    for (int64_t looks = 0; atomic_load_explicit(count, memory_order_acquire) < value; looks++)
        if (looks > MJ_SPINS) mj_pause();
}

static void mj_channel_put(mj_window *window, int to, const void *data, int64_t nbytes, int tag) {
    mj_channel *c = mj_channel_of(window, window->rank, to);
    uint64_t number = atomic_load_explicit(&c->sent, memory_order_relaxed);
    if (number >= 2) mj_await_count(&c->read, number - 1);
    c->nbytes[number & 1] = nbytes;
    c->tag[number & 1] = tag;
    memcpy(c->data[number & 1], data, (size_t)nbytes);
    atomic_store_explicit(&c->sent, number + 1, memory_order_release);
}

static int mj_channel_take(mj_window *window, int from, void *data, int64_t nbytes, int tag) {
    mj_channel *c = mj_channel_of(window, from, window->rank);
    uint64_t number = atomic_load_explicit(&c->read, memory_order_relaxed);
    mj_await_count(&c->sent, number + 1);
    int fits = c->nbytes[number & 1] == nbytes, code = mj_check_kind(tag, c->tag[number & 1]);
    if (fits) memcpy(data, c->data[number & 1], (size_t)nbytes);
    atomic_store_explicit(&c->read, number + 1, memory_order_release);
    return code != MPI_SUCCESS || fits ? code : MPI_ERR_TRUNCATE;
}

#endif
