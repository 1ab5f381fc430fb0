# Programs, for the other extensions: `from mpijax._ext.executor cimport Program`.

from cpython.object cimport PyObject
from libc.stdint cimport int64_t, uint64_t

from mpijax._ext.comm cimport CommHalves
from mpijax._ext.instructions cimport (
    InputEntry, Instruction, KernelFunction, OutputEntry, ResultEntry, TempEntry,
)


cdef extern from "share.h":
    ctypedef void (*share_function)(KernelFunction kernel, void** ptrs, int64_t* params, int64_t extent,
                                    int64_t grain) noexcept nogil

# Runs a kernel over [0, extent), in parts of at least `grain` that begin at its multiples, on the threads of this rank.
# Native code that programs call divides its work with this; within another kernel's part it makes one call.
cdef void on_threads(KernelFunction call, void** ptrs, int64_t* params, int64_t extent, int64_t grain) noexcept nogil


cdef struct Library:            # the functions for a library's thread count; `mt_library` of `threads.h`
    int (*get)() noexcept nogil
    void (*set)(int) noexcept nogil     # NULL: the library has no such function

# The same for kernels that call a library, which meanwhile uses one thread on each of ours.
cdef void on_threads_alone(KernelFunction call, void** ptrs, int64_t* params, int64_t extent, int64_t grain,
                           const Library* library) noexcept nogil

# Sets the functions for the thread count of the BLAS of matrix products. 0: products run on BLAS's own threads.
cdef void set_gemm_library(size_t get, size_t set_) noexcept
cdef size_t strided_address() noexcept


cdef class Program:
    cdef readonly Py_ssize_t num_inputs
    cdef readonly Py_ssize_t num_results
    cdef readonly object spec
    cdef readonly bint release_gil
    cdef uint64_t denormals     # the mode of `denormals.h` in which it runs
    cdef bint donates
    cdef CommHalves* lanes      # for messages through lanes; stopped at the end of a run and before calling Python
    cdef bint pins              # whether arguments must survive a `delete()` during the run
    cdef int num_buffers
    cdef int num_outputs
    cdef int num_temps
    cdef int num_counters       # of loops
    cdef int max_places         # maximum pointers of a kernel, with its frame
    cdef int table_words        # size of a run's table: buffers, outputs, counters, pointers of a kernel
    cdef int arena_class        # of the arena's block, or -1
    cdef void** template        # the part of the table that is equal in each run
    cdef Instruction* instructions
    cdef InputEntry* inputs
    cdef OutputEntry* outputs
    cdef TempEntry* temps
    cdef ResultEntry* results
    cdef list keep              # owners of the memory that the pointers above refer to
    cdef object __weakref__
    cdef int64_t runs_left      # until `spec.when_warm` is called; -1: it is called in each run; 0: in none
    cdef int64_t run_time       # nanoseconds of the last run on baseline code
    cdef int64_t patience       # nanoseconds of loops until it is called, or 0
    cdef list kernels           # data address and name of each kernel that may get better code
    cdef public object first    # called with the arguments before the first run; returns the function to call after it

    # Runs the program on `num_inputs` arrays or ndarrays; puts `num_results` new references into `results`.
    cdef int run_into(self, PyObject** args, PyObject** results) except -1
