/* Eigenvalues and singular values of small matrices by Jacobi's rotations, for one type T; see small.h.

   J. Demmel, K. Veselic, "Jacobi's method is more accurate than QR" (1992). Matrices are column-major: element i of
   column j of a matrix with `rows` rows is at a[j * rows + i]. */

/* Divides each matrix by a power of two so that its largest number is in [top, 2 top); power: these powers. */
SMALL_INLINE void NAMED(scale)(T (*a)[LANES], int size, T top, T *power, T *odd) {
    T largest[LANES] = {0}, sum[LANES] = {0}, inverse[LANES];
    I bits[LANES];
    for (int e = 0; e < size; e++) EACH {
        largest[l] = ABS(a[e][l]) > largest[l] ? ABS(a[e][l]) : largest[l];
        sum[l] += 0 * a[e][l]; /* NaN if a number is not finite */
    }
    memcpy(bits, largest, sizeof bits);
    EACH bits[l] &= EXPONENT;
    memcpy(power, bits, sizeof bits);
    EACH {
        T ordinary = sum[l] == 0 && power[l] > TINY ? 1 : 0;
        odd[l] = ordinary != 0 || largest[l] == 0 ? 0 : 1;
        inverse[l] = top / (ordinary != 0 ? power[l] : 1);
        power[l] = ordinary != 0 ? power[l] / top : 1;
    }
    for (int e = 0; e < size; e++) EACH a[e][l] *= inverse[l];
}

/* The tangent of the angle, at most pi / 4, that diagonalizes a symmetric 2x2 matrix. gap: the difference of its
   diagonal elements; twice: twice the other element. 0 if not active. */
SMALL_INLINE T NAMED(tangent)(T active, T gap, T twice) {
    twice *= gap < 0 ? -active : active;
    T length = ABS(gap) + SQRT(gap * gap + twice * twice);
    return twice / (length + (1 - active));
}

/* Replaces (x, y) by (c x - s y, s x + c y). */
SMALL_INLINE void NAMED(rotate)(T *x, T *y, const T *c, const T *s) {
    EACH {
        T turned = c[l] * x[l] - s[l] * y[l];
        y[l] = s[l] * x[l] + c[l] * y[l];
        x[l] = turned;
    }
}

SMALL_INLINE int NAMED(any)(const T *flags) {
    T sum = 0;
    EACH sum += flags[l];
    return sum != 0;
}

/* If `first` belongs after `second`, exchanges the two values, and the columns of one or two matrices. */
SMALL_INLINE void NAMED(exchange)(T *first, T *second, T sign, T (*a)[LANES], T (*b)[LANES], int m, int n) {
    T swap[LANES];
    EACH swap[l] = sign * first[l] > sign * second[l] ? 1 : 0;
    for (int i = -1; i < m + n; i++) {
        T *x = i < 0 ? first : i < m ? a[i] : b[i - m];
        T *y = i < 0 ? second : i < m ? a[m + i] : b[n + i - m];
        EACH {
            T low = x[l], high = y[l];
            x[l] = swap[l] != 0 ? high : low;
            y[l] = swap[l] != 0 ? low : high;
        }
    }
}

/* One sweep over all pairs of rows and columns of the upper triangle of a[n, n]; rotates v too. Flags what moved. */
SMALL_INLINE void NAMED(eigh_sweep)(T (*a)[LANES], T (*v)[LANES], int n, T *moved) {
    for (int p = 0; p < n - 1; p++)
        for (int q = p + 1; q < n; q++) {
            T *pp = a[p * n + p], *qq = a[q * n + q], *pq = a[q * n + p];
            T active[LANES], c[LANES], s[LANES];
            EACH active[l] = ABS(pq[l]) > EPSILON / 64 ? 1 : 0;
            EACH {
                T t = NAMED(tangent)(active[l], qq[l] - pp[l], 2 * pq[l]);
                c[l] = 1 / SQRT(1 + t * t);
                s[l] = t * c[l];
                pp[l] -= t * pq[l];
                qq[l] += t * pq[l];
                pq[l] *= 1 - active[l];
                moved[l] += active[l];
            }
            for (int i = 0; i < n; i++) {
                if (i != p && i != q)
                    NAMED(rotate)(a[i < p ? p * n + i : i * n + p], a[i < q ? q * n + i : i * n + q], c, s);
                NAMED(rotate)(v[p * n + i], v[q * n + i], c, s);
            }
        }
}

SMALL_INLINE uint32_t NAMED(eigh_of)(const T *x, int count, int n, int lower, T *vectors, T *values) {
    T a[SMALL * SMALL][LANES], v[SMALL * SMALL][LANES], w[SMALL][LANES], power[LANES], odd[LANES], moved[LANES];
    EACH for (int j = 0; j < n; j++)
        for (int i = 0; i <= j; i++)
            a[j * n + i][l] = x[(l < count ? l : 0) * n * n + (lower ? j * n + i : i * n + j)];
    for (int j = 0; j < n; j++)
        for (int i = j + 1; i < n; i++) EACH a[j * n + i][l] = 0;
    NAMED(scale)(a, n * n, 1, power, odd);
    for (int e = 0; e < n * n; e++) EACH v[e][l] = e % (n + 1) == 0;
    for (int sweep = 0; sweep < SMALL_SWEEPS; sweep++) {
        EACH moved[l] = 0;
        NAMED(eigh_sweep)(a, v, n, moved);
        if (!NAMED(any)(moved)) break;
    }
    EACH odd[l] = moved[l] != 0 ? 1 : odd[l];
    for (int j = 0; j < n; j++) EACH w[j][l] = a[j * n + j][l] * power[l];
    for (int end = n - 1; end > 0; end--)
        for (int j = 0; j < end; j++) NAMED(exchange)(w[j], w[j + 1], 1, v + j * n, v, n, 0);
    for (int l = 0; l < count; l++)
        for (int j = 0; j < n; j++) {
            values[l * n + j] = w[j][l];
            for (int i = 0; i < n; i++) vectors[(l * n + i) * n + j] = v[j * n + i][l];
        }
    return NAMED(mask)(odd, count);
}

/* x -> vectors, values in ascending order. */
static WIDE uint32_t NAMED(eigh)(const T *x, int count, int n, int lower, T *vectors, T *values) {
    return NAMED(eigh_of)(x, count, n, lower, vectors, values);
}

/* One sweep over all pairs of columns of a[m, n], which makes them orthogonal; rotates v[n, n], if given, too. */
SMALL_INLINE void NAMED(svd_sweep)(T (*a)[LANES], T (*v)[LANES], int m, int n, int vectors, T *moved) {
    for (int p = 0; p < n - 1; p++)
        for (int q = p + 1; q < n; q++) {
            T pp[LANES] = {0}, qq[LANES] = {0}, pq[LANES] = {0};
            T active[LANES], c[LANES], s[LANES];
            for (int i = 0; i < m; i++) EACH {
                pp[l] += a[p * m + i][l] * a[p * m + i][l];
                qq[l] += a[q * m + i][l] * a[q * m + i][l];
                pq[l] += a[p * m + i][l] * a[q * m + i][l];
            }
            EACH active[l] = pq[l] * pq[l] > m * EPSILON * EPSILON / 2 * (pp[l] * qq[l]) ? 1 : 0;
            EACH {
                T t = NAMED(tangent)(active[l], qq[l] - pp[l], 2 * pq[l]);
                c[l] = 1 / SQRT(1 + t * t);
                s[l] = t * c[l];
                moved[l] += active[l];
            }
            for (int i = 0; i < m; i++) NAMED(rotate)(a[p * m + i], a[q * m + i], c, s);
            if (vectors)
                for (int i = 0; i < n; i++) NAMED(rotate)(v[p * n + i], v[q * n + i], c, s);
        }
}

/* Divides the columns of a[m, n] by their lengths, which are the values, and sorts them in descending order. */
SMALL_INLINE void NAMED(svd_values)(T (*a)[LANES], T (*v)[LANES], T (*w)[LANES], int m, int n, int vectors, T *odd) {
    for (int j = 0; j < n; j++) {
        EACH w[j][l] = 0;
        for (int i = 0; i < m; i++) EACH w[j][l] += a[j * m + i][l] * a[j * m + i][l];
        EACH {
            odd[l] = w[j][l] > LEAST ? odd[l] : 1;
            w[j][l] = SQRT(w[j][l]);
        }
        if (vectors)
            for (int i = 0; i < m; i++) EACH a[j * m + i][l] /= w[j][l];
    }
    for (int end = n - 1; end > 0; end--)
        for (int j = 0; j < end; j++)
            NAMED(exchange)(w[j], w[j + 1], -1, a + j * m, v + j * n, vectors ? m : 0, vectors ? n : 0);
}

SMALL_INLINE uint32_t NAMED(svd_of)(const T *x, int count, int rows, int columns, T *values, T *u, T *vh) {
    T a[SMALL * SMALL][LANES], v[SMALL * SMALL][LANES], w[SMALL][LANES], power[LANES], odd[LANES], moved[LANES];
    int wide = rows < columns, m = wide ? columns : rows, n = wide ? rows : columns, vectors = u != 0;
    EACH for (int j = 0; j < n; j++)
        for (int i = 0; i < m; i++)
            a[j * m + i][l] = x[(l < count ? l : 0) * m * n + (wide ? j * m + i : i * n + j)];
    NAMED(scale)(a, m * n, TOP, power, odd);
    for (int e = 0; e < n * n; e++) EACH v[e][l] = e % (n + 1) == 0;
    for (int sweep = 0; sweep < SMALL_SWEEPS; sweep++) {
        EACH moved[l] = 0;
        NAMED(svd_sweep)(a, v, m, n, vectors, moved);
        if (!NAMED(any)(moved)) break;
    }
    EACH odd[l] = moved[l] != 0 ? 1 : odd[l];
    NAMED(svd_values)(a, v, w, m, n, vectors, odd);
    for (int l = 0; l < count; l++)
        for (int j = 0; j < n; j++) {
            values[l * n + j] = w[j][l] * power[l];
            if (!vectors) continue;
            for (int i = 0; i < m; i++) (wide ? vh : u)[l * m * n + (wide ? j * m + i : i * n + j)] = a[j * m + i][l];
            for (int i = 0; i < n; i++) (wide ? u : vh)[l * n * n + (wide ? i * n + j : j * n + i)] = v[j * n + i][l];
        }
    return NAMED(mask)(odd, count);
}

/* x -> values in descending order; and u and vh, with as many columns and rows as values, unless these are NULL. */
static WIDE uint32_t NAMED(svd)(const T *x, int count, int m, int n, T *s, T *u, T *vh) {
    return NAMED(svd_of)(x, count, m, n, s, u, vh);
}
