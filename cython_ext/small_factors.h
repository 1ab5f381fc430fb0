/* Triangular factors of small matrices, for one type T; see small.h. Element (i, j) of a[rows, columns] is at
   a[i * columns + j]. */

/* Fills the lanes from `count` row-major matrices; the remaining lanes repeat the first one. */
SMALL_INLINE void NAMED(load)(T (*a)[LANES], const T *x, int count, int size) {
    int first = count < LANES ? 0 : size / NAMED(TILE) * NAMED(TILE);
    for (int l = 0; l < LANES; l += NAMED(TILE))
        for (int e = 0; e < first; e += NAMED(TILE)) NAMED(turn)(&a[e][l], LANES, x + l * size + e, size);
    EACH for (int e = first; e < size; e++) a[e][l] = x[(l < count ? l : 0) * size + e];
}

SMALL_INLINE void NAMED(save)(T *x, T (*a)[LANES], int count, int size) {
    int first = count < LANES ? 0 : size / NAMED(TILE) * NAMED(TILE);
    for (int l = 0; l < LANES; l += NAMED(TILE))
        for (int e = 0; e < first; e += NAMED(TILE)) NAMED(turn)(x + l * size + e, size, &a[e][l], LANES);
    for (int l = 0; l < count; l++)
        for (int e = first; e < size; e++) x[l * size + e] = a[e][l];
}

SMALL_INLINE uint32_t NAMED(mask)(const T *odd, int count) {
    uint32_t found = 0;
    for (int l = 0; l < count; l++) found |= (uint32_t)(odd[l] != 0) << l;
    return found;
}

/* Marks matrices with a number that is not finite as odd. */
SMALL_INLINE void NAMED(find_odd)(T (*a)[LANES], int size, T *odd) {
    EACH odd[l] = 0;
    for (int e = 0; e < size; e++) EACH odd[l] += 0 * a[e][l]; /* NaN if a number is not finite */
    EACH odd[l] = odd[l] == 0 ? 0 : 1;
}

/* Replaces the lower triangle by the factor, and the rest by zeros. symmetrize: factor (x + x^T) / 2. */
SMALL_INLINE uint32_t NAMED(cholesky_of)(const T *x, int count, int n, int symmetrize, T *out) {
    T a[SMALL_ROWS * SMALL_ROWS][LANES], odd[LANES] = {0};
    NAMED(load)(a, x, count, n * n);
    for (int i = 0; i < n; i++)
        for (int j = 0; j <= i; j++) {
            T *lower = a[i * n + j], *upper = a[j * n + i];
            if (symmetrize) EACH lower[l] = (lower[l] + upper[l]) / 2;
            if (j < i) EACH upper[l] = 0;
        }
    for (int j = 0; j < n; j++) {
        T *diagonal = a[j * n + j], inverse[LANES];
        for (int k = 0; k < j; k++) EACH diagonal[l] -= a[j * n + k][l] * a[j * n + k][l];
        EACH {
            odd[l] = diagonal[l] > 0 ? odd[l] : 1;
            diagonal[l] = SQRT(diagonal[l] > 0 ? diagonal[l] : 1);
            inverse[l] = 1 / diagonal[l];
        }
        for (int i = j + 1; i < n; i++) {
            T *element = a[i * n + j];
            for (int k = 0; k < j; k++) EACH element[l] -= a[i * n + k][l] * a[j * n + k][l];
            EACH element[l] *= inverse[l];
        }
    }
    NAMED(save)(out, a, count, n * n);
    return NAMED(mask)(odd, count);
}

static WIDE uint32_t NAMED(cholesky)(const T *x, int count, int n, int symmetrize, T *out) {
    return NAMED(cholesky_of)(x, count, n, symmetrize, out);
}

/* Applies reflection k, whose vector is in column k of a[m, n], to the columns of x[m, columns] after k. */
SMALL_INLINE void NAMED(apply)(T (*x)[LANES], int columns, T (*a)[LANES], int k, int m, int n, const T *tau) {
    T dot[LANES];
    for (int j = k + 1; j < columns; j++) {
        EACH dot[l] = x[k * columns + j][l];
        for (int i = k + 1; i < m; i++) EACH dot[l] += a[i * n + k][l] * x[i * columns + j][l];
        EACH {
            dot[l] *= tau[l];
            x[k * columns + j][l] -= dot[l];
        }
        for (int i = k + 1; i < m; i++) EACH x[i * columns + j][l] -= a[i * n + k][l] * dot[l];
    }
}

/* Replaces column k of a[m, n] by that of R and, below the diagonal, the vector v of the reflection 1 - tau v v^T,
   v_k = 1. R has LAPACK's signs. If the column's length cannot be computed from squares, the matrix is odd. */
SMALL_INLINE void NAMED(reflect)(T (*a)[LANES], int k, int m, int n, T *tau, T *odd) {
    T squares[LANES] = {0}, sizes[LANES] = {0}, factor[LANES], *diagonal = a[k * n + k];
    for (int i = k + 1; i < m; i++) EACH {
        squares[l] += a[i * n + k][l] * a[i * n + k][l];
        sizes[l] += ABS(a[i * n + k][l]);
    }
    EACH {
        T alpha = diagonal[l], square = alpha * alpha + squares[l];
        T nothing = sizes[l] == 0 ? 1 : 0;
        odd[l] = nothing != 0 || (square > TINY && square < HUGE_SIZE) ? odd[l] : 1;
        T beta = -COPYSIGN(SQRT(square), alpha);
        tau[l] = nothing != 0 ? 0 : (beta - alpha) / beta;
        factor[l] = nothing != 0 ? 0 : 1 / (alpha - beta);
        diagonal[l] = nothing != 0 ? alpha : beta;
    }
    for (int i = k + 1; i < m; i++) EACH a[i * n + k][l] *= factor[l];
    NAMED(apply)(a, n, a, k, m, n, tau);
}

/* Applies reflection k, stored in a[m, n], to q[m, columns], which equals the identity except in columns after k. */
SMALL_INLINE void NAMED(unfold)(T (*q)[LANES], T (*a)[LANES], int k, int m, int n, int columns, const T *tau) {
    NAMED(apply)(q, columns, a, k, m, n, tau);
    EACH q[k * columns + k][l] = 1 - tau[l];
    for (int i = k + 1; i < m; i++) EACH q[i * columns + k][l] = -tau[l] * a[i * n + k][l];
}

SMALL_INLINE uint32_t NAMED(qr_of)(const T *x, int count, int m, int n, int columns, T *q_out, T *r_out) {
    T a[SMALL_ROWS * SMALL_ROWS][LANES], q[SMALL_ROWS * SMALL_ROWS][LANES], tau[SMALL_ROWS][LANES], odd[LANES];
    int few = m < n ? m : n;
    NAMED(load)(a, x, count, m * n);
    NAMED(find_odd)(a, m * n, odd);
    for (int k = 0; k < few; k++) NAMED(reflect)(a, k, m, n, tau[k], odd);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < columns; j++) EACH q[i * columns + j][l] = i == j;
    for (int k = few - 1; k >= 0; k--) NAMED(unfold)(q, a, k, m, n, columns, tau[k]);
    for (int i = 1; i < columns; i++)
        for (int j = 0; j < i && j < n; j++) EACH a[i * n + j][l] = 0;
    NAMED(save)(q_out, q, count, m * columns);
    NAMED(save)(r_out, a, count, columns * n);
    return NAMED(mask)(odd, count);
}

static WIDE uint32_t NAMED(qr)(const T *x, int count, int m, int n, int columns, T *q, T *r) {
    return NAMED(qr_of)(x, count, m, n, columns, q, r);
}

/* Pivots on the first of the largest elements. pivots[count, min(m, n)]: the row exchanged with each row. */
SMALL_INLINE uint32_t NAMED(lu_of)(const T *x, int count, int m, int n, T *out, int32_t *pivots) {
    T a[SMALL_ROWS * SMALL_ROWS][LANES], chosen[SMALL_ROWS][LANES], odd[LANES];
    int few = m < n ? m : n;
    NAMED(load)(a, x, count, m * n);
    NAMED(find_odd)(a, m * n, odd);
    for (int k = 0; k < few; k++) {
        T best[LANES], *place = chosen[k], inverse[LANES], held[LANES];
        EACH best[l] = ABS(a[k * n + k][l]);
        EACH place[l] = k;
        for (int i = k + 1; i < m; i++) EACH {
            T size = ABS(a[i * n + k][l]);
            place[l] = size > best[l] ? i : place[l];
            best[l] = size > best[l] ? size : best[l];
        }
        for (int i = k + 1; i < m; i++)
            for (int j = 0; j < n; j++) EACH {
                T upper = a[k * n + j][l], lower = a[i * n + j][l];
                a[k * n + j][l] = place[l] == i ? lower : upper;
                a[i * n + j][l] = place[l] == i ? upper : lower;
            }
        EACH {
            odd[l] = best[l] == 0 || best[l] > TINY ? odd[l] : 1;
            inverse[l] = best[l] == 0 ? 0 : 1 / a[k * n + k][l];
        }
        for (int i = k + 1; i < m; i++) {
            EACH held[l] = a[i * n + k][l] *= inverse[l];
            for (int j = k + 1; j < n; j++) EACH a[i * n + j][l] -= held[l] * a[k * n + j][l];
        }
    }
    NAMED(save)(out, a, count, m * n);
    for (int l = 0; l < count; l++)
        for (int k = 0; k < few; k++) pivots[l * few + k] = (int32_t)chosen[k][l];
    return NAMED(mask)(odd, count);
}

static WIDE uint32_t NAMED(lu)(const T *x, int count, int m, int n, T *out, int32_t *pivots) {
    return NAMED(lu_of)(x, count, m, n, out, pivots);
}

/* Solves M x = b for x[n, k]. M is the triangular a[n, n] or its transpose: a x = b, or x a = b with all transposed. */
SMALL_INLINE void NAMED(solve_of)(const T *a, const T *b, int count, int n, int k, const int64_t *form, T *out) {
    T m[SMALL * SMALL][LANES], x[SMALL * SMALL][LANES], inverse[LANES];
    int left = form[0] != 0, straight = left == (form[2] == 0 || form[2] == 3), lower = (form[1] != 0) == straight;
    NAMED(load)(m, a, count, n * n);
    EACH for (int i = 0; i < n; i++)
        for (int c = 0; c < k; c++) x[i * k + c][l] = b[(l < count ? l : 0) * n * k + (left ? i * k + c : c * n + i)];
    for (int turn = 0; turn < n; turn++) {
        int i = lower ? turn : n - 1 - turn;
        if (!form[3]) EACH inverse[l] = 1 / m[i * n + i][l];
        for (int c = 0; c < k; c++) {
            for (int before = 0; before < turn; before++) {
                int j = lower ? before : n - 1 - before;
                const T *factor = m[straight ? i * n + j : j * n + i];
                EACH x[i * k + c][l] -= factor[l] * x[j * k + c][l];
            }
            if (!form[3]) EACH x[i * k + c][l] *= inverse[l];
        }
    }
    for (int l = 0; l < count; l++)
        for (int i = 0; i < n; i++)
            for (int c = 0; c < k; c++) out[l * n * k + (left ? i * k + c : c * n + i)] = x[i * k + c][l];
}

/* form: left, lower, kind of transpose, unit diagonal, as in lapack.pyx. */
static WIDE void NAMED(solve)(const T *a, const T *b, int count, int n, int k, const int64_t *form, T *out) {
    NAMED(solve_of)(a, b, count, n, k, form, out);
}
