"""Defines `Primitive`: an operation together with its rules for every transformation and the compiler.

A primitive is defined in one place with all its rules. Interpreters never name a primitive; they ask it for the rule
they need. A slot without a rule holds `Unsupported(reason)`, which raises that reason when it is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.base.state import state
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sharding_types import typed
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.core.types.varying import unify_varying


class Unsupported:
    """Fills a slot without a rule: says why there is none, and what to use instead.

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
      key: the name in files, for a primitive whose printed name another primitive has too.
      type_rule: `(*avals, **params) -> aval`, or a list of avals with `multiple_results`.
        Raises TypeError or ValueError for operands of the wrong type.
      reference: `(*numpy arrays, **params) -> array(s)`, the definition of the operation in NumPy.
      lower: a lowering record of `core.rules.lowering`.
      jvp: `(primals, tangents, **params) -> (out, tangent_out)`; tangents may be `Zero`.
      transpose: `(cotangent, *args, **params) -> [cotangent or None, ...]`, where the linear
        arguments are `UndefPrimal`.
      batch: `(axis, args, dims, **params) -> (out, dim)`; `dims` holds ints or None.
      multiple_results: whether it returns a list.
      effects: `(params) -> set of effects`, or None for a pure operation.
      dce: `(used_outputs, eqn) -> eqn`, drops unused outputs of a call.
      linearize: `(trace, primals, tangents, params)`, for primitives with inner Jaxprs.
      product: `(params) -> bool`, for matrix products and convolutions, which some policies of `checkpoint` keep:
        whether it is a matrix product without batch axes. None (the default) for all other operations.
      value_name: `(params) -> str`, the name that the operation gives its operand. Policies of `checkpoint` refer to
        it. By default the operation gives no name.
      origin: `(params) -> str`, says where a result comes from, in lists of the values that a derivative keeps. By
        default "output of" and the primitive's name.
      same_bits: `(*operands, **params) -> result(s)`, the operation in terms of others whose bits do not depend on the
        order of additions; None if its own bits do not. The option `mpijax_same_bits` replaces the operation by it.
      inner: whether only the compiler inserts it. Serialized programs never contain it.
      pretty: `(eqn, names) -> [(key, value)]`, the parameters to print.
      sharding: a `core.rules.factors.FactorRule`, how ranks compute it on shards; or a function `(Operation) -> Plan or
        None`. The default follows from `lower` for elementwise operations, reductions and products; other operations
        need whole operands.
      sharding_type: `(core.rules.sharding_types.TypedOperation) -> mesh axes of each result`, over Explicit mesh axes.
        The default follows from `sharding`. It raises ShardingTypeError if an operand must move.
      sums: `(TypedOperation) -> (unreduced, reduced)`, the mesh axes over which the results, or their cotangents, are
        partial sums (`core.rules.sum_types`). By default, operations that add or move elements accept partial sums.
      vma: `(avals, params) -> mesh axes` over which results vary inside `shard_map`, or None if the type rule says it.
        By default those of all operands together, to which the operands are then converted.
      keep_inside: `(eqn, keeps) -> ops.control_flow.kept.Twice or None`, for a loop or branch: the equation that also
        returns the values inside that `keeps(eqn)` selects, and the one that recomputes the others. By default, the
        whole equation is kept or recomputed.
      keys: a `transforms.key_reuse.Signature`, or `(eqn) -> Signature`: which PRNG keys it consumes, and which results
        are new keys or keys of an operand. By default it consumes all of its operands.
      bounds: `(*args, **params) -> (starts, limits, axes)`, for an operation whose positions may be outside its first
        operand: the positions (an array `[..., k]`, or k scalars), and the last valid position and the axis for each k.
      register: whether programs from files may name it. Those of users' classes are not.
    """

    # For code of users that walks Jaxprs: primitives keep their inner Jaxprs among their ordinary parameters.
    call_primitive = False
    # Whether the transpose rule is a user's function, which is called with zero cotangents too.
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
        product: Callable[[dict[str, Any]], bool] | None = None,
        value_name: Callable[[dict[str, Any]], str] | None = None,
        origin: Callable[[dict[str, Any]], str] | None = None,
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
        self.product = product
        self.value_name = value_name
        self.origin = origin
        self.same_bits = same_bits
        self.inner = inner
        self.impl: Callable | None = None
        if register:
            if self.key in registry:
                raise ValueError(f"primitive {self.key!r} is defined twice")
            registry[self.key] = self

    def bind(self, *args, **params):
        """Apply the primitive in the current trace."""
        if state.manual_axes:
            args = unify_varying(self, args)
        try:
            return state.trace.process_primitive(self, args, params)
        except TypeError:
            self._check_operands(args)
            raise

    def _check_operands(self, args) -> None:
        """Raise for an operand that is not an array or a number; the message says which."""
        for i, x in enumerate(args):
            try:
                aval = typeof(x)
            except TypeError as error:
                raise TypeError(
                    f"Error interpreting argument to {self.name} as a JAX value. The problematic value is of type "
                    f"{type(x)} and was passed to {self.name} at position {i}. {error}"
                ) from None
            if aval.is_ref:
                raise ValueError(
                    f"Attempting to pass a Ref {aval} to a primitive: {self.name} -- did you forget to unpack ([...]) "
                    "the ref?"
                ) from None

    def bind_with_trace(self, trace, args, avals, params):
        """Apply the primitive in `trace`, for interpreters of libraries. The types `avals` of `args` are not needed."""
        saved = state.trace
        state.trace = trace
        try:
            return self.bind(*args, **params)
        finally:
            state.trace = saved

    def get_bind_params(self, params: dict[str, Any]) -> dict[str, Any]:
        """The parameters of an equation that `bind` takes: all of them. Evaluators of Jaxprs call this."""
        return params

    def infer(self, avals, params) -> tuple[Any, frozenset]:
        """Type(s) of the results, and effects, for operand types."""
        out = self.type_rule(*avals, **params)
        effects = self.effects(params) if self.effects is not None else fx.no_effects
        if ShapedArray.any_split:
            out = typed(self, out, avals, params)
        if state.manual_axes:
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
