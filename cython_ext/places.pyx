# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rows of 32-bit numbers packed with their places into integers that NumPy sorts, and elements read at such places."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef enum:
    INTEGER, UNSIGNED, FLOAT

ctypedef fused item:
    uint8_t
    uint16_t
    uint32_t
    uint64_t


cdef inline int64_t order_of(uint32_t bits, int kind) noexcept nogil:
    """A number's bits as an integer that compares as it does; zeros are equal, all NaN the largest."""
    cdef int64_t magnitude = bits & <uint32_t>0x7fffffff
    if kind == UNSIGNED:
        return bits
    if kind == FLOAT:
        if magnitude > <int64_t>0x7f800000:
            return 0x7fc00000
        return magnitude if magnitude == bits else -magnitude
    return <int32_t>bits


def pack(const uint32_t[::1] x not None, int64_t n, int kind, int64_t[::1] out not None):
    """Writes each number's order and its place in its row of n. kind: 0 integers, 1 unsigned ones, 2 floats."""
    cdef int64_t i, place = 0, lift = <int64_t>1 << 31 if kind == UNSIGNED else 0
    if x.shape[0] != out.shape[0]:
        raise ValueError(f"{x.shape[0]} numbers do not fill {out.shape[0]} places")
    with nogil:
        for i in range(x.shape[0]):
            out[i] = (order_of(x[i], kind) - lift) * (<int64_t>1 << 32) + place
            place = place + 1 if place + 1 < n else 0


cdef void read(item* out, const item* x, const int64_t* packed, int64_t count, int64_t n) noexcept nogil:
    cdef int64_t row, i
    for row in range(count // n):
        for i in range(row * n, row * n + n):
            out[i] = x[row * n + <uint32_t>packed[i]]


def take(const uint8_t[::1] x not None, const int64_t[::1] packed not None, int64_t n, uint8_t[::1] out not None):
    """Writes the elements of rows of n, given as their 1, 2, 4 or 8 bytes, that stand at packed places."""
    cdef int64_t count = packed.shape[0], size = x.shape[0] // count if count else 0
    if x.shape[0] != out.shape[0] or size not in (1, 2, 4, 8):
        raise ValueError(f"{x.shape[0]} bytes at {count} places do not become {out.shape[0]} bytes")
    with nogil:
        if size == 1:
            read[uint8_t](&out[0], &x[0], &packed[0], count, n)
        elif size == 2:
            read[uint16_t](<uint16_t*>&out[0], <const uint16_t*>&x[0], &packed[0], count, n)
        elif size == 4:
            read[uint32_t](<uint32_t*>&out[0], <const uint32_t*>&x[0], &packed[0], count, n)
        else:
            read[uint64_t](<uint64_t*>&out[0], <const uint64_t*>&x[0], &packed[0], count, n)
