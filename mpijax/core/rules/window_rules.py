"""Sharding rules of window operations: convolutions, pooling. Split axes are read with halos."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core.rules.sharding_rules import Operation, Plan, chosen
from mpijax.core.sharding.cuts import Cut, uncut

Pads = tuple[int, int]


def _window(s: Operation, cut: Cut | None, n: int, m: int, step: int, reach: int, pads: Pads):
    """The cuts of an axis of `n` elements that is padded and read by windows of length `reach` every `step`.

    m: the number of windows. Returns the operand's cut, the result's cut and this rank's padding. A whole axis stays
    whole.
    """
    if cut is None or m < cut.parts or cut.has_empty_parts:
        return None, None, pads
    low = pads[0]
    starts = np.clip(-((reach // 2 - low - cut.lows) // step), 0, m)
    starts[0] = 0
    out = Cut.between(cut.axes, starts, np.append(starts[1:], m))
    if out.has_empty_parts:
        out = s.even(m, cut.axes)
        if out.has_empty_parts:
            return None, None, pads
    wanted = Cut.between(cut.axes, out.lows * step - low, (out.highs - 1) * step - low + reach)
    operand = wanted.mapped(lambda at: np.clip(at, 0, n))
    if operand.narrowest <= 0:
        return None, None, pads
    (a, b), (first, end) = s.span(wanted), s.span(operand)
    return operand, out, (first - a, b - end)


def reduce_window(s: Operation) -> Plan:
    """One operand; every axis may be split."""
    p, [shape], [out_shape], [cuts] = s.params, s.shapes, s.results, s.cuts
    operand, out, padding = [], [], []
    rows = zip(
        shape, out_shape, cuts, p["window_dimensions"], p["window_strides"], p["padding"], p["base_dilation"],
        p["window_dilation"], strict=True,
    )  # fmt: skip
    for n, m, cut, size, step, pads, base, dilation in rows:
        if cut is not None and (size, step, tuple(pads), base) == (1, 1, (0, 0), 1):
            found: Any = (cut, cut, pads)
        elif base != 1:
            found = (None, None, pads)
        else:
            found = _window(s, cut, n, m, step, (size - 1) * dilation + 1, pads)
        operand.append(found[0])
        out.append(found[1])
        padding.append(tuple(found[2]))
    return Plan([tuple(operand)], [tuple(out)], {**p, "padding": tuple(padding)})


def conv_general_dilated(s: Operation) -> Plan | None:
    """Batch, output features and space stay split. Partial products over split input features are summed over ranks."""
    p = s.params
    if p["feature_group_count"] != 1 or p["batch_group_count"] != 1:
        return _batch_only(s)
    (left, right), ((batch, feature, *space), (out_feature, in_feature, *window), (ob, of, *osp)) = (
        s.cuts, p["dimension_numbers"]
    )  # fmt: skip
    used: set[Any] = set()
    lhs, rhs, out = [list(uncut(x)) for x in (*s.shapes, s.results[0])]
    lhs[batch] = out[ob] = chosen((left[batch],), used)
    lhs[feature] = rhs[in_feature] = chosen((left[feature], right[in_feature]), used)
    padding = list(p["padding"])
    for k, (d, w, o) in enumerate(zip(space, window, osp, strict=True)):
        if p["lhs_dilation"][k] != 1 or left[d] is None or used & set(left[d].axes):
            continue
        n, m, reach = s.shapes[0][d], s.results[0][o], (s.shapes[1][w] - 1) * p["rhs_dilation"][k] + 1
        lhs[d], out[o], padding[k] = _window(s, left[d], n, m, p["window_strides"][k], reach, padding[k])
        used |= set(left[d].axes) if lhs[d] is not None else set()
    rhs[out_feature] = out[of] = chosen((right[out_feature],), used)
    over = lhs[feature].axes if lhs[feature] is not None else ()
    params = {**p, "padding": tuple(map(tuple, padding))}
    return Plan([tuple(lhs), tuple(rhs)], [tuple(out)], params, over)


def _batch_only(s: Operation) -> Plan | None:
    (batch, *_), _, (ob, *_) = s.params["dimension_numbers"]
    cut = s.cuts[0][batch]
    if cut is None or s.params["batch_group_count"] != 1:
        return None
    lhs, out = list(uncut(s.shapes[0])), list(uncut(s.results[0]))
    lhs[batch] = out[ob] = cut
    return Plan([tuple(lhs), uncut(s.shapes[1])], [tuple(out)], s.params)


def examples_apart(s: Operation) -> Plan:
    """Operands and results with the same number of axes. Axes that the window does not span stay split."""
    p = s.params
    ones = (1,) * len(s.shapes[0])
    names = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    columns = [p.get(name, ones) for name in names]
    apart = [all(c[d] == 1 for c in columns) and tuple(p["padding"][d]) == (0, 0) for d in range(len(ones))]
    used: set[Any] = set()
    cuts = tuple(chosen((c[d] for c in s.cuts), used) if free else None for d, free in enumerate(apart))
    return Plan([cuts] * len(s.shapes), [cuts] * len(s.results), p)
