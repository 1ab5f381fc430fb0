# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Householder reflections by LAPACK, on stacks of matrices: makes them, and multiplies by them.

Kernels have the interface of those in `lapack.pyx`. Reflections are stored below the diagonal of a matrix a, and their
factors in taus.
"""

from libc.stdint cimport int32_t, int64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from mpijax._ext.executor cimport Library
from mpijax._ext.matrices cimport (
    F8, F9, F13, Kinds, at, bytes_of, call_geqp3, fill_nan, length_of, over_stack, real_bytes, take_routines,
    transpose,
)

cdef enum:
    GEQRF, GEQP3, ORGQR, ORMQR, ROUTINES

cdef Kinds table[ROUTINES]
cdef Library blas


def install(routines, threads_of_blas):
    """Takes capsules of the functions: for each routine those of the four kinds.

    threads_of_blas: see `take_routines`.
    """
    take_routines(table, &blas, routines, threads_of_blas)


cdef void geqrf(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a -> a, taus."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind)
    cdef int m = words[2], n = words[3], info = 0, question = -1, lwork
    cdef int64_t few = min(m, n), step = <int64_t>m * n * size
    cdef double complex asked = 0
    cdef void *a
    cdef void *work
    if step == 0 or words[1] == 0:
        return
    (<F8>table[GEQRF][kind])(&m, &n, NULL, &m, NULL, &asked, &question, &info)
    lwork = length_of(&asked, kind)
    a = malloc(step)
    work = malloc(lwork * size)
    for k in range(begin, end):
        if a == NULL or work == NULL:
            fill_nan(at(buffers[1], k * step), <int64_t>m * n, kind)
            fill_nan(at(buffers[2], k * few * size), few, kind)
            continue
        transpose(a, at(buffers[0], k * step), m, n, size)
        (<F8>table[GEQRF][kind])(&m, &n, a, &m, at(buffers[2], k * few * size), work, &lwork, &info)
        transpose(at(buffers[1], k * step), a, n, m, size)
    free(a)
    free(work)


cdef int32_t is_set(const char* integer, int64_t size) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        if integer[i]:
            return 1
    return 0


cdef void geqp3(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a, flags of leading columns -> a, the order of columns (from 1), taus; option: bytes of the integers."""
    cdef int64_t kind = words[0], k, i, size = bytes_of(kind), wide = words[4]
    cdef int m = words[2], n = words[3], info = 0, question = -1, lwork
    cdef int64_t few = min(m, n), step = <int64_t>m * n * size, found
    cdef double complex asked = 0
    cdef void *a
    cdef void *work
    cdef void *rwork
    cdef int32_t *order
    if step == 0:
        memcpy(buffers[3], buffers[1], words[1] * n * wide)
        return
    call_geqp3(table[GEQP3][kind], kind, &m, &n, NULL, NULL, NULL, &asked, &question, NULL, &info)
    lwork = length_of(&asked, kind)
    a = malloc(step)
    work = malloc(lwork * size)
    rwork = malloc(2 * <int64_t>n * real_bytes(kind))
    order = <int32_t*>malloc(<int64_t>n * 4)
    for k in range(begin, end):
        if a == NULL or work == NULL or rwork == NULL or order == NULL:
            fill_nan(at(buffers[2], k * step), <int64_t>m * n, kind)
            memcpy(at(buffers[3], k * n * wide), at(buffers[1], k * n * wide), n * wide)
            fill_nan(at(buffers[4], k * few * size), few, kind)
            continue
        transpose(a, at(buffers[0], k * step), m, n, size)
        for i in range(n):
            order[i] = is_set(at(buffers[1], (k * n + i) * wide), wide)
        call_geqp3(table[GEQP3][kind], kind, &m, &n, a, order, at(buffers[4], k * few * size), work, &lwork, rwork,
                   &info)
        transpose(at(buffers[2], k * step), a, n, m, size)
        for i in range(n):
            found = order[i]  # little-endian: its first bytes are the narrower integer
            memcpy(at(buffers[3], (k * n + i) * wide), &found, wide)
    free(a)
    free(work)
    free(rwork)
    free(order)


cdef void householder_product(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a, taus -> q; option: the number of reflections."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind)
    cdef int m = words[2], n = words[3], reflections = words[4], info = 0, question = -1, lwork
    cdef int64_t step = <int64_t>m * n * size
    cdef double complex asked = 0
    cdef void *a
    cdef void *work
    if step == 0 or words[1] == 0:
        return
    (<F9>table[ORGQR][kind])(&m, &n, &reflections, NULL, &m, NULL, &asked, &question, &info)
    lwork = length_of(&asked, kind)
    a = malloc(step)
    work = malloc(lwork * size)
    for k in range(begin, end):
        if a == NULL or work == NULL:
            fill_nan(at(buffers[2], k * step), <int64_t>m * n, kind)
            continue
        transpose(a, at(buffers[0], k * step), m, n, size)
        (<F9>table[ORGQR][kind])(&m, &n, &reflections, a, &m, at(buffers[1], k * reflections * size), work, &lwork,
                                 &info)
        transpose(at(buffers[2], k * step), a, n, m, size)
    free(a)
    free(work)


cdef void ormqr(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    """a, taus, c -> q c or c q; options: left, q's conjugate transpose, columns of a, the number of reflections."""
    cdef int64_t kind = words[0], k, size = bytes_of(kind)
    cdef int m = words[2], n = words[3], reflections = words[7], info = 0, question = -1, lwork
    cdef int rows = m if words[4] else n
    cdef int64_t step = <int64_t>m * n * size, a_step = <int64_t>rows * words[6] * size
    cdef char side = c"L" if words[4] else c"R"
    cdef char form = (c"C" if kind > 1 else c"T") if words[5] else c"N"
    cdef double complex asked = 0
    cdef void *a
    cdef void *c
    cdef void *work
    if step == 0 or reflections == 0:
        memcpy(at(buffers[3], begin * step), at(buffers[2], begin * step), (end - begin) * step)
        return
    (<F13>table[ORMQR][kind])(&side, &form, &m, &n, &reflections, NULL, &rows, NULL, NULL, &m, &asked, &question, &info)
    lwork = length_of(&asked, kind)
    a = malloc(a_step)
    c = malloc(step)
    work = malloc(lwork * size)
    for k in range(begin, end):
        if a == NULL or c == NULL or work == NULL:
            fill_nan(at(buffers[3], k * step), <int64_t>m * n, kind)
            continue
        transpose(a, at(buffers[0], k * a_step), rows, words[6], size)
        transpose(c, at(buffers[2], k * step), m, n, size)
        (<F13>table[ORMQR][kind])(&side, &form, &m, &n, &reflections, a, &rows, at(buffers[1], k * reflections * size),
                                  c, &m, work, &lwork, &info)
        transpose(at(buffers[3], k * step), c, n, m, size)
    free(a)
    free(c)
    free(work)


# ---- entry points for programs: kernels on whole stacks

cdef void geqrf_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(geqrf, buffers, words, &blas)


cdef void geqp3_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(geqp3, buffers, words, &blas)


cdef void ormqr_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(ormqr, buffers, words, &blas)


cdef void householder_product_all(void** buffers, const int64_t* words) noexcept nogil:
    over_stack(householder_product, buffers, words, &blas)


def addresses():
    """The kernels' addresses, by name."""
    return {
        "geqrf": <uintptr_t>&geqrf_all, "geqp3": <uintptr_t>&geqp3_all, "ormqr": <uintptr_t>&ormqr_all,
        "householder_product": <uintptr_t>&householder_product_all,
    }
