# cython: language_level=3, boundscheck=False, wraparound=False
"""Sorting as native code for the executor: `sort.h`, with NumPy's functions for short rows of numbers."""

from libc.stdint cimport int64_t

cimport numpy as cnp

from mpijax._ext.executor cimport on_threads, share_function

cnp.import_array()

cdef extern from "sort.h" nogil:
    enum:
        SORT_NUMBERS
    ctypedef int (*sort_function)(void*, Py_ssize_t, void*) noexcept
    void sort_run(void** buffers, const int64_t* words, const sort_function* functions, const sort_function* merging)
    share_function sort_share

sort_share = on_threads

cdef extern from *:
    """
    /* NumPy's function that sorts rows of a number type; for 8 and 16 bits it is linear and stable.
       To merge runs, the stable sort of the other types. */
    static sort_function function_of(int number, int merges) {
        PyArray_Descr *type = PyArray_DescrFromType(number);
        int kind = merges || PyDataType_ELSIZE(type) < 4 ? NPY_STABLESORT : NPY_QUICKSORT;
        sort_function found = (sort_function)PyDataType_GetArrFuncs(type)->sort[kind];
        Py_DECREF(type);
        return found;
    }
    """
    sort_function function_of(int number, int merges)

cdef sort_function functions[SORT_NUMBERS]
cdef sort_function merging[SORT_NUMBERS]

for number in range(SORT_NUMBERS):
    functions[number] = function_of(number, 0)
    merging[number] = function_of(number, 1)


cdef void run(void** buffers, const int64_t* words, int64_t begin, int64_t end) noexcept nogil:
    sort_run(buffers, words, functions, merging)


def address():
    """The address of the function for the executor."""
    return <size_t>&run
