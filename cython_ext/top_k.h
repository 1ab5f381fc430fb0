/* The k largest elements of rows, in descending order, and their positions; of equal ones the first.

   Elements are compared as integers of their width. A row is read once: blocks without an element above the smallest of
   the k largest so far are skipped. For a small k, the others are inserted into a sorted list. For a larger k, they are
   collected until there are as many again, of which the k largest are kept. */
#ifndef MPIJAX_TOP_K_H
#define MPIJAX_TOP_K_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "share.h"

#define TOP_K_BLOCK 64
#define TOP_K_PART 8 /* elements of a block that are looked at together */
#define TOP_K_LEAST 16384 /* minimum elements per thread */
#define TOP_K_SHORT 16 /* at most this many entries are sorted by insertion */
#define TOP_K_FEW 64 /* at most this many are kept sorted while a row is read */

typedef struct {
    int64_t key, place;
} top_k_entry;

static inline int top_k_before(top_k_entry a, top_k_entry b) {
    return a.key > b.key || (a.key == b.key && a.place < b.place);
}

/* Partitions n >= 2 entries into two parts, the first one before the second; returns the size of the first. */
static int64_t top_k_split(top_k_entry *a, int64_t n, uint32_t *random) {
    *random = *random * 1664525u + 1013904223u;
    top_k_entry pivot = a[(int64_t)(((uint64_t)*random * (uint64_t)(n - 1)) >> 32)];
    int64_t i = -1, j = n;
    for (;;) {
        do i++;
        while (top_k_before(a[i], pivot));
        do j--;
        while (top_k_before(pivot, a[j]));
        if (i >= j) return j + 1;
        top_k_entry held = a[i];
        a[i] = a[j];
        a[j] = held;
    }
}

/* Moves the first k of n entries to the front, in any order. */
static void top_k_select(top_k_entry *a, int64_t n, int64_t k, uint32_t *random) {
    for (int64_t from = 0; n - from > 1;) {
        int64_t middle = from + top_k_split(a + from, n - from, random);
        if (middle == k) return;
        if (middle > k) n = middle;
        else from = middle;
    }
}

/* Inserts an entry among n sorted ones; overwrites entry n. */
static inline void top_k_insert(top_k_entry *a, int64_t n, top_k_entry e) {
    for (; n > 0 && top_k_before(e, a[n - 1]); n--) a[n] = a[n - 1];
    a[n] = e;
}

static void top_k_sort(top_k_entry *a, int64_t n, uint32_t *random) {
    while (n > TOP_K_SHORT) { /* recurse into the shorter part */
        int64_t m = top_k_split(a, n, random);
        if (m < n - m) {
            top_k_sort(a, m, random);
            a += m;
            n -= m;
        } else {
            top_k_sort(a + m, n - m, random);
            n = m;
        }
    }
    for (int64_t i = 1; i < n; i++) top_k_insert(a, i, a[i]);
}

/* Integers; unsigned integers, mapped to signed ones; floats, whose bits decrease below zero. */
#define TOP_K_INTEGER(x) (x)
#define TOP_K_UNSIGNED(x) (I)((x) ^ LOWEST)
#define TOP_K_FLOAT(x) (I)((x) ^ (((x) >> (8 * sizeof(I) - 1)) & ~LOWEST))

#define I int8_t
#define LOWEST INT8_MIN
#define NAMED(name) name##_8
#include "top_k_width.h"
#define I int16_t
#define LOWEST INT16_MIN
#define NAMED(name) name##_16
#include "top_k_width.h"
#define I int32_t
#define LOWEST INT32_MIN
#define NAMED(name) name##_32
#include "top_k_width.h"
#define I int64_t
#define LOWEST INT64_MIN
#define NAMED(name) name##_64
#include "top_k_width.h"

typedef void (*top_k_rows)(int, const void *, void *, int32_t *, int64_t, int64_t, int64_t, int64_t, int64_t,
                           top_k_entry *, int64_t, void *);

static share_function top_k_share;

static void top_k_some(void **buffers, int64_t *words, int64_t begin, int64_t end) {
    static const top_k_rows rows[4] = {top_k_rows_8, top_k_rows_16, top_k_rows_32, top_k_rows_64};
    int64_t n = words[3], behind = words[4], k = words[5];
    int64_t capacity = (k <= n / 2 ? 2 * k : n) + 2 * TOP_K_BLOCK;
    top_k_entry *held = malloc(capacity * sizeof(top_k_entry));
    void *line = behind > 1 ? malloc(n << words[0]) : NULL;
    if (held == NULL || (behind > 1 && line == NULL)) *(int32_t *)buffers[3] = 1;
    else
        rows[words[0]]((int)words[1], buffers[0], buffers[1], buffers[2], begin, end, n, behind, k, held, capacity, line);
    free(held);
    free(line);
}

/* buffers: operand, values, positions, an int32 that is not 0 if there was no memory. words: log2 of the elements'
   bytes; 0 for integers, 1 for unsigned ones, 2 for floats; sizes before the axis, of it and after it; k. */
static void top_k_run(void **buffers, const int64_t *words) {
    int64_t rows = words[2] * words[4];
    if (rows == 0 || words[5] == 0) return;
    top_k_share(top_k_some, buffers, (int64_t *)words, rows, share_grain(TOP_K_LEAST, words[3]));
}

#endif
