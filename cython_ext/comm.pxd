# The arguments that a communication instruction passes to the shims of mpijax._ext.mpi, and the tables of shims.
#
# The shims are an array of C functions, `mpijax._ext.mpi.comm_table` (a capsule named "mpijax.comm_table"),
# indexed by the codes below. Arguments are filled in when a program is loaded; a run only sets the buffers.
# `mpijax._ext.mpi.comm_halves` ("mpijax.comm_halves") has functions for all operations: start one, advance messages,
# finish it; and those for lanes. From start to finish, the arguments, the buffers and the flight must stay at their
# addresses.

from libc.stdint cimport int32_t, int64_t, intptr_t, uint64_t


cdef enum CommOp:
    COMM_ALLREDUCE = 0
    COMM_REDUCE = 1
    COMM_BCAST = 2
    COMM_ALLGATHER = 3
    COMM_GATHER = 4
    COMM_SCATTER = 5
    COMM_ALLTOALL = 6
    COMM_REDUCE_SCATTER = 7
    COMM_SCAN = 8
    COMM_EXSCAN = 9
    COMM_SEND = 10
    COMM_RECV = 11
    COMM_SENDRECV = 12
    COMM_BARRIER = 13
    COMM_ALLGATHERV = 14
    COMM_GATHERV = 15
    COMM_SCATTERV = 16
    COMM_ALLTOALLV = 17
    COMM_REDUCE_SCATTERV = 18
    COMM_OPS = 19               # the number of operations


cdef struct CommArgs:
    int32_t op                  # CommOp
    int32_t status              # out: the MPI error code of the last call, 0 for success
    intptr_t comm               # MPI handles as integers: ints in MPICH, pointers in Open MPI
    const void* sendbuf         # NULL if the operation sends nothing
    void* recvbuf               # NULL if the operation receives nothing
    int64_t sendcount           # elements; if each rank has a block, elements of one block
    int64_t recvcount
    const int64_t* sendcounts   # elements of the block for each rank, stored consecutively in sendbuf; or NULL
    const int64_t* recvcounts   # elements of the block from each rank
    intptr_t sendtype
    intptr_t recvtype
    intptr_t mpi_op
    int32_t root
    int32_t source
    int32_t dest
    int32_t sendtag
    int32_t recvtag
    void* mpi_status            # out: an MPI_Status that a receive fills in; or NULL
    int32_t early               # whether to use MPI's non-blocking form, equal on all ranks; for a send: do not wait
    int32_t to_itself           # whether a message goes to this rank, both ends match, and there is no status
    int32_t paired              # whether both ends of a message make the same call, and so use the ring between them
    void* shared                # the communicator's slots, or rings for paired messages (mpi_slots.h, mpi_ring.h); NULL
    uint64_t what               # for a collective: a number of its label, equal on all ranks; or 0
    uint64_t lanes              # for messages that may use lanes (mpi_lanes.h): the communicator's number; else 0
    int32_t lane_to             # the peers' ranks on this node; -1: none
    int32_t lane_from


ctypedef int (*CommFunction)(CommArgs*) noexcept nogil


cdef enum:
    FLIGHT_WORDS = 24
    SHARED_READY = 1            # the first member of shared memory once it is in use


cdef struct CommFlight:         # an operation in progress; opaque to the executor
    int64_t[FLIGHT_WORDS] words


cdef struct CommHalves:
    void* (*shared_for)(CommArgs*) noexcept nogil
    int (*start)(CommArgs*, CommFlight*) noexcept nogil
    void (*advance)(CommFlight*) noexcept nogil
    int (*finish)(CommFlight*) noexcept nogil
    int* lanes_taken                            # nonzero if lanes may hold messages: call `settle` before blocking
    int (*settle)() noexcept nogil
    int (*stop)() noexcept nogil                # leaves all lanes: at the end of a run, and before calling Python
