"""Primitives: the operations every transformation and the compiler know by their rules.

A primitive is defined in one place with all its rules. Interpreters never name a
primitive; they ask it for the rule they need. A slot that has no rule says
`Unsupported(reason)`, and using it raises that reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core import effects as fx
from mpijax.core import trace as tr
from mpijax.core.avals import ShapedArray
from mpijax.core.registry import registry
from mpijax.core.sharding.types import typed


class Unsupported:
    """In place of a rule: why there is none, and what to use instead.

    >>> mpijax.extend.core.Unsupported("integers have no derivative").reason
    'integers have no derivative'
    """

    def __init__(self, reason: str):
        self.reason = reason

    def __call__(self, *_args, **_params):
        raise NotImplementedError(self.reason)


class Primitive:
    """An operation and its rules.

    Args:
      name: as printed in Jaxprs.
      key: the name under which files refer to it, where another primitive prints the same name.
      type_rule: `(*avals, **params) -> aval`, or a list of avals with `multiple_results`.
        Raises TypeError or ValueError for operands that do not fit.
      reference: `(*numpy arrays, **params) -> array(s)`, what the operation means, in NumPy.
      lower: a lowering record of `core.lowering`.
      jvp: `(primals, tangents, **params) -> (out, tangent_out)`; tangents may be `Zero`.
      transpose: `(cotangent, *args, **params) -> [cotangent or None, ...]`, where the linear
        arguments are `UndefPrimal`.
      batch: `(axis, args, dims, **params) -> (out, dim)`; `dims` holds ints or None.
      multiple_results: whether it returns a list.
      effects: `(params) -> set of effects`, or None for a pure operation.
      dce: `(used_outputs, eqn) -> eqn`, to drop unused outputs of a call.
      linearize: `(trace, primals, tangents, params)`, for primitives with inner Jaxprs.
      same_bits: `(*operands, **params) -> result(s)` in terms of operations whose bits depend on no order of addition,
        or None where those of this one do not either. It takes its place under the option `mpijax_same_bits`.
      inner: whether only the compiler applies it, in place of another: no program in a file has it.
      pretty: `(eqn, names) -> [(key, value)]`, the parameters to print.
      sharding: `(core.sharding.rules.Operation) -> Plan or None`, how ranks do it on parts of arrays. By default what
        follows from `lower` for elementwise operations, reductions and products; others need whole operands.
      sharding_type: `(core.sharding.types.TypedOperation) -> mesh axes of each result`, over Explicit mesh axes. By
        default as `sharding` has it where no operand moves; ShardingTypeError for others.
      sums: `(TypedOperation) -> (unreduced, reduced)`, the mesh axes over which results wait for a sum, or their
        cotangents do (`core.sharding.sum_types`). By default operations that add or move elements may be done before.
      keys: a `transforms.key_reuse.Signature`, or `(eqn) -> Signature`: which PRNG keys it uses up, and which results
        are new keys or those of an operand. By default it uses up all of its operands.
      bounds: `(*args, **params) -> (starts, limits, axes)`, for an operation at positions that may lie outside of its
        first operand: the positions (an array `[..., k]`, or k scalars), the last one inside for each k, and its axis.
    """

    # For those who walk Jaxprs: primitives with inner Jaxprs keep them among their own parameters.
    call_primitive = False
    # Whether the transpose rule is a user's function, which is called with zeros too.
    has_users_transpose = False
    # Whether programs are compiled from the operations that a library says it consists of.
    is_expanded = False

    def __init__(
        self,
        name: str,
        *,
        key: str | None = None,
        type_rule: Callable,
        reference: Callable,
        lower: Any,
        jvp: Callable,
        transpose: Callable,
        batch: Callable,
        multiple_results: bool = False,
        effects: Callable | None = None,
        dce: Callable | None = None,
        linearize: Callable | None = None,
        pretty: Callable | None = None,
        vma: Callable | None = None,
        keep_inside: Callable | None = None,
        keys: Any = None,
        bounds: Callable | None = None,
        sharding: Callable | None = None,
        sharding_type: Callable | None = None,
        sums: Callable | None = None,
        same_bits: Callable | None = None,
        inner: bool = False,
        register: bool = True,
    ):
        self.name = name
        self.key = key or name
        self.type_rule = type_rule
        self.reference = reference
        self.lower = lower
        self.jvp = jvp
        self.transpose = transpose
        self.batch = batch
        self.multiple_results = multiple_results
        self.effects = effects
        self.dce = dce
        self.linearize = linearize
        self.pretty = pretty
        self.vma = vma
        self.keep_inside = keep_inside
        self.keys = keys
        self.bounds = bounds
        self.sharding = sharding
        self.sharding_type = sharding_type
        self.sums = sums
        self.same_bits = same_bits
        self.inner = inner
        self.impl: Callable | None = None
        if register:
            if self.key in registry:
                raise ValueError(f"primitive {self.key!r} is defined twice")
            registry[self.key] = self

    def bind(self, *args, **params):
        """Apply the primitive in the current trace."""
        state = tr.state
        if state.manual_axes:
            args = tr.unify_varying(self, args)
        return state.trace.process_primitive(self, args, params)

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """What `bind` takes of the parameters of an equation: all of them. Evaluators of Jaxprs ask."""
        return params

    def infer(self, avals, params) -> tuple[Any, frozenset]:
        """Output type(s) and effects for operand types."""
        out = self.type_rule(*avals, **params)
        effects = self.effects(params) if self.effects is not None else fx.no_effects
        if ShapedArray.any_split:
            out = typed(self, out, avals, params)
        if tr.state.manual_axes:
            out = self._with_varying_axes(out, avals, params)
        return out, effects

    def _with_varying_axes(self, out, avals, params):
        if self.vma is not None:
            axes = self.vma(avals, params)
        else:
            axes = frozenset().union(*(a.vma for a in avals)) if avals else frozenset()
        if axes is None:
            return out
        if self.multiple_results:
            return [a.update(vma=axes) for a in out]
        return out.update(vma=axes)

    def __repr__(self) -> str:
        return self.name
