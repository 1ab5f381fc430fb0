/* When each step of programs began and ended: kernels of the executor that note a time. Programs have them around their
   steps while the option `mpijax_profile_kernels` is on (mpijax/runtime/step_notes.py), others do not pay for them. */

#ifndef MPIJAX_STEP_NOTES_H
#define MPIJAX_STEP_NOTES_H

#include <pthread.h>

#include "record.h"

#define MJ_NOTES 131072     /* notes that are kept; a power of 2 */

typedef struct {
    uint64_t ticks, thread;
    int64_t what;           /* the number of the step, times 2; 1 more where it ends */
} mj_note;

static mj_note *mj_notes;
static _Atomic uint64_t mj_noted;

/* As a kernel: params[0] is what to note. */
static void mj_note_step(void **ptrs, int64_t *params, int64_t begin, int64_t end) {
    (void)ptrs, (void)begin, (void)end;
    uint64_t n = atomic_fetch_add_explicit(&mj_noted, 1, memory_order_relaxed);
    mj_note *note = &mj_notes[n & (MJ_NOTES - 1)];
    note->what = params[0];
    note->thread = (uint64_t)pthread_self();
    note->ticks = mj_ticks();
}

#endif
