"""Rules of operations on one device. A multiplication with an addition counts as two operations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.programs.jaxpr import Jaxpr, nested_jaxprs
from mpijax.core.rules.lowering import Elementwise
from mpijax.experimental.roofline.results import RooflineResult, RooflineRuleContext, RooflineShape
from mpijax.ops.indexing.gather import GatherScatterMode


def _result(ctx: RooflineRuleContext) -> RooflineShape:
    return RooflineShape.from_aval(ctx.avals_out[0])


def elementwise(ctx: RooflineRuleContext, *operands: RooflineShape, **params: Any) -> RooflineResult:
    """One operation for each element."""
    out = _result(ctx)
    return RooflineResult(unfused_flops=out.size, unfused_hbm_bytes=sum(x.bytes for x in operands) + out.bytes)


def _converted(ctx: RooflineRuleContext, x: RooflineShape, **params: Any) -> RooflineResult:
    """A conversion computes nothing."""
    return RooflineResult()


def _selected(ctx: RooflineRuleContext, which: RooflineShape, *cases: RooflineShape, **params: Any) -> RooflineResult:
    """Of the cases, only what is selected is read: as many bytes as are written, which JAX leaves out."""
    return elementwise(ctx, which)


def _cumulative(per_element: int) -> Callable[..., RooflineResult]:
    def rule(ctx: RooflineRuleContext, x: RooflineShape, *, axis: int, **params: Any) -> RooflineResult:
        """As JAX counts it: the operations of one line."""
        return RooflineResult(unfused_flops=x.shape[axis] * per_element, unfused_hbm_bytes=x.bytes + _result(ctx).bytes)

    return rule


def _reduced(ctx: RooflineRuleContext, x: RooflineShape, *, axes: tuple[int, ...], **params: Any) -> RooflineResult:
    results = math.prod(n for i, n in enumerate(x.shape) if i not in axes)
    return RooflineResult(
        unfused_flops=x.size - results, unfused_hbm_bytes=x.dtype.itemsize * (x.size + results)
    )


def _product(
    ctx: RooflineRuleContext, lhs: RooflineShape, rhs: RooflineShape, *, dimension_numbers: Any, **params: Any
) -> RooflineResult:
    (contracted, _), (batch, _) = dimension_numbers
    flops = 2 * lhs.size * rhs.size // max(math.prod(lhs.shape[i] for i in (*contracted, *batch)), 1)
    left = 0 if ctx.pin_lhs_in_vmem else lhs.bytes + _result(ctx).bytes
    right = 0 if ctx.pin_rhs_in_vmem else rhs.bytes
    return RooflineResult(
        flops=flops, unfused_flops=flops, hbm_bytes=left + right, unfused_hbm_bytes=left + right
    )


def _convolution(
    ctx: RooflineRuleContext, lhs: RooflineShape, rhs: RooflineShape, *, dimension_numbers: Any, window_strides: Any,
    padding: Any, lhs_dilation: Any, rhs_dilation: Any, batch_group_count: int, **params: Any,
) -> RooflineResult:  # fmt: skip
    """Products with padding, and with the zeros between dilated elements, do not count."""
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    out = _result(ctx)
    products = lhs.shape[lhs_spec[0]] // batch_group_count * out.shape[out_spec[1]] * rhs.shape[rhs_spec[1]]
    where = zip(
        lhs_spec[2:], rhs_spec[2:], out_spec[2:], window_strides, padding, lhs_dilation, rhs_dilation, strict=True
    )
    for i, k, o, stride, (low, _), spread, step in where:
        products *= _pairs(lhs.shape[i], rhs.shape[k], out.shape[o], stride, low, spread, step)
    return RooflineResult(unfused_flops=2 * products, unfused_hbm_bytes=lhs.bytes + rhs.bytes + out.bytes)


def _pairs(inputs: int, kernel: int, outputs: int, stride: int, low: int, spread: int, step: int) -> int:
    """Pairs of an output o and a tap k for which `(o * stride - low + k * step) / spread` is an input."""
    begin = np.arange(kernel, dtype=np.int64) * step - low  # where the first output reads
    common = math.gcd(stride, spread)
    period = spread // common  # outputs from one to the next that reads an element
    first = -begin // common * pow(stride // common, -1, period) % period
    least = np.maximum(-(begin // stride), 0)  # the first output that reads no padding
    most = np.minimum(((inputs - 1) * spread - begin) // stride, outputs - 1)
    first += -(-np.maximum(least - first, 0) // period) * period
    return int((np.maximum((most - first) // period + 1, 0) * (begin % common == 0)).sum())


def _gathered(
    ctx: RooflineRuleContext, x: RooflineShape, indices: RooflineShape, *, mode: Any, **params: Any
) -> RooflineResult:
    """Reads what it writes, and the indices. Checking an index takes four operations, filling an element one."""
    out = _result(ctx)
    checked = GatherScatterMode.from_any(mode) == GatherScatterMode.FILL_OR_DROP
    return RooflineResult(
        unfused_flops=4 * indices.size + out.size if checked else 0,
        unfused_hbm_bytes=2 * out.bytes + indices.bytes,
    )


def _scattered(
    ctx: RooflineRuleContext, x: RooflineShape, indices: RooflineShape, updates: RooflineShape, *,
    update_jaxpr: Jaxpr | None = None, **params: Any,
) -> RooflineResult:  # fmt: skip
    """The operations of the update for each element, which is read twice and written."""
    found = [] if update_jaxpr is None else [eqn for inner in nested_jaxprs(update_jaxpr) for eqn in inner.eqns]
    each = sum(isinstance(eqn.primitive.lower, Elementwise) for eqn in found)
    return RooflineResult(
        unfused_flops=each * updates.size, unfused_hbm_bytes=3 * updates.bytes + indices.bytes
    )


def _called(ctx: RooflineRuleContext, *args: RooflineShape, **params: Any) -> RooflineResult:
    """A function of the host, which computes nothing on the device."""
    arrays = [a for a in (*ctx.avals_in, *ctx.avals_out) if not dtypes.issubdtype(a.dtype, dtypes.prng_key)]
    return RooflineResult(unfused_hbm_bytes=RooflineShape.total_bytes(arrays))


RULES: dict[str, Callable[..., RooflineResult]] = {
    "convert_element_type": _converted,
    "select_n": _selected,
    **dict.fromkeys(("cummax", "cummin", "cumprod", "cumsum"), _cumulative(1)),
    "cumlogsumexp": _cumulative(2),
    "reduce_sum": _reduced,
    "dot_general": _product,
    "conv_general_dilated": _convolution,
    "gather": _gathered,
    **dict.fromkeys(
        ("scatter", "scatter_apply", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max"),
        _scattered,
    ),
    **dict.fromkeys(("pure_callback", "io_callback", "debug_callback"), _called),
}  # fmt: skip
