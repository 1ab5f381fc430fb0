/* Fourier transforms with LANES numbers of type T in a vector V; see fft_lines.h. The end undefines its macros. */

typedef struct {
    V re, im;
} NAMED(cell);
#define CELL NAMED(cell)

FFT_INLINE CELL NAMED(sum)(CELL a, CELL b) { return (CELL){a.re + b.re, a.im + b.im}; }
FFT_INLINE CELL NAMED(difference)(CELL a, CELL b) { return (CELL){a.re - b.re, a.im - b.im}; }
FFT_INLINE CELL NAMED(times)(CELL a, V re, V im) { return (CELL){a.re * re - a.im * im, a.re * im + a.im * re}; }

/* ---- transforms of r cells, in place */

FFT_INLINE void NAMED(of_2)(CELL *a) {
    CELL d = NAMED(difference)(a[0], a[1]);
    a[0] = NAMED(sum)(a[0], a[1]);
    a[1] = d;
}

FFT_INLINE void NAMED(of_4)(CELL *a) {
    CELL s = NAMED(sum)(a[0], a[2]), d = NAMED(difference)(a[0], a[2]);
    CELL t = NAMED(sum)(a[1], a[3]), e = NAMED(difference)(a[1], a[3]);
    a[0] = NAMED(sum)(s, t);
    a[1] = (CELL){d.re + e.im, d.im - e.re};
    a[2] = NAMED(difference)(s, t);
    a[3] = (CELL){d.re - e.im, d.im + e.re};
}

FFT_INLINE void NAMED(of_8)(CELL *a) {
    const T h = (T)0.70710678118654752440;
    CELL even[4] = {a[0], a[2], a[4], a[6]}, odd[4] = {a[1], a[3], a[5], a[7]};
    NAMED(of_4)(even);
    NAMED(of_4)(odd);
    odd[1] = (CELL){h * (odd[1].re + odd[1].im), h * (odd[1].im - odd[1].re)};
    odd[2] = (CELL){odd[2].im, -odd[2].re};
    odd[3] = (CELL){h * (odd[3].im - odd[3].re), -h * (odd[3].re + odd[3].im)};
    _Pragma("GCC unroll 4") for (int k = 0; k < 4; k++) {
        a[k] = NAMED(sum)(even[k], odd[k]);
        a[k + 4] = NAMED(difference)(even[k], odd[k]);
    }
}

/* cos and sin of 2 pi k / r for k up to r / 2. */
static const T NAMED(turn_of_3)[][2] = {{1, 0}, {(T)-0.5, (T)0.86602540378443864676}};
static const T NAMED(turn_of_5)[][2] = {{1, 0}, {(T)0.30901699437494742410, (T)0.95105651629515357212},
                                        {(T)-0.80901699437494742410, (T)0.58778525229247312917}};
static const T NAMED(turn_of_7)[][2] = {{1, 0}, {(T)0.62348980185873353053, (T)0.78183148246802980871},
                                        {(T)-0.22252093395631440429, (T)0.97492791218182360702},
                                        {(T)-0.90096886790241912624, (T)0.43388373911755812048}};
static const T NAMED(turn_of_11)[][2] = {{1, 0}, {(T)0.84125353283118116886, (T)0.54064081745559758211},
                                         {(T)0.41541501300188642553, (T)0.90963199535451837141},
                                         {(T)-0.14231483827328514044, (T)0.98982144188093273238},
                                         {(T)-0.65486073394528506406, (T)0.75574957435425828377},
                                         {(T)-0.95949297361449738989, (T)0.28173255684142969771}};
static const T NAMED(turn_of_13)[][2] = {{1, 0}, {(T)0.88545602565320989590, (T)0.46472317204376854566},
                                         {(T)0.56806474673115580251, (T)0.82298386589365639458},
                                         {(T)0.12053668025532305335, (T)0.99270887409805399280},
                                         {(T)-0.35460488704253562597, (T)0.93501624268541482344},
                                         {(T)-0.74851074817110109863, (T)0.66312265824079520238},
                                         {(T)-0.97094181742605202716, (T)0.23931566428755776715}};

/* For odd r: sums and differences of the elements j and r - j, as sines are odd and cosines even. */
FFT_INLINE void NAMED(of_odd)(CELL *a, int r, const T (*turn)[2]) {
    CELL s[7], d[7], first = a[0];
    _Pragma("GCC unroll 7") for (int j = 1; j <= r / 2; j++) {
        s[j] = NAMED(sum)(a[j], a[r - j]);
        d[j] = NAMED(difference)(a[j], a[r - j]);
        a[0] = NAMED(sum)(a[0], s[j]);
    }
    _Pragma("GCC unroll 7") for (int k = 1; k <= r / 2; k++) {
        CELL c = first, e = {0 * first.re, 0 * first.im};
        _Pragma("GCC unroll 7") for (int j = 1; j <= r / 2; j++) {
            int at = j * k % r, back = at > r / 2;
            T re = turn[back ? r - at : at][0], im = back ? -turn[r - at][1] : turn[at][1];
            c = (CELL){c.re + re * s[j].re, c.im + re * s[j].im};
            e = j == 1 ? (CELL){im * d[j].im, im * d[j].re} : (CELL){e.re + im * d[j].im, e.im + im * d[j].re};
        }
        a[k] = (CELL){c.re + e.re, c.im - e.im};
        a[r - k] = (CELL){c.re - e.re, c.im + e.im};
    }
}
FFT_INLINE void NAMED(of_3)(CELL *a) { NAMED(of_odd)(a, 3, NAMED(turn_of_3)); }
FFT_INLINE void NAMED(of_5)(CELL *a) { NAMED(of_odd)(a, 5, NAMED(turn_of_5)); }
FFT_INLINE void NAMED(of_7)(CELL *a) { NAMED(of_odd)(a, 7, NAMED(turn_of_7)); }
FFT_INLINE void NAMED(of_11)(CELL *a) { NAMED(of_odd)(a, 11, NAMED(turn_of_11)); }
FFT_INLINE void NAMED(of_13)(CELL *a) { NAMED(of_odd)(a, 13, NAMED(turn_of_13)); }

/* ---- passes over n = r m cells of s transforms: x[k, p, q] to y[p, k, q] for k < r, p < m, q < s */

#define FFT_PASS(r)                                                                                                    \
    FFT_INLINE void NAMED(pass_##r)(const CELL *x, CELL *y, int64_t s, int64_t m, const T *w) {                        \
        for (int64_t q = 0; q < s; q++) {                                                                              \
            CELL a[r];                                                                                                 \
            _Pragma("GCC unroll 13") for (int k = 0; k < r; k++) a[k] = x[q + s * m * k];                              \
            NAMED(of_##r)(a);                                                                                          \
            _Pragma("GCC unroll 13") for (int k = 0; k < r; k++) y[q + s * k] = a[k];                                  \
        }                                                                                                              \
        for (int64_t p = 1; p < m; p++, w += 2 * (r - 1))                                                              \
            for (int64_t q = 0; q < s; q++) {                                                                          \
                CELL a[r];                                                                                             \
                _Pragma("GCC unroll 13") for (int k = 0; k < r; k++) a[k] = x[q + s * (p + m * k)];                    \
                NAMED(of_##r)(a);                                                                                      \
                y[q + s * r * p] = a[0];                                                                               \
                _Pragma("GCC unroll 13") for (int k = 1; k < r; k++) {                                                 \
                    const T re = w[2 * k - 2], im = w[2 * k - 1];                                                      \
                    y[q + s * (r * p + k)] =                                                                           \
                        (CELL){a[k].re * re - a[k].im * im, a[k].re * im + a[k].im * re};                              \
                }                                                                                                      \
            }                                                                                                          \
    }
FFT_PASS(2)
FFT_PASS(3)
FFT_PASS(4)
FFT_PASS(5)
FFT_PASS(7)
FFT_PASS(8)
FFT_PASS(11)
FFT_PASS(13)
#undef FFT_PASS

/* ---- plans */

/* Of transforms of n numbers. cells: of the lanes' transforms, whose passes follow. */
typedef struct NAMED(plan) {
    struct NAMED(plan) *next;
    int64_t n, cells;
    int method, reals, passes, radix[FFT_PASSES];
    T *w[FFT_PASSES]; /* of each pass */
    T *ends; /* FFT_ALONE: LANES factors of each lane, of each LANES results */
    T *halves; /* for reals: exp(-pi i k / n) for k up to n / 2 */
} NAMED(plan);

static void NAMED(forget)(NAMED(plan) *p) {
    for (int i = 0; i < p->passes; i++) free(p->w[i]);
    free(p->ends);
    free(p->halves);
    free(p);
}

static T *NAMED(pass_roots)(int64_t left, int r) {
    T *w = malloc(sizeof(T) * 2 * (size_t)(r * (left / r)));
    for (int64_t p = 1, i = 0; w != NULL && p < left / r; p++)
        for (int k = 1; k < r; k++, i += 2) {
            double re, im;
            fft_root(k * p, left, &re, &im);
            w[i] = (T)re;
            w[i + 1] = (T)im;
        }
    return w;
}

static T *NAMED(end_roots)(int64_t n, int64_t cells) {
    T *w = malloc(sizeof(T) * 2 * LANES * (size_t)(cells + LANES));
    for (int64_t k = 0; w != NULL && k < cells; k += LANES)
        for (int64_t l = 0; l < LANES; l++)
            for (int64_t j = 0; j < LANES; j++) {
                double re, im;
                fft_root(l * (k + j), n, &re, &im);
                T *at = w + 2 * LANES * (k + l) + j;
                at[0] = (T)re;
                at[LANES] = (T)im;
            }
    return w;
}

static T *NAMED(half_roots)(int64_t n) {
    T *w = malloc(sizeof(T) * 2 * (size_t)(n / 2 + 1));
    for (int64_t k = 0; w != NULL && k <= n / 2; k++) {
        double re, im;
        fft_root(k, 2 * n, &re, &im);
        w[2 * k] = (T)re;
        w[2 * k + 1] = (T)im;
    }
    return w;
}

/* The plan for a size and method, made at the first call and then kept. reals: whether lines have or become reals.
   NULL: there is no memory. */
static const NAMED(plan) *NAMED(planned)(int64_t n, int method, int reals) {
    static NAMED(plan) *_Atomic all;
    NAMED(plan) *first = atomic_load(&all);
    for (NAMED(plan) *p = first; p != NULL; p = p->next)
        if (p->n == n && p->method == method && p->reals == reals) return p;
    NAMED(plan) *p = calloc(1, sizeof *p);
    if (p == NULL) return NULL;
    p->n = n;
    p->method = method;
    p->reals = reals;
    if (reals && (p->halves = NAMED(half_roots)(n)) == NULL) return NAMED(forget)(p), NULL;
    p->cells = method == FFT_ALONE ? n / LANES : n;
    if (method == FFT_ALONE && (p->ends = NAMED(end_roots)(n, p->cells)) == NULL) return NAMED(forget)(p), NULL;
    for (int64_t left = p->cells; left > 1; left /= p->radix[p->passes - 1]) {
        p->radix[p->passes] = fft_radix(left);
        p->w[p->passes] = NAMED(pass_roots)(left, p->radix[p->passes]);
        if (p->w[p->passes++] == NULL) return NAMED(forget)(p), NULL;
    }
    do p->next = first;
    while (!atomic_compare_exchange_weak(&all, &first, p)); /* another thread may have made the same; no harm */
    return p;
}

/* Transforms cells, with as many behind them for workspace; returns where the result is. */
WIDE static CELL *NAMED(cells)(const NAMED(plan) *p, CELL *x) {
    CELL *y = x + p->cells + LANES;
    int64_t s = 1, left = p->cells;
    for (int i = 0; i < p->passes; i++) {
        int r = p->radix[i];
        const T *w = p->w[i];
        left /= r;
        switch (r) {
        case 2: NAMED(pass_2)(x, y, s, left, w); break;
        case 3: NAMED(pass_3)(x, y, s, left, w); break;
        case 4: NAMED(pass_4)(x, y, s, left, w); break;
        case 5: NAMED(pass_5)(x, y, s, left, w); break;
        case 7: NAMED(pass_7)(x, y, s, left, w); break;
        case 8: NAMED(pass_8)(x, y, s, left, w); break;
        case 11: NAMED(pass_11)(x, y, s, left, w); break;
        default: NAMED(pass_13)(x, y, s, left, w);
        }
        s *= r;
        CELL *swap = x;
        x = y;
        y = swap;
    }
    return x;
}

/* ---- between lines and cells */

FFT_INLINE CELL NAMED(load)(const T *x) {
    V first, second;
    memcpy(&first, x, sizeof first);
    memcpy(&second, x + LANES, sizeof second);
    return (CELL){EVENS(first, second), ODDS(first, second)};
}

FFT_INLINE void NAMED(store)(T *x, CELL a) {
    V first = FIRST(a.re, a.im), second = SECOND(a.re, a.im);
    memcpy(x, &first, sizeof first);
    memcpy(x + LANES, &second, sizeof second);
}

/* The inverse transform has the same elements in another order: element k is number n - k. */
FFT_INLINE int64_t NAMED(place)(int64_t k, int64_t n, int inverse) { return inverse && k > 0 ? n - k : k; }

/* Transforms `count` <= LANES lines, whose elements are `in` and `out` complex numbers apart. */
WIDE static void NAMED(each)(const NAMED(plan) *p, const T **from, T **to, int count, int64_t in, int64_t out, int inverse,
                             T factor, CELL *x) {
    int64_t n = p->n, j = 0;
    int neighbours = count == LANES, rows = count == LANES && in == 1 && out == 1;
    for (int l = 1; l < count; l++) {
        neighbours &= from[l] == from[0] + 2 * l && to[l] == to[0] + 2 * l;
        rows &= from[l] - from[l - 1] == from[1] - from[0] && to[l] - to[l - 1] == to[1] - to[0];
    }
    if (neighbours)
        for (; j < n; j++) x[j] = NAMED(load)(from[0] + 2 * in * j);
    else if (rows)
        for (; j + LANES / 2 <= n; j += LANES / 2) TURN((T *)(x + j), LANES, from[0] + 2 * j, from[1] - from[0]);
    for (; j < n; j++) {
        T cell[2 * LANES];
        for (int l = 0; l < LANES; l++) {
            const T *at = from[l < count ? l : 0] + 2 * in * j;
            cell[l] = at[0];
            cell[l + LANES] = at[1];
        }
        memcpy(x + j, cell, sizeof cell);
    }
    x = NAMED(cells)(p, x);
    j = 0;
    if (neighbours)
        for (; j < n; j++) {
            CELL a = x[NAMED(place)(j, n, inverse)];
            NAMED(store)(to[0] + 2 * out * j, (CELL){factor * a.re, factor * a.im});
        }
    else if (rows)
        for (; j + LANES / 2 <= n; j += LANES / 2) {
            CELL a[LANES / 2];
            for (int i = 0; i < LANES / 2; i++) {
                CELL b = x[NAMED(place)(j + i, n, inverse)];
                a[i] = (CELL){factor * b.re, factor * b.im};
            }
            TURN(to[0] + 2 * j, to[1] - to[0], (T *)a, LANES);
        }
    for (; j < n; j++) {
        T cell[2 * LANES];
        CELL a = x[NAMED(place)(j, n, inverse)];
        a = (CELL){factor * a.re, factor * a.im};
        memcpy(cell, &a, sizeof cell);
        for (int l = 0; l < count; l++) {
            to[l][2 * out * j] = cell[l];
            to[l][2 * out * j + 1] = cell[l + LANES];
        }
    }
}

/* Transforms one line of contiguous numbers: lane l has the elements l, l + LANES, ... The inverse transform of (re, im)
   is the transform of (im, re), exchanged again. */
WIDE static void NAMED(alone)(const NAMED(plan) *p, const T *from, T *to, int64_t in, int64_t out, int inverse, T factor,
                              CELL *x) {
    int64_t cells = p->cells;
    for (int64_t j = 0; j < cells; j++) {
        CELL a;
        if (in == 1) a = NAMED(load)(from + 2 * LANES * j);
        else {
            T cell[2 * LANES];
            for (int l = 0; l < LANES; l++) memcpy(cell + 2 * l, from + 2 * in * (LANES * j + l), 2 * sizeof(T));
            a = NAMED(load)(cell);
        }
        x[j] = inverse ? (CELL){a.im, a.re} : a;
    }
    x = NAMED(cells)(p, x);
    memset(x + cells, 0, sizeof(CELL) * LANES);
    for (int64_t k = 0; k < cells; k += LANES) {
        V re[LANES], im[LANES];
        CELL a[LANES];
        TURN((T *)re, LANES, (T *)(x + k), 2 * LANES);
        TURN((T *)im, LANES, (T *)(x + k) + LANES, 2 * LANES);
        for (int l = 0; l < LANES; l++) {
            V w[2];
            memcpy(w, p->ends + 2 * LANES * (k + l), sizeof w);
            a[l] = NAMED(times)((CELL){re[l], im[l]}, w[0], w[1]);
        }
        if (LANES == 8) NAMED(of_8)(a);
        else NAMED(of_4)(a);
        for (int l = 0; l < LANES; l++) {
            CELL b = {factor * a[l].re, factor * a[l].im};
            T *at = to + 2 * out * (k + cells * l), some[2 * LANES];
            int64_t count = cells - k < LANES ? cells - k : LANES;
            if (inverse) b = (CELL){b.im, b.re};
            if (out == 1 && count == LANES) {
                NAMED(store)(at, b);
                continue;
            }
            NAMED(store)(some, b);
            for (int64_t j = 0; j < count; j++) memcpy(at + 2 * out * j, some + 2 * j, 2 * sizeof(T));
        }
    }
}

/* ---- reals: a line of 2 n reals is transformed as n complex numbers. e: the transform of the even elements; o: that of
   the odd elements. The complex transform is e + i o. The transform of the reals is e + w o, with w = exp(-pi i k / n). */

FFT_INLINE CELL NAMED(back)(CELL a) { return (CELL){BACK(a.re), BACK(a.im)}; }

/* From the transform of n complex numbers to the first n + 1 of the transform of 2 n reals, in place. */
WIDE static void NAMED(untangle)(T *x, int64_t n, const T *w) {
    const T half = (T)0.5, re = x[0], im = x[1];
    int64_t k = 1;
    x[0] = re + im;
    x[1] = 0;
    x[2 * n] = re - im;
    x[2 * n + 1] = 0;
    for (; 2 * (k + LANES) <= n; k += LANES) {
        T *first = x + 2 * k, *last = x + 2 * (n - k - LANES + 1);
        CELL a = NAMED(load)(first), b = NAMED(back)(NAMED(load)(last)), r = NAMED(load)(w + 2 * k);
        V e = half * (a.re + b.re), f = half * (a.im - b.im);
        CELL o = NAMED(times)((CELL){half * (a.im + b.im), half * (b.re - a.re)}, r.re, r.im);
        NAMED(store)(first, (CELL){e + o.re, f + o.im + 0});
        NAMED(store)(last, NAMED(back)((CELL){e - o.re, o.im - f + 0}));
    }
    for (; k <= n / 2; k++) {
        T *a = x + 2 * k, *b = x + 2 * (n - k);
        T e = half * (a[0] + b[0]), f = half * (a[1] - b[1]), o = half * (a[1] + b[1]), p = half * (b[0] - a[0]);
        T u = o * w[2 * k] - p * w[2 * k + 1], v = o * w[2 * k + 1] + p * w[2 * k];
        a[0] = e + u;
        a[1] = f + v + 0;
        b[0] = e - u;
        b[1] = v - f + 0;
    }
}

/* The inverse, times 2. */
WIDE static void NAMED(tangle)(const T *x, T *z, int64_t n, const T *w) {
    int64_t k = 1;
    z[0] = x[0] + x[2 * n];
    z[1] = x[0] - x[2 * n];
    for (; 2 * (k + LANES) <= n; k += LANES) {
        const int64_t last = n - k - LANES + 1;
        CELL a = NAMED(load)(x + 2 * k), b = NAMED(back)(NAMED(load)(x + 2 * last)), r = NAMED(load)(w + 2 * k);
        V e = a.re + b.re, f = a.im - b.im;
        CELL o = NAMED(times)((CELL){a.re - b.re, a.im + b.im}, r.re, -r.im);
        NAMED(store)(z + 2 * k, (CELL){e - o.im, f + o.re});
        NAMED(store)(z + 2 * last, NAMED(back)((CELL){e + o.im, o.re - f}));
    }
    for (; k <= n / 2; k++) {
        const T *a = x + 2 * k, *b = x + 2 * (n - k);
        T e = a[0] + b[0], f = a[1] - b[1], u = a[0] - b[0], v = a[1] + b[1];
        T o = u * w[2 * k] + v * w[2 * k + 1], p = v * w[2 * k] - u * w[2 * k + 1];
        z[2 * k] = e - p;
        z[2 * k + 1] = f + o;
        z[2 * (n - k)] = e + p;
        z[2 * (n - k) + 1] = o - f;
    }
}

/* From the first half of the transform of `size` reals to all of it, or its conjugate. A zero gets no minus sign. */
WIDE static void NAMED(complete)(T *x, int64_t size, int inverse) {
    int64_t k = 1, half = (size + 1) / 2;
    for (; k + LANES <= half; k += LANES) {
        CELL a = NAMED(load)(x + 2 * k), b = {a.re, 0 - a.im};
        if (inverse) NAMED(store)(x + 2 * k, b);
        NAMED(store)(x + 2 * (size - k - LANES + 1), NAMED(back)(inverse ? a : b));
    }
    for (; k < half; k++) {
        T im = x[2 * k + 1], minus = 0 - im;
        if (inverse) x[2 * k + 1] = minus;
        x[2 * (size - k)] = x[2 * k];
        x[2 * (size - k) + 1] = inverse ? im : minus;
    }
}

FFT_INLINE void NAMED(before)(const fft_lines *s, const T **from, T *to) {
    if (s->kind != FFT_FROM_HALF) return;
    NAMED(tangle)(*from, to, s->n, ((const NAMED(plan) *)s->plan)->halves);
    *from = to;
}

FFT_INLINE void NAMED(after)(const fft_lines *s, T *to) {
    if (s->kind != FFT_TO_HALF && s->kind != FFT_TO_WHOLE) return;
    NAMED(untangle)(to, s->n, ((const NAMED(plan) *)s->plan)->halves);
    if (s->kind == FFT_TO_WHOLE) NAMED(complete)(to, 2 * s->n, s->inverse);
}

/* ---- many lines */

static void NAMED(some)(fft_lines *s, int64_t begin, int64_t end) {
    const NAMED(plan) *p = s->plan;
    CELL *room = fft_room((int64_t)sizeof(CELL) * 2 * (p->cells + LANES));
    int inverse = s->kind == FFT_COMPLEX ? s->inverse : s->kind == FFT_FROM_HALF;
    if (room == NULL) {
        s->failed = 1;
        return;
    }
    for (int64_t line = begin, count; line < end; line += count) {
        const T *from[LANES];
        T *to[LANES];
        count = s->method == FFT_ALONE ? 1 : end - line < LANES ? end - line : LANES;
        for (int l = 0; l < count; l++) {
            int64_t block = (line + l) / s->behind, column = (line + l) % s->behind;
            int64_t at = block * s->n * s->behind + column;
            from[l] = (const T *)s->x + 2 * (s->behind > 1 ? at : block * s->x_line);
            to[l] = (T *)s->out + 2 * (s->behind > 1 ? at : block * s->out_line);
            NAMED(before)(s, &from[l], to[l]);
        }
        if (s->method == FFT_ALONE)
            NAMED(alone)(p, from[0], to[0], s->behind, s->behind, inverse, (T)s->factor, room);
        else NAMED(each)(p, from, to, (int)count, s->behind, s->behind, inverse, (T)s->factor, room);
        for (int l = 0; l < count; l++) NAMED(after)(s, to[l]);
    }
    fft_leave_room();
}

#undef CELL
#undef T
#undef LANES
#undef V
#undef NAMED
#undef TURN
#undef EVENS
#undef ODDS
#undef FIRST
#undef SECOND
#undef BACK
