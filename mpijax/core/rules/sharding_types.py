"""Computes how results of operations are split over Explicit mesh axes. JAX calls this part of the type its sharding.

It follows from the factors of a primitive's sharding rule (`core.rules.factors`). A rule without factors gives the
split of results if no operand must move. Where JAX decides otherwise, the primitive has a `sharding_type`: one of the
functions here and in `shape_types`. All raise ShardingTypeError if the split of a result does not follow from the
operands, unless the caller passes it (`out_sharding`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mpijax.core.base import provided
from mpijax.core.base.errors import ShardingTypeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.state import state
from mpijax.core.rules.default_rules import rule_of
from mpijax.core.rules.factors import Factor, FactorKind, FactorRule
from mpijax.core.rules.lowering import Communication, ControlFlow, Decompose, InlineJaxpr, Partitioned, Reshard
from mpijax.core.rules.sharding_rules import Operation
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

    def entries(self, i: int) -> tuple:
        """The split of operand i as a `PartitionSpec` has it."""
        return entries(self.axes(i))


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
    if isinstance(lower, Decompose) and s.primitive.sharding_type is None and rule_of(s.primitive) is None:
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
    if isinstance(primitive.lower, Communication):
        return _exchange
    rule = rule_of(primitive)
    return by_factors(rule) if isinstance(rule, FactorRule) else placed


def by_factors(rule: FactorRule) -> TypeRule:
    """Operands must be split alike along a factor, which gives the split of results."""

    def type_rule(s: TypedOperation) -> Sequence[Axes]:
        factors = rule.factors(_as_sharded(s))
        if factors is None:
            raise _no_rule(s)
        found: list[list[tuple]] = [[()] * a.ndim for a in s.results]
        # Whole axes first: their errors are the clearest.
        for f in sorted(factors, key=lambda f: _explicit(f) is not FactorKind.WHOLE):
            names = _names_along(s, rule, f)
            for axes, at in zip(found, f.results, strict=True):
                if at is not None:
                    axes[at] = names
            if names and (f.axis_map is not None or f.kind is FactorKind.WHOLE):
                _check_divides(s, rule.called or s.name, f, names)
        _check_covered(s, factors)
        return [*map(tuple, found)]

    return type_rule


def _explicit(f: Factor) -> FactorKind:
    return f.explicit or f.kind


def _names_along(s: TypedOperation, rule: FactorRule, f: Factor) -> tuple:
    """The mesh axes that split a factor. Raises ShardingTypeError if operands disagree, or if it must be whole."""
    given = [s.axes(i)[at] for i, at in enumerate(f.operands) if at is not None]
    said = {names for names in given if names}
    kind = _explicit(f)
    if kind is FactorKind.WHOLE:
        refused = bool(said)
    elif kind is FactorKind.REDUCED:
        refused = len(said) > 1 or (len(given) > 1 and all(given) and not state.split_freely)
    else:
        refused = len(said) > 1 or (rule.alike and len(set(given)) > 1)
    if refused:
        raise ShardingTypeError(_refusal(s, f) if rule.refusal is None else rule.refusal(s, f))
    return next(iter(said), ())


def _refusal(s: TypedOperation, f: Factor) -> str:
    if _explicit(f) is FactorKind.WHOLE:
        return _must_move(s)
    given = ", ".join(str(s.entries(i)) for i, a in enumerate(s.types) if a.shape)
    return (
        f"{s.name} got incompatible shardings for broadcasting: {given}. Reshard one of the operands like the other "
        "with jax.sharding.reshard."
    )


def _check_covered(s: TypedOperation, factors: Sequence[Factor]) -> None:
    """Raise ShardingTypeError if an array axis without a factor is split."""
    covered = {(i, at) for f in factors for i, at in enumerate(f.operands)}
    if any(names and (i, d) not in covered for i, axes in enumerate(s.all_axes()) for d, names in enumerate(axes)):
        raise ShardingTypeError(_must_move(s))


def _check_divides(s: TypedOperation, called: str, f: Factor, names: tuple) -> None:
    """Raise ShardingTypeError if mesh axes do not divide a result axis whose size differs from the operand's."""
    [own] = f.operands[:1]
    for result, at in zip(s.results, f.results, strict=True):
        if own is not None and at is not None:
            n = result.shape[at]
            if n != s.types[0].shape[own] and n % splits.parts(s.mesh, names):
                raise _not_divisible(s, called, n, names, result.shape)


def placed(s: TypedOperation) -> Sequence[Axes]:
    """Results have the split of the primitive's sharding rule, if the rule moves no operand."""
    rule = rule_of(s.primitive)
    plan = None if rule is None else rule(_as_sharded(s))
    if plan is None:
        raise _no_rule(s)
    if plan.whole is not None:
        return [axes_of(a) for a in _by_parts(s, plan.whole)]
    if plan.program is not None or any(map(_moves, s.all_axes(), plan.operands)):
        raise ShardingTypeError(_must_move(s))
    return [tuple(() if c is None else c.axes for c in cuts) for cuts in plan.results]


def _no_rule(s: TypedOperation) -> ShardingTypeError:
    return ShardingTypeError(
        f"sharding rule for {s.name} is not implemented, for operands of types {_given(s)}. Use "
        "`jax.sharding.auto_axes(fun, out_sharding=...)`, which lets the compiler choose shardings inside of the "
        "function."
    )


def _must_move(s: TypedOperation) -> str:
    return (
        f"{s.name} with inputs: {_given(s)} needs to move data between devices first, and it is ambiguous how the "
        "result should be sharded. Use jax.sharding.reshard on the inputs, or `jax.sharding.auto_axes(fun, "
        "out_sharding=...)`."
    )


def _as_sharded(s: TypedOperation) -> Operation:
    """The operation as sharding rules receive it, for the first device."""
    sizes = dict(s.mesh.shape)
    cuts = [
        tuple(even_cut(n, names, splits.parts(s.mesh, names)) if names else None for n, names in zip(a.shape, axes))
        for a, axes in zip(s.types, s.all_axes(), strict=True)
    ]
    shapes, results = ([a.shape for a in avals] for avals in (s.types, s.results))
    return Operation(s.params, shapes, results, cuts, sizes, dict.fromkeys(sizes, 0), (None,) * len(cuts))


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


def _not_divisible(
    s: TypedOperation, what: str, size: int, names: tuple, shape: Sequence[int]
) -> ShardingTypeError:
    return ShardingTypeError(
        f"{what} on sharded dims where out dim ({size}) is not divisible by mesh axes ({splits.parts(s.mesh, names)}) "
        f"with spec ({entry(names)}) is not implemented. Got input type={s.types[0].str_short(True)} and output "
        f"shape={tuple(shape)}. Unshard that axis first, with jax.sharding.reshard."
    )


def _exchange(s: TypedOperation) -> Sequence[Axes]:
    """Collectives run over Manual axes: the split over other axes does not change."""
    if any(a.shape != s.types[0].shape for a in s.results):
        return placed(s)
    return [s.axes()] * len(s.results)
