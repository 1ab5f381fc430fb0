"""Checks the arguments of MPI operations and converts them to parameters of equations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.typeof import typeof
from mpijax.ops.ranks.ops import Handle, Identity, checked, communicator_of
from mpijax.runtime.mpi import mpi_start

__all__ = [
    "HashableMPIType", "array", "check_rows", "communicator", "counts_of", "operation", "rank_argument", "reducible",
    "root_rank", "status_of", "tag_argument", "unwrapped", "whole",
]  # fmt: skip

_default = Handle(None, "WORLD")
# Caches for MPI's predefined operations, which live as long as the process: handles by identity of the object, and
# (operation, dtype) pairs that can be reduced.
_known: dict[int, Handle] = {}
_reducible: set[tuple[Handle, Any]] = set()
_OPERATIONS = ("SUM", "PROD", "MAX", "MIN", "LAND", "LOR", "LXOR", "BAND", "BOR", "BXOR")


class HashableMPIType:
    """An mpi4py object with a hash, in which programs for mpi4jax pass communicators to `jit` as static arguments.

    mpi4py's objects can be compared but not hashed. mpijax's `jit` takes them directly; other code may need this class.
    """

    __slots__ = ("wrapped",)

    def __init__(self, obj: Any):
        self.wrapped = obj

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashableMPIType) and self.wrapped == other.wrapped

    def __hash__(self) -> int:
        return hash((HashableMPIType, type(self.wrapped)))

    def __repr__(self) -> str:
        return f"HashableMPIType({self.wrapped!r})"


def unwrapped(obj: Any) -> Any:
    """The object in a `HashableMPIType`; anything else unchanged."""
    return obj.wrapped if isinstance(obj, HashableMPIType) else obj


def array(x: Any, what: str) -> Any:
    """`x` if it is an array or a scalar; otherwise raises TypeError, which names the operation."""
    return checked(x, what)


def communicator(comm: Any, what: str) -> Handle:
    """The communicator as a parameter. Raises for other objects, intercommunicators, and freed communicators."""
    if comm is None:
        mpi_start.start()
        return _default
    MPI, comm = mpi_start.start().MPI, unwrapped(comm)
    if not isinstance(comm, MPI.Comm):
        raise TypeError(
            f"{what}: comm must be a communicator of mpi4py (MPI.COMM_WORLD, comm.Split(...)), got {comm!r}"
        )
    if comm == MPI.COMM_NULL:
        raise ValueError(
            f"{what}: the communicator is MPI.COMM_NULL. It was freed, or this rank does not belong to it (Split with "
            "color=MPI.UNDEFINED)"
        )
    if not isinstance(comm, MPI.Intracomm):
        raise TypeError(f"{what}: comm must be an intracommunicator, got {comm!r}. Use comm.Merge()")
    return Handle(comm, comm.Get_name() or type(comm).__name__.lower())


def operation(op: Any, what: str) -> Handle:
    """An mpi4py reduction, or its name, as a parameter."""
    known = _known.get(id(op))
    if known is not None and known.value is op:
        return known
    MPI, op = mpi_start.start().MPI, unwrapped(op)
    if isinstance(op, str):
        if op.upper() not in _OPERATIONS:
            raise ValueError(f"{what}: unknown reduction {op!r}. The reductions are {', '.join(_OPERATIONS)}")
        op = getattr(MPI, op.upper())
    if not isinstance(op, MPI.Op):
        raise TypeError(f"{what}: op must be an operation of mpi4py such as MPI.SUM, got {op!r}")
    name = next((n for n in _OPERATIONS if getattr(MPI, n) == op), None)
    if name is None and op in (MPI.OP_NULL, MPI.MAXLOC, MPI.MINLOC, MPI.REPLACE, MPI.NO_OP):
        raise ValueError(f"{what}: arrays cannot be reduced with {op!r}. The reductions are {', '.join(_OPERATIONS)}")
    handle = Handle(op, name or "user-defined")
    if name is not None and op is getattr(MPI, name):
        _known[id(op)] = handle
    return handle


def reducible(x: Any, op: Handle, what: str) -> None:
    """Raise TypeError if MPI does not reduce arrays of this dtype by `op`."""
    dtype = typeof(x).dtype
    if (op, dtype) in _reducible:
        return
    if dtypes.issubdtype(dtype, dtypes.prng_key):
        raise TypeError(f"{what}: PRNG keys, {typeof(x)}, cannot be reduced. bcast, allgather and send support them")
    try:
        mpi_start.start().ext.reduction(op.value, dtype)
    except TypeError as error:
        raise TypeError(f"{what}: {error}") from None
    if op is _known.get(id(op.value)):
        _reducible.add((op, dtype))


def whole(value: Any, what: str, name: str) -> int:
    """An int that is known while tracing; raises TypeError for anything else."""
    if isinstance(value, Tracer):
        raise TypeError(
            f"{what}: {name} must be an int that is known while tracing, but an abstract tracer was passed: {value}. "
            "Mark the argument as static (static_argnames of jit), or compute it outside of the traced function."
        )
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TypeError(f"{what}: {name} must be an int; expected: integer, got: {type(value)} {value!r}")
    return int(value)


def root_rank(root: Any, comm: Handle, what: str) -> int:
    """A rank of the communicator; raises ValueError for any other."""
    root = whole(root, what, "root")
    size = communicator_of(comm).Get_size()
    if not 0 <= root < size:
        raise ValueError(f"{what}: root must be a rank of the communicator, 0 to {size - 1}, got {root}")
    return root


def rank_argument(rank: Any, comm: Handle, what: str, name: str, *, may_be_any: bool = False) -> int:
    """The peer of a message: a rank, MPI.PROC_NULL, or for receivers MPI.ANY_SOURCE."""
    MPI = mpi_start.start().MPI
    rank = whole(rank, what, name)
    size = communicator_of(comm).Get_size()
    if 0 <= rank < size or rank == MPI.PROC_NULL or (may_be_any and rank == MPI.ANY_SOURCE):
        return rank
    others = "MPI.PROC_NULL or MPI.ANY_SOURCE" if may_be_any else "or MPI.PROC_NULL"
    raise ValueError(f"{what}: {name} must be a rank of the communicator, 0 to {size - 1}, {others}, got {rank}")


def tag_argument(tag: Any, what: str, name: str, *, may_be_any: bool = False) -> int:
    """A tag of a message; for receivers also MPI.ANY_TAG, or None for it."""
    MPI = mpi_start.start().MPI
    if tag is None and may_be_any:
        return MPI.ANY_TAG
    tag = whole(tag, what, name)
    most = mpi_start.start().ext.last_tag()
    if 0 <= tag <= most or (may_be_any and tag == MPI.ANY_TAG):
        return tag
    raise ValueError(f"{what}: {name} must be from 0 to {most}{' or MPI.ANY_TAG' * may_be_any}, got {tag}")


def status_of(status: Any, what: str) -> Identity | None:
    """mpi4py's status object, which each run fills in."""
    status = unwrapped(status)
    if status is None:
        return None
    if not isinstance(status, mpi_start.start().MPI.Status):
        raise TypeError(f"{what}: status must be a status object of mpi4py (MPI.Status()), got {status!r}")
    return Identity(status, "status")


def counts_of(counts: Sequence[int], comm: Handle, what: str, name: str = "counts") -> tuple[int, ...]:
    """The number of rows for or from each rank, which must be known while tracing."""
    size = communicator_of(comm).Get_size()
    if isinstance(counts, Tracer):
        raise TypeError(
            f"{what}: {name} must be known while tracing, but an abstract tracer was passed: {counts}. Mark the "
            "argument as static. Or pass traced counts and the number of rows of the result (capacity=...)."
        )
    if not isinstance(counts, (tuple, list, np.ndarray)) or len(counts) != size:
        raise ValueError(f"{what}: {name} must have one entry for each of the {size} ranks, got {counts!r}")
    counts = tuple(whole(c, what, f"each of {name}") for c in counts)
    if min(counts) < 0:
        raise ValueError(f"{what}: {name} must not be negative, got {counts}")
    return counts


def check_rows(x: Any, rows: int, what: str, expected: str) -> None:
    """Raise ValueError unless the first axis of `x` has `rows` elements."""
    shape = typeof(x).shape
    if not shape or shape[0] != rows:
        raise ValueError(
            f"{what.capitalize()} input must have shape (nproc, ...): the first axis must have {rows} elements, "
            f"{expected}; got shape {shape}"
        )
