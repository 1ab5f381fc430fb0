"""Operations on values of types that libraries define, as primitives written by the library (`HiPrimitive`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.core import effects as fx
from mpijax.core.abstract import AbstractValue
from mpijax.core.lowering import Decompose
from mpijax.core.primitive import Primitive, Unsupported
from mpijax.core.trace import Tracer, state
from mpijax.experimental.hijax.mutable import made
from mpijax.experimental.hijax.types import HiType, to_override


class HiPrimitive(Primitive):
    """Base of primitives on values of types that libraries define.

    A subclass has the rules as methods: `abstract_eval(*types, **params) -> (type(s), effects)`, `to_lojax(*values,
    **params) -> value(s)`, which computes with the values' parts, and for derivatives `jvp(primals, tangents,
    **params)` and `transpose(cotangent(s), *operands, **params)`. Rules for `vmap` are set by
    `interpreters.batching.primitive_batchers`.

    >>> class Twice(mpijax.experimental.hijax.HiPrimitive):
    ...     def abstract_eval(self, x): return x, set()
    ...     def to_lojax(self, x): return x + x
    >>> mpijax.jit(Twice("twice").bind)(jnp.float32(2))
    Array(4., dtype=float32)
    """

    multiple_results = False
    is_expanded = True

    def __init__(self, name: str):
        super().__init__(
            name,
            type_rule=self._type_rule,
            reference=self.to_lojax,
            lower=Decompose(self.to_lojax),
            jvp=self.jvp,
            transpose=self.transpose,
            batch=Unsupported(
                f"{name} has no rule for vmap. Set one by interpreters.batching.primitive_batchers, or write the "
                "operation as a VJPHiPrimitive with a method batch."
            ),
            multiple_results=type(self).multiple_results,
            register=False,
        )
        self.impl = self.to_lojax
        AbstractValue.any_high = True

    def bind(self, *args: Any, **params: Any) -> Any:
        out = state.trace.process_primitive(self, args, params)
        return list(map(made, out)) if self.multiple_results else made(out)

    def is_high(self, *_avals: Any, **_params: Any) -> bool:
        """Whether it is written in terms of other operations for these types: always."""
        return True

    def is_effectful(self, params: dict[str, Any]) -> bool:
        """Whether it changes a value."""
        return False

    def abstract_eval(self, *avals: Any, **params: Any) -> tuple[Any, Any]:
        """The type(s) of the result(s), and a set of effects."""
        to_override(self, "abstract_eval", "a program with the operation")

    def to_lojax(self, *values: Any, **params: Any) -> Any:
        """The result(s), computed with the values that the operands consist of."""
        to_override(self, "to_lojax", "the operation")

    def jvp(self, primals: Any, tangents: Any, **params: Any) -> tuple[Any, Any]:
        to_override(self, "jvp", "a derivative")

    def transpose(self, *args: Any, **params: Any) -> Any:
        to_override(self, "transpose", "reverse mode through an operation that is linear in an operand")

    def _type_rule(self, *avals: Any, **params: Any) -> Any:
        return self.abstract_eval(*avals, **params)[0]

    def infer(self, avals: Any, params: dict[str, Any]) -> tuple[Any, frozenset]:
        out, effects = self.abstract_eval(*avals, **params)
        if any(a.has_qdd for a in avals):
            return out, frozenset((*effects, fx.changing))
        return out, frozenset((*effects, fx.sink) if effects else ())


class _Raise(HiPrimitive):
    """The value of a type that consists of the operands."""

    def abstract_eval(self, *_parts: Any, aval: Any) -> tuple[Any, Any]:
        return aval, ()

    def to_lojax(self, *parts: Any, aval: Any) -> Any:
        return aval.raise_val(*parts)


raise_p = _Raise("raise_val")


def raised(aval: Any, parts: Sequence[Any]) -> Any:
    """The value of a type that consists of `parts`, also of traced ones."""
    return raise_p.bind(*parts, aval=aval)


def traced_parts(value: Any, aval: Any) -> list[Any] | None:
    """What a value consists of, if traced values are among it: it is no constant of a program then."""
    if type(aval).lower_val is HiType.lower_val:
        return None  # programs cannot be compiled with it, but derivatives can be written down
    parts = aval.lower_val(value)
    return parts if any(isinstance(x, Tracer) for x in parts) else None
