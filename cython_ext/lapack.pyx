# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""LAPACK on stacks of matrices, as native code that programs call without the GIL.

A kernel is `void f(void **buffers, const int64_t *words)`. buffers: operands and results, row-major. words: the kind of
number (0 float32, 1 float64, 2 complex64, 3 complex128), the number of matrices, then sizes and options. LAPACK's
matrices are column-major, so each is transposed on the way in and out. If LAPACK fails on a matrix, or there is no
memory for a copy, the results are NaN. Small real matrices first go through `small.h`, several at a time, which leaves
few of them to LAPACK. The threads of the rank share the matrices of a stack.
"""

from libc.stdint cimport int32_t, int64_t, uint32_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from mpijax._ext.executor cimport Library
from mpijax._ext.matrices cimport (
    F5, F6, F8, F9, F11, F13, F14, F15, Kinds, all_finite, at, bytes_of, call_geqp3, fill_nan, item,
    length_of, over_stack, real_bytes, take_routines, transpose, triangle_finite,
)

cdef extern from "small.h" nogil:
    # Each returns a mask of the matrices that it leaves to LAPACK.
    int64_t small_lanes(int64_t kind, int64_t m, int64_t n, int64_t stack)
    int64_t small_lanes_of_factors(int64_t kind, int64_t m, int64_t n, int64_t stack)
    int64_t small_lanes_of_spectra(int64_t kind, int64_t m, int64_t n, int64_t stack)
    bint small_alone(int64_t kind, int64_t m, int64_t n)
    bint small_system(int64_t kind, int64_t n, int64_t sides)
    bint small_cholesky_alone(int64_t kind, const void* a, int n, int symmetrize, void* out)
    bint small_qr_alone(int64_t kind, const void* a, int m, int n, int columns, void* q, void* r)
    bint small_lu_alone(int64_t kind, const void* a, int m, int n, void* out, int32_t* pivots)
    void small_solve_alone(
        int64_t kind, const void* a, const void* b, int n, int sides, const int64_t* form, void* out)
    uint32_t small_cholesky(int64_t kind, const void* a, int count, int n, int symmetrize, void* out)
    uint32_t small_qr(int64_t kind, const void* a, int count, int m, int n, int columns, void* q, void* r)
    uint32_t small_lu(int64_t kind, const void* a, int count, int m, int n, void* out, int32_t* pivots)
    void small_solve(int64_t kind, const void* a, const void* b, int count, int n, int k, const int64_t* form,
                     void* out)
    uint32_t small_eigh(int64_t kind, const void* a, int count, int n, int lower, void* vectors, void* values)
    uint32_t small_svd(int64_t kind, const void* a, int count, int m, int n, void* s, void* u, void* vh)

cdef enum:
    POTRF, GETRF, TRSM, GEQRF, GEQP3, ORGQR, SYEVD, GESDD, ROUTINES

cdef Kinds table[ROUTINES]
cdef Library blas


def install(routines, threads_of_blas):
    """Takes capsules of the functions: for each routine those of the four kinds.

    threads_of_blas: see `take_routines`.
    """
    take_routines(table, &blas, routines, threads_of_blas)


# ---- kernels

cdef void lower_triangle(item* out, const item* x, int64_t n, bint symmetrize) noexcept nogil:
    """The lower triangle of x[n, n], or of (x + x^T) / 2; zeros above the diagonal."""
    cdef int64_t i, j
    for i in range(n):
        for j in range(n):
            if j > i:
                out[i * n + j] = 0
            elif symmetrize:
                out[i * n + j] = (x[i * n + j] + x[j * n + i]) / 2
            else:
                out[i * n + j] = x[i * n + j]


cdef void to_factor(void* out, const void* x, int64_t n, bint symmetrize, int64_t kind) noexcept nogil:
    if kind == 0:
        lower_triangle(<float*>out, <const float*>x, n, symmetrize)
    elif kind == 1:
        lower_triangle(<double*>out, <const double*>x, n, symmetrize)
    elif kind == 2:
        lower_triangle(<float complex*>out, <const float complex*>x, n, symmetrize)
    else:
        lower_triangle(<double complex*>out, <const double complex*>x, n, symmetrize)


ctypedef fused real:
    float
    double


cdef enum:
    TURNED = 48             # real matrices of at least this size are factored in columns
    TILE = 16               # rows and columns that are turned together


cdef void turned_triangle(real* out, const real* x, int64_t n, bint symmetrize) noexcept nogil:
    """The transpose of the lower triangle of x[n, n], or of (x + x^T) / 2; the rest of `out` stays."""
    cdef int64_t row, column, i, j
    for row in range((n + TILE - 1) // TILE):
        for column in range(row + 1):
            for j in range(column * TILE, min((column + 1) * TILE, n)):
                for i in range(max(row * TILE, j), min((row + 1) * TILE, n)):
                    out[j * n + i] = (x[i * n + j] + x[j * n + i]) / 2 if symmetrize else x[i * n + j]


cdef void turn_back(real* x, int64_t n) noexcept nogil:
    """Moves the upper triangle to the lower one, and leaves zeros."""
    cdef int64_t row, column, i, j
    for row in range((n + TILE - 1) // TILE):
        for column in range(row + 1):
            for i in range(row * TILE, min((row + 1) * TILE, n)):
                for j in range(column * TILE, min((column + 1) * TILE, i)):
                    x[i * n + j] = x[j * n + i]
                    x[j * n + i] = 0


cdef int factor_by_columns(real* out, const real* x, int n, bint symmetrize, int64_t kind) noexcept nogil:
    cdef int info = 0
    turned_triangle(out, x, n, symmetrize)
    (<F5>table[POTRF][kind])(<char*>"L", &n, out, &n, &info)
    turn_back(out, n)
    return info


cdef int factor_by_rows(void* out, const void* x, int n, bint symmetrize, int64_t kind) noexcept nogil:
    """A row-major matrix's lower triangle is the column-major matrix's upper one, so nothing is transposed."""
    cdef int info = 0
    to_factor(out, x, n, symmetrize, kind)
    (<F5>table[POTRF][kind])(<char*>"U", &n, out, &n, &info)
    return info


cdef void cholesky(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> l, zero above the diagonal; words[4]: whether to factor the real (a + a^T) / 2.

    OpenBLAS factors the lower triangle of real matrices in half the time that the upper one takes.
    """
    cdef int64_t kind = words[0], k, i, size = bytes_of(kind)
    cdef int n = words[2], info = 0
    cdef int64_t step = <int64_t>n * n * size, lanes = small_lanes_of_factors(kind, n, n, words[1])
    cdef uint32_t left = 0
    cdef void *a
    cdef void *out
    if n == 0:
        return
    for k in range(begin, end):
        a, out = at(buffers[0], k * step), at(buffers[1], k * step)
        if lanes:
            if k % lanes == 0:
                left = small_cholesky(kind, a, min(lanes, end - k), n, words[4], out)
            if not left >> (k % lanes) & 1:
                continue
        elif small_alone(kind, n, n) and not small_cholesky_alone(kind, a, n, words[4], out):
            continue
        if n < TURNED or kind > 1:
            info = factor_by_rows(out, a, n, words[4], kind)
        elif kind == 0:
            info = factor_by_columns(<float*>out, <float*>a, n, words[4], kind)
        else:
            info = factor_by_columns(<double*>out, <double*>a, n, words[4], kind)
        if info:
            for i in range(n):
                fill_nan(at(out, i * n * size), i + 1, kind)


cdef void lu(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> factors, pivots, permutation."""
    cdef int64_t kind = words[0], k, i, size = bytes_of(kind)
    cdef int m = words[2], n = words[3], info = 0
    cdef int64_t few = min(m, n), step = <int64_t>m * n * size, lanes = small_lanes_of_factors(kind, m, n, words[1])
    cdef void* a = malloc(step + 1)
    cdef int32_t *pivots
    cdef uint32_t left = 0
    for k in range(begin, end):
        pivots = <int32_t*>buffers[2] + k * few
        if few == 0:
            order_rows(pivots, few, <int32_t*>buffers[3] + k * m, m)
            continue
        if lanes:
            if k % lanes == 0:
                left = small_lu(kind, at(buffers[0], k * step), min(lanes, end - k), m, n,
                                at(buffers[1], k * step), pivots)
            if not left >> (k % lanes) & 1:
                order_rows(pivots, few, <int32_t*>buffers[3] + k * m, m)
                continue
        elif small_alone(kind, m, n) and not small_lu_alone(
            kind, at(buffers[0], k * step), m, n, at(buffers[1], k * step), pivots
        ):
            order_rows(pivots, few, <int32_t*>buffers[3] + k * m, m)
            continue
        info = -1
        if a != NULL:
            transpose(a, at(buffers[0], k * step), m, n, size)
            (<F6>table[GETRF][kind])(&m, &n, a, &m, pivots, &info)
        if info < 0:
            for i in range(few):
                pivots[i] = <int32_t>i
            fill_nan(at(buffers[1], k * step), <int64_t>m * n, kind)
        else:
            transpose(at(buffers[1], k * step), a, n, m, size)
            for i in range(few):
                pivots[i] -= 1
        order_rows(pivots, few, <int32_t*>buffers[3] + k * m, m)
    free(a)


cdef void order_rows(const int32_t* pivots, int64_t few, int32_t* order, int64_t rows) noexcept nogil:
    """The order of rows after the exchanges by pivots; exchanges with rows out of range are skipped."""
    cdef int64_t i
    cdef int32_t held
    for i in range(rows):
        order[i] = <int32_t>i
    for i in range(few):
        if pivots[i] < 0 or pivots[i] >= rows:
            continue
        held = order[i]
        order[i] = order[pivots[i]]
        order[pivots[i]] = held


cdef void lu_pivots_to_permutation(void** buffers, const int64_t* words) noexcept nogil:
    """pivots -> permutation; words: the size of the stack, pivots, rows."""
    cdef int64_t k
    for k in range(words[0]):
        order_rows(<int32_t*>buffers[0] + k * words[1], words[1], <int32_t*>buffers[1] + k * words[2], words[2])


cdef void negate_imaginary(void* x, int64_t count, int64_t kind) noexcept nogil:
    cdef int64_t i
    for i in range(count):
        if kind == 3:
            (<double*>x)[2 * i + 1] = -(<double*>x)[2 * i + 1]
        else:
            (<float*>x)[2 * i + 1] = -(<float*>x)[2 * i + 1]


cdef void triangular_solve(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a, b -> x; options: left, lower, kind of transpose, unit diagonal.

    Reading row-major matrices as column-major ones swaps the sides and the triangles. A conjugate without a transpose
    is applied to b and x instead.
    """
    cdef int64_t kind = words[0], k, size = bytes_of(kind), conjugate = words[6] == 3
    cdef int rows = words[2], columns = words[3]
    cdef bint left = words[4] != 0
    cdef int n = rows if left else columns
    cdef int64_t step = <int64_t>rows * columns * size, a_step = <int64_t>n * n * size
    cdef char side = c"R" if left else c"L"
    cdef char triangle = c"U" if words[5] else c"L"
    cdef char form = c"T" if words[6] == 1 else (c"C" if words[6] == 2 else c"N")
    cdef char unit = c"U" if words[7] else c"N"
    cdef double complex one = 1
    cdef float complex one_single = 1
    cdef double real_one = 1
    cdef float real_one_single = 1
    cdef void* alpha
    if kind > 1:
        alpha = <void*>&one if kind == 3 else <void*>&one_single
    else:
        alpha = <void*>&real_one if kind == 1 else <void*>&real_one_single
    cdef int64_t lanes = small_lanes(kind, rows, columns, words[1])
    if step == 0:
        return
    if lanes:
        k = begin
        while k < end:
            small_solve(kind, at(buffers[0], k * a_step), at(buffers[1], k * step), min(lanes, end - k), n,
                        columns if left else rows, words + 4, at(buffers[2], k * step))
            k += lanes
        return
    if small_system(kind, n, columns if left else rows):
        for k in range(begin, end):
            small_solve_alone(kind, at(buffers[0], k * a_step), at(buffers[1], k * step), n, columns if left else rows,
                              words + 4, at(buffers[2], k * step))
        return
    memcpy(at(buffers[2], begin * step), at(buffers[1], begin * step), (end - begin) * step)
    for k in range(begin, end):
        if conjugate:
            negate_imaginary(at(buffers[2], k * step), <int64_t>rows * columns, kind)
        (<F11>table[TRSM][kind])(&side, &triangle, &form, &unit, &columns, &rows, alpha,
                                 at(buffers[0], k * a_step), &n, at(buffers[2], k * step), &columns)
        if conjugate:
            negate_imaginary(at(buffers[2], k * step), <int64_t>rows * columns, kind)


cdef void eigh(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> vectors, values; option: lower."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind), real = real_bytes(kind)
    cdef int n = words[2], info = 0, lwork = -1, lrwork = -1, liwork = -1, integer = 1
    cdef int64_t step = <int64_t>n * n * size, lanes = small_lanes_of_spectra(kind, n, n, words[1])
    cdef uint32_t left = 0
    cdef char triangle = c"L" if words[4] else c"U"
    cdef double complex asked = 0, asked_real = 0
    cdef void *a
    cdef void *work
    cdef void *rwork
    cdef void *iwork
    if n == 0 or words[1] == 0:
        return
    if kind > 1:
        (<F13>table[SYEVD][kind])(<char*>"V", &triangle, &n, NULL, &n, NULL, &asked, &lwork, &asked_real, &lrwork,
                                  &integer, &liwork, &info)
        lrwork = length_of(&asked_real, kind)
    else:
        (<F11>table[SYEVD][kind])(<char*>"V", &triangle, &n, NULL, &n, NULL, &asked, &lwork, &integer, &liwork, &info)
        lrwork = 0
    lwork, liwork = length_of(&asked, kind), integer
    a = malloc(step)
    work = malloc(lwork * size)
    rwork = malloc(lrwork * real + 1)
    iwork = malloc(<int64_t>liwork * 4)
    for k in range(begin, end):
        if lanes:
            if k % lanes == 0:
                left = small_eigh(kind, at(buffers[0], k * step), min(lanes, end - k), n, words[4] != 0,
                                  at(buffers[1], k * step), at(buffers[2], k * n * real))
            if not left >> (k % lanes) & 1:
                continue
        info = -1
        if a != NULL and work != NULL and rwork != NULL and iwork != NULL:
            if triangle_finite(at(buffers[0], k * step), n, words[4] != 0, kind):
                transpose(a, at(buffers[0], k * step), n, n, size)
                if kind > 1:
                    (<F13>table[SYEVD][kind])(<char*>"V", &triangle, &n, a, &n, at(buffers[2], k * n * real), work,
                                              &lwork, rwork, &lrwork, iwork, &liwork, &info)
                else:
                    (<F11>table[SYEVD][kind])(<char*>"V", &triangle, &n, a, &n, at(buffers[2], k * n * real), work,
                                              &lwork, iwork, &liwork, &info)
        if info:
            fill_nan(at(buffers[1], k * step), <int64_t>n * n, kind)
            fill_nan(at(buffers[2], k * n * real), n, kind & 1)
        else:
            transpose(at(buffers[1], k * step), a, n, n, size)
    free(a)
    free(work)
    free(rwork)
    free(iwork)


cdef void call_gesdd(int64_t kind, char* job, int* m, int* n, void* a, void* s, void* u, void* vt, int* ldvt,
                     void* work, int* lwork, void* rwork, void* iwork, int* info) noexcept nogil:
    if kind > 1:
        (<F15>table[GESDD][kind])(job, m, n, a, m, s, u, m, vt, ldvt, work, lwork, rwork, iwork, info)
    else:
        (<F14>table[GESDD][kind])(job, m, n, a, m, s, u, m, vt, ldvt, work, lwork, iwork, info)


cdef void svd(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> values, u, vh, or only values; options: whether u and vh are requested, whether they are square."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind), real = real_bytes(kind)
    cdef int m = words[2], n = words[3], info = 0, lwork = -1
    cdef int few = min(m, n), many = max(m, n)
    cdef bint vectors = words[4] != 0
    cdef int u_columns = m if words[5] else few, vt_rows = n if words[5] else few
    cdef char job = (c"A" if words[5] else c"S") if vectors else c"N"
    cdef int64_t step = <int64_t>m * n * size, u_step = <int64_t>m * u_columns * size
    cdef int64_t vt_step = <int64_t>vt_rows * n * size
    cdef bint whole = m == n or not (vectors and words[5])
    cdef int64_t lanes = small_lanes_of_spectra(kind, m, n, words[1]) if whole else 0
    cdef uint32_t left = 0
    cdef int64_t reals = 7 * few + max(5 * <int64_t>few * few + 7 * few, 2 * <int64_t>many * few
                                       + 2 * <int64_t>few * few + few)
    cdef double complex asked = 0
    cdef void *a
    cdef void *u
    cdef void *vt
    cdef void *work
    cdef void *rwork
    cdef void *iwork
    if step == 0 or words[1] == 0:
        if vectors:
            fill_eyes(buffers[2], words[1], m, u_columns, kind)
            fill_eyes(buffers[3], words[1], vt_rows, n, kind)
        return
    call_gesdd(kind, &job, &m, &n, NULL, NULL, NULL, NULL, &vt_rows, &asked, &lwork, NULL, NULL, &info)
    lwork = length_of(&asked, kind)
    a = malloc(step)
    u = malloc(u_step)
    vt = malloc(vt_step)
    work = malloc(lwork * size)
    rwork = malloc(reals * real if kind > 1 else 1)
    iwork = malloc(<int64_t>few * 8 * 4)
    for k in range(begin, end):
        if lanes:
            if k % lanes == 0:
                left = small_svd(kind, at(buffers[0], k * step), min(lanes, end - k), m, n,
                                 at(buffers[1], k * few * real), at(buffers[2], k * u_step) if vectors else NULL,
                                 at(buffers[3], k * vt_step) if vectors else NULL)
            if not left >> (k % lanes) & 1:
                continue
        info = -1
        if a != NULL and u != NULL and vt != NULL and work != NULL and rwork != NULL and iwork != NULL:
            if all_finite(at(buffers[0], k * step), <int64_t>m * n, kind):
                transpose(a, at(buffers[0], k * step), m, n, size)
                call_gesdd(kind, &job, &m, &n, a, at(buffers[1], k * few * real), u,
                           vt, &vt_rows, work, &lwork, rwork, iwork, &info)
        if info:
            fill_nan(at(buffers[1], k * few * real), few, kind & 1)
        if vectors and info:
            fill_nan(at(buffers[2], k * u_step), <int64_t>m * u_columns, kind)
            fill_nan(at(buffers[3], k * vt_step), <int64_t>vt_rows * n, kind)
        elif vectors:
            transpose(at(buffers[2], k * u_step), u, u_columns, m, size)
            transpose(at(buffers[3], k * vt_step), vt, n, vt_rows, size)
    free(a)
    free(u)
    free(vt)
    free(work)
    free(rwork)
    free(iwork)


cdef void fill_eyes(void* x, int64_t count, int64_t rows, int64_t columns, int64_t kind) noexcept nogil:
    """Fills (rectangular) identity matrices."""
    cdef int64_t k, i
    cdef char* one
    memset(x, 0, count * rows * columns * bytes_of(kind))
    for k in range(count):
        for i in range(min(rows, columns)):
            one = at(x, ((k * rows + i) * columns + i) * bytes_of(kind))
            if kind & 1:
                (<double*>one)[0] = 1
            else:
                (<float*>one)[0] = 1


cdef void take_triangle(char* r, const char* a, int64_t rows, int64_t m, int64_t n, int64_t size) noexcept nogil:
    """r[rows, n], row-major, from the upper triangle of the column-major a[m, n]."""
    cdef int64_t i, j
    memset(r, 0, rows * n * size)
    for i in range(min(rows, n)):
        for j in range(i, n):
            memcpy(r + (i * n + j) * size, a + (j * m + i) * size, size)


cdef void qr(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> q, r, and the order of columns if they are exchanged; options: whether q is square, whether to exchange."""
    cdef int64_t kind = words[0], k, i, size = bytes_of(kind), real = real_bytes(kind)
    cdef int m = words[2], n = words[3], info = 0, question = -1, lwork
    cdef int few = min(m, n), columns = m if words[4] else few
    cdef bint exchanges = words[5] != 0
    cdef int64_t step = <int64_t>m * n * size, q_step = <int64_t>m * columns * size
    cdef int64_t r_step = <int64_t>columns * n * size
    cdef int64_t lanes = small_lanes_of_factors(kind, m, max(n, columns), words[1]) if not exchanges else 0
    cdef uint32_t left = 0
    cdef double complex asked = 0
    cdef void *a
    cdef void *tau
    cdef void *work
    cdef void *rwork
    cdef int32_t *order
    if step == 0 or words[1] == 0:
        fill_eyes(buffers[1], words[1], m, columns, kind)
        memset(buffers[2], 0, words[1] * r_step)
        if exchanges:
            memset(buffers[3], 0, words[1] * n * 4)
        return
    if exchanges:
        call_geqp3(table[GEQP3][kind], kind, &m, &n, NULL, NULL, NULL, &asked, &question, NULL, &info)
    else:
        (<F8>table[GEQRF][kind])(&m, &n, NULL, &m, NULL, &asked, &question, &info)
    lwork = length_of(&asked, kind)
    (<F9>table[ORGQR][kind])(&m, &columns, &few, NULL, &m, NULL, &asked, &question, &info)
    lwork = max(lwork, length_of(&asked, kind))
    a = malloc(<int64_t>m * max(n, columns) * size)
    tau = malloc(few * size)
    work = malloc(lwork * size)
    rwork = malloc(2 * n * real)
    for k in range(begin, end):
        if lanes:
            if k % lanes == 0:
                left = small_qr(kind, at(buffers[0], k * step), min(lanes, end - k), m, n, columns,
                                at(buffers[1], k * q_step), at(buffers[2], k * r_step))
            if not left >> (k % lanes) & 1:
                continue
        elif not exchanges and small_alone(kind, m, max(n, columns)) and not small_qr_alone(
            kind, at(buffers[0], k * step), m, n, columns, at(buffers[1], k * q_step), at(buffers[2], k * r_step)
        ):
            continue
        order = (<int32_t*>buffers[3]) + k * n if exchanges else NULL
        if a == NULL or tau == NULL or work == NULL or rwork == NULL:
            fill_nan(at(buffers[1], k * q_step), <int64_t>m * columns, kind)
            fill_nan(at(buffers[2], k * r_step), <int64_t>columns * n, kind)
            continue
        transpose(a, at(buffers[0], k * step), m, n, size)
        if exchanges:
            memset(order, 0, n * 4)
            call_geqp3(table[GEQP3][kind], kind, &m, &n, a, order, tau, work, &lwork, rwork, &info)
            for i in range(n):
                order[i] -= 1
        else:
            (<F8>table[GEQRF][kind])(&m, &n, a, &m, tau, work, &lwork, &info)
        take_triangle(at(buffers[2], k * r_step), <char*>a, columns, m, n, size)
        (<F9>table[ORGQR][kind])(&m, &columns, &few, a, &m, tau, work, &lwork, &info)
        transpose(at(buffers[1], k * q_step), a, columns, m, size)
    free(a)
    free(tau)
    free(work)
    free(rwork)


# ---- entry points for programs: kernels on whole stacks

cdef void cholesky_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(cholesky, buffers, words, &blas)


cdef void lu_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(lu, buffers, words, &blas)


cdef void triangular_solve_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(triangular_solve, buffers, words, &blas)


cdef void eigh_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(eigh, buffers, words, &blas)


cdef void svd_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(svd, buffers, words, &blas)


cdef void qr_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(qr, buffers, words, &blas)


def addresses():
    """The kernels' addresses, by name."""
    return {
        "cholesky": <uintptr_t>&cholesky_all, "lu": <uintptr_t>&lu_all, "eigh": <uintptr_t>&eigh_all,
        "svd": <uintptr_t>&svd_all, "qr": <uintptr_t>&qr_all, "triangular_solve": <uintptr_t>&triangular_solve_all,
        "lu_pivots_to_permutation": <uintptr_t>&lu_pivots_to_permutation,
    }
