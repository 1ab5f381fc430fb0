"""Arrays from one cut to another: the graphs of all ranks are built, and done together in NumPy."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from core.simulated_ranks import draw_cut, draw_cuts, key_of, part, places
from quickly import one_in

from mpijax.compiler.sharding import messages
from mpijax.compiler.sharding.blocks import Blocks
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.compiler.sharding.redistribute import Redistribution, SliceView, transfers
from mpijax.core.base.source import UNKNOWN
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import Cut, Cuts, even_cut, part_number
from mpijax.core.types.avals import ShapedArray

MESHES = [{"i": 2}, {"i": 3}, {"i": 4}, {"i": 2, "j": 2}, {"i": 3, "j": 2}, {"i": 2, "j": 2, "k": 2}]


# ---------------------------------------------------------------- what is sent in which round


def draw_need(rng, n: int, parts: int) -> list[tuple[int, int]]:
    """Spans that may overlap or leave elements out."""
    lows, highs = np.sort(rng.integers(0, n + 1, (2, parts)), 0)
    return [(int(a), int(b)) for a, b in zip(lows, highs, strict=True)]


def test_every_part_gets_what_it_needs_in_rounds_of_one_message_each():
    rng = np.random.default_rng(0)
    for _ in range(500):
        n, parts = int(rng.integers(1, 20)), int(rng.integers(1, 7))
        cut, need = draw_cut(rng, n, ("i",), parts), draw_need(rng, n, parts)
        have = cut.spans
        has = [set(range(*span)) for span in have]
        sent = 0
        for round_ in transfers(cut, cut.moved(need)):
            assert len(round_) and len({t.sender for t in round_}) == len(round_) == len({t.receiver for t in round_})
            for t in round_:
                assert t.sender != t.receiver and have[t.sender][0] <= t.low < t.high <= have[t.sender][1]
                has[t.receiver] |= set(range(t.low, t.high))
                sent += t.high - t.low
        missing = [set(range(*need[k])) - set(range(*have[k])) for k in range(parts)]
        assert all(set(range(*span)) <= found for span, found in zip(need, has, strict=True))
        assert sent == sum(map(len, missing))  # and nothing else


def test_neighbours_come_first():
    have = even_cut(16, ("i",), 4)
    halos = have.moved((max(a - 1, 0), min(b + 1, 16)) for a, b in have.spans)
    rounds = transfers(have, halos)
    assert [[(t.sender, t.receiver) for t in r] for r in rounds] == [[(0, 1), (1, 2), (2, 3)], [(1, 0), (2, 1), (3, 2)]]
    assert transfers(have, have) == []


def test_as_few_rounds_as_the_busiest_part_has_messages():
    """Reversals and strides, whose messages go over all distances."""
    have = even_cut(64, ("i",), 16)
    reversed_ = have.moved((64 - b, 64 - a) for a, b in have.spans)
    assert [len(r) for r in transfers(have, reversed_)] == [16]
    halves = have.mapped(lambda at: at // 2)  # x[::2] as it lies
    assert len(transfers(halves, even_cut(32, ("i",), 16))) == 0
    lies = have.moved([(min(a, 32), min(b, 32)) for a, b in have.spans])
    rounds = transfers(lies, even_cut(32, ("i",), 16))
    assert [len(r) for r in rounds] == [7, 8] or [len(r) for r in rounds] == [8, 7]


# ---------------------------------------------------------------- graphs of several ranks


@dataclass(frozen=True)
class Mesh:
    """A mesh seen from the rank at `place`; equal on all of them."""

    sizes: tuple
    place: tuple = field(compare=False)
    is_explicit = False

    @property
    def shape(self) -> dict[str, int]:
        return dict(self.sizes)

    processes_along = shape

    def process_axes(self, axes: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(a for a in axes if self.shape[a] > 1)

    @property
    def axis_names(self) -> tuple[str, ...]:
        return tuple(self.shape)

    def coordinates(self) -> tuple:
        return self.place


@dataclass(eq=False)
class Value:
    aval: ShapedArray
    scalar: Any = None
    producer: Any = None

    @property
    def element(self) -> np.dtype:
        return self.aval.dtype


class Graph:
    """As much of a graph builder as `Redistribution` uses: a list of operations."""

    def __init__(self):
        self.steps = []
        self.partitioner = Partitioner(self, None)

    def node(self, primitive, params, inputs, avals, source):
        outs = [Value(a) for a in avals]
        self.steps.append((primitive.key, params, inputs, outs[0]))
        return outs

    def because(self, why):
        return nullcontext()

    def literal(self, value, aval):
        return Value(aval, np.asarray(value, aval.dtype))


def record(p, primitive, params, inputs, avals, source, effects):
    assert p.in_body
    return p.graph.node(primitive, params, inputs, avals, source)


COMMUNICATION = {"all_gather", "all_to_all", "ppermute"}


def run(graphs: dict[tuple, Graph], values: dict[tuple, dict], sizes: dict[str, int]) -> int:
    """Do the operations of all ranks; how many communications there were."""
    at = dict.fromkeys(graphs, 0)
    done = 0
    while True:
        waiting = {}
        for rank, graph in graphs.items():
            while at[rank] < len(graph.steps) and graph.steps[at[rank]][0] not in COMMUNICATION:
                name, params, inputs, out = graph.steps[at[rank]]
                args = [v.scalar if v.scalar is not None else values[rank][id(v)] for v in inputs]
                values[rank][id(out)] = registry[name].reference(*args, **params)
                at[rank] += 1
            if at[rank] < len(graph.steps):
                waiting[rank] = graph.steps[at[rank]]
        if not waiting:
            return done
        assert len(waiting) == len(graphs), "some ranks communicate, others do not"
        assert len({(name, repr(params)) for name, params, _, _ in waiting.values()}) == 1, "ranks do different things"
        exchange(waiting, values, sizes)
        done += 1
        at = {rank: k + 1 for rank, k in at.items()}


def exchange(waiting: dict[tuple, tuple], values: dict, sizes: dict[str, int]) -> None:
    name, params, _, _ = next(iter(waiting.values()))
    axes = params["axis_name"]
    groups: dict[tuple, list] = {}
    for place in places(sizes):
        others = tuple(i for a, i in place.items() if a not in axes)
        groups.setdefault(others, []).append((part_number(axes, sizes, place), key_of(place)))
    for members in groups.values():
        ranks = [rank for _, rank in sorted(members)]
        inputs = [values[r][id(waiting[r][2][0])] for r in ranks]
        assert len({x.shape for x in inputs}) == 1, "operands of a collective differ in shape"
        if name == "all_gather":
            outs = [np.concatenate(inputs, params["all_gather_dimension"])] * len(ranks)
        elif name == "all_to_all":
            split = [np.split(x, len(ranks), params["split_axis"]) for x in inputs]
            outs = [np.concatenate([s[k] for s in split], params["concat_axis"]) for k in range(len(ranks))]
        else:
            source = {b: a for a, b in params["perm"]}
            outs = [inputs[source[k]] if k in source else np.zeros_like(inputs[0]) for k in range(len(ranks))]
        for rank, out in zip(ranks, outs, strict=True):
            result = waiting[rank][3]
            assert out.shape == result.aval.shape
            values[rank][id(result)] = out


def moved(x: np.ndarray, have: Cuts, want: Cuts, sizes: dict[str, int], view=None) -> int:
    """Move an array on all ranks, and compare; how many communications it took.

    view: the array of which `x` is a slice, its cuts, and where the slice begins and ends.
    """
    graphs, values, results = {}, {}, {}
    for place in places(sizes):
        rank, graph, mesh = key_of(place), Graph(), Mesh(tuple(sizes.items()), key_of(place))
        mine = part(x, have, place, sizes)
        v = Value(ShapedArray(mine.shape, x.dtype))
        graphs[rank], values[rank] = graph, {id(v): mine}
        if view is not None:
            whole, cuts, starts, ends = view
            source = Value(ShapedArray(part(whole, cuts, place, sizes).shape, x.dtype))
            values[rank][id(source)] = part(whole, cuts, place, sizes)
            graph.partitioner.views[v] = SliceView(source, Blocks(mesh, whole.shape, cuts), starts, ends)
        results[rank] = v, Redistribution(graph.partitioner, mesh, UNKNOWN).move(v, Blocks(mesh, x.shape, have), want)
    count = run(graphs, values, sizes)
    for place in places(sizes):
        _, out = results[key_of(place)]
        got = values[key_of(place)][id(out)]
        np.testing.assert_array_equal(got, part(x, want, place, sizes))
        assert got.shape == out.aval.shape
    return count


@pytest.fixture(autouse=True)
def nothing_is_sent(monkeypatch):
    monkeypatch.setattr(messages, "communicate", record)


def draw_wanted(rng, shape, sizes) -> Cuts:
    """Cuts of which some spans overlap or leave elements out."""
    cuts = draw_cuts(rng, shape, sizes)
    return tuple(
        c.moved(draw_need(rng, n, c.parts)) if c is not None and rng.random() < 0.5 else c
        for n, c in zip(shape, cuts, strict=True)
    )


@pytest.mark.parametrize("seed", one_in(2, range(8)))
@pytest.mark.one_in(2)
def test_any_cut_to_any_other(seed):
    rng = np.random.default_rng([seed, 7])
    for k in range(60):
        sizes = MESHES[k % len(MESHES)]
        shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 5, 8, 12], rng.integers(1, 4)))
        x = rng.integers(0, 1000, shape).astype(np.int32)
        have, want = draw_cuts(rng, shape, sizes), draw_wanted(rng, shape, sizes)
        if rng.random() < 0.5:  # the same mesh axes, as in stencils
            spans = [c and c.moved(draw_need(rng, n, c.parts)) for n, c in zip(shape, have, strict=True)]
            want = tuple(spans)
        assert moved(x, have, want, sizes) <= 3 * math.prod(sizes.values())


def test_slices_are_read_from_the_array_that_they_are_slices_of():
    rng = np.random.default_rng(11)
    for k in range(100):
        sizes = MESHES[k % len(MESHES)]
        whole = rng.integers(0, 1000, rng.integers(3, 12, 2)).astype(np.int32)
        cuts = draw_cuts(rng, whole.shape, sizes)
        starts = tuple(int(rng.integers(0, 3)) for _ in whole.shape)
        ends = tuple(n - int(rng.integers(0, 3 if a < n - 2 else 1)) for a, n in zip(starts, whole.shape, strict=True))
        x = whole[tuple(map(slice, starts, ends))]
        have = tuple(
            c and c.moved((min(max(a, low), high) - low, min(max(b, low), high) - low) for a, b in c.spans)
            for c, low, high in zip(cuts, starts, ends, strict=True)
        )
        want = tuple(c and c.moved(draw_need(rng, n, c.parts)) for n, c in zip(x.shape, have, strict=True))
        moved(x, have, want, sizes, (whole, cuts, starts, ends))


# ---------------------------------------------------------------- how much


X = np.arange(48, dtype=np.int32).reshape(8, 6)
ROWS = even_cut(8, ("i",), 4)
COLUMNS = even_cut(6, ("i",), 2)


@pytest.mark.parametrize(
    ("have", "want", "parts", "count"),
    [
        ((ROWS, None), (None, None), 4, 1),  # one allgather
        ((None, None), (ROWS, None), 4, 0),  # cutting is free
        ((even_cut(8, ("i",), 2), None), (None, COLUMNS), 2, 1),  # one alltoall
        ((ROWS, None), (ROWS.moved([(0, 3), (1, 5), (3, 7), (5, 8)]), None), 4, 2),  # halos on both sides
        ((ROWS, None), (ROWS.moved([(0, 3), (2, 5), (4, 7), (6, 8)]), None), 4, 1),  # on one
        ((ROWS, None), (ROWS.moved([(6, 8), (4, 6), (2, 4), (0, 2)]), None), 4, 1),  # reversed: each sends to one other
        ((Cut(("i",), ((0, 3), (3, 4), (4, 8))), None), (None, None), 3, 1),  # blocks of unequal size: padded
        ((Cut(("i",), ((0, 3), (3, 8))), None), (None, None), 2, 2),  # first made equal, where ranks divide the axis
    ],
)
def test_how_many_communications(have, want, parts, count):
    assert moved(X, have, want, {"i": parts}) == count


def test_a_2d_halo_takes_the_corners_along():
    """Rows first, then columns of what has come: no message goes to a diagonal neighbour. Two ranks swap in one round."""
    x = np.arange(64, dtype=np.int32).reshape(8, 8)
    have = (even_cut(8, ("i",), 2), even_cut(8, ("j",), 2))
    want = tuple(c.moved([(0, 5), (3, 8)]) for c in have)
    assert moved(x, have, want, {"i": 2, "j": 2}) == 2


def test_an_array_that_lies_as_wanted_is_left_alone():
    graph, mesh = Graph(), Mesh((("i", 2),), (0,))
    v = Value(ShapedArray((4, 6), np.dtype(np.int32)))
    have = Blocks(mesh, (8, 6), (even_cut(8, ("i",), 2), None))
    assert Redistribution(graph.partitioner, mesh, SimpleNamespace()).move(v, have, have.cuts) is v and not graph.steps
