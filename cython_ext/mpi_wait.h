/* How a rank waits for MPI.

   MPI libraries poll without yielding. With more ranks than cores (mj_yielding) the rank that polls keeps the other,
   for which it waits, off the core for a whole time slice. Then calls are made in their non-blocking form, and the
   core is handed over between tests. A rank that has waited long sleeps between tests, since on a busy machine handing
   over means handing over to somebody else, for a time slice. Where many ranks share a core (mj_crowded) their tests alone
   would fill it: they sleep the longer the longer they have waited, and notice at most an eighth later than they could. */

#ifndef MPIJAX_MPI_WAIT_H
#define MPIJAX_MPI_WAIT_H

#include <mpi.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

/* A rank that has a core to itself hands it over so often between looks, for some 20 ms, before it sleeps between them:
   what it waits for it sees at most half a percent later, and other processes and the other thread of its core have the time. */
#define MJ_HANDED_OVER 20000
#define MJ_DOZE 50000

/* Tests before a rank sleeps between them; nanoseconds of that sleep, at least and at most. */
#define MJ_TESTS 64
#define MJ_SLEEP 10000
#define MJ_LONG_SLEEP 1000000

#define MJ_SELDOM __attribute__((noinline, cold))

static int mj_yielding = 0;
static int mj_crowded = 0;

static int64_t mj_now(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Lets MPI go on with what it has in hand, such as a message for which another rank waits before it comes. */
static void mj_progress(void) {
    int ignored;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &ignored, MPI_STATUS_IGNORE);
}

/* Lets others run, before look number `looks`. */
static MJ_SELDOM void mj_hand_over(int64_t looks) {
    const struct timespec doze = {0, MJ_DOZE};
    if (looks < MJ_HANDED_OVER) sched_yield();
    else nanosleep(&doze, NULL);
}

/* Between looks of a rank that has looked for long. */
static MJ_SELDOM void mj_pause(int64_t looks) {
    mj_progress();
    mj_hand_over(looks);
}

/* Sleeps; a crowded rank for an eighth of the time since `began`, within bounds. */
static void mj_sleep_since(int64_t began) {
    int64_t eighth = mj_crowded ? (mj_now() - began) / 8 : 0;
    struct timespec sleep = {0, eighth < MJ_SLEEP ? MJ_SLEEP : eighth < MJ_LONG_SLEEP ? eighth : MJ_LONG_SLEEP};
    nanosleep(&sleep, NULL);
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
