# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Tridiagonal, Hessenberg and Schur forms, eigenvalues and tridiagonal systems by LAPACK, on stacks of matrices.

Kernels have the interface of those in `lapack.pyx`. If LAPACK fails, or there is no memory, results are NaN.
"""

from libc.float cimport DBL_EPSILON, DBL_MIN, FLT_EPSILON, FLT_MIN
from libc.stdint cimport int64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from mpijax._ext.executor cimport Library
from mpijax._ext.matrices cimport (
    F8, F9, F10, F11, F14, F15, Kinds, all_finite, at, bytes_of, fill_nan, item, length_of, over_stack,
    real_bytes, take_routines, transpose,
)

cdef enum:
    GTSV, SYTRD, GEHRD, GEES, GEEV, STEVD, ROUTINES

cdef Kinds table[ROUTINES]
cdef Library blas


def install(routines, threads_of_blas):
    """Takes capsules of the functions: for each routine those of the four kinds, or of the two real ones.

    threads_of_blas: see `take_routines`.
    """
    take_routines(table, &blas, routines, threads_of_blas)


cdef void eliminate(const item* dl, const item* d, const item* du, item* b, item* upper, int64_t n, int64_t columns,
                    double eps, double tiny) noexcept nogil:
    """Overwrites b with x. Pivots below the largest element's rounding error are raised to it. upper: room for 3 n."""
    cdef int64_t i, j, c
    cdef item below[3]
    cdef item held, factor
    cdef double least = 0
    for i in range(n):
        least = max(least, <double>abs(d[i]))
        if i + 1 < n:
            least = max(least, <double>abs(dl[i]), <double>abs(du[i]))
        upper[3 * i], upper[3 * i + 1], upper[3 * i + 2] = d[i], du[i] if i + 1 < n else 0, 0
    least = max(least * eps, tiny)
    for i in range(n - 1):
        below[0], below[1], below[2] = dl[i], upper[3 * i + 3], upper[3 * i + 4]
        if abs(below[0]) > abs(upper[3 * i]):
            for j in range(3):
                held, upper[3 * i + j], below[j] = upper[3 * i + j], below[j], upper[3 * i + j]
            for c in range(columns):
                held = b[i * columns + c]
                b[i * columns + c] = b[(i + 1) * columns + c]
                b[(i + 1) * columns + c] = held
        if abs(upper[3 * i]) < least:
            upper[3 * i] = <item>least
        factor = below[0] / upper[3 * i]
        upper[3 * i + 3] = below[1] - factor * upper[3 * i + 1]
        upper[3 * i + 4] = below[2] - factor * upper[3 * i + 2]
        for c in range(columns):
            b[(i + 1) * columns + c] = b[(i + 1) * columns + c] - factor * b[i * columns + c]
    if n > 0 and abs(upper[3 * n - 3]) < least:
        upper[3 * n - 3] = <item>least
    for i in range(n - 1, -1, -1):
        for c in range(columns):
            held = b[i * columns + c]
            for j in range(1, min(3, n - i)):
                held = held - upper[3 * i + j] * b[(i + j) * columns + c]
            b[i * columns + c] = held / upper[3 * i]


cdef void solve_perturbed(int64_t kind, char* dl, void* d, void* du, char* b, char* upper, int64_t n,
                          int64_t columns) noexcept nogil:
    if kind == 0:
        eliminate(<float*>dl, <float*>d, <float*>du, <float*>b, <float*>upper, n, columns, FLT_EPSILON, FLT_MIN)
    elif kind == 1:
        eliminate(<double*>dl, <double*>d, <double*>du, <double*>b, <double*>upper, n, columns, DBL_EPSILON, DBL_MIN)
    elif kind == 2:
        eliminate(<float complex*>dl, <float complex*>d, <float complex*>du, <float complex*>b, <float complex*>upper,
                  n, columns, FLT_EPSILON, FLT_MIN)
    else:
        eliminate(<double complex*>dl, <double complex*>d, <double complex*>du, <double complex*>b,
                  <double complex*>upper, n, columns, DBL_EPSILON, DBL_MIN)


cdef void tridiagonal_solve(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """dl, d, du, b -> x; option: whether small pivots are replaced."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind)
    cdef int n = words[2], columns = words[3], info
    cdef int64_t row = n * size, step = row * columns
    cdef char* room
    cdef char* b
    if step == 0:
        return
    room = <char*>malloc(3 * row)
    b = <char*>malloc(step)
    for k in range(begin, end):
        info = -1
        if room == NULL or b == NULL:
            pass
        elif words[4]:
            memcpy(at(buffers[4], k * step), at(buffers[3], k * step), step)
            solve_perturbed(kind, at(buffers[0], k * row + size), at(buffers[1], k * row), at(buffers[2], k * row),
                            at(buffers[4], k * step), room, n, columns)
            continue
        else:
            memcpy(room, at(buffers[0], k * row + size), row - size)
            memcpy(room + row, at(buffers[1], k * row), row)
            memcpy(room + 2 * row, at(buffers[2], k * row), row - size)
            transpose(b, at(buffers[3], k * step), n, columns, size)
            (<F8>table[GTSV][kind])(&n, &columns, room, room + row, room + 2 * row, b, &n, &info)
        if info:
            fill_nan(at(buffers[4], k * step), <int64_t>n * columns, kind)
        else:
            transpose(at(buffers[4], k * step), b, columns, n, size)
    free(room)
    free(b)


cdef void tridiagonal(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> a, d, e, taus; option: lower."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind), real = real_bytes(kind)
    cdef int n = words[2], info = 0, lwork = -1
    cdef int64_t step = <int64_t>n * n * size
    cdef char triangle = c"L" if words[4] else c"U"
    cdef double complex asked = 0
    cdef char* a
    cdef char* work
    if step == 0 or words[1] == 0:
        return
    (<F10>table[SYTRD][kind])(&triangle, &n, NULL, &n, NULL, NULL, NULL, &asked, &lwork, &info)
    lwork = length_of(&asked, kind)
    a = <char*>malloc(step)
    work = <char*>malloc(lwork * size)
    for k in range(begin, end):
        info = -1
        if a != NULL and work != NULL:
            transpose(a, at(buffers[0], k * step), n, n, size)
            (<F10>table[SYTRD][kind])(&triangle, &n, a, &n, at(buffers[2], k * n * real),
                                      at(buffers[3], k * (n - 1) * real), at(buffers[4], k * (n - 1) * size), work,
                                      &lwork, &info)
            transpose(at(buffers[1], k * step), a, n, n, size)
        if info:
            fill_nan(at(buffers[1], k * step), <int64_t>n * n, kind)
            fill_nan(at(buffers[2], k * n * real), n, kind & 1)
            fill_nan(at(buffers[3], k * (n - 1) * real), n - 1, kind & 1)
            fill_nan(at(buffers[4], k * (n - 1) * size), n - 1, kind)
    free(a)
    free(work)


cdef void hessenberg(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> a, taus."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind)
    cdef int n = words[2], first = 1, info = 0, lwork = -1
    cdef int64_t step = <int64_t>n * n * size
    cdef double complex asked = 0
    cdef char* a
    cdef char* work
    if step == 0 or words[1] == 0:
        return
    (<F9>table[GEHRD][kind])(&n, &first, &n, NULL, &n, NULL, &asked, &lwork, &info)
    lwork = length_of(&asked, kind)
    a = <char*>malloc(step)
    work = <char*>malloc(lwork * size)
    for k in range(begin, end):
        if a == NULL or work == NULL:
            fill_nan(at(buffers[1], k * step), <int64_t>n * n, kind)
            fill_nan(at(buffers[2], k * (n - 1) * size), n - 1, kind)
            continue
        transpose(a, at(buffers[0], k * step), n, n, size)
        (<F9>table[GEHRD][kind])(&n, &first, &n, a, &n, at(buffers[2], k * (n - 1) * size), work, &lwork, &info)
        transpose(at(buffers[1], k * step), a, n, n, size)
    free(a)
    free(work)


cdef void call_gees(int64_t kind, char* job, int* n, void* a, char* values, void* vectors, void* work, int* lwork,
                    void* rwork, int* info) noexcept nogil:
    """values: room for 2 n real numbers; rwork: for n of them, or for 1 in a query of the length of `work`."""
    cdef int chosen = 0
    if kind > 1:
        (<F15>table[GEES][kind])(job, <char*>"N", NULL, n, a, n, &chosen, values, vectors, n, work, lwork, rwork, NULL,
                                 info)
    else:
        (<F15>table[GEES][kind])(job, <char*>"N", NULL, n, a, n, &chosen, values, values + n[0] * real_bytes(kind),
                                 vectors, n, work, lwork, NULL, info)


cdef void schur(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> form, vectors, or only the form; option: whether vectors are requested."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind)
    cdef int n = words[2], info = 0, lwork = -1
    cdef int64_t step = <int64_t>n * n * size
    cdef char job = c"V" if words[4] else c"N"
    cdef double complex asked = 0, asked_real = 0
    cdef char* a
    cdef char* vectors
    cdef char* values
    cdef char* work
    if step == 0 or words[1] == 0:
        return
    call_gees(kind, &job, &n, NULL, NULL, NULL, &asked, &lwork, &asked_real, &info)
    lwork = length_of(&asked, kind)
    a = <char*>malloc(step)
    vectors = <char*>malloc(step)
    values = <char*>malloc(3 * n * real_bytes(kind))
    work = <char*>malloc(lwork * size)
    for k in range(begin, end):
        info = -1
        if a != NULL and vectors != NULL and values != NULL and work != NULL:
            if all_finite(at(buffers[0], k * step), <int64_t>n * n, kind):
                transpose(a, at(buffers[0], k * step), n, n, size)
                call_gees(kind, &job, &n, a, values, vectors, work, &lwork, values + 2 * n * real_bytes(kind), &info)
        if info:
            fill_nan(at(buffers[1], k * step), <int64_t>n * n, kind)
        else:
            transpose(at(buffers[1], k * step), a, n, n, size)
        if words[4] and info:
            fill_nan(at(buffers[2], k * step), <int64_t>n * n, kind)
        elif words[4]:
            transpose(at(buffers[2], k * step), vectors, n, n, size)
    free(a)
    free(vectors)
    free(values)
    free(work)


cdef void tridiagonal_eigh(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """d, e -> values, vectors."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind)
    cdef int n = words[2], info = 0, lwork = 1 + 4 * n + n * n, liwork = 3 + 5 * n
    cdef int64_t step = <int64_t>n * n * size
    cdef char* vectors
    cdef char* off
    cdef char* work
    cdef char* iwork
    if step == 0:
        return
    vectors = <char*>malloc(step)
    off = <char*>malloc(n * size)
    work = <char*>malloc(lwork * size)
    iwork = <char*>malloc(<int64_t>liwork * 4)
    for k in range(begin, end):
        info = -1
        memcpy(at(buffers[2], k * n * size), at(buffers[0], k * n * size), n * size)
        if vectors != NULL and off != NULL and work != NULL and iwork != NULL:
            memcpy(off, at(buffers[1], k * (n - 1) * size), (n - 1) * size)
            if all_finite(at(buffers[0], k * n * size), n, kind) and all_finite(off, n - 1, kind):
                (<F11>table[STEVD][kind])(<char*>"V", &n, at(buffers[2], k * n * size), off, vectors, &n, work, &lwork,
                                          iwork, &liwork, &info)
        if info:
            fill_nan(at(buffers[2], k * n * size), n, kind)
            fill_nan(at(buffers[3], k * step), <int64_t>n * n, kind)
        else:
            transpose(at(buffers[3], k * step), vectors, n, n, size)
    free(vectors)
    free(off)
    free(work)
    free(iwork)


ctypedef fused number:
    float
    double


cdef void pair_up(number* out, const number* v, const number* imaginary, int64_t n) noexcept nogil:
    """Complex out[n, n] from the columns of v[n, n] (column-major); two columns form a conjugate pair."""
    cdef int64_t i, j, first
    cdef number sign
    for j in range(n):
        first = j - 1 if imaginary[j] < 0 else j
        sign = 0 if imaginary[j] == 0 else (1 if imaginary[j] > 0 else -1)
        for i in range(n):
            out[2 * (i * n + j)] = v[first * n + i]
            out[2 * (i * n + j) + 1] = sign * v[(first + 1) * n + i] if sign != 0 else 0


cdef void put_vectors(char* out, char* v, const char* imaginary, int64_t n, int64_t kind) noexcept nogil:
    if kind > 1:
        transpose(out, v, n, n, bytes_of(kind))
    elif kind == 1:
        pair_up(<double*>out, <const double*>v, <const double*>imaginary, n)
    else:
        pair_up(<float*>out, <const float*>v, <const float*>imaginary, n)


cdef void put_values(char* out, const char* w, int64_t n, int64_t kind) noexcept nogil:
    cdef int64_t i, real = real_bytes(kind)
    if kind > 1:
        memcpy(out, w, n * bytes_of(kind))
        return
    for i in range(n):
        memcpy(out + 2 * i * real, w + i * real, real)
        memcpy(out + (2 * i + 1) * real, w + (n + i) * real, real)


cdef void call_geev(int64_t kind, char* left, char* right, int* n, void* a, char* w, void* vl, void* vr, void* work,
                    int* lwork, void* rwork, int* info) noexcept nogil:
    """w: room for 2 n real numbers; rwork: for 2 n of them, or for 1 in a query of the length of `work`."""
    if kind > 1:
        (<F14>table[GEEV][kind])(left, right, n, a, n, w, vl, n, vr, n, work, lwork, rwork, info)
    else:
        (<F14>table[GEEV][kind])(left, right, n, a, n, w, w + n[0] * real_bytes(kind), vl, n, vr, n, work, lwork, info)


cdef void eig(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> complex values, left vectors, right vectors, the vectors only if requested; options: whether each is."""
    cdef int64_t kind = words[0], k, s, size = bytes_of(kind), real = real_bytes(kind)
    cdef int n = words[2], info = 0, lwork = -1
    cdef int64_t step = <int64_t>n * n * size, whole = <int64_t>n * n * 2 * real
    cdef char left = c"V" if words[4] else c"N"
    cdef char right = c"V" if words[5] else c"N"
    cdef double complex asked = 0, asked_real = 0
    cdef char* vectors[2]
    cdef char* a
    cdef char* w
    cdef char* work
    cdef void** out
    if step == 0 or words[1] == 0:
        return
    call_geev(kind, &left, &right, &n, NULL, NULL, NULL, NULL, &asked, &lwork, &asked_real, &info)
    lwork = length_of(&asked, kind)
    a = <char*>malloc(step)
    vectors[0] = <char*>malloc(step)
    vectors[1] = <char*>malloc(step)
    w = <char*>malloc(4 * n * real)
    work = <char*>malloc(lwork * size)
    for k in range(begin, end):
        info = -1
        if a != NULL and vectors[0] != NULL and vectors[1] != NULL and w != NULL and work != NULL:
            if all_finite(at(buffers[0], k * step), <int64_t>n * n, kind):
                transpose(a, at(buffers[0], k * step), n, n, size)
                call_geev(kind, &left, &right, &n, a, w, vectors[0], vectors[1], work, &lwork,
                          w + 2 * n * real, &info)
        out = buffers + 1
        if info:
            fill_nan(at(out[0], k * n * 2 * real), 2 * n, kind & 1)
        else:
            put_values(at(out[0], k * n * 2 * real), w, n, kind)
        for s in range(2):
            if not words[4 + s]:
                continue
            out += 1
            if info:
                fill_nan(at(out[0], k * whole), 2 * <int64_t>n * n, kind & 1)
            else:
                put_vectors(at(out[0], k * whole), vectors[s], w + n * real, n, kind)
    free(a)
    free(vectors[0])
    free(vectors[1])
    free(w)
    free(work)


# ---- entry points for programs: kernels on whole stacks

cdef void tridiagonal_solve_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(tridiagonal_solve, buffers, words, &blas)


cdef void tridiagonal_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(tridiagonal, buffers, words, &blas)


cdef void hessenberg_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(hessenberg, buffers, words, &blas)


cdef void schur_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(schur, buffers, words, &blas)


cdef void eig_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(eig, buffers, words, &blas)


cdef void tridiagonal_eigh_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(tridiagonal_eigh, buffers, words, &blas)


def addresses():
    """The kernels' addresses, by name."""
    return {
        "tridiagonal_solve": <uintptr_t>&tridiagonal_solve_all, "tridiagonal": <uintptr_t>&tridiagonal_all,
        "hessenberg": <uintptr_t>&hessenberg_all, "schur": <uintptr_t>&schur_all, "eig": <uintptr_t>&eig_all,
        "tridiagonal_eigh": <uintptr_t>&tridiagonal_eigh_all,
    }
