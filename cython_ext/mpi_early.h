/* Operations in two halves: the start returns before the operation is done, the finish waits.

   MPI's non-blocking calls do not match blocking ones on other ranks. So the choice of the form must depend only on the
   operation, its size and its communicator. Only the place of the finish is free. */

#ifndef MPIJAX_MPI_EARLY_H
#define MPIJAX_MPI_EARLY_H

#include "mpi_ring.h"
#include "mpi_slots.h"

/* An operation between start and finish. */
typedef struct {
    enum { MJ_DONE, MJ_THROUGH_SLOTS, MJ_THROUGH_RING, MJ_REQUESTED } way;
    int asked, code;                /* the tag of the receive; the first error */
    void *r;                        /* the receive buffer of a message, or NULL, and its size */
    int64_t rn;
    MPI_Datatype rt;
    MPI_Request requests[2];
    mj_ring_end *from;                   /* for a message through a ring; rn: bytes */
    mj_transfer transfer;
} mj_flight;

static int mj_start_allreduce(mj_flight *f, const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op, MPI_Comm c) {
    if (s == r) s = MPI_IN_PLACE;
    return MJ(MPI_Iallreduce)(s, r, (mj_count)n, t, op, c, &f->requests[0]);
}

static int mj_start_reduce_scatter(mj_flight *f, const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Op op,
                                   MPI_Comm c) {
    if (s == r) s = MPI_IN_PLACE;
    return MJ(MPI_Ireduce_scatter_block)(s, r, (mj_count)n, t, op, c, &f->requests[0]);
}

static int mj_start_allgather(mj_flight *f, const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Comm c) {
    return MJ(MPI_Iallgather)(s, (mj_count)n, t, r, (mj_count)n, t, c, &f->requests[0]);
}

static int mj_start_alltoall(mj_flight *f, const void *s, void *r, int64_t n, MPI_Datatype t, MPI_Comm c) {
    if (s == r) s = MPI_IN_PLACE;
    return MJ(MPI_Ialltoall)(s, (mj_count)n, t, r, (mj_count)n, t, c, &f->requests[0]);
}

static int mj_start_bcast(mj_flight *f, const void *s, void *r, int64_t n, MPI_Datatype t, int root, MPI_Comm c) {
    int rank;
    MPI_Comm_rank(c, &rank);
    if (rank == root && s != r) memcpy(r, s, (size_t)(n * mj_size(t)));
    return MJ(MPI_Ibcast)(r, (mj_count)n, t, root, c, &f->requests[0]);
}

/* The buffers must not be the same. */
static int mj_start_sendrecv(mj_flight *f, const void *s, int64_t sn, MPI_Datatype st, int dest, int stag, void *r,
                             int64_t rn, MPI_Datatype rt, int source, int rtag, MPI_Comm c) {
    if (mj_is_to_itself(dest, stag, source, rtag, c)) {
        f->way = MJ_DONE;
        return mj_copy_to_itself(s, sn, st, dest, stag, r, rn, rt, NULL);
    }
    if (mj_is_this_rank(dest, c) || mj_is_this_rank(source, c)) {
        f->way = MJ_DONE;
        return mj_sendrecv(s, sn, st, dest, stag, r, rn, rt, source, rtag, c, NULL);
    }
    f->asked = rtag, f->r = r, f->rn = rn, f->rt = rt;
    int rc = MJ(MPI_Irecv)(r, (mj_count)rn, rt, source, rtag < 0 ? MPI_ANY_TAG : rtag, c, &f->requests[0]);
    if (rc != MPI_SUCCESS) return rc;
    return MJ(MPI_Isend)(s, (mj_count)sn, st, dest, stag, c, &f->requests[1]);
}

static void mj_done(mj_flight *f, int i, int code, const MPI_Status *status) {
    if (code == MPI_SUCCESS && i == 0 && f->r != NULL) {
        code = mj_check_kind(f->asked, status->MPI_TAG);
        if (code == MPI_SUCCESS) code = mj_check_length(f->r, f->rn, f->rt, status, 0);
    }
    if (f->code == MPI_SUCCESS) f->code = code;
}

/* MPI makes progress on messages only inside its calls. */
static void mj_advance(mj_flight *f) {
    MPI_Status status;
    int done = 0;
    for (int i = 0; f->way == MJ_REQUESTED && i < 2; i++) {
        if (f->requests[i] == MPI_REQUEST_NULL) continue;
        int code = MPI_Test(&f->requests[i], &done, &status);
        if (code != MPI_SUCCESS || done) mj_done(f, i, code, &status);
    }
}

static int mj_finish(mj_flight *f) {
    MPI_Status status;
    if (f->way == MJ_THROUGH_SLOTS) return mj_slots_finish(&f->transfer);
    if (f->way == MJ_THROUGH_RING) return mj_ring_recv(f->from, f->r, f->rn, f->asked);
    for (int i = 0; f->way == MJ_REQUESTED && i < 2; i++) {
        if (f->requests[i] == MPI_REQUEST_NULL) continue;
        int code = mj_yielding ? mj_wait_for(&f->requests[i], &status) : MPI_Wait(&f->requests[i], &status);
        mj_done(f, i, code, &status);
    }
    return f->way == MJ_REQUESTED ? f->code : MPI_SUCCESS;
}

#endif
