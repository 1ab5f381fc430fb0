"""Matrices of four kinds of numbers (0 float32, 1 float64, 2 complex64, 3 complex128), and the interface to LAPACK."""

from cpython.pycapsule cimport PyCapsule_GetName, PyCapsule_GetPointer
from libc.math cimport NAN, isfinite
from libc.stdint cimport int64_t

from mpijax._ext.executor cimport Library, on_threads_alone

# LAPACK's routines, by number of arguments.
ctypedef void (*F5)(void*, void*, void*, void*, void*) noexcept nogil
ctypedef void (*F6)(void*, void*, void*, void*, void*, void*) noexcept nogil
ctypedef void (*F8)(void*, void*, void*, void*, void*, void*, void*, void*) noexcept nogil
ctypedef void (*F9)(void*, void*, void*, void*, void*, void*, void*, void*, void*) noexcept nogil
ctypedef void (*F10)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*) noexcept nogil
ctypedef void (*F11)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*) noexcept nogil
ctypedef void (*F13)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                     void*) noexcept nogil
ctypedef void (*F14)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                     void*, void*) noexcept nogil
ctypedef void (*F15)(void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*, void*,
                     void*, void*, void*) noexcept nogil

ctypedef void* Kinds[4]         # one routine for each kind


cdef inline int take_routines(Kinds* table, Library* blas, routines, threads_of_blas) except -1:
    """Fills a table from capsules of functions: for each routine those of the four kinds, or of the two real ones.

    threads_of_blas: addresses of the functions that get and set BLAS's thread count, or 0 and 0.
    """
    blas.get = <int (*)() noexcept nogil><size_t>threads_of_blas[0]
    blas.set = <void (*)(int) noexcept nogil><size_t>threads_of_blas[1]
    for i, kinds in enumerate(routines):
        for j, capsule in enumerate(kinds):
            table[i][j] = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))
    return 0


# A kernel that processes the matrices `begin` to `end` of a stack.
ctypedef void (*StackKernel)(void** buffers, int64_t* words, int64_t begin, int64_t end) noexcept nogil

cdef enum:
    LEAST_WORK = 65536      # minimum multiplications per thread
    SMALL_TOGETHER = 16     # maximum matrices that `small.h` takes at a time
    SMALL_SIZE = 1024       # maximum elements of a matrix for `small.h`
    FEW = 16                # with fewer large matrices, BLAS's threads share each one
    LARGE = 128             # rows or columns above which a matrix is large


cdef inline void over_stack(
    StackKernel kernel, void** buffers, const int64_t* words, const Library* blas
) noexcept nogil:
    """Runs a kernel on a stack; the threads of this rank share its matrices. BLAS then uses one thread on each."""
    cdef int64_t count = words[1], rows = words[2], columns = words[3], grain
    if count < 2 or rows * columns == 0 or (count < FEW and max(rows, columns) > LARGE):
        kernel(buffers, <int64_t*>words, 0, count)
        return
    grain = max(1, LEAST_WORK // (rows * columns * max(rows, columns)))
    if rows * columns <= SMALL_SIZE:
        grain = (grain + SMALL_TOGETHER - 1) // SMALL_TOGETHER * SMALL_TOGETHER
    on_threads_alone(kernel, buffers, <int64_t*>words, count, grain, blas)


cdef inline void call_geqp3(void* routine, int64_t kind, int* m, int* n, void* a, void* order, void* tau, void* work,
                            int* lwork, void* rwork, int* info) noexcept nogil:
    if kind > 1:
        (<F10>routine)(m, n, a, m, order, tau, work, lwork, rwork, info)
    else:
        (<F9>routine)(m, n, a, m, order, tau, work, lwork, info)


cdef inline int64_t bytes_of(int64_t kind) noexcept nogil:
    return 4 if kind == 0 else (16 if kind == 3 else 8)


cdef inline int64_t real_bytes(int64_t kind) noexcept nogil:
    return 8 if kind & 1 else 4


ctypedef fused item:
    float
    double
    float complex
    double complex


cdef inline void move_tiles(item* out, const item* x, int64_t rows, int64_t columns) noexcept nogil:
    cdef int64_t i, j, i0, j0
    for i0 in range(0, rows, 16):
        for j0 in range(0, columns, 16):
            for i in range(i0, min(i0 + 16, rows)):
                for j in range(j0, min(j0 + 16, columns)):
                    out[j * rows + i] = x[i * columns + j]


cdef inline void transpose(void* out, const void* x, int64_t rows, int64_t columns, int64_t size) noexcept nogil:
    """out[columns, rows] from x[rows, columns], both row-major."""
    if size == 4:
        move_tiles(<float*>out, <const float*>x, rows, columns)
    elif size == 8:
        move_tiles(<double*>out, <const double*>x, rows, columns)
    else:
        move_tiles(<double complex*>out, <const double complex*>x, rows, columns)


cdef inline void fill_nan(void* x, int64_t count, int64_t kind) noexcept nogil:
    """Replaces `count` numbers by NaN; complex ones by NaN + NaN i."""
    cdef int64_t i, n = count * (2 if kind > 1 else 1)
    for i in range(n):
        if kind & 1:
            (<double*>x)[i] = NAN
        else:
            (<float*>x)[i] = NAN


cdef inline bint all_finite(const void* x, int64_t count, int64_t kind) noexcept nogil:
    cdef int64_t i, n = count * (2 if kind > 1 else 1)
    for i in range(n):
        if not (isfinite((<double*>x)[i]) if kind & 1 else isfinite((<float*>x)[i])):
            return False
    return True


cdef inline bint triangle_finite(const void* x, int64_t n, bint lower, int64_t kind) noexcept nogil:
    """Whether the numbers of one triangle of a square matrix are finite, row by row."""
    cdef int64_t row, begin, size = bytes_of(kind)
    for row in range(n):
        begin = row * n + (0 if lower else row)
        if not all_finite(<char*>x + begin * size, row + 1 if lower else n - row, kind):
            return False
    return True


cdef inline int length_of(const void* work, int64_t kind) noexcept nogil:
    """The answer to a query for the length of LAPACK's workspace."""
    return <int>((<double*>work)[0] if kind & 1 else (<float*>work)[0])


cdef inline char* at(void* x, int64_t offset) noexcept nogil:
    return <char*>x + offset
