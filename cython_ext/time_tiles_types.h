/* A loop that `time_tiles.h` runs several iterations at a time, tile by tile. */

#ifndef MPIJAX_TIME_TILES_TYPES_H
#define MPIJAX_TIME_TILES_TYPES_H

#include <stdint.h>

typedef struct {
    int64_t rows, depth, height;    /* of the arrays; iterations of a group; rows of a tile */
    int64_t calls;                  /* kernels of an iteration */
    int wraps;                      /* the first row is next to the last one */
    const int64_t *units;           /* of each kernel, iterations of its outermost loop per row */
    const int64_t *above, *below;   /* of each kernel of a group */
} tt_tiles;

typedef struct {
    void (*function)(void **ptrs, int64_t *params, int64_t begin, int64_t end);
    int64_t *params;
    int64_t rows;                   /* that it computes */
    int64_t first;                  /* where its pointers begin among those of an iteration */
} tt_call;

#endif
