"""Computes how results of operations are split over Explicit mesh axes. JAX calls this part of the type its sharding.

It follows from a primitive's sharding rule (`core.rules.sharding_rules`): if no operand must move, results have the
split that the rule gives. If JAX rejects more, or types a result that must move, the primitive has a `sharding_type`:
one of the functions here and in `shape_types`. They raise ShardingTypeError if the split of a result does not follow
from the operands, unless the caller passes it (`out_sharding`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpijax.core.base import provided
from mpijax.core.base.errors import ShardingTypeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.state import state
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.lowering import (
    Communication,
    ControlFlow,
    Cumulative,
    Decompose,
    Elementwise,
    InlineJaxpr,
    Partitioned,
    Reshard,
)
from mpijax.core.rules.sum_types import check_asked_sums, sums_of
from mpijax.core.sharding import split as splits
from mpijax.core.sharding.context import get_abstract_mesh, of_sharding
from mpijax.core.sharding.cuts import Cuts, even_cut
from mpijax.core.sharding.split import Axes, Split, entries, entry
from mpijax.core.types.avals import ShapedArray

# Operations whose type rules already give the split of results.
_TYPED = (InlineJaxpr, ControlFlow, Partitioned, Reshard)


@dataclass(frozen=True)
class TypedOperation:
    """The operation that type rules receive.

    types: of the operands. results: of the results, by the type rule. mesh: the mesh of all split operands.
    """

    primitive: Any
    types: Sequence[ShapedArray]
    results: Sequence[ShapedArray]
    params: Mapping[str, Any]
    mesh: Any

    @property
    def name(self) -> str:
        return self.primitive.name

    @property
    def asked(self) -> Any:
        """The sharding that the caller requests for the result, if any."""
        return self.params.get("out_sharding") or self.params.get("sharding")

    def axes(self, i: int = 0) -> Axes:
        """The mesh axes that split operand i, one entry an array axis."""
        return axes_of(self.types[i])

    def all_axes(self) -> list[Axes]:
        return [self.axes(i) for i in range(len(self.types))]


TypeRule = Callable[[TypedOperation], Sequence[Axes]]


def axes_of(aval: ShapedArray) -> Axes:
    """The mesh axes that split a value, one entry an array axis."""
    return ((),) * aval.ndim if aval.split is None else aval.split.axes


def typed(primitive, out: Any, avals: Sequence[ShapedArray], params: Mapping[str, Any]) -> Any:
    """Adds the split to the type(s) of results that the type rule gives.

    Raises ShardingTypeError if the split does not follow from the operands, ValueError for operands over a mesh that is
    not the mesh in context.
    """
    if isinstance(primitive.lower, _TYPED) or primitive.sharding_type is by_type_rule:
        return out
    asked = params.get("out_sharding") or params.get("sharding")
    if asked is None and all(a.split is None for a in avals):
        return out
    results = out if primitive.multiple_results else [out]
    mesh = _mesh_of(primitive.name, avals)
    operation = TypedOperation(primitive, avals, results, params, mesh)
    if asked is not None:
        check_asked_sums(operation)
        found = [of_sharding(asked, a.ndim) for a in results]
    else:
        found = _followed(operation)
    made = [aval.update(split=split) for aval, split in zip(results, found, strict=True)]
    return made if primitive.multiple_results else made[0]


def _followed(s: TypedOperation) -> list[Split | None]:
    """The split of each result that follows from the operands."""
    lower = s.primitive.lower
    if isinstance(lower, Decompose) and s.primitive.sharding_type is None and rules.rule_of(s.primitive) is None:
        return [a.split for a in _by_parts(s, lower.fun)]
    unreduced, reduced = sums_of(s)
    return [Split(s.mesh, axes, unreduced, reduced) for axes in _axes_of_results(s)]


def _axes_of_results(s: TypedOperation) -> Sequence[Axes]:
    try:
        found = _rule_of(s.primitive)(s)
        for axes, aval in zip(found, s.results, strict=True):
            _check_once(s, axes, aval)
    except ShardingTypeError:
        if not state.split_freely:
            raise
        return whole(s)
    return found


def _check_once(s: TypedOperation, axes: Axes, aval: ShapedArray) -> None:
    """Raise ShardingTypeError if a mesh axis splits a result twice."""
    named = [a for names in axes for a in names]
    if len(set(named)) < len(named):
        kind = aval.str_short(True).partition("[")[0]
        raise ShardingTypeError(
            f"{s.name} operation with inputs: {_given(s)} produces an illegally sharded result: "
            f"{kind}[{splits.dimensions(aval.shape, axes)}], which is split twice over one mesh axis. Use "
            "jax.sharding.reshard on one of the inputs, or pass out_sharding."
        )


def _given(s: TypedOperation) -> str:
    return ", ".join(a.str_short(True) for a in s.types)


def _mesh_of(name: str, avals: Sequence[ShapedArray]) -> Any:
    """The mesh that operands are split over. Raises ValueError if it is not the mesh in context."""
    meshes = {a.split.mesh for a in avals if a.split is not None}
    if len(meshes) > 1:
        one, other = sorted(map(str, meshes))[:2]
        raise ValueError(f"Mesh for all inputs should be equal. Got one mesh: {one} and another mesh: {other}")

    context = get_abstract_mesh()
    for mesh in meshes:
        if not context.empty and context != mesh:
            split = next(a for a in avals if a.split is not None)
            raise ValueError(
                f"For primitive {name}, context mesh {context} should match the aval mesh {mesh} for shape "
                f"{split.str_short(True)}. A value from outside of `auto_axes`, `explicit_axes` or `use_abstract_mesh` "
                "must be passed as an argument or resharded with jax.sharding.reshard."
            )
        return mesh
    return context


# ---------------------------------------------------------------- from the sharding rule


def _rule_of(primitive: Any) -> TypeRule:
    """A primitive's own rule, or the rule that follows from its sharding rule and its lowering."""
    if primitive.sharding_type is not None:
        return primitive.sharding_type
    lower = primitive.lower
    if isinstance(lower, Elementwise):
        return elementwise
    if isinstance(lower, Cumulative):
        return whole_along(lambda s: s.params["axis"], "Input should be unsharded over the axis being reduced")
    if isinstance(lower, Communication):
        return _exchange
    return placed


def placed(s: TypedOperation) -> Sequence[Axes]:
    """Results have the split of the primitive's sharding rule, if the rule moves no operand."""
    rule = rules.rule_of(s.primitive)
    plan = None if rule is None else rule(_as_sharded(s))
    if plan is None:
        raise ShardingTypeError(
            f"sharding rule for {s.name} is not implemented, for operands of types {_given(s)}. Use "
            "`jax.sharding.auto_axes(fun, out_sharding=...)`, which lets the compiler choose shardings inside of the "
            "function."
        )
    if plan.whole is not None:
        return [axes_of(a) for a in _by_parts(s, plan.whole)]
    if plan.program is not None or any(map(_moves, s.all_axes(), plan.operands)):
        raise ShardingTypeError(
            f"{s.name} with inputs: {_given(s)} needs to move data between devices first, and it is ambiguous how the "
            "result should be sharded. Use jax.sharding.reshard on the inputs, or `jax.sharding.auto_axes(fun, "
            "out_sharding=...)`."
        )
    return [tuple(() if c is None else c.axes for c in cuts) for cuts in plan.results]


def _as_sharded(s: TypedOperation) -> rules.Operation:
    """The operation as sharding rules receive it, for the first device."""
    sizes = dict(s.mesh.shape)
    cuts = [
        tuple(even_cut(n, names, splits.parts(s.mesh, names)) if names else None for n, names in zip(a.shape, axes))
        for a, axes in zip(s.types, s.all_axes(), strict=True)
    ]
    shapes, results = ([a.shape for a in avals] for avals in (s.types, s.results))
    return rules.Operation(s.params, shapes, results, cuts, sizes, dict.fromkeys(sizes, 0), (None,) * len(cuts))


def _moves(have: Axes, want: Cuts) -> bool:
    """Whether an operand must give up a split that it has."""
    return any(names and (cut is None or cut.axes != names) for names, cut in zip(have, want, strict=True))


def _by_parts(s: TypedOperation, fun: Callable) -> Sequence[ShapedArray]:
    """The types of the results of a decomposed operation, from its parts."""

    def parts(*args):
        out = fun(*args, **s.params)
        return list(out) if s.primitive.multiple_results else [out]

    jaxpr, _ = provided.trace_to_jaxpr(parts, s.types)
    return [v.aval for v in jaxpr.outvars]


# ---------------------------------------------------------------- rules of types


def elementwise(s: TypedOperation) -> Sequence[Axes]:
    """Operands must have the same split along each array axis that is split."""
    ranked = [axes for a, axes in zip(s.types, s.all_axes(), strict=True) if a.shape]
    said = [{axes[d] for axes in ranked if axes[d]} for d in range(s.results[0].ndim)]
    if any(len(names) > 1 for names in said):
        given = ", ".join(str(entries(axes)) for axes in ranked)
        raise ShardingTypeError(
            f"{s.name} got incompatible shardings for broadcasting: {given}. Reshard one of the operands like the "
            "other with jax.sharding.reshard."
        )
    return [tuple(next(iter(names), ()) for names in said)] * len(s.results)


def by_type_rule(s: TypedOperation) -> Sequence[Axes]:
    """Results are split as the primitive's type rule gives it, which knows all of their types."""
    return [axes_of(a) for a in s.results]


def decomposed(s: TypedOperation) -> Sequence[Axes]:
    """Results are split as the operations into which the primitive decomposes give it."""
    return [axes_of(a) for a in _by_parts(s, s.primitive.lower.fun)]


def whole(s: TypedOperation) -> Sequence[Axes]:
    """Results are replicated."""
    return [((),) * a.ndim for a in s.results]


def without_axes(param: str) -> TypeRule:
    """Results have the operands' axes except those that a parameter names."""

    def rule(s: TypedOperation) -> Sequence[Axes]:
        gone = set(s.params[param])
        kept = [tuple(names for d, names in enumerate(axes) if d not in gone) for axes in s.all_axes()]
        return kept[: len(s.results)]

    return rule


def whole_along(axis_of: Callable[[TypedOperation], int], what: str) -> TypeRule:
    """Operands must be whole along an axis and split alike along the others. Results are split as the operands.

    what: the start of the error message.
    """

    def rule(s: TypedOperation) -> Sequence[Axes]:
        axis = axis_of(s)
        for aval, axes in zip(s.types, s.all_axes(), strict=True):
            if axes and axes[axis]:
                raise ShardingTypeError(
                    f"{what}. Got input type={aval} and axis={axis}. Unshard that axis first, with "
                    "jax.sharding.reshard."
                )
        if len(set(s.all_axes())) > 1:
            given = " ".join(str(entries(a)) for a in s.all_axes())
            raise ShardingTypeError(f"Arguments to {s.name} must have equal shardings, got: {given}")
        return [s.axes()] * len(s.results)

    return rule


def batched(ranks: Sequence[int]) -> TypeRule:
    """The last `ranks[i]` axes of operand i must be whole. The axes before them may be split, alike in all operands."""

    def rule(s: TypedOperation) -> Sequence[Axes]:
        batches = []
        for i, (axes, rank) in enumerate(zip(s.all_axes(), ranks, strict=True)):
            cut = len(axes) - rank
            if any(axes[cut:]):
                raise ShardingTypeError(
                    f"Input {i} to {s.name} must be unsharded on non-batch dimensions, but got {entries(axes)}. Use "
                    "jax.sharding.reshard first."
                )
            batches.append(axes[:cut])
        if len(set(batches)) > 1:
            given = [entries(b) for b in batches]
            raise ShardingTypeError(f"All inputs to {s.name} must have the same batch sharding, but got {given}.")
        return [(*batches[0], *((),) * (a.ndim - len(batches[0]))) for a in s.results]

    return rule


def kept(what: str) -> TypeRule:
    """Results keep the operand's split, if mesh axes divide their sizes. what: the start of the error message."""

    def rule(s: TypedOperation) -> Sequence[Axes]:
        for result in s.results:
            check_divides(s, what, s.axes(), result.shape)
        return [s.axes()] * len(s.results)

    return rule


def check_divides(s: TypedOperation, what: str, axes: Axes, shape: Sequence[int]) -> None:
    """Raise ShardingTypeError if mesh axes do not divide a result axis whose size differs from the operand's.
    axes: the operand's split, for the axes of the result."""
    aval = s.types[0]
    for n, own, names in zip(shape, aval.shape, axes, strict=True):
        count = splits.parts(s.mesh, names)
        if n != own and n % count:
            raise ShardingTypeError(
                f"{what} on sharded dims where out dim ({n}) is not divisible by mesh axes ({count}) with spec "
                f"({entry(names)}) is not implemented. Got input type={aval.str_short(True)} and output "
                f"shape={tuple(shape)}. Unshard that axis first, with jax.sharding.reshard."
            )


def _exchange(s: TypedOperation) -> Sequence[Axes]:
    """Collectives run over Manual axes: the split over other axes does not change."""
    if any(a.shape != s.types[0].shape for a in s.results):
        return placed(s)
    return [s.axes()] * len(s.results)
