/* Small real matrices. Those of a stack are factored several at a time: one vector holds element (i, j) of all of them. If
   they are few and not tiny, each is factored alone (small_rows.h), with the same bits: a rank's part of a stack may be
   shorter than the stack.

   Each function takes up to LANES matrices, or one. It returns a mask of those that it leaves to LAPACK: with numbers that are
   not finite or of extreme size, or with zero singular values. A matrix's result does not depend on its neighbours. */
#ifndef MPIJAX_SMALL_H
#define MPIJAX_SMALL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "small_tiles.h"
#include "wide.h"

#define SMALL 8 /* maximum rows and columns: a larger matrix fills vectors by itself */
#define SMALL_ROWS 32 /* the same for triangular factors */
#define SMALL_SIDES 4 /* maximum right sides of a larger triangular system */
#define SMALL_SPECTRA 64 /* minimum matrices whose vectors may differ from LAPACK in sign; fewer match LAPACK */
#define SMALL_SWEEPS 20 /* maximum sweeps of Jacobi rotations; 4 to 7 are usual */

#define SMALL_INLINE static inline __attribute__((always_inline))

#define LANES (64 / (int)sizeof(T))
#define SPAN (32 / (int)sizeof(T))
#define EACH _Pragma("GCC ivdep") _Pragma("GCC unroll 1") for (int l = 0; l < LANES; l++)

#define T float
#define I int32_t
#define NAMED(name) name##_32
#define ABS fabsf
#define SQRT sqrtf
#define COPYSIGN copysignf
#define EPSILON 0x1p-23f
#define EXPONENT 0x7f800000
#define TINY 0x1p-96f
#define TOP 0x1p24f /* the fourth power of a singular value, times EPSILON^2, must not underflow */
#define LEAST 0x1p-40f
#define HUGE_SIZE 0x1p120f
#include "small_factors.h"
#include "small_rows.h"
#include "small_spectra.h"
#undef T
#undef I
#undef NAMED
#undef ABS
#undef SQRT
#undef COPYSIGN
#undef EPSILON
#undef EXPONENT
#undef TINY
#undef TOP
#undef LEAST
#undef HUGE_SIZE

#define T double
#define I int64_t
#define NAMED(name) name##_64
#define ABS fabs
#define SQRT sqrt
#define COPYSIGN copysign
#define EPSILON 0x1p-52
#define EXPONENT 0x7ff0000000000000
#define TINY 0x1p-900
#define TOP 1
#define LEAST 0x1p-440
#define HUGE_SIZE 0x1p1000
#include "small_factors.h"
#include "small_rows.h"
#include "small_spectra.h"

/* The number of matrices that a function takes at a time, for the kinds of numbers in lapack.pyx; 0: use LAPACK. */
static int small_lanes(int64_t kind, int64_t m, int64_t n, int64_t stack) {
    int64_t largest = m > n ? m : n;
    if (kind > 1 || m == 0 || n == 0 || largest > SMALL || stack == 0) return 0;
    return kind == 1 ? 8 : 16;
}

/* Whether a matrix is factored alone if it has few neighbours. */
static int small_alone(int64_t kind, int64_t m, int64_t n) {
    int64_t largest = m > n ? m : n;
    return kind <= 1 && m > 0 && n > 0 && largest > SMALL && largest <= SMALL_ROWS;
}

/* Whether a triangular system with a[n, n] is solved alone. */
static int small_system(int64_t kind, int64_t n, int64_t sides) { return sides <= SMALL_SIDES && small_alone(kind, n, n); }

/* The number of matrices taken at a time for triangular factors. */
static int small_lanes_of_factors(int64_t kind, int64_t m, int64_t n, int64_t stack) {
    int lanes = kind == 1 ? 8 : 16;
    return small_alone(kind, m, n) ? (2 * stack >= lanes ? lanes : 0) : small_lanes(kind, m, n, stack);
}

/* The same for eigenvalues and singular values. */
static int small_lanes_of_spectra(int64_t kind, int64_t m, int64_t n, int64_t stack) {
    return stack < SMALL_SPECTRA ? 0 : small_lanes(kind, m, n, stack);
}

#define SMALL_CALL(name, ...) (kind == 1 ? name##_64(__VA_ARGS__) : name##_32(__VA_ARGS__))

static uint32_t small_cholesky(int64_t kind, const void *a, int count, int n, int symmetrize, void *out) {
    return SMALL_CALL(cholesky, a, count, n, symmetrize, out);
}

static uint32_t small_qr(int64_t kind, const void *a, int count, int m, int n, int columns, void *q, void *r) {
    return SMALL_CALL(qr, a, count, m, n, columns, q, r);
}

static uint32_t small_lu(int64_t kind, const void *a, int count, int m, int n, void *out, int32_t *pivots) {
    return SMALL_CALL(lu, a, count, m, n, out, pivots);
}

static void small_solve(int64_t kind, const void *a, const void *b, int count, int n, int k, const int64_t *form,
                        void *out) {
    SMALL_CALL(solve, a, b, count, n, k, form, out);
}

static uint32_t small_eigh(int64_t kind, const void *a, int count, int n, int lower, void *vectors, void *values) {
    return SMALL_CALL(eigh, a, count, n, lower, vectors, values);
}

static uint32_t small_svd(int64_t kind, const void *a, int count, int m, int n, void *s, void *u, void *vh) {
    return SMALL_CALL(svd, a, count, m, n, s, u, vh);
}

static int small_cholesky_alone(int64_t kind, const void *a, int n, int symmetrize, void *out) {
    return SMALL_CALL(cholesky_alone, a, n, symmetrize, out);
}

static int small_qr_alone(int64_t kind, const void *a, int m, int n, int columns, void *q, void *r) {
    return SMALL_CALL(qr_alone, a, m, n, columns, q, r);
}

static int small_lu_alone(int64_t kind, const void *a, int m, int n, void *out, int32_t *pivots) {
    return SMALL_CALL(lu_alone, a, m, n, out, pivots);
}

static void small_solve_alone(int64_t kind, const void *a, const void *b, int n, int sides, const int64_t *form, void *out) {
    SMALL_CALL(solve_alone, a, b, n, sides, form, out);
}

#endif
