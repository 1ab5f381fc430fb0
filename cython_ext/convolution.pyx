# cython: language_level=3, boundscheck=False, wraparound=False
"""Convolutions as native code for the executor; `convolution.h` implements them."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int64_t

from mpijax._ext.executor cimport on_threads, share_function

cdef extern from "convolution.h":
    ctypedef void (*gemm_function)(const char*, const char*, const int64_t*, const int64_t*, const int64_t*,
                                   const void*, const void*, const int64_t*, const void*, const int64_t*,
                                   const void*, void*, const int64_t*) noexcept nogil
    gemm_function conv_gemm[4]
    int MAX_AXES
    int64_t conv_scratch(const int64_t* words) noexcept nogil
    void conv_run_all(void** buffers, const int64_t* words) noexcept nogil
    void conv_find_vector() noexcept nogil
    int64_t conv_vector
    share_function conv_share

MAX_RANK = MAX_AXES - 1

conv_share = on_threads
conv_find_vector()


def vector():
    """Bytes of the vectors in which convolutions are computed; 0 if they are computed by matrix products."""
    return conv_vector


def set_vector(nbytes):
    """Select 0, or 32, or 64 bytes if the processor has such vectors, for tests."""
    global conv_vector
    conv_find_vector()
    if nbytes not in (0, 32, 64) or nbytes > conv_vector:
        raise ValueError(f"this processor has vectors of {conv_vector} bytes, got {nbytes}")
    conv_vector = nbytes


cdef void run(void** buffers, const int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    conv_run_all(buffers, words)


def address(blas):
    """The address of the function for the executor. blas: addresses of the matrix products by name ("sgemm")."""
    for i, name in enumerate(("sgemm", "dgemm", "cgemm", "zgemm")):
        conv_gemm[i] = <gemm_function><size_t>blas[name]
    return <size_t>&run


def scratch(words not None):
    """Bytes of scratch memory that a convolution needs. words: its description, a contiguous array of int64."""
    cdef Py_buffer buffer
    PyObject_GetBuffer(words, &buffer, PyBUF_SIMPLE)
    nbytes = conv_scratch(<const int64_t*>buffer.buf)
    PyBuffer_Release(&buffer)
    return nbytes
