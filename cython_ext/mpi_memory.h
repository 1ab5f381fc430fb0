/* Memory shared by the ranks of a communicator, if all of them are on one node.

   It is an unlinked file, initially zero. The first operation that needs it creates it, because all ranks are in that
   operation. It is freed with the communicator. */

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
#define MJ_SPINS 400                /* polls of a word before a rank yields its core: 10 to 20 microseconds */
#define MJ_POLLING_RANKS 16         /* more ranks than this do not wait by polling */

/* Pauses between two polls of a word that another rank writes: polling at full speed delays the poller. */
static inline void mj_look_again(int64_t looks) {
    if (looks >= MJ_SPINS) mj_pause(looks - MJ_SPINS);
#if defined(__x86_64__)
    else __builtin_ia32_pause();
#elif defined(__aarch64__)
    else __asm__ volatile("yield");
#endif
}

/* The head of a communicator's shared memory, as this rank sees it. */
typedef struct {
    enum { MJ_NEW, MJ_READY, MJ_NONE } state;   /* first: the executor reads it */
    int rank, size;
    void *memory;
    size_t nbytes;
} mj_shared;

static int mj_sharing = 0;              /* whether ranks of a node communicate through memory; equal on all ranks */
static int mj_sleeps = 0;               /* whether waiting ranks of this node sleep, because they share cores */
static int *mj_node_rank = NULL;        /* by rank of COMM_WORLD: its rank on this node, or -1 */

static int mj_shared_freed(MPI_Comm comm, int key, void *attribute, void *unused) {
    mj_shared *shared = attribute;
    (void)comm, (void)key, (void)unused;
    if (shared->memory != NULL) munmap(shared->memory, shared->nbytes);
    shared->memory = NULL;
    shared->state = MJ_NONE;            /* not freed: programs still point to it */
    return MPI_SUCCESS;
}

/* The rank on this node of a communicator's rank; -1 if it is on another node or does not exist. */
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

/* Whether all ranks of the communicator are on this node; all of them get the same answer. */
static int mj_all_here(MPI_Comm comm, int size) {
    int rank = 0;
    while (rank < size && mj_rank_here(comm, rank) >= 0) rank++;
    return rank == size;
}

/* The communicator's attribute under a key: `nbytes` that start with an mj_shared, created without memory on first use;
   NULL if its ranks cannot share memory. Not collective. */
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

/* An unlinked file, so that a killed job leaves none; the other ranks open it through the process that has it. */
typedef struct {
    long long process, file, device, inode;
} mj_nameless;

/* On the first rank: makes the file; -1 on failure. */
static int mj_make_file(mj_nameless *place, size_t nbytes) {
    char name[64];
    struct stat found;
    int file;
    snprintf(name, sizeof name, "%s/mpijax-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    file = mkostemp(name, O_CLOEXEC);
    if (file < 0) return -1;
    unlink(name);
    if (posix_fallocate(file, 0, (off_t)nbytes) != 0 || fstat(file, &found) != 0) {   /* fails here on a full disk */
        close(file);
        return -1;
    }
    *place = (mj_nameless){getpid(), file, (long long)found.st_dev, (long long)found.st_ino};
    return file;
}

/* On the other ranks: opens that file; -1 if it is not visible from here. */
static int mj_open_file(const mj_nameless *place) {
    char name[64];
    struct stat found;
    int file;
    if (place->process == 0) return -1;
    snprintf(name, sizeof name, "/proc/%lld/fd/%lld", place->process, place->file);
    if (stat(name, &found) != 0 || !S_ISREG(found.st_mode)) return -1;   /* on another machine the path may be a pipe */
    file = open(name, O_RDWR | O_CLOEXEC);
    if (file < 0 || (fstat(file, &found) == 0 && (long long)found.st_dev == place->device &&
                     (long long)found.st_ino == place->inode && found.st_uid == geteuid())) return file;
    close(file);
    return -1;
}

/* Makes the memory, or falls back to MPI if any rank cannot. Collective over the ranks of the communicator. */
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
