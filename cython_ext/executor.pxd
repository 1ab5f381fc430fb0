# Programs, for the other extensions: `from mpijax._ext.executor cimport Program`.

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t


cdef struct Place:
    int32_t buffer
    int64_t offset


cdef struct Instruction:
    int32_t op                      # Opcode
    int32_t jump                    # where control flow goes on
    void* data                      # what the operation needs; owned by the program


cdef class Program:
    cdef readonly Py_ssize_t num_inputs
    cdef readonly Py_ssize_t num_results
    cdef readonly object spec
    cdef readonly bint release_gil
    cdef int num_buffers
    cdef int num_outputs
    cdef int num_temps
    cdef int num_aliases
    cdef int num_counters           # of loops
    cdef int max_places             # pointers that one kernel takes
    cdef int table_words            # of a run's table: buffers, outputs, counters, pointers of a kernel
    cdef int arena_class            # of the arena's block, or -1
    cdef bint donates
    cdef bint pins                  # arguments must outlive a `delete()` during the run
    cdef void** template            # the part of the table that is the same in each run
    cdef Instruction* instructions
    cdef void* inputs               # tables of the entries that executor.pyx defines
    cdef void* outputs
    cdef void* temps
    cdef void* aliases
    cdef void* results
    cdef list keep                  # what the pointers above point into
    cdef list comm_lines            # the user's line of each communication

    # Runs the program on `num_inputs` arrays or ndarrays; puts `num_results` new references into `results`.
    cdef int run_into(self, PyObject** args, PyObject** results) except -1

    cdef void* block(self, size_t size) except NULL
    cdef PyObject* hold(self, object x) except? NULL
    cdef int fill_place(self, Place* place, object ref) except -1
    cdef int load_buffers(self, buffers) except -1
    cdef void* const_pointer(self, value) except? NULL
    cdef int load_results(self, results) except -1
    cdef int load_instructions(self, instructions) except -1
    cdef int flatten(self, instructions, list code) except -1
    cdef int flatten_loop(self, x, list code) except -1
    cdef int flatten_while(self, x, list code) except -1
    cdef int flatten_switch(self, x, list code) except -1
    cdef list straight(self, kind, x)
    cdef size_t kernel_data(self, x) except 0
    cdef size_t gemm_data(self, x) except 0
    cdef size_t copy_data(self, x) except 0
    cdef size_t fill_data(self, x) except 0
    cdef size_t comm_data(self, x) except 0
    cdef size_t host_data(self, x) except 0
    cdef size_t pointer_data(self, first, second, nbytes) except 0
