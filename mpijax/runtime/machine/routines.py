"""The routines of MPI that programs call, and that reports name."""

from __future__ import annotations

from enum import StrEnum


class Routine(StrEnum):
    """A routine of MPI, with its name. ISEND, IRECV and SENDRECV_REPLACE are only those of other libraries."""

    ALLREDUCE = "allreduce"
    REDUCE = "reduce"
    SCAN = "scan"
    EXSCAN = "exscan"
    REDUCE_SCATTER = "reduce_scatter"
    REDUCE_SCATTERV = "reduce_scatterv"
    BCAST = "bcast"
    ALLGATHER = "allgather"
    ALLGATHERV = "allgatherv"
    GATHER = "gather"
    GATHERV = "gatherv"
    SCATTER = "scatter"
    SCATTERV = "scatterv"
    ALLTOALL = "alltoall"
    ALLTOALLV = "alltoallv"
    BARRIER = "barrier"
    SEND = "send"
    RECV = "recv"
    SENDRECV = "sendrecv"
    SENDRECV_REPLACE = "sendrecv_replace"
    ISEND = "isend"
    IRECV = "irecv"


# Routines that need not involve all ranks; they are counted separately from collectives.
MESSAGES = frozenset(
    (Routine.SEND, Routine.RECV, Routine.SENDRECV, Routine.SENDRECV_REPLACE, Routine.ISEND, Routine.IRECV)
)
# Routines in which ranks have blocks of different sizes.
VARYING = frozenset(
    (Routine.GATHERV, Routine.SCATTERV, Routine.ALLGATHERV, Routine.ALLTOALLV, Routine.REDUCE_SCATTERV)
)
