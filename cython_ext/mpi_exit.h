/* How a process leaves MPI: not before it is known with which status, so that a rank which fails by sys.exit(3)
   ends the job with 3 instead of waiting in MPI_Finalize for ranks that wait for it. */

#ifndef MPIJAX_MPI_EXIT_H
#define MPIJAX_MPI_EXIT_H

#include "mpi_calls.h"
#include "record.h"
#include <stdio.h>
#include <unistd.h>

/* Milliseconds that ranks have to end by themselves after one has failed. */
#define MJ_GRACE 5000

static MPI_Comm mj_exit_comm = MPI_COMM_NULL;
static int mj_exit_finalizes, mj_exit_meets;
static pid_t mj_exit_pid;
static mj_region **mj_exit_region;

/* MPI_Finalize frees the attributes of COMM_SELF before anything else. Other ranks find that this one has ended; and this
   one cannot begin an operation any more, because its record from now on says that it is in the middle of one. */
static int mj_finalizing(MPI_Comm comm, int key, void *attribute, void *unused) {
    static mj_region closed = {.exclusive = 1, .started = 1};
    (void)comm, (void)key, (void)attribute, (void)unused;
    (*mj_exit_region)->state = 2;
    *mj_exit_region = &closed;
    return MPI_SUCCESS;
}

static int mj_watch_finalize(void) {
    int key;
    int rc = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, mj_finalizing, &key, NULL);
    if (rc == MPI_SUCCESS) rc = MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    return rc == MPI_SUCCESS ? MPI_Comm_free_keyval(&key) : rc;
}

/* Waits until all ranks are here; 0 if a limit in milliseconds (negative: none) passes before. */
static int mj_meet(long limit) {
    MPI_Request request;
    int done = 0;
    if (MPI_Ibarrier(mj_exit_comm, &request) != MPI_SUCCESS) return 0;
    for (long turn = 0; limit < 0 || turn < 1000 + limit; turn++) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return 0;
        if (done) return 1;
        if (turn < 1000) sched_yield();
        else usleep(1000);
    }
    return 0;
}

static void mj_at_exit(int status, void *unused) {
    int finalized = 0, rank = 0;
    (void)unused;
    if (getpid() != mj_exit_pid) return;    /* a child of fork */
    (*mj_exit_region)->status = status;
    (*mj_exit_region)->state = 2;
    MPI_Finalized(&finalized);
    if (finalized || !mj_exit_finalizes) return;
    if (mj_exit_meets && !mj_meet(status == 0 ? -1 : MJ_GRACE) && status != 0) {
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        fprintf(stderr, "[rank %d] mpijax: ended with exit status %d, and the other ranks go on: ending the job\n", rank,
                status);
        fflush(stderr);
        MPI_Abort(MPI_COMM_WORLD, status);
    }
    mj_let_go();
    MPI_Finalize();
}

/* meets: all ranks leave this way, so that they can wait for each other. 0 if that will be done. */
static int mj_leave_properly(MPI_Comm comm, int finalizes, int meets, mj_region **region) {
    mj_exit_comm = comm;
    mj_exit_finalizes = finalizes;
    mj_exit_meets = meets;
    mj_exit_pid = getpid();
    mj_exit_region = region;
    if (mj_watch_finalize() != MPI_SUCCESS) return -1;
    return on_exit(mj_at_exit, NULL);
}

#endif
