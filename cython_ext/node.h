/* Where ranks of one node meet: memory that the ranks of a communicator share, if they are all on one node which has
   more ranks than cores (mj_sharing; agreed by all ranks of the job).

   An exchange has one step: every rank writes into its slot, all wait until the last one has, then each reads the slots
   of the others. A rank that waits hands its core over a few times, then sleeps in the kernel, and the last rank wakes
   all: MPI's collectives take log(ranks) such steps, and waiting ranks poll. There are two sets of slots, used in turn:
   who writes into a set again has met all ranks since, and they had read it by then.

   The memory is a file that has no name any more once all ranks have mapped it. It goes with the communicator. */

#ifndef MPIJAX_NODE_H
#define MPIJAX_NODE_H

#include "mpi_wait.h"
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define MJ_NODE_SLOT 8192       /* bytes that a rank can contribute */
#define MJ_HANDOVERS 4          /* times that a rank hands its core over before it sleeps */
#define MJ_NAP 200000           /* nanoseconds of the first sleep; each is twice as long, up to MJ_LONG_NAP */
#define MJ_LONG_NAP 2000000

typedef struct {
    int64_t call, nbytes;       /* what this rank is about to do: the same on all ranks, or somebody is wrong */
    char unused[48];
    char data[MJ_NODE_SLOT];
} mj_slot;

typedef struct {
    _Atomic uint32_t arrived;   /* ranks that have come to this exchange */
    char unused1[60];
    _Atomic uint32_t turn;      /* exchanges that all have come to; waited for */
    _Atomic uint32_t asleep;    /* ranks to be woken */
    char unused2[56];
    mj_slot slots[];            /* of each rank, twice */
} mj_meeting;

/* A rank's side. `turn`: exchanges that it has been part of. */
typedef struct {
    mj_meeting *meeting;
    size_t nbytes;
    MPI_Comm comm;
    int rank, ranks;
    uint32_t turn;
} mj_node;

static int mj_sharing = 0;
static int64_t mj_node_id = 0;  /* of this rank's node: random, so that no two are equal */
static int mj_node_key = MPI_KEYVAL_INVALID;
static int mj_mismatch = MPI_ERR_OTHER;
static mj_node mj_no_node;      /* of communicators that have none */

static inline long mj_futex(_Atomic uint32_t *at, int what, uint32_t value, const struct timespec *limit) {
    return syscall(SYS_futex, (uint32_t *)at, what, value, limit, NULL, 0);
}

/* Sleeps until the turn is over; every now and then lets MPI go on with what it has in hand, as its calls would. */
static void mj_sleep_through(mj_node *node, uint32_t turn) {
    mj_meeting *m = node->meeting;
    struct timespec nap = {0, MJ_NAP};
    int ignored;
    while (atomic_load(&m->turn) == turn) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, node->comm, &ignored, MPI_STATUS_IGNORE);
        atomic_fetch_add(&m->asleep, 1);
        mj_futex(&m->turn, FUTEX_WAIT, turn, &nap);
        atomic_fetch_sub(&m->asleep, 1);
        nap.tv_nsec = 2 * nap.tv_nsec < MJ_LONG_NAP ? 2 * nap.tv_nsec : MJ_LONG_NAP;
    }
}

/* Waits until all ranks have written into their slots. */
static void mj_meet_all(mj_node *node) {
    mj_meeting *m = node->meeting;
    uint32_t turn = node->turn++;
    if (atomic_fetch_add(&m->arrived, 1) + 1 == (uint32_t)node->ranks) {
        atomic_store(&m->arrived, 0);
        atomic_store(&m->turn, turn + 1);
        if (atomic_load(&m->asleep)) mj_futex(&m->turn, FUTEX_WAKE, INT_MAX, NULL);
        return;
    }
    for (int i = 0; i < MJ_HANDOVERS; i++) {
        if (atomic_load(&m->turn) != turn) return;
        sched_yield();
    }
    mj_sleep_through(node, turn);
}

/* The slots of an exchange, after this rank has put `nbytes` of `data` into its own and all ranks have come; NULL if
   they did not all come for the same: the same call (an operation and its root) and number of bytes. */
static mj_slot *mj_exchange(mj_node *node, int64_t call, const void *data, int64_t nbytes, int64_t written) {
    mj_slot *slots = node->meeting->slots + (node->turn & 1) * (uint32_t)node->ranks;
    mj_slot *own = slots + node->rank;
    own->call = call;
    own->nbytes = nbytes;
    if (written > 0) memcpy(own->data, data, (size_t)written);
    mj_meet_all(node);
    for (int i = 0; i < node->ranks; i++)
        if (slots[i].call != call || slots[i].nbytes != nbytes) return NULL;
    return slots;
}

/* ---- a communicator's node ---- */

static int mj_forget_node(MPI_Comm comm, int key, void *value, void *unused) {
    mj_node *node = (mj_node *)value;
    (void)comm, (void)key, (void)unused;
    if (node == &mj_no_node) return MPI_SUCCESS;
    munmap(node->meeting, node->nbytes);
    free(node);
    return MPI_SUCCESS;
}

/* The smallest of each of n numbers over all ranks. */
static int mj_smallest(int64_t *numbers, int n, MPI_Comm comm) {
    MPI_Request request;
    int rc = MPI_Iallreduce(MPI_IN_PLACE, numbers, n, MPI_INT64_T, MPI_MIN, comm, &request);
    return rc != MPI_SUCCESS ? rc : mj_wait(&request);
}

/* A file for the first rank to make, and for the others to open by its name; -1 if it cannot. */
static int mj_open_shared(char *name, size_t size, size_t nbytes, int makes) {
    struct stat found;
    int file;
    if (!makes) {
        file = name[0] ? open(name, O_RDWR | O_NOFOLLOW | O_CLOEXEC) : -1;
        if (file < 0 || (fstat(file, &found) == 0 && found.st_uid == geteuid() && S_ISREG(found.st_mode) &&
                         (size_t)found.st_size >= nbytes)) return file;
        close(file);
        return -1;
    }
    snprintf(name, size, "%s/mpijax-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    file = mkostemp(name, O_CLOEXEC);
    if (file < 0) name[0] = 0;
    else if (posix_fallocate(file, 0, (off_t)nbytes) != 0) {   /* a full disk says so here, not at the first write */
        unlink(name);
        close(file);
        name[0] = 0;
        return -1;
    }
    return file;
}

/* Memory that all ranks of `comm` have mapped; NULL on all of them if one could not. */
static mj_meeting *mj_shared_memory(MPI_Comm comm, int rank, size_t nbytes) {
    char name[64] = "";
    int file = rank == 0 ? mj_open_shared(name, sizeof name, nbytes, 1) : -1;
    void *memory = MAP_FAILED;
    MPI_Request request;
    if (MPI_Ibcast(name, sizeof name, MPI_CHAR, 0, comm, &request) == MPI_SUCCESS) mj_wait(&request);
    if (rank != 0) file = mj_open_shared(name, sizeof name, nbytes, 0);
    if (file >= 0) {
        memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
    }
    int64_t all = memory != MAP_FAILED;
    int agreed = mj_smallest(&all, 1, comm) == MPI_SUCCESS && all;
    if (rank == 0 && name[0]) unlink(name);
    if (!agreed && memory != MAP_FAILED) munmap(memory, nbytes);
    return agreed ? (mj_meeting *)memory : NULL;
}

/* Collective over the ranks of `comm`. */
static mj_node *mj_make_node(MPI_Comm comm) {
    int ranks, rank, apart;
    int64_t agreed[3] = {mj_node_id, -mj_node_id, mj_yielding};
    if (MPI_Comm_test_inter(comm, &apart) != MPI_SUCCESS || apart) return &mj_no_node;
    MPI_Comm_size(comm, &ranks);
    MPI_Comm_rank(comm, &rank);
    if (ranks == 1 || mj_smallest(agreed, 3, comm) != MPI_SUCCESS) return &mj_no_node;
    if (agreed[0] != -agreed[1] || !agreed[2]) return &mj_no_node;
    size_t nbytes = sizeof(mj_meeting) + 2 * (size_t)ranks * sizeof(mj_slot);
    mj_meeting *meeting = mj_shared_memory(comm, rank, nbytes);
    mj_node *node = meeting ? (mj_node *)malloc(sizeof(mj_node)) : NULL;
    if (node == NULL) return &mj_no_node;
    *node = (mj_node){meeting, nbytes, comm, rank, ranks, 0};
    return node;
}

/* The node that all ranks of `comm` are on, for a call in which each contributes `nbytes`; NULL: leave it to MPI.
   The first such call of a communicator makes it, so all its ranks must decide alike. */
static mj_node *mj_node_of(MPI_Comm comm, int64_t nbytes) {
    void *value;
    int found;
    if (!mj_sharing || nbytes > MJ_NODE_SLOT) return NULL;
    if (MPI_Comm_get_attr(comm, mj_node_key, &value, &found) != MPI_SUCCESS) return NULL;
    if (!found) {
        value = mj_make_node(comm);
        MPI_Comm_set_attr(comm, mj_node_key, value);
    }
    return value == &mj_no_node ? NULL : (mj_node *)value;
}

/* From now on collectives of small messages meet in memory where `shares`: the same on all ranks of the job. */
static int mj_share_nodes(int shares, int64_t id) {
    int rc = MPI_SUCCESS;
    mj_node_id = id;
    if (shares && mj_node_key == MPI_KEYVAL_INVALID) {
        rc = MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, mj_forget_node, &mj_node_key, NULL);
        if (rc == MPI_SUCCESS) rc = MPI_Add_error_code(MPI_ERR_OTHER, &mj_mismatch);
        if (rc == MPI_SUCCESS)
            rc = MPI_Add_error_string(mj_mismatch, "ranks of the communicator call different operations at this point, "
                                                   "or the same with different sizes or roots");
    }
    mj_sharing = shares && rc == MPI_SUCCESS;
    return rc;
}

#endif
