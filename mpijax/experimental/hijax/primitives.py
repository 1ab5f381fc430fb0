"""Operations on values of types that libraries define, as primitives written by the library (`HiPrimitive`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpijax.core.base.state import state
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.tracing.checks import agree
from mpijax.core.types import effects as fx
from mpijax.core.types.abstract import to_override
from mpijax.core.types.typeof import typeof
from mpijax.experimental.hijax.mutable import made
from mpijax.experimental.hijax.operators import follow_types
from mpijax.transforms.zeros import instantiate


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
            reference=self._run,
            lower=Decompose(self._run),
            jvp=self._rule(name, "jvp", "jvp", "interpreters.ad.primitive_jvps"),
            transpose=self._rule(name, "transpose", "reverse mode", "interpreters.ad.primitive_transposes"),
            batch=self._rule(name, "batch", "vmap", "interpreters.batching.primitive_batchers"),
            multiple_results=type(self).multiple_results,
            register=False,
        )
        self.impl = self._run
        follow_types()

    def _rule(self, name: str, method: str, purpose: str, table: str) -> Any:
        """A rule of the subclass, or that there is none yet: it can be set, in the table or as an attribute."""
        rule = getattr(self, method, None)
        return rule or Unsupported(f"{name} has no rule for {purpose}. Define the method {method}, or set {table}")

    def _run(self, *args: Any, **params: Any) -> Any:
        return self.to_lojax(*args, **params)

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

    def def_impl(self, impl: Callable) -> Callable:
        """Say how it is computed outside of programs, in place of `to_lojax`."""
        self.impl = impl
        return impl

    def def_abstract_eval(self, rule: Callable) -> Callable:
        """Say of which type results are, in place of a method: `rule(*types, **params) -> type(s)`."""
        self.abstract_eval = lambda *avals, **params: (rule(*avals, **params), ())  # type: ignore[method-assign]
        return rule

    def def_effectful_abstract_eval(self, rule: Callable) -> Callable:
        """The same, for a rule that returns the type(s) and a set of effects."""
        self.abstract_eval = rule  # type: ignore[method-assign]
        return rule

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

    def jvp(self, primals: Any, tangents: Any, *, aval: Any) -> tuple[Any, Any]:
        tangents = list(map(instantiate, tangents))
        of_tangent = aval.to_tangent_aval()
        _check_parts(of_tangent, [typeof(t) for t in tangents])
        return self.bind(*primals, aval=aval), self.bind(*tangents, aval=of_tangent)

    def transpose(self, ct: Any, *_parts: Any, aval: Any) -> Any:
        return parts_of(instantiate(ct))


class _Lower(HiPrimitive):
    """The values that a value consists of."""

    multiple_results = True

    def abstract_eval(self, aval: Any) -> tuple[Any, Any]:
        return aval.lo_ty(), ()

    def to_lojax(self, value: Any) -> Any:
        return typeof(value).lower_val(value)

    def jvp(self, primals: Any, tangents: Any) -> tuple[Any, Any]:
        _check_parts(typeof(tangents[0]), [a.to_tangent_aval() for a in typeof(primals[0]).lo_ty()])
        return self.bind(*primals), self.bind(*tangents)

    def transpose(self, cts: Any, value: Any) -> Any:
        return [raised(value.aval.to_cotangent_aval(), list(map(instantiate, cts)))]


def _check_parts(aval: Any, parts: Sequence[Any]) -> None:
    """Raise NotImplementedError unless a type of tangents consists of the types of tangents of its parts."""
    if not (aval.is_high and agree(aval.lo_ty(), parts)):
        raise NotImplementedError(
            "The derivative with respect to the arrays in a value needs tangents that contain "
            f"{[a.str_short(True) for a in parts]}, but they are of type {aval.str_short(True)}. Make and unpack the "
            "value with operations that have a derivative."
        )


raise_p, lower_p = _Raise("raise_val"), _Lower("lower_val")


def raised(aval: Any, parts: Sequence[Any]) -> Any:
    """The value of a type that consists of `parts`, also of traced ones."""
    return raise_p.bind(*parts, aval=aval)


def parts_of(value: Any) -> list[Any]:
    """The values that a value consists of, also a traced one."""
    return lower_p.bind(value)
