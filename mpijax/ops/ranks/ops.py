"""Shared parts of operations of each rank on its own values, which are the primitives behind `mpijax.mpi`.

Ranks may run different programs. Each program alone decides what it differentiates or batches. All ranks must still
make the same exchanges. So a rank always differentiates, transposes and batches such an operation inside a
transformation: with zeros if it has no tangent or cotangent here, and repeated if its value is not batched here
(`core.types.effects.ExchangeEffect`).

Batch axes come first in the data sent (after the axis over ranks, if there is one), so that both sides of an exchange
use the same layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.records.plain import NotSerializable
from mpijax.core.rules.lowering import Communication, Decompose, Exchange
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.trace import current_trace
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.transforms.zeros import Zero, zeros

EXCHANGES = frozenset({fx.exchange})
_PREDEFINED = "SUM PROD MAX MIN LAND LOR LXOR BAND BOR BXOR COMM_WORLD COMM_SELF".split()


class Handle:
    """An mpi4py object as a parameter of an equation. Hashed by its kind, printed by its name.

    `value` None means the default communicator, which exists once MPI has started.
    """

    __slots__ = ("value", "name", "_hash")

    def __init__(self, value: Any, name: str):
        self.value = value
        self.name = name
        self._hash = hash((Handle, type(value)))

    def __eq__(self, other) -> bool:
        return isinstance(other, Handle) and (self.value is other.value or self.value == other.value)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return self.name

    def _plain_(self) -> tuple[str, str]:
        """MPI's name of the object, and the printed name. Only predefined objects are the same in every process."""
        if self.value is None:
            return "", self.name
        from mpi4py import MPI  # already started: `value` is one of its objects

        for name in _PREDEFINED:
            if getattr(MPI, name) == self.value:
                return name, self.name
        raise NotSerializable(
            f"The program uses {self.name!r}, an MPI object that this process made. It cannot be serialised. Use the "
            "default communicator (comm=None) and predefined operations, or lax.psum over a mesh."
        )

    @staticmethod
    def _from_plain_(predefined: str, name: str) -> Handle:
        if not predefined:
            return Handle(None, name)
        if predefined not in _PREDEFINED:
            raise ValueError(f"{predefined!r} is not a predefined object of MPI")
        return Handle(getattr(provided.start().MPI, predefined), name)


class Identity(Handle):
    """A handle that equals only handles of the same object, for objects whose contents may change."""

    __slots__ = ()

    def __eq__(self, other) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    __hash__ = Handle.__hash__


def communicator_of(comm: Handle) -> Any:
    """mpi4py's communicator. Starts MPI."""
    return provided.world() if comm.value is None else comm.value


def rank_in(comm: Handle) -> int:
    return communicator_of(comm).Get_rank()


def size_of(comm: Handle) -> int:
    return communicator_of(comm).Get_size()


def nobody() -> int:
    """The rank MPI.PROC_NULL; exchanges with it do nothing."""
    return provided.start().MPI.PROC_NULL


def checked(x: Any, what: str) -> Any:
    """`x` if it is an array; else raises TypeError with the name of the operation."""
    try:
        typeof(x)
    except TypeError as error:
        reason = f". {error}" if hasattr(x, "dtype") else ""
        if isinstance(x, (list, tuple, dict)):
            reason = f". Convert it with jnp.asarray, or use jax.tree.map to call {what} for each array of a pytree"
        raise TypeError(f"{what} takes an array or a scalar, got {type(x).__name__}: {x!r}{reason}") from None
    return x


# ---------------------------------------------------------------- zero tangents


def _zero_tangent_batch(axis, args, dims, *, shape, dtype):
    return zero_tangent_p.bind(shape=shape, dtype=dtype), None


zero_tangent_p = Primitive(
    "zero_tangent",
    type_rule=lambda *, shape, dtype: ShapedArray(shape, dtype),
    reference=lambda *, shape, dtype: np.zeros(shape, dtype),
    lower=Decompose(lambda *, shape, dtype: zeros(ShapedArray(shape, dtype))),
    jvp=lambda primals, tangents, *, shape, dtype: (zeros(ShapedArray(shape, dtype)), Zero(ShapedArray(shape, dtype))),
    transpose=lambda ct, *, shape, dtype: [],
    batch=_zero_tangent_batch,
    effects=lambda params: frozenset({fx.linear}),
)


def has_tangent(x: Any) -> bool:
    """Whether values of this type have derivatives."""
    return dtypes.issubdtype(typeof(x).dtype, np.inexact)


def linear_zero(x: Any) -> Any:
    """A zero tangent of `x` that counts as linear in the program that records it."""
    return zero_tangent_p.bind(shape=typeof(x).shape, dtype=typeof(x).dtype)


def given(ct: Any) -> Any:
    """A cotangent as an array."""
    return zeros(ct.aval) if type(ct) is Zero else ct


def aval_of(x: Any) -> ShapedArray:
    """The type of an argument of a transpose rule."""
    return x.aval if hasattr(x, "aval") else typeof(x)


# ---------------------------------------------------------------- the record of an exchange


def exchange(
    name: str,
    kind: Exchange,
    *,
    counted: bool = False,
    type_rule: Callable,
    reference: Callable,
    derive: Callable,
    transpose: Callable,
    batch: Callable,
    multiple_results: bool = False,
    effects: Callable = lambda params: EXCHANGES,
) -> Primitive:
    """An operation that all ranks differentiate, transpose and batch.

    Args:
      kind: the exchange. counted: operands include counts.
      derive: `(primals, tangents, **params) -> (out, tangent_out)`. Operands of dtypes with tangents have
        arrays as tangents, others `Zero`.
      transpose: `(ct, *args, **params) -> [ct, ...]`, with arrays as cotangents.
      batch: `(axis, args, dims, **params) -> (out, dim)`; any or all of `dims` may be None.
    """

    def jvp(primals, tangents, **params):
        tangents = [given(t) if has_tangent(x) else t for x, t in zip(primals, tangents, strict=True)]
        return derive(primals, tangents, **params)

    def linearize(trace, primals, tangents, params):
        with current_trace(trace.rule_trace.builder):
            tangents = [
                linear_zero(x) if type(t) is Zero and has_tangent(x) else t
                for x, t in zip(primals, tangents, strict=True)
            ]
        return derive(primals, tangents, **params)

    def back(ct, *args, **params):
        return transpose([given(c) for c in ct] if multiple_results else given(ct), *args, **params)

    return Primitive(
        name,
        type_rule=type_rule,
        reference=reference,
        lower=Communication(kind, counted=counted, on_communicator=True),
        jvp=jvp,
        linearize=linearize,
        transpose=back,
        batch=batch,
        multiple_results=multiple_results,
        effects=effects,
    )


def linear(name: str) -> Callable:
    """The derivative of a linear operation of one operand: the same exchange of the tangent."""

    def derive(primals, tangents, **params):
        [x], [t] = primals, tangents
        out = registry[name].bind(x, **params)
        return out, registry[name].bind(t, **params) if has_tangent(x) else Zero.of_primal(out)

    return derive


# ---------------------------------------------------------------- barrier

mpi_barrier_p = Primitive(
    "mpi_barrier",
    type_rule=lambda **_: [],
    reference=lambda **_: [],
    lower=Communication(Exchange.BARRIER, on_communicator=True),
    jvp=Unsupported("barrier has no arguments"),
    transpose=Unsupported("barrier has no arguments"),
    batch=lambda axis, args, dims, **params: ([], []),
    multiple_results=True,
    effects=lambda params: frozenset({fx.communication}),
)
