/* Convolutions of any rank, layout, stride, dilation, padding and grouping.

   out[n, o, p] = sum over c and k of  lhs[n, c, p * stride + k * rhs_dilation - pad] * rhs[o, c, k]

   for every group, where lhs has `lhs_dilation - 1` zeros between elements and zeros around it. Layouts are element
   strides, so nothing is transposed. There are two ways:

   - Products of matrices, for the types of BLAS. The result's positions are the columns, (c, k) the depth. Of the
     patches of lhs only a panel that stays in cache is laid out at a time, and multiplied with the kernel.
   - Direct, for integers, and for floats where there are few output features: rows of the result are sums of multiples
     of rows of lhs. */
#ifndef MPIJAX_CONVOLUTION_H
#define MPIJAX_CONVOLUTION_H

#include <stdint.h>
#include <string.h>

#define MAX_AXES 16
#define PANEL_BYTES (384 * 1024)
#define MAX_DEPTH 1024
#define LEAST_COLUMNS 32
#define DIRECT_ROW 512
#define DIRECT_OUTPUTS 2

typedef void (*gemm_function)(const char *, const char *, const int64_t *, const int64_t *, const int64_t *, const void *,
                              const void *, const int64_t *, const void *, const int64_t *, const void *, void *,
                              const int64_t *);

/* An axis along which columns or depth run: how far apart its neighbours are in result (or kernel) and lhs. */
typedef struct {
    int64_t size;
    int64_t own;   /* stride in the result for a column axis, in the kernel for a depth axis */
    int64_t lhs;   /* stride in lhs of an axis without position (batch, feature) */
    int space;     /* which spatial axis, or -1 */
    int64_t step;  /* how far a step goes along that axis: stride of the window, or dilation of the kernel */
} conv_axis;

typedef struct {
    int64_t size, pad, dilation, stride; /* of lhs along one spatial axis */
} conv_space;

typedef struct {
    int64_t groups, outputs; /* output features of a group */
    int64_t lhs_group, rhs_group, out_group;
    int64_t rhs_output, out_output; /* strides of the output feature */
    int rank, columns, depths;
    conv_axis column[MAX_AXES], depth[MAX_AXES];
    conv_space space[MAX_AXES];
    int64_t J, K;
} conv_shape;

/* Axes by falling stride, so that the innermost ones are neighbours in memory. */
static void conv_sort(conv_axis *axes, int count) {
    for (int i = 1; i < count; i++) {
        conv_axis a = axes[i];
        int j = i;
        for (; j > 0 && axes[j - 1].own < a.own; j--) axes[j] = axes[j - 1];
        axes[j] = a;
    }
}

/* Keeps axes of more than one element; the number of elements of all. */
static int64_t conv_compact(conv_axis *axes, int *count) {
    int kept = 0;
    int64_t total = 1;
    for (int i = 0; i < *count; i++) {
        total *= axes[i].size;
        if (axes[i].size != 1) axes[kept++] = axes[i];
    }
    *count = kept;
    return total;
}

/* How many elements of the innermost axes lie evenly spaced, and how far apart. */
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

static void conv_read(const int64_t *w, conv_shape *s) {
    int64_t batch = w[0], inputs = w[2];
    s->groups = w[1];
    s->outputs = w[3];
    s->rank = (int)w[4];
    s->lhs_group = w[5];
    s->rhs_group = w[8];
    s->rhs_output = w[9];
    s->out_group = w[11];
    s->out_output = w[13];
    conv_axis images = {batch, w[12], w[6], -1, 0}, features = {inputs, w[10], w[7], -1, 0};
    s->column[0] = images;
    s->depth[0] = features;
    const int64_t *x = w + 14;
    for (int d = 0; d < s->rank; d++, x += 10) {
        conv_space space = {x[0], x[4], x[5], x[7]};
        conv_axis column = {x[1], x[9], 0, d, x[3]}, depth = {x[2], x[8], 0, d, x[6]};
        s->space[d] = space;
        s->column[d + 1] = column;
        s->depth[d + 1] = depth;
    }
    s->columns = s->depths = s->rank + 1;
    s->J = conv_compact(s->column, &s->columns);
    s->K = conv_compact(s->depth, &s->depths);
    conv_sort(s->column, s->columns);
    conv_sort(s->depth, s->depths);
}

/* A place along axes: its index on each, the position on each spatial axis, and its offsets. */
typedef struct {
    int64_t at[MAX_AXES], position[MAX_AXES];
    int64_t lhs; /* in lhs, of axes without position */
    int64_t own; /* in the result or the kernel */
} conv_cursor;

static inline void conv_move(conv_cursor *c, const conv_axis *a, int i, int64_t by) {
    c->at[i] += by;
    c->own += by * a->own;
    if (a->space >= 0) c->position[a->space] += by * a->step;
    else c->lhs += by * a->lhs;
}

static void conv_start(conv_cursor *c, const conv_axis *axes, int count, int64_t index) {
    memset(c, 0, sizeof(*c));
    for (int i = count - 1; i >= 0; i--) {
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

/* The offset of the element of lhs at dilated positions, without spatial axis `skip`; -1 in a gap or outside. */
static inline int64_t conv_offset(const conv_shape *s, const int64_t *position, int skip) {
    int64_t offset = 0;
    for (int d = 0; d < s->rank; d++) {
        if (d == skip) continue;
        int64_t at = position[d], k = s->space[d].dilation;
        if (k > 1) {
            if (at % k) return -1;
            at /= k;
        }
        if (at < 0 || at >= s->space[d].size) return -1;
        offset += at * s->space[d].stride;
    }
    return offset;
}

/* A row of elements along an axis: element i of `begin <= i < end`, i = begin + m * every, is at
   `first + m * stride` in lhs; the others are zero. */
typedef struct {
    int64_t begin, end, every, first, stride;
} conv_row;

static conv_row conv_along(const conv_shape *s, const conv_axis *a, const int64_t *position, int64_t base,
                           int64_t length) {
    conv_row r = {0, 0, 1, 0, 0};
    int64_t offset = conv_offset(s, position, a->space);
    if (offset < 0) return r;
    offset += base;
    if (a->space < 0) {
        conv_row all = {0, length, 1, offset, a->lhs};
        return all;
    }
    const conv_space *space = &s->space[a->space];
    int64_t at = position[a->space], k = space->dilation, step = a->step, last = (space->size - 1) * k;
    if (space->size == 0) return r;
    if (step == 0) {
        if (at < 0 || at > last || at % k) return r;
        conv_row same = {0, length, 1, offset + at / k * space->stride, 0};
        return same;
    }
    if (k == 1 && step == 1) {
        r.begin = at < 0 ? -at : 0;
        r.end = last - at + 1 < length ? last - at + 1 : length;
        r.first = offset + (at + r.begin) * space->stride;
        r.stride = space->stride;
        return r;
    }
    int64_t i = at >= 0 ? 0 : (-at + step - 1) / step, tries = k;
    for (; (at + i * step) % k && tries; i++) tries--;
    if (!tries && k > 1 && (at + i * step) % k) return r;
    r.every = 1;
    while (r.every * step % k) r.every++;
    r.begin = i;
    r.end = at + i * step > last ? i : (last - at) / step + 1;
    if (r.end > length) r.end = length;
    r.first = offset + (at + i * step) / k * space->stride;
    r.stride = r.every * step / k * space->stride;
    return r;
}

static inline int64_t conv_least(int64_t a, int64_t b) { return a < b ? a : b; }

/* How far apart neighbours along an axis are in lhs. */
static int64_t conv_lhs_stride(const conv_shape *s, const conv_axis *a) {
    return a->space < 0 ? a->lhs : s->space[a->space].stride * a->step;
}

/* Whether panels are laid out along columns: along the axis with neighbours in lhs, of two the longer one. */
static int conv_along_columns(const conv_shape *s) {
    if (!s->columns || !s->depths) return s->columns > 0;
    const conv_axis *a = &s->column[s->columns - 1], *b = &s->depth[s->depths - 1];
    int64_t x = conv_lhs_stride(s, a), y = conv_lhs_stride(s, b);
    return x == y ? a->size >= b->size : x < y;
}

/* The size of a panel: equal parts of the depth, and as many columns as stay in cache. */
typedef struct {
    int64_t depth, columns;
} conv_panel;

static conv_panel conv_panel_for(int64_t K, int64_t J, int64_t itemsize) {
    int64_t parts = (K + MAX_DEPTH - 1) / MAX_DEPTH, depth = (K + parts - 1) / parts;
    int64_t columns = PANEL_BYTES / (depth * itemsize) / 16 * 16;
    conv_panel p = {depth, conv_least(J, columns < LEAST_COLUMNS ? LEAST_COLUMNS : columns)};
    return p;
}

#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GNUC__) && !defined(__clang__)
#define WIDE __attribute__((target_clones("arch=x86-64-v4", "arch=haswell", "default")))
#else
#define WIDE
#endif

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

/* Types as the first word names them; the first four are those of BLAS, in the order of conv_gemm. */
enum { CONV_F32, CONV_F64, CONV_C64, CONV_C128, CONV_U8, CONV_U16, CONV_U32, CONV_U64 };

static gemm_function conv_gemm[4];

/* Bytes of memory to work in. */
static int64_t conv_scratch(const int64_t *words) {
    static const int sizes[] = {4, 8, 8, 16};
    conv_shape s;
    conv_read(words + 1, &s);
    if (words[0] > CONV_C128 || !s.J || !s.K) return 0;
    conv_panel p = conv_panel_for(s.K, s.J, sizes[words[0]]);
    return sizes[words[0]] * (s.outputs * s.K + (p.depth + s.outputs) * p.columns);
}

#define PRODUCTS(T) NAMED_AS(products, T)(&s, conv_gemm[words[0]], lhs, rhs, out, buffers[3])

/* buffers: lhs, rhs, result, memory to work in. */
static void conv_run_all(void **buffers, const int64_t *words) {
    void *lhs = buffers[0], *rhs = buffers[1], *out = buffers[2];
    conv_shape s;
    conv_read(words + 1, &s);
    if (!s.J || !s.outputs) return;
    int direct = s.outputs <= DIRECT_OUTPUTS;
    switch (words[0]) {
    case CONV_F32: if (direct || !s.K) direct_float(&s, lhs, rhs, out); else PRODUCTS(float); break;
    case CONV_F64: if (direct || !s.K) direct_double(&s, lhs, rhs, out); else PRODUCTS(double); break;
    case CONV_C64: if (s.K) PRODUCTS(float_complex); else memset(out, 0, 8 * s.J * s.outputs * s.groups); break;
    case CONV_C128: if (s.K) PRODUCTS(double_complex); else memset(out, 0, 16 * s.J * s.outputs * s.groups); break;
    case CONV_U8: direct_uint8_t(&s, lhs, rhs, out); break;
    case CONV_U16: direct_uint16_t(&s, lhs, rhs, out); break;
    case CONV_U32: direct_uint32_t(&s, lhs, rhs, out); break;
    case CONV_U64: direct_uint64_t(&s, lhs, rhs, out); break;
    }
}

#endif
