"""Ranks in one process: an operation is done on parts, as its sharding rule says, and put together, all in NumPy."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mpijax.core.rules.sharding_rules import Operation, Plan
from mpijax.core.sharding.cuts import Cut, Cuts, even_cut, part_number

Place = dict[str, int]
COMBINE = {
    "sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum, "band": np.bitwise_and,
    "bor": np.bitwise_or, "bxor": np.bitwise_xor,
}  # fmt: skip


def places(sizes: dict[str, int]) -> Iterator[Place]:
    """The coordinates of all ranks."""
    for at in itertools.product(*map(range, sizes.values())):
        yield dict(zip(sizes, at, strict=True))


def key_of(place: Place) -> tuple:
    return tuple(place.values())


# ---------------------------------------------------------------- cuts drawn at random


def draw_cuts(rng, shape: Sequence[int], sizes: dict[str, int]) -> Cuts:
    """Cuts over mesh axes in random order: even blocks mostly, else blocks of any size, some of them empty."""
    free = list(rng.permutation(list(sizes)))
    cuts: list[Cut | None] = [None] * len(shape)
    for d in rng.permutation(len(shape)):
        if not free or rng.random() < 0.3:
            continue
        axes = tuple(map(str, free[: 1 + (rng.random() < 0.2)]))
        free = free[len(axes) :]
        cuts[d] = draw_cut(rng, shape[d], axes, math.prod(sizes[a] for a in axes))
    return tuple(cuts)


def draw_cut(rng, size: int, axes: tuple[str, ...], parts: int) -> Cut:
    if rng.random() < 0.6:
        return even_cut(size, axes, parts)
    borders = [0, *sorted(int(b) for b in rng.integers(0, size + 1, parts - 1)), size]
    return Cut(axes, tuple(itertools.pairwise(borders)))


# ---------------------------------------------------------------- parts


def part(x: np.ndarray, cuts: Cuts, place: Place, sizes: dict[str, int]) -> np.ndarray:
    """The part that the rank at `place` has. An array may have more axes than cuts: the words of a key."""
    spans = [slice(None) if c is None else slice(*c.spans[part_number(c.axes, sizes, place)]) for c in cuts]
    return x[(*spans, ...)]


def put_together(parts: dict[tuple, np.ndarray], cuts: Cuts, sizes, like: np.ndarray) -> np.ndarray:
    """The array of all parts, each of which must have the shape that its cut says; ranks with the same part agree."""
    out = np.zeros(like.shape, like.dtype)
    written = np.zeros(like.shape, int)
    for place in places(sizes):
        here, found = part(out, cuts, place, sizes), parts[key_of(place)]
        assert found.shape == here.shape, f"a part of shape {found.shape}, its cut says {here.shape}"
        count = part(written, cuts, place, sizes)
        if here.size and count.min() > 0:
            np.testing.assert_allclose(found, here, rtol=1e-4, atol=1e-4)
        here[...] = found
        count += 1
    assert written.size == 0 or written.min() > 0, "elements that no rank has"
    return out


def is_partition(cut: Cut, size: int) -> bool:
    """Whether spans follow each other from 0 to the end."""
    borders = [b for span in cut.spans for b in span]
    return borders[0] == 0 and borders[-1] == size and borders == sorted(borders) and borders[1:-1:2] == borders[2::2]


# ---------------------------------------------------------------- operations on parts


def on_parts(primitive, rule, params, arrays, cuts, sizes, key_axes=(), origins=()) -> list[Cuts] | None:
    """Do an operation on parts and compare with the same on whole arrays; how the results come out cut.

    key_axes: how many last axes of each array and result, in that order, are the words of a key. None where the rule
    needs whole operands, or other operations instead.
    """
    want = _many(primitive.reference(*arrays, **params))
    key_axes = key_axes or (0,) * (len(arrays) + len(want))
    shapes = [x.shape[: len(c)] for x, c in zip(arrays, cuts, strict=True)]
    results = [w.shape[: w.ndim - k] for w, k in zip(want, key_axes[len(arrays) :], strict=True)]
    plans: dict[tuple, Plan] = {
        key_of(place): rule(Operation(params, shapes, results, cuts, sizes, place, origins)) for place in places(sizes)
    }
    first = next(iter(plans.values()))
    if first is None:
        assert not any(plans.values()), "only some ranks have a plan"
        return None
    for plan in plans.values():
        agreed = (plan.operands, plan.results, plan.over, plan.op) == (first.operands, first.results, first.over, first.op)
        assert agreed, "ranks have different plans"
    if first.whole is not None:  # the rules of other operations apply
        return None
    _check(first, shapes, results)
    if first.program is not None:  # it may communicate: the tests over ranks run it
        return list(first.results)
    outs: dict[tuple, list | None] = {}
    for place in places(sizes):
        plan = plans[key_of(place)]
        mine = [part(x, c, place, sizes) for x, c in zip(arrays, plan.operands, strict=True)]
        empty = [part(np.empty_like(w), c, place, sizes) for w, c in zip(want, plan.results, strict=True)]
        if plan.over and any(x.size == 0 for x in mine):  # NumPy does not reduce nothing: such a rank has no share
            outs[key_of(place)] = empty if all(e.size == 0 for e in empty) else None
        else:
            outs[key_of(place)] = _many(primitive.reference(*mine, **plan.params))
    outs = _combined(outs, first, sizes)
    for k, (w, c) in enumerate(zip(want, first.results, strict=True)):
        got = put_together({p: o[k] for p, o in outs.items()}, c, sizes, w)
        assert got.dtype == w.dtype
        np.testing.assert_allclose(got, w, rtol=1e-3, atol=1e-3)
    return list(first.results)


def _many(out: Any) -> list[np.ndarray]:
    return [np.asarray(o) for o in out] if isinstance(out, (list, tuple)) else [np.asarray(out)]


def _check(plan: Plan, shapes, results) -> None:
    for shape, cuts in [*zip(shapes, plan.operands, strict=True), *zip(results, plan.results, strict=True)]:
        assert len(cuts) == len(shape), f"{len(cuts)} cuts of {shape}"
        used = [a for c in cuts if c is not None for a in c.axes]
        assert len(used) == len(set(used)), f"a mesh axis cuts two array axes: {cuts}"
        for n, cut in zip(shape, cuts, strict=True):
            assert cut is None or all(0 <= a <= b <= n for a, b in cut.spans), f"{cut} of {n} elements"
    for shape, cuts in zip(results, plan.results, strict=True):
        for n, cut in zip(shape, cuts, strict=True):
            assert cut is None or is_partition(cut, n), f"{cut} is not a partition of {n} elements"


def _combined(outs: dict, plan: Plan, sizes: dict[str, int]) -> dict:
    """What ranks have after partial results were combined over mesh axes."""
    if not plan.over:
        return outs
    groups: dict[tuple, list] = {}
    for place in places(sizes):
        groups.setdefault(tuple(i for a, i in place.items() if a not in plan.over), []).append(key_of(place))
    found = dict(outs)
    for members in groups.values():
        shares = [outs[p] for p in members if outs[p] is not None]
        total = [functools.reduce(COMBINE[plan.op], each) for each in zip(*shares, strict=True)]
        found |= dict.fromkeys(members, total)
    return found
