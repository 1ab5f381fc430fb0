/* Convolutions of any rank, layout, stride, dilation of the kernel, and grouping.

   out[n, o, p] = sum over c and k of  lhs[n, c, p * stride + k * dilation] * rhs[o, c, k]

   for every group. Layouts are element strides, so nothing is transposed; lhs already contains padding and dilation.
   The result's positions (n, p) are called columns, (c, k) the depth. There are three methods:

   - Tiles in registers, for real floats on processors with AVX2 (`convolution_tiles.h`).
   - Matrix products, for the other types of BLAS. Only a panel of lhs patches that fits in cache is packed at a time,
     and multiplied with the kernel.
   - Direct, for integers, and for floats with few output features: rows of the result are sums of multiples of rows of
     lhs. */
#ifndef MPIJAX_CONVOLUTION_H
#define MPIJAX_CONVOLUTION_H

#include <stdint.h>
#include <string.h>

#include "share.h"
#include "small_tiles.h"
#include "wide.h"

#define MAX_AXES 16
#define PANEL_BYTES (384 * 1024)
#define MAX_DEPTH 1024
#define LEAST_COLUMNS 32
#define DIRECT_ROW 512
#define DIRECT_OUTPUTS 2
#define MAX_PIECES 2048
#define TILE_COLUMNS 192
#define TILE_LEAST_COLUMNS 16
#define TILE_DEPTH 256
#define TILE_PARTS 16
#define TILE_LEAST (1 << 20)

typedef void (*gemm_function)(const char *, const char *, const int64_t *, const int64_t *, const int64_t *, const void *,
                              const void *, const int64_t *, const void *, const int64_t *, const void *, void *,
                              const int64_t *);

/* An axis of the columns or the depth, with its strides. */
typedef struct {
    int64_t size;
    int64_t own; /* in the result for a column axis, in the kernel for a depth axis */
    int64_t lhs;
} conv_axis;

typedef struct {
    int64_t groups, outputs; /* output features of a group */
    int64_t lhs_group, rhs_group, out_group;
    int64_t rhs_output, out_output; /* strides of the output feature */
    int columns, depths;
    conv_axis column[MAX_AXES], depth[MAX_AXES];
    int64_t J, K; /* number of columns, size of the depth */
} conv_shape;

static inline int64_t conv_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* Sorts axes by decreasing stride, merges those contiguous in memory, drops size 1; returns the number of elements. */
static int64_t conv_compact(conv_axis *axes, int *count) {
    int kept = 0;
    int64_t total = 1;
    for (int i = 0; i < *count; i++) {
        conv_axis a = axes[i];
        total *= a.size;
        if (a.size == 1) continue;
        int j = kept++;
        for (; j > 0 && axes[j - 1].own < a.own; j--) axes[j] = axes[j - 1];
        axes[j] = a;
    }
    *count = kept ? 1 : 0;
    for (int i = 1; i < kept; i++) {
        conv_axis *last = &axes[*count - 1], a = axes[i];
        if (last->own == a.own * a.size && last->lhs == a.lhs * a.size) {
            last->size *= a.size;
            last->own = a.own;
            last->lhs = a.lhs;
        } else axes[(*count)++] = a;
    }
    return total;
}

/* The number of elements of the innermost axes that are evenly spaced, and their stride. */
static int64_t conv_run(const conv_axis *axes, int count, int64_t *stride) {
    int64_t run = 1;
    *stride = 1;
    for (int i = count - 1; i >= 0; i--) {
        if (i == count - 1) *stride = axes[i].own;
        else if (axes[i].own != *stride * run) break;
        run *= axes[i].size;
    }
    return run;
}

/* words: batch, groups, input and output features of a group, spatial axes; strides of group, batch and input feature
   in lhs; of group, output and input feature in rhs; of group, batch and output feature in the result; and for every
   spatial axis sizes of result and kernel, strides in lhs from column to column and along the kernel, in rhs, in the
   result. */
static void conv_read(const int64_t *w, conv_shape *s) {
    int rank = (int)w[4];
    memset(s, 0, sizeof(*s));
    conv_axis images = {w[0], w[12], w[6]}, features = {w[2], w[10], w[7]};
    s->groups = w[1];
    s->outputs = w[3];
    s->lhs_group = w[5];
    s->rhs_group = w[8];
    s->rhs_output = w[9];
    s->out_group = w[11];
    s->out_output = w[13];
    s->column[0] = images;
    s->depth[0] = features;
    w += 14;
    for (int d = 1; d <= rank; d++, w += 6) {
        conv_axis column = {w[0], w[5], w[2]}, depth = {w[1], w[4], w[3]};
        s->column[d] = column;
        s->depth[d] = depth;
    }
    s->columns = s->depths = rank + 1;
    s->J = conv_compact(s->column, &s->columns);
    s->K = conv_compact(s->depth, &s->depths);
}

/* A position along axes: its index on each, and its offsets. */
typedef struct {
    int64_t at[MAX_AXES], own, lhs;
} conv_cursor;

static inline void conv_move(conv_cursor *c, const conv_axis *a, int i, int64_t by) {
    c->at[i] += by;
    c->own += by * a->own;
    c->lhs += by * a->lhs;
}

static void conv_start(conv_cursor *c, const conv_axis *axes, int count, int64_t index) {
    c->own = c->lhs = 0;
    for (int i = count - 1; i >= 0; i--) {
        c->at[i] = 0;
        conv_move(c, &axes[i], i, index % axes[i].size);
        index /= axes[i].size;
    }
}

static inline void conv_next(conv_cursor *c, const conv_axis *axes, int count) {
    for (int i = count - 1; i >= 0; i--) {
        conv_move(c, &axes[i], i, 1);
        if (c->at[i] < axes[i].size) return;
        conv_move(c, &axes[i], i, -axes[i].size);
    }
}

/* Evenly spaced elements of lhs. */
typedef struct {
    int64_t first, count;
} conv_piece;

/* The elements [begin, end) along axes as pieces of elements `*stride` apart. Returns the end of the elements covered,
   which is before `end` if there are too many pieces. */
static int64_t conv_pieces(const conv_axis *axes, int count, int64_t begin, int64_t end, conv_piece *pieces, int *number,
                           int64_t *stride) {
    *number = 0;
    *stride = 1;
    if (!count) {
        conv_piece one = {0, end - begin};
        pieces[(*number)++] = one;
        return end;
    }
    const conv_axis *last = &axes[count - 1];
    conv_cursor head;
    conv_start(&head, axes, count - 1, begin / last->size);
    int64_t skip = begin % last->size;
    *stride = last->lhs;
    while (begin < end) {
        conv_piece p = {head.lhs + skip * last->lhs, conv_least(last->size - skip, end - begin)};
        conv_piece *before = *number ? &pieces[*number - 1] : 0;
        if (before && before->first + before->count * *stride == p.first) before->count += p.count;
        else if (*number == MAX_PIECES) break;
        else pieces[(*number)++] = p;
        begin += p.count;
        skip = 0;
        conv_next(&head, axes, count - 1);
    }
    return begin;
}

/* Whether panels are packed along columns: along the axis contiguous in lhs; if both are, along the longer one. */
static int conv_along_columns(const conv_shape *s) {
    if (!s->columns || !s->depths) return s->columns > 0;
    const conv_axis *a = &s->column[s->columns - 1], *b = &s->depth[s->depths - 1];
    return a->lhs == b->lhs ? a->size >= b->size : a->lhs < b->lhs;
}

/* The size of a panel: an equal share of the depth, and as many columns as fit in cache. */
typedef struct {
    int64_t depth, columns;
} conv_panel;

static conv_panel conv_panel_for(int64_t K, int64_t J, int64_t itemsize) {
    int64_t parts = (K + MAX_DEPTH - 1) / MAX_DEPTH, depth = (K + parts - 1) / parts;
    int64_t columns = PANEL_BYTES / (depth * itemsize) / 16 * 16;
    conv_panel p = {depth, conv_least(J, columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns)};
    return p;
}

/* Parts of a group's columns, which threads share. */
typedef struct {
    const conv_shape *shape;
    int64_t columns;
} conv_job;

static share_function conv_share;

/* Vectors of output features that a tile has, if so many features are left. */
static inline int conv_tile_vectors(int64_t features, int64_t lanes) { return features > lanes ? 2 : 1; }

/* Columns of a part, a multiple of the rows of a tile; a few parts for the threads, even if there are few columns. */
static inline int64_t conv_tile_columns(int64_t J, int64_t rows) {
    const int64_t most = TILE_COLUMNS / rows, wanted = (J / rows + TILE_PARTS - 1) / TILE_PARTS;
    return rows * (wanted < 1 ? 1 : conv_least(wanted, most));
}

#define JOINED(a, b) a##_##b
#define NAMED_AS(a, b) JOINED(a, b)
#define NAMED(f) NAMED_AS(f, T)

typedef float _Complex float_complex;
typedef double _Complex double_complex;

#define GEMM
#define T float_complex
#include "convolution_types.h"
#undef T
#define T double_complex
#include "convolution_types.h"
#undef T
#define DIRECT
#define T float
#include "convolution_types.h"
#undef T
#define T double
#include "convolution_types.h"
#undef T
#undef GEMM
#define T uint8_t
#include "convolution_types.h"
#undef T
#define T uint16_t
#include "convolution_types.h"
#undef T
#define T uint32_t
#include "convolution_types.h"
#undef T
#define T uint64_t
#include "convolution_types.h"
#undef T
#undef DIRECT

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define CONV_TILES
#define conv_turn_float turn_32
#define conv_turn_double turn_64
#define conv_side(size) ((size) == 4 ? TILE_32 : TILE_64)
#define LEVEL v3
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define VECTOR 32
#define ROWS 6
#define T float
#include "convolution_tiles.h"
#undef T
#define T double
#include "convolution_tiles.h"
#undef T
#undef LEVEL
#undef TARGET
#undef VECTOR
#undef ROWS
#define LEVEL v4
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define VECTOR 64
#define ROWS 12
#define T float
#include "convolution_tiles.h"
#undef T
#define T double
#include "convolution_tiles.h"
#undef T
#endif

/* Bytes of the vectors of tiles: the processor's; 0 without tiles. */
static int64_t conv_vector = 0;

static void conv_find_vector(void) {
#ifdef CONV_TILES
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) conv_vector = 32;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq"))
        conv_vector = 64;
#endif
}

/* Types, as numbered in the first word; the first four are those of BLAS, in the order of conv_gemm. */
enum { CONV_F32, CONV_F64, CONV_C64, CONV_C128, CONV_U8, CONV_U16, CONV_U32, CONV_U64 };

static gemm_function conv_gemm[4];

/* Whether tiles are used. With features for less than half a vector, or few columns, matrix products are faster. */
static int conv_tiled(int64_t type, const conv_shape *s) {
    const int64_t size = type == CONV_F32 ? 4 : 8;
    return type <= CONV_F64 && conv_vector && 2 * s->outputs * size >= conv_vector && s->J >= TILE_LEAST_COLUMNS;
}

#define TILED(f, T) (conv_vector == 64 ? NAMED_AS(NAMED_AS(f, T), v4) : NAMED_AS(NAMED_AS(f, T), v3))

/* Bytes of scratch memory. */
static int64_t conv_scratch(const int64_t *words) {
    static const int sizes[] = {4, 8, 8, 16};
    conv_shape s;
    conv_read(words + 1, &s);
    if (words[0] > CONV_C128) return 0;
#ifdef CONV_TILES
    if (conv_tiled(words[0], &s)) return words[0] == CONV_F32 ? TILED(scratch, float)(&s) : TILED(scratch, double)(&s);
#endif
    conv_panel p = conv_panel_for(s.K, s.J, sizes[words[0]]);
    return sizes[words[0]] * (s.outputs * s.K + (p.depth + s.outputs) * p.columns);
}

#define PRODUCTS(T) NAMED_AS(products, T)(&s, conv_gemm[words[0]], lhs, rhs, out, buffers[3])

/* buffers: lhs, rhs, result, scratch memory. No array is empty. */
static void conv_run_all(void **buffers, const int64_t *words) {
    void *lhs = buffers[0], *rhs = buffers[1], *out = buffers[2];
    conv_shape s;
    conv_read(words + 1, &s);
#ifdef CONV_TILES
    if (conv_tiled(words[0], &s)) {
        if (words[0] == CONV_F32) TILED(all, float)(&s, lhs, rhs, out, buffers[3]);
        else TILED(all, double)(&s, lhs, rhs, out, buffers[3]);
        return;
    }
#endif
    int direct = s.outputs <= DIRECT_OUTPUTS;
    switch (words[0]) {
    case CONV_F32: if (direct) direct_float(&s, lhs, rhs, out); else PRODUCTS(float); break;
    case CONV_F64: if (direct) direct_double(&s, lhs, rhs, out); else PRODUCTS(double); break;
    case CONV_C64: PRODUCTS(float_complex); break;
    case CONV_C128: PRODUCTS(double_complex); break;
    case CONV_U8: direct_uint8_t(&s, lhs, rhs, out); break;
    case CONV_U16: direct_uint16_t(&s, lhs, rhs, out); break;
    case CONV_U32: direct_uint32_t(&s, lhs, rhs, out); break;
    case CONV_U64: direct_uint64_t(&s, lhs, rhs, out); break;
    }
}

#endif
