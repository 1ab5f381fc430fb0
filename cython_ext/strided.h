/* Moves elements between strided arrays: the kernels that compute nothing, ready to run without LLVM
   (`compiler/loops/strided.py`). */

#ifndef MPIJAX_STRIDED_H
#define MPIJAX_STRIDED_H

#include <stdint.h>
#include <string.h>

typedef struct {
    int64_t size, from, to; /* steps in bytes */
} st_axis;

typedef uint8_t __attribute__((may_alias)) st_1;
typedef uint16_t __attribute__((may_alias)) st_2;
typedef uint32_t __attribute__((may_alias)) st_4;
typedef uint64_t __attribute__((may_alias)) st_8;
typedef struct {
    uint64_t words[2];
} __attribute__((may_alias)) st_16;

typedef void (*st_row)(const char *from, char *to, const st_axis *axis);

/* Input and output may be the same array: each element is read before anything is written over it. */
#define ST_ROW(width)                                                                                                  \
    static void st_row_##width(const char *from, char *to, const st_axis *axis) {                                      \
        const int64_t n = axis->size, read = axis->from, write = axis->to;                                             \
        if (write == width && read == width) {                                                                         \
            memmove(to, from, (size_t)(n * width));                                                                    \
        } else if (write == width && read == 0) {                                                                      \
            const st_##width value = *(const st_##width *)from;                                                        \
            for (int64_t i = 0; i < n; i++) ((st_##width *)to)[i] = value;                                             \
        } else {                                                                                                       \
            for (int64_t i = 0; i < n; i++) *(st_##width *)(to + i * write) = *(const st_##width *)(from + i * read);  \
        }                                                                                                              \
    }
ST_ROW(1)
ST_ROW(2)
ST_ROW(4)
ST_ROW(8)
ST_ROW(16)

static void st_walk(const char *from, char *to, const st_axis *axes, int64_t count, st_row row) {
    if (count == 1) {
        row(from, to, axes);
        return;
    }
    for (int64_t i = 0; i < axes->size; i++)
        st_walk(from + i * axes->from, to + i * axes->to, axes + 1, count - 1, row);
}

typedef struct {
    int64_t origin, target;             /* numbers of pointers; origin -1: an element, which is part of this */
    int64_t origin_at, target_at;       /* where they begin, in bytes */
    uint64_t element[2];
    int64_t width, axes;                /* bytes of an element; number of axes, at least 1 */
    st_axis axis[];                     /* outermost first */
} st_move;

static const st_row st_rows[] = {[1] = st_row_1, [2] = st_row_2, [4] = st_row_4, [8] = st_row_8, [16] = st_row_16};

/* A kernel: params has the number of moves, and the moves. */
static void st_run(void **ptrs, int64_t *params, int64_t begin, int64_t end) {
    (void)begin, (void)end;
    const st_move *move = (const st_move *)(params + 1);
    for (int64_t i = 0; i < params[0]; i++) {
        const char *from = move->origin < 0 ? (const char *)move->element : (const char *)ptrs[move->origin] + move->origin_at;
        st_walk(from, (char *)ptrs[move->target] + move->target_at, move->axis, move->axes, st_rows[move->width]);
        move = (const st_move *)(move->axis + move->axes);
    }
}

#endif
