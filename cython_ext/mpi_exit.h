/* Leaves MPI when the exit status is known: a rank that fails with sys.exit(3) ends the job with status 3 instead of
   waiting in MPI_Finalize for ranks that wait for it. */

#ifndef MPIJAX_MPI_EXIT_H
#define MPIJAX_MPI_EXIT_H

#include "mpi_calls.h"
#include "record.h"
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

/* Milliseconds that the other ranks have to end by themselves after one has failed. */
#define MJ_GRACE 5000

/* Microseconds for the launcher to read a rank's output before the job ends. */
#define MJ_READING 200000

static MPI_Comm mj_exit_comm = MPI_COMM_NULL;
static MPI_Comm mj_exit_world = MPI_COMM_NULL;  /* that of messages */
static int mj_exit_finalizes, mj_exit_meets, mj_exit_rank;
static int mj_exit_looked;      /* whether this rank has reported its unreceived messages */
static pid_t mj_exit_pid;
static mj_region **mj_exit_region;
static int mj_exit_file = -1, mj_exit_own, mj_exit_ranks;   /* the records' file, this rank's, and how many */

/* The exit status of a rank of this node whose process has ended without MPI_Finalize, 1 if unknown; 0: there is none.
   The system releases the lock of a rank's byte of the records' file when its process ends. */
static int mj_deserter(void) {
    mj_region *first = *mj_exit_region - mj_exit_own;
    for (int i = 0; mj_exit_file >= 0 && i < mj_exit_ranks; i++) {
        struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = i, .l_len = 1};
        if (i == mj_exit_own || fcntl(mj_exit_file, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) continue;
        if (first[i].state != 2 || first[i].status != 0) return first[i].status != 0 ? first[i].status : 1;
    }
    return 0;
}

/* MPI_Finalize frees the attributes of COMM_SELF first. Other ranks then see that this one has ended. This rank can no
   longer begin an operation, because its record now always shows one in progress. */
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

/* Waits until all ranks are here; 0 if a limit in milliseconds (negative: none) passes first. differs: whether ranks
   have run different collectives on the communicator of all ranks, which has the first sequence; between nodes nothing
   else compares them. Without a limit, a rank that will never be here ends this process after 3 s: its launcher should
   have, but Hydra of MPICH 4.3 to 5.0 may take no notice of an exit status. */
static int mj_meet(long limit, int *differs) {
    static uint64_t digests[2];     /* this rank's digest and its complement: their minima show whether all are equal */
    mj_sequence *s = &(*mj_exit_region)->sequences[1];
    MPI_Request request;
    int done = 0, status = 0, missed = 0;
    digests[0] = s->digests[s->count & (MJ_DIGESTS - 1)] ^ s->count;
    digests[1] = ~digests[0];
    *differs = 0;
    if (MPI_Iallreduce(MPI_IN_PLACE, digests, 2, MPI_UINT64_T, MPI_MIN, mj_exit_comm, &request) != MPI_SUCCESS) return 0;
    for (long turn = 0; limit < 0 || turn < 1000 + limit; turn++) {
        if (MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS) return 0;
        if (done) {
            *differs = digests[0] != ~digests[1];
            return 1;
        }
        if (limit < 0 && turn % 1000 == 999) {
            missed = (status = mj_deserter()) ? missed + 1 : 0;
            if (missed > 2) {
                fprintf(stderr, "[rank %d] mpijax: the program has ended, but the process of another rank ended without "
                        "MPI_Finalize: ending the job\n", mj_exit_rank);
                fflush(stderr);
                _exit(status);
            }
        }
        if (turn < 1000) sched_yield();
        else usleep(1000);
    }
    return 0;
}

/* Reports a message that arrived after the program's end, because its sender ended later. All ranks are here. */
static void mj_look_for_messages(void) {
    MPI_Status found;
    int flag = 0, bytes = 0;
    if (mj_exit_looked || MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, mj_exit_world, &flag, &found) != MPI_SUCCESS || !flag)
        return;
    MPI_Get_count(&found, MPI_BYTE, &bytes);
    fprintf(stderr, "[rank %d] mpijax: the program has ended, but a message of rank %d (%d bytes) has not been received: a "
            "`send` without `recv`\n", mj_exit_rank, found.MPI_SOURCE, bytes);
}

/* Reports the line when MPI's library ends the process inside an operation, for errors that it does not return. The
   most frequent cause is ranks of other nodes that send other sizes. MPI's own text has no line. */
static void mj_say_where(mj_region *region) {
    mj_entry *last = &region->ring[atomic_load(&region->started) & (MJ_RING - 1)];
    mj_site *site = &region->sites[last->site % MJ_SITES];
    fprintf(stderr, "[rank %d] mpijax: the MPI library has ended this rank in %.*s, its operation number %u there. If the "
            "message of the library says \"truncated\", ranks of different nodes run different collectives, or the same "
            "collective with different sizes: compare the operations of the ranks\n",
            mj_exit_rank, (int)sizeof site->text, site->site == last->site ? site->text : "an operation", last->number);
    fflush(stderr);
}

static void mj_at_exit(int status, void *unused) {
    int finalized = 0, differs = 0;
    mj_region *region = *mj_exit_region;
    (void)unused;
    if (getpid() != mj_exit_pid) return;    /* a child of fork */
    region->status = status;
    region->state = 2;
    if (status != 0 && Py_IsInitialized() && atomic_load(&region->started) != atomic_load(&region->finished)) {
        mj_say_where(region);
        return;
    }
    MPI_Finalized(&finalized);
    if (finalized || !mj_exit_finalizes) return;
    if (status == 0 && atomic_load(&region->started) != atomic_load(&region->finished)) {
        fprintf(stderr, "[rank %d] mpijax: the program has ended while another of its threads communicates: ending the job. "
                "Join the thread before the program ends, also if it is a daemon thread\n", mj_exit_rank);
        fflush(stderr);
        _exit(1);       /* the thread is inside MPI, so no MPI call is allowed */
    }
    if (mj_exit_meets && !mj_meet(status == 0 ? -1 : MJ_GRACE, &differs) && status != 0) {
        fprintf(stderr, "[rank %d] mpijax: ended with exit status %d, but the other ranks still run: ending the job\n",
                mj_exit_rank, status);
        fflush(stderr);
        MPI_Abort(MPI_COMM_WORLD, status);
    }
    if (status == 0 && differs) {
        if (mj_exit_rank == 0)
            fprintf(stderr, "[rank 0] mpijax: the program has ended, but its ranks ran different collectives, or not in the "
                    "same order, on the communicator of all ranks. They received wrong data: ending the job\n");
        fflush(stderr);
        usleep(mj_exit_rank == 0 ? MJ_READING : 4 * MJ_READING);    /* launchers drop unread output */
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (mj_exit_meets && status == 0) mj_look_for_messages();
    mj_let_go();
    MPI_Finalize();
}

/* meets: whether all ranks leave this way, so that they can wait for each other. Returns 0 on success. */
static int mj_leave_properly(MPI_Comm comm, MPI_Comm world, int finalizes, int meets, mj_region **region) {
    mj_exit_comm = comm;
    mj_exit_world = world;
    MPI_Comm_rank(world, &mj_exit_rank);
    mj_exit_finalizes = finalizes;
    mj_exit_meets = meets;
    mj_exit_pid = getpid();
    mj_exit_region = region;
    if (mj_watch_finalize() != MPI_SUCCESS) return -1;
    return on_exit(mj_at_exit, NULL);
}

#endif
