# cython: language_level=3, boundscheck=False, wraparound=False
"""Searches in sorted rows as native code for the executor; `searchsorted.h` implements them."""

from libc.stdint cimport int64_t

from mpijax._ext.executor cimport on_threads, share_function

cdef extern from "searchsorted.h":
    void searchsorted_run(void** buffers, const int64_t* words) noexcept nogil
    share_function search_share

search_share = on_threads


cdef void run(void** buffers, const int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    searchsorted_run(buffers, words)


def address():
    """The address of the function for the executor."""
    return <size_t>&run
