"""Matrices of four kinds of numbers: 0 float32, 1 float64, 2 complex64, 3 complex128."""

from libc.math cimport NAN
from libc.stdint cimport int64_t


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
    """out[columns, rows] from x[rows, columns], row-major both."""
    if size == 4:
        move_tiles(<float*>out, <const float*>x, rows, columns)
    elif size == 8:
        move_tiles(<double*>out, <const double*>x, rows, columns)
    else:
        move_tiles(<double complex*>out, <const double complex*>x, rows, columns)


cdef inline void fill_nan(void* x, int64_t count, int64_t kind) noexcept nogil:
    """NaN in place of `count` numbers; NaN + NaN i of complex ones."""
    cdef int64_t i, n = count * (2 if kind > 1 else 1)
    for i in range(n):
        if kind & 1:
            (<double*>x)[i] = NAN
        else:
            (<float*>x)[i] = NAN


cdef inline int length_of(const void* work, int64_t kind) noexcept nogil:
    """What LAPACK answers to the question for the length of its workspace."""
    return <int>((<double*>work)[0] if kind & 1 else (<float*>work)[0])


cdef inline char* at(void* x, int64_t offset) noexcept nogil:
    return <char*>x + offset
