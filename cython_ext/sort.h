/* Rows of arrays in the order of their keys; equal elements stay in order.

   An element's key is a number of at most 64 bits, or several of them (groups), each made of parts: numbers of an
   operand whose order is that of unsigned integers. A key is packed with its place in the row into one integer, and
   NumPy's vector instructions sort those. Of a key that leaves no room for the place the upper bits are packed, and
   what is equal then is sorted by the rest.

   words: rows, elements of a row, operands, groups, NumPy's number of the type of values alone (else -1), where the
   tables begin; the bytes of an element of each operand; for each group its bits and its parts; for each part, in order of groups: operand, first
   byte in the element, bytes, form, the bits of infinity or the number of the table. Tables: ranks of 256 bytes.

   buffers: operands, results, status. */
#ifndef MPIJAX_SORT_H
#define MPIJAX_SORT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define SORT_SHORT 256 /* rows whose keys need no memory of their own */
#define SORT_NUMBERS 13 /* NumPy's types of real numbers, from bool to float64 */
#define SORT_KEYS 8 /* NumPy's number of the type of packed keys, uint64 */
#define SORT_RUNS 8 /* runs in order, up to which they are merged */
#define SORT_MERGED 1024 /* elements of a row from which on runs are looked for */

enum { SORT_UNSIGNED, SORT_SIGNED, SORT_FLOAT, SORT_TABLE };
enum { SORT_ROWS, SORT_LENGTH, SORT_OPERANDS, SORT_GROUPS, SORT_VALUES, SORT_TABLES, SORT_HEAD };
enum { PART_OPERAND, PART_OFFSET, PART_BYTES, PART_FORM, PART_DETAIL, PART_WORDS };

typedef int (*sort_function)(void *, intptr_t, void *);

typedef struct {
    const int64_t *words, *sizes, *groups, *parts;
    void **buffers;
    int64_t row;
    sort_function sort, merge; /* of any row, and of one that consists of a few runs in order */
    uint64_t *keys, *packed, *order, *held;
} sort_job;

static inline int sort_bits(uint64_t x) { return x ? 64 - __builtin_clzll(x) : 0; }

/* ---- keys

   keys[i] = (keys[i] & keep, followed by the part) << lift | i & places, for the elements at order[i], or i. */

#define SORT_EACH(T, KEY)                                                                                             \
    for (int64_t i = 0; i < n; i++) {                                                                                 \
        T b = *(const T *)(x + (order ? (int64_t)order[i] : i) * size);                                               \
        uint64_t key = ((keys[i] & keep) << (8 * sizeof(T) - 1)) << 1 | (T)(KEY);                                     \
        keys[i] = key << lift | ((uint64_t)i & places);                                                               \
    }                                                                                                                 \
    break

#define SORT_FORMS(T)                                                                                                 \
    {                                                                                                                 \
        const T sign = (T)1 << (8 * sizeof(T) - 1), infinity = (T)part[PART_DETAIL];                                  \
        switch (part[PART_FORM]) {                                                                                    \
        case SORT_UNSIGNED: SORT_EACH(T, b);                                                                          \
        case SORT_SIGNED: SORT_EACH(T, b ^ sign);                                                                     \
        default: SORT_EACH(T, (T)(b & ~sign) > infinity ? ~(T)0 : b & sign ? (T)(sign - (b & ~sign)) : (T)(sign + b)); \
        }                                                                                                             \
    }                                                                                                                 \
    break

static void sort_part_of_keys(const sort_job *job, const int64_t *part, const uint64_t *order, int64_t n,
                              uint64_t *keys, uint64_t keep, int lift, uint64_t places) {
    const int64_t size = job->sizes[part[PART_OPERAND]];
    const char *x = (const char *)job->buffers[part[PART_OPERAND]] + job->row * job->words[SORT_LENGTH] * size;
    x += part[PART_OFFSET];
    switch (part[PART_BYTES]) {
    case 1: {
        const uint8_t *ranks = (const uint8_t *)(job->words + job->words[SORT_TABLES]) + 256 * part[PART_DETAIL];
        SORT_EACH(uint8_t, ranks[b]);
    }
    case 2: SORT_FORMS(uint16_t);
    case 4: SORT_FORMS(uint32_t);
    default: SORT_FORMS(uint64_t);
    }
}

/* The keys of one group; `lift`, `places`: how they are packed. */
static void sort_keys(const sort_job *job, int64_t group, const uint64_t *order, int64_t n, uint64_t *keys, int lift,
                      uint64_t places) {
    const int64_t *part = job->parts;
    for (int64_t g = 0; g < group; g++) part += PART_WORDS * job->groups[2 * g + 1];
    const int64_t last = job->groups[2 * group + 1] - 1;
    for (int64_t p = 0; p <= last; p++, part += PART_WORDS)
        sort_part_of_keys(job, part, order, n, keys, p ? ~(uint64_t)0 : 0, p == last ? lift : 0,
                          p == last ? places : 0);
}

/* ---- orders */

/* Whether a row consists of a few runs in order, as the parts of other ranks do. Of a random one it looks at the first
   elements only. */
#define SORT_FEW_RUNS(NAME, T)                                                                                        \
    static int sort_few_runs_##NAME(const T *x, int64_t n) {                                                          \
        int runs = 1;                                                                                                 \
        for (int64_t i = 1; i < n; i += 64) {                                                                         \
            const int64_t end = i + 64 < n ? i + 64 : n;                                                              \
            for (int64_t j = i; j < end; j++) runs += x[j - 1] > x[j];                                                \
            if (runs > SORT_RUNS) return 0;                                                                           \
        }                                                                                                             \
        return 1;                                                                                                     \
    }

SORT_FEW_RUNS(u4, uint32_t)
SORT_FEW_RUNS(u8, uint64_t)
SORT_FEW_RUNS(i4, int32_t)
SORT_FEW_RUNS(i8, int64_t)
SORT_FEW_RUNS(f4, float)
SORT_FEW_RUNS(f8, double)

static int sort_few_runs(const void *x, int64_t n, int64_t size, int64_t form) {
    if (n < SORT_MERGED || size < 4) return 0;
    if (form == SORT_FLOAT) return size == 4 ? sort_few_runs_f4(x, n) : sort_few_runs_f8(x, n);
    if (form == SORT_SIGNED) return size == 4 ? sort_few_runs_i4(x, n) : sort_few_runs_i8(x, n);
    return size == 4 ? sort_few_runs_u4(x, n) : sort_few_runs_u8(x, n);
}

static inline void sort_integers(const sort_job *job, uint64_t *x, int64_t n) {
    if (n > 8) {
        (sort_few_runs(x, n, sizeof *x, SORT_UNSIGNED) ? job->merge : job->sort)(x, n, NULL);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        uint64_t e = x[i];
        int64_t j = i;
        for (; j > 0 && x[j - 1] > e; j--) x[j] = x[j - 1];
        x[j] = e;
    }
}

/* Sorts the elements at order[begin:end] by a group and those behind it. */
static void sort_range(const sort_job *job, int64_t begin, int64_t end, int64_t group) {
    const int64_t n = end - begin;
    uint64_t *keys = job->keys + begin, *packed = job->packed + begin, *order = job->order + begin;
    uint64_t lowest = ~(uint64_t)0, highest = 0;
    for (; lowest >= highest; group++) { /* groups in which all are equal say nothing */
        if (n < 2 || group == job->words[SORT_GROUPS]) return;
        sort_keys(job, group, order, n, keys, 0, 0);
        lowest = ~(uint64_t)0, highest = 0;
        for (int64_t i = 0; i < n; i++) {
            lowest = keys[i] < lowest ? keys[i] : lowest;
            highest = keys[i] > highest ? keys[i] : highest;
        }
    }
    group--;
    const int places = sort_bits(n - 1), excess = sort_bits(highest - lowest) + places - 64;
    const int left_out = excess > 0 ? excess : 0;
    const uint64_t mask = ((uint64_t)1 << places) - 1;
    for (int64_t i = 0; i < n; i++) packed[i] = (keys[i] - lowest) >> left_out << places | (uint64_t)i;
    sort_integers(job, packed, n);
    uint64_t *held = job->held + begin;
    memcpy(held, order, n * sizeof(uint64_t));
    for (int64_t i = 0; i < n; i++) order[i] = held[packed[i] & mask];
    if (!left_out && group + 1 == job->words[SORT_GROUPS]) return;
    for (int64_t i = 0, j; i < n; i = j) {
        for (j = i + 1; j < n && packed[j] >> places == packed[i] >> places; j++) continue;
        if (j - i > 1) sort_range(job, begin + i, begin + j, left_out ? group : group + 1);
    }
}

/* ---- results */

typedef struct {
    uint64_t half[2];
} sort_pair;

#define SORT_TAKE(T)                                                                                                  \
    for (int64_t i = 0; i < n; i++) ((T *)out)[i] = ((const T *)x)[order[i] & mask];                                  \
    break

static void sort_take(char *restrict out, const char *restrict x, int64_t size, const uint64_t *order, uint64_t mask,
                      int64_t n) {
    switch (size) {
    case 1: SORT_TAKE(uint8_t);
    case 2: SORT_TAKE(uint16_t);
    case 4: SORT_TAKE(uint32_t);
    case 8: SORT_TAKE(uint64_t);
    case 16: SORT_TAKE(sort_pair);
    default:
        for (int64_t i = 0; i < n; i++) memcpy(out + i * size, x + (order[i] & mask) * size, size);
    }
}

static void sort_by_keys(const sort_job *job) {
    const int64_t n = job->words[SORT_LENGTH], operands = job->words[SORT_OPERANDS];
    const int places = sort_bits(n - 1);
    uint64_t mask = ((uint64_t)1 << places) - 1;
    if (job->words[SORT_GROUPS] == 1 && job->groups[0] + places <= 64) {
        sort_keys(job, 0, NULL, n, job->order, places, mask);
        sort_integers(job, job->order, n);
    } else {
        for (int64_t i = 0; i < n; i++) job->order[i] = (uint64_t)i;
        sort_range(job, 0, n, 0);
    }
    for (int64_t o = 0; o < operands; o++) {
        const int64_t size = job->sizes[o], first = job->row * n * size;
        sort_take((char *)job->buffers[operands + o] + first, (const char *)job->buffers[o] + first, size, job->order,
                  mask, n);
    }
}

/* ---- values alone: equal ones are the same, but for zeros of both signs */

#define SORT_ZEROS(T, I, SIGN)                                                                                        \
    static void sort_zeros_##T(T *out, const T *x, int64_t n) {                                                       \
        I found = 0;                                                                                                  \
        for (int64_t i = 0; i < n; i++) found |= ((const I *)x)[i] == SIGN;                                           \
        if (!found) return;                                                                                           \
        int64_t low = 0, high = n;                                                                                    \
        while (low < high) {                                                                                          \
            const int64_t middle = low + (high - low) / 2;                                                            \
            if (out[middle] < 0) low = middle + 1;                                                                    \
            else high = middle;                                                                                       \
        }                                                                                                             \
        for (int64_t i = 0; i < n; i++)                                                                               \
            if (x[i] == 0) out[low++] = x[i];                                                                         \
    }

SORT_ZEROS(float, uint32_t, 0x80000000u)
SORT_ZEROS(double, uint64_t, 0x8000000000000000u)

static void sort_values(const sort_job *job) {
    const int64_t n = job->words[SORT_LENGTH], size = job->sizes[0], first = job->row * n * size;
    const char *x = (const char *)job->buffers[0] + first;
    char *out = (char *)job->buffers[1] + first;
    memcpy(out, x, n * size);
    (sort_few_runs(x, n, size, job->parts[PART_FORM]) ? job->merge : job->sort)(out, n, NULL);
    if (job->parts[PART_FORM] != SORT_FLOAT) return;
    if (size == 4) sort_zeros_float((float *)out, (const float *)x, n);
    else sort_zeros_double((double *)out, (const double *)x, n);
}

static void sort_run(void **buffers, const int64_t *words, const sort_function *functions,
                     const sort_function *merging) {
    const int64_t n = words[SORT_LENGTH], operands = words[SORT_OPERANDS], groups = words[SORT_GROUPS];
    const int64_t values = words[SORT_VALUES];
    sort_job job = {.words = words, .sizes = words + SORT_HEAD, .buffers = buffers};
    job.sort = functions[values < 0 ? SORT_KEYS : values];
    job.merge = merging[values < 0 ? SORT_KEYS : values];
    job.groups = job.sizes + operands;
    job.parts = job.groups + 2 * groups;
    if (n == 0) return;
    if (values >= 0) {
        for (; job.row < words[SORT_ROWS]; job.row++) sort_values(&job);
        return;
    }
    uint64_t few[4 * SORT_SHORT], *memory = few;
    const int whole = groups == 1 && job.groups[0] + sort_bits(n - 1) <= 64;
    if (n > SORT_SHORT) memory = malloc((whole ? 1 : 4) * n * sizeof(uint64_t));
    if (!memory) {
        *(int32_t *)buffers[2 * operands] = 1;
        return;
    }
    job.order = memory;
    if (!whole) job.keys = memory + n, job.packed = memory + 2 * n, job.held = memory + 3 * n;
    for (; job.row < words[SORT_ROWS]; job.row++) sort_by_keys(&job);
    if (memory != few) free(memory);
}

#endif
