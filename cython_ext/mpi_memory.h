/* Memory that the ranks of a communicator share, where all of them are on one node.

   It is a file without a name, and it is zero. The first operation that needs it
   makes it: all ranks are in that operation. It goes with the communicator. */

#ifndef MPIJAX_MPI_MEMORY_H
#define MPIJAX_MPI_MEMORY_H

#include "mpi_wait.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MJ_LINE 128                 /* bytes that processors fetch together */
#define MJ_SPINS 400                /* looks at a word before a rank lets others run: 10 to 20 microseconds */
#define MJ_POLLING_RANKS 16         /* more ranks than this do not wait by looks */

/* Between two looks at a word that another rank writes: a processor that looks as fast as it can goes on later. */
static inline void mj_look_again(int64_t looks) {
    if (looks >= MJ_SPINS) mj_pause(looks - MJ_SPINS);
#if defined(__x86_64__)
    else __builtin_ia32_pause();
#elif defined(__aarch64__)
    else __asm__ volatile("yield");
#endif
}

/* How a communicator's memory begins, as this rank sees it. */
typedef struct {
    enum { MJ_NEW, MJ_READY, MJ_NONE } state;   /* first: the executor reads it */
    int rank, size;
    void *memory;
    size_t nbytes;
} mj_shared;

static int mj_sharing = 0;              /* whether ranks of a node communicate through memory; the same on all of the job */
static int mj_sleeps = 0;               /* whether ranks of this node that wait in memory sleep: they share cores */
static int *mj_node_rank = NULL;        /* by rank of COMM_WORLD: which rank of this node that is, or -1 */

static int mj_shared_freed(MPI_Comm comm, int key, void *attribute, void *unused) {
    mj_shared *shared = attribute;
    (void)comm, (void)key, (void)unused;
    if (shared->memory != NULL) munmap(shared->memory, shared->nbytes);
    shared->memory = NULL;
    shared->state = MJ_NONE;            /* it stays: programs point to it */
    return MPI_SUCCESS;
}

/* Which rank of this node a rank of a communicator is; -1: it is on another one, or none. */
static int mj_rank_here(MPI_Comm comm, int rank) {
    MPI_Group group, world;
    int known, other = MPI_UNDEFINED;
    if (mj_node_rank == NULL || rank < 0 || MPI_Comm_group(comm, &group) != MPI_SUCCESS) return -1;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    known = MPI_Group_translate_ranks(group, 1, &rank, world, &other) == MPI_SUCCESS && other >= 0;
    MPI_Group_free(&group);
    MPI_Group_free(&world);
    return known ? mj_node_rank[other] : -1;
}

/* Whether all ranks of the communicator are on this node: they all find the same. */
static int mj_all_here(MPI_Comm comm, int size) {
    int rank = 0;
    while (rank < size && mj_rank_here(comm, rank) >= 0) rank++;
    return rank == size;
}

/* What a communicator keeps under a key, `nbytes` that begin with an mj_shared, not made yet; NULL for one whose ranks
   cannot share memory. Not collective. */
static void *mj_shared_of(MPI_Comm comm, int *key, size_t nbytes, int most) {
    int inter = 0, size = 0, found = 0;
    mj_shared *shared = NULL;
    if (!mj_sharing) return NULL;
    if (*key == MPI_KEYVAL_INVALID && MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, mj_shared_freed, key, NULL) != MPI_SUCCESS)
        return NULL;
    if (MPI_Comm_get_attr(comm, *key, &shared, &found) != MPI_SUCCESS) return NULL;
    if (!found) {
        if (MPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter || (shared = calloc(1, nbytes)) == NULL) return NULL;
        MPI_Comm_size(comm, &size);
        MPI_Comm_rank(comm, &shared->rank);
        shared->size = size;
        shared->state = size > 1 && size <= most && mj_all_here(comm, size) ? MJ_NEW : MJ_NONE;
        if (MPI_Comm_set_attr(comm, *key, shared) != MPI_SUCCESS) {
            free(shared);
            return NULL;
        }
    }
    return shared->state == MJ_NONE ? NULL : shared;
}

/* A file without a name, so that a job which is killed leaves none: the other ranks open it by the process that has it. */
typedef struct {
    long long process, file, device, inode;
} mj_nameless;

/* Of the first rank: makes the file; -1 if it cannot. */
static int mj_make_file(mj_nameless *place, size_t nbytes) {
    char name[64];
    struct stat found;
    int file;
    snprintf(name, sizeof name, "%s/mpijax-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    file = mkostemp(name, O_CLOEXEC);
    if (file < 0) return -1;
    unlink(name);
    if (posix_fallocate(file, 0, (off_t)nbytes) != 0 || fstat(file, &found) != 0) {   /* a full disk says so here */
        close(file);
        return -1;
    }
    *place = (mj_nameless){getpid(), file, (long long)found.st_dev, (long long)found.st_ino};
    return file;
}

/* Of another rank: that file; -1 if it is not to be seen from here. */
static int mj_open_file(const mj_nameless *place) {
    char name[64];
    struct stat found;
    int file;
    if (place->process == 0) return -1;
    snprintf(name, sizeof name, "/proc/%lld/fd/%lld", place->process, place->file);
    if (stat(name, &found) != 0 || !S_ISREG(found.st_mode)) return -1;   /* another machine's number may mean a pipe */
    file = open(name, O_RDWR | O_CLOEXEC);
    if (file < 0 || (fstat(file, &found) == 0 && (long long)found.st_dev == place->device &&
                     (long long)found.st_ino == place->inode && found.st_uid == geteuid())) return file;
    close(file);
    return -1;
}

/* Makes the memory, unless one rank cannot: then messages do. Collective over the ranks of the communicator. */
static int mj_shared_open(mj_shared *shared, MPI_Comm comm, size_t nbytes) {
    mj_nameless place = {0};
    int file = shared->rank == 0 ? mj_make_file(&place, nbytes) : -1, mapped = 0;
    MPI_Request request;
    int rc = MPI_Ibcast(&place, sizeof place, MPI_BYTE, 0, comm, &request);
    if (rc == MPI_SUCCESS) rc = mj_wait(&request);
    if (rc == MPI_SUCCESS && shared->rank != 0) file = mj_open_file(&place);
    if (file >= 0) {
        shared->memory = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        mapped = shared->memory != MAP_FAILED;
    }
    if (rc == MPI_SUCCESS) rc = MPI_Iallreduce(MPI_IN_PLACE, &mapped, 1, MPI_INT, MPI_MIN, comm, &request);
    if (rc == MPI_SUCCESS) rc = mj_wait(&request);
    if (file >= 0) close(file);
    shared->nbytes = nbytes;
    shared->state = rc == MPI_SUCCESS && mapped ? MJ_READY : MJ_NONE;
    if (shared->state == MJ_NONE && shared->memory != MAP_FAILED && shared->memory != NULL) munmap(shared->memory, nbytes);
    if (shared->state == MJ_NONE) shared->memory = NULL;
    return rc;
}

#endif
