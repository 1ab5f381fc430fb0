/* How a rank waits for MPI.

   MPI libraries poll without yielding. With more ranks than cores (mj_yielding) the rank that polls keeps the other,
   for which it waits, off the core for a whole time slice. Then calls are made in their non-blocking form, and the
   core is handed over between tests. A rank that has waited long sleeps between tests, since on a busy machine handing
   over means handing over to somebody else, for a time slice. It sleeps the longer the longer it has waited, and longest
   where many ranks share a core (mj_crowded), which their tests alone would fill. */

#ifndef MPIJAX_MPI_WAIT_H
#define MPIJAX_MPI_WAIT_H

#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

/* Nanoseconds that a rank with a core of its own looks before it sleeps between looks. */
#define MJ_AWAKE 4000000

/* Tests before another rank sleeps between them; nanoseconds of a sleep, at least and at most, and at most of one with a core
   of its own or a few ranks beside it, which others may need for their messages. */
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

/* Lets MPI go on with what it has in hand, such as a message for which another rank waits before it comes. A look at
   MPI_COMM_SELF would not: MPICH looks at its messages alone. */
static void mj_progress(void) {
    int ignored;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &ignored, MPI_STATUS_IGNORE);
}

/* Sleeps for a part of the time since `began`, within bounds: what a rank waits for it sees at most a sixtieth later, and a
   crowded one an eighth. Processes and the other thread of its core have the time. */
static void mj_sleep_since(int64_t began) {
    int64_t part = (mj_now() - began) / (mj_crowded ? 8 : 64), most = mj_crowded ? MJ_LONG_SLEEP : MJ_MIDDLE_SLEEP;
    struct timespec sleep = {0, part < MJ_SLEEP ? MJ_SLEEP : part < most ? part : most};
    nanosleep(&sleep, NULL);
}

/* Lets others run, as the turn that this is of one waiting; the first is number 0. */
static MJ_SELDOM void mj_hand_over(int64_t turn) {
    static _Thread_local int64_t began;
    if (turn == 0) began = mj_now();
    if (mj_now() - began < MJ_AWAKE) sched_yield();
    else mj_sleep_since(began);
}

/* Between looks of a rank that has looked for long. */
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
