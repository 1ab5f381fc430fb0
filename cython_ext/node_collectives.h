/* Collectives of small messages in the memory of `node.h`. Each does what the function of the same name does in
   `mpi_calls.h`; *done is 0, and nothing has happened, where that one has to.

   Reductions combine in the order of the ranks, on every rank: results are equal on all of them to the last bit.
   float16 and bfloat16 are reduced in float. */

#ifndef MPIJAX_NODE_COLLECTIVES_H
#define MPIJAX_NODE_COLLECTIVES_H

#include "half.h"
#include "node.h"

enum { MJ_N_BARRIER = 1, MJ_N_ALLREDUCE, MJ_N_REDUCE, MJ_N_SCAN, MJ_N_EXSCAN, MJ_N_BCAST, MJ_N_ALLGATHER, MJ_N_ALLTOALL,
       MJ_N_GATHER, MJ_N_SCATTER, MJ_N_REDUCE_SCATTER };
#define MJ_CALL(kind, root) ((int64_t)(kind) << 32 | (uint32_t)(root))

/* What begins each: `node`, or it is MPI's; a root that there is; and the slots after the exchange. */
#define MJ_MEET(comm, nbytes, times)                                          \
    mj_node *node = mj_node_of(comm, nbytes);                                 \
    *done = node != NULL && (nbytes) * (int64_t)(times) <= MJ_NODE_SLOT;      \
    if (!*done) return MPI_SUCCESS
#define MJ_CHECK_ROOT(root)                                                   \
    if ((root) < 0 || (root) >= node->ranks) return MPI_ERR_ROOT
#define MJ_EXCHANGE(call, data, nbytes, written)                              \
    mj_slot *slots = mj_exchange(node, call, data, nbytes, written);          \
    if (slots == NULL) return mj_mismatch

/* What `mj_combine` does, for sums (`adds`) and products of halves: rounded once. */
static void mj_combine_halves(mj_slot *slots, int last, int64_t at, uint16_t *r, int64_t n, int brain, int adds) {
    for (int64_t j = 0; j < n; j++) {
        float sum = 0;
        for (int i = last; i >= 0; i--) {
            uint16_t bits = ((const uint16_t *)(slots[i].data + at))[j];
            float x = brain ? mj_from_bf16(bits) : mj_from_f16(bits);
            sum = i == last ? x : adds ? x + sum : x * sum;
        }
        r[j] = brain ? mj_to_bf16(sum) : mj_to_f16(sum);
    }
}

/* r = the reduction of n elements at offset `at` of slots 0 .. last. */
static int mj_combine(mj_slot *slots, int last, int64_t at, void *r, int64_t n, int64_t size, MPI_Datatype t,
                      MPI_Op op) {
    if ((t == MJ_F16 || t == MJ_BF16) && (op == MJ_SUM || op == MJ_PROD)) {
        mj_combine_halves(slots, last, at, (uint16_t *)r, n, t == MJ_BF16, op == MJ_SUM);
        return MPI_SUCCESS;
    }
    memcpy(r, slots[last].data + at, (size_t)(n * size));
    for (int i = last - 1; n > 0 && i >= 0; i--) {
        int rc = MPI_Reduce_local(slots[i].data + at, r, (int)n, t, op);
        if (rc != MPI_SUCCESS) return rc;
    }
    return MPI_SUCCESS;
}

static int mj_node_barrier(MPI_Comm c, int *done) {
    MJ_MEET(c, 0, 1);
    MJ_EXCHANGE(MJ_CALL(MJ_N_BARRIER, 0), NULL, 0, 0);
    return MPI_SUCCESS;
}

static int mj_node_allreduce(const void *s, void *r, int64_t n, int64_t size, MPI_Datatype t, MPI_Op op, MPI_Comm c,
                             int *done) {
    MJ_MEET(c, n * size, 1);
    MJ_EXCHANGE(MJ_CALL(MJ_N_ALLREDUCE, 0), s, n * size, n * size);
    return mj_combine(slots, node->ranks - 1, 0, r, n, size, t, op);
}

/* The root's result; the others' `r` is not touched. */
static int mj_node_reduce(const void *s, void *r, int64_t n, int64_t size, MPI_Datatype t, MPI_Op op, int root,
                          MPI_Comm c, int *done) {
    MJ_MEET(c, n * size, 1);
    MJ_CHECK_ROOT(root);
    MJ_EXCHANGE(MJ_CALL(MJ_N_REDUCE, root), s, n * size, n * size);
    return node->rank == root ? mj_combine(slots, node->ranks - 1, 0, r, n, size, t, op) : MPI_SUCCESS;
}

static int mj_node_scan(const void *s, void *r, int64_t n, int64_t size, MPI_Datatype t, MPI_Op op, MPI_Comm c,
                        int *done) {
    MJ_MEET(c, n * size, 1);
    MJ_EXCHANGE(MJ_CALL(MJ_N_SCAN, 0), s, n * size, n * size);
    return mj_combine(slots, node->rank, 0, r, n, size, t, op);
}

/* The first rank's `r` is not touched. */
static int mj_node_exscan(const void *s, void *r, int64_t n, int64_t size, MPI_Datatype t, MPI_Op op, MPI_Comm c,
                          int *done) {
    MJ_MEET(c, n * size, 1);
    MJ_EXCHANGE(MJ_CALL(MJ_N_EXSCAN, 0), s, n * size, n * size);
    return node->rank > 0 ? mj_combine(slots, node->rank - 1, 0, r, n, size, t, op) : MPI_SUCCESS;
}

/* n elements of every rank's result: its block of what all contribute. */
static int mj_node_reduce_scatter(const void *s, void *r, int64_t n, int64_t size, MPI_Datatype t, MPI_Op op,
                                  MPI_Comm c, int *done) {
    MJ_MEET(c, n * size, node->ranks);
    MJ_EXCHANGE(MJ_CALL(MJ_N_REDUCE_SCATTER, 0), s, n * size, n * size * node->ranks);
    return mj_combine(slots, node->ranks - 1, node->rank * n * size, r, n, size, t, op);
}

/* The following move bytes. */

static int mj_node_bcast(void *r, int64_t nbytes, int root, MPI_Comm c, int *done) {
    MJ_MEET(c, nbytes, 1);
    MJ_CHECK_ROOT(root);
    MJ_EXCHANGE(MJ_CALL(MJ_N_BCAST, root), r, nbytes, node->rank == root ? nbytes : 0);
    if (node->rank != root && nbytes > 0) memcpy(r, slots[root].data, (size_t)nbytes);
    return MPI_SUCCESS;
}

static int mj_node_allgather(const void *s, void *r, int64_t nbytes, MPI_Comm c, int *done) {
    MJ_MEET(c, nbytes, 1);
    MJ_EXCHANGE(MJ_CALL(MJ_N_ALLGATHER, 0), s, nbytes, nbytes);
    for (int i = 0; nbytes > 0 && i < node->ranks; i++)
        memcpy((char *)r + i * nbytes, slots[i].data, (size_t)nbytes);
    return MPI_SUCCESS;
}

static int mj_node_gather(const void *s, void *r, int64_t nbytes, int root, MPI_Comm c, int *done) {
    MJ_MEET(c, nbytes, 1);
    MJ_CHECK_ROOT(root);
    MJ_EXCHANGE(MJ_CALL(MJ_N_GATHER, root), s, nbytes, nbytes);
    for (int i = 0; nbytes > 0 && node->rank == root && i < node->ranks; i++)
        memcpy((char *)r + i * nbytes, slots[i].data, (size_t)nbytes);
    return MPI_SUCCESS;
}

static int mj_node_scatter(const void *s, void *r, int64_t nbytes, int root, MPI_Comm c, int *done) {
    MJ_MEET(c, nbytes, node->ranks);
    MJ_CHECK_ROOT(root);
    MJ_EXCHANGE(MJ_CALL(MJ_N_SCATTER, root), s, nbytes, node->rank == root ? nbytes * node->ranks : 0);
    if (nbytes > 0) memcpy(r, slots[root].data + node->rank * nbytes, (size_t)nbytes);
    return MPI_SUCCESS;
}

static int mj_node_alltoall(const void *s, void *r, int64_t nbytes, MPI_Comm c, int *done) {
    MJ_MEET(c, nbytes, node->ranks);
    MJ_EXCHANGE(MJ_CALL(MJ_N_ALLTOALL, 0), s, nbytes, nbytes * node->ranks);
    for (int i = 0; nbytes > 0 && i < node->ranks; i++)
        memcpy((char *)r + i * nbytes, slots[i].data + node->rank * nbytes, (size_t)nbytes);
    return MPI_SUCCESS;
}

#endif
