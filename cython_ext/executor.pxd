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
# Machine code that programs call divides its own work by this; within another kernel's part it is one call.
cdef void on_threads(KernelFunction call, void** ptrs, int64_t* params, int64_t extent, int64_t grain) noexcept nogil


cdef struct Library:            # how many threads it has of its own; `mt_library` of `threads.h`
    int (*get)() noexcept nogil
    void (*set)(int) noexcept nogil     # NULL: it has no such function

# The same for kernels that call a library, which meanwhile uses one thread on each of ours.
cdef void on_threads_alone(KernelFunction call, void** ptrs, int64_t* params, int64_t extent, int64_t grain,
                           const Library* library) noexcept nogil


cdef class Program:
    cdef readonly Py_ssize_t num_inputs
    cdef readonly Py_ssize_t num_results
    cdef readonly object spec
    cdef readonly bint release_gil
    cdef uint64_t denormals     # the mode of `denormals.h` in which it runs
    cdef bint donates
    cdef CommHalves* lanes      # where messages may go through lanes, which it leaves at its end and before Python
    cdef bint pins              # arguments must outlive a `delete()` during the run
    cdef int num_buffers
    cdef int num_outputs
    cdef int num_temps
    cdef int num_counters       # of loops
    cdef int max_places         # pointers that one kernel takes, with its frame
    cdef int table_words        # of a run's table: buffers, outputs, counters, pointers of a kernel
    cdef int arena_class        # of the arena's block, or -1
    cdef void** template        # the part of the table that is the same in each run
    cdef Instruction* instructions
    cdef InputEntry* inputs
    cdef OutputEntry* outputs
    cdef TempEntry* temps
    cdef ResultEntry* results
    cdef list keep              # what the pointers above point into
    cdef object __weakref__
    cdef int64_t runs_left      # until `spec.when_warm` is called, or 0
    cdef list kernels           # where the data of each kernel is, and its name, if it may get better code
    cdef public object first    # called before the first run, and others until it returns; gives what to call after it

    # Runs the program on `num_inputs` arrays or ndarrays; puts `num_results` new references into `results`.
    cdef int run_into(self, PyObject** args, PyObject** results) except -1
