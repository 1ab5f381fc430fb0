/* Splits the range of a kernel over the cores of this rank.

   The calling thread works too. The other threads are started at the first split. After each split they spin for a
   moment, because the next kernel of a program follows within microseconds, and then sleep. A worker that wakes after
   the work is done finds the job closed, so no thread waits for it. Only one split runs at a time; meanwhile a second
   thread of the program runs its kernel alone. */

#ifndef MPIJAX_THREADS_H
#define MPIJAX_THREADS_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>

#include "denormals.h"

typedef void (*mt_kernel)(void **ptrs, int64_t *params, int64_t begin, int64_t end);

#define MT_MAX_THREADS 256
#define MT_SPINS 4000               /* about 20 µs of polling for work before sleeping */
#define MT_CHUNKS 4                 /* chunks per thread: a disturbed core leaves some to the others */

#if defined(__x86_64__) || defined(__i386__)
#define mt_pause() __builtin_ia32_pause()
#else
#define mt_pause() atomic_signal_fence(memory_order_seq_cst)
#endif

typedef struct {
    mt_kernel fn;
    void **ptrs;
    int64_t *params;
    int64_t extent, chunk;
    uint64_t denormals;             /* the caller's mode, which the workers adopt */
    _Atomic int64_t next;           /* where the next chunk begins */
} mt_job;

static mt_job mt_current;
static _Atomic uint64_t mt_generation;      /* counts jobs */
static _Atomic uint64_t mt_open;            /* the generation that may be joined, 0 for none */
static _Atomic int mt_inside;               /* workers that access mt_current */
static _Atomic int mt_sleepers;
static int mt_threads = 1;                  /* threads to use, including the caller */
static int mt_started = 0;                  /* workers that exist */
static pthread_mutex_t mt_busy = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t mt_sleep = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t mt_wake = PTHREAD_COND_INITIALIZER;

/* The thread count of a library (BLAS). Kernels that share their work and call it set it to one thread on each of ours.
   Several threads of the program may be in such kernels: the last one to leave restores the count. */
typedef struct {
    int (*get)(void);
    void (*set)(int);               /* NULL: the library has no such function */
} mt_library;

static int mt_inside_library, mt_library_threads;
static pthread_mutex_t mt_library_lock = PTHREAD_MUTEX_INITIALIZER;

static void mt_work(mt_job *job) {
    for (;;) {
        int64_t begin = atomic_fetch_add_explicit(&job->next, job->chunk, memory_order_relaxed);
        if (begin >= job->extent) return;
        int64_t end = begin + job->chunk;
        job->fn(job->ptrs, job->params, begin, end < job->extent ? end : job->extent);
    }
}

/* Waits for a job after `seen`; returns its generation. */
static uint64_t mt_next_job(uint64_t seen) {
    for (int i = 0; i < MT_SPINS; i++) {
        uint64_t now = atomic_load(&mt_generation);
        if (now != seen) return now;
        mt_pause();
    }
    pthread_mutex_lock(&mt_sleep);
    atomic_fetch_add(&mt_sleepers, 1);      /* before the last check: the caller reads this after it has counted */
    while (atomic_load(&mt_generation) == seen) pthread_cond_wait(&mt_wake, &mt_sleep);
    atomic_fetch_sub(&mt_sleepers, 1);
    pthread_mutex_unlock(&mt_sleep);
    return atomic_load(&mt_generation);
}

static void *mt_worker(void *unused) {
    (void)unused;
    uint64_t seen = 0;
    for (;;) {
        seen = mt_next_job(seen);
        atomic_fetch_add(&mt_inside, 1);    /* must precede the check whether the job is open: see mt_run */
        if (atomic_load(&mt_open) == seen) {
            dn_switch(mt_current.denormals);
            mt_work(&mt_current);
        }
        atomic_fetch_sub(&mt_inside, 1);
    }
    return NULL;
}

/* A forked child has no workers and no job. */
static void mt_after_fork(void) {
    mt_started = 0;
    atomic_store(&mt_generation, 0);
    atomic_store(&mt_open, 0);
    atomic_store(&mt_inside, 0);
    atomic_store(&mt_sleepers, 0);
    pthread_mutex_init(&mt_busy, NULL);
    pthread_mutex_init(&mt_sleep, NULL);
    pthread_mutex_init(&mt_library_lock, NULL);
    mt_inside_library = 0;
    pthread_cond_init(&mt_wake, NULL);
}

/* Starts workers until there are mt_threads - 1; signals stay with Python's main thread. */
static void mt_start_workers(void) {
    static int registered = 0;
    sigset_t all, previous;
    pthread_attr_t attributes;
    if (!registered) {
        registered = 1;
        pthread_atfork(NULL, NULL, mt_after_fork);
    }
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &previous);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    while (mt_started < mt_threads - 1) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, mt_worker, NULL) != 0) {
            mt_threads = mt_started + 1;    /* the system allows no more threads */
            break;
        }
        mt_started++;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &previous, NULL);
}

/* Runs the kernel over [0, extent), in parts of at least `grain`, on as many threads as that allows. */
static void mt_run(mt_kernel fn, void **ptrs, int64_t *params, int64_t extent, int64_t grain) {
    if (mt_threads == 1 || extent < 2 * grain || pthread_mutex_trylock(&mt_busy) != 0) {
        fn(ptrs, params, 0, extent);
        return;
    }
    if (mt_started < mt_threads - 1) mt_start_workers();
    int64_t chunk = extent / ((int64_t)mt_threads * MT_CHUNKS) / grain * grain;
    mt_current.fn = fn;
    mt_current.ptrs = ptrs;
    mt_current.params = params;
    mt_current.extent = extent;
    mt_current.denormals = dn_mode();
    mt_current.chunk = chunk < grain ? grain : chunk;
    atomic_store(&mt_current.next, 0);
    uint64_t generation = atomic_load(&mt_generation) + 1;
    atomic_store(&mt_open, generation);
    atomic_store(&mt_generation, generation);
    if (atomic_load(&mt_sleepers) > 0) {
        pthread_mutex_lock(&mt_sleep);
        pthread_cond_broadcast(&mt_wake);
        pthread_mutex_unlock(&mt_sleep);
    }
    mt_work(&mt_current);
    /* A worker increments mt_inside before it checks whether the job is open; we close the job before we check
       mt_inside: either it sees that the job is closed, or we see it inside. */
    atomic_store(&mt_open, 0);
    for (int spins = 0; atomic_load(&mt_inside) > 0; spins++) {
        if (spins < MT_SPINS) mt_pause();
        else sched_yield();
    }
    pthread_mutex_unlock(&mt_busy);
}

/* Like mt_run, for kernels that call a library. */
static void mt_run_alone(mt_kernel fn, void **ptrs, int64_t *params, int64_t extent, int64_t grain,
                         const mt_library *library) {
    if (library->set) {
        pthread_mutex_lock(&mt_library_lock);
        if (mt_inside_library++ == 0) {
            mt_library_threads = library->get();
            library->set(1);
        }
        pthread_mutex_unlock(&mt_library_lock);
    }
    mt_run(fn, ptrs, params, extent, grain);
    if (library->set) {
        pthread_mutex_lock(&mt_library_lock);
        if (--mt_inside_library == 0) library->set(mt_library_threads);
        pthread_mutex_unlock(&mt_library_lock);
    }
}

#endif
