"""How results of operations are split over Explicit mesh axes: rules by what an operation is to the compiler.

A rule gets an `Operation` and returns, for each result, the mesh axes of its array axes. Where these do not follow
from the operands', and the caller has not said them (`out_sharding`), it raises ShardingTypeError. Types say what
layout a program must bring about; which way the data takes is up to `compiler.layouts`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpijax.core.avals import ShapedArray
from mpijax.core.errors import ShardingTypeError
from mpijax.core.lowering import (
    Communication,
    ControlFlow,
    Cumulative,
    Decompose,
    Elementwise,
    Inline,
    Layout,
    Library,
    Partitioned,
    Reduction,
    Structural,
)
from mpijax.core.sharding import split as splits
from mpijax.core.sharding.context import get_abstract_mesh
from mpijax.core.sharding.split import Axes, Split, entries, entry
from mpijax.core.split_shapes import STRUCTURAL, resized
from mpijax.core.split_sums import sums_of
from mpijax.core.trace import state, trace_to_jaxpr

# Operations whose type rules say how results are split.
_TYPED = (Inline, ControlFlow, Partitioned, Layout)


@dataclass
class Operation:
    """An operation as rules see it.

    types: of the operands. results: of the results, by the type rule. mesh: that of all operands which are split.
    """

    primitive: Any
    types: Sequence[ShapedArray]
    results: Sequence[ShapedArray]
    params: Mapping[str, Any]
    mesh: Any

    @property
    def name(self) -> str:
        return self.primitive.name

    def axes(self, i: int = 0) -> Axes:
        """The mesh axes of operand i, one entry an array axis."""
        aval = self.types[i]
        return ((),) * aval.ndim if aval.split is None else aval.split.axes

    def all_axes(self) -> list[Axes]:
        return [self.axes(i) for i in range(len(self.types))]

    def refuse(self, text: str) -> ShardingTypeError:
        return ShardingTypeError(text)


def typed(primitive, out: Any, avals: Sequence[ShapedArray], params: Mapping[str, Any]) -> Any:
    """The type(s) of results, as the type rule gives them, with how they are split.

    Raises ShardingTypeError where that does not follow from the operands; ValueError for operands over a mesh that is
    not the one in context.
    """
    if isinstance(primitive.lower, _TYPED):
        return out
    asked = params.get("out_sharding") or params.get("sharding")
    if asked is None and all(a.split is None for a in avals):
        return out
    results = out if primitive.multiple_results else [out]
    mesh = _mesh_of(primitive.name, avals)
    if asked is not None:
        found = [splits.of_sharding(asked, a.ndim) for a in results]
    else:
        s = Operation(primitive, avals, results, params, mesh)
        unreduced, reduced = sums_of(s)
        found = [Split(mesh, axes, unreduced, reduced) for axes in _axes_of_results(s)]
    made = [aval.update(split=split) for aval, split in zip(results, found, strict=True)]
    return made if primitive.multiple_results else made[0]


def _axes_of_results(s: Operation) -> Sequence[Axes]:
    rule = rule_of(s.primitive) or _unknown
    try:
        found = rule(s)
        for axes, aval in zip(found, s.results, strict=True):
            _check_once(s, axes, aval)
    except ShardingTypeError:
        if not state.split_freely:
            raise
        return _whole(s)
    return found


def _check_once(s: Operation, axes: Axes, aval: ShapedArray) -> None:
    """Raise ShardingTypeError for a result that is split twice over one mesh axis."""
    named = [a for names in axes for a in names]
    if len(set(named)) < len(named):
        given = ", ".join(a.str_short() for a in s.types)
        kind = aval.str_short().partition("[")[0]
        raise ShardingTypeError(
            f"{s.name} operation with inputs: {given} produces an illegally sharded result: "
            f"{kind}[{splits.dimensions(aval.shape, axes)}], which is split twice over one mesh axis. Use "
            "jax.sharding.reshard on one of the inputs, or pass out_sharding."
        )


def _mesh_of(name: str, avals: Sequence[ShapedArray]) -> Any:
    """The mesh that operands are split over. Raises ValueError where it is not the one in context."""
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
                f"{split.str_short()}. A value from outside of `auto_axes`, `explicit_axes` or `use_abstract_mesh` "
                "must come in as an argument, or by jax.sharding.reshard."
            )
        return mesh
    return context


def rule_of(primitive) -> Callable[[Operation], Sequence[Axes]] | None:
    """The rule for an operation; None where there is none."""
    named = _NAMED.get(primitive.name)
    if named is not None:
        return named
    lower = primitive.lower
    if isinstance(lower, Structural):
        return STRUCTURAL.get(lower.kind)
    return next((rule for kind, rule in _KINDS if isinstance(lower, kind)), None)


def _unknown(s: Operation) -> Sequence[Axes]:
    raise ShardingTypeError(
        f"sharding rule for {s.name} is not implemented, for operands of types "
        f"{', '.join(a.str_short() for a in s.types)}. Work around it by `jax.sharding.auto_axes(fun, "
        "out_sharding=...)`, which leaves the layout inside of the function to the compiler."
    )


# ---------------------------------------------------------------- element by element


def _elementwise(s: Operation) -> Sequence[Axes]:
    """Operands that are split agree, array axis by array axis."""
    shape = s.results[0].shape
    ranked = [(a.shape, axes) for a, axes in zip(s.types, s.all_axes(), strict=True) if a.shape]
    out = tuple(_agreed(s, [axes[d] for _, axes in ranked], [axes for _, axes in ranked]) for d in range(len(shape)))
    return [out] * len(s.results)


def _agreed(s: Operation, names: list[tuple], all_axes: list[Axes]) -> tuple:
    said = {n for n in names if n}
    if len(said) > 1:
        raise ShardingTypeError(
            f"{s.name} got incompatible shardings for broadcasting: {', '.join(str(entries(a)) for a in all_axes)}. "
            "Bring one of the operands into the layout of the other by jax.sharding.reshard."
        )
    return next(iter(said), ())


def _select(s: Operation) -> Sequence[Axes]:
    try:
        return _elementwise(s)
    except ShardingTypeError as error:
        which, *cases = (a.str_short() for a in s.types)
        raise s.refuse(
            f"select cases must have the same shardings, got [{', '.join(cases)}], and the predicate {which} none or "
            "theirs. Use jax.sharding.reshard on one of them."
        ) from error


def _clamp(s: Operation) -> Sequence[Axes]:
    return [s.axes(1)]


# ---------------------------------------------------------------- along axes


def _dropped(axes: Axes, gone) -> Axes:
    return tuple(names for d, names in enumerate(axes) if d not in gone)


def _reduction(s: Operation) -> Sequence[Axes]:
    return [_dropped(s.axes(), set(s.params["axes"]))] * len(s.results)


def _reduce(s: Operation) -> Sequence[Axes]:
    return [_dropped(s.axes(i), set(s.params["dimensions"])) for i in range(len(s.results))]


def _cumulative(s: Operation) -> Sequence[Axes]:
    _check_whole(s, s.params["axis"], "Input should be unsharded over the axis being reduced")
    return [s.axes()]


def _check_whole(s: Operation, axis: int, what: str) -> None:
    """Raise ShardingTypeError for an operand that is split along an axis."""
    for i, aval in enumerate(s.types):
        if s.axes(i) and s.axes(i)[axis]:
            raise s.refuse(
                f"{what}. Got input type={aval} and axis={axis}. Make it whole there by jax.sharding.reshard first."
            )


def _sort(s: Operation) -> Sequence[Axes]:
    what = "Arguments to sort must be unsharded over the sorting dimension"
    _check_whole(s, s.params["dimension"], what)
    if len(set(s.all_axes())) > 1:
        given = " ".join(str(entries(a)) for a in s.all_axes())
        raise s.refuse(f"Arguments to sort must have equal shardings, got: {given}")
    return [s.axes()] * len(s.results)


def _top_k(s: Operation) -> Sequence[Axes]:
    axis = s.params.get("axis", s.params.get("reduction_dimension", -1)) % s.types[0].ndim
    _check_whole(s, axis, "The input should be unsharded over the axis along which to compute the top_k values")
    return [s.axes()] * len(s.results)


# ---------------------------------------------------------------- products


def _dot_general(s: Operation) -> Sequence[Axes]:
    (lc, rc), (lb, rb) = s.params["dimension_numbers"]
    left, right = s.axes(0), s.axes(1)
    batch = []
    for i, j in zip(lb, rb, strict=True):
        if left[i] and right[j] and left[i] != right[j]:
            raise s.refuse(
                "dot_general requires lhs batch dimensions and rhs batch dimensions to have the consistent sharding, "
                f"got {_spec(left, lb)} and {_spec(right, rb)}."
            )
        batch.append(left[i])
    for i, j in zip(lc, rc, strict=True):
        if left[i] and right[j] and left[i] != right[j]:
            raise s.refuse(
                "dot_general requires contracting dimensions to have consistent sharding, got "
                f"{_spec(left, lc)} and {_spec(right, rc)}."
            )
    if not state.split_freely:
        for i, j in zip(lc, rc, strict=True):
            if left[i] and right[j]:
                raise s.refuse(
                    "Contracting dimensions are sharded and it is ambiguous how the output should be sharded. Please "
                    "specify the output sharding via the `out_sharding` parameter. Got "
                    f"lhs_contracting_spec={_spec(left, lc)} and rhs_contracting_spec={_spec(right, rc)}"
                )
    return [(*batch, *_dropped(left, {*lb, *lc}), *_dropped(right, {*rb, *rc}))]


def _spec(axes: Axes, dims) -> tuple:
    return tuple(entry(axes[d]) for d in dims)


def _convolution(s: Operation) -> Sequence[Axes]:
    """The examples may be split, and their space; the kernel and what it sums over may not."""
    numbers = s.params["dimension_numbers"]
    left = s.axes(0)
    if any(s.axes(1)) or left[numbers.lhs_spec[1]]:
        raise s.refuse("Please specify the output sharding via `out_sharding` parameter of `conv_general_dilated`")
    shape = s.results[0].shape
    out: list[tuple] = [()] * len(left)
    for own, d in zip(numbers.lhs_spec, numbers.out_spec, strict=True):
        out[d] = left[own]
        count = splits.parts(s.mesh, left[own])
        if shape[d] % count:
            raise s.refuse(
                f"conv_general_dilated on sharded dims where out dim ({shape[d]}) is not divisible by mesh axes "
                f"({count}) with spec ({entry(left[own])}) is not implemented. Got input type={s.types[0].str_short()} "
                f"and output shape={shape}"
            )
    return [tuple(out)]


# ---------------------------------------------------------------- by their parts, batches, and others


def _by_parts(s: Operation) -> Sequence[Axes]:
    """An operation made of others: what follows from theirs."""
    def fun(*args):
        out = s.primitive.lower.fun(*args, **s.params)
        return list(out) if s.primitive.multiple_results else [out]

    jaxpr, _ = trace_to_jaxpr(fun, s.types)
    outs = [v.aval for v in jaxpr.outvars]
    return [((),) * a.ndim if a.split is None else a.split.axes for a in outs]


def _batched(ranks: int | tuple[int, ...]) -> Callable[[Operation], Sequence[Axes]]:
    """The last axes of each operand (how many, `ranks` says) are whole; those before may be split, all alike."""

    def rule(s: Operation) -> Sequence[Axes]:
        each = ranks if isinstance(ranks, tuple) else (ranks,) * len(s.types)
        batches = []
        for i, rank in enumerate(each[: len(s.types)]):
            axes = s.axes(i)
            cut = len(axes) - rank
            if any(axes[cut:]):
                raise s.refuse(
                    f"Input {i} to {s.name} must be unsharded on non-batch dimensions, but got {entries(axes)}. Use "
                    "jax.sharding.reshard first."
                )
            batches.append(axes[:cut])
        if len(set(batches)) > 1:
            given = [entries(b) for b in batches]
            raise s.refuse(f"All inputs to {s.name} must have the same batch sharding, but got {given}.")
        return [(*batches[0], *((),) * (a.ndim - len(batches[0]))) for a in s.results]

    return rule


def _leading(s: Operation) -> Sequence[Axes]:
    """The result has the operand's axes first."""
    axes = s.axes()
    return [(*axes, *((),) * a.ndim)[: a.ndim] for a in s.results]


def _as_operands(s: Operation) -> Sequence[Axes]:
    return s.all_axes()


def _exchange(s: Operation) -> Sequence[Axes]:
    """Axes that are exchanged over are of type Manual: what is split over others stays so."""
    if any(a.shape != s.types[0].shape for a in s.results):
        return _unknown(s)
    return [s.axes()] * len(s.results)


def _whole(s: Operation) -> Sequence[Axes]:
    return [((),) * a.ndim for a in s.results]


_KINDS: tuple[tuple[type, Callable[[Operation], Sequence[Axes]]], ...] = (
    (Elementwise, _elementwise),
    (Reduction, _reduction),
    (Cumulative, _cumulative),
    (Library, _dot_general),
    (Communication, _exchange),
    (Decompose, _by_parts),
)

_MATRICES = (
    "cholesky eig eigh geqrf geqp3 hessenberg lu qr schur svd symmetric_product tridiagonal tridiagonal_eigh"
).split()
_ELEMENTWISE = "polygamma zeta igamma igammac igamma_grad_a random_gamma_grad regularized_incomplete_beta bessel_i0e \
bessel_i1e".split()

_NAMED: dict[str, Callable[[Operation], Sequence[Axes]]] = {
    "clamp": _clamp,
    "select_n": _select,
    "split": lambda s: resized(s, "split"),
    "reduce": _reduce,
    "argmax": _reduction,
    "argmin": _reduction,
    "sort": _sort,
    "top_k": _top_k,
    "approx_top_k": _top_k,
    "conv_general_dilated": _convolution,
    "optimization_barrier": _as_operands,
    "triangular_solve": _batched(2),
    "cholesky_update": _batched((2, 1)),
    "tridiagonal_solve": _batched((1, 1, 1, 2)),
    "lu_pivots_to_permutation": _batched(1),
    "householder_product": _batched((2, 1)),
    "ormqr": _batched((2, 1, 2)),
    "fft": lambda s: _batched(len(s.params["fft_lengths"]))(s),
    "random_gamma": _leading,
    "threefry2x32": _elementwise,
    "rng_bit_generator": _whole,
    **dict.fromkeys(_MATRICES, _batched(2)),
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(("pure_callback", "io_callback", "debug_callback", "debug_print", "nan_check"), _whole),
}
