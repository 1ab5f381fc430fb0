"""Each sharding rule against its primitive: cut at random, done on parts in NumPy, put together, compared."""

from __future__ import annotations

import zlib
from types import SimpleNamespace

import numpy as np
import pytest
from core.simulated_ranks import draw_cut, draw_cuts, is_partition, on_parts
from core.table_sharding import TABLE, Use, floats, static_update
from ops.table_linalg import ROWS
from quickly import one_in

import mpijax as jax
from mpijax.compiler.graph.normalize import static_update_p
from mpijax.core.base import provided
from mpijax.core.rules.default_rules import rule_of
from mpijax.core.rules.factors import elementwise, finished_over_ranks
from mpijax.core.rules.lowering import OverRanks
from mpijax.core.rules.registry import registry
from mpijax.core.rules.sharding_rules import Operation, Plan, balanced
from mpijax.core.sharding.cuts import Cut, even_cut, middle

MESHES = [{"i": 2}, {"i": 3}, {"i": 4}, {"i": 2, "j": 2}, {"i": 3, "j": 2}]
DRAWS = 40


def check(primitive, draw, seed: str, draws: int = DRAWS) -> int:
    """Draw, do on parts, compare; how often results came out cut."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    cut = 0
    for k in range(draws):
        sizes = MESHES[k % len(MESHES)]
        use: Use = draw(rng)
        words = use.key_axes or (0,) * len(use.arrays)
        cuts = [draw_cuts(rng, x.shape[: np.ndim(x) - n], sizes) for x, n in zip(use.arrays, words, strict=False)]
        arrays = [np.asarray(x) for x in use.arrays]
        results = on_parts(primitive, rule_of(primitive), use.params, arrays, cuts, sizes, use.key_axes)
        cut += any(c is not None for each in results or () for c in each)
    return cut


@pytest.mark.parametrize("name", one_in(3, TABLE))
def test_rule(name):
    assert check(registry[name], TABLE[name], name) > 0, "no result was ever cut"


def test_update_at_a_known_position():
    """The compiler makes it, so it has no reference of its own."""

    def reference(x, new, *, start):
        x = x.copy()
        x[tuple(slice(a, a + n) for a, n in zip(start, new.shape, strict=True))] = new
        return x

    stand_in = SimpleNamespace(sharding=static_update_p.sharding, reference=reference)
    assert check(stand_in, static_update, "static_update") > 0


def operands_of(name: str, fun, args) -> Use:
    """What a primitive gets within a function."""
    closed = jax.make_jaxpr(fun)(*args)

    def run(jaxpr, consts, args):
        values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*consts, *args), strict=True))
        for e in jaxpr.eqns:
            ins = [v.val if hasattr(v, "val") else values[v] for v in e.invars]
            if e.primitive.key == name:
                return Use([np.asarray(x) for x in ins], dict(e.params))
            inner = e.params.get("jaxpr")
            if inner is not None and (found := run(inner.jaxpr, inner.consts, ins)) is not None:
                return found
            outs = e.primitive.bind(*ins, **e.params)
            values |= zip(e.outvars, outs if e.primitive.multiple_results else [outs], strict=True)
        return None

    return run(closed.jaxpr, closed.consts, args)


@pytest.mark.parametrize("row", one_in(3, ROWS), ids=lambda row: row[0])
def test_linear_algebra_of_examples(row):
    _, name, fun, args, _ = row
    stacked = [np.stack([np.stack([np.asarray(x, np.int32 if np.asarray(x).dtype.kind == "i" else np.float32)] * 3)] * 4)
               for x in args]  # fmt: skip
    use = operands_of(name, jax.vmap(jax.vmap(fun)), [jax.numpy.asarray(x) for x in stacked])
    assert check(registry[name], lambda rng: use, name, draws=10) > 0


def test_a_plan_takes_the_name_of_a_reduction():
    assert Plan([], [], {}, ("i",), "max").op is OverRanks.MAX
    with pytest.raises(ValueError, match="'mean' is not a valid OverRanks"):
        finished_over_ranks("mean")


def test_every_rule_has_a_row():
    """Elementwise operations, reductions and running sums share a rule, so a few stand for all of them."""
    provided.define_primitives(lambda: False)
    tested = {*TABLE, *(row[1] for row in ROWS), "cholesky_update"}  # of one matrix, which is whole
    tested |= {"debug_callback", "debug_print"}  # without results; see tests/spmd/test_debugging.py
    own = [p for p in registry.values() if p.sharding not in (None, elementwise)]
    assert {p.key for p in own if not is_of_a_test(p)} <= tested
    assert {family(p) for p in registry.values() if p not in own} - {None} <= {family(registry[k]) for k in TABLE}


def family(primitive):
    """The factors that a primitive has by what it is to the compiler."""
    rule = rule_of(primitive)
    return None if rule is None else getattr(rule, "factors", rule)


def is_of_a_test(primitive) -> bool:
    """Whether another test of the same process defined it."""
    return type(primitive).__module__ == "mpijax.extend.primitive"


def rejoined(pieces, cuts, sizes, origins):
    concatenate = registry["concatenate"]
    return on_parts(concatenate, rule_of(concatenate), {"dimension": 0}, pieces, cuts, sizes, origins=origins)[0]


def test_pieces_of_any_arrays_are_put_together():
    rng = np.random.default_rng(3)
    for k in range(DRAWS):
        sizes = MESHES[k % len(MESHES)]
        x = floats(rng, *rng.integers(2, 9, 2))
        pieces = np.split(x, [int(rng.integers(1, len(x)))])
        cuts = [draw_cuts(rng, p.shape, sizes) for p in pieces]
        origins = [draw_cuts(rng, x.shape, sizes) if rng.random() < 0.8 else None for _ in pieces]
        rejoined(pieces, cuts, sizes, origins)


def test_a_roll_lies_as_its_operand():
    x = floats(np.random.default_rng(0), 8, 2)
    lies = Cut(("i",), ((0, 5), (5, 8)))
    cuts = [(lies.moved([(0, 3), (3, 6)]), None), (lies.moved([(0, 2), (2, 2)]), None)]
    assert rejoined([x[2:], x[:2]], cuts, {"i": 2}, [(lies, None)] * 2) == (lies, None)


def test_an_array_cut_over_other_mesh_axes_does_not_decide_where_pieces_go():
    x = floats(np.random.default_rng(0), 6, 2)
    i, j = Cut(("i",), ((0, 3), (3, 3))), Cut(("j",), ((0, 1), (1, 2)))
    other = Cut(("j",), ((0, 3), (3, 6)))
    out = rejoined([x[:3], x[3:]], [(i, j), (None, None)], {"i": 2, "j": 2}, [None, (other, None)])
    assert out == (Cut(("i",), ((0, 3), (3, 6))), j)


# ---------------------------------------------------------------- cuts chosen for several operands


def test_the_middle_of_cuts_and_balanced_ones_are_partitions():
    rng = np.random.default_rng(5)
    for _ in range(300):
        n, parts = int(rng.integers(1, 30)), int(rng.integers(2, 6))
        cuts = [draw_cut(rng, n, ("i",), parts) for _ in range(rng.integers(1, 4))]
        found = middle(cuts)
        assert is_partition(found, n) and is_partition(balanced(found), n)
        for k, (low, _) in enumerate(found.spans):
            lows = [c.spans[k][0] for c in cuts]
            assert min(lows) <= low <= max(lows)


def test_a_stencil_is_computed_in_the_middle():
    """Slices of 12 elements on 3 ranks, shifted by one: the halo is one element on each side."""
    spans = [((0, 4), (4, 8), (8, 10)), ((0, 3), (3, 7), (7, 10)), ((0, 2), (2, 6), (6, 10))]
    assert middle([Cut(("i",), s) for s in spans]).spans == ((0, 3), (3, 7), (7, 10))


def test_slices_come_to_where_a_computed_value_lies():
    """Whichever operand is first: moving the computed value would be one more message."""
    slice_, computed = (Cut(("i",), s) for s in (((0, 4), (4, 10)), ((0, 5), (5, 10))))
    for cuts, origins in (([slice_, computed], [(even_cut(12, ("i",), 2),), None]), ([computed, slice_], [None, (even_cut(12, ("i",), 2),)])):
        s = Operation({}, [(10,)] * 2, [(10,)], [(c,) for c in cuts], {"i": 2}, {"i": 0}, origins)
        assert rule_of(registry["add"])(s).results == [(computed,)]


def test_blocks_much_wider_than_their_share_are_balanced():
    lopsided = Cut(("i",), ((0, 90), (90, 95), (95, 100)))
    assert balanced(lopsided).spans == ((0, 34), (34, 68), (68, 100))
    nearly = Cut(("i",), ((0, 33), (33, 66), (66, 100)))
    assert balanced(nearly) == nearly
