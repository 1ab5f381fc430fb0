/* Fourier transforms of lines of complex numbers whose size has no prime factor above 13.

   A vector holds the same element of LANES lines. Stockham's passes of radix 2 to 13 transform these, so no element is
   shuffled (C. Van Loan, "Computational Frameworks for the Fast Fourier Transform" (1992), 1.7). A line without
   neighbours is dealt to the lanes like cards, and the LANES parts are combined by one more pass. */
#ifndef MPIJAX_FFT_LINES_H
#define MPIJAX_FFT_LINES_H

#include <math.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "share.h"
#include "small_tiles.h"
#include "wide.h"

#define FFT_INLINE static inline __attribute__((always_inline))
#define FFT_PASSES 32
#define FFT_TOGETHER 4096 /* maximum size of lines whose vectors fit in cache; longer ones are transformed one by one */
#define FFT_LARGEST ((int64_t)1 << 23) /* maximum size of a line */
#define FFT_KEPT (65 << 20) /* maximum bytes of workspace that a thread keeps */
#define FFT_LEAST_WORK 4096 /* minimum numbers per thread */

/* How lines are transformed. */
enum { FFT_EACH = 1, FFT_ALONE };
/* What is in a line: complex numbers; reals, of whose transform the first half is kept, or all; the first half of the
   transform of reals. */
enum { FFT_COMPLEX, FFT_TO_HALF, FFT_TO_WHOLE, FFT_FROM_HALF };

/* Lines from x[before, n, behind] to out[before, n, behind], which may be the same. They are numbered block by block.
   For kinds with reals, n is half of the line's size, and behind is 1. */
typedef struct {
    const void *plan;
    int64_t n, behind;
    int64_t x_line, out_line; /* from a line to the next if behind is 1, in complex numbers */
    double factor;
    int inverse, kind, method;
    int same; /* whether a line's bits must not depend on its neighbours */
    const char *x;
    char *out;
    _Atomic int failed; /* no memory */
} fft_lines;

/* The size of a pass that divides n; 0: none. */
static inline int fft_radix(int64_t n) {
    static const int radices[] = {8, 4, 2, 3, 5, 7, 11, 13};
    for (int i = 0; i < 8; i++)
        if (n % radices[i] == 0) return radices[i];
    return 0;
}

static inline int fft_factors(int64_t n) {
    while (n > 1) {
        int r = fft_radix(n);
        if (r == 0) return 0;
        n /= r;
    }
    return n == 1;
}

/* How to transform `count` lines of n numbers; 0: not here. */
static inline int fft_method(int64_t n, int64_t count, int64_t lanes, int same) {
    if (!fft_factors(n) || n > FFT_LARGEST) return 0;
    if (n % lanes == 0 && (n > FFT_TOGETHER || (!same && count < lanes / 2))) return FFT_ALONE;
    return n <= 16 * FFT_TOGETHER ? FFT_EACH : 0;
}

/* exp(-2 pi i k / n) */
static inline void fft_root(int64_t k, int64_t n, double *re, double *im) {
    long double t = 6.283185307179586476925286766559005768L * (long double)(k % n) / (long double)n;
    *re = (double)cosl(t);
    *im = (double)-sinl(t);
}

static _Thread_local struct {
    void *memory;
    int64_t bytes;
} fft_rooms; /* of this thread */

/* Workspace, kept for the next call. NULL: there is no memory. */
static void *fft_room(int64_t bytes) {
    if (fft_rooms.bytes < bytes) {
        free(fft_rooms.memory);
        fft_rooms.memory = aligned_alloc(64, (size_t)bytes);
        fft_rooms.bytes = fft_rooms.memory != NULL ? bytes : 0;
    }
    return fft_rooms.memory;
}

static void fft_leave_room(void) {
    if (fft_rooms.bytes <= FFT_KEPT) return;
    free(fft_rooms.memory);
    fft_rooms.memory = NULL;
    fft_rooms.bytes = 0;
}

#define T float
#define LANES TILE_32
#define V tile_f32
#define NAMED(name) fft_##name##_32
#define TURN turn_32
#define EVENS(x, y) TILE_MIX_32(x, y, 0, 2, 4, 6, 8, 10, 12, 14)
#define ODDS(x, y) TILE_MIX_32(x, y, 1, 3, 5, 7, 9, 11, 13, 15)
#define FIRST(x, y) TILE_MIX_32(x, y, 0, 8, 1, 9, 2, 10, 3, 11)
#define SECOND(x, y) TILE_MIX_32(x, y, 4, 12, 5, 13, 6, 14, 7, 15)
#define BACK(x) TILE_MIX_32(x, x, 7, 6, 5, 4, 3, 2, 1, 0)
#include "fft_lanes.h"

#define T double
#define LANES TILE_64
#define V tile_f64
#define NAMED(name) fft_##name##_64
#define TURN turn_64
#define EVENS(x, y) TILE_MIX_64(x, y, 0, 2, 4, 6)
#define ODDS(x, y) TILE_MIX_64(x, y, 1, 3, 5, 7)
#define FIRST(x, y) TILE_MIX_64(x, y, 0, 4, 1, 5)
#define SECOND(x, y) TILE_MIX_64(x, y, 2, 6, 3, 7)
#define BACK(x) TILE_MIX_64(x, x, 3, 2, 1, 0)
#include "fft_lanes.h"

static void fft_some_lines(void **wide, int64_t *lines, int64_t begin, int64_t end) {
    (wide != NULL ? fft_some_64 : fft_some_32)((fft_lines *)lines, begin, end);
}

/* Transforms `count` lines. -1: such lines are not transformed here; 1: there is no memory. */
static int fft_all_lines(fft_lines *s, int wide, int64_t count, share_function share) {
    int64_t lanes = wide ? TILE_64 : TILE_32, grain = share_grain(FFT_LEAST_WORK, s->n);
    s->method = fft_method(s->n, count, lanes, s->same);
    if (s->method == 0) return -1;
    s->plan = wide ? (const void *)fft_planned_64(s->n, s->method, s->kind != FFT_COMPLEX)
                   : (const void *)fft_planned_32(s->n, s->method, s->kind != FFT_COMPLEX);
    if (s->plan == NULL) return 1;
    s->failed = 0;
    if (s->method == FFT_EACH) grain = (grain + lanes - 1) / lanes * lanes;
    share(fft_some_lines, (void **)(wide ? s : NULL), (int64_t *)s, count, grain);
    return s->failed;
}

#endif
