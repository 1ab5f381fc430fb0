# cython: language_level=3, boundscheck=False, wraparound=False
"""The largest elements of rows, as native code for the executor; `top_k.h` implements it."""

from libc.stdint cimport int64_t

from mpijax._ext.executor cimport on_threads, share_function

cdef extern from "top_k.h":
    void top_k_run(void** buffers, const int64_t* words) noexcept nogil
    share_function top_k_share

top_k_share = on_threads


cdef void run(void** buffers, const int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    top_k_run(buffers, words)


def address():
    """The address of the function for the executor."""
    return <size_t>&run
