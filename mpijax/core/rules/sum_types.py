"""Type rules for pending sums: the mesh axes over which results are unreduced or reduced.

A value is unreduced over a mesh axis if its sum over the axis is pending; it is reduced if the sum of its cotangent is.
Operations that are linear in such a value may run before the sum. Others need `reshard` first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mpijax.core.base.errors import ShardingTypeError
from mpijax.core.rules.lowering import Combiner, Communication, Elementwise, Reduction, Structural
from mpijax.core.sharding.context import get_abstract_mesh
from mpijax.core.sharding.split import Split
from mpijax.core.types.avals import NO_AXES, ShapedArray


def sums_of(s: Any) -> tuple[frozenset, frozenset]:
    """The axes over which the results of an operation are unreduced and reduced.

    Raises ShardingTypeError for incompatible operands, NotImplementedError for an operation that accepts no pending
    sum.
    """
    splits = [a.split for a in s.types if a.split is not None]
    if not any(x.unreduced or x.reduced for x in splits):
        return NO_AXES, NO_AXES
    rule = s.primitive.sums or _by_lowering(s.primitive.lower)
    if rule is not None:
        return rule(s)
    if isinstance(s.primitive.lower, Elementwise) and not any(map(unreduced_axes, s.types)):
        return NO_AXES, _reduced(s)
    what = "unreduced" if isinstance(s.primitive.lower, Elementwise) else "unreduced/reduced"
    raise NotImplementedError(
        f"{what} rule for {s.name} is not implemented, for {_given(s)}. Reduce the operand first, with "
        "jax.sharding.reshard."
    )


def check_asked_sums(s: Any) -> None:
    """Raise an error if the requested sharding is unreduced or reduced over other axes than the operation allows."""
    spec = getattr(s.asked, "spec", None)
    if spec is not None and s.primitive.sums is not None:
        if spec.unreduced or spec.reduced or any(unreduced_axes(a) or reduced_axes(a) for a in s.types):
            s.primitive.sums(s)


def _by_lowering(lower: Any) -> Callable | None:
    if isinstance(lower, Communication):
        return over_other_axes
    if isinstance(lower, Structural) or (isinstance(lower, Reduction) and lower.op is Combiner.ADD):
        return linear
    return added if isinstance(lower, Elementwise) and lower.additive else None


def linear(s: Any) -> tuple[frozenset, frozenset]:
    """For operations that may run before the sums. All operands must be unreduced over the same axes."""
    unreduced = {unreduced_axes(a) for a in s.types}
    if len(unreduced) > 1:
        raise ShardingTypeError(
            f"All operands of {s.name} should be unreduced along the same mesh axes. Got {_given(s)}"
        )
    return unreduced.pop(), _reduced(s)


def as_operand(i: int) -> Callable[[Any], tuple[frozenset, frozenset]]:
    """Results are unreduced and reduced as operand i. The other operands are indices or fill values."""
    return lambda s: (unreduced_axes(s.types[i]), reduced_axes(s.types[i]))


def updated(s: Any) -> tuple[frozenset, frozenset]:
    """For a window of an operand that an update replaces. The other operands are indices."""
    operand, update = s.types[:2]
    for what, axes in (("unreduced", unreduced_axes), ("reduced", reduced_axes)):
        if axes(operand) != axes(update):
            raise ShardingTypeError(
                f"{s.name} operand and update must be {what} along the same axes. Got operand sharding "
                f"{operand.str_short(mesh_axis_types=True)} and update sharding "
                f"{update.str_short(mesh_axis_types=True)}. Use jax.sharding.reshard first."
            )
    return unreduced_axes(operand), reduced_axes(operand)


def over_other_axes(s: Any) -> tuple[frozenset, frozenset]:
    """For collectives and `pvary`: operands may be unreduced and reduced over other axes than the operation's."""
    named = s.params.get("axes", s.params.get("axis_name"))
    names = frozenset(named if isinstance(named, (tuple, list)) else (named,))
    for a in s.types:
        for what, axes in (("unreduced", unreduced_axes(a)), ("reduced", reduced_axes(a))):
            if axes & names:
                raise ValueError(
                    f"{s.name} cannot accept args which are {what}. Got {a.str_short(True)} and axes={set(names)}. "
                    "Convert an unreduced value by jax.lax.psum, a reduced one by jax.lax.pcast(..., to='varying')."
                )
    return unreduced_axes(s.types[0]), reduced_axes(s.types[0])


def with_sums(aval: ShapedArray, unreduced: frozenset, reduced: frozenset) -> ShapedArray:
    """The type with other unreduced and reduced axes."""
    split = aval.split or Split(get_abstract_mesh(), ((),) * aval.ndim)
    return aval.update(split=replace(split, unreduced=unreduced, reduced=reduced))


def kind_over(aval: ShapedArray, names: Any, caller: str) -> str:
    """What a value is over named axes: varying, unreduced, reduced or invarying.

    Raises ValueError if it is not the same over all of them.
    """
    kinds = {"varying": aval.vma, "unreduced": unreduced_axes(aval), "reduced": reduced_axes(aval)}
    found = {next((kind for kind, axes in kinds.items() if n in axes), "invarying") for n in names}
    if len(found) > 1:
        raise ValueError(
            f"{caller} can only accept axis_name which corresponds to one of varying, unreduced, reduced or invarying "
            f"state of the input. Got input type: {aval}, axes: {names} and input state: {found}"
        )
    return found.pop()


def unreduced_axes(aval: ShapedArray) -> frozenset:
    return NO_AXES if aval.split is None else aval.split.unreduced


def reduced_axes(aval: ShapedArray) -> frozenset:
    return NO_AXES if aval.split is None else aval.split.reduced


def _given(s: Any) -> str:
    return ", ".join(a.str_short(True) for a in s.types)


def _reduced(s: Any) -> frozenset:
    said = {r for a in s.types if (r := reduced_axes(a))}
    if len(said) > 1:
        raise ShardingTypeError(f"All inputs should be reduced across the same mesh axes. Got specs: {said}")
    reduced = next(iter(said), NO_AXES)
    for a in (a for a in s.types if a.shape) if reduced else ():
        split = NO_AXES if a.split is None else frozenset(n for names in a.split.axes for n in names)
        if (split | a.vma) & reduced:
            raise ShardingTypeError(
                "Inputs cannot be sharded/varying on the same axes that another input is reduced on. Reshard the input "
                "which is reduced to be sharded on the mesh axes it is reduced on via `jax.sharding.reshard(inp, "
                f"jax.P(...))`. Got input type: {a} and reduced spec: {reduced}"
            )
        if reduced - reduced_axes(a) - unreduced_axes(a):
            raise ShardingTypeError(
                "Inputs cannot be replicated on the same axes that another input is reduced on. Got input type: "
                f"{a} and reduced spec: {reduced}"
            )
    return reduced


def added(s: Any) -> tuple[frozenset, frozenset]:
    """For operations whose result for sums of operands is the sum of the results."""
    if len(s.types) == 1:
        return linear(s)
    left, right = map(unreduced_axes, s.types)
    if left and right and left != right:
        raise ShardingTypeError(
            f"lhs and rhs to `{s.name}` must be unreduced along the same mesh axes. Got lhs={left}, rhs={right}"
        )
    if bool(left) != bool(right):
        one, other = ("lhs", "rhs") if left else ("rhs", "lhs")
        raise ShardingTypeError(
            f"{one} is unreduced while {other} is not. `{s.name}` operation does not allow this because there will be "
            f"implicit communication. Please reduce {one} via `reshard` before calling `{s.name}`. Got {_given(s)}"
        )
    return left, _reduced(s)


def bilinear(s: Any) -> tuple[frozenset, frozenset]:
    """Elementwise products. If one operand is unreduced, the other must be reduced over the same axes, or a scalar."""
    left, right = map(unreduced_axes, s.types)
    if left and right:
        raise ShardingTypeError(
            f"lhs and rhs to `mul` cannot be unreduced since mul is bilinear. Got lhs={left}, rhs={right}"
        )
    if not (left or right):
        return NO_AXES, _reduced(s)
    other = s.types[1] if left else s.types[0]
    if other.shape and reduced_axes(other) != (left or right):
        one, two = ("RHS", "LHS") if left else ("LHS", "RHS")
        raise ShardingTypeError(
            f"{one} should be reduced along the same axes {two} is unreduced on. Got lhs={s.types[0]} and "
            f"rhs={s.types[1]}"
        )
    return left or right, NO_AXES


def contracted(s: Any) -> tuple[frozenset, frozenset]:
    """Matrix products accept no unreduced operand. On request, the result is unreduced over all mesh axes that split
    the contracted axes."""
    if any(map(unreduced_axes, s.types)):
        raise ShardingTypeError(f"lhs or rhs passed to dot_general cannot be unreduced. Got {_given(s)}")
    asked = s.asked.spec.unreduced if s.asked is not None else NO_AXES
    if not asked:
        return NO_AXES, NO_AXES
    dims = s.params["dimension_numbers"][0]
    left, right = (tuple(axes[d] for d in along) for axes, along in zip(s.all_axes(), dims, strict=True))
    if left != right:
        raise ShardingTypeError(
            "lhs and rhs contracting dims should be sharded identically when out_sharding provided to dot_general "
            f"mentions unreduced_axes. Got lhs_contracting_spec={left}, rhs_contracting_spec={right}"
        )
    if asked != {a for names in left for a in names}:
        raise ShardingTypeError(
            f"out_sharding's unreduced axes should be equal to the contracting specs. Got unreduced axes={set(asked)} "
            f"and contracting spec={left}"
        )
    return asked, NO_AXES


def summed(s: Any) -> tuple[frozenset, frozenset]:
    """Sums along array axes. On request, the result is unreduced over mesh axes that split these axes."""
    asked = s.asked.spec.unreduced if s.asked is not None else NO_AXES
    if not asked:
        return linear(s)
    along = {a for d in s.params["axes"] for a in s.axes()[d]} | unreduced_axes(s.types[0])
    if not asked <= along:
        raise ShardingTypeError(
            "out_sharding's unreduced axes should be in operand's specs that were summed over. Got "
            f"operand={s.types[0]}, axes={s.params['axes']}, unreduced_spec={set(asked)}"
        )
    return asked, reduced_axes(s.types[0])


def reshaped(s: Any) -> tuple[frozenset, frozenset]:
    """A requested sharding must be unreduced and reduced as the operand is."""
    sums = unreduced_axes(s.types[0]), reduced_axes(s.types[0])
    spec = s.asked.spec if s.asked is not None else None
    for kind, given, asked in () if spec is None else zip(
        ("unreduced", "reduced"), sums, (spec.unreduced, spec.reduced), strict=True
    ):
        if given and asked != given:
            raise ValueError(
                f"out_sharding passed to reshape must be {kind} over the same mesh axes as operand. Got out_sharding: "
                f"{spec} and operand type: {s.types[0].str_short(True)}"
            )
        if asked != given:
            raise ValueError(f"out_sharding passed to `reshape` cannot contain {kind} axes. Got {s.asked}")
    return sums
