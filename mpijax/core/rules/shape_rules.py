"""Sharding rules of operations that move elements: slices, pads, reshapes, gathers.

Results keep the cut of their source: a slice of an array is not moved, but its blocks change size. If a rank needs
elements of neighbours, the rule requests spans of the operand that extend beyond the rank's part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.factors import Factor, FactorKind, FactorRule, free, planned, same_axes, whole
from mpijax.core.rules.sharding_rules import Operation, Plan
from mpijax.core.sharding.cuts import Cut, Span, even_cut

Maybe = Cut | None

# Passes one operand through.
copied = FactorRule(same_axes)


def _transpose(s: Operation) -> list[Factor]:
    return [free((i,), (d,)) for d, i in enumerate(s.params["permutation"])]


transpose = FactorRule(_transpose)


def _broadcast(s: Operation) -> list[Factor]:
    [shape], [out_shape] = s.shapes, s.results
    dims = s.params["broadcast_dimensions"]
    return [free((i,), (d,)) for i, d in enumerate(dims) if shape[i] == out_shape[d]]


def _local_shape(s: Operation, plan: Plan) -> Mapping[str, Any]:
    return {**s.params, "shape": s.local(s.results[0], plan.results[0])}


broadcast_in_dim = FactorRule(_broadcast, local=_local_shape)


def _squeeze(s: Operation) -> list[Factor]:
    gone = {d % len(s.shapes[0]) for d in s.params["dimensions"]}
    kept = (d for d in range(len(s.shapes[0])) if d not in gone)
    return [*(free((d,), (k,)) for k, d in enumerate(kept)), *(whole((d,), (None,)) for d in gone)]


squeeze = FactorRule(_squeeze)


# ---------------------------------------------------------------- reshape


@dataclass(frozen=True)
class Regrouped:
    """Axes merged into others, or split up: the first axis of each group is cut, in multiples of the others' product.

    ins, outs: the axes of the operand and of the result.
    """

    ins: tuple[int, ...]
    outs: tuple[int, ...]

    def cuts(self, s: Operation, factor: Factor, have: Sequence[Maybe]) -> tuple[Sequence[Maybe], Maybe]:
        [shape], [out_shape], [cuts] = s.shapes, s.results, s.cuts
        cut = next((c for i in self.ins if (c := cuts[i]) is not None), None)
        if cut is None:
            return [None], None
        inner, out_inner = (
            math.prod(x[i] for i in group[1:]) for x, group in ((shape, self.ins), (out_shape, self.outs))
        )
        unit = math.lcm(inner, out_inner)
        total = shape[self.ins[0]] * inner
        if total % unit or total // unit < cut.parts:
            return [None], None
        if cut is cuts[self.ins[0]] and not (cut.lows * inner % unit).any():
            elements = cut.scaled(inner)
        else:
            elements = even_cut(total // unit, cut.axes, cut.parts).scaled(unit)
        return [elements.mapped(lambda at: at // inner)], elements.mapped(lambda at: at // out_inner)


def _reshape(s: Operation) -> list[Factor] | None:
    if s.params["dimensions"] is not None:
        return None
    [shape], [out_shape] = s.shapes, s.results
    found = []
    for ins, outs in reshaped_groups(shape, out_shape):
        ins, outs = [i for i in ins if shape[i] != 1], [j for j in outs if out_shape[j] != 1]
        if ins and outs:
            alone = len(ins) == len(outs) == 1
            found.append(free(ins[:1], outs[:1], None if alone else Regrouped(tuple(ins), tuple(outs))))
    return found


def _local_sizes(s: Operation, plan: Plan) -> Mapping[str, Any]:
    return {**s.params, "new_sizes": s.local(s.results[0], plan.results[0])}


reshape = FactorRule(_reshape, local=_local_sizes)


def reshaped_groups(shape: Sequence[int], out_shape: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Pairs of lists of axes, of the operand and of the result, with the same number of elements."""
    i = j = 0
    while i < len(shape) or j < len(out_shape):
        ins: list[int] = []
        outs: list[int] = []
        a = b = 1
        while not (ins or outs) or a != b:
            if j == len(out_shape) or (i < len(shape) and (a < b or (a == b and not ins))):
                if i == len(shape):
                    break
                a *= shape[i]
                ins.append(i)
                i += 1
            else:
                b *= out_shape[j]
                outs.append(j)
                j += 1
        yield ins, outs


# ---------------------------------------------------------------- slices and pads


@dataclass(frozen=True)
class Strided:
    """Position `i` of a result is position `start + i * step` of the operand. Each rank keeps those of its part."""

    start: int
    step: int

    def cuts(self, s: Operation, factor: Factor, have: Sequence[Maybe]) -> tuple[Sequence[Maybe], Maybe]:
        [cut], size = have, _length_of_result(s, factor)
        if cut is None:
            return have, None
        return have, cut.mapped(lambda at: np.clip(-((self.start - at) // self.step), 0, size))


def _length_of_result(s: Operation, factor: Factor) -> int:
    [d] = factor.results
    assert d is not None
    return s.results[0][d]


def _slice(s: Operation) -> list[Factor]:
    starts, limits = s.params["start_indices"], s.params["limit_indices"]
    strides = s.params["strides"] or (1,) * len(starts)
    return [
        free((d,), (d,), None if (first, limit, step) == (0, n, 1) else Strided(first, step))
        for d, (n, first, limit, step) in enumerate(zip(s.shapes[0], starts, limits, strides, strict=True))
    ]


def _local_slice(s: Operation, plan: Plan) -> Mapping[str, Any]:
    starts, limits = list(s.params["start_indices"]), list(s.params["limit_indices"])
    strides = s.params["strides"] or (1,) * len(starts)
    for d, (cut, taken, step) in enumerate(zip(plan.operands[0], plan.results[0], strides, strict=True)):
        if cut is None or taken is None:
            continue
        (low, high), begin = s.span(taken), s.span(cut)[0]
        starts[d] = starts[d] + low * step - begin if high > low else 0
        limits[d] = starts[d] + (high - low - 1) * step + 1 if high > low else 0
    return {**s.params, "start_indices": tuple(starts), "limit_indices": tuple(limits)}


slice_ = FactorRule(_slice, local=_local_slice, called="slicing")


def _split(s: Operation) -> list[Factor]:
    parts = len(s.results)
    return [
        whole((d,), (d,) * parts, FactorKind.FREE) if d == s.params["axis"] else free((d,), (d,) * parts)
        for d in range(len(s.shapes[0]))
    ]


# Of types only: the compiler divides the slices among ranks.
split = FactorRule(_split)


def _length(span: Span) -> int:
    return span[1] - span[0]


@dataclass(frozen=True)
class Padded:
    """The first and the last part get the padding; interior padding belongs to the element before it."""

    low: int
    interior: int

    def cuts(self, s: Operation, factor: Factor, have: Sequence[Maybe]) -> tuple[Sequence[Maybe], Maybe]:
        cut, size = have[0], _length_of_result(s, factor)
        if cut is None:
            return have, None
        padded = cut.mapped(lambda at: np.clip(at * (self.interior + 1) + self.low, 0, size))
        padded.lows[0], padded.highs[-1] = 0, size
        return have, padded


def _pad(s: Operation) -> list[Factor]:
    config = s.params["padding_config"]
    return [
        free((d, None), (d,), Padded(low, between) if low or high or between else None)
        for d, (low, high, between) in enumerate(config)
    ]


def _local_padding(s: Operation, plan: Plan) -> Mapping[str, Any]:
    config = list(s.params["padding_config"])
    for d, (cut, padded) in enumerate(zip(plan.operands[0], plan.results[0], strict=True)):
        if cut is None or padded is None or not any(config[d]):
            continue
        low, _, between = config[d]
        step, (a, b), (first, end) = between + 1, s.span(cut), s.span(padded)
        dilated = (b - a - 1) * step + 1 if b > a else 0
        before = a * step + low - first if end > first else -dilated
        config[d] = (before, end - first - before - dilated, between)
    return {**s.params, "padding_config": tuple(config)}


pad = FactorRule(_pad, local=_local_padding, called="padding")


class Reversed:
    """Parts swap ranks: the first rank's part comes from the last rank."""

    def cuts(self, s: Operation, factor: Factor, have: Sequence[Maybe]) -> tuple[Sequence[Maybe], Maybe]:
        [cut], size = have, _length_of_result(s, factor)
        if cut is None:
            return have, None
        return [Cut.between(cut.axes, size - cut.highs, size - cut.lows)], cut


def _rev(s: Operation) -> list[Factor]:
    ndim = len(s.shapes[0])
    gone = {d % ndim for d in s.params["dimensions"]}
    return [free((d,), (d,), Reversed() if d in gone else None) for d in range(ndim)]


rev = FactorRule(_rev)


class Joined:
    """Operands one after the other. Every rank gets an equal part of the result, whichever operands it comes from."""

    def cuts(self, s: Operation, factor: Factor, have: Sequence[Maybe]) -> tuple[Sequence[Maybe], Maybe]:
        dim, size = factor.operands[0], _length_of_result(s, factor)
        assert dim is not None
        along = next((cut for cut in have if cut is not None), None)
        if along is None:
            return have, None
        # Pieces of one array that are joined again (`roll`) keep the cut of that array.
        origins = (o[dim] for o in s.origins if o is not None)
        target = next((o for o in origins if o is not None and o.axes == along.axes and o.size == size), None)
        target = target or s.even(size, along.axes)
        needed, at = [], 0
        for shape in s.shapes:
            needed.append(_of_piece(target, at, shape[dim]))
            at += shape[dim]
        return needed, target


def _of_piece(cut: Cut, start: int, size: int) -> Cut:
    """The elements that each part has of the `size` elements from `start` on."""
    return cut.mapped(lambda at: np.clip(at - start, 0, size))


def _concatenate(s: Operation) -> list[Factor]:
    dim, n = s.params["dimension"], len(s.shapes)
    across = [d for d in range(len(s.results[0])) if d != dim]
    return [*(free((d,) * n, (d,)) for d in across), free((dim,) * n, (dim,), Joined())]


def _not_joined(s: Any, f: Factor) -> str:
    given = ", ".join(str(s.entries(i)) for i in range(len(s.types)))
    return f"All operands should have the same sharding. Got shardings {given}. Reshard them with jax.sharding.reshard."


concatenate = FactorRule(_concatenate, alike=True, refusal=_not_joined)


# ---------------------------------------------------------------- slices and updates whose start is data


def _dynamic_slice(s: Operation) -> list[Factor]:
    """Axes that are taken whole stay split."""
    shape, sizes = s.shapes[0], s.params["slice_sizes"]
    none = (None,) * (len(s.shapes) - 1)
    return [
        free((d, *none), (d,)) if sizes[d] == n else whole((d, *none), (d,), FactorKind.FREE)
        for d, n in enumerate(shape)
    ]


def _local_slice_sizes(s: Operation, plan: Plan) -> Mapping[str, Any]:
    return {**s.params, "slice_sizes": s.local(s.params["slice_sizes"], plan.results[0])}


dynamic_slice = FactorRule(_dynamic_slice, local=_local_slice_sizes)


def _dynamic_update_slice(s: Operation) -> list[Factor]:
    shape, window, *starts = s.shapes
    none = (None,) * len(starts)
    return [
        free((d, d, *none), (d,)) if window[d] == n else whole((d, d, *none), (d,), FactorKind.FREE)
        for d, n in enumerate(shape)
    ]


def _not_updated(s: Any, f: Factor) -> str:
    operand, update = (s.types[i].str_short(mesh_axis_types=True) for i in range(2))
    return (
        "dynamic_update_slice operand sharding must be equal to update sharding, got operand sharding "
        f"{operand} and update sharding {update}."
    )


dynamic_update_slice = FactorRule(_dynamic_update_slice, alike=True, refusal=_not_updated)


@dataclass(frozen=True)
class Piece:
    """The second operand is the piece of the first that begins at `start`."""

    start: int

    def cuts(self, s: Operation, factor: Factor, have: Sequence[Maybe]) -> tuple[Sequence[Maybe], Maybe]:
        cut, at = have[0], factor.operands[1]
        assert at is not None
        return [cut, None if cut is None else _of_piece(cut, self.start, s.shapes[1][at])], cut


def _static_update(s: Operation) -> list[Factor]:
    pairs = zip(s.shapes[0], s.shapes[1], s.params["start"], strict=True)
    return [free((d, d), (d,), Piece(first)) for d, (n, m, first) in enumerate(pairs)]


def _chosen_for_update(s: Operation, factors: Sequence[Factor]) -> Plan:
    """A whole operand is cut like a window that has at least half of its elements."""
    (shape, window), (cuts, of_window) = s.shapes, s.cuts
    if not any(cuts) and 2 * math.prod(window) >= math.prod(shape):
        pairs = zip(shape, window, of_window, strict=True)
        cuts = tuple(c if c is None or n == m else s.even(n, c.axes) for n, m, c in pairs)
    return planned(replace(s, cuts=[cuts, of_window]), factors)


def _local_start(s: Operation, plan: Plan) -> Mapping[str, Any]:
    start = list(s.params["start"])
    for d, (cut, n, m) in enumerate(zip(plan.operands[0], *s.shapes, strict=True)):
        if cut is not None and n != m:
            start[d] = max(start[d] - s.span(cut)[0], 0)
    return {**s.params, "start": tuple(start)}


# Each rank writes the elements inside its part of the operand.
static_update = FactorRule(_static_update, local=_local_start, choose=_chosen_for_update)


# ---------------------------------------------------------------- gather and scatter


def _gather(s: Operation) -> list[Factor]:
    """Operand axes that slices take whole stay split, and so do the axes of the indices."""
    (shape, at), [out] = s.shapes, s.results
    numbers, sizes = s.params["dimension_numbers"], s.params["slice_sizes"]
    along = dict(zip(numbers.start_indices_batching_dims, numbers.operand_batching_dims, strict=True))
    gone = {*numbers.collapsed_slice_dims, *along.values()}
    window = [i for i in range(len(shape)) if i not in gone]
    batch = [d for d in range(len(out)) if d not in numbers.offset_dims]
    found = [
        free((i, None), (d,))
        for i, d in zip(window, sorted(numbers.offset_dims), strict=True)
        if sizes[i] == shape[i]
    ]
    return found + [free((along.get(j), j), (batch[j],)) for j in range(len(at) - 1)]


def _local_slices(s: Operation, plan: Plan) -> Mapping[str, Any]:
    along = s.params["dimension_numbers"].operand_batching_dims
    sizes = tuple(
        1 if i in along else n if cut is None else _length(s.span(cut))
        for i, (n, cut) in enumerate(zip(s.params["slice_sizes"], plan.operands[0], strict=True))
    )
    return {**s.params, "slice_sizes": sizes}


gather = FactorRule(_gather, local=_local_slices)


def _scatter(s: Operation) -> list[Factor]:
    """Operand axes that updates cover whole stay split, and so do batch axes."""
    shape, _, new = s.shapes
    n = s.params["dimension_numbers"]
    of_updates = [d for d in range(len(new)) if d not in n.update_window_dims]
    window = [i for i in range(len(shape)) if i not in n.inserted_window_dims and i not in n.operand_batching_dims]
    found = [
        free((i, None, u), (i,)) for u, i in zip(n.update_window_dims, window, strict=True) if new[u] == shape[i]
    ]
    pairs = zip(n.operand_batching_dims, n.scatter_indices_batching_dims, strict=True)
    return found + [free((i, j, of_updates[j]), (i,)) for i, j in pairs]


scatter = FactorRule(_scatter, in_place=True)


# ---------------------------------------------------------------- keys: what belongs to a key is made where the key is


def _leading(s: Operation) -> list[Factor]:
    """The leading axes of operand and result correspond. The others are the words of a key, or of its result."""
    return [free((d,), (d,)) for d in range(min(len(s.shapes[0]), len(s.results[0])))]


# Computes, for each key of an array, a result of fixed shape; or keys from words, which stay together.
of_keys = FactorRule(_leading)


def _with_keys(s: Operation) -> list[Factor]:
    shapes = s.shapes
    return [
        free([d if len(x) > d and x[d] == n else None for x in shapes], (d,)) for d, n in enumerate(s.results[0])
    ]


random_fold_in = FactorRule(_with_keys)
