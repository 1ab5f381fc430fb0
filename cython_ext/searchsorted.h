/* The number of elements of a sorted row before each query.

   Rows are bisected without branches, for several queries at once: while the steps of one wait for memory, those of
   others proceed. In short rows all elements are compared. Zeros are equal; NaN equals NaN and is above all numbers. */
#ifndef MPIJAX_SEARCHSORTED_H
#define MPIJAX_SEARCHSORTED_H

#include <stdint.h>

#include "search_tree.h"
#include "share.h"
#include "wide.h"

#define SEARCH_TOGETHER 8
#define SEARCH_SHORT 24 /* rows of at most this many elements are not bisected */

/* Order-preserving integers of 16-bit floats; INF: the bits of infinity. */
static inline int16_t search_narrow(uint16_t bits, uint16_t inf) {
    int16_t magnitude = (int16_t)(bits & 0x7fff);
    if (magnitude > inf) return INT16_MAX;
    return (int16_t)(bits >> 15 ? -magnitude : magnitude);
}

#define SEARCH_KEY_PLAIN(x) (x)
#define SEARCH_KEY_F16(x) search_narrow((x), 0x7c00)
#define SEARCH_KEY_BF16(x) search_narrow((x), 0x7f80)

/* Keeps GCC from vectorizing several queries with gather loads, which are slower. */
#if defined(__GNUC__)
#define SEARCH_ALONE(x) __asm__("" : "+r"(x))
#else
#define SEARCH_ALONE(x)
#endif

static inline void search_put(void *out, int wide, int64_t i, int64_t place) {
    if (wide) ((int64_t *)out)[i] = place;
    else ((int32_t *)out)[i] = (int32_t)place;
}

/* T: element type; K: type compared; KEY(element); OP: < for the first position, <= for the last. */
#define SEARCH_ROW(name, T, K, KEY, OP)                                                                              \
    WIDE static void name##_few(const T *a, int64_t n, const T *q, int64_t m, void *out, int wide) {                 \
        for (int64_t i = 0; i < m; i += SEARCH_TOGETHER) {                                                           \
            int64_t count = m - i < SEARCH_TOGETHER ? m - i : SEARCH_TOGETHER;                                       \
            int32_t places[SEARCH_TOGETHER] = {0};                                                                   \
            K keys[SEARCH_TOGETHER];                                                                                 \
            for (int64_t j = 0; j < SEARCH_TOGETHER; j++) keys[j] = KEY(q[i + (j < count ? j : 0)]);                 \
            for (int64_t k = 0; k < n; k++) {                                                                        \
                K x = KEY(a[k]);                                                                                     \
                for (int64_t j = 0; j < SEARCH_TOGETHER; j++) places[j] += x OP keys[j];                             \
            }                                                                                                        \
            for (int64_t j = 0; j < count; j++) search_put(out, wide, i + j, places[j]);                             \
        }                                                                                                            \
    }                                                                                                                \
                                                                                                                     \
    static void name(const void *row, int64_t n, const void *queries, int64_t m, void *out, int wide) {              \
        const T *a = row, *q = queries;                                                                              \
        if (n <= SEARCH_SHORT) {                                                                                     \
            name##_few(a, n, q, m, out, wide);                                                                       \
            return;                                                                                                  \
        }                                                                                                            \
        for (int64_t i = 0; i < m; i += SEARCH_TOGETHER) {                                                           \
            int64_t count = m - i < SEARCH_TOGETHER ? m - i : SEARCH_TOGETHER, left = n;                             \
            uint64_t at[SEARCH_TOGETHER] = {0};                                                                      \
            K keys[SEARCH_TOGETHER];                                                                                 \
            for (int64_t j = 0; j < SEARCH_TOGETHER; j++) keys[j] = KEY(q[i + (j < count ? j : 0)]);                 \
            while (left > 1) {                                                                                       \
                int64_t half = left >> 1;                                                                            \
                const T *middle = a + half - 1;                                                                      \
                for (int j = 0; j < SEARCH_TOGETHER; j++) {                                                          \
                    at[j] += (uint64_t)half & -(uint64_t)(KEY(middle[at[j]]) OP keys[j]);                            \
                    SEARCH_ALONE(at[j]);                                                                             \
                }                                                                                                    \
                left -= half;                                                                                        \
            }                                                                                                        \
            for (int64_t j = 0; j < count; j++) {                                                                    \
                search_put(out, wide, i + j, (int64_t)at[j] + (KEY(a[at[j]]) OP keys[j]));                           \
            }                                                                                                        \
        }                                                                                                            \
    }

#define SEARCH_SIDES(name, T, K, KEY)           \
    SEARCH_ROW(name##_left, T, K, KEY, <)       \
    SEARCH_ROW(name##_right, T, K, KEY, <=)

/* Positions that comparisons do not determine: those of NaN. */
#define SEARCH_ODD(name, T)                                                                                          \
    WIDE static void name(const void *row, int64_t n, const void *queries, int64_t m, void *out, int wide, int last) { \
        const T *a = row, *q = queries;                                                                              \
        int odd = 0;                                                                                                 \
        for (int64_t i = 0; i < m; i++) odd |= q[i] != q[i];                                                         \
        if (!odd) return;                                                                                            \
        int64_t numbers = n;                                                                                         \
        while (!last && numbers > 0 && a[numbers - 1] != a[numbers - 1]) numbers--;                                  \
        for (int64_t i = 0; i < m; i++)                                                                              \
            if (q[i] != q[i]) search_put(out, wide, i, numbers);                                                     \
    }

SEARCH_SIDES(search_i8, int8_t, int8_t, SEARCH_KEY_PLAIN)
SEARCH_SIDES(search_i16, int16_t, int16_t, SEARCH_KEY_PLAIN)
SEARCH_SIDES(search_i32, int32_t, int32_t, SEARCH_KEY_PLAIN)
SEARCH_SIDES(search_i64, int64_t, int64_t, SEARCH_KEY_PLAIN)
SEARCH_SIDES(search_u8, uint8_t, uint8_t, SEARCH_KEY_PLAIN)
SEARCH_SIDES(search_u16, uint16_t, uint16_t, SEARCH_KEY_PLAIN)
SEARCH_SIDES(search_u32, uint32_t, uint32_t, SEARCH_KEY_PLAIN)
SEARCH_SIDES(search_u64, uint64_t, uint64_t, SEARCH_KEY_PLAIN)
SEARCH_SIDES(search_f16, uint16_t, int16_t, SEARCH_KEY_F16)
SEARCH_SIDES(search_bf16, uint16_t, int16_t, SEARCH_KEY_BF16)
SEARCH_SIDES(search_f32, float, float, SEARCH_KEY_PLAIN)
SEARCH_SIDES(search_f64, double, double, SEARCH_KEY_PLAIN)
SEARCH_ODD(search_odd_f32, float)
SEARCH_ODD(search_odd_f64, double)

typedef void (*search_row)(const void *, int64_t, const void *, int64_t, void *, int);
#ifdef TREE_THERE
typedef struct {
    int (*build)(const void *, int64_t, search_tree_of *);
    void (*search)(const search_tree_of *, const void *, int64_t, void *, int);
} search_tree;
#endif
typedef void (*search_odd)(const void *, int64_t, const void *, int64_t, void *, int, int);

typedef struct {
    int64_t bytes;
    search_row rows[2]; /* for the first position, for the last */
    search_odd odd;
#ifdef TREE_THERE
    search_tree trees[2];
#endif
} search_kind;

#define SEARCH_BOTH(name) {name##_left, name##_right}
#ifdef TREE_THERE
#define SEARCH_TREES(name) , {{name##_left_build, name##_left}, {name##_right_build, name##_right}}
#else
#define SEARCH_TREES(name)
#endif

/* In the order of the type numbers in a program's words. */
static const search_kind search_kinds[12] = {
    {1, SEARCH_BOTH(search_i8), 0},
    {2, SEARCH_BOTH(search_i16), 0},
    {4, SEARCH_BOTH(search_i32), 0 SEARCH_TREES(search_tree_i32)},
    {8, SEARCH_BOTH(search_i64), 0 SEARCH_TREES(search_tree_i64)},
    {1, SEARCH_BOTH(search_u8), 0},
    {2, SEARCH_BOTH(search_u16), 0},
    {4, SEARCH_BOTH(search_u32), 0},
    {8, SEARCH_BOTH(search_u64), 0},
    {2, SEARCH_BOTH(search_f16), 0},
    {2, SEARCH_BOTH(search_bf16), 0},
    {4, SEARCH_BOTH(search_f32), search_odd_f32 SEARCH_TREES(search_tree_f32)},
    {8, SEARCH_BOTH(search_f64), search_odd_f64 SEARCH_TREES(search_tree_f64)},
};

#define SEARCH_LEAST 4096 /* minimum queries per thread */
#define SEARCH_ROWS 16    /* from this many rows on, threads share the rows; with fewer, the queries */

typedef struct {
    const search_kind *kind;
    int last, wide, by_tree;
    int64_t n, m;
    const char *row, *queries;
    char *places;
#ifdef TREE_THERE
    search_tree_of tree;
#endif
} search_job;

static void search_some(void **unused, int64_t *params, int64_t begin, int64_t end) {
    const search_job *job = (const search_job *)params;
    const char *queries = job->queries + begin * job->kind->bytes;
    char *places = job->places + begin * (job->wide ? 8 : 4);
    (void)unused;
#ifdef TREE_THERE
    if (job->by_tree) job->kind->trees[job->last].search(&job->tree, queries, end - begin, places, job->wide);
    else
#endif
        job->kind->rows[job->last](job->row, job->n, queries, end - begin, places, job->wide);
    if (job->kind->odd) job->kind->odd(job->row, job->n, queries, end - begin, places, job->wide, job->last);
}

static share_function search_share;

/* Rows of a call of `searchsorted_run`. A tree pays off with many queries: building it reads every eighth element, and
   each search then takes a third of the steps. */
static void search_rows(void **buffers, int64_t *words, int64_t begin, int64_t end) {
    search_job job = {.kind = &search_kinds[words[0]], .last = (int)words[1], .wide = (int)words[2]};
    const int64_t n = job.n = words[4], m = job.m = words[5];
    for (int64_t r = begin; r < end; r++) {
        job.row = (const char *)buffers[0] + r * n * job.kind->bytes;
        job.queries = (const char *)buffers[1] + r * m * job.kind->bytes;
        job.places = (char *)buffers[2] + r * m * (job.wide ? 8 : 4);
#ifdef TREE_THERE
        const search_tree *tree = &job.kind->trees[job.last];
        job.by_tree = tree->build && n > 64 && m >= n / 16 && search_tree_possible() && tree->build(job.row, n, &job.tree);
#endif
        search_share(search_some, NULL, (int64_t *)&job, m, SEARCH_LEAST);
#ifdef TREE_THERE
        if (job.by_tree) free(job.tree.held);
#endif
    }
}

/* buffers: sorted rows, queries, positions. words: the element type, as in the table; 1 for the last position among
   equal elements, 0 for the first; 1 for 64-bit positions, 0 for 32-bit; rows; elements of a row; queries of a row. */
static void searchsorted_run(void **buffers, const int64_t *words) {
    int64_t rows = words[3];
    if (rows < SEARCH_ROWS) search_rows(buffers, (int64_t *)words, 0, rows);
    else search_share(search_rows, buffers, (int64_t *)words, rows, share_grain(SEARCH_LEAST, words[5]));
}

#endif
