/* Times of program steps: kernels of the executor that note a time. Programs have them around their steps only while
   the option `mpijax_profile_kernels` is on (mpijax/runtime/reports/step_notes.py), so other programs do not pay for
   them. */

#ifndef MPIJAX_STEP_NOTES_H
#define MPIJAX_STEP_NOTES_H

#include <pthread.h>

#include "record.h"

#define MJ_NOTES 131072     /* number of notes kept; a power of 2 */

typedef struct {
    uint64_t ticks, thread;
    int64_t what;           /* the number of the step, times 2; plus 1 where it ends */
} mj_note;

static mj_note *mj_notes;
static _Atomic uint64_t mj_noted;

/* For each step, the number of its runs and their total time, without the steps of other programs that it called. */
#define MJ_STEPS 65536      /* number of steps counted */
#define MJ_INSIDE 32        /* maximum nesting of steps */

typedef struct {
    _Atomic uint64_t ticks, calls;
} mj_step;

static mj_step *mj_steps;
static _Thread_local struct { int64_t step; uint64_t begun, inside; } mj_open[MJ_INSIDE];
static _Thread_local int mj_opened;

static void mj_count_step(int64_t what, uint64_t now) {
    int64_t step = what >> 1;
    if (!(what & 1)) {
        if (mj_opened < MJ_INSIDE) {
            mj_open[mj_opened].step = step;
            mj_open[mj_opened].begun = now;
            mj_open[mj_opened++].inside = 0;
        }
        return;
    }
    while (mj_opened && mj_open[mj_opened - 1].step != step)    /* those that raised */
        mj_opened--;
    if (!mj_opened)
        return;
    mj_opened--;
    uint64_t took = now - mj_open[mj_opened].begun;
    if (step < MJ_STEPS) {
        atomic_fetch_add_explicit(&mj_steps[step].ticks, took - mj_open[mj_opened].inside, memory_order_relaxed);
        atomic_fetch_add_explicit(&mj_steps[step].calls, 1, memory_order_relaxed);
    }
    if (mj_opened)
        mj_open[mj_opened - 1].inside += took;
}

/* A kernel; params[0] is the note. */
static void mj_note_step(void **ptrs, int64_t *params, int64_t begin, int64_t end) {
    (void)ptrs, (void)begin, (void)end;
    uint64_t n = atomic_fetch_add_explicit(&mj_noted, 1, memory_order_relaxed);
    mj_note *note = &mj_notes[n & (MJ_NOTES - 1)];
    note->what = params[0];
    note->thread = (uint64_t)pthread_self();
    note->ticks = mj_ticks();
    mj_count_step(params[0], note->ticks);
}

#endif
