/* The way a rank waits for MPI.

   MPI libraries poll without yielding. With more ranks than cores (mj_yielding), a polling rank keeps the rank that it
   waits for off the core for a whole time slice. Calls then use their non-blocking form, and the core is yielded
   between tests. A rank that has waited long sleeps between tests, since on a busy machine yielding gives the core to
   another process for a time slice. The longer it has waited, the longer it sleeps; longest if many ranks share a core
   (mj_crowded), which their tests alone would keep busy. */

#ifndef MPIJAX_MPI_WAIT_H
#define MPIJAX_MPI_WAIT_H

#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds that a rank with its own core polls before it sleeps between polls. */
#define MJ_AWAKE 4000000

/* Tests before other ranks sleep between them; minimum and maximum nanoseconds of a sleep; and the maximum for a rank
   with its own core or few neighbours, which other ranks may need for their messages. */
#define MJ_TESTS 64
#define MJ_SLEEP 10000
#define MJ_LONG_SLEEP 1000000
#define MJ_MIDDLE_SLEEP 250000

#define MJ_SELDOM __attribute__((noinline, cold))

static int mj_yielding = 0;
static int mj_crowded = 0;

static int64_t mj_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Lets MPI make progress, for example on a message for which another rank waits. Probing MPI_COMM_SELF would not do:
   MPICH only checks its messages. */
static void mj_progress(void) {
    int ignored;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &ignored, MPI_STATUS_IGNORE);
}

/* Sleeps for a fraction of the time since `began`, within bounds: a rank notices an event at most a sixtieth later than
   it waited, a crowded one an eighth. Other processes and the core's other hardware thread use that time. */
static void mj_sleep_since(int64_t began) {
    int64_t part = (mj_now() - began) / (mj_crowded ? 8 : 64), most = mj_crowded ? MJ_LONG_SLEEP : MJ_MIDDLE_SLEEP;
    struct timespec sleep = {0, part < MJ_SLEEP ? MJ_SLEEP : part < most ? part : most};
    nanosleep(&sleep, NULL);
}

/* Lets others run. turn: how often this wait has done so; the first is number 0. */
static MJ_SELDOM void mj_hand_over(int64_t turn) {
    static _Thread_local int64_t began;
    if (turn == 0) began = mj_now();
    if (mj_now() - began < MJ_AWAKE) sched_yield();
    else mj_sleep_since(began);
}

/* Pauses between polls of a rank that has polled for long. */
static MJ_SELDOM void mj_pause(int64_t turn) {
    mj_progress();
    mj_hand_over(turn);
}

static int mj_wait_for(MPI_Request *request, MPI_Status *status) {
    int64_t began = 0;
    int done = 0, tests = 0;
    for (;;) {
        int rc = MPI_Test(request, &done, status);
        if (rc != MPI_SUCCESS || done) return rc;
        if (tests++ < MJ_TESTS) {
            sched_yield();
            continue;
        }
        tests = MJ_TESTS;
        if (began == 0) began = mj_now();
        mj_sleep_since(began);
    }
}
static int mj_wait(MPI_Request *request) { return mj_wait_for(request, MPI_STATUS_IGNORE); }

#endif
