/* How a rank waits for MPI.

   MPI libraries poll without yielding. With more ranks than cores (mj_yielding) the rank that polls keeps the other,
   for which it waits, off the core for a whole time slice. Then calls are made in their non-blocking form, and the
   core is handed over between tests. A rank that has waited long sleeps between tests, since on a busy machine handing
   over means handing over to somebody else, for a time slice. */

#ifndef MPIJAX_MPI_WAIT_H
#define MPIJAX_MPI_WAIT_H

#include <mpi.h>
#include <sched.h>
#include <time.h>

/* Tests before a rank sleeps between them, and nanoseconds of that sleep. */
#define MJ_TESTS 64
#define MJ_SLEEP 10000

static int mj_yielding = 0;

static int mj_wait_for(MPI_Request *request, MPI_Status *status) {
    const struct timespec sleep = {0, MJ_SLEEP};
    int done = 0;
    for (int i = 0;; i++) {
        int rc = MPI_Test(request, &done, status);
        if (rc != MPI_SUCCESS || done) return rc;
        if (i < MJ_TESTS) sched_yield();
        else nanosleep(&sleep, NULL);
    }
}
static int mj_wait(MPI_Request *request) { return mj_wait_for(request, MPI_STATUS_IGNORE); }

#endif
