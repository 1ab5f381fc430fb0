"""Sharding rules of window operations: convolutions, pooling. Split axes are read with halos."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.factors import Factor, FactorKind, FactorRule, free, planned, reduced, whole
from mpijax.core.rules.sharding_rules import Operation, Plan
from mpijax.core.sharding.cuts import Cut

Maybe = Cut | None
Pads = tuple[int, int]


@dataclass(frozen=True)
class Windows:
    """An axis that is padded and read by windows of length `reach` every `step`. low: the padding before it."""

    step: int
    reach: int
    low: int

    def cuts(self, s: Operation, factor: Factor, have: Sequence[Maybe]) -> tuple[Sequence[Maybe], Maybe]:
        cut, at, [to] = have[0], factor.operands[0], factor.results
        assert at is not None and to is not None
        n, m = s.shapes[0][at], s.results[0][to]
        stays_whole = (None,) * len(have), None
        if cut is None or m < cut.parts or cut.has_empty_parts:
            return stays_whole
        starts = np.clip(-((self.reach // 2 - self.low - cut.lows) // self.step), 0, m)
        starts[0] = 0
        out = Cut.between(cut.axes, starts, np.append(starts[1:], m))
        if out.has_empty_parts:
            out = s.even(m, cut.axes)
            if out.has_empty_parts:
                return stays_whole
        operand = self.wanted(out).mapped(lambda at: np.clip(at, 0, n))
        return stays_whole if operand.narrowest <= 0 else ((operand, *have[1:]), out)

    def wanted(self, out: Cut) -> Cut:
        """The positions that windows read, in the padding too."""
        return Cut.between(
            out.axes, out.lows * self.step - self.low, (out.highs - 1) * self.step - self.low + self.reach
        )

    def local_padding(self, s: Operation, operand: Cut, out: Cut) -> Pads:
        """The padding of this rank's part."""
        (a, b), (first, end) = s.span(self.wanted(out)), s.span(operand)
        return first - a, b - end


def _reduce_window(s: Operation) -> list[Factor]:
    """One operand; every axis may be split."""
    p = s.params
    rows = zip(
        p["window_dimensions"], p["window_strides"], p["padding"], p["base_dilation"], p["window_dilation"], strict=True
    )
    found = []
    for d, (size, step, pads, base, dilation) in enumerate(rows):
        if (size, step, tuple(pads), base) == (1, 1, (0, 0), 1):
            found.append(free((d,), (d,)))
        elif base != 1:
            found.append(whole((d,), (d,), FactorKind.FREE))
        else:
            found.append(free((d,), (d,), Windows(step, (size - 1) * dilation + 1, pads[0])))
    return found


def _local_pads(s: Operation, plan: Plan) -> Mapping[str, Any]:
    padding = list(map(tuple, s.params["padding"]))
    for d, f in enumerate(_reduce_window(s)):
        operand, out = plan.operands[0][d], plan.results[0][d]
        if isinstance(f.axis_map, Windows) and operand is not None and out is not None:
            padding[d] = f.axis_map.local_padding(s, operand, out)
    return {**s.params, "padding": tuple(padding)}


reduce_window = FactorRule(_reduce_window, local=_local_pads)


def _convolution(s: Operation) -> list[Factor]:
    """Batch, output features and space stay split. Partial products over split input features are summed over ranks.

    Of grouped convolutions, only the batch stays split.
    """
    p = s.params
    (batch, feature, *space), (out_feature, in_feature, *window), (ob, of, *osp) = p["dimension_numbers"]
    grouped = p["feature_group_count"] != 1 or p["batch_group_count"] != 1
    found = [free((batch, None), (ob,))]
    if not grouped:
        found.append(reduced((feature, in_feature), explicit=FactorKind.WHOLE))
    for k, (d, w, o) in enumerate(zip(space, window, osp, strict=True)):
        if grouped or p["lhs_dilation"][k] != 1:
            found.append(whole((d, None), (o,), FactorKind.FREE))
        else:
            reach = (s.shapes[1][w] - 1) * p["rhs_dilation"][k] + 1
            found.append(free((d, None), (o,), Windows(p["window_strides"][k], reach, p["padding"][k][0])))
    return found if grouped else [*found, free((None, out_feature), (of,), explicit=FactorKind.WHOLE)]


def _chosen_for_convolution(s: Operation, factors: Sequence[Factor]) -> Plan | None:
    """None if groups need whole operands: the parts of the convolution are then computed one by one."""
    p, batch = s.params, s.cuts[0][s.params["dimension_numbers"][0][0]]
    grouped = p["feature_group_count"] != 1 or p["batch_group_count"] != 1
    return None if grouped and (batch is None or p["batch_group_count"] != 1) else planned(s, factors)


def _local_convolution(s: Operation, plan: Plan) -> Mapping[str, Any]:
    padding = list(map(tuple, s.params["padding"]))
    space = s.params["dimension_numbers"][0][2:]
    for f in _convolution(s):
        if isinstance(f.axis_map, Windows):
            [d, _], [o] = f.operands, f.results
            assert d is not None and o is not None
            operand, out = plan.operands[0][d], plan.results[0][o]
            if operand is not None and out is not None:
                padding[space.index(d)] = f.axis_map.local_padding(s, operand, out)
    return {**s.params, "padding": tuple(padding)}


def _not_convolved(s: Any, f: Factor) -> str:
    return "Please specify the output sharding via `out_sharding` parameter of `conv_general_dilated`"


conv_general_dilated = FactorRule(
    _convolution, local=_local_convolution, choose=_chosen_for_convolution, refusal=_not_convolved
)


def _examples_apart(s: Operation) -> list[Factor]:
    """Operands and results with the same number of axes. Axes that the window does not span stay split."""
    p = s.params
    n, m, ones = len(s.shapes), len(s.results), (1,) * len(s.shapes[0])
    names = ("window_dimensions", "window_strides", "base_dilation", "window_dilation")
    columns = [p.get(name, ones) for name in names]
    apart = [all(c[d] == 1 for c in columns) and tuple(p["padding"][d]) == (0, 0) for d in range(len(ones))]
    return [
        free((d,) * n, (d,) * m) if alone else whole((d,) * n, (d,) * m, FactorKind.FREE)
        for d, alone in enumerate(apart)
    ]


examples_apart = FactorRule(_examples_apart)
