/* Convolutions of floats by tiles in registers: ROWS columns of the result by up to two vectors of output features.

   A step along the depth multiplies two vectors of the kernel with one element of lhs for each column, so patches of lhs
   are never copied. Only the kernel is packed: vectors of features, one after the other along the depth. Each element of
   the result is a sum in the order of the depth, whatever the number of threads.

   Included once for each type T and generation of processors LEVEL, with TARGET, VECTOR (bytes) and ROWS. */

#define LANES ((int64_t)(VECTOR / sizeof(T)))
#define TILES(f) NAMED_AS(NAMED(f), LEVEL)

typedef T TILES(vec) __attribute__((vector_size(VECTOR), aligned(sizeof(T)), may_alias));

/* One tile, along `depth` steps: sums of x[at[r] + offsets[k]] times the kernel, of `vectors` vectors of features.
   `to` are the places of its rows; `more`: they hold sums already. */
static inline __attribute__((always_inline)) TARGET void TILES(tile)(T *const *to, int more, const T *x, const int64_t *at,
                                                                    const int64_t *offsets, int64_t depth, const T *w,
                                                                    const int vectors) {
    TILES(vec) sums[ROWS][2];
    _Pragma("GCC unroll 16") for (int r = 0; r < ROWS; r++)
        for (int v = 0; v < vectors; v++) sums[r][v] = (TILES(vec)){0};
    for (int64_t k = 0; k < depth; k++, w += vectors * LANES) {
        const T *from = x + offsets[k];
        __asm__("" : "+r"(from)); /* one sum for all rows, not one for each */
        const TILES(vec) first = *(const TILES(vec) *)w, second = *(const TILES(vec) *)(w + (vectors - 1) * LANES);
        _Pragma("GCC unroll 16") for (int r = 0; r < ROWS; r++) {
            const T e = from[at[r]];
            sums[r][0] += e * first;
            if (vectors > 1) sums[r][1] += e * second;
        }
    }
    if (more) { /* added once, so that rounding errors do not grow with the depth */
        _Pragma("GCC unroll 16") for (int r = 0; r < ROWS; r++)
            for (int v = 0; v < vectors; v++) sums[r][v] += *(TILES(vec) *)(to[r] + v * LANES);
    }
    _Pragma("GCC unroll 16") for (int r = 0; r < ROWS; r++) /* rows may be the same one */
        for (int v = 0; v < vectors; v++) *(TILES(vec) *)(to[r] + v * LANES) = sums[r][v];
}

static TARGET void TILES(one)(T *const *to, int more, const T *x, const int64_t *at, const int64_t *offsets, int64_t depth,
                              const T *w) {
    TILES(tile)(to, more, x, at, offsets, depth, w, 1);
}

static TARGET void TILES(two)(T *const *to, int more, const T *x, const int64_t *at, const int64_t *offsets, int64_t depth,
                              const T *w) {
    TILES(tile)(to, more, x, at, offsets, depth, w, 2);
}

/* The columns [begin, end) of the features from `o` on, `vectors` vectors of them. */
static void TILES(columns)(const conv_shape *s, const T *x, const T *w, T *y, int64_t o, int vectors, int64_t begin,
                           int64_t end) {
    const int64_t width = vectors * LANES, features = conv_least(width, s->outputs - o);
    /* Features that are next to each other, and fill the vectors, are written where they belong; others by way of `held`. */
    const int direct = features == width && s->out_output == 1;
    T held[TILE_COLUMNS * 2 * VECTOR / sizeof(T)];
    int64_t at[TILE_COLUMNS], own[TILE_COLUMNS], offsets[TILE_DEPTH];
    conv_cursor c;
    conv_start(&c, s->column, s->columns, begin);
    for (int64_t j = 0; j < end - begin; j++, conv_next(&c, s->column, s->columns)) at[j] = c.lhs, own[j] = c.own;
    conv_start(&c, s->depth, s->depths, 0);
    for (int64_t k = 0; k < s->K; k += TILE_DEPTH) {
        const int64_t depth = conv_least(TILE_DEPTH, s->K - k);
        for (int64_t i = 0; i < depth; i++, conv_next(&c, s->depth, s->depths)) offsets[i] = c.lhs;
        for (int64_t j = 0; j < end - begin; j += ROWS) {
            int64_t places[ROWS];
            T *to[ROWS];
            for (int64_t r = 0; r < ROWS; r++) { /* the last tile computes its last column again and again */
                const int64_t i = conv_least(j + r, end - begin - 1);
                places[r] = at[i];
                to[r] = direct ? y + own[i] + o * s->out_output : held + i * width;
            }
            (vectors == 1 ? TILES(one) : TILES(two))(to, k > 0, x, places, offsets, depth, w + k * width);
        }
    }
    if (direct) return;
    const int64_t side = conv_side(sizeof(T));
    for (int64_t l = 0, m; l < features; l += m) { /* a few features at a time: their lines may fall into one set of a cache */
        m = conv_least(side, features - l);
        T *z = y + (o + l) * s->out_output;
        for (int64_t j = 0; j < end - begin;) {
            if (m == side && j + side <= end - begin && own[j + side - 1] == own[j] + side - 1) {
                NAMED_AS(conv_turn, T)(z + own[j], s->out_output, held + j * width + l, width);
                j += side;
            } else {
                for (int64_t i = 0; i < m; i++) z[own[j] + i * s->out_output] = held[j * width + l + i];
                j++;
            }
        }
    }
}

/* The kernel of a group in the order of the tiles; features that are missing in the last vector are zeros. */
static void TILES(pack)(const conv_shape *s, const T *w, T *packed) {
    for (int64_t o = 0; o < s->outputs; o += 2 * LANES) {
        const int64_t width = conv_tile_vectors(s->outputs - o, LANES) * LANES, features = conv_least(width, s->outputs - o);
        conv_cursor c;
        conv_start(&c, s->depth, s->depths, 0);
        for (int64_t k = 0; k < s->K; k++, packed += width, conv_next(&c, s->depth, s->depths)) {
            const T *from = w + c.own + o * s->rhs_output;
            for (int64_t l = 0; l < features; l++) packed[l] = from[l * s->rhs_output];
            for (int64_t l = features; l < width; l++) packed[l] = 0;
        }
    }
}

/* Parts [begin, end) of the columns of one group, TILE_COLUMNS at most each. */
static void TILES(part)(void **ptrs, int64_t *params, int64_t begin, int64_t end) {
    const conv_job *job = (const conv_job *)params;
    const conv_shape *s = job->shape;
    const T *w = ptrs[1];
    for (int64_t p = begin; p < end; p++) {
        const int64_t first = p * job->columns, last = conv_least(first + job->columns, s->J);
        for (int64_t o = 0; o < s->outputs; o += 2 * LANES)
            TILES(columns)(s, ptrs[0], w + o * s->K, ptrs[2], o, conv_tile_vectors(s->outputs - o, LANES), first, last);
    }
}

/* Whether the kernel lies as the tiles read it. */
static int TILES(as_is)(const conv_shape *s) {
    int64_t stride;
    return s->rhs_output == 1 && (s->outputs == LANES || s->outputs == 2 * LANES) &&
           conv_run(s->depth, s->depths, &stride) == s->K && (s->K == 1 || stride == s->outputs);
}

static int64_t TILES(scratch)(const conv_shape *s) {
    const int64_t rest = s->outputs % (2 * LANES), width = s->outputs - rest + (rest + LANES - 1) / LANES * LANES;
    return TILES(as_is)(s) ? 0 : width * s->K * (int64_t)sizeof(T);
}

static void TILES(all)(const conv_shape *s, const T *lhs, const T *rhs, T *out, T *scratch) {
    conv_job job = {s, conv_tile_columns(s->J, ROWS)};
    const int64_t parts = (s->J + job.columns - 1) / job.columns, work = job.columns * s->outputs * s->K;
    const int as_is = TILES(as_is)(s);
    for (int64_t g = 0; g < s->groups; g++) {
        const T *w = rhs + g * s->rhs_group;
        if (!as_is) TILES(pack)(s, w, scratch);
        void *ptrs[] = {(void *)(lhs + g * s->lhs_group), (void *)(as_is ? w : scratch), out + g * s->out_group};
        conv_share(TILES(part), ptrs, (int64_t *)&job, parts, share_grain(TILE_LEAST, work));
    }
}

#undef TILES
#undef LANES
