/* The record of communication: a memory region in which a rank notes the begin and end of each operation.

   The regions of a node's ranks are one shared file, so all of them can read any region, also while its rank hangs or
   after it was killed. Only the rank itself writes its region; readers tolerate an entry that is being written.
   mpijax/runtime/reports/recorder.py describes the same layout to NumPy. */

#ifndef MPIJAX_RECORD_H
#define MPIJAX_RECORD_H

#include <semaphore.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#define MJ_RING 1024        /* number of operations kept; a power of 2 */
#define MJ_SITES 512        /* number of places in programs kept */
#define MJ_COUNTS 512       /* sequences of operations that are counted: a few for each communicator */
#define MJ_DIGESTS 32       /* number of digests kept for a sequence; a power of 2 */
#define MJ_MEMBERS 8192     /* words for the lists of the groups' ranks */

typedef struct {
    uint64_t begin, end;    /* ticks; end 0: not finished */
    int64_t nbytes;
    uint32_t site, number;  /* number: of the operation in its sequence */
} mj_entry;

typedef struct {
    uint64_t id, count;     /* id: equal on all ranks; count: operations begun */
    uint64_t digests[MJ_DIGESTS];   /* digests[n % MJ_DIGESTS]: digest of the first n operations */
} mj_sequence;

typedef struct {
    uint32_t site, sequence;
    char text[120];
} mj_site;

typedef struct {
    _Atomic uint64_t started, finished; /* operations; one is in progress if these differ */
    int32_t state;                      /* 0 not begun, 1 running, 2 the interpreter has ended */
    int32_t status;                     /* exit status, once it has ended */
    uint32_t dumps;                     /* how often other ranks requested this record in a file */
    int32_t exclusive;                  /* whether two threads must not communicate at the same time */
    char unused[32];
    mj_sequence sequences[MJ_COUNTS];
    mj_site sites[MJ_SITES];
    mj_entry ring[MJ_RING];
    uint32_t members[MJ_MEMBERS];       /* of each group: its id as two words, the number of ranks, the ranks; 0 at the end */
} mj_region;

/* A counter shared by all cores of a node; reading it takes a few nanoseconds. */
static inline uint64_t mj_ticks(void) {
#if defined(__x86_64__)
    return __rdtsc();
#elif defined(__aarch64__)
    uint64_t ticks;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#endif
}

/* Whether the operation in progress is a collective of the same sequence: MPI cannot match collectives that two threads
   run at the same time on one communicator, even if it allows threads. Of each three sequences the first is for
   collectives and the third for agreements on them; sequence 0 covers many communicators. */
static inline int mj_mixes(mj_region *r, uint64_t last, uint32_t sequence) {
    uint32_t site = r->ring[last & (MJ_RING - 1)].site;
    mj_site *found = &r->sites[site % MJ_SITES];
    return sequence != 0 && sequence % 3 != 2 && found->site == site && found->sequence == sequence;
}

/* Notes that an operation begins. NULL if another thread is inside one and must be alone. what: equal on all ranks that
   run it. */
static inline mj_entry *mj_begin(mj_region *r, uint32_t site, uint32_t sequence, int64_t nbytes, uint32_t what) {
    mj_sequence *s = &r->sequences[sequence];
    uint64_t count = s->count + 1;
    uint64_t n = atomic_load_explicit(&r->started, memory_order_relaxed);
    if (n != atomic_load_explicit(&r->finished, memory_order_relaxed) && (r->exclusive || mj_mixes(r, n, sequence)))
        return NULL;
    mj_entry *e = &r->ring[++n & (MJ_RING - 1)];
    e->begin = mj_ticks();
    e->end = 0;
    e->nbytes = nbytes;
    e->site = site;
    e->number = (uint32_t)count;
    s->digests[count & (MJ_DIGESTS - 1)] = s->digests[(count - 1) & (MJ_DIGESTS - 1)] * 0x9E3779B97F4A7C15u + what;
    atomic_thread_fence(memory_order_release);
    s->count = count;
    atomic_store_explicit(&r->started, n, memory_order_release);
    return e;
}

/* ---- ranks of this node that share a sequence; they are compared before MPI mismatches operations ---- */

#define MJ_PEERS 16         /* maximum per sequence: those at distances 1, 2, 4, ... on both sides */

typedef struct {
    uint64_t id;
    uint32_t count;
    mj_region *regions[MJ_PEERS];
    mj_sequence *found[MJ_PEERS];   /* the sequence in the region, once found */
} mj_peers;

/* A rank's counter of the sequence with that id: usually at the same index as this rank's. NULL: it has none yet. */
static mj_sequence *mj_find_sequence(mj_region *r, uint32_t likely, uint64_t id) {
    if (r->sequences[likely].id == id) return &r->sequences[likely];
    for (int i = 1; i < MJ_COUNTS; i++)
        if (r->sequences[i].id == id) return &r->sequences[i];
    return NULL;
}

/* Whether a peer has diverged up to the operation that this rank has just begun. Of two ranks that differ, the later
   one detects it, because each notes its operation before it compares. */
static inline int mj_differs(mj_region *r, uint32_t sequence, mj_peers *peers) {
    const mj_sequence *own = &r->sequences[sequence];
    uint64_t n = own->count, digest = own->digests[n & (MJ_DIGESTS - 1)];
    atomic_thread_fence(memory_order_seq_cst);
    for (uint32_t i = 0; i < peers->count; i++) {
        volatile mj_sequence *s = peers->found[i];
        if (s == NULL || s->id != peers->id) {
            s = peers->found[i] = mj_find_sequence(peers->regions[i], sequence, peers->id);
            if (s == NULL) continue;
        }
        if (s->count < n) continue;
        atomic_thread_fence(memory_order_acquire);
        uint64_t theirs = s->digests[n & (MJ_DIGESTS - 1)];
        atomic_thread_fence(memory_order_acquire);
        if (theirs != digest && s->count < n + MJ_DIGESTS - 1 && s->id == peers->id) return 1;
    }
    return 0;
}

/* The operation continues in the background: its rank does not wait for it. */
static inline void mj_leave(mj_region *r) {
    atomic_store_explicit(&r->finished, atomic_load_explicit(&r->started, memory_order_relaxed),
                          memory_order_release);
}

/* The rank waits again for the operation that it has left. */
static inline void mj_return(mj_region *r, mj_entry *e) {
    e->begin = mj_ticks();
    atomic_store_explicit(&r->finished, atomic_load_explicit(&r->started, memory_order_relaxed) - 1,
                          memory_order_release);
}

static inline void mj_end(mj_region *r, mj_entry *e) {
    e->end = mj_ticks();
    atomic_store_explicit(&r->finished, atomic_load_explicit(&r->started, memory_order_relaxed),
                          memory_order_release);
}

/* ---- signals: a handler counts them and wakes the waiting thread; Python's own handlers run only between its
   instructions, so not while a rank waits inside MPI ---- */

#define MJ_SIGNALS 65

static volatile sig_atomic_t mj_signal_counts[MJ_SIGNALS];
static struct sigaction mj_signal_before[MJ_SIGNALS];
static sem_t mj_wake;

static void mj_on_signal(int number, siginfo_t *info, void *context) {
    int saved = errno;
    struct sigaction *before = &mj_signal_before[number];
    mj_signal_counts[number] = mj_signal_counts[number] + 1;
    sem_post(&mj_wake);
    if (before->sa_flags & SA_SIGINFO) before->sa_sigaction(number, info, context);
    else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) before->sa_handler(number);
    errno = saved;
}

/* Counts a signal from now on, and passes it to its previous handler. Returns 0, or an errno. */
static int mj_watch_signal(int number) {
    struct sigaction action;
    if (sigaction(number, NULL, &action) != 0) return errno;
    if ((action.sa_flags & SA_SIGINFO) && action.sa_sigaction == mj_on_signal) return 0;
    mj_signal_before[number] = action;
    action.sa_sigaction = mj_on_signal;
    action.sa_flags = SA_SIGINFO | SA_RESTART | (action.sa_flags & SA_ONSTACK);
    return sigaction(number, &action, NULL) == 0 ? 0 : errno;
}

/* Sleeps until a post, the timeout, or a signal. */
static int mj_await_post(sem_t *posted, double seconds) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    int64_t nanoseconds = until.tv_nsec + (int64_t)(seconds * 1e9);
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    return sem_timedwait(posted, &until);
}

/* ---- a reminder: a thread that prints a warning while a call does not return, even if it holds the GIL. It ends the
   process if the call cannot return, because a process that it waits for has ended. ---- */

#define MJ_CHILDREN 4096    /* bytes of a list of processes; one process takes up to 8 */

static sem_t mj_returned;
static pthread_t mj_reminding;
static double mj_patience;
static char mj_reminder[1024];
static int mj_parent, mj_expected;
static double mj_grace;
static char mj_farewell[1024];

/* The number of child processes; -1 if the system does not list them, or if there may be more than fit. */
static int mj_count_children(int parent) {
    char path[64], text[MJ_CHILDREN];
    int count = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", parent, parent);
    FILE *file = fopen(path, "re");
    if (file == NULL) return -1;
    size_t size = fread(text, 1, sizeof text, file);
    fclose(file);
    for (size_t i = 0; i < size; i++) count += text[i] == ' ';
    return size < sizeof text ? count : -1;
}

/* Unlinks MPICH's shared memory that this process has mapped. */
static void mj_forget_segments(void) {
    char line[512];
    FILE *maps = fopen("/proc/self/maps", "re");
    if (maps == NULL) return;
    while (fgets(line, sizeof line, maps) != NULL) {
        char *name = strstr(line, "/dev/shm/mpich_");
        if (name == NULL) continue;
        name[strcspn(name, "\n")] = 0;
        unlink(name);
    }
    fclose(maps);
}

static void *mj_remind(void *unused) {
    double waited = 0, next = mj_patience, missing = 0;
    int before = 0;
    (void)unused;
    for (;;) {
        double look = mj_parent ? mj_grace / 4 : next - waited;
        if (mj_await_post(&mj_returned, look) == 0) return NULL;
        if (errno != ETIMEDOUT) continue;
        waited += look;
        if (waited >= next) {
            next = 2 * waited;
            dprintf(STDERR_FILENO, mj_reminder, waited);
        }
        if (!mj_parent) continue;
        int children = mj_count_children(mj_parent);
        missing = 0 <= children && children < mj_expected && children == before ? missing + look : 0;
        before = children;
        if (missing < mj_grace) continue;
        dprintf(STDERR_FILENO, mj_farewell, mj_expected - children, mj_expected);
        mj_forget_segments();
        _exit(1);
    }
}

/* Ends the process, after a text with placeholders for how many of how many processes have ended, if `parent` has fewer
   than `expected` children for `grace` seconds. Call it before mj_start_reminding. */
static void mj_expect_children(int parent, int expected, double grace, const char *text) {
    mj_parent = parent;
    mj_expected = expected;
    mj_grace = grace;
    snprintf(mj_farewell, sizeof mj_farewell, "%s", text);
}

/* text: has a placeholder for the elapsed seconds. Returns 0, or an errno. */
static int mj_start_reminding(double seconds, const char *text) {
    mj_patience = seconds;
    snprintf(mj_reminder, sizeof mj_reminder, "%s", text);
    sem_init(&mj_returned, 0, 0);
    return pthread_create(&mj_reminding, NULL, mj_remind, NULL);
}

static void mj_stop_reminding(void) {
    sem_post(&mj_returned);
    pthread_join(mj_reminding, NULL);
}

#endif
