/* Sorts rows of arrays by keys; equal elements keep their order.

   An element's key is a number of at most 64 bits, or several of them (groups), each made of parts: numbers of an
   operand mapped to order-preserving unsigned integers. A key and the element's position in the row are packed into one
   integer. NumPy's vectorized sort sorts these integers; in long rows, radix passes over the bytes of the keys do. If a
   key leaves no room for the position, its upper bits are packed, and elements equal in them are then sorted by the
   rest.

   Threads share the rows, or the passes over a long row. The order depends only on the elements, not on the
   threads.

   words: rows, elements of a row, operands, groups, NumPy's type number if only values are sorted (else -1), the bytes
   of an element's position if positions are a last result (else 0), the offset of the tables; the bytes of an element of
   each operand; for each group its bits and its number of parts; for each part, in order of groups: operand, first byte
   in the element, bytes, form, the bits of infinity or the number of the table. Tables: ranks of 256 bytes.

   buffers: operands, results, status. If only values are sorted, the result may be the operand. */
#ifndef MPIJAX_SORT_H
#define MPIJAX_SORT_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "share.h"

#define SORT_SHORT 256 /* rows of at most this length keep their keys on the stack */
#define SORT_NUMBERS 13 /* NumPy's types of real numbers, from bool to float64 */
#define SORT_KEYS 8 /* NumPy's type number of packed keys, uint64 */
#define SORT_RUNS 8 /* at most this many sorted runs are merged */
#define SORT_MERGED 1024 /* minimum elements of a row to search for runs */
#define SORT_LONG 4096 /* minimum elements of a row to sort it by radix passes */
#define SORT_LEAST 16384 /* minimum elements per thread */
#define SORT_FEW_ROWS 16 /* with fewer long rows, threads share each row */
#define SORT_PARTS 64 /* maximum parts of a row in a pass */
#define SORT_DIGITS 256

enum { SORT_UNSIGNED, SORT_SIGNED, SORT_FLOAT, SORT_TABLE };
enum { SORT_ROWS, SORT_LENGTH, SORT_OPERANDS, SORT_GROUPS, SORT_VALUES, SORT_POSITIONS, SORT_TABLES, SORT_HEAD };
enum { PART_OPERAND, PART_OFFSET, PART_BYTES, PART_FORM, PART_DETAIL, PART_WORDS };

typedef int (*sort_function)(void *, intptr_t, void *);

typedef struct {
    const int64_t *words, *sizes, *groups, *parts;
    void **buffers;
    int64_t row;
    sort_function sort, merge; /* for any row, and for one that consists of a few sorted runs */
    uint64_t *keys, *packed, *order, *held;
} sort_job;

static share_function sort_share;

/* Set to 1 if there is not enough memory. */
static inline int32_t *sort_status(const sort_job *job) {
    return job->buffers[2 * job->words[SORT_OPERANDS] + (job->words[SORT_POSITIONS] > 0)];
}

static inline int sort_bits(uint64_t x) { return x ? 64 - __builtin_clzll(x) : 0; }

/* ---- keys

   keys[i] = (keys[i] & keep, followed by the part) << lift | i & places, for the elements at order[i], or i. */

#define SORT_EACH(T, KEY)                                                                                             \
    for (int64_t i = begin; i < end; i++) {                                                                           \
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

static void sort_part_of_keys(const sort_job *job, const int64_t *part, const uint64_t *order, int64_t begin,
                              int64_t end, uint64_t *keys, uint64_t keep, int lift, uint64_t places) {
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

typedef struct {
    const sort_job *job;
    int64_t group;
    const uint64_t *order;
    uint64_t *keys, places;
    int lift;
} sort_keying;

static void sort_some_keys(void **unused, int64_t *params, int64_t begin, int64_t end) {
    const sort_keying *k = (const sort_keying *)params;
    const int64_t *part = k->job->parts, *groups = k->job->groups;
    (void)unused;
    for (int64_t g = 0; g < k->group; g++) part += PART_WORDS * groups[2 * g + 1];
    const int64_t last = groups[2 * k->group + 1] - 1;
    for (int64_t p = 0; p <= last; p++, part += PART_WORDS)
        sort_part_of_keys(k->job, part, k->order, begin, end, k->keys, p ? ~(uint64_t)0 : 0, p == last ? k->lift : 0,
                          p == last ? k->places : 0);
}

/* The keys of one group. lift, places: how they are packed. */
static void sort_keys(const sort_job *job, int64_t group, const uint64_t *order, int64_t n, uint64_t *keys, int lift,
                      uint64_t places) {
    sort_keying k = {job, group, order, keys, places, lift};
    sort_share(sort_some_keys, NULL, (int64_t *)&k, n, SORT_LEAST);
}

/* ---- radix: passes over the digits of keys, from the last one

   A pass counts the elements of each part of a row by one digit of their keys. It then writes them, part by part, after
   those with smaller digits, so equal elements keep their order. Digits common to all elements need no pass. */

typedef struct {
    const void *from;
    void *to;
    int64_t n, part;
    int shift;
    uint64_t differ[SORT_PARTS];
    int64_t places[SORT_PARTS][SORT_DIGITS];
} sort_pass;

static inline uint32_t sort_plain_32(uint32_t b) { return b; }
static inline uint32_t sort_signed_32(uint32_t b) { return b ^ 0x80000000u; }
static inline uint32_t sort_float_32(uint32_t b) {
    const uint32_t sign = 0x80000000u, size = b & ~sign;
    return size > 0x7f800000u ? ~(uint32_t)0 : b & sign ? sign - size : sign + b;
}
static inline uint64_t sort_plain_64(uint64_t b) { return b; }
static inline uint64_t sort_signed_64(uint64_t b) { return b ^ 0x8000000000000000u; }
static inline uint64_t sort_float_64(uint64_t b) {
    const uint64_t sign = 0x8000000000000000u, size = b & ~sign;
    return size > 0x7ff0000000000000u ? ~(uint64_t)0 : b & sign ? sign - size : sign + b;
}

#define SORT_PASS(NAME, T)                                                                                            \
    static void sort_compare_##NAME(void **unused, int64_t *params, int64_t begin, int64_t end) {                     \
        sort_pass *pass = (sort_pass *)params;                                                                        \
        const T *x = pass->from, first = sort_##NAME(x[0]);                                                           \
        (void)unused;                                                                                                 \
        for (int64_t p = begin; p < end; p++) {                                                                       \
            const int64_t last = (p + 1) * pass->part < pass->n ? (p + 1) * pass->part : pass->n;                     \
            T differ = 0;                                                                                             \
            for (int64_t i = p * pass->part; i < last; i++) differ |= sort_##NAME(x[i]) ^ first;                      \
            pass->differ[p] = differ;                                                                                 \
        }                                                                                                             \
    }                                                                                                                 \
                                                                                                                      \
    static void sort_count_##NAME(void **unused, int64_t *params, int64_t begin, int64_t end) {                       \
        sort_pass *pass = (sort_pass *)params;                                                                        \
        const T *x = pass->from;                                                                                      \
        const int shift = pass->shift;                                                                                \
        (void)unused;                                                                                                 \
        for (int64_t p = begin; p < end; p++) {                                                                       \
            const int64_t last = (p + 1) * pass->part < pass->n ? (p + 1) * pass->part : pass->n;                     \
            int64_t *counts = pass->places[p];                                                                        \
            memset(counts, 0, SORT_DIGITS * sizeof(int64_t));                                                         \
            for (int64_t i = p * pass->part; i < last; i++) counts[(uint8_t)(sort_##NAME(x[i]) >> shift)]++;          \
        }                                                                                                             \
    }                                                                                                                 \
                                                                                                                      \
    static void sort_move_##NAME(void **unused, int64_t *params, int64_t begin, int64_t end) {                        \
        sort_pass *pass = (sort_pass *)params;                                                                        \
        const T *x = pass->from;                                                                                      \
        T *out = pass->to;                                                                                            \
        const int shift = pass->shift;                                                                                \
        (void)unused;                                                                                                 \
        for (int64_t p = begin; p < end; p++) {                                                                       \
            const int64_t last = (p + 1) * pass->part < pass->n ? (p + 1) * pass->part : pass->n;                     \
            int64_t *places = pass->places[p];                                                                        \
            for (int64_t i = p * pass->part; i < last; i++) {                                                         \
                const T e = x[i];                                                                                     \
                out[places[(uint8_t)(sort_##NAME(e) >> shift)]++] = e;                                                \
            }                                                                                                         \
        }                                                                                                             \
    }

SORT_PASS(plain_32, uint32_t)
SORT_PASS(signed_32, uint32_t)
SORT_PASS(float_32, uint32_t)
SORT_PASS(plain_64, uint64_t)
SORT_PASS(signed_64, uint64_t)
SORT_PASS(float_64, uint64_t)

typedef struct {
    share_kernel compare, count, move;
} sort_passes;

#define SORT_PASSES(NAME) {sort_compare_##NAME, sort_count_##NAME, sort_move_##NAME}

static const sort_passes sort_radix_32[] = {SORT_PASSES(plain_32), SORT_PASSES(signed_32), SORT_PASSES(float_32)};
static const sort_passes sort_radix_64[] = {SORT_PASSES(plain_64), SORT_PASSES(signed_64), SORT_PASSES(float_64)};

/* Sorts x[n] to `out`, numbers of 4 or 8 bytes, by the bits of their keys from `from_bit` on. `out` may be `x`; room: as
   much scratch memory. Returns 0 if there is no memory for the counts. */
static int sort_by_passes(const void *x, void *out, void *room, int64_t n, int64_t size, int64_t form, int from_bit) {
    const sort_passes *of = &(size == 4 ? sort_radix_32 : sort_radix_64)[form];
    sort_pass *pass = malloc(sizeof *pass);
    if (pass == NULL) return 0;
    const int64_t parts = n / SORT_LEAST < 1 ? 1 : n / SORT_LEAST < SORT_PARTS ? n / SORT_LEAST : SORT_PARTS;
    pass->from = x, pass->n = n, pass->part = (n + parts - 1) / parts;
    sort_share(of->compare, NULL, (int64_t *)pass, parts, 1);
    uint64_t differ = 0;
    for (int64_t p = 0; p < parts; p++) differ |= pass->differ[p];
    int count = 0, shifts[8];
    for (int shift = from_bit; shift < 8 * size; shift += 8)
        if (differ >> shift & 255) shifts[count++] = shift;
    if (x == out && count % 2) { /* the last pass ends in `out` */
        memcpy(room, x, n * size);
        pass->from = room;
    }
    for (int k = 0; k < count; k++) {
        pass->shift = shifts[k];
        pass->to = (count - k) % 2 ? out : room;
        sort_share(of->count, NULL, (int64_t *)pass, parts, 1);
        int64_t place = 0;
        for (int d = 0; d < SORT_DIGITS; d++)
            for (int64_t p = 0; p < parts; p++) {
                const int64_t held = pass->places[p][d];
                pass->places[p][d] = place;
                place += held;
            }
        sort_share(of->move, NULL, (int64_t *)pass, parts, 1);
        pass->from = pass->to;
    }
    if (count == 0 && x != out) memcpy(out, x, n * size);
    free(pass);
    return 1;
}

/* ---- orders */

/* Whether a row consists of a few sorted runs, like parts that other ranks have sorted. In a random row it checks the
   first elements only. */
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

/* Sorts keys that have their positions in the lowest bits and are in the order of positions; room: scratch memory. */
static inline void sort_integers(const sort_job *job, uint64_t *x, int64_t n, int places, uint64_t *room) {
    if (n > 8) {
        const int runs = sort_few_runs(x, n, sizeof *x, SORT_UNSIGNED);
        if (n < SORT_LONG || runs || !sort_by_passes(x, x, room, n, sizeof *x, SORT_UNSIGNED, places))
            (runs ? job->merge : job->sort)(x, n, NULL);
        return;
    }
    for (int64_t i = 1; i < n; i++) {
        uint64_t e = x[i];
        int64_t j = i;
        for (; j > 0 && x[j - 1] > e; j--) x[j] = x[j - 1];
        x[j] = e;
    }
}

/* Sorts the elements at order[begin:end] by a group and the groups after it. */
static void sort_range(const sort_job *job, int64_t begin, int64_t end, int64_t group) {
    const int64_t n = end - begin;
    uint64_t *keys = job->keys + begin, *packed = job->packed + begin, *order = job->order + begin;
    uint64_t lowest = ~(uint64_t)0, highest = 0;
    for (; lowest >= highest; group++) { /* skips groups in which all keys are equal */
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
    uint64_t *held = job->held + begin;
    sort_integers(job, packed, n, places, held);
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
    for (int64_t i = begin; i < end; i++) ((T *)out)[i] = ((const T *)x)[order[i] & mask];                            \
    break

static void sort_take(char *restrict out, const char *restrict x, int64_t size, const uint64_t *order, uint64_t mask,
                      int64_t begin, int64_t end) {
    switch (size) {
    case 1: SORT_TAKE(uint8_t);
    case 2: SORT_TAKE(uint16_t);
    case 4: SORT_TAKE(uint32_t);
    case 8: SORT_TAKE(uint64_t);
    case 16: SORT_TAKE(sort_pair);
    default:
        for (int64_t i = begin; i < end; i++) memcpy(out + i * size, x + (order[i] & mask) * size, size);
    }
}

#define SORT_POSITIONS_OF(T)                                                                                          \
    for (int64_t i = begin; i < end; i++) ((T *)positions)[i] = (T)(job->order[i] & mask);                            \
    break

/* Copies elements of a row, for all operands, in their new order, and writes their positions. */
static void sort_take_some(void **unused, int64_t *params, int64_t begin, int64_t end) {
    const sort_job *job = (const sort_job *)params;
    const int64_t n = job->words[SORT_LENGTH], operands = job->words[SORT_OPERANDS];
    const uint64_t mask = ((uint64_t)1 << sort_bits(n - 1)) - 1;
    (void)unused;
    for (int64_t o = 0; o < operands; o++) {
        const int64_t size = job->sizes[o], first = job->row * n * size;
        sort_take((char *)job->buffers[operands + o] + first, (const char *)job->buffers[o] + first, size, job->order,
                  mask, begin, end);
    }
    const int64_t size = job->words[SORT_POSITIONS];
    char *positions = (char *)job->buffers[2 * operands] + job->row * n * size;
    switch (size) {
    case 0: break;
    case 1: SORT_POSITIONS_OF(uint8_t);
    case 2: SORT_POSITIONS_OF(uint16_t);
    case 4: SORT_POSITIONS_OF(uint32_t);
    default: SORT_POSITIONS_OF(uint64_t);
    }
}

static void sort_by_keys(const sort_job *job) {
    const int64_t n = job->words[SORT_LENGTH];
    const int places = sort_bits(n - 1);
    if (job->words[SORT_GROUPS] == 1 && job->groups[0] + places <= 64) {
        sort_keys(job, 0, NULL, n, job->order, places, ((uint64_t)1 << places) - 1);
        sort_integers(job, job->order, n, places, job->held);
    } else {
        for (int64_t i = 0; i < n; i++) job->order[i] = (uint64_t)i;
        sort_range(job, 0, n, 0);
    }
    sort_share(sort_take_some, NULL, (int64_t *)job, n, SORT_LEAST);
}

/* ---- values without operands: equal ones are identical, except for zeros of both signs */

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

static int sort_has_signed_zeros(const void *x, int64_t n, int64_t size) {
    int found = 0;
    if (size == 4)
        for (int64_t i = 0; i < n; i++) found |= ((const uint32_t *)x)[i] == 0x80000000u;
    else
        for (int64_t i = 0; i < n; i++) found |= ((const uint64_t *)x)[i] == 0x8000000000000000u;
    return found;
}

SORT_ZEROS(float, uint32_t, 0x80000000u)
SORT_ZEROS(double, uint64_t, 0x8000000000000000u)

static void sort_values(const sort_job *job) {
    const int64_t n = job->words[SORT_LENGTH], size = job->sizes[0], first = job->row * n * size;
    const char *x = (const char *)job->buffers[0] + first;
    char *out = (char *)job->buffers[1] + first;
    const int64_t form = job->parts[PART_FORM];
    const int runs = sort_few_runs(x, n, size, form);
    if (n >= SORT_LONG && size >= 4 && !runs) {
        void *room = malloc(n * size);
        const int done = room != NULL && sort_by_passes(x, out, room, n, size, form, 0);
        free(room);
        if (done) return;
    }
    const char *before = x; /* zeros in their order */
    if (x == out && form == SORT_FLOAT && sort_has_signed_zeros(x, n, size)) {
        char *copy = malloc(n * size);
        if (copy == NULL) {
            *sort_status(job) = 1;
            return;
        }
        before = memcpy(copy, x, n * size);
    }
    if (x != out) memcpy(out, x, n * size);
    (runs ? job->merge : job->sort)(out, n, NULL);
    if (form != SORT_FLOAT || before == out) return;
    if (size == 4) sort_zeros_float((float *)out, (const float *)before, n);
    else sort_zeros_double((double *)out, (const double *)before, n);
    if (before != x) free((void *)before);
}

static void sort_rows(void **unused, int64_t *params, int64_t begin, int64_t end) {
    sort_job job = *(const sort_job *)params;
    const int64_t n = job.words[SORT_LENGTH], groups = job.words[SORT_GROUPS];
    (void)unused;
    if (job.words[SORT_VALUES] >= 0) {
        for (job.row = begin; job.row < end; job.row++) sort_values(&job);
        return;
    }
    uint64_t few[4 * SORT_SHORT], *memory = few;
    const int whole = groups == 1 && job.groups[0] + sort_bits(n - 1) <= 64;
    if (n > SORT_SHORT) memory = malloc((whole ? n < SORT_LONG ? 1 : 2 : 4) * n * sizeof(uint64_t));
    if (!memory) {
        *sort_status(&job) = 1;
        return;
    }
    job.order = memory;
    job.held = memory + n;
    if (!whole) job.keys = memory + 2 * n, job.packed = memory + 3 * n;
    for (job.row = begin; job.row < end; job.row++) sort_by_keys(&job);
    if (memory != few) free(memory);
}

/* With few long rows, threads share the passes, otherwise the rows. */
static void sort_run(void **buffers, const int64_t *words, const sort_function *functions,
                     const sort_function *merging) {
    const int64_t rows = words[SORT_ROWS], n = words[SORT_LENGTH], values = words[SORT_VALUES];
    sort_job job = {.words = words, .sizes = words + SORT_HEAD, .buffers = buffers};
    job.sort = functions[values < 0 ? SORT_KEYS : values];
    job.merge = merging[values < 0 ? SORT_KEYS : values];
    job.groups = job.sizes + words[SORT_OPERANDS];
    job.parts = job.groups + 2 * words[SORT_GROUPS];
    if (n == 0) return;
    if (rows < SORT_FEW_ROWS && n >= SORT_LEAST) sort_rows(NULL, (int64_t *)&job, 0, rows);
    else sort_share(sort_rows, NULL, (int64_t *)&job, rows, share_grain(SORT_LEAST / 4, n));
}

#endif
