/* Collectives among the ranks of one window, through a window of shared memory (MPI-3), without messages.

   Each rank has a slot in the window. An operation goes in rounds: a rank puts a part of its operand into its slot,
   raises its flag, waits for the flags of those whose parts it needs, and takes them. Flags only grow; slots are double,
   so that a rank is at most one round ahead of those who still read. Reductions combine in the order of the ranks,
   whatever the size, so all ranks have the same bits, and a program has them in every run.

   The window of a communicator is made by the first operation on it, in which all of its ranks are; it goes when the
   communicator is freed. Where not all ranks are on one window, MPI's own collectives go on as before. */

#ifndef MPIJAX_MPI_WINDOW_H
#define MPIJAX_MPI_WINDOW_H

#include "mpi_calls.h"
#include <stdatomic.h>
#include <stddef.h>

#define MJ_WINDOW_RANKS 16            /* more ranks than this combine faster in a tree, which is what MPI has */
#define MJ_WINDOW_PART (1 << 18)           /* bytes of a part: it stays in the second-level cache */
#define MJ_SHARED_WORK (1 << 13)    /* bytes above which more than two ranks divide the work of a reduction */
#define MJ_LINE 128                 /* bytes that processors fetch together */
#define MJ_SLOT (1 << 13)           /* bytes of the longest message in a slot */
#define MJ_SLOTS 8                  /* messages that can be unread; a power of 2 */
#define MJ_SPINS 20000              /* looks at a flag before a rank lets others run: about 10 microseconds */

typedef struct {
    _Atomic uint64_t value;
    uint64_t what[2];   /* the operation of a round, by its parity: the same on all ranks, or somebody is wrong */
    char unused[MJ_LINE - 3 * sizeof(uint64_t)];
} mj_flag;

/* A message in memory that two ranks share. */
typedef struct {
    _Atomic uint64_t number;        /* which one it is: written last */
    int64_t nbytes, tag;
    char data[MJ_SLOT];
    char unused[MJ_LINE - 3 * sizeof(uint64_t)];
} mj_message;

/* Messages from one rank to another (mpi_channel.h). Lines by who uses them. */
typedef struct {
    _Atomic uint64_t read;          /* the receiver's: messages read */
    char unused1[MJ_LINE - sizeof(uint64_t)];
    uint64_t sent, seen;            /* the sender's: messages sent; of those, known to be read */
    char unused2[MJ_LINE - 2 * sizeof(uint64_t)];
    mj_message slots[MJ_SLOTS];
} mj_channel;

/* A communicator's shared memory, as this rank sees it. */
typedef struct {
    enum { MJ_WINDOW_NEW, MJ_WINDOW_READY, MJ_WINDOW_NONE } state;  /* first: the executor reads it */
    int rank, size;
    uint64_t tick;      /* this rank's flag */
    uint64_t round;     /* which of the two slots is next */
    mj_flag *flags;
    mj_channel *channels;
    char *slots;
    MPI_Win memory;
} mj_window;

/* One operation through it; `mj_window_start` sets step and at. */
typedef struct mj_transfer {
    mj_window *window;
    int kind, root, source, dest;
    const char *s;
    char *r;
    int64_t n, step, at;    /* bytes of a block, of a round, done */
    uint64_t what;          /* a number of the operation and the shape that is the same on all ranks; or 0 */
    MPI_Datatype type;
    MPI_Op op;
} mj_transfer;

enum { MJ_ALLREDUCE, MJ_BCAST, MJ_ALLGATHER, MJ_ALLTOALL, MJ_REDUCE_SCATTER, MJ_SHIFT, MJ_BARRIER };

static int mj_window_key = MPI_KEYVAL_INVALID;

static int mj_window_freed(MPI_Comm comm, int key, void *attribute, void *unused) {
    mj_window *window = attribute;
    (void)comm, (void)key, (void)unused;
    if (window->state == MJ_WINDOW_READY) MPI_Win_free(&window->memory);
    window->state = MJ_WINDOW_NONE;    /* stays: programs point to it */
    return MPI_SUCCESS;
}

/* The shared memory of a communicator, not made yet; NULL for one that cannot have any. Not collective. */
static mj_window *mj_window_of(MPI_Comm comm) {
    int inter = 0, size = 0, found = 0;
    mj_window *window = NULL;
    if (MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter) return NULL;
    MPI_Comm_size(comm, &size);
    if (size < 2 || size > MJ_WINDOW_RANKS) return NULL;
    if (mj_window_key == MPI_KEYVAL_INVALID
        && MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, mj_window_freed, &mj_window_key, NULL) != MPI_SUCCESS)
        return NULL;
    if (MPI_Comm_get_attr(comm, mj_window_key, &window, &found) == MPI_SUCCESS && found) return window;
    window = calloc(1, sizeof(mj_window));
    if (window != NULL && MPI_Comm_set_attr(comm, mj_window_key, window) != MPI_SUCCESS) {
        free(window);
        window = NULL;
    }
    return window;
}

/* Makes the window, if all ranks of the communicator are on one node. Collective over them. */
static int mj_window_open(mj_window *window, MPI_Comm comm) {
    MPI_Comm here;
    MPI_Aint bytes;
    char *memory = NULL;
    int unit, local = 0, done = 0, yields = mj_yielding;
    int rc = MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &here);
    if (rc != MPI_SUCCESS) return rc;
    MPI_Comm_rank(comm, &window->rank);
    MPI_Comm_size(comm, &window->size);
    MPI_Comm_size(here, &local);
    window->state = MJ_WINDOW_NONE;
    if (local == window->size) rc = MPI_Allreduce(MPI_IN_PLACE, &yields, 1, MPI_INT, MPI_MAX, here);
    if (rc == MPI_SUCCESS && local == window->size && !yields) {
        MPI_Comm_set_errhandler(here, MPI_ERRORS_RETURN);   /* without memory to share, messages do */
        bytes = MJ_LINE + window->size * (MJ_LINE + 2 * (MPI_Aint)MJ_WINDOW_PART);
        bytes = window->rank ? 0 : bytes + window->size * window->size * (MPI_Aint)sizeof(mj_channel);
        done = MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, here, &memory, &window->memory) == MPI_SUCCESS;
        if (done) done = MPI_Win_shared_query(window->memory, 0, &bytes, &unit, &memory) == MPI_SUCCESS;
        memory += (MJ_LINE - (uintptr_t)memory % MJ_LINE) % MJ_LINE;
        window->flags = (mj_flag *)memory;
        window->slots = memory + window->size * MJ_LINE;
        window->channels = (mj_channel *)(window->slots + 2 * window->size * (int64_t)MJ_WINDOW_PART);
        if (done) atomic_store(&window->flags[window->rank].value, 0);
        for (int to = 0; done && to < window->size; to++) {
            mj_channel *channel = &window->channels[window->rank * window->size + to];
            memset(channel, 0, offsetof(mj_channel, slots));
            for (int i = 0; i < MJ_SLOTS; i++) atomic_store(&channel->slots[i].number, 0);
        }
        rc = MPI_Allreduce(MPI_IN_PLACE, &done, 1, MPI_INT, MPI_MIN, here);
        if (done) window->state = MJ_WINDOW_READY;
    }
    MPI_Comm_free(&here);
    return rc;
}

static inline char *mj_place_of(mj_window *window, int rank) {
    return window->slots + (2 * rank + (window->round & 1)) * (int64_t)MJ_WINDOW_PART;
}

static inline void mj_arrive(mj_window *window) {
    atomic_store_explicit(&window->flags[window->rank].value, ++window->tick, memory_order_release);
}

static inline void mj_await(mj_window *window, int rank) {
    for (int64_t looks = 0; atomic_load_explicit(&window->flags[rank].value, memory_order_acquire) < window->tick; looks++)
        if (looks > MJ_SPINS) mj_pause();
}

/* Waits for a rank's part in this round; an error if it does another operation. 0: of that nothing is known. */
static inline int mj_await_part(mj_transfer *x, int rank) {
    static int another = 0;
    mj_window *window = x->window;
    uint64_t its;
    mj_await(window, rank);
    its = window->flags[rank].what[window->round & 1];
    if (its == x->what || its == 0 || x->what == 0) return MPI_SUCCESS;
    return mj_own_error(&another, "another rank does another operation, or on another shape, at this point: all ranks of a "
                                  "communicator must run its operations in the same order");
}

static inline void mj_await_all(mj_window *window) {
    for (int rank = 0; rank < window->size; rank++) mj_await(window, rank);
}

/* ---- combining: result = part of rank 0 (op) part of rank 1 (op) ... ---- */

/* A rank's part, `offset` bytes into the slots. What is this rank's own is nearer where it comes from. */
static inline const char *mj_part(mj_transfer *x, int rank, int64_t offset) {
    if (rank == x->window->rank && x->kind == MJ_ALLREDUCE && x->s != x->r) return x->s + x->at + offset;
    return mj_place_of(x->window, rank) + offset;
}

#define MJ_SUM_OF(real)                                           \
    do {                                                          \
        real *restrict to = (real *)result;                       \
        int64_t count = bytes / (int64_t)sizeof(real);            \
        const real *a = (const real *)mj_part(x, 0, offset);      \
        const real *b = (const real *)mj_part(x, 1, offset);      \
        for (int64_t i = 0; i < count; i++) to[i] = a[i] + b[i];  \
        for (int rank = 2; rank < x->window->size; rank++) {        \
            b = (const real *)mj_part(x, rank, offset);           \
            for (int64_t i = 0; i < count; i++) to[i] += b[i];    \
        }                                                         \
        return MPI_SUCCESS;                                       \
    } while (0)

static int mj_merge(mj_transfer *x, char *result, int64_t offset, int64_t bytes) {
    if (x->op == MPI_SUM && x->type == MPI_FLOAT) MJ_SUM_OF(float);
    if (x->op == MPI_SUM && x->type == MPI_DOUBLE) MJ_SUM_OF(double);
    int64_t count = bytes / mj_size(x->type);
    int rc = MPI_SUCCESS;
    memcpy(result, mj_part(x, x->window->size - 1, offset), (size_t)bytes);
    for (int rank = x->window->size - 2; rc == MPI_SUCCESS && rank >= 0; rank--)      /* result = part (op) result */
        rc = MPI_Reduce_local(mj_part(x, rank, offset), result, (int)count, x->type, x->op);
    return rc;
}

/* More than two ranks: each combines its share, and all take the shares of all. */
static int mj_merge_together(mj_transfer *x, char *result, int64_t bytes) {
    mj_window *window = x->window;
    int64_t size = mj_size(x->type), count = bytes / size;
#define MJ_SHARE(rank) (count * (rank) / window->size * size)
    int64_t begin = MJ_SHARE(window->rank), end = MJ_SHARE(window->rank + 1);
    int rc = mj_merge(x, result + begin, begin, end - begin);
    memcpy(mj_place_of(window, window->rank) + begin, result + begin, (size_t)(end - begin));   /* nobody else reads this there */
    mj_arrive(window);
    for (int rank = 0; rank < window->size; rank++) {
        mj_await(window, rank);
        begin = MJ_SHARE(rank), end = MJ_SHARE(rank + 1);
        if (rank != window->rank) memcpy(result + begin, mj_place_of(window, rank) + begin, (size_t)(end - begin));
    }
#undef MJ_SHARE
    return rc;
}

/* ---- a round: bytes [at, at + m) of each block ---- */

static void mj_put(mj_transfer *x, int64_t m) {
    mj_window *window = x->window;
    const char *from = x->s + x->at;
    char *slot;
    mj_await_all(window);     /* of the round before: so they have read the one before that */
    window->round++;
    slot = mj_place_of(window, window->rank);
    if (x->kind == MJ_ALLTOALL || x->kind == MJ_REDUCE_SCATTER) {
        for (int rank = 0; rank < window->size; rank++)
            if (rank != window->rank || x->kind == MJ_REDUCE_SCATTER)
                memcpy(slot + rank * x->step, from + rank * x->n, (size_t)m);
    } else if (x->kind == MJ_BCAST ? window->rank == x->root : x->kind != MJ_SHIFT || x->dest >= 0) {
        memcpy(slot, from, (size_t)m);
    }
    window->flags[window->rank].what[window->round & 1] = x->what;
    mj_arrive(window);
}

static int mj_take(mj_transfer *x, int64_t m) {
    mj_window *window = x->window;
    char *to = x->r + x->at;
    int from = x->kind == MJ_BCAST ? x->root : x->source, rc;
    if (x->kind == MJ_BCAST || x->kind == MJ_SHIFT) {
        if (from < 0) return MPI_SUCCESS;
        if ((rc = mj_await_part(x, from)) != MPI_SUCCESS) return rc;
        if (x->kind == MJ_BCAST && from == window->rank) {
            if (x->s != x->r) memcpy(to, x->s + x->at, (size_t)m);
        } else {
            memcpy(to, mj_place_of(window, from), (size_t)m);
        }
        return MPI_SUCCESS;
    }
    if (x->kind == MJ_ALLREDUCE || x->kind == MJ_REDUCE_SCATTER) {
        for (int rank = 0; rank < window->size; rank++)
            if ((rc = mj_await_part(x, rank)) != MPI_SUCCESS) return rc;
        if (x->kind == MJ_REDUCE_SCATTER) return mj_merge(x, to, window->rank * x->step, m);
        if (window->size > 2 && m >= MJ_SHARED_WORK) return mj_merge_together(x, to, m);
        return mj_merge(x, to, 0, m);
    }
    for (int k = 0; k < window->size; k++) {
        int rank = (window->rank + k) % window->size;   /* own block first, while others arrive */
        if ((rc = mj_await_part(x, rank)) != MPI_SUCCESS) return rc;
        if (x->kind == MJ_ALLGATHER)
            memcpy(to + rank * x->n, rank == window->rank ? x->s + x->at : mj_place_of(window, rank), (size_t)m);
        else if (rank != window->rank)
            memcpy(to + rank * x->n, mj_place_of(window, rank) + window->rank * x->step, (size_t)m);
        else if (x->s != x->r)
            memcpy(to + rank * x->n, x->s + x->at + rank * x->n, (size_t)m);
    }
    return MPI_SUCCESS;
}

static inline int64_t mj_left(mj_transfer *x) { return x->n - x->at < x->step ? x->n - x->at : x->step; }

/* Shows the first part to the others, and returns. */
static void mj_window_start(mj_transfer *x) {
    int blocks = x->kind == MJ_ALLTOALL || x->kind == MJ_REDUCE_SCATTER ? x->window->size : 1;
    x->step = MJ_WINDOW_PART / blocks / 64 * 64;
    x->at = 0;
    if (x->n > 0 || x->kind == MJ_BARRIER) mj_put(x, mj_left(x));
}

static int mj_window_finish(mj_transfer *x) {
    int rc = MPI_SUCCESS;
    for (int rank = 0; x->kind == MJ_BARRIER && rc == MPI_SUCCESS && rank < x->window->size; rank++)
        rc = mj_await_part(x, rank);
    while (rc == MPI_SUCCESS && x->at < x->n) {
        rc = mj_take(x, mj_left(x));
        x->at += mj_left(x);
        if (x->at < x->n) mj_put(x, mj_left(x));
    }
    return rc;
}

#endif
