/* Collectives among ranks of one node through shared memory, without messages.

   Each rank has a slot. An operation runs in rounds: a rank puts a part of its operand into its slot, signals its
   arrival, waits for the ranks whose parts it needs, and takes these. Slots have two halves: a rank puts once all have
   arrived in the previous round, and so have taken the earlier contents of this half. Reductions combine in rank order,
   whatever the size. So all ranks have the same bits, in every run.

   The way of waiting depends on the node. If every rank has a core, it polls the flags of the ranks that it waits for.
   If ranks share cores (mj_sleeps), the last rank to arrive wakes all: a rank yields its core a few times, then sleeps
   in the kernel. MPI's collectives take log(ranks) such steps, and their ranks poll. */

#ifndef MPIJAX_MPI_SLOTS_H
#define MPIJAX_MPI_SLOTS_H

#include "mpi_memory.h"
#include "mpi_ops.h"
#include <linux/futex.h>
#include <stdatomic.h>
#include <sys/syscall.h>

#define MJ_PART (1 << 18)           /* maximum bytes of a half, which fit in the L2 cache */
#define MJ_SLOTS_BYTES (1 << 22)    /* maximum bytes of all halves of a communicator */
#define MJ_MOVED (1 << 17)          /* bytes above which polling ranks use MPI, because it copies once instead of twice */
#define MJ_SHARED_WORK (1 << 13)    /* bytes above which more than two ranks divide the work of a reduction */
#define MJ_SHARED_SLEEP (1 << 16)   /* the same if ranks sleep: a division costs another arrival */
#define MJ_TILE 256                 /* elements that are combined over all ranks at a time */
#define MJ_HANDOVERS 4              /* how often a rank yields its core before it sleeps */
#define MJ_NAP 200000               /* nanoseconds of the first sleep; each is twice as long, up to MJ_LONG_NAP */
#define MJ_LONG_NAP 2000000

/* One rank's flag. Indexed by the parity of the round: `call` must be equal on all ranks, and so must `what`, unless it
   is 0 on one of them; otherwise their operations differ. */
typedef struct {
    _Atomic uint64_t ticks;         /* the number of this rank's arrivals */
    uint64_t call[2], what[2];
    char unused[MJ_LINE - 5 * sizeof(uint64_t)];
} mj_flag;

/* The words that sleeping ranks wait on. */
typedef struct {
    _Atomic uint32_t arrived;       /* ranks that have arrived for the next turn */
    char unused1[MJ_LINE - 4];
    _Atomic uint32_t turn;          /* the last turn for which all have arrived; the futex */
    _Atomic uint32_t asleep;        /* ranks to wake */
    char unused2[MJ_LINE - 8];
    mj_flag flags[];
} mj_meeting;

/* A communicator's slots, as this rank sees them. */
typedef struct {
    mj_shared shared;
    int sleeps;
    uint64_t ticks;                 /* this rank's flag */
    uint64_t round;                 /* determines which half is next */
    int64_t part;                   /* bytes of a half */
    mj_meeting *meeting;
    char *halves;
} mj_slots;

enum { MJ_BARRIER, MJ_BCAST, MJ_SHIFT, MJ_SCATTER, MJ_GATHER, MJ_ALLGATHER, MJ_ALLTOALL, MJ_ALLREDUCE, MJ_REDUCE,
       MJ_REDUCE_SCATTER, MJ_SCAN, MJ_EXSCAN };

/* One operation through slots; `mj_slots_start` sets the members after `op`. */
typedef struct mj_transfer {
    mj_slots *slots;
    int kind, root, source, dest;
    const char *s;
    char *r;
    int64_t n;              /* bytes of a block */
    uint64_t what;          /* a number for operation and shape, equal on all ranks; or 0 */
    MPI_Datatype type;
    MPI_Op op;
    int blocks;             /* blocks that a rank puts */
    int64_t step, at;       /* bytes of a block in a round; bytes done */
    uint64_t call;
} mj_transfer;

static int mj_slots_key = MPI_KEYVAL_INVALID;

/* Whether a rank that puts data puts one block for each rank. */
static inline int mj_has_blocks(int kind) { return kind == MJ_SCATTER || kind == MJ_ALLTOALL || kind == MJ_REDUCE_SCATTER; }

/* The slots for an operation with blocks of `nbytes`; NULL if MPI runs it. Not collective; equal on all ranks. */
static mj_slots *mj_slots_for(MPI_Comm comm, int kind, int64_t nbytes) {
    mj_slots *slots = mj_shared_of(comm, &mj_slots_key, sizeof(mj_slots), mj_sleeps ? INT_MAX : MJ_POLLING_RANKS);
    int large = kind == MJ_ALLREDUCE || kind == MJ_REDUCE_SCATTER;
    if (slots == NULL) return NULL;
    if (slots->shared.state == MJ_NEW) {
        slots->sleeps = mj_sleeps;
        slots->part = MJ_PART;
        while (slots->part > MJ_LINE && 2 * slots->part * slots->shared.size > MJ_SLOTS_BYTES) slots->part /= 2;
    }
    if (slots->sleeps) return mj_has_blocks(kind) && slots->part / slots->shared.size < MJ_LINE ? NULL : slots;
    if (mj_has_blocks(kind)) nbytes *= slots->shared.size;
    return large || nbytes <= MJ_MOVED ? slots : NULL;
}

static int mj_slots_open(mj_slots *slots, MPI_Comm comm) {
    int64_t size = slots->shared.size, before = (int64_t)sizeof(mj_meeting) + size * MJ_LINE;
    int rc = mj_shared_open(&slots->shared, comm, (size_t)(before + 2 * size * slots->part));
    slots->meeting = slots->shared.memory;
    slots->halves = (char *)slots->shared.memory + before;
    return rc;
}

static inline char *mj_place_of(mj_slots *slots, int rank) {
    return slots->halves + (2 * rank + (int64_t)(slots->round & 1)) * slots->part;
}

/* ---- arriving, and waiting for others ---- */

static inline long mj_futex(_Atomic uint32_t *at, int what, uint32_t value, const struct timespec *limit) {
    return syscall(SYS_futex, (uint32_t *)at, what, value, limit, NULL, 0);
}

static inline void mj_arrive(mj_slots *slots) {
    mj_meeting *m = slots->meeting;
    slots->ticks++;
    if (!slots->sleeps) {
        atomic_store_explicit(&m->flags[slots->shared.rank].ticks, slots->ticks, memory_order_release);
    } else if (atomic_fetch_add(&m->arrived, 1) + 1 == (uint32_t)slots->shared.size) {
        atomic_store(&m->arrived, 0);
        atomic_store(&m->turn, (uint32_t)slots->ticks);
        if (atomic_load(&m->asleep)) mj_futex(&m->turn, FUTEX_WAKE, INT_MAX, NULL);
    }
}

/* Sleeps until all ranks have arrived; regularly lets MPI make progress, as its own calls would. */
static MJ_SELDOM void mj_sleep_through(mj_slots *slots) {
    mj_meeting *m = slots->meeting;
    uint32_t before = (uint32_t)slots->ticks - 1;
    struct timespec nap = {0, MJ_NAP};
    for (int i = 0; i < MJ_HANDOVERS; i++) {
        if (atomic_load(&m->turn) != before) return;
        sched_yield();
    }
    while (atomic_load(&m->turn) == before) {
        mj_progress();
        atomic_fetch_add(&m->asleep, 1);
        mj_futex(&m->turn, FUTEX_WAIT, before, &nap);
        atomic_fetch_sub(&m->asleep, 1);
        nap.tv_nsec = 2 * nap.tv_nsec < MJ_LONG_NAP ? 2 * nap.tv_nsec : MJ_LONG_NAP;
    }
}

/* Waits until a rank has arrived as often as this one; if ranks sleep, until all have. */
static inline void mj_await(mj_slots *slots, int rank) {
    _Atomic uint64_t *ticks = &slots->meeting->flags[rank].ticks;
    if (slots->sleeps) mj_sleep_through(slots);
    else
        for (int64_t looks = 0; atomic_load_explicit(ticks, memory_order_acquire) < slots->ticks; looks++) mj_look_again(looks);
}

static inline void mj_await_all(mj_slots *slots) {
    for (int rank = 0; rank < slots->shared.size; rank++) mj_await(slots, rank);
}

static inline int mj_is_another(mj_transfer *x, int rank) {
    mj_flag *its = &x->slots->meeting->flags[rank];
    uint64_t half = x->slots->round & 1, what = its->what[half];
    return its->call[half] != x->call || (what != x->what && what != 0 && x->what != 0);
}

/* Waits for a rank's part in this round; an error if it runs another operation. Sleeping ranks have waited for all. */
static inline int mj_await_part(mj_transfer *x, int rank) {
    static int another = 0;
    int differs;
    mj_await(x->slots, rank);
    differs = mj_is_another(x, rank);
    for (int other = 0; x->slots->sleeps && other < x->slots->shared.size; other++) differs |= mj_is_another(x, other);
    if (!differs) return MPI_SUCCESS;
    return mj_own_error(&another, "ranks of the communicator call different operations at this point, or the same operation with "
                                  "different shapes or roots: all must call its operations in the same order");
}

/* ---- combining: result = part of rank 0 (op) part of rank 1 (op) ... (op) part of rank `last` ---- */

/* A rank's part, `offset` bytes into its half; this rank's own part is read from its operand, which is closer. */
static inline const char *mj_part(mj_transfer *x, int rank, int64_t offset) {
    if (rank == x->slots->shared.rank && x->kind != MJ_REDUCE_SCATTER && x->s != x->r) return x->s + x->at + offset;
    return mj_place_of(x->slots, rank) + offset;
}

/* Computes in `wide`, rounds once to `store`. */
#define MJ_COMBINE(store, wide, load, round, combine)                                          \
    do {                                                                                       \
        wide tile[sizeof(store) < sizeof(wide) ? MJ_TILE : 1];                                 \
        int64_t count = bytes / (int64_t)sizeof(store);                                        \
        for (int64_t begin = 0; begin < count; begin += MJ_TILE) {                             \
            int64_t n = count - begin < MJ_TILE ? count - begin : MJ_TILE;                     \
            store *to = (store *)result + begin;                                               \
            wide *restrict sum = sizeof(store) == sizeof(wide) ? (wide *)to : tile;            \
            const store *a = (const store *)mj_part(x, 0, offset) + begin;                     \
            const store *b = (const store *)mj_part(x, 1, offset) + begin;                     \
            for (int64_t i = 0; i < n; i++) sum[i] = combine(load(a[i]), load(b[i]));          \
            for (int rank = 2; rank <= last; rank++) {                                         \
                b = (const store *)mj_part(x, rank, offset) + begin;                           \
                for (int64_t i = 0; i < n; i++) sum[i] = combine(sum[i], load(b[i]));          \
            }                                                                                  \
            for (int64_t i = 0; sizeof(store) < sizeof(wide) && i < n; i++) to[i] = round(sum[i]); \
        }                                                                                      \
        return MPI_SUCCESS;                                                                    \
    } while (0)

static int mj_merge(mj_transfer *x, char *result, int64_t offset, int64_t bytes, int last) {
    int64_t count;
    int rc = MPI_SUCCESS;
    if (last > 0 && x->op == MPI_SUM && x->type == MPI_FLOAT) MJ_COMBINE(float, float, mj_same_f, mj_same_f, MJ_ADD);
    if (last > 0 && x->op == MPI_SUM && x->type == MPI_DOUBLE) MJ_COMBINE(double, double, mj_same_d, mj_same_d, MJ_ADD);
    if (last > 0 && x->op == MJ_SUM && x->type == MJ_BF16) MJ_COMBINE(uint16_t, float, mj_from_bf16, mj_to_bf16, MJ_ADD);
    if (last > 0 && x->op == MJ_SUM && x->type == MJ_F16) MJ_COMBINE(uint16_t, float, mj_from_f16, mj_to_f16, MJ_ADD);
    if (last > 0 && x->op == MJ_PROD && x->type == MJ_BF16) MJ_COMBINE(uint16_t, float, mj_from_bf16, mj_to_bf16, MJ_MUL);
    if (last > 0 && x->op == MJ_PROD && x->type == MJ_F16) MJ_COMBINE(uint16_t, float, mj_from_f16, mj_to_f16, MJ_MUL);
    memcpy(result, mj_part(x, last, offset), (size_t)bytes);
    count = last > 0 ? bytes / mj_size(x->type) : 0;
    for (int rank = last - 1; rc == MPI_SUCCESS && count > 0 && rank >= 0; rank--)      /* result = part (op) result */
        rc = MPI_Reduce_local(mj_part(x, rank, offset), result, (int)count, x->type, x->op);
    return rc;
}

/* For more than two ranks: each combines its share, and all copy the shares of all. */
static int mj_merge_together(mj_transfer *x, char *result, int64_t bytes) {
    mj_slots *slots = x->slots;
    int own = slots->shared.rank, ranks = slots->shared.size;
    int64_t size = mj_size(x->type), count = bytes / size;
#define MJ_SHARE(rank) (count * (rank) / ranks * size)
    int64_t begin = MJ_SHARE(own), end = MJ_SHARE(own + 1);
    int rc = mj_merge(x, result + begin, begin, end - begin, ranks - 1);
    memcpy(mj_place_of(slots, own) + begin, result + begin, (size_t)(end - begin));   /* no other rank reads this */
    mj_arrive(slots);
    for (int rank = 0; rank < ranks; rank++) {
        mj_await(slots, rank);
        begin = MJ_SHARE(rank), end = MJ_SHARE(rank + 1);
        if (rank != own) memcpy(result + begin, mj_place_of(slots, rank) + begin, (size_t)(end - begin));
    }
#undef MJ_SHARE
    return rc;
}

/* ---- a round: bytes [at, at + m) of each block ---- */

static inline int mj_puts(mj_transfer *x) {
    if (x->kind == MJ_BCAST || x->kind == MJ_SCATTER) return x->slots->shared.rank == x->root;
    return x->kind != MJ_SHIFT || x->dest >= 0;
}

static void mj_put(mj_transfer *x, int64_t m) {
    mj_slots *slots = x->slots;
    int own = slots->shared.rank;
    mj_flag *flag = &slots->meeting->flags[own];
    mj_await_all(slots);      /* for the previous round: so they have read the one before it */
    slots->round++;
    for (int i = 0; m > 0 && mj_puts(x) && i < x->blocks; i++)
        if (i != own || x->kind != MJ_ALLTOALL)
            memcpy(mj_place_of(slots, own) + i * x->step, x->s + x->at + i * x->n, (size_t)m);
    flag->call[slots->round & 1] = x->call;
    flag->what[slots->round & 1] = x->what;
    mj_arrive(slots);
}

static inline void mj_move(char *to, const char *from, int64_t m) {
    if (to != from && m > 0) memcpy(to, from, (size_t)m);
}

/* Takes one rank's part. */
static int mj_take_from(mj_transfer *x, int from, int64_t m) {
    int own = x->slots->shared.rank, scatters = x->kind == MJ_SCATTER, rc;
    if (from < 0) return MPI_SUCCESS;
    if ((rc = mj_await_part(x, from)) != MPI_SUCCESS) return rc;
    mj_move(x->r + x->at, from == own ? x->s + x->at + scatters * own * x->n
                                      : mj_place_of(x->slots, from) + scatters * own * x->step, m);
    return MPI_SUCCESS;
}

/* Takes a block from each rank, in rank order. */
static int mj_take_blocks(mj_transfer *x, int64_t m) {
    mj_slots *slots = x->slots;
    int own = slots->shared.rank, rc, all = x->kind == MJ_ALLTOALL;
    for (int k = 0; k < slots->shared.size; k++) {
        int rank = (own + k) % slots->shared.size;   /* own block first, while others arrive */
        if ((rc = mj_await_part(x, rank)) != MPI_SUCCESS) return rc;
        mj_move(x->r + x->at + rank * x->n, rank == own ? x->s + x->at + all * own * x->n
                                                        : mj_place_of(slots, rank) + all * own * x->step, m);
    }
    return MPI_SUCCESS;
}

static int mj_take(mj_transfer *x, int64_t m) {
    int own = x->slots->shared.rank, last = x->slots->shared.size - 1, kind = x->kind, rc;
    char *to = x->r + x->at;
    if (kind == MJ_BCAST || kind == MJ_SCATTER || kind == MJ_SHIFT)
        return mj_take_from(x, kind == MJ_SHIFT ? x->source : x->root, m);
    if (kind == MJ_REDUCE && own != x->root) {       /* its result is its operand */
        if (x->r != NULL) mj_move(to, x->s + x->at, m);
        return MPI_SUCCESS;
    }
    if (kind == MJ_GATHER && own != x->root) return MPI_SUCCESS;
    if (kind == MJ_ALLGATHER || kind == MJ_GATHER || kind == MJ_ALLTOALL) return mj_take_blocks(x, m);
    if (kind == MJ_SCAN || kind == MJ_EXSCAN) last = own - (kind == MJ_EXSCAN);
    for (int rank = 0; rank <= last; rank++)
        if ((rc = mj_await_part(x, rank)) != MPI_SUCCESS) return rc;
    if (kind == MJ_BARRIER || m == 0) return MPI_SUCCESS;
    if (last < 0) memset(to, 0, (size_t)m);          /* exscan on the first rank: never uninitialized memory */
    else if (kind == MJ_ALLREDUCE && last > 1 && m >= (x->slots->sleeps ? MJ_SHARED_SLEEP : MJ_SHARED_WORK))
        return mj_merge_together(x, to, m);
    else return mj_merge(x, to, kind == MJ_REDUCE_SCATTER ? own * x->step : 0, m, last);
    return MPI_SUCCESS;
}

static inline int64_t mj_left(mj_transfer *x) { return x->n - x->at < x->step ? x->n - x->at : x->step; }

/* Puts the first part into the slot, and returns. */
static int mj_slots_start(mj_transfer *x) {
    if (x->root < 0 || x->root >= x->slots->shared.size) return MPI_ERR_ROOT;
    x->blocks = mj_has_blocks(x->kind) ? x->slots->shared.size : 1;
    x->step = x->blocks == 1 ? x->slots->part : x->slots->part / x->blocks / 64 * 64;
    if (x->n < x->step) x->step = x->n;
    x->at = 0;
    x->call = (uint64_t)x->n << 24 | (uint64_t)(x->kind << 20 | x->root);
    mj_put(x, mj_left(x));
    return MPI_SUCCESS;
}

static int mj_slots_finish(mj_transfer *x) {
    for (;;) {
        int64_t m = mj_left(x);
        int rc = mj_take(x, m);
        x->at += m;
        if (rc != MPI_SUCCESS || x->at >= x->n) return rc;
        mj_put(x, mj_left(x));
    }
}

#endif
