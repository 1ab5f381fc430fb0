/* Moves elements between strided arrays: the kernels that compute nothing, ready to run without LLVM
   (`compiler/loops/strided.py`).

   The two innermost axes of a move are a plane, and a plane is moved in one of four ways: rows that are next to each other
   in both arrays; rows of one element each; a transpose, in tiles; anything else, element by element along its longer axis.
   Input and output may be the same array if each element stays where it is. */

#ifndef MPIJAX_STRIDED_H
#define MPIJAX_STRIDED_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include "small_tiles.h"
#include "wide.h"

#define ST_INLINE static inline __attribute__((always_inline))
#define ST_MOST_AXES 8

typedef struct {
    int64_t size, from, to; /* steps in bytes */
} st_axis;

typedef struct {
    int64_t origin, target;             /* numbers of pointers; origin -1: an element, which is part of this */
    int64_t origin_at, target_at;       /* where they begin, in bytes */
    uint64_t element[2];
    int64_t width, axes;                /* bytes of an element; number of axes, at least 1 */
    st_axis axis[];                     /* outermost first */
} st_move;

#define ST_ONE ((st_axis){1, 0, 0})

/* ---- rows: of bytes that are next to each other, or of one element ---- */

typedef uint64_t __attribute__((vector_size(32), aligned(1), may_alias)) st_32;
typedef uint64_t __attribute__((vector_size(16), aligned(1), may_alias)) st_16;
typedef uint64_t __attribute__((aligned(1), may_alias)) st_8;
typedef uint32_t __attribute__((aligned(1), may_alias)) st_4;
typedef uint16_t __attribute__((aligned(1), may_alias)) st_2;
typedef uint8_t __attribute__((may_alias)) st_1;
typedef struct __attribute__((packed, may_alias)) {
    uint64_t words[2];
} st_pair;
ST_INLINE st_8 st_8_at(const char *p) { return *(const st_8 *)p; }
ST_INLINE void st_8_to(char *p, st_8 x) { *(st_8 *)p = x; }
ST_INLINE st_4 st_4_at(const char *p) { return *(const st_4 *)p; }
ST_INLINE void st_4_to(char *p, st_4 x) { *(st_4 *)p = x; }

/* Rows of planes, of which c counts. */
#define ST_EACH_ROW                                                                                                    \
    for (int64_t j = 0; j < c.size; j++)                                                                               \
        for (int64_t i = 0; i < a.size; i++)
#define ST_ROW_FROM (from + j * c.from + i * a.from)
#define ST_ROW_TO (to + j * c.to + i * a.to)

/* Rows of one to two chunks: the second chunk may overlap the first. */
#define ST_TWO(type, chunk)                                                                                            \
    ST_EACH_ROW {                                                                                                      \
        const char *x = ST_ROW_FROM;                                                                                   \
        char *y = ST_ROW_TO;                                                                                           \
        const type first = *(const type *)x, last = *(const type *)(x + bytes - chunk);                                \
        *(type *)y = first;                                                                                            \
        *(type *)(y + bytes - chunk) = last;                                                                           \
    }

/* A call of memmove takes longer than a short row. (Values of 64 bytes would go over the stack.) */
ST_INLINE void st_rows(const char *from, char *to, st_axis c, st_axis a, int64_t bytes) {
    if (bytes > 1024) {
        ST_EACH_ROW memmove(ST_ROW_TO, ST_ROW_FROM, (size_t)bytes);
    } else if (bytes > 64) {
        ST_EACH_ROW {
            const char *x = ST_ROW_FROM;
            char *y = ST_ROW_TO;
            const st_32 low = *(const st_32 *)(x + bytes - 64), high = *(const st_32 *)(x + bytes - 32);
            for (int64_t k = 0; k < bytes - 64; k += 32) *(st_32 *)(y + k) = *(const st_32 *)(x + k);
            *(st_32 *)(y + bytes - 64) = low;
            *(st_32 *)(y + bytes - 32) = high;
        }
    } else if (bytes >= 32) {
        ST_TWO(st_32, 32)
    } else if (bytes >= 16) {
        ST_TWO(st_16, 16)
    } else if (bytes >= 8) {
        ST_TWO(st_8, 8)
    } else if (bytes >= 4) {
        ST_TWO(st_4, 4)
    } else {
        ST_EACH_ROW
            for (int64_t k = 0; k < bytes; k++) ST_ROW_TO[k] = ST_ROW_FROM[k];
    }
}

/* One element again and again. */
ST_INLINE st_16 st_pattern(const char *from, const int width) {
    if (width == 16) return *(const st_16 *)from;
    const uint64_t word = width == 1   ? *(const st_1 *)from * 0x0101010101010101u
                          : width == 2 ? *(const st_2 *)from * 0x0001000100010001u
                          : width == 4 ? *(const st_4 *)from * 0x0000000100000001u
                                       : *(const st_8 *)from;
    return (st_16){word, word};
}

/* Rows of 16 bytes at least. Their lengths are multiples of the width, as the chunks' are: the last may overlap. */
ST_INLINE void st_fill(const char *from, char *to, st_axis a, int64_t bytes, const int width) {
    for (int64_t i = 0; i < a.size; i++) {
        const st_16 x = st_pattern(from + i * a.from, width);
        const st_32 whole = {x[0], x[1], x[0], x[1]};
        char *row = to + i * a.to;
        int64_t k = 0;
        for (; k < bytes - 32; k += 32) *(st_32 *)(row + k) = whole;
        for (; k < bytes - 16; k += 16) *(st_16 *)(row + k) = x;
        *(st_16 *)(row + bytes - 16) = x;
    }
}

/* ---- transposes: in tiles whose rows are a register ---- */

typedef uint8_t st_v1 __attribute__((vector_size(16)));
typedef uint16_t st_v2 __attribute__((vector_size(16)));

#if defined(__clang__)
#define ST_MIX(type, x, y, ...) __builtin_shufflevector(x, y, __VA_ARGS__)
#else
#define ST_MIX(type, x, y, ...) __builtin_shuffle(x, y, (type){__VA_ARGS__})
#endif
#define ST_LOW_1(x, y) ST_MIX(st_v1, x, y, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define ST_HIGH_1(x, y) ST_MIX(st_v1, x, y, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define ST_LOW_2(x, y) ST_MIX(st_v2, x, y, 0, 8, 1, 9, 2, 10, 3, 11)
#define ST_HIGH_2(x, y) ST_MIX(st_v2, x, y, 4, 12, 5, 13, 6, 14, 7, 15)

/* Row i of a tile is at `from + i * here`, row j of its transpose at `to + j * there`. Each round interleaves the rows of
   the first half with those of the second. */
#define ST_TILE(width, side, rounds)                                                                                   \
    ST_INLINE void st_tile_##width(char *to, int64_t there, const char *from, int64_t here) {                          \
        st_v##width r[side], s[side];                                                                                  \
        for (int i = 0; i < side; i++) memcpy(&r[i], from + i * here, 16);                                             \
        _Pragma("GCC unroll 4") for (int round = 0; round < rounds; round++) {                                         \
            _Pragma("GCC unroll 8") for (int i = 0; i < side / 2; i++) {                                               \
                s[2 * i] = ST_LOW_##width(r[i], r[i + side / 2]);                                                      \
                s[2 * i + 1] = ST_HIGH_##width(r[i], r[i + side / 2]);                                                 \
            }                                                                                                          \
            _Pragma("GCC unroll 16") for (int i = 0; i < side; i++) r[i] = s[i];                                       \
        }                                                                                                              \
        for (int i = 0; i < side; i++) memcpy(to + i * there, &r[i], 16);                                              \
    }
ST_TILE(1, 16, 4)
ST_TILE(2, 8, 3)

/* Elements along a side of a tile. */
#define ST_SIDE(width) ((width) == 4 ? TILE_32 : (width) == 8 ? TILE_64 : 16 / (width))

ST_INLINE void st_tile(char *to, int64_t there, const char *from, int64_t here, const int width) {
    width == 1   ? st_tile_1(to, there, from, here)
    : width == 2 ? st_tile_2(to, there, from, here)
    : width == 4 ? turn_32((float *)to, there / 4, (const float *)from, here / 4)
    : width == 8 ? turn_64((double *)to, there / 8, (const double *)from, here / 8)
                 : (void)(*(st_16 *)to = *(const st_16 *)from);
}

ST_INLINE int64_t st_least(int64_t x, int64_t y) { return x < y ? x : y; }

/* Element by element, for the edges of a transpose. */
ST_INLINE void st_edge(const char *from, char *to, st_axis a, st_axis b, const int width) {
    for (int64_t i = 0; i < a.size; i++)
        for (int64_t j = 0; j < b.size; j++)
            memcpy(to + i * a.to + j * b.to, from + i * a.from + j * b.from, (size_t)width);
}

/* Squares of 64 bytes a side use whole cache lines of both arrays. Each is put together on the stack: lines of arrays whose
   rows are a power of two apart push each other out of the cache. ST_PAGES rows of the origin stay in the TLB. */
#define ST_PAGES 256
ST_INLINE void st_turn(const char *from, char *to, st_axis a, st_axis b, const int width) {
    const int64_t side = ST_SIDE(width), square = 64 / width;
    const int64_t whole_a = a.size - a.size % side, whole_b = b.size - b.size % side;
    char lines[64 / width * 64] __attribute__((aligned(64)));
    for (int64_t first = 0; first < whole_b; first += ST_PAGES) {
        const int64_t last = st_least(first + ST_PAGES, whole_b);
        for (int64_t i = 0; i < whole_a; i += square)
            for (int64_t j = first; j < last; j += square) {
                const int64_t rows = st_least(square, whole_a - i), columns = st_least(square, last - j);
                const char *x = from + i * width + j * b.from;
                for (int64_t l = 0; l < columns; l += side)
                    for (int64_t k = 0; k < rows; k += side)
                        st_tile(lines + k * 64 + l * width, 64, x + k * width + l * b.from, b.from, width);
                char *y = to + i * a.to + j * width;
                if (columns < square) st_rows(lines, y, ST_ONE, (st_axis){rows, 64, a.to}, columns * width);
                else /* as st_rows does, in two thirds of the time */
                    for (int64_t k = 0; k < rows; k++) {
                        *(st_32 *)(y + k * a.to) = *(const st_32 *)(lines + 64 * k);
                        *(st_32 *)(y + k * a.to + 32) = *(const st_32 *)(lines + 64 * k + 32);
                    }
            }
    }
    const st_axis rest_a = {a.size - whole_a, a.from, a.to}, rest_b = {b.size - whole_b, b.from, b.to};
    st_edge(from + whole_b * b.from, to + whole_b * b.to, a, rest_b, width);
    const st_axis part_b = {whole_b, b.from, b.to};
    st_edge(from + whole_a * a.from, to + whole_a * a.to, rest_a, part_b, width);
}

/* ---- anything else ---- */

#define ST_LINE(width, type)                                                                                           \
    ST_INLINE void st_line_##width(const char *from, char *to, st_axis b) {                                            \
        const type *x = (const type *)from;                                                                            \
        type *y = (type *)to;                                                                                          \
        if (b.to == width && b.from == -width) {                                                                       \
            for (int64_t j = 0; j < b.size; j++) y[j] = x[-j];                                                         \
        } else if (b.to == width && b.from == 2 * width) {                                                             \
            for (int64_t j = 0; j < b.size; j++) y[j] = x[2 * j];                                                      \
        } else {                                                                                                       \
            for (int64_t j = 0; j < b.size; j++) *(type *)(to + j * b.to) = *(const type *)(from + j * b.from);        \
        }                                                                                                              \
    }
ST_LINE(1, st_1)
ST_LINE(2, st_2)
ST_LINE(4, st_4)
ST_LINE(8, st_8)
ST_LINE(16, st_pair)

ST_INLINE void st_lines(const char *from, char *to, st_axis a, st_axis b, const int width) {
    const bool longer = a.size > b.size;
    const st_axis outer = longer ? b : a, inner = longer ? a : b;
    for (int64_t i = 0; i < outer.size; i++) {
        const char *x = from + i * outer.from;
        char *y = to + i * outer.to;
        width == 1   ? st_line_1(x, y, inner)
        : width == 2 ? st_line_2(x, y, inner)
        : width == 4 ? st_line_4(x, y, inner)
        : width == 8 ? st_line_8(x, y, inner)
                     : st_line_16(x, y, inner);
    }
}

/* ---- a move ---- */

/* Planes a x b, of which c counts. */
#define ST_PLANES(width)                                                                                               \
    ST_INLINE void st_planes_##width(const char *from, char *to, st_axis c, st_axis a, st_axis b) {                    \
        if (b.to == width && b.from == width) {                                                                        \
            st_rows(from, to, c, a, b.size * width);                                                                   \
            return;                                                                                                    \
        }                                                                                                              \
        for (int64_t j = 0; j < c.size; j++, from += c.from, to += c.to)                                               \
            if (b.to == width && b.from == 0 && b.size * width >= 16)                                                  \
                st_fill(from, to, a, b.size * width, width);                                                           \
            else if (b.to == width && a.from == width && st_least(a.size, b.size) >= ST_SIDE(width))                   \
                st_turn(from, to, a, b, width);                                                                        \
            else                                                                                                       \
                st_lines(from, to, a, b, width);                                                                       \
    }
ST_PLANES(1)
ST_PLANES(2)
ST_PLANES(4)
ST_PLANES(8)
ST_PLANES(16)

/* Stacks of planes one after the other, as an odometer counts. */
#define ST_WALK(width)                                                                                                 \
    WIDE static void st_walk_##width(const char *from, char *to, const st_axis *axes, int64_t count) {                 \
        const st_axis c = count > 2 ? axes[count - 3] : ST_ONE, a = count > 1 ? axes[count - 2] : ST_ONE;              \
        int64_t at[ST_MOST_AXES] = {0}, k;                                                                             \
        do {                                                                                                           \
            st_planes_##width(from, to, c, a, axes[count - 1]);                                                        \
            for (k = count - 4; k >= 0; k--) {                                                                         \
                from += axes[k].from, to += axes[k].to;                                                                \
                if (++at[k] < axes[k].size) break;                                                                     \
                from -= axes[k].from * at[k], to -= axes[k].to * at[k], at[k] = 0;                                     \
            }                                                                                                          \
        } while (k >= 0);                                                                                              \
    }
ST_WALK(1)
ST_WALK(2)
ST_WALK(4)
ST_WALK(8)
ST_WALK(16)

/* The part from `begin` to `end`, of `extent`, of the outermost axis of each move. params has the extent, the number of moves,
   and the moves. */
static void st_run(void **ptrs, int64_t *params, int64_t begin, int64_t end) {
    const int64_t extent = params[0];
    const st_move *move = (const st_move *)(params + 2);
    for (int64_t i = 0; i < params[1]; i++) {
        const int64_t first = move->axis[0].size * begin / extent, last = move->axis[0].size * end / extent;
        if (first < last) {
            const char *from = move->origin < 0 ? (const char *)move->element : (const char *)ptrs[move->origin] + move->origin_at;
            char *to = (char *)ptrs[move->target] + move->target_at;
            st_axis axes[ST_MOST_AXES];
            memcpy(axes, move->axis, (size_t)move->axes * sizeof(st_axis));
            axes[0].size = last - first;
            from += first * axes[0].from, to += first * axes[0].to;
            switch (move->width) {
            case 1: st_walk_1(from, to, axes, move->axes); break;
            case 2: st_walk_2(from, to, axes, move->axes); break;
            case 4: st_walk_4(from, to, axes, move->axes); break;
            case 8: st_walk_8(from, to, axes, move->axes); break;
            default: st_walk_16(from, to, axes, move->axes);
            }
        }
        move = (const st_move *)(move->axis + move->axes);
    }
}

#endif
