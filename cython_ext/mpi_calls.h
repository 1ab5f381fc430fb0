/* MPI calls with 64-bit counts, and with a way of waiting that suits the node.

   Counts: the _c functions of MPI-4 if the library has them. Otherwise (or with MPIJAX_SMALL_COUNTS, for tests),
   messages of more than mj_chunk elements are sent in parts; if each rank has a block, each block is one element of a
   derived type.

   Waiting: if ranks outnumber cores, calls use their non-blocking form (`mpi_wait.h`). */

#ifndef MPIJAX_MPI_CALLS_H
#define MPIJAX_MPI_CALLS_H

#include "half.h"
#include "mpi_wait.h"
#include <limits.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if MPI_VERSION >= 4 && !defined(MPIJAX_SMALL_COUNTS)
#define MJ_LARGE_COUNTS 1
#define MJ(name) name##_c
typedef MPI_Count mj_count;
static int64_t mj_chunk = INT64_MAX;
#else
#define MJ_LARGE_COUNTS 0
#define MJ(name) name
typedef int mj_count;
static int64_t mj_chunk = INT_MAX;
#endif

/* Handles are ints in MPICH and its relatives, pointers in Open MPI; instructions carry both as intptr_t. */
#define MJ_COMM(handle) ((MPI_Comm)(intptr_t)(handle))
#define MJ_TYPE(handle) ((MPI_Datatype)(intptr_t)(handle))
#define MJ_OP(handle) ((MPI_Op)(intptr_t)(handle))
#define MJ_INT(handle) ((intptr_t)(handle))

/* Calls `blocking`; or calls `nonblocking` (the same arguments, then a request) and waits. */
#define MJ_RUN(blocking, nonblocking, ...)                        \
    do {                                                          \
        if (!mj_yielding) return MJ(blocking)(__VA_ARGS__);       \
        MPI_Request request_;                                     \
        int rc_ = MJ(nonblocking)(__VA_ARGS__, &request_);        \
        return rc_ != MPI_SUCCESS ? rc_ : mj_wait(&request_);     \
    } while (0)

/* Runs `call` for consecutive parts [at, at + part) of n elements; also once for n = 0, because all ranks must call. */
#define MJ_PARTS(n, call)                                         \
    do {                                                          \
        int64_t at = 0;                                           \
        do {                                                      \
            int64_t part = (n) - at < mj_chunk ? (n) - at : mj_chunk; \
            int rc_ = call;                                       \
            if (rc_ != MPI_SUCCESS) return rc_;                   \
            at += part;                                           \
        } while (at < (n));                                       \
        return MPI_SUCCESS;                                       \
    } while (0)

/* The address of element `at` of a buffer; MPI_IN_PLACE is unchanged. */
static inline void *mj_at(const void *buffer, int64_t at, int64_t size) {
    if (buffer == MPI_IN_PLACE || buffer == NULL) return (void *)buffer;
    return (char *)buffer + at * size;
}

/* Bytes of one element of a datatype; the types used here are contiguous. */
static inline int64_t mj_size(MPI_Datatype type) {
    int size = 0;
    MPI_Type_size(type, &size);
    return size;
}

#include "mpi_self.h"

/* ---- elementwise operations: a message can be split anywhere ---- */

static int mj_allreduce_part(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    MJ_RUN(MPI_Allreduce, MPI_Iallreduce, s, r, (mj_count)n, t, op, c);
}
static int mj_allreduce(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    int64_t size = mj_size(t);
    if (s == r) s = MPI_IN_PLACE;
    if (n <= mj_chunk) return mj_allreduce_part(s, r, n, t, op, c);
    MJ_PARTS(n, mj_allreduce_part(mj_at(s, at, size), mj_at(r, at, size), part, t, op, c));
}

static int mj_reduce_part(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, int root,
                          MPI_Comm c) {
    MJ_RUN(MPI_Reduce, MPI_Ireduce, s, r, (mj_count)n, t, op, root, c);
}
/* Ranks other than the root get their own operand `s` as the result. */
static int mj_reduce(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, int root, MPI_Comm c) {
    int rank;
    int64_t size = mj_size(t);
    MPI_Comm_rank(c, &rank);
    if (rank == root) {
        if (s == r) s = MPI_IN_PLACE;
    } else {
        if (s != r && r != NULL) memcpy(r, s, (size_t)(n * size));
        r = NULL;
    }
    MJ_PARTS(n, mj_reduce_part(mj_at(s, at, size), mj_at(r, at, size), part, t, op, root, c));
}

static int mj_scan_part(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    MJ_RUN(MPI_Scan, MPI_Iscan, s, r, (mj_count)n, t, op, c);
}
static int mj_scan(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    int64_t size = mj_size(t);
    if (s == r) s = MPI_IN_PLACE;
    MJ_PARTS(n, mj_scan_part(mj_at(s, at, size), mj_at(r, at, size), part, t, op, c));
}

static int mj_exscan_part(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    MJ_RUN(MPI_Exscan, MPI_Iexscan, s, r, (mj_count)n, t, op, c);
}
static int mj_exscan_parts(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    int64_t size = mj_size(t);
    if (s == r) s = MPI_IN_PLACE;
    MJ_PARTS(n, mj_exscan_part(mj_at(s, at, size), mj_at(r, at, size), part, t, op, c));
}
/* MPI leaves the first rank's result undefined; here it is zero, so that no program reads uninitialized memory. */
static int mj_exscan(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    int rank, rc = mj_exscan_parts(s, r, n, t, op, c);
    MPI_Comm_rank(c, &rank);
    if (rc == MPI_SUCCESS && rank == 0) memset(r, 0, (size_t)(n * mj_size(t)));
    return rc;
}

static int mj_bcast_part(void *r, int64_t n, MPI_Datatype t, int root, MPI_Comm c) {
    MJ_RUN(MPI_Bcast, MPI_Ibcast, r, (mj_count)n, t, root, c);
}
static int mj_bcast(const void *s, void *r, int64_t n, MPI_Datatype t, int root, MPI_Comm c) {
    int rank;
    int64_t size = mj_size(t);
    MPI_Comm_rank(c, &rank);
    if (rank == root && s != r) memcpy(r, s, (size_t)(n * size));
    MJ_PARTS(n, mj_bcast_part(mj_at(r, at, size), part, t, root, c));
}

static int mj_send_part(const void *s, int64_t n, MPI_Datatype t, int dest, int tag, MPI_Comm c) {
    MJ_RUN(MPI_Send, MPI_Isend, s, (mj_count)n, t, dest, tag, c);
}
static int mj_send(const void *s, int64_t n, MPI_Datatype t, int dest, int tag, MPI_Comm c) {
    int64_t size = mj_size(t);
    if (mj_is_this_rank(dest, c)) MJ_PARTS(n, mj_keep(mj_at(s, at, size), (mj_count)part, size, t, dest, tag, c));
    MJ_PARTS(n, mj_send_part(mj_at(s, at, size), part, t, dest, tag, c));
}

static int mj_recv_part(void *r, int64_t n, MPI_Datatype t, int source, int tag, MPI_Comm c,
                        MPI_Status *status, int any_length) {
    MPI_Request request;
    int rc;
    if (!mj_yielding) rc = MJ(MPI_Recv)(r, (mj_count)n, t, source, tag, c, status);
    else rc = MJ(MPI_Irecv)(r, (mj_count)n, t, source, tag, c, &request);
    if (rc == MPI_SUCCESS && mj_yielding) rc = mj_wait_for(&request, status);
    return rc != MPI_SUCCESS ? rc : mj_check_length(r, n, t, status, any_length);
}
static int mj_recv_parts(void *r, int64_t n, MPI_Datatype t, int source, int tag, MPI_Comm c, MPI_Status *status,
                         int any_length) {
    int64_t size = mj_size(t);
    MJ_PARTS(n, mj_recv_part(mj_at(r, at, size), part, t, source, tag, c, status, any_length));
}
/* status: filled in if not NULL; messages may then be shorter. For a message in parts it describes the last part. */
static int mj_recv(void *r, int64_t n, MPI_Datatype t, int source, int tag, MPI_Comm c, MPI_Status *status) {
    MPI_Status own;
    int any = tag < 0 ? MPI_ANY_TAG : tag, any_length = status != NULL, rc;
    if (status == NULL) status = &own;
    if (mj_waits_in_vain(source, any, c)) return mj_not_sent(tag);
    rc = mj_recv_parts(r, n, t, source, any, c, status, any_length);
    return rc != MPI_SUCCESS ? rc : mj_check_kind(tag, status->MPI_TAG);
}

/* One part each way at a time; a side with fewer parts omits its half of the remaining exchanges. */
static int mj_sendrecv(const void *s, int64_t sn, MPI_Datatype st, int dest, int stag, void *r, int64_t rn,
                       MPI_Datatype rt, int source, int rtag, MPI_Comm c, MPI_Status *status) {
    int64_t ssize = mj_size(st), rsize = mj_size(rt), sat = 0, rat = 0;
    void *copy = NULL;
    MPI_Status own;
    int any = rtag < 0 ? MPI_ANY_TAG : rtag, any_length = status != NULL, rc = MPI_SUCCESS, first = 1;
    if (mj_is_to_itself(dest, stag, source, rtag, c))
        return mj_copy_to_itself(s, sn, st, dest, stag, r, rn, rt, status);
    if (mj_is_this_rank(dest, c)) {
        rc = mj_send(s, sn, st, dest, stag, c);
        return rc != MPI_SUCCESS ? rc : mj_recv(r, rn, rt, source, rtag, c, status);
    }
    if (mj_waits_in_vain(source, any, c)) return mj_not_sent(rtag);
    if (status == NULL) status = &own;
    if (s == r && sn > 0) { /* MPI forbids overlap */
        copy = malloc((size_t)(sn * ssize));
        if (copy == NULL) return MPI_ERR_NO_MEM;
        s = memcpy(copy, s, (size_t)(sn * ssize));
    }
    for (; rc == MPI_SUCCESS && (first || sat < sn || rat < rn); first = 0) {
        int sends = first || sat < sn, receives = first || rat < rn;
        int64_t sp = sn - sat < mj_chunk ? sn - sat : mj_chunk;
        int64_t rp = rn - rat < mj_chunk ? rn - rat : mj_chunk;
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        if (receives)
            rc = MJ(MPI_Irecv)(mj_at(r, rat, rsize), (mj_count)rp, rt, source, any, c, &requests[0]);
        if (rc == MPI_SUCCESS && sends)
            rc = MJ(MPI_Isend)(mj_at(s, sat, ssize), (mj_count)sp, st, dest, stag, c, &requests[1]);
        for (int i = 1; rc == MPI_SUCCESS && i >= 0; i--) {
            MPI_Status *out = i == 0 && receives ? status : MPI_STATUS_IGNORE;
            rc = mj_yielding ? mj_wait_for(&requests[i], out) : MPI_Wait(&requests[i], out);
            if (rc == MPI_SUCCESS && i == 0 && receives)
                rc = mj_check_length(mj_at(r, rat, rsize), rp, rt, status, any_length);
        }
        sat += sends ? sp : 0;
        rat += receives ? rp : 0;
    }
    free(copy);
    return rc != MPI_SUCCESS ? rc : mj_check_kind(rtag, status->MPI_TAG);
}

/* ---- blockwise operations: n elements for or from every rank ---- */

/* A type of n elements, for blocks that exceed an int count. */
static int mj_block_type(int64_t n, MPI_Datatype t, MPI_Datatype *block) {
    MPI_Datatype parts[2] = {MPI_DATATYPE_NULL, MPI_DATATYPE_NULL};
    int64_t whole = n / mj_chunk, rest = n % mj_chunk;
    int lengths[2] = {(int)whole, (int)rest};
    MPI_Aint offsets[2] = {0, (MPI_Aint)(whole * mj_chunk * mj_size(t))};
    int rc = MPI_Type_contiguous((int)mj_chunk, t, &parts[0]);
    if (rc != MPI_SUCCESS) return rc;
    parts[1] = t;
    rc = MPI_Type_create_struct(2, lengths, offsets, parts, block);
    MPI_Type_free(&parts[0]);
    return rc != MPI_SUCCESS ? rc : MPI_Type_commit(block);
}

/* Makes (n, t) an int count and a type: unchanged, or one block of a derived type that is freed after `call`. */
#define MJ_BLOCKS(n, t, call)                                     \
    do {                                                          \
        if ((n) <= mj_chunk) return call;                         \
        MPI_Datatype block_;                                      \
        int rc_ = mj_block_type((n), (t), &block_);               \
        if (rc_ != MPI_SUCCESS) return rc_;                       \
        (t) = block_;                                             \
        (n) = 1;                                                  \
        rc_ = call;                                               \
        MPI_Type_free(&block_);                                   \
        return rc_;                                               \
    } while (0)

static int mj_allgather_block(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Comm c) {
    MJ_RUN(MPI_Allgather, MPI_Iallgather, s, (mj_count)n, t, r, (mj_count)n, t, c);
}
static int mj_allgather(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Comm c) {
    MJ_BLOCKS(n, t, mj_allgather_block(s, r, n, t, c));
}

static int mj_alltoall_block(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Comm c) {
    MJ_RUN(MPI_Alltoall, MPI_Ialltoall, s, (mj_count)n, t, r, (mj_count)n, t, c);
}
static int mj_alltoall(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Comm c) {
    if (s == r) s = MPI_IN_PLACE;
    MJ_BLOCKS(n, t, mj_alltoall_block(s, r, n, t, c));
}

static int mj_gather_block(const void *s, void *r, int64_t n, MPI_Datatype t, int root, MPI_Comm c) {
    MJ_RUN(MPI_Gather, MPI_Igather, s, (mj_count)n, t, r, (mj_count)n, t, root, c);
}
static int mj_gather(const void *s, void *r, int64_t n, MPI_Datatype t, int root, MPI_Comm c) {
    MJ_BLOCKS(n, t, mj_gather_block(s, r, n, t, root, c));
}

static int mj_scatter_block(const void *s, void *r, int64_t n, MPI_Datatype t, int root, MPI_Comm c) {
    MJ_RUN(MPI_Scatter, MPI_Iscatter, s, (mj_count)n, t, r, (mj_count)n, t, root, c);
}
static int mj_scatter(const void *s, void *r, int64_t n, MPI_Datatype t, int root, MPI_Comm c) {
    MJ_BLOCKS(n, t, mj_scatter_block(s, r, n, t, root, c));
}

static int mj_reduce_scatter_block(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    MJ_RUN(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, s, r, (mj_count)n, t, op, c);
}
static int mj_reduce_scatter(const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    if (n <= mj_chunk) return mj_reduce_scatter_block(s == r ? MPI_IN_PLACE : s, r, n, t, op, c);
    int ranks, rank, rc = MPI_SUCCESS;
    int64_t bytes = n * mj_size(t);
    MPI_Comm_size(c, &ranks);
    MPI_Comm_rank(c, &rank);
    /* Block 0 is reduced first: in place, the result overwrites it. */
    for (int to = 0; rc == MPI_SUCCESS && to < ranks; to++)
        rc = mj_reduce((const char *)s + to * bytes, to == rank ? r : NULL, n, t, op, to, c);
    return rc;
}

/* ---- blocks of different lengths: counts and displacements in elements, one for each rank ---- */

#if MJ_LARGE_COUNTS
typedef MPI_Aint mj_place;
#else
typedef int mj_place;
#endif

/* Counts and displacements of the blocks, in the types of the MPI calls, in one allocation that the caller frees. */
static int mj_layout(const int64_t *lengths, MPI_Comm c, mj_count **counts, mj_place **places) {
    int ranks;
    int64_t at = 0;
    *counts = NULL;
    *places = NULL;
    if (lengths == NULL) return MPI_SUCCESS;
    MPI_Comm_size(c, &ranks);
    *counts = (mj_count *)malloc((size_t)ranks * (sizeof(mj_count) + sizeof(mj_place)));
    if (*counts == NULL) return MPI_ERR_NO_MEM;
    *places = (mj_place *)(*counts + ranks);
    for (int i = 0; i < ranks; i++) {
        (*counts)[i] = (mj_count)lengths[i];
        (*places)[i] = (mj_place)at;
        at += lengths[i];
    }
    if (!MJ_LARGE_COUNTS && at > INT_MAX) {
        free(*counts);
        *counts = NULL;
        return MPI_ERR_COUNT;
    }
    return MPI_SUCCESS;
}

/* Runs `call`, which uses counts and places made from `lengths`. */
#define MJ_WITH_LAYOUT(lengths, c, call)                          \
    do {                                                          \
        mj_count *counts;                                         \
        mj_place *places;                                         \
        int rc_ = mj_layout((lengths), (c), &counts, &places);    \
        if (rc_ == MPI_SUCCESS) rc_ = call;                       \
        free(counts);                                             \
        return rc_;                                               \
    } while (0)

static int mj_allgatherv_run(const void *s, int64_t n, void *r, const mj_count *counts, const mj_place *places,
                             MPI_Datatype t, MPI_Comm c) {
    MJ_RUN(MPI_Allgatherv, MPI_Iallgatherv, s, (mj_count)n, t, r, counts, places, t, c);
}
static int mj_allgatherv(const void *s, int64_t n, void *r, const int64_t *lengths, MPI_Datatype t, MPI_Comm c) {
    MJ_WITH_LAYOUT(lengths, c, mj_allgatherv_run(s, n, r, counts, places, t, c));
}

static int mj_gatherv_run(const void *s, int64_t n, void *r, const mj_count *counts, const mj_place *places,
                          MPI_Datatype t, int root, MPI_Comm c) {
    MJ_RUN(MPI_Gatherv, MPI_Igatherv, s, (mj_count)n, t, r, counts, places, t, root, c);
}
static int mj_gatherv(const void *s, int64_t n, void *r, const int64_t *lengths, MPI_Datatype t, int root,
                      MPI_Comm c) {
    MJ_WITH_LAYOUT(lengths, c, mj_gatherv_run(s, n, r, counts, places, t, root, c));
}

static int mj_scatterv_run(const void *s, const mj_count *counts, const mj_place *places, void *r, int64_t n,
                           MPI_Datatype t, int root, MPI_Comm c) {
    MJ_RUN(MPI_Scatterv, MPI_Iscatterv, s, counts, places, t, r, (mj_count)n, t, root, c);
}
static int mj_scatterv(const void *s, const int64_t *lengths, void *r, int64_t n, MPI_Datatype t, int root,
                       MPI_Comm c) {
    MJ_WITH_LAYOUT(lengths, c, mj_scatterv_run(s, counts, places, r, n, t, root, c));
}

static int mj_alltoallv_run(const void *s, const mj_count *sends, const mj_place *from, void *r,
                            const mj_count *counts, const mj_place *places, MPI_Datatype t, MPI_Comm c) {
    MJ_RUN(MPI_Alltoallv, MPI_Ialltoallv, s, sends, from, t, r, counts, places, t, c);
}
static int mj_alltoallv(const void *s, const int64_t *sent, void *r, const int64_t *received, MPI_Datatype t,
                        MPI_Comm c) {
    mj_count *sends;
    mj_place *from;
    mj_count *counts;
    mj_place *places;
    int rc = mj_layout(sent, c, &sends, &from);
    if (rc != MPI_SUCCESS) return rc;
    rc = mj_layout(received, c, &counts, &places);
    if (rc == MPI_SUCCESS) rc = mj_alltoallv_run(s, sends, from, r, counts, places, t, c);
    free(sends);
    free(counts);
    return rc;
}

static int mj_reduce_scatterv_run(const void *s, void *r, const mj_count *counts, MPI_Datatype t, MPI_Op op,
                                  MPI_Comm c) {
    MJ_RUN(MPI_Reduce_scatter, MPI_Ireduce_scatter, s, r, counts, t, op, c);
}
static int mj_reduce_scatterv(const void *s, void *r, const int64_t *lengths, MPI_Datatype t, MPI_Op op,
                              MPI_Comm c) {
    int rank;
    char nothing = 0;
    MPI_Comm_rank(c, &rank);
    /* An empty result has no memory: its pointer may equal the operand's, which MPI forbids. */
    if (lengths[rank] == 0) r = &nothing;
    MJ_WITH_LAYOUT(lengths, c, ((void)places, mj_reduce_scatterv_run(s, r, counts, t, op, c)));
}

static int mj_barrier(MPI_Comm c) {
    if (!mj_yielding) return MPI_Barrier(c);
    MPI_Request request;
    int rc = MPI_Ibarrier(c, &request);
    return rc != MPI_SUCCESS ? rc : mj_wait(&request);
}

#endif
