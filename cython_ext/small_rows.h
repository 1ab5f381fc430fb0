/* Triangular factors of one small matrix at a time, for one type T; see small.h. A vector holds SPAN elements of a row.

   Rows are padded to whole vectors. Elements beside the ones that count are computed too and never read. */

typedef T NAMED(span) __attribute__((vector_size(32), may_alias));
typedef union {
    T at[SMALL_ROWS];
    NAMED(span) spans[SMALL_ROWS / SPAN];
} NAMED(row);

/* The vectors from the one with element `first` up to element n. */
#define SPANS(first, n) for (int s = (first) / SPAN; s * SPAN < (n); s++)

/* x -= factor * y from element `first` to n. */
SMALL_INLINE void NAMED(subtract)(NAMED(row) *x, T factor, const NAMED(row) *y, int first, int n) {
    SPANS(first, n) x->spans[s] -= factor * y->spans[s];
}

/* Elements from the beginning of the vector of element k + 1 to element k. */
#define BEFORE(k) for (int l = ((k) + 1) / SPAN * SPAN; l <= (k); l++)

/* The rows of x[m, n], padded with zeros; whether all numbers are finite. */
SMALL_INLINE int NAMED(rows)(NAMED(row) *a, const T *x, int m, int n) {
    NAMED(span) sum = {0};
    for (int i = 0; i < m; i++) {
        a[i].spans[(n - 1) / SPAN] = sum * 0;
        memcpy(a[i].at, x + i * n, (size_t)n * sizeof(T));
        SPANS(0, n) sum += 0 * a[i].spans[s]; /* NaN if a number is not finite */
    }
    T all = 0;
    for (int l = 0; l < SPAN; l++) all += sum[l];
    return all == 0;
}

/* The lower triangle of the factor of x, or of (x + x^T) / 2, and zeros; 1 if x is not positive definite. */
SMALL_INLINE int NAMED(cholesky_alone_of)(const T *x, int n, int symmetrize, T *out) {
    NAMED(row) c[SMALL_ROWS]; /* row j: column j of the factor */
    for (int j = 0; j < n; j++) {
        SPANS(j, n) c[j].spans[s] = (NAMED(span)){0};
        if (symmetrize)
            for (int i = j; i < n; i++) c[j].at[i] = (x[i * n + j] + x[j * n + i]) / 2;
        else
            for (int i = j; i < n; i++) c[j].at[i] = x[i * n + j];
    }
    for (int j = 0; j < n; j++) {
        const T diagonal = c[j].at[j];
        if (!(diagonal > 0)) return 1;
        const T root = SQRT(diagonal), inverse = 1 / root;
        SPANS(j, n) c[j].spans[s] *= inverse;
        c[j].at[j] = root;
        for (int k = j + 1; k < n; k++) NAMED(subtract)(&c[k], c[j].at[k], &c[j], k, n);
    }
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) out[i * n + j] = j <= i ? c[j].at[i] : 0;
    return 0;
}

static WIDE int NAMED(cholesky_alone)(const T *x, int n, int symmetrize, T *out) {
    return NAMED(cholesky_alone_of)(x, n, symmetrize, out);
}

/* Pivots as `lu` does; 1 if numbers are not finite or a pivot is too small. */
SMALL_INLINE int NAMED(lu_alone_of)(const T *x, int m, int n, T *out, int32_t *pivots) {
    NAMED(row) a[SMALL_ROWS], pivot;
    const int few = m < n ? m : n;
    if (!NAMED(rows)(a, x, m, n)) return 1;
    for (int k = 0; k < few; k++) {
        int place = k;
        T best = ABS(a[k].at[k]);
        for (int i = k + 1; i < m; i++)
            if (ABS(a[i].at[k]) > best) place = i, best = ABS(a[i].at[k]);
        if (best != 0 && !(best > TINY)) return 1;
        pivots[k] = place;
        pivot = a[place];
        if (place != k) a[place] = a[k], a[k] = pivot;
        const T inverse = best == 0 ? 0 : 1 / pivot.at[k];
        BEFORE(k) pivot.at[l] = 0;
        for (int i = k + 1; i < m; i++) {
            a[i].at[k] *= inverse;
            NAMED(subtract)(&a[i], a[i].at[k], &pivot, k + 1, n);
        }
    }
    for (int i = 0; i < m; i++) memcpy(out + i * n, a[i].at, (size_t)n * sizeof(T));
    return 0;
}

static WIDE int NAMED(lu_alone)(const T *x, int m, int n, T *out, int32_t *pivots) {
    return NAMED(lu_alone_of)(x, m, n, out, pivots);
}

/* Applies reflection k, whose vector is in column k of a[m], to the columns of x[m, columns] after k. */
SMALL_INLINE void NAMED(apply_alone)(NAMED(row) *x, int columns, const NAMED(row) *a, int k, int m, T tau) {
    NAMED(row) dot = x[k];
    for (int i = k + 1; i < m; i++) NAMED(subtract)(&dot, -a[i].at[k], &x[i], k + 1, columns);
    SPANS(k + 1, columns) dot.spans[s] *= tau;
    BEFORE(k) dot.at[l] = 0;
    NAMED(subtract)(&x[k], 1, &dot, k + 1, columns);
    for (int i = k + 1; i < m; i++) NAMED(subtract)(&x[i], a[i].at[k], &dot, k + 1, columns);
}

/* Signs as in `qr`; 1 if numbers are not finite, or the length of a column cannot be computed from squares. */
SMALL_INLINE int NAMED(qr_alone_of)(const T *x, int m, int n, int columns, T *q_out, T *r_out) {
    NAMED(row) a[SMALL_ROWS], q[SMALL_ROWS];
    T tau[SMALL_ROWS];
    const int few = m < n ? m : n;
    if (!NAMED(rows)(a, x, m, n)) return 1;
    for (int k = 0; k < few; k++) {
        const T alpha = a[k].at[k];
        T squares = 0, sizes = 0;
        for (int i = k + 1; i < m; i++) squares += a[i].at[k] * a[i].at[k], sizes += ABS(a[i].at[k]);
        tau[k] = 0;
        if (sizes == 0) continue; /* nothing below the diagonal */
        const T square = alpha * alpha + squares;
        if (!(square > TINY && square < HUGE_SIZE)) return 1;
        const T beta = -COPYSIGN(SQRT(square), alpha), factor = 1 / (alpha - beta);
        tau[k] = (beta - alpha) / beta;
        a[k].at[k] = beta;
        for (int i = k + 1; i < m; i++) a[i].at[k] *= factor;
        NAMED(apply_alone)(a, n, a, k, m, tau[k]);
    }
    for (int i = 0; i < m; i++) {
        SPANS(0, columns) q[i].spans[s] = (NAMED(span)){0};
        q[i].at[i] = 1;
    }
    for (int k = few - 1; k >= 0; k--) {
        NAMED(apply_alone)(q, columns, a, k, m, tau[k]);
        q[k].at[k] = 1 - tau[k];
        for (int i = k + 1; i < m; i++) q[i].at[k] = -tau[k] * a[i].at[k];
    }
    for (int i = 0; i < m; i++) memcpy(q_out + i * columns, q[i].at, (size_t)columns * sizeof(T));
    for (int i = 0; i < columns; i++)
        for (int j = 0; j < n; j++) r_out[i * n + j] = j < i ? 0 : a[i].at[j];
    return 0;
}

static WIDE int NAMED(qr_alone)(const T *x, int m, int n, int columns, T *q, T *r) {
    return NAMED(qr_alone_of)(x, m, n, columns, q, r);
}

/* Solves the systems of `solve` for few right sides. */
SMALL_INLINE void NAMED(solve_alone_of)(const T *a, const T *b, int n, int sides, const int64_t *form, T *out) {
    NAMED(row) m[SMALL_ROWS], x;
    T inverse[SMALL_ROWS];
    const int left = form[0] != 0, below = form[1] != 0, straight = left == (form[2] == 0 || form[2] == 3);
    for (int i = 0; i < n; i++) {
        const int from = below ? 0 : i, to = below ? i + 1 : n;
        SPANS(0, n) m[i].spans[s] = (NAMED(span)){0}; /* the other triangle may have any numbers */
        memcpy(m[i].at + from, a + i * n + from, (size_t)(to - from) * sizeof(T));
        inverse[i] = form[3] ? 1 : 1 / m[i].at[i];
    }
    for (int c = 0; c < sides; c++) {
        SPANS(0, n) x.spans[s] = (NAMED(span)){0};
        if (!straight)
            for (int i = 0; i < n; i++) x.at[i] = b[left ? i * sides + c : c * n + i];
        for (int turn = 0; turn < n; turn++) {
            const int i = below == straight ? turn : n - 1 - turn;
            if (straight) { /* a row of the system's matrix times what is known */
                NAMED(span) dot = {0};
                T sum = b[left ? i * sides + c : c * n + i];
                SPANS(0, n) dot += m[i].spans[s] * x.spans[s];
                for (int l = 0; l < SPAN; l++) sum -= dot[l];
                x.at[i] = sum * inverse[i];
            } else { /* a column of it */
                const T known = x.at[i] * inverse[i];
                NAMED(subtract)(&x, known, &m[i], 0, n);
                x.at[i] = known;
            }
        }
        for (int i = 0; i < n; i++) out[left ? i * sides + c : c * n + i] = x.at[i];
    }
}

static WIDE void NAMED(solve_alone)(const T *a, const T *b, int n, int sides, const int64_t *form, T *out) {
    NAMED(solve_alone_of)(a, b, n, sides, form, out);
}

#undef SPANS
#undef BEFORE
