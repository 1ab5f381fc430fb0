/* Messages of which a rank keeps a copy until they are received, so that it does not block.

   Messages of a rank to itself: only this rank could receive them, and a receive without a matching send is an error.
   Small messages to others that are hoisted above their place in the program (mpijax/compiler/steps/posting.py). */

#ifndef MPIJAX_MPI_SELF_H
#define MPIJAX_MPI_SELF_H

#include "mpi_tags.h"
#include "mpi_wait.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Polls before a message of this rank to itself counts as not sent, because libraries may deliver it slightly late. If
   threads may communicate at the same time, another one might still send it; each poll then takes a millisecond. */
#define MJ_LOOKS 64
#define MJ_LOOKS_FOR_THREADS 5000

typedef struct mj_kept {
    struct mj_kept *next;
    MPI_Request request;
    char data[];
} mj_kept;

/* The number kept before received ones are freed: testing costs as much as a message. */
#define MJ_KEPT 16

static atomic_flag mj_kept_busy = ATOMIC_FLAG_INIT;    /* for threads that communicate at the same time */
static mj_kept *mj_kept_messages = NULL;
static int mj_kept_count = 0;
static int mj_has_kept = 0;      /* whether there ever was a message to this rank */

static int mj_is_this_rank(int rank, MPI_Comm c) {
    int own;
    return rank >= 0 && MPI_Comm_rank(c, &own) == MPI_SUCCESS && own == rank;
}

/* The error code of a receive that would block forever. */
static int mj_not_sent(int tag) {
    static int value = 0, derivative = 0;
    if (mj_kind(tag) != MJ_VALUE)
        return mj_own_error(&derivative, "this rank waits forever for the derivative of a message to itself: it does not "
                                         "differentiate the other end");
    return mj_own_error(&value, "this rank waits forever for a message to itself that it has not sent");
}

/* Whether a receive would block forever: it waits for a message of this rank, which has sent none. */
static int mj_waits_in_vain(int source, int tag, MPI_Comm c) {
    const struct timespec millisecond = {0, 1000000};
    int size, level, looks, come = 0;
    if (source == MPI_ANY_SOURCE) {
        if (MPI_Comm_size(c, &size) != MPI_SUCCESS || size > 1) return 0;
    } else if (!mj_is_this_rank(source, c)) {
        return 0;
    }
    if (MPI_Query_thread(&level) != MPI_SUCCESS) return 0;
    looks = level == MPI_THREAD_MULTIPLE ? MJ_LOOKS_FOR_THREADS : MJ_LOOKS;
    for (int look = 0; look < looks; look++) {
        if (MPI_Iprobe(source, tag, c, &come, MPI_STATUS_IGNORE) != MPI_SUCCESS || come) return 0;
        if (look >= MJ_LOOKS) nanosleep(&millisecond, NULL);
    }
    return 1;
}

/* Frees the messages that have been received. */
static void mj_let_go(void) {
    if (atomic_flag_test_and_set(&mj_kept_busy)) return;
    for (mj_kept **at = &mj_kept_messages; *at != NULL;) {
        mj_kept *m = *at;
        int done = 0;
        if (MPI_Test(&m->request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done) {
            *at = m->next;
            free(m);
            mj_kept_count--;
        } else {
            at = &m->next;
        }
    }
    atomic_flag_clear(&mj_kept_busy);
}

/* Sends n elements of `size` bytes without waiting. */
static int mj_send_kept(const void *s, mj_count n, int64_t size, MPI_Datatype t, int rank, int tag, MPI_Comm c) {
    mj_kept *m;
    int rc;
    if (mj_kept_count >= MJ_KEPT) mj_let_go();
    m = malloc(sizeof(mj_kept) + (size_t)(n * size));
    if (m == NULL) return MPI_ERR_NO_MEM;
    if (n > 0) memcpy(m->data, s, (size_t)(n * size));
    rc = MJ(MPI_Isend)(m->data, n, t, rank, tag, c, &m->request);
    if (rc != MPI_SUCCESS) {
        free(m);
        return rc;
    }
    while (atomic_flag_test_and_set(&mj_kept_busy)) sched_yield();
    m->next = mj_kept_messages;
    mj_kept_messages = m;
    mj_kept_count++;
    atomic_flag_clear(&mj_kept_busy);
    return MPI_SUCCESS;
}

/* Sends to this rank without blocking. */
static int mj_keep(const void *s, mj_count n, int64_t size, MPI_Datatype t, int rank, int tag, MPI_Comm c) {
    mj_has_kept = 1;
    return mj_send_kept(s, n, size, t, rank, tag, c);
}

/* Sends a small message of bytes to another rank without blocking. */
static int mj_post(const void *s, int64_t nbytes, int dest, int tag, MPI_Comm c) {
    return mj_send_kept(s, (mj_count)nbytes, 1, MPI_BYTE, dest, tag, c);
}

static int mj_copy_bytes(const void *s, int64_t nbytes, void *r) {
    if (s != r && nbytes > 0) memmove(r, s, (size_t)nbytes);
    return MPI_SUCCESS;
}

/* Whether a receive from `source` with `rtag` matches a message to `dest` with `stag` on this rank: both ends are here,
   and no earlier message to this rank is unreceived. */
static int mj_is_to_itself(int dest, int stag, int source, int rtag, MPI_Comm c) {
    int earlier = 0, any = rtag < 0 ? MPI_ANY_TAG : rtag;
    if (dest != source || (rtag >= 0 && rtag != stag) || !mj_is_this_rank(dest, c)) return 0;
    for (int look = mj_has_kept ? 0 : MJ_LOOKS - 1; look < MJ_LOOKS; look++)
        if (MPI_Iprobe(dest, any, c, &earlier, MPI_STATUS_IGNORE) != MPI_SUCCESS || earlier) return 0;
    return 1;
}

static int mj_too_short(void) {
    static int shorter = 0;
    return mj_own_error(&shorter, "the message is shorter than the array of the receiver (pass a status to receive "
                                  "messages of any length)");
}

/* Checks how many of n elements have arrived: fewer are an error, unless the caller passes a status. */
static int mj_check_length(void *r, int64_t n, MPI_Datatype t, const MPI_Status *status, int any_length) {
    int64_t size = mj_size(t);
    mj_count came;
    int rc = MJ(MPI_Get_count)(status, t, &came);
    if (rc != MPI_SUCCESS || came == n || status->MPI_SOURCE == MPI_PROC_NULL) return rc;
    if (!any_length) return mj_too_short();
    memset((char *)r + came * size, 0, (size_t)((n - came) * size));
    return MPI_SUCCESS;
}

/* Copies a message of a rank to itself. With more than one rank, libraries would send it through the transport. */
static int mj_copy_to_itself(const void *s, int64_t sn, MPI_Datatype st, int rank, int stag, void *r, int64_t rn,
                             MPI_Datatype rt, MPI_Status *status) {
    int64_t nbytes = sn * mj_size(st);
    MPI_Status own;
    int any_length = status != NULL, rc;
    if (nbytes > rn * mj_size(rt)) return MPI_ERR_TRUNCATE;
    if (s != r) memmove(r, s, (size_t)nbytes);
    if (status == NULL) status = &own;
    status->MPI_SOURCE = rank;
    status->MPI_TAG = stag;
    status->MPI_ERROR = MPI_SUCCESS;
#if MJ_LARGE_COUNTS
    rc = MPI_Status_set_elements_c(status, st, (MPI_Count)sn);
#else
    rc = MPI_Status_set_elements_x(status, st, (MPI_Count)sn);
#endif
    return rc != MPI_SUCCESS ? rc : mj_check_length(r, rn, rt, status, any_length);
}

#endif
