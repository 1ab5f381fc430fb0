"""MPI operations of each rank on its own values: the primitives behind `mpijax.mpi`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import effects as fx
from mpijax.core.lowering import Communication
from mpijax.core.plain import NotSerializable
from mpijax.core.primitive import Primitive, Unsupported, registry
from mpijax.core.trace import typeof
from mpijax.transforms.zeros import Zero

_COMMUNICATES = frozenset({fx.communication})


_PREDEFINED = "SUM PROD MAX MIN LAND LOR LXOR BAND BOR BXOR COMM_WORLD COMM_SELF".split()


class Handle:
    """An mpi4py object as a parameter of an equation: hashed by identity, printed by its name.

    `value` None stands for the default communicator, which exists once MPI has started.
    """

    __slots__ = ("value", "name")

    def __init__(self, value: Any, name: str):
        self.value = value
        self.name = name

    def __eq__(self, other) -> bool:
        return isinstance(other, Handle) and (self.value is other.value or self.value == other.value)

    def __hash__(self) -> int:
        return hash(("Handle", self.name))

    def __repr__(self) -> str:
        return self.name

    def _plain_(self) -> tuple[str, str]:
        """MPI's name for the object and the name shown; only what MPI defines is the same in every process."""
        if self.value is None:
            return "", self.name
        from mpi4py import MPI  # runs already: this is one of its objects

        for name in _PREDEFINED:
            if getattr(MPI, name) == self.value:
                return name, self.name
        raise NotSerializable(
            f"the program uses {self.name!r}, a communicator or an operation made by this process, which cannot be "
            "serialised: use the default communicator (comm=None) and MPI's operations, or lax.psum over a mesh"
        )

    @staticmethod
    def _from_plain_(predefined: str, name: str) -> Handle:
        if not predefined:
            return Handle(None, name)
        if predefined not in _PREDEFINED:
            raise ValueError(f"MPI has no object {predefined!r} that is the same in every process")
        from mpijax.runtime import mpi_start  # lies above

        return Handle(getattr(mpi_start.start().MPI, predefined), name)


def _effects(_params):
    return _COMMUNICATES


def _one_jvp(name: str):
    def jvp(primals, tangents, **params):
        primitive = registry[name]
        out = primitive.bind(primals[0], **params)
        t = tangents[0]
        return out, Zero.of_primal(out) if type(t) is Zero else primitive.bind(t, **params)

    return jvp


def _one_batch(name: str):
    def batch(axis, args, dims, **params):
        return registry[name].bind(args[0], **params), dims[0]

    return batch


def _single_process(name: str):
    def reference(x, **_params):
        return np.asarray(x)

    reference.__name__ = name
    return reference


# ---------------------------------------------------------------- allreduce


def _allreduce_jvp(primals, tangents, *, op, comm, transposed):
    [x], [t] = primals, tangents
    out = mpi_allreduce_p.bind(x, op=op, comm=comm, transposed=transposed)
    if type(t) is Zero:
        return out, Zero.of_primal(out)
    if op.name != "SUM":
        raise NotImplementedError(
            f"allreduce with op={op.name} has no derivative: only SUM does. For the gradient of a maximum over ranks "
            f"use "
            "mpijax.lax.pmax under shard_map."
        )
    return out, mpi_allreduce_p.bind(t, op=op, comm=comm, transposed=transposed)


def _allreduce_transpose(ct, x, *, op, comm, transposed):
    if type(ct) is Zero:
        return [Zero(x.aval)]
    if op.name != "SUM":
        raise NotImplementedError(f"the linear transpose of allreduce is defined for op=SUM, not for {op.name}.")
    return [mpi_allreduce_p.bind(ct, op=op, comm=comm, transposed=not transposed)]


mpi_allreduce_p = Primitive(
    "mpi_allreduce",
    type_rule=lambda x, **_: x,
    reference=_single_process("allreduce"),
    lower=Communication("mpi_allreduce"),
    jvp=_allreduce_jvp,
    transpose=_allreduce_transpose,
    batch=_one_batch("mpi_allreduce"),
    effects=lambda params: fx.no_effects if params["transposed"] else _COMMUNICATES,
)

# ---------------------------------------------------------------- bcast, reduce


def _bcast_transpose(ct, x, *, root, comm):
    """What was sent to everybody comes back from everybody, summed at the root."""
    return [ct if type(ct) is Zero else mpi_reduce_p.bind(ct, root=root, comm=comm)]


def _reduce_transpose(ct, x, *, root, comm):
    return [ct if type(ct) is Zero else mpi_bcast_p.bind(ct, root=root, comm=comm)]


mpi_bcast_p = Primitive(
    "mpi_bcast",
    type_rule=lambda x, **_: x,
    reference=_single_process("bcast"),
    lower=Communication("mpi_bcast"),
    jvp=_one_jvp("mpi_bcast"),
    transpose=_bcast_transpose,
    batch=_one_batch("mpi_bcast"),
    effects=_effects,
)

mpi_reduce_p = Primitive(
    "mpi_reduce",
    type_rule=lambda x, **_: x,
    reference=_single_process("reduce"),
    lower=Communication("mpi_reduce"),
    jvp=_one_jvp("mpi_reduce"),
    transpose=_reduce_transpose,
    batch=_one_batch("mpi_reduce"),
    effects=_effects,
)

# ---------------------------------------------------------------- barrier

mpi_barrier_p = Primitive(
    "mpi_barrier",
    type_rule=lambda **_: [],
    reference=lambda **_: [],
    lower=Communication("mpi_barrier"),
    jvp=Unsupported("barrier has no arguments"),
    transpose=Unsupported("barrier has no arguments"),
    batch=lambda axis, args, dims, **params: ([], []),
    multiple_results=True,
    effects=_effects,
)


def checked(x: Any, what: str) -> Any:
    """`x` if it is an array; raises TypeError naming the operation otherwise."""
    try:
        typeof(x)
    except TypeError:
        raise TypeError(f"{what} takes an array or a scalar, got {type(x).__name__}: {x!r}") from None
    return x
