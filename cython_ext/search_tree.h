/* Many searches in one long sorted row, on processors with AVX2: trees of blocks of eight elements.

   The last elements of a row's blocks form a shorter row; the same is repeated on that. The number of elements before a
   query is found from the shortest row down: a block is wholly before the query if its last element is; in the next
   block eight elements are compared at once. The row itself is not copied. */
#ifndef MPIJAX_SEARCH_TREE_H
#define MPIJAX_SEARCH_TREE_H

#include <stdint.h>
#include <stdlib.h>

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__)
#include <immintrin.h>

#define TREE_BLOCK 8
#define TREE_LEVELS 22 /* enough for 2^63 elements */
#define TREE_TOGETHER 8
#define TREE_TARGET __attribute__((target("avx2,bmi,popcnt")))
#define TREE_INLINE static inline __attribute__((always_inline)) TREE_TARGET

/* The number of the eight elements from x on that are before a query. */
#define TREE_PLACES(mask) _mm_popcnt_u32((unsigned)(mask))
#define TREE_FLOATS(name, OP)                                                                                        \
    TREE_INLINE int64_t tree_f32_##name(const float *x, float q) {                                                   \
        return TREE_PLACES(_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(x), _mm256_set1_ps(q), OP)));            \
    }                                                                                                                \
    TREE_INLINE int64_t tree_f64_##name(const double *x, double q) {                                                 \
        __m256d low = _mm256_cmp_pd(_mm256_loadu_pd(x), _mm256_set1_pd(q), OP);                                      \
        __m256d high = _mm256_cmp_pd(_mm256_loadu_pd(x + 4), _mm256_set1_pd(q), OP);                                 \
        return TREE_PLACES(_mm256_movemask_pd(low) | _mm256_movemask_pd(high) << 4);                                 \
    }
TREE_FLOATS(left, _CMP_LT_OQ)
TREE_FLOATS(right, _CMP_LE_OQ)

TREE_INLINE __m256i tree_load(const void *x) { return _mm256_loadu_si256((const __m256i *)x); }
TREE_INLINE int64_t tree_above_i32(__m256i x, __m256i y) {
    return TREE_PLACES(_mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(x, y))));
}
TREE_INLINE int64_t tree_above_i64(__m256i x, __m256i y) {
    return TREE_PLACES(_mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpgt_epi64(x, y))));
}
TREE_INLINE int64_t tree_i32_left(const int32_t *x, int32_t q) {
    return tree_above_i32(_mm256_set1_epi32(q), tree_load(x));
}
TREE_INLINE int64_t tree_i32_right(const int32_t *x, int32_t q) {
    return TREE_BLOCK - tree_above_i32(tree_load(x), _mm256_set1_epi32(q));
}
TREE_INLINE int64_t tree_i64_left(const int64_t *x, int64_t q) {
    __m256i key = _mm256_set1_epi64x(q);
    return tree_above_i64(key, tree_load(x)) + tree_above_i64(key, tree_load(x + 4));
}
TREE_INLINE int64_t tree_i64_right(const int64_t *x, int64_t q) {
    __m256i key = _mm256_set1_epi64x(q);
    return TREE_BLOCK - tree_above_i64(tree_load(x), key) - tree_above_i64(tree_load(x + 4), key);
}

/* A row's tree. `held` starts with the row's last block, padded; the shorter rows follow. */
typedef struct {
    int64_t sizes[TREE_LEVELS];
    const void *level[TREE_LEVELS];
    void *held;
    int levels;
} search_tree_of;

/* BEFORE(block, query) as above; LARGEST pads blocks. Building returns whether there was memory. */
#define TREE(name, T, BEFORE, LARGEST)                                                                               \
    static int name##_build(const void *row, int64_t n, search_tree_of *tree) {                                      \
        int64_t total = 0, *sizes = tree->sizes;                                                                     \
        int levels = 1;                                                                                              \
        for (sizes[0] = n; sizes[levels - 1] > TREE_BLOCK; levels++) {                                               \
            sizes[levels] = sizes[levels - 1] / TREE_BLOCK;                                                          \
            total += sizes[levels] + TREE_BLOCK;                                                                     \
        }                                                                                                            \
        T *held = malloc((total + TREE_BLOCK) * sizeof(T)), *next = held + TREE_BLOCK;                               \
        if (held == NULL) return 0;                                                                                  \
        tree->level[0] = row;                                                                                        \
        for (int l = 1; l < levels; l++) {                                                                           \
            const T *below = tree->level[l - 1];                                                                     \
            for (int64_t i = 0; i < sizes[l]; i++) next[i] = below[TREE_BLOCK * i + TREE_BLOCK - 1];                 \
            for (int64_t i = 0; i < TREE_BLOCK; i++) next[sizes[l] + i] = LARGEST;                                   \
            tree->level[l] = next;                                                                                   \
            next += sizes[l] + TREE_BLOCK;                                                                           \
        }                                                                                                            \
        int64_t whole = n / TREE_BLOCK * TREE_BLOCK;                                                                 \
        for (int64_t i = 0; i < TREE_BLOCK; i++) held[i] = whole + i < n ? ((const T *)row)[whole + i] : LARGEST;    \
        tree->held = held;                                                                                           \
        tree->levels = levels;                                                                                       \
        return 1;                                                                                                    \
    }                                                                                                                \
                                                                                                                     \
    TREE_TARGET static void name(const search_tree_of *tree, const void *keys, int64_t m, void *out, int wide) {     \
        const T *queries = keys, *row = tree->level[0];                                                              \
        const int64_t *sizes = tree->sizes, n = sizes[0], blocks = n / TREE_BLOCK;                                   \
        for (int64_t i = 0; i < m; i += TREE_TOGETHER) {                                                             \
            int64_t at[TREE_TOGETHER] = {0};                                                                         \
            T q[TREE_TOGETHER];                                                                                      \
            int64_t count = m - i < TREE_TOGETHER ? m - i : TREE_TOGETHER;                                           \
            for (int j = 0; j < TREE_TOGETHER; j++) q[j] = queries[i + (j < count ? j : 0)];                         \
            for (int l = tree->levels - 1; l > 0; l--)                                                               \
                for (int j = 0; j < TREE_TOGETHER; j++) {                                                            \
                    const T *block = (const T *)tree->level[l] + TREE_BLOCK * at[j];                                 \
                    int64_t found = TREE_BLOCK * at[j] + BEFORE(block, q[j]);                                        \
                    at[j] = found < sizes[l] ? found : sizes[l];                                                     \
                }                                                                                                    \
            for (int j = 0; j < TREE_TOGETHER; j++) {                                                                \
                const T *block = at[j] < blocks ? row + TREE_BLOCK * at[j] : tree->held;                             \
                int64_t found = TREE_BLOCK * at[j] + BEFORE(block, q[j]);                                            \
                at[j] = found < n ? found : n;                                                                       \
            }                                                                                                        \
            if (wide)                                                                                                \
                for (int64_t j = 0; j < count; j++) ((int64_t *)out)[i + j] = at[j];                                 \
            else                                                                                                     \
                for (int64_t j = 0; j < count; j++) ((int32_t *)out)[i + j] = (int32_t)at[j];                        \
        }                                                                                                            \
    }

TREE(search_tree_f32_left, float, tree_f32_left, __builtin_nanf(""))
TREE(search_tree_f32_right, float, tree_f32_right, __builtin_nanf(""))
TREE(search_tree_f64_left, double, tree_f64_left, __builtin_nan(""))
TREE(search_tree_f64_right, double, tree_f64_right, __builtin_nan(""))
TREE(search_tree_i32_left, int32_t, tree_i32_left, INT32_MAX)
TREE(search_tree_i32_right, int32_t, tree_i32_right, INT32_MAX)
TREE(search_tree_i64_left, int64_t, tree_i64_left, INT64_MAX)
TREE(search_tree_i64_right, int64_t, tree_i64_right, INT64_MAX)

#define TREE_THERE 1
static int search_tree_possible(void) { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt"); }
#endif

#endif
