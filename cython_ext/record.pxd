# The record of communication, for the executor.

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef extern from "record.h" nogil:
    ctypedef struct Region "mj_region":
        int state
        int status
    ctypedef struct Entry "mj_entry":
        pass
    Entry* begin_operation "mj_begin"(Region* region, uint32_t site, uint32_t sequence, int64_t nbytes,
                                      uint32_t what)
    void leave_operation "mj_leave"(Region* region)
    void return_to_operation "mj_return"(Region* region, Entry* entry)
    void end_operation "mj_end"(Region* region, Entry* entry)
    ctypedef struct Peers "mj_peers":
        uint64_t id
        uint32_t count
        Region** regions
        void** found
    bint differs "mj_differs"(Region* region, uint32_t sequence, Peers* peers)


# The location of the pointer to this rank's region; the region moves once, when MPI has started.
cdef Region** region_place() noexcept nogil


# Where it stands whether operations are logged.
cdef bint* logs_place() noexcept nogil


# The ranks of this node that run the same sequence of operations; NULL if none are known.
cdef Peers* peers_of(uint32_t sequence) noexcept nogil
