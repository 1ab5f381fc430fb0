# What a communication instruction hands to the shims of mpijax._ext.mpi, and how the executor finds them.
#
# The shims are an array of C functions, `mpijax._ext.mpi.comm_table` (a capsule named "mpijax.comm_table"),
# indexed by the codes below. Arguments are filled in when a program is loaded; a run only sets the buffers.
# `mpijax._ext.mpi.comm_halves` ("mpijax.comm_halves") are more, for all operations: start one, move messages
# on, and finish it; and what lanes need. From the first to the last the arguments, the buffers and the flight stay
# where they are.

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
    COMM_OPS = 19               # how many there are


cdef struct CommArgs:
    int32_t op                  # CommOp
    int32_t status              # out: the MPI error code of the last call, 0 for success
    intptr_t comm               # MPI handles as integers: ints in MPICH, pointers in Open MPI
    const void* sendbuf         # NULL where the operation sends nothing
    void* recvbuf               # NULL where the operation receives nothing
    int64_t sendcount           # elements; where each rank has a block, elements of one block
    int64_t recvcount
    const int64_t* sendcounts   # elements of the block for each rank, one after the other in sendbuf; or NULL
    const int64_t* recvcounts   # elements of the block from each rank
    intptr_t sendtype
    intptr_t recvtype
    intptr_t mpi_op
    int32_t root
    int32_t source
    int32_t dest
    int32_t sendtag
    int32_t recvtag
    void* mpi_status            # out: an MPI_Status to be filled in by what receives; or NULL
    int32_t early               # with MPI's non-blocking form, the same on all ranks; a send: without waiting
    int32_t to_itself           # whether a message goes to this rank, both ends matching, with no status
    int32_t paired              # whether both sides of a message are the same call, which uses the ring between them
    void* shared                # the communicator's slots, of paired messages its rings (mpi_slots.h, mpi_ring.h); NULL
    uint64_t what               # of an operation that all ranks do: a number of its label, the same on all; or 0
    uint64_t lanes              # of messages that may go through lanes (mpi_lanes.h): which communicator; else 0
    int32_t lane_to             # the ranks of this node to whom and from whom; -1: none of them
    int32_t lane_from


ctypedef int (*CommFunction)(CommArgs*) noexcept nogil


cdef enum:
    FLIGHT_WORDS = 24
    SHARED_READY = 1            # the first member of shared memory that is used says so


cdef struct CommFlight:         # an operation in progress; the halves' business
    int64_t[FLIGHT_WORDS] words


cdef struct CommHalves:
    void* (*shared_for)(CommArgs*) noexcept nogil
    int (*start)(CommArgs*, CommFlight*) noexcept nogil
    void (*advance)(CommFlight*) noexcept nogil
    int (*finish)(CommFlight*) noexcept nogil
    int* lanes_taken                            # whether messages may lie in lanes: `settle` comes before what may wait
    int (*settle)() noexcept nogil
    int (*stop)() noexcept nogil                # leaves all lanes: at the end of a run, and before it calls Python
