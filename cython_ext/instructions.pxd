# The C form of a loaded program: `loading.pyx` fills it in, `executor.pyx` runs it.

from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t

from mpijax._ext.comm cimport CommArgs, CommFunction, CommHalves


cdef enum Opcode:
    OP_KERNEL
    OP_GEMM
    OP_COPY
    OP_FILL
    OP_COMM
    OP_COMM_START       # starts an exchange without waiting
    OP_COMM_FINISH      # finishes the oldest one
    OP_HOST_CALL
    OP_RESUMABLE        # a kernel that returns if there is better code, which then resumes it
    OP_FOREIGN          # a user's kernel, which runs with denormals
    OP_JUMP
    OP_JUMP_UNLESS      # unless the byte at a place is nonzero
    OP_JUMP_TABLE       # indexed by the int32 at a place
    OP_TIME_TILES       # a loop, several iterations at a time
    OP_COUNT_START      # counter = count; jump if it is 0
    OP_COUNT_NEXT       # counter -= 1; jump unless it is 0
    OP_POINT
    OP_ADVANCE
    OP_SWAP
    OP_END


cdef struct Place:      # the address of a byte: offset in a buffer
    int32_t buffer
    int64_t offset


cdef struct Instruction:
    int32_t op          # Opcode
    int32_t jump        # number of the instruction to jump to
    void* data          # one of the structures below; owned by the program


# ---- data of the operations

ctypedef void (*KernelFunction)(void** ptrs, int64_t* params, int64_t begin, int64_t end) noexcept nogil

ctypedef void (*GemmFunction)(char* transa, char* transb, int64_t* m, int64_t* n, int64_t* k, void* alpha,
                              void* a, int64_t* lda, void* b, int64_t* ldb, void* beta,
                              void* c, int64_t* ldc) noexcept nogil


cdef struct KernelData:
    KernelFunction call
    int64_t extent
    int64_t grain
    int64_t* params
    Place* places
    int32_t num_places


cdef struct GemmData:
    GemmFunction call
    char transa, transb
    int64_t m, n, k, lda, ldb, ldc   # little-endian, so a BLAS with 32-bit integers can read them too
    Place a, b, c
    int32_t ndim
    int64_t* batch      # sizes, then strides in bytes of a, b and c, each `ndim` long
    double[2] alpha     # in the element type: floats for single precision
    double[2] beta
    # Threads share parts of at most `width` rows (or columns) of the result: `parts` of each of `matrices`.
    bint by_columns
    int64_t itemsize
    int64_t width, parts, matrices
    int64_t grain       # minimum parts per thread


cdef struct CopyData:
    Place target
    Place origin
    size_t nbytes


cdef struct FillData:
    Place target
    size_t nbytes
    int32_t width
    char[16] pattern


cdef struct RowsData:       # counts that are read at run time
    Place counts        # int32, one for each rank
    int32_t ranks
    int32_t rank
    int64_t limit       # capacity in rows of the buffer of all blocks
    int64_t block       # capacity in rows of the buffer of this rank's block; -1: none
    int64_t row         # elements of a row
    int64_t* elements   # the counts in elements, which the operation reads


cdef enum:
    GOING = 4           # maximum exchanges of a run in progress at once; a power of 2


cdef struct CommData:
    CommFunction call
    CommHalves* halves  # instead of `call`, or NULL
    CommArgs args       # complete but for the buffers
    RowsData* sendrows  # or NULL
    RowsData* recvrows
    Place send          # buffer -1: none
    Place recv
    uint32_t site       # in the record: operation, line and communicator
    uint32_t sequence   # in the record: the sequence in which it is counted
    int64_t nbytes


cdef struct HostData:
    PyObject* instruction   # the PythonCall of the spec
    Place* places           # of the inputs, then of the outputs


cdef struct BranchData:     # OP_JUMP_UNLESS, OP_JUMP_TABLE
    Place place
    int32_t count
    int32_t* targets


cdef struct CountData:      # OP_COUNT_START, OP_COUNT_NEXT
    int32_t counter
    int64_t count


cdef extern from "time_tiles_types.h" nogil:
    ctypedef struct tt_tiles:
        int64_t rows, depth, height, calls
        bint wraps
        const int64_t* units
        const int64_t* above
        const int64_t* below

    ctypedef struct tt_call:
        KernelFunction function
        int64_t* params
        int64_t rows
        int64_t first


cdef struct TilesData:      # OP_TIME_TILES
    tt_tiles tiles
    int64_t count
    KernelData** kernels
    int32_t num_places      # pointers of all kernels
    int32_t num_moves
    int32_t* moves          # OP_SWAP or OP_ADVANCE
    PointerData** moved
    int32_t num_starts
    PointData** starts


cdef struct PointData:      # OP_POINT
    int32_t buffer
    Place place


cdef struct PointerData:    # OP_ADVANCE, OP_SWAP
    int32_t first
    int32_t second
    int64_t nbytes


# ---- buffers and results

cdef struct InputEntry:     # one per argument
    int32_t buffer
    int64_t nbytes          # expected bytes of an ndarray; -1: not checked


cdef struct OutputEntry:
    int32_t buffer
    int32_t donor           # argument, or -1
    int64_t nbytes
    PyObject* aval
    PyObject* sharding


cdef struct TempEntry:
    int32_t buffer
    int64_t offset


cdef enum ResultKind:
    RESULT_OUTPUT
    RESULT_INPUT
    RESULT_CONST


cdef struct ResultEntry:
    int32_t kind
    int32_t index           # number of the output, or of the argument
    bint same_type          # whether it is the output's array itself; else a new array over its memory
    PyObject* aval
    PyObject* sharding
    PyObject* const_array
