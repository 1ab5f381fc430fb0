"""Fourier transforms of arrays that are sharded over ranks.

A split axis that is transformed becomes whole on each rank, and another axis is split instead: one alltoall, which
sends `(n - 1) / n` of a shard. If all axes are transformed, they are transformed one after the other. A long line
without another axis takes three alltoalls (Bailey, "FFTs in external or hierarchical memory", 1990).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import Cut, uncut
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.exchange import all_to_all
from mpijax.ops.elementwise import binary
from mpijax.ops.elementwise.convert import convert_element_type
from mpijax.ops.elementwise.transcendental import cos, sin
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.creation import broadcasted_iota
from mpijax.ops.shapes.reshape import reshape, transpose
from mpijax.transforms.batching import move_dim

# The numbers of `fft.FftType`.
_FFT, _IFFT, _RFFT, _IRFFT = range(4)


def plan(s: rules.Operation) -> rules.Plan | None:
    """The plan of `fft` for split axes that are transformed."""
    [shape], [cuts], [out] = s.shapes, s.cuts, s.results
    kind, count = int(s.params["fft_type"]), len(s.params["fft_lengths"])
    first = len(shape) - count
    if all(c is None for c in cuts[first:]):
        return None
    moved = rules.moved_off(s, shape, cuts, range(first, len(shape)))
    if moved is not None:
        return rules.Plan([moved], [moved], s.params)
    if count > 1:
        return rules.Plan([cuts], [uncut(out)], s.params, whole=_axis_by_axis(s.params, cuts[first:]))
    cut = cuts[-1]
    if config.values.mpijax_same_bits:
        return None
    if kind in (_FFT, _IFFT) and cut is not None and shape[-1] % cut.parts**2 == 0 and shape[-1] * cut.parts < 2**31:
        even = s.even(shape[-1], cut.axes)
        cuts = (*cuts[:-1], even)
        return rules.Plan([cuts], [cuts], s.params, program=_long_lines(s, kind, even))
    return None


def _axis_by_axis(params: Any, cuts: tuple[Cut | None, ...]) -> Callable[..., Any]:
    """Transforms one axis after the other, split axes last. For real data the last axis is the first, or the last."""
    kind, lengths = params["fft_type"], params["fft_lengths"]
    count = len(lengths)
    order = sorted(range(count), key=lambda d: (cuts[d] is not None, -d))
    inner = type(kind)(_IFFT if kind in (_IFFT, _IRFFT) else _FFT)
    if kind == _RFFT:
        order = [count - 1, *(d for d in order if d != count - 1)]
    elif kind == _IRFFT:
        order = [*(d for d in order if d != count - 1), count - 1]

    def transform(x: Any) -> list[Any]:
        last = typeof(x).ndim - 1
        for d in order:
            axis = last + 1 - count + d
            own = kind if d == count - 1 else inner
            x = registry["fft"].bind(move_dim(x, axis, last), fft_type=own, fft_lengths=(lengths[d],))
            x = move_dim(x, last, axis)
        return [x]

    return transform


def _long_lines(s: rules.Operation, kind: int, cut: Cut) -> Callable[..., Any]:
    """Treats lines as matrices with one row a rank: transforms columns, then rows, and interleaves the results."""
    ranks = cut.parts
    n = cut.size
    me = s.span(cut)[0] * ranks // n

    def program(x: Any) -> list[Any]:
        lead, share = typeof(x).shape[:-1], n // ranks // ranks

        def exchanged(rows: Any) -> Any:
            return all_to_all(rows, cut.axes, len(lead), len(lead), tiled=True)

        columns = exchanged(reshape(x, (*lead, ranks, share)))
        columns = move_dim(_line(move_dim(columns, len(lead), len(lead) + 1), kind), len(lead) + 1, len(lead))
        columns = binary.mul(columns, _twiddles(typeof(x), kind, (ranks, share), me * share, n))
        row = _line(reshape(exchanged(columns), (*lead, ranks * share)), kind)
        found = exchanged(reshape(row, (*lead, ranks, share)))
        order = (*range(len(lead)), len(lead) + 1, len(lead))
        return [reshape(transpose(found, order), (*lead, ranks * share))]

    return program


def _line(x: Any, kind: int) -> Any:
    fft = registry["fft"]
    return fft.bind(x, fft_type=kind, fft_lengths=(typeof(x).shape[-1],))


def _twiddles(aval: Any, kind: int, shape: tuple[int, int], start: int, n: int) -> Any:
    """exp(-+2 pi i j k / n) for rows j and columns k from `start` on, with leading axes of size 1 to match `aval`."""
    real = dtypes.finfo(aval.dtype).dtype
    j, k = (broadcasted_iota(np.dtype(np.int32), shape, d) for d in (0, 1))
    turns = binary.rem(binary.mul(j, binary.add(k, const_like(k, start))), const_like(k, n))
    angle = convert_element_type(turns, real)
    angle = binary.mul(angle, const_like(angle, (1 if kind == _IFFT else -1) * 2 * np.pi / n))
    factors = registry["complex"].bind(cos(angle), sin(angle))
    sizes = (*aval.shape[:-1], *shape)
    behind = (len(sizes) - 2, len(sizes) - 1)
    return registry["broadcast_in_dim"].bind(factors, shape=sizes, broadcast_dimensions=behind, sharding=None)
