"""Sharding rules of operations that move elements: slices, pads, reshapes, gathers.

Results keep the cut of their source: a slice of an array is not moved, but its blocks change size. If a rank needs
elements of neighbours, the rule requests spans of the operand that extend beyond the rank's part.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpijax.core.rules.sharding_rules import Operation, Plan, agreed, same
from mpijax.core.sharding.cuts import Cut, Cuts, Span, dropped, even_cut, uncut, without


def copied(s: Operation) -> Plan:
    """Passes one operand through."""
    return same(s, s.cuts[0])


def transpose(s: Operation) -> Plan:
    return Plan(s.cuts, [tuple(s.cuts[0][i] for i in s.params["permutation"])], s.params)


def broadcast_in_dim(s: Operation) -> Plan:
    [shape], [out_shape], dims = s.shapes, s.results, s.params["broadcast_dimensions"]
    cuts = tuple(c if n == out_shape[d] else None for n, d, c in zip(shape, dims, s.cuts[0], strict=True))
    placed = dict(zip(dims, cuts, strict=True))
    out = tuple(placed.get(d) for d in range(len(out_shape)))
    return Plan([cuts], [out], {**s.params, "shape": s.local(out_shape, out)})


def squeeze(s: Operation) -> Plan:
    gone = {d % len(s.shapes[0]) for d in s.params["dimensions"]}
    cuts = without(s.cuts[0], gone)
    return Plan([cuts], [dropped(cuts, gone)], s.params)


# ---------------------------------------------------------------- reshape


def reshape(s: Operation) -> Plan | None:
    """Axes merged or split up: the first axis of each group can be cut, in multiples of the product of the others."""
    if s.params["dimensions"] is not None:
        return None
    [shape], [out_shape], [cuts] = s.shapes, s.results, s.cuts
    operand: list[Cut | None] = [None] * len(shape)
    out: list[Cut | None] = [None] * len(out_shape)
    for ins, outs in factors(shape, out_shape):
        ins, outs = [i for i in ins if shape[i] != 1], [j for j in outs if out_shape[j] != 1]
        if not ins or not outs:
            continue
        if len(ins) == len(outs) == 1:
            operand[ins[0]] = out[outs[0]] = cuts[ins[0]]
            continue
        found = _leading(s, cuts, ins, outs)
        if found is not None:
            operand[ins[0]], out[outs[0]] = found
    return Plan([tuple(operand)], [tuple(out)], {**s.params, "new_sizes": s.local(out_shape, tuple(out))})


def _leading(s: Operation, cuts: Cuts, ins: list[int], outs: list[int]) -> tuple[Cut, Cut] | None:
    """The cuts of the first axes of a group, of operand and result; None if they stay whole."""
    [shape], [out_shape] = s.shapes, s.results
    cut = next((cuts[i] for i in ins if cuts[i] is not None), None)
    if cut is None:
        return None
    inner, out_inner = (math.prod(x[i] for i in group[1:]) for x, group in ((shape, ins), (out_shape, outs)))
    unit = math.lcm(inner, out_inner)
    total = shape[ins[0]] * inner
    if total % unit or total // unit < cut.parts:
        return None
    if cut is cuts[ins[0]] and not (cut.lows * inner % unit).any():
        whole = cut.scaled(inner)
    else:
        whole = even_cut(total // unit, cut.axes, cut.parts).scaled(unit)
    return whole.mapped(lambda at: at // inner), whole.mapped(lambda at: at // out_inner)


def factors(shape: Sequence[int], out_shape: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
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


def slice_(s: Operation) -> Plan:
    """Each rank keeps the elements of its part that are in the slice."""
    [shape], [out_shape], [cuts] = s.shapes, s.results, s.cuts
    starts, limits = list(s.params["start_indices"]), list(s.params["limit_indices"])
    strides = s.params["strides"] or (1,) * len(shape)
    out: list[Cut | None] = []
    for d, (n, m, cut) in enumerate(zip(shape, out_shape, cuts, strict=True)):
        if cut is None or (starts[d], limits[d], strides[d]) == (0, n, 1):
            out.append(cut)
            starts[d], limits[d] = (starts[d], limits[d]) if cut is None else (0, _length(s.span(cut)))
            continue
        first, step = starts[d], strides[d]
        taken = cut.mapped(lambda at: np.clip(-((first - at) // step), 0, m))  # noqa: B023
        low, high = s.span(taken)
        begin = s.span(cut)[0]
        starts[d] = first + low * step - begin if high > low else 0
        limits[d] = starts[d] + (high - low - 1) * step + 1 if high > low else 0
        out.append(taken)
    params = {**s.params, "start_indices": tuple(starts), "limit_indices": tuple(limits)}
    return Plan([cuts], [tuple(out)], params)


def _length(span: Span) -> int:
    return span[1] - span[0]


def pad(s: Operation) -> Plan:
    """The first and the last part get the padding; interior padding belongs to the element before it."""
    [out_shape], cuts = s.results, s.cuts[0]
    config, out = list(s.params["padding_config"]), []
    for d, (cut, m) in enumerate(zip(cuts, out_shape, strict=True)):
        low, _, between = config[d]
        if cut is None or not any(config[d]):
            out.append(cut)
            continue
        step = between + 1
        padded = cut.mapped(lambda at: np.clip(at * step + low, 0, m))  # noqa: B023
        padded.lows[0], padded.highs[-1] = 0, m
        out.append(padded)
        (a, b), (first, end) = s.span(cut), s.span(padded)
        dilated = (b - a - 1) * step + 1 if b > a else 0
        before = a * step + low - first if end > first else -dilated
        config[d] = (before, end - first - before - dilated, between)
    return Plan([cuts, ()], [tuple(out)], {**s.params, "padding_config": tuple(config)})


def rev(s: Operation) -> Plan:
    """Parts swap ranks: the first rank's part comes from the last rank."""
    [shape], [cuts] = s.shapes, s.cuts
    gone = {d % len(shape) for d in s.params["dimensions"]}
    needed = tuple(
        c if c is None or d not in gone else Cut.between(c.axes, shape[d] - c.highs, shape[d] - c.lows)
        for d, c in enumerate(cuts)
    )
    return Plan([needed], [cuts], s.params)


def concatenate(s: Operation) -> Plan:
    """Along a split axis, every rank gets an equal part of the result, whichever operands it comes from."""
    dim, [out_shape] = s.params["dimension"], s.results
    outer = tuple(n for d, n in enumerate(out_shape) if d != dim)
    cuts = agreed([outer] * len(s.cuts), [dropped(c, {dim}) for c in s.cuts], outer)
    used = {a for c in cuts if c is not None for a in c.axes}
    along = next((c[dim] for c in s.cuts if c[dim] is not None and not used & set(c[dim].axes)), None)
    if along is None:
        return same(s, (*cuts[:dim], None, *cuts[dim:]))
    total = out_shape[dim]
    origins = (o[dim] for o in s.origins if o is not None)
    # Pieces of one array that are joined again (`roll`) keep the cut of that array.
    target = next((o for o in origins if o is not None and o.axes == along.axes and o.size == total), None)
    target = target or s.even(total, along.axes)
    operands, at = [], 0
    for shape in s.shapes:
        n = shape[dim]
        part = _of_piece(target, at, n)
        operands.append((*cuts[:dim], part, *cuts[dim:]))
        at += n
    return Plan(operands, [(*cuts[:dim], target, *cuts[dim:])], s.params)


def _of_piece(cut: Cut, start: int, size: int) -> Cut:
    """The elements that each part has of the `size` elements from `start` on."""
    return cut.mapped(lambda at: np.clip(at - start, 0, size))


def dynamic_slice(s: Operation) -> Plan:
    shape, sizes = s.shapes[0], s.params["slice_sizes"]
    cuts = without(s.cuts[0], {d for d, n in enumerate(shape) if sizes[d] != n})
    return Plan([cuts, *map(uncut, s.shapes[1:])], [cuts], {**s.params, "slice_sizes": s.local(sizes, cuts)})


def dynamic_update_slice(s: Operation) -> Plan:
    shape, window = s.shapes[:2]
    cuts = without(s.cuts[0], {d for d, n in enumerate(shape) if window[d] != n})
    return Plan([cuts, cuts, *map(uncut, s.shapes[2:])], [cuts], s.params)


def static_update(s: Operation) -> Plan:
    """Each rank writes the elements inside its part of the operand.

    A whole operand is cut like a window that has at least half of its elements.
    """
    (shape, window), (cuts, of_window) = s.shapes, s.cuts
    if not any(cuts) and 2 * math.prod(window) >= math.prod(shape):
        pairs = zip(shape, window, of_window, strict=True)
        cuts = tuple(c if c is None or n == m else s.even(n, c.axes) for n, m, c in pairs)
    start, needed = list(s.params["start"]), []
    for d, (cut, first, n) in enumerate(zip(cuts, s.params["start"], window, strict=True)):
        if cut is None or n == shape[d]:
            needed.append(cut)
            continue
        needed.append(_of_piece(cut, first, n))
        start[d] = max(first - s.span(cut)[0], 0)
    return Plan([cuts, tuple(needed)], [cuts], {**s.params, "start": tuple(start)})


# ---------------------------------------------------------------- gather and scatter


def gather(s: Operation) -> Plan:
    """Operand axes that slices take whole stay split, and so do the axes of the indices."""
    (shape, at), (operand, indices) = s.shapes, s.cuts
    numbers, sizes = s.params["dimension_numbers"], s.params["slice_sizes"]
    along = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    kept: list[Cut | None] = [
        c if i not in along and sizes[i] == shape[i] and i not in numbers.collapsed_slice_dims else None
        for i, c in enumerate(operand)
    ]
    used = {a for c in kept if c is not None for a in c.axes}
    batch: list[Cut | None] = []
    for j in range(len(at) - 1):
        pair = next((operand[i] for i, k in along.items() if k == j), None)
        cut = next((c for c in (pair, indices[j]) if c is not None and not used & set(c.axes)), None)
        used |= set(cut.axes) if cut is not None else set()
        batch.append(cut)
    for i, j in along.items():
        kept[i] = batch[j]
    gone = {*numbers.collapsed_slice_dims, *along}
    window = iter([c for i, c in enumerate(kept) if i not in gone])
    rest = iter(batch)
    ndim = len(s.results[0])
    out = tuple(next(window if d in numbers.offset_dims else rest) for d in range(ndim))
    local_sizes = tuple(
        1 if i in along else n if c is None else _length(s.span(c))
        for i, (n, c) in enumerate(zip(sizes, kept, strict=True))
    )
    return Plan([tuple(kept), (*batch, None)], [out], {**s.params, "slice_sizes": local_sizes})


def scatter(s: Operation) -> Plan:
    """Operand axes that updates cover whole stay split, and so do batch axes."""
    shape, at, new = s.shapes
    operand, indices, updates = s.cuts
    n = s.params["dimension_numbers"]
    batch_of_updates = [d for d in range(len(new)) if d not in n.update_window_dims]
    window = [i for i in range(len(shape)) if i not in n.inserted_window_dims and i not in n.operand_batching_dims]
    kept: list[Cut | None] = [None] * len(shape)
    upd: list[Cut | None] = [None] * len(new)
    idx: list[Cut | None] = [None] * len(at)
    used: set[Any] = set()
    for u, o in zip(n.update_window_dims, window, strict=True):
        cut = operand[o] or updates[u]
        if cut is not None and new[u] == shape[o] and not used & set(cut.axes):
            kept[o] = upd[u] = cut
            used |= set(cut.axes)
    for i, j in zip(n.operand_batching_dims, n.scatter_indices_batching_dims, strict=True):
        cut = operand[i] or indices[j] or updates[batch_of_updates[j]]
        if cut is not None and not used & set(cut.axes):
            kept[i] = idx[j] = upd[batch_of_updates[j]] = cut
            used |= set(cut.axes)
    return Plan([tuple(kept), tuple(idx), tuple(upd)], [tuple(kept)], s.params)


# ---------------------------------------------------------------- keys: what belongs to a key is made where the key is


def of_keys(s: Operation) -> Plan:
    """For operations that compute, for each key of an array, a result of fixed shape."""
    cuts = s.cuts[0]
    return Plan([cuts], [(*cuts, *uncut(s.results[0][len(cuts) :]))], s.params)


def random_wrap(s: Operation) -> Plan:
    """The words of a key stay together."""
    [shape], keys = s.shapes, s.cuts[0][: len(s.results[0])]
    return Plan([(*keys, *uncut(shape[len(keys) :]))], [keys], s.params)


def random_fold_in(s: Operation) -> Plan:
    return same(s, agreed(s.shapes, s.cuts, s.results[0]))
