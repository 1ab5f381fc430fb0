# cython: language_level=3, boundscheck=False, wraparound=False
"""The largest elements of rows as machine code for the executor; `top_k.h` says how they are found."""

from libc.stdint cimport int64_t

cdef extern from "top_k.h":
    void top_k_run(void** buffers, const int64_t* words) noexcept nogil


cdef void run(void** buffers, const int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    top_k_run(buffers, words)


def address():
    """Where the function for the executor is."""
    return <size_t>&run
