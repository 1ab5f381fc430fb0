"""Which operations can be done shard by shard: for each, how its operands must be split and how its results are.

A split is a tuple with, for each array axis, the mesh axes it is divided over. A rule sees whole shapes and the
splits that operands have, and says which ones they must have; whoever follows it moves them there. An operation
without a rule, or a rule that returns None, needs whole operands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mpijax.core.lowering import Cumulative, Elementwise, Library, Reduction, Structural

Split = tuple[tuple[Any, ...], ...]

# Reductions that can be finished over ranks, as MPI names them.
OVER_RANKS = {"add": "sum", "mul": "prod", "max": "max", "min": "min", "and": "band", "or": "bor", "xor": "bxor"}


@dataclass
class Operation:
    """An operation as rules see it: global shapes, the splits of the operands, sizes of mesh axes."""

    params: Mapping[str, Any]
    shapes: list[tuple[int, ...]]
    out_shapes: list[tuple[int, ...]]
    splits: list[Split]
    sizes: Mapping[Any, int]

    def local(self, shape: Sequence[int], split: Split) -> tuple[int, ...]:
        return local_shape(shape, split, self.sizes)


@dataclass
class Plan:
    """Splits of operands and results, parameters for shards, and what is left to do over ranks.

    over: mesh axes over which the result is combined with `op`.
    """

    operands: list[Split]
    results: list[Split]
    params: Mapping[str, Any]
    over: tuple[Any, ...] = ()
    op: str = "sum"


def whole(shape: Sequence[int]) -> Split:
    return ((),) * len(shape)


def local_shape(shape: Sequence[int], split: Split, sizes: Mapping[Any, int]) -> tuple[int, ...]:
    """The shape of a shard."""
    return tuple(n // math.prod(sizes[a] for a in axes) for n, axes in zip(shape, split, strict=True))


def without(split: Split, dims) -> Split:
    return tuple(() if d in dims else axes for d, axes in enumerate(split))


def axes_in(split: Split) -> tuple[Any, ...]:
    return tuple(a for axes in split for a in axes)


def rule_of(primitive) -> Callable[[Operation], Plan | None] | None:
    """The rule for an operation, from what it is to the compiler."""
    lower = primitive.lower
    if isinstance(lower, Elementwise):
        return _elementwise
    if isinstance(lower, Reduction):
        return _finished_over_ranks(OVER_RANKS[lower.op]) if lower.op in OVER_RANKS else _along_axes
    if isinstance(lower, Cumulative):
        return lambda s: _same(s, without(s.splits[0], {s.params["axis"] % len(s.shapes[0])}))
    if isinstance(lower, Library) and lower.kind == "dot_general":
        return _dot_general
    if isinstance(lower, Structural):
        return _STRUCTURAL.get(lower.kind)
    return None


# ---------------------------------------------------------------- element by element, reductions


def _agreed(shapes, splits, out_shape) -> Split:
    """One split for operands that are read together: of each axis the first one there is, no mesh axis twice."""
    used: set[Any] = set()
    out = []
    for d, n in enumerate(out_shape):
        candidates = [s[d] for shape, s in zip(shapes, splits, strict=True) if len(shape) > d and shape[d] == n]
        axes = next((a for a in candidates if a and not used & set(a)), ())
        used |= set(axes)
        out.append(axes)
    return tuple(out)


def _elementwise(s: Operation) -> Plan | None:
    shape = s.out_shapes[0]
    if any(o != shape for o in s.out_shapes) or any(len(i) not in (0, len(shape)) for i in s.shapes):
        return None
    split = _agreed(s.shapes, s.splits, shape)
    operands = [
        tuple(axes if n == m else () for n, m, axes in zip(i, shape, split, strict=True)) if i else ()
        for i in s.shapes
    ]
    return Plan(operands, [split] * len(s.out_shapes), s.params)


def _same(s: Operation, split: Split) -> Plan:
    return Plan([split] * len(s.shapes), [split] * len(s.out_shapes), s.params)


def _kept(split: Split, gone) -> Split:
    return tuple(axes for d, axes in enumerate(split) if d not in gone)


def _finished_over_ranks(op: str) -> Callable[[Operation], Plan]:
    """Each rank reduces what it has; over the axes that were split the partial results are combined."""

    def rule(s: Operation) -> Plan:
        [split], gone = s.splits, set(s.params["axes"])
        over = tuple(a for d in sorted(gone) for a in split[d])
        return Plan([split], [_kept(split, gone)], s.params, over, op)

    return rule


def _along_axes(s: Operation) -> Plan:
    """Positions of extrema count along whole axes."""
    gone = set(s.params["axes"])
    split = without(s.splits[0], gone)
    return Plan([split], [_kept(split, gone)], s.params)


# ---------------------------------------------------------------- products


def _dot_general(s: Operation) -> Plan:
    """Batch axes stay split; over split contracted axes products are summed; rows and columns stay split."""
    (lc, rc), (lb, rb) = s.params["dimension_numbers"]
    left, right = s.splits
    used: set[Any] = set()

    def take(*candidates):
        axes = next((a for a in candidates if a and not used & set(a)), ())
        used.update(axes)
        return axes

    batch = [take(left[i], right[j]) for i, j in zip(lb, rb, strict=True)]
    contracted = [take(left[i], right[j]) for i, j in zip(lc, rc, strict=True)]
    rows = [take(left[i]) if i not in (*lb, *lc) else () for i in range(len(left))]
    columns = [take(right[j]) if j not in (*rb, *rc) else () for j in range(len(right))]
    for i, axes in zip((*lb, *lc), (*batch, *contracted), strict=True):
        rows[i] = axes
    for j, axes in zip((*rb, *rc), (*batch, *contracted), strict=True):
        columns[j] = axes
    free = [rows[i] for i in range(len(left)) if i not in (*lb, *lc)]
    free += [columns[j] for j in range(len(right)) if j not in (*rb, *rc)]
    over = tuple(a for axes in contracted for a in axes)
    return Plan([tuple(rows), tuple(columns)], [(*batch, *free)], s.params, over)


# ---------------------------------------------------------------- shapes


def _transpose(s: Operation) -> Plan:
    return Plan(s.splits, [tuple(s.splits[0][i] for i in s.params["permutation"])], s.params)


def _broadcast_in_dim(s: Operation) -> Plan:
    [shape], [out_shape], dims = s.shapes, s.out_shapes, s.params["broadcast_dimensions"]
    split = tuple(axes if n == out_shape[d] else () for n, d, axes in zip(shape, dims, s.splits[0], strict=True))
    placed = dict(zip(dims, split, strict=True))
    out = tuple(placed.get(d, ()) for d in range(len(out_shape)))
    return Plan([split], [out], {**s.params, "shape": s.local(out_shape, out)})


def _squeeze(s: Operation) -> Plan:
    gone = {d % len(s.shapes[0]) for d in s.params["dimensions"]}
    return Plan(s.splits, [_kept(s.splits[0], gone)], s.params)


def _reshape(s: Operation) -> Plan | None:
    """Axes that are split must come first among those they are merged with or cut into."""
    if s.params["dimensions"] is not None:
        return None
    [shape], [out_shape] = s.shapes, s.out_shapes
    split: list[tuple] = [()] * len(shape)
    out: list[tuple] = [()] * len(out_shape)
    for ins, outs in factors(shape, out_shape):
        first = next((i for i in ins if shape[i] != 1), None)
        target = next((j for j in outs if out_shape[j] != 1), None)
        if first is None or target is None:
            continue
        axes = s.splits[0][first]
        if axes and out_shape[target] % math.prod(s.sizes[a] for a in axes) == 0:
            split[first] = out[target] = axes
    return Plan([tuple(split)], [tuple(out)], {**s.params, "new_sizes": s.local(out_shape, tuple(out))})


def factors(shape, out_shape):
    """Pairs of lists of axes, of the operand and of the result, that have equally many elements."""
    i = j = 0
    while i < len(shape) or j < len(out_shape):
        ins, outs, a, b = [], [], 1, 1
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


def _slice(s: Operation) -> Plan:
    [shape] = s.shapes
    starts, limits = list(s.params["start_indices"]), list(s.params["limit_indices"])
    strides = s.params["strides"] or (1,) * len(shape)
    cut = {d for d, n in enumerate(shape) if (starts[d], limits[d], strides[d]) != (0, n, 1)}
    split = without(s.splits[0], cut)
    own = s.local(shape, split)
    limits = [limits[d] if d in cut else own[d] for d in range(len(shape))]
    return Plan([split], [split], {**s.params, "limit_indices": tuple(limits)})


def _dynamic_slice(s: Operation) -> Plan:
    shape, sizes = s.shapes[0], s.params["slice_sizes"]
    split = without(s.splits[0], {d for d, n in enumerate(shape) if sizes[d] != n})
    params = {**s.params, "slice_sizes": s.local(sizes, split)}
    return Plan([split, *map(whole, s.shapes[1:])], [split], params)


def _rev(s: Operation) -> Plan:
    return _same(s, without(s.splits[0], set(s.params["dimensions"])))


def _concatenate(s: Operation) -> Plan:
    dim = s.params["dimension"]
    outer = tuple(n for d, n in enumerate(s.out_shapes[0]) if d != dim)
    others = [_kept(split, {dim}) for split in s.splits]
    split = _agreed([outer] * len(others), others, outer)
    return _same(s, (*split[:dim], (), *split[dim:]))


def _pad(s: Operation) -> Plan:
    padded = {d for d, widths in enumerate(s.params["padding_config"]) if any(widths)}
    split = without(s.splits[0], padded)
    return Plan([split, ()], [split], s.params)


# ---------------------------------------------------------------- keys: what belongs to a key is made where the key is


def _of_keys(s: Operation) -> Plan:
    """Results, for each key of an array, of a shape of their own."""
    split = s.splits[0]
    return Plan([split], [(*split, *whole(s.out_shapes[0][len(split) :]))], s.params)


def _random_wrap(s: Operation) -> Plan:
    """The words of a key stay together."""
    [shape], keys = s.shapes, s.splits[0][: len(s.out_shapes[0])]
    return Plan([(*keys, *whole(shape[len(keys) :]))], [keys], s.params)


def _random_fold_in(s: Operation) -> Plan:
    return _same(s, _agreed(s.shapes, s.splits, s.out_shapes[0]))


_STRUCTURAL: dict[str, Callable[[Operation], Plan | None]] = {
    "broadcast_in_dim": _broadcast_in_dim,
    "concatenate": _concatenate,
    "copy": lambda s: _same(s, s.splits[0]),
    "copy_p": lambda s: _same(s, s.splits[0]),
    "dynamic_slice": _dynamic_slice,
    "pad": _pad,
    "random_bits": _of_keys,
    "random_fold_in": _random_fold_in,
    "random_seed": _of_keys,
    "random_split": _of_keys,
    "random_unwrap": _of_keys,
    "random_wrap": _random_wrap,
    "reshape": _reshape,
    "rev": _rev,
    "slice": _slice,
    "squeeze": _squeeze,
    "transpose": _transpose,
}
