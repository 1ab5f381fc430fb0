# cython: language_level=3, boundscheck=False, wraparound=False
"""Communication shims: C functions, one per operation, that compiled programs call without the GIL.

`comm_table`, a capsule named "mpijax.comm_table", holds C functions ``int f(CommArgs*)``, indexed by the operation
codes of ``comm.pxd``; each returns an MPI error code. `call` runs one from Python. MPI handles are passed as integers
(`move_type`, `reduction`, and `handle` for mpi4py's objects). ``mpi_calls.h`` defines the results on ranks other than
the root, and with equal send and receive buffers.

Importing this module requires that ``mpi4py.MPI`` has loaded the MPI library: use `mpijax.runtime.mpi.mpi_start`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from libc.stdint cimport int64_t, intptr_t, uint64_t, uintptr_t
from libc.stdlib cimport realloc
from libc.string cimport memset

from mpijax._ext.comm cimport (
    COMM_ALLGATHER, COMM_ALLGATHERV, COMM_ALLREDUCE, COMM_ALLTOALL, COMM_ALLTOALLV, COMM_BARRIER, COMM_BCAST,
    COMM_EXSCAN, COMM_GATHER, COMM_GATHERV, COMM_OPS, COMM_RECV, COMM_REDUCE, COMM_REDUCE_SCATTER,
    COMM_REDUCE_SCATTERV, COMM_SCAN, COMM_SCATTER, COMM_SCATTERV, COMM_SEND, COMM_SENDRECV,
    CommArgs, CommFlight, CommFunction, CommHalves,
)

from mpijax._ext.record cimport Region, region_place


cdef extern from "mpi_calls.h" nogil:
    ctypedef void *MPI_Comm
    ctypedef void *MPI_Datatype
    ctypedef void *MPI_Op
    int MPI_SUCCESS
    int MPI_MAX_ERROR_STRING
    MPI_Datatype MPI_BYTE, MPI_C_BOOL, MPI_FLOAT, MPI_DOUBLE, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX
    MPI_Datatype MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T
    MPI_Datatype MPI_UINT8_T, MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T
    MPI_Op MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR
    int MPI_Error_string(int, char *, int *)
    int MPI_Allreduce(...)
    int MJ_LARGE_COUNTS
    int mj_yielding, mj_crowded
    int64_t mj_chunk
    MPI_Comm MJ_COMM(intptr_t)
    MPI_Datatype MJ_TYPE(intptr_t)
    MPI_Op MJ_OP(intptr_t)
    intptr_t MJ_INT(...)
    int MJ_VALUE, MJ_TANGENT, MJ_COTANGENT
    int mj_tag_of_kind(int, int)
    int mj_value_tag(int)
    int mj_kind(int)
    int mj_last_tag()
    int mj_tags()
    int mj_allreduce(const void *, void *, int64_t, MPI_Datatype, MPI_Op, MPI_Comm)
    int mj_reduce(const void *, void *, int64_t, MPI_Datatype, MPI_Op, int, MPI_Comm)
    int mj_scan(const void *, void *, int64_t, MPI_Datatype, MPI_Op, MPI_Comm)
    int mj_exscan(const void *, void *, int64_t, MPI_Datatype, MPI_Op, MPI_Comm)
    int mj_reduce_scatter(const void *, void *, int64_t, MPI_Datatype, MPI_Op, MPI_Comm)
    int mj_bcast(const void *, void *, int64_t, MPI_Datatype, int, MPI_Comm)
    int mj_allgather(const void *, void *, int64_t, MPI_Datatype, MPI_Comm)
    int mj_alltoall(const void *, void *, int64_t, MPI_Datatype, MPI_Comm)
    int mj_gather(const void *, void *, int64_t, MPI_Datatype, int, MPI_Comm)
    int mj_scatter(const void *, void *, int64_t, MPI_Datatype, int, MPI_Comm)
    int mj_has_kept
    int mj_copy_bytes(const void *, int64_t, void *)
    int mj_post(const void *, int64_t, int, int, MPI_Comm)
    int mj_send(const void *, int64_t, MPI_Datatype, int, int, MPI_Comm)
    ctypedef struct MPI_Status
    int mj_recv(void *, int64_t, MPI_Datatype, int, int, MPI_Comm, MPI_Status *)
    int mj_allgatherv(const void *, int64_t, void *, const int64_t *, MPI_Datatype, MPI_Comm)
    int mj_gatherv(const void *, int64_t, void *, const int64_t *, MPI_Datatype, int, MPI_Comm)
    int mj_scatterv(const void *, const int64_t *, void *, int64_t, MPI_Datatype, int, MPI_Comm)
    int mj_alltoallv(const void *, const int64_t *, void *, const int64_t *, MPI_Datatype, MPI_Comm)
    int mj_reduce_scatterv(const void *, void *, const int64_t *, MPI_Datatype, MPI_Op, MPI_Comm)
    int mj_sendrecv(const void *, int64_t, MPI_Datatype, int, int,
                    void *, int64_t, MPI_Datatype, int, int, MPI_Comm, MPI_Status *)
    int mj_barrier(MPI_Comm)

cdef extern from "mpi_memory.h" nogil:
    ctypedef struct Shared "mj_shared":
        int state
    int MJ_NEW, MJ_READY, MJ_POLLING_RANKS
    int mj_sharing, mj_sleeps
    int* mj_node_rank
    int mj_rank_here(MPI_Comm, int)

cdef extern from "mpi_slots.h" nogil:
    ctypedef struct Slots "mj_slots":
        pass
    ctypedef struct Transfer "mj_transfer":
        Slots* slots
        int kind, root, source, dest
        const char* s
        char* r
        int64_t n
        uint64_t what
        MPI_Datatype type
        MPI_Op op
    int MJ_BARRIER, MJ_BCAST, MJ_SHIFT, MJ_SCATTER, MJ_GATHER, MJ_ALLGATHER, MJ_ALLTOALL
    int MJ_ALLREDUCE, MJ_REDUCE, MJ_REDUCE_SCATTER, MJ_SCAN, MJ_EXSCAN
    Slots* mj_slots_for(MPI_Comm, int, int64_t)
    int mj_slots_open(Slots*, MPI_Comm)
    int mj_slots_start(Transfer*)
    int64_t mj_size(MPI_Datatype)

cdef extern from "mpi_ring.h" nogil:
    ctypedef struct End "mj_ring_end":
        pass
    ctypedef struct Rings "mj_rings":
        End* to
        End* from_ "from"
    int MJ_SLOT
    Rings* mj_rings_for(MPI_Comm)
    int mj_rings_open(Rings*, MPI_Comm)
    void mj_ring_send(End*, const void*, int64_t, int)

cdef extern from "mpi_early.h" nogil:
    ctypedef void *MPI_Request
    ctypedef struct Flight "mj_flight":
        int way, asked, code
        void *r
        int64_t rn
        End *from_ "from"
        Transfer transfer
        MPI_Request[2] requests
    MPI_Request MPI_REQUEST_NULL
    int MJ_DONE, MJ_THROUGH_SLOTS, MJ_THROUGH_RING, MJ_REQUESTED
    int mj_start_allreduce(Flight*, const void *, void *, int64_t, MPI_Datatype, MPI_Op, MPI_Comm)
    int mj_start_reduce_scatter(Flight*, const void *, void *, int64_t, MPI_Datatype, MPI_Op, MPI_Comm)
    int mj_start_allgather(Flight*, const void *, void *, int64_t, MPI_Datatype, MPI_Comm)
    int mj_start_alltoall(Flight*, const void *, void *, int64_t, MPI_Datatype, MPI_Comm)
    int mj_start_bcast(Flight*, const void *, void *, int64_t, MPI_Datatype, int, MPI_Comm)
    int mj_start_sendrecv(Flight*, const void *, int64_t, MPI_Datatype, int, int,
                          void *, int64_t, MPI_Datatype, int, int, MPI_Comm)
    void mj_advance(Flight*)
    int mj_finish(Flight*)

cdef extern from "mpi_lanes.h" nogil:
    ctypedef struct Group "mj_group":
        uint64_t number
    Group* mj_group_of(MPI_Comm)
    uint64_t mj_next_group(Group*)
    int mj_set_group(MPI_Comm, uint64_t)
    int mj_lanes_taken, mj_lane_ranks
    int64_t mj_lane_messages, mj_lane_patience, mj_lane_rest
    int mj_lanes_open(MPI_Comm)
    int mj_lanes_mine()
    int mj_lanes_settle()
    int mj_lanes_leave()
    int mj_lanes_stop()
    int mj_lane_send(int, uint64_t, const void*, int64_t, int, int, MPI_Comm, int)
    int mj_lane_recv(int, uint64_t, void*, int64_t, int, int, MPI_Comm)
    int mj_lane_sendrecv(int, int, uint64_t, const void*, int64_t, int, int, void*, int64_t, int, int, MPI_Comm)

cdef extern from "mpi_ops.h" nogil:
    MPI_Datatype MJ_F16, MJ_BF16
    MPI_Op MJ_SUM, MJ_PROD, MJ_MAX, MJ_MIN
    int mj_make_operations()

cdef extern from "mpi_attribute.h":
    int mj_attribute_key(void *then, int *key)
    int mj_attribute(MPI_Comm, int key, void **value)
    int MPI_Comm_set_attr(MPI_Comm, int key, void *value)

cdef extern from "mpi_exit.h":
    int mj_leave_properly(MPI_Comm, MPI_Comm, int, int, Region**)
    int mj_exit_looked, mj_exit_file, mj_exit_own, mj_exit_ranks

cdef extern from * nogil:
    """
    #include <dlfcn.h>

    /* The address of `name` as seen from the loaded shared object `path`; NULL if it is not loaded. */
    static void *mj_symbol_in(const char *path, const char *name) {
        void *library = dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
        void *address = library == NULL ? NULL : dlsym(library, name);
        if (library != NULL) dlclose(library);
        return address;
    }

    static const char *mj_file_of(void *address) {
        Dl_info info;
        return dladdr(address, &info) && info.dli_fname ? info.dli_fname : "unknown";
    }
    """
    void *mj_symbol_in(const char *path, const char *name)
    const char *mj_file_of(void *address)


# ---- one function per operation ----

cdef int _allreduce(CommArgs *a) noexcept nogil:
    return mj_allreduce(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_OP(a.mpi_op),
                        MJ_COMM(a.comm))


cdef int _reduce(CommArgs *a) noexcept nogil:
    return mj_reduce(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_OP(a.mpi_op), a.root,
                     MJ_COMM(a.comm))


cdef int _bcast(CommArgs *a) noexcept nogil:
    return mj_bcast(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), a.root, MJ_COMM(a.comm))


cdef int _allgather(CommArgs *a) noexcept nogil:
    return mj_allgather(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_COMM(a.comm))


cdef int _alltoall(CommArgs *a) noexcept nogil:
    return mj_alltoall(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_COMM(a.comm))


cdef int _gather(CommArgs *a) noexcept nogil:
    return mj_gather(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), a.root, MJ_COMM(a.comm))


cdef int _scatter(CommArgs *a) noexcept nogil:
    return mj_scatter(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), a.root, MJ_COMM(a.comm))


cdef int _reduce_scatter(CommArgs *a) noexcept nogil:
    return mj_reduce_scatter(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_OP(a.mpi_op),
                             MJ_COMM(a.comm))


cdef int _scan(CommArgs *a) noexcept nogil:
    return mj_scan(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_OP(a.mpi_op), MJ_COMM(a.comm))


cdef int _exscan(CommArgs *a) noexcept nogil:
    return mj_exscan(a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_OP(a.mpi_op), MJ_COMM(a.comm))


cdef int _sendrecv(CommArgs *a) noexcept nogil:
    cdef int code
    if a.to_itself and not mj_has_kept and a.sendcount == a.recvcount:
        return mj_copy_bytes(a.sendbuf, a.sendcount, a.recvbuf)
    if a.lanes and mj_lanes_mine():
        return mj_lane_sendrecv(a.lane_to, a.lane_from, a.lanes, a.sendbuf, a.sendcount, a.dest, a.sendtag,
                                a.recvbuf, a.recvcount, a.source, a.recvtag, MJ_COMM(a.comm))
    code = _leave_lanes(a)
    if code != MPI_SUCCESS:
        return code
    return mj_sendrecv(a.sendbuf, a.sendcount, MJ_TYPE(a.sendtype), a.dest, a.sendtag,
                       a.recvbuf, a.recvcount, MJ_TYPE(a.recvtype), a.source, a.recvtag, MJ_COMM(a.comm),
                       <MPI_Status *>a.mpi_status)


cdef int _leave_lanes(CommArgs *a) noexcept nogil:
    """Before a message that only MPI can carry; a receive must also stop lanes that could bring the message."""
    cdef int code = MPI_SUCCESS
    if a.op != COMM_SEND:
        code = mj_lanes_leave()
    return mj_lanes_settle() if code == MPI_SUCCESS else code


cdef int _send(CommArgs *a) noexcept nogil:
    cdef int code
    if a.lanes and mj_lanes_mine():
        return mj_lane_send(a.lane_to, a.lanes, a.sendbuf, a.sendcount, a.dest, a.sendtag, MJ_COMM(a.comm), a.early)
    code = _leave_lanes(a)
    if code != MPI_SUCCESS:
        return code
    if a.early:
        return mj_post(a.sendbuf, a.sendcount, a.dest, a.sendtag, MJ_COMM(a.comm))
    return mj_send(a.sendbuf, a.sendcount, MJ_TYPE(a.sendtype), a.dest, a.sendtag, MJ_COMM(a.comm))


cdef int _recv(CommArgs *a) noexcept nogil:
    cdef int code
    if a.lanes and mj_lanes_mine():
        return mj_lane_recv(a.lane_from, a.lanes, a.recvbuf, a.recvcount, a.source, a.recvtag, MJ_COMM(a.comm))
    code = _leave_lanes(a)
    if code != MPI_SUCCESS:
        return code
    return mj_recv(a.recvbuf, a.recvcount, MJ_TYPE(a.recvtype), a.source, a.recvtag, MJ_COMM(a.comm),
                   <MPI_Status *>a.mpi_status)


cdef int _allgatherv(CommArgs *a) noexcept nogil:
    return mj_allgatherv(a.sendbuf, a.sendcount, a.recvbuf, a.recvcounts, MJ_TYPE(a.sendtype), MJ_COMM(a.comm))


cdef int _gatherv(CommArgs *a) noexcept nogil:
    return mj_gatherv(a.sendbuf, a.sendcount, a.recvbuf, a.recvcounts, MJ_TYPE(a.sendtype), a.root,
                      MJ_COMM(a.comm))


cdef int _scatterv(CommArgs *a) noexcept nogil:
    return mj_scatterv(a.sendbuf, a.sendcounts, a.recvbuf, a.recvcount, MJ_TYPE(a.recvtype), a.root,
                       MJ_COMM(a.comm))


cdef int _alltoallv(CommArgs *a) noexcept nogil:
    return mj_alltoallv(a.sendbuf, a.sendcounts, a.recvbuf, a.recvcounts, MJ_TYPE(a.sendtype), MJ_COMM(a.comm))


cdef int _reduce_scatterv(CommArgs *a) noexcept nogil:
    return mj_reduce_scatterv(a.sendbuf, a.recvbuf, a.recvcounts, MJ_TYPE(a.sendtype), MJ_OP(a.mpi_op),
                              MJ_COMM(a.comm))


cdef int _barrier(CommArgs *a) noexcept nogil:
    return mj_barrier(MJ_COMM(a.comm))


cdef CommFunction table[<int>COMM_OPS]
table[<int>COMM_ALLREDUCE] = _allreduce
table[<int>COMM_REDUCE] = _reduce
table[<int>COMM_BCAST] = _bcast
table[<int>COMM_ALLGATHER] = _allgather
table[<int>COMM_ALLTOALL] = _alltoall
table[<int>COMM_GATHER] = _gather
table[<int>COMM_SCATTER] = _scatter
table[<int>COMM_REDUCE_SCATTER] = _reduce_scatter
table[<int>COMM_SCAN] = _scan
table[<int>COMM_EXSCAN] = _exscan
table[<int>COMM_SENDRECV] = _sendrecv
table[<int>COMM_SEND] = _send
table[<int>COMM_RECV] = _recv
table[<int>COMM_BARRIER] = _barrier
table[<int>COMM_ALLGATHERV] = _allgatherv
table[<int>COMM_GATHERV] = _gatherv
table[<int>COMM_SCATTERV] = _scatterv
table[<int>COMM_ALLTOALLV] = _alltoallv
table[<int>COMM_REDUCE_SCATTERV] = _reduce_scatterv

comm_table = PyCapsule_New(<void *>table, "mpijax.comm_table", NULL)


# ---- in two halves ----

cdef int[<int>COMM_OPS] transfer_kind       # the operation's kind in slots; -1: only MPI has it
for op in range(COMM_OPS):
    transfer_kind[op] = -1
transfer_kind[<int>COMM_BARRIER] = MJ_BARRIER
transfer_kind[<int>COMM_BCAST] = MJ_BCAST
transfer_kind[<int>COMM_SENDRECV] = MJ_SHIFT
transfer_kind[<int>COMM_SCATTER] = MJ_SCATTER
transfer_kind[<int>COMM_GATHER] = MJ_GATHER
transfer_kind[<int>COMM_ALLGATHER] = MJ_ALLGATHER
transfer_kind[<int>COMM_ALLTOALL] = MJ_ALLTOALL
transfer_kind[<int>COMM_ALLREDUCE] = MJ_ALLREDUCE
transfer_kind[<int>COMM_REDUCE] = MJ_REDUCE
transfer_kind[<int>COMM_REDUCE_SCATTER] = MJ_REDUCE_SCATTER
transfer_kind[<int>COMM_SCAN] = MJ_SCAN
transfer_kind[<int>COMM_EXSCAN] = MJ_EXSCAN


cdef int _start(CommArgs *a, CommFlight *flight) noexcept nogil:
    """Starts an operation through shared memory or with MPI's non-blocking call; otherwise runs all of it."""
    cdef Flight *f = <Flight *>flight
    cdef Shared *shared = <Shared *>a.shared
    cdef int code = MPI_SUCCESS
    f.way = MJ_DONE
    if a.lanes:
        code = mj_lanes_stop()
    if shared != NULL and shared.state == MJ_NEW and code == MPI_SUCCESS:
        if a.paired:
            code = mj_rings_open(<Rings *>shared, MJ_COMM(a.comm))
        else:
            code = mj_slots_open(<Slots *>shared, MJ_COMM(a.comm))
    if code != MPI_SUCCESS:
        return code
    if shared != NULL and shared.state == MJ_READY:
        if not a.paired:
            return _start_transfer(f, a)
        if a.sendcount <= MJ_SLOT and a.recvcount <= MJ_SLOT:
            _start_message(f, a, <Rings *>shared)
            return MPI_SUCCESS
    if a.early and a.sendcount <= mj_chunk and a.recvcount <= mj_chunk:
        f.way, f.code, f.r = MJ_REQUESTED, MPI_SUCCESS, NULL
        f.requests[0] = f.requests[1] = MPI_REQUEST_NULL
        return _start_request(f, a)
    return table[a.op](a)


cdef int _start_transfer(Flight *f, CommArgs *a) noexcept nogil:
    cdef Transfer *x = &f.transfer
    f.way = MJ_THROUGH_SLOTS
    x.slots, x.kind = <Slots *>a.shared, transfer_kind[a.op]
    x.root, x.source, x.dest = a.root, a.source, a.dest
    x.s, x.r = <const char *>a.sendbuf, <char *>a.recvbuf
    x.type, x.op = MJ_TYPE(a.sendtype), MJ_OP(a.mpi_op)
    x.n = _block_bytes(a)
    x.what = a.what
    return mj_slots_start(x)


cdef int64_t _block_bytes(CommArgs *a) noexcept nogil:
    """Bytes that every rank sends, or sends to each, or receives: equal on all ranks."""
    if a.op == COMM_BARRIER:
        return 0
    if a.op == COMM_SCATTER:
        return a.recvcount * mj_size(MJ_TYPE(a.recvtype))
    return a.sendcount * mj_size(MJ_TYPE(a.sendtype))


cdef void _start_message(Flight *f, CommArgs *a, Rings *rings) noexcept nogil:
    """Starts a message through rings; counts are bytes."""
    if a.op != COMM_RECV and a.dest >= 0:
        mj_ring_send(&rings.to[a.dest], a.sendbuf, a.sendcount, a.sendtag)
    if a.op != COMM_SEND and a.source >= 0:
        f.way, f.asked, f.from_, f.r, f.rn = MJ_THROUGH_RING, a.recvtag, &rings.from_[a.source], a.recvbuf, a.recvcount


cdef int _start_request(Flight *f, CommArgs *a) noexcept nogil:
    if a.op == COMM_ALLREDUCE:
        return mj_start_allreduce(f, a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_OP(a.mpi_op),
                                  MJ_COMM(a.comm))
    if a.op == COMM_REDUCE_SCATTER:
        return mj_start_reduce_scatter(f, a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_OP(a.mpi_op),
                                       MJ_COMM(a.comm))
    if a.op == COMM_ALLGATHER:
        return mj_start_allgather(f, a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_COMM(a.comm))
    if a.op == COMM_ALLTOALL:
        return mj_start_alltoall(f, a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), MJ_COMM(a.comm))
    if a.op == COMM_BCAST:
        return mj_start_bcast(f, a.sendbuf, a.recvbuf, a.sendcount, MJ_TYPE(a.sendtype), a.root, MJ_COMM(a.comm))
    if a.op == COMM_SENDRECV and a.sendbuf != a.recvbuf:
        return mj_start_sendrecv(f, a.sendbuf, a.sendcount, MJ_TYPE(a.sendtype), a.dest, a.sendtag,
                                 a.recvbuf, a.recvcount, MJ_TYPE(a.recvtype), a.source, a.recvtag, MJ_COMM(a.comm))
    f.way = MJ_DONE
    return table[a.op](a)


cdef void _advance(CommFlight *flight) noexcept nogil:
    mj_advance(<Flight *>flight)


cdef int _finish(CommFlight *flight) noexcept nogil:
    return mj_finish(<Flight *>flight)


cdef CommHalves halves
halves.shared_for, halves.start, halves.advance, halves.finish = shared_for, _start, _advance, _finish
halves.lanes_taken, halves.settle, halves.stop = &mj_lanes_taken, mj_lanes_settle, mj_lanes_stop
comm_halves = PyCapsule_New(<void *>&halves, "mpijax.comm_halves", NULL)
if sizeof(Flight) > sizeof(CommFlight):
    raise ImportError(f"an operation in flight takes {sizeof(Flight)} bytes, but comm.pxd reserves fewer")


cdef void* shared_for(CommArgs* a) noexcept nogil:
    """A communicator's slots or rings, for operations that use them; else NULL. Not collective.

    Messages with `paired` use rings whatever their size: the first message creates the rings.
    """
    if a.paired:
        return mj_rings_for(MJ_COMM(a.comm))
    if transfer_kind[a.op] < 0:
        return NULL
    return mj_slots_for(MJ_COMM(a.comm), transfer_kind[a.op], _block_bytes(a))


def set_sharing(bint value):
    """Sets whether operations among ranks of one node use shared memory, alike on all ranks; returns the old value."""
    global mj_sharing
    before = mj_sharing
    mj_sharing = value
    return before


def set_sleeping(bint value):
    """Sets whether ranks that wait in shared memory sleep, on nodes where they share cores; returns the old value.

    Must be equal on all ranks of a node. Applies to communicators that have not communicated yet.
    """
    global mj_sleeps
    before = mj_sleeps
    mj_sleeps = value
    return before


def set_node(ranks, int size):
    """Sets the ranks of COMM_WORLD that are on this node. size: of COMM_WORLD."""
    global mj_node_rank
    mj_node_rank = <int*>realloc(mj_node_rank, size * sizeof(int))
    if mj_node_rank == NULL:
        raise MemoryError
    for rank in range(size):
        mj_node_rank[rank] = -1
    for i, rank in enumerate(ranks):
        mj_node_rank[rank] = i


def open_lanes(intptr_t node):
    """Let messages among the ranks of `node`, which are on one node, use shared memory. Returns whether they do.

    Collective, before the first message.
    """
    _check(mj_lanes_open(MJ_COMM(node)))
    return mj_lane_ranks > 0


def rank_here(intptr_t comm, int rank):
    """The rank on this node of a communicator's rank; -1 if it is on another node or does not exist."""
    return mj_rank_here(MJ_COMM(comm), rank)


def lane_group(intptr_t comm):
    """The communicator's number for lanes, equal on all of its ranks; 0 if its messages go through MPI."""
    cdef Group* group = mj_group_of(MJ_COMM(comm))
    return 0 if group == NULL else group.number


def set_lane_group(intptr_t comm, uint64_t number):
    """Sets the number of a communicator, alike on all ranks; its duplicates get other numbers."""
    _check(mj_set_group(MJ_COMM(comm), number))


def next_lane_group(intptr_t parent):
    """The number for a communicator made from `parent`, in whatever way; 0: it gets none. All ranks of `parent` must
    call it alike, and make communicators in the same order."""
    cdef Group* group = mj_group_of(MJ_COMM(parent))
    return 0 if group == NULL else mj_next_group(group)


def set_lane_patience(int64_t patience, int64_t rest):
    """For tests: sets the nanoseconds after which unread messages are sent by MPI: before their sender waits for
    something else, and while it waits for a message. Returns the old values."""
    global mj_lane_patience, mj_lane_rest
    before = mj_lane_patience, mj_lane_rest
    mj_lane_patience, mj_lane_rest = patience, rest
    return before


def lane_messages():
    """The number of messages that this rank has received through lanes."""
    return mj_lane_messages


CODES = {
    "allreduce": COMM_ALLREDUCE,
    "reduce": COMM_REDUCE,
    "bcast": COMM_BCAST,
    "allgather": COMM_ALLGATHER,
    "alltoall": COMM_ALLTOALL,
    "gather": COMM_GATHER,
    "scatter": COMM_SCATTER,
    "reduce_scatter": COMM_REDUCE_SCATTER,
    "scan": COMM_SCAN,
    "exscan": COMM_EXSCAN,
    "sendrecv": COMM_SENDRECV,
    "send": COMM_SEND,
    "recv": COMM_RECV,
    "barrier": COMM_BARRIER,
    "allgatherv": COMM_ALLGATHERV,
    "gatherv": COMM_GATHERV,
    "scatterv": COMM_SCATTERV,
    "alltoallv": COMM_ALLTOALLV,
    "reduce_scatterv": COMM_REDUCE_SCATTERV,
}


# ---- handles ----

cdef bint made = False


cdef int _check(int code) except -1:
    if code != MPI_SUCCESS:
        raise RuntimeError(error_message(code))
    return 0


TAG_KINDS = {"tangent": MJ_TANGENT, "cotangent": MJ_COTANGENT}


def tag_of(int tag, str kind):
    """The tag of the tangent, the cotangent or (any other kind) the value of a message with this tag, or any tag."""
    return mj_tag_of_kind(tag, TAG_KINDS.get(kind, MJ_VALUE))


def last_tag():
    """The highest tag of messages of values."""
    return mj_last_tag() - 2 * mj_tags()


def value_tag(int tag):
    """(the tag of the message of values, whether the given tag is that of its derivative)"""
    return mj_value_tag(tag), mj_kind(tag) != MJ_VALUE


def error_message(int code):
    """MPI's text for an error code."""
    cdef char text[1024]
    cdef int length = 0
    if MPI_MAX_ERROR_STRING > 1024 or MPI_Error_string(code, text, &length) != MPI_SUCCESS:
        return f"MPI error {code}"
    return text[:length].decode("utf-8", "replace")


def handle(item):
    """The handle of mpi4py's communicator, operation or datatype: the signed integer of instructions."""
    from mpi4py import MPI  # heavy, and loaded by the time there is an item

    return <intptr_t><uintptr_t>MPI._handleof(item)


cdef class Attribute:
    """Attaches one object to each communicator. then: called with the object when its communicator is freed."""

    cdef int key
    cdef object then    # MPI holds it as long as there are communicators

    def __init__(self, then):
        self.then = then
        _check(mj_attribute_key(<void*>then, &self.key))
        Py_INCREF(then)

    def get(self, comm):
        """The object of an mpi4py communicator; None if it has none."""
        cdef void* value
        _check(mj_attribute(MJ_COMM(handle(comm)), self.key, &value))
        return None if value == NULL else <object>value

    def set(self, comm, value):
        """Attach an object to a communicator that has none."""
        Py_INCREF(value)
        _check(MPI_Comm_set_attr(MJ_COMM(handle(comm)), self.key, <void*>value))


def move_type():
    """The datatype of operations that only move data: bytes, which work for every dtype."""
    return MJ_INT(MPI_BYTE)


_TYPES = {
    "bool": MJ_INT(MPI_C_BOOL),
    "int8": MJ_INT(MPI_INT8_T),
    "int16": MJ_INT(MPI_INT16_T),
    "int32": MJ_INT(MPI_INT32_T),
    "int64": MJ_INT(MPI_INT64_T),
    "uint8": MJ_INT(MPI_UINT8_T),
    "uint16": MJ_INT(MPI_UINT16_T),
    "uint32": MJ_INT(MPI_UINT32_T),
    "uint64": MJ_INT(MPI_UINT64_T),
    "float32": MJ_INT(MPI_FLOAT),
    "float64": MJ_INT(MPI_DOUBLE),
    "complex64": MJ_INT(MPI_C_FLOAT_COMPLEX),
    "complex128": MJ_INT(MPI_C_DOUBLE_COMPLEX),
}

_BUILTIN = {
    "sum": MJ_INT(MPI_SUM),
    "prod": MJ_INT(MPI_PROD),
    "max": MJ_INT(MPI_MAX),
    "min": MJ_INT(MPI_MIN),
    "land": MJ_INT(MPI_LAND),
    "lor": MJ_INT(MPI_LOR),
    "lxor": MJ_INT(MPI_LXOR),
    "band": MJ_INT(MPI_BAND),
    "bor": MJ_INT(MPI_BOR),
    "bxor": MJ_INT(MPI_BXOR),
}
_NAMES = {handle: name for name, handle in _BUILTIN.items()}

# Arithmetic on bools is logic; for them, bitwise and logical operations are the same.
_OF_BOOL = {
    "sum": "lor", "max": "lor", "lor": "lor", "bor": "lor",
    "prod": "land", "min": "land", "land": "land", "band": "land",
    "lxor": "lxor", "bxor": "lxor",
}

_OF_KIND = {
    "integer": frozenset(_BUILTIN),
    "floating-point": frozenset({"sum", "prod", "max", "min"}),
    "complex": frozenset({"sum", "prod"}),
}


def reduction_name(op):
    """The name of a reduction: 'sum' for 'sum' and mpi4py's ``MPI.SUM``; None for a user's own operation."""
    if isinstance(op, str):
        if op not in _BUILTIN:
            raise ValueError(f"unknown reduction {op!r}. The reductions are {', '.join(_BUILTIN)}")
        return op
    return _NAMES.get(handle(op))


def reduction(op, dtype):
    """(datatype, operation): the handles for reducing arrays of `dtype` (a name or a numpy dtype) by `op`.

    `op` is a name ('sum', 'prod', 'max', 'min', 'land', 'lor', 'lxor', 'band', 'bor', 'bxor') or an mpi4py operation.
    MPI must run. Raises TypeError if the dtype has no such reduction.
    """
    cdef str type_name = dtype if isinstance(dtype, str) else dtype.name
    name = reduction_name(op)
    _make_operations()
    if name is None:
        if type_name not in _TYPES:
            raise TypeError(f"an operation of MPI.Op.Create cannot reduce {type_name}: MPI does not have this type")
        return _TYPES[type_name], handle(op)
    if type_name == "bool":
        return _TYPES["bool"], _BUILTIN[_OF_BOOL[name]]
    kind = ("integer" if type_name.startswith(("int", "uint")) else
            "complex" if type_name.startswith("complex") else "floating-point")
    if name not in _OF_KIND[kind]:
        raise TypeError(f"'{name}' does not support {kind} numbers, got dtype {type_name}. "
                        f"Use {', '.join(sorted(_OF_KIND[kind]))}")
    if type_name == "float16" or type_name == "bfloat16":
        own = {"sum": MJ_INT(MJ_SUM), "prod": MJ_INT(MJ_PROD), "max": MJ_INT(MJ_MAX), "min": MJ_INT(MJ_MIN)}
        return (MJ_INT(MJ_F16) if type_name == "float16" else MJ_INT(MJ_BF16)), own[name]
    if type_name not in _TYPES:
        raise TypeError(f"arrays of {type_name} cannot be reduced over ranks. Convert them to float32 first "
                        "(x.astype('float32')), or integers to int32")
    if name == "sum" and type_name in ("int8", "uint8", "int16", "uint16"):
        return _TYPES[type_name], MJ_INT(MJ_SUM)
    if kind == "floating-point" and name == "max":
        return _TYPES[type_name], MJ_INT(MJ_MAX)
    if kind == "floating-point" and name == "min":
        return _TYPES[type_name], MJ_INT(MJ_MIN)
    return _TYPES[type_name], _BUILTIN[name]


cdef int _make_operations() except -1:
    global made
    if not made:
        _check(mj_make_operations())
        made = True
    return 0


# ---- waiting, splitting, and the library ----

def set_yielding(bint value):
    """Sets whether waiting ranks yield their core: for nodes with more ranks than cores."""
    global mj_yielding
    mj_yielding = value


def yielding():
    return bool(mj_yielding)


def set_crowded(bint value):
    """Sets whether ranks that yield their core sleep longer the longer they wait: for many ranks per core."""
    global mj_crowded
    mj_crowded = value


def large_counts():
    """Whether the library has MPI-4's calls with 64-bit counts."""
    return bool(MJ_LARGE_COUNTS)


def set_chunk(int64_t elements):
    """For tests: sets the maximum elements of a message that is sent in one part. Returns the old value."""
    global mj_chunk
    before = mj_chunk
    mj_chunk = elements
    return before


def same_library(str path):
    """Whether the shared object `path`, such as mpi4py's, calls the same MPI library as this module."""
    cdef bytes name = path.encode()
    cdef void *theirs = mj_symbol_in(name, b"MPI_Allreduce")
    return theirs == NULL or theirs == <void *>&MPI_Allreduce


def library_path():
    """The file of the MPI library that this module calls."""
    return mj_file_of(<void *>&MPI_Allreduce).decode()


def leave_properly(intptr_t comm, intptr_t world, bint finalizes, bint meets):
    """At process exit, record the status and (`finalizes`) finalize MPI, or end the job if the status is not 0.

    meets: whether every rank of `comm` finalizes in this way, so that they wait for each other first. Then they report
    messages on `world` that nobody has received, unless `looked` has been called.
    """
    if mj_leave_properly(MJ_COMM(comm), MJ_COMM(world), finalizes, meets, region_place()) != 0:
        raise RuntimeError("cannot register more functions with atexit")


def expect(int file, int own, int ranks):
    """At process exit, do not wait for a rank of this node that ended without MPI_Finalize.

    file: descriptor of the records of `ranks` ranks, in which each has locked a byte; `own` is the index of this one.
    """
    global mj_exit_file, mj_exit_own, mj_exit_ranks
    mj_exit_file, mj_exit_own, mj_exit_ranks = file, own, ranks


def looked():
    """Record that this rank has reported its unreceived messages."""
    global mj_exit_looked
    mj_exit_looked = True


# ---- from Python ----

def call(str op, intptr_t comm, send=None, recv=None, *,
         int64_t send_count=0, intptr_t send_type=0, recv_count=None, recv_type=None, intptr_t reduction=0,
         int root=0, int dest=0, int source=0, int send_tag=0, int recv_tag=0):
    """Runs one operation on contiguous buffers (``array.view('u1')`` for dtypes without a buffer interface).

    Counts are in elements of the datatype, as in ``comm.pxd``; the receive side defaults to the send side. Raises
    RuntimeError with MPI's text.
    """
    cdef CommArgs args
    cdef CommFlight flight
    cdef Py_buffer[2] views
    cdef int code
    memset(&args, 0, sizeof(args))
    memset(views, 0, sizeof(views))
    args.op = CODES[op]
    args.comm = comm
    args.sendcount = send_count
    args.sendtype = send_type
    args.recvcount = send_count if recv_count is None else recv_count
    args.recvtype = send_type if recv_type is None else recv_type
    args.mpi_op = reduction
    args.root = root
    args.dest = dest
    args.source = source
    args.sendtag = send_tag
    args.recvtag = recv_tag
    try:
        if send is not None:
            PyObject_GetBuffer(send, &views[0], PyBUF_SIMPLE)
        if recv is not None:
            PyObject_GetBuffer(recv, &views[1], PyBUF_WRITABLE)
        args.sendbuf = views[0].buf
        args.recvbuf = views[1].buf
        if args.op != COMM_SENDRECV:    # a message here involves two ranks, so it does not use shared memory
            args.shared = shared_for(&args)
        with nogil:
            code = _start(&args, &flight)
            if code == MPI_SUCCESS:
                code = _finish(&flight)
    finally:
        PyBuffer_Release(&views[0])
        PyBuffer_Release(&views[1])
    if code != MPI_SUCCESS:
        raise RuntimeError(f"MPI {op} failed: {error_message(code)}")
