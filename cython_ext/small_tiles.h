/* Transposes square tiles of numbers in registers: eight floats or four doubles a side. */
#ifndef MPIJAX_SMALL_TILES_H
#define MPIJAX_SMALL_TILES_H

#include <stddef.h>
#include <stdint.h>

#define TILE_32 8
#define TILE_64 4

/* The types with `_at` are registers' values anywhere in memory. Copies by memcpy would go over the stack, in halves. */
typedef float tile_f32 __attribute__((vector_size(32)));
typedef float tile_f32_at __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t tile_i32 __attribute__((vector_size(32)));
typedef double tile_f64 __attribute__((vector_size(32)));
typedef double tile_f64_at __attribute__((vector_size(32), aligned(8), may_alias));
typedef int64_t tile_i64 __attribute__((vector_size(32)));

#if defined(__clang__)
#define TILE_MIX_32(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#define TILE_MIX_64(x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define TILE_MIX_32(x, y, ...) __builtin_shuffle(x, y, (tile_i32){__VA_ARGS__})
#define TILE_MIX_64(x, y, ...) __builtin_shuffle(x, y, (tile_i64){__VA_ARGS__})
#endif

/* to[j * there + i] = from[i * here + j] for i, j < 8. */
static inline __attribute__((always_inline)) void turn_32(float *to, ptrdiff_t there, const float *from, ptrdiff_t here) {
    tile_f32 r[8], s[8];
    _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) r[i] = *(const tile_f32_at *)(from + i * here);
    for (int i = 0; i < 8; i += 2) { /* pairs of rows */
        s[i] = TILE_MIX_32(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        s[i + 1] = TILE_MIX_32(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4) /* pairs of pairs: r[i + j] has columns j and j + 4 of four rows */
        for (int j = 0; j < 2; j++) {
            r[i + 2 * j] = TILE_MIX_32(s[i + j], s[i + 2 + j], 0, 1, 8, 9, 4, 5, 12, 13);
            r[i + 2 * j + 1] = TILE_MIX_32(s[i + j], s[i + 2 + j], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int j = 0; j < 4; j++) {
        s[j] = TILE_MIX_32(r[j], r[j + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        s[j + 4] = TILE_MIX_32(r[j], r[j + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
    _Pragma("GCC unroll 8") for (int j = 0; j < 8; j++) *(tile_f32_at *)(to + j * there) = s[j];
}

/* The same for i, j < 4. */
static inline __attribute__((always_inline)) void turn_64(double *to, ptrdiff_t there, const double *from, ptrdiff_t here) {
    tile_f64 r[4], s[4];
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) r[i] = *(const tile_f64_at *)(from + i * here);
    for (int i = 0; i < 4; i += 2) {
        s[i] = TILE_MIX_64(r[i], r[i + 1], 0, 4, 2, 6);
        s[i + 1] = TILE_MIX_64(r[i], r[i + 1], 1, 5, 3, 7);
    }
    for (int j = 0; j < 2; j++) {
        r[j] = TILE_MIX_64(s[j], s[j + 2], 0, 1, 4, 5);
        r[j + 2] = TILE_MIX_64(s[j], s[j + 2], 2, 3, 6, 7);
    }
    _Pragma("GCC unroll 4") for (int j = 0; j < 4; j++) *(tile_f64_at *)(to + j * there) = r[j];
}

#endif
