/* Runs several iterations of a loop tile by tile; see mpijax/compiler/steps/time_tiles.py for why this is correct.

   Kernel i of a group of iterations stays `above[i]` rows behind the first one. The threads share the rows in ranges.
   First each range computes the rows that need no other range: kernel i leaves out its last above[i] and its first
   below[i] rows where another range is next. Then the rows left out around each border follow, kernel by kernel. */

#ifndef MPIJAX_TIME_TILES_H
#define MPIJAX_TIME_TILES_H

#include <stddef.h>
#include <stdint.h>

#include "threads.h"
#include "time_tiles_types.h"

typedef struct {
    const tt_tiles *tiles;
    const tt_call *calls;
    void **ptrs;                    /* of all kernels of each iteration of the group */
    int64_t places;                 /* their number in an iteration */
    int64_t steps;                  /* kernels of all its iterations */
    int64_t ranges;
} tt_group;

static inline void tt_rows(const tt_group *g, int64_t step, int64_t begin, int64_t end) {
    const tt_call *call = &g->calls[step % g->tiles->calls];
    int64_t unit = g->tiles->units[step % g->tiles->calls];
    void **ptrs = g->ptrs + step / g->tiles->calls * g->places + call->first;
    if (begin < 0) begin = 0;
    if (end > call->rows) end = call->rows;
    if (begin < end) call->function(ptrs, call->params, begin * unit, end * unit);
}

static inline int64_t tt_border(const tt_group *g, int64_t range) { return g->tiles->rows * range / g->ranges; }

/* Computes a range, without the rows that need its neighbours. */
static void tt_range(const tt_group *g, int64_t range) {
    const tt_tiles *t = g->tiles;
    int64_t begin = tt_border(g, range), end = tt_border(g, range + 1), behind = t->above[g->steps - 1];
    int lower = range > 0 || t->wraps, upper = range + 1 < g->ranges || t->wraps;
    for (int64_t tile = begin; tile < (upper ? end : end + behind); tile += t->height)
        for (int64_t step = 0; step < g->steps; step++) {
            int64_t low = tile - t->above[step], high = low + t->height;
            int64_t least = lower ? begin + t->below[step] : begin, most = upper ? end - t->above[step] : end;
            tt_rows(g, step, low < least ? least : low, high > most ? most : high);
        }
}

static void tt_ranges(void **ptrs, int64_t *params, int64_t begin, int64_t end) {
    (void)params;
    for (int64_t range = begin; range < end; range++) tt_range((const tt_group *)ptrs[0], range);
}

/* Computes the rows left out around the border before each range. */
static void tt_borders(void **ptrs, int64_t *params, int64_t begin, int64_t end) {
    (void)params;
    const tt_group *g = (const tt_group *)ptrs[0];
    const tt_tiles *t = g->tiles;
    for (int64_t range = t->wraps ? begin : begin + 1; range < (t->wraps ? end : end + 1); range++)
        for (int64_t step = 0; step < g->steps; step++) {
            int64_t border = tt_border(g, range);
            tt_rows(g, step, border - t->above[step], border + t->below[step]);
            if (border == 0) tt_rows(g, step, t->rows - t->above[step], t->rows);
        }
}

/* The number of ranges: one a thread, but long enough that most rows need no neighbour. */
static int64_t tt_ranges_of(const tt_tiles *t, int64_t steps) {
    int64_t least = 2 * (t->above[steps - 1] + t->below[steps - 1]) + 1;
    int64_t most = t->rows / least;
    return most < 1 ? 1 : most < mt_threads ? most : mt_threads;
}

/* Runs a group of iterations. ptrs: the arguments of the kernels, `places` pointers for each iteration. */
static void tt_run(const tt_tiles *t, const tt_call *calls, void **ptrs, int64_t places, int64_t iterations) {
    tt_group group = {t, calls, ptrs, places, iterations * t->calls, tt_ranges_of(t, iterations * t->calls)};
    void *passed[1] = {&group};
    mt_run(tt_ranges, passed, NULL, group.ranges, 1);
    int64_t borders = t->wraps ? group.ranges : group.ranges - 1;
    if (borders > 0) mt_run(tt_borders, passed, NULL, borders, 1);
}

#endif
