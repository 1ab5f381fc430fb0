"""Plain jnp programs on arrays over ranks, as users write them: the same results as on one rank, and what is sent."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from quickly import one_in
from spmd.ranks import GRIDS, SIZE, P, assert_same, mesh_1d, mesh_2d, real

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.compiler.graph import flow
from mpijax.runtime.program.traffic import sent

pytestmark = pytest.mark.mpi

N = math.lcm(12, SIZE)
HALO = 2 if SIZE > 1 else 0  # messages between neighbours, up and down
CLOSE = {"rtol": 2e-5, "atol": 1e-5}


def placed(arrays, specs, mesh):
    return [jax.device_put(x, NamedSharding(mesh, s)) for x, s in zip(arrays, specs, strict=True)]


def kinds(f, *args) -> dict[str, int]:
    """How often a program communicates in one run, by kind; a body of `while` counts once."""
    found: Counter[str] = Counter()
    for step in sent(jax.jit(f).lower(*args).compiler_ir()):
        found[step.kind] += step.times
    return dict(found)


def check(f, arrays, specs, mesh=None, expected=None, **tolerance):
    """The same as on one rank. expected: how often it communicates, by kind."""
    args = placed(arrays, specs, mesh or mesh_1d())
    got = jax.tree.leaves(jax.jit(f)(*args))
    want = jax.tree.leaves(jax.jit(f)(*map(jnp.asarray, arrays)))
    for g, w in zip(got, want, strict=True):
        assert_same(g, w, **(tolerance or CLOSE))
    if expected is not None and SIZE > 1:
        assert kinds(f, *args) == expected


# ---------------------------------------------------------------- stencils


def heat(u):
    near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return u.at[1:-1, 1:-1].add(0.1 * (near - 4 * u[1:-1, 1:-1]))


def heat_by_roll(u):
    return u + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) - 2 * u)


def heat_by_pad(u):
    p = jnp.pad(u, 1, mode="edge")
    return u + 0.1 * (p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * u)


def wave(state):
    u, v = state
    v = v.at[1:-1].add(0.1 * (u[2:] - 2 * u[1:-1] + u[:-2]))
    return u + 0.1 * v, v


def turns(step, count=5):
    return lambda *u: lax.fori_loop(0, count, lambda _, u: step(u), u[0] if len(u) == 1 else u)


# The step, how many fields it has, how many messages a turn: each roll brings one row.
STENCILS = {"slices": (heat, 1, 2), "roll": (heat_by_roll, 1, 2), "wave": (wave, 2, 2)}


@pytest.mark.parametrize("name", STENCILS)
def test_stencils_in_loops(name):
    step, fields, messages = STENCILS[name]
    arrays = [real((N, 6), k) for k in range(fields)]
    check(turns(step), arrays, [P("i")] * fields, expected={"permute": 5 * messages})
    args = placed(arrays, [P("i")] * fields, mesh_1d())
    # In each iteration a row up and a row down.
    assert sum(s.total for s in sent(jax.jit(turns(step)).lower(*args).compiler_ir())) <= 5 * 2 * 6 * 4


def test_a_stencil_by_pad():
    """The edges that it repeats are single rows, of which every rank gets a copy."""
    x = real((8 * N, 6))
    check(turns(heat_by_pad), [x], [P("i")])
    steps = sent(jax.jit(turns(heat_by_pad)).lower(*placed([x], [P("i")], mesh_1d())).compiler_ir())
    assert all(s.received <= 2 * SIZE * 8 * 4 for s in steps)


@pytest.mark.parametrize("spec", [P("i"), P(None, "i")], ids=str)
def test_a_stencil_is_split_along_either_axis(spec):
    check(turns(heat), [real((N, N))], [spec], expected={"permute": 5 * HALO})


@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_corners_on_2d_meshes(grid):
    def nine(u):
        c = u[1:-1, 1:-1]
        corners = u[2:, 2:] + u[2:, :-2] + u[:-2, 2:] + u[:-2, :-2]
        return u.at[1:-1, 1:-1].set(0.5 * c + 0.125 * corners)

    messages = 6 if min(grid) > 1 else 2
    check(turns(nine), [real((N, 16))], [P("i", "j")], mesh_2d(grid), {"permute": 5 * messages})


def test_a_halo_as_wide_as_several_parts():
    check(lambda u: u[6:] - u[:-6], [real((N, 2))], [P("i")])
    check(lambda u: jnp.roll(u, 5, 0), [real((N, 2))], [P("i")])


def test_a_stencil_until_it_stands_still():
    """A norm over ranks decides in every iteration."""

    def solve(u):
        def step(state):
            u, _, k = state
            new = heat(u)
            return new, jnp.linalg.norm(new - u), k + 1

        return lax.while_loop(lambda s: (s[1] > 0.05) & (s[2] < 50), step, (u, jnp.float32(9), 0))

    check(solve, [real((N, N))], [P("i")])
    if SIZE > 1:
        counted = kinds(solve, *placed([real((N, N))], [P("i")], mesh_1d()))
        assert counted["permute"] == HALO and "allgather" not in counted


def test_a_stencil_with_sizes_that_ranks_do_not_divide_inside():
    """Differences of 256 rows are 255; they stay where they are."""
    n = 64 * SIZE

    def f(u):
        d = jnp.diff(u, axis=0)
        flux = jnp.tanh(d) * 0.1
        return u.at[1:-1].add(jnp.diff(flux, axis=0)), jnp.sum(d)

    check(f, [real((n, 3))], [P("i")])
    counted = kinds(f, *placed([real((n, 3))], [P("i")], mesh_1d()))
    assert "allgather" not in counted and counted.get("permute", 0) <= 3


def test_gradients_of_stencils():
    def energy(u):
        return jnp.sum(turns(heat, 3)(u) ** 2)

    check(jax.value_and_grad(energy), [real((N, N))], [P("i")])
    counted = kinds(jax.grad(energy), *placed([real((N, N))], [P("i")], mesh_1d()))
    assert "allgather" not in counted


def test_functions_of_scipy_are_applied_to_shards():
    special = jax.scipy.special
    check(lambda x: special.hyp1f1(1.0, 2.0, x) + special.expn(2, x), [real((N,)) ** 2 + 0.1], [P("i")], expected={})


def test_shifts_by_one():
    for f in (lambda x: x[1:] - x[:-1], lambda x: jnp.diff(x, axis=0), lambda x: x[2:] * x[1:-1] + x[:-2]):
        check(lambda x, f=f: jnp.sum(f(x) ** 2), [real((N, 3))], [P("i")])


# ---------------------------------------------------------------- loops and branches


def test_scan_over_another_axis():
    """Each rank runs its rows through the whole time; nothing is sent."""

    def recurrent(xs):
        def step(h, x):
            h = jnp.tanh(0.5 * h + x)
            return h, h * 2

        return lax.scan(step, jnp.zeros_like(xs[0]), xs)

    check(recurrent, [real((7, N, 3))], [P(None, "i")], expected={})


def test_a_value_that_a_gradient_discards_is_not_summed_over_ranks():
    def loss(xs):
        return jnp.sum(jnp.sin(xs))

    check(jax.grad(loss), [real((N, 3))], [P("i")], expected={})
    check(jax.value_and_grad(loss), [real((N, 3))], [P("i")], expected={"allreduce_sum": 1})


def test_branches():
    def f(x):
        y = lax.cond(jnp.max(x) > 0, lambda x: jnp.sin(x) * 2, lambda x: -x, x)
        return lax.cond(jnp.sum(y) > 1e9, lambda y: y, heat, y)

    check(f, [real((N, N))], [P("i")])
    assert "allgather" not in kinds(f, *placed([real((N, N))], [P("i")], mesh_1d()))


def test_power_iteration():
    def f(a, v):
        def step(_, v):
            w = a @ v
            return w / jnp.linalg.norm(w)

        v = lax.fori_loop(0, 10, step, v)
        return v @ (a @ v)

    a = real((N, N))
    check(f, [a + a.T, real((N,))], [P("i"), P()], rtol=1e-3)


# ---------------------------------------------------------------- examples: nothing is sent


EXAMPLES = {
    "solve": (lambda a, b: jnp.linalg.solve(a + 4 * jnp.eye(3, dtype=a.dtype), b), [(N, 3, 3), (N, 3, 1)]),
    "cholesky": (lambda a: jnp.linalg.cholesky(a @ a.mT + 4 * jnp.eye(3, dtype=a.dtype)), [(N, 3, 3)]),
    "eigvalsh": (lambda a: jnp.linalg.eigvalsh(a + a.mT), [(N, 3, 3)]),
    "inv and det": (lambda a: jnp.linalg.inv(a + 4 * jnp.eye(3, dtype=a.dtype)) * jnp.linalg.det(a)[:, None, None],
                    [(N, 3, 3)]),
    "sort along another axis": (lambda x: jnp.sort(x, axis=1), [(N, 5)]),
    "cumsum along another axis": (lambda x: jnp.cumsum(x, axis=1), [(N, 5)]),
    "fft along another axis": (lambda x: jnp.abs(jnp.fft.fft(x, axis=1)), [(N, 8)]),
    "vmap of a norm": (jax.vmap(lambda x: x / jnp.linalg.norm(x)), [(N, 5)]),
    "softmax": (lambda x: jax.nn.softmax(x, axis=-1), [(N, 5)]),
    "take_along_axis": (lambda x: jnp.take_along_axis(x, jnp.argsort(x, axis=1), 1), [(N, 5)]),
    "batched matmul": (lambda a, b: a @ b, [(N, 3, 4), (N, 4, 2)]),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, EXAMPLES))
def test_examples_split_over_ranks(name):
    f, shapes = EXAMPLES[name]
    check(f, [real(s, k) for k, s in enumerate(shapes)], [P("i")] * len(shapes), expected={}, rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- conversions


def test_what_a_conversion_widens_is_sent_before_it():
    whole = NamedSharding(mesh_1d(), P())

    def of_axis(x):
        return jnp.fft.fft(x, axis=0)

    def gathered(x):
        return lax.with_sharding_constraint(x.astype(jnp.float32), whole)

    def total(f, x):
        return sum(step.total for step in sent(jax.jit(f).lower(*placed([x], [P("i")], mesh_1d())).compiler_ir()))

    x = real((4 * SIZE, 8 * SIZE))
    narrow = x.astype(jnp.bfloat16)
    check(of_axis, [x], [P("i")], rtol=1e-3, atol=1e-3)
    check(lambda x: gathered(x > 0), [x], [P("i")])
    check(lambda x: gathered(x) @ gathered(x).T, [narrow], [P("i")], rtol=1e-3)
    assert 2 * total(of_axis, x) == total(of_axis, x.astype(np.complex64))
    assert 4 * total(lambda x: gathered(x > 0), x) == 2 * total(gathered, narrow) == total(gathered, x)
    assert (total(gathered, x) > 0) == (SIZE > 1)


# ---------------------------------------------------------------- convolutions and pooling


def _conv(x, w, padding):
    return lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=("NHWC", "HWIO", "NHWC"))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_convolutions_split_in_space(padding):
    x, w = real((2, 16 * SIZE, 8, 3)), real((3, 3, 3, 4), 1)
    check(lambda x, w: _conv(x, w, padding), [x, w], [P(None, "i"), P()])
    assert "allgather" not in kinds(lambda x, w: jnp.sum(_conv(x, w, padding)), *placed([x, w], [P(None, "i"), P()], mesh_1d()))


def test_a_network_of_convolutions_and_pools():
    def network(x, w1, w2):
        y = jax.nn.relu(_conv(x, w1, "SAME"))
        y = lax.reduce_window(y, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        return jnp.mean(_conv(y, w2, "SAME") ** 2)

    arrays = [real((2, 8 * SIZE, 8, 3)), real((3, 3, 3, 4), 1), real((3, 3, 4, 2), 2)]
    specs = [P(None, "i"), P(), P()]
    check(jax.value_and_grad(network, argnums=(1, 2)), arrays, specs)
    assert "allgather" not in kinds(network, *placed(arrays, specs, mesh_1d()))


# ---------------------------------------------------------------- arrays that meet


def test_pieces_of_arrays_cut_over_different_axes():
    grid = GRIDS[0]

    def f(x, y):
        return jnp.concatenate([x[:3], y[1:4]]) * 2

    check(f, [real((N, 8)), real((6, 8), 1)], [P("i", "j"), P("j") if 6 % grid[1] == 0 else P()], mesh_2d(grid))


def test_results_that_ranks_do_not_divide():
    """What the program leaves open stays split, in blocks of `ceil(size / ranks)`; what it names has to divide."""
    x = np.arange(4 * SIZE * 3, dtype=np.float32).reshape(-1, 3)
    [u] = placed([x], [P("i")], mesh_1d())
    d = jax.jit(lambda u: u[1:])(u)
    assert_same(d, x[1:])
    assert len(d.addressable_shards) == 1
    [shard] = d.addressable_shards
    first = 4 * jax.process_index()
    np.testing.assert_array_equal(shard.data, x[1:][first : first + 4])
    assert shard.index[0] == slice(first, min(first + 4, 4 * SIZE - 1)) or SIZE == 1
    if SIZE > 1:
        assert d.sharding.spec == P("i")
        with pytest.raises(ValueError, match=f"partitioned {SIZE} times, but the dimension"):
            jax.jit(lambda u: u[1:], out_shardings=u.sharding)(u)
        with pytest.raises(ValueError, match="evenly divide"):
            d.sharding.shard_shape(d.shape)


def test_shards_of_unequal_size_are_drawn(capsys):
    [u] = placed([real((4 * SIZE, 3))], [P("i")], mesh_1d())
    jax.debug.visualize_array_sharding(jax.jit(lambda u: u[1:])(u))
    drawn = capsys.readouterr().out
    show = jax.debug.visualize_array_sharding
    jax.jit(lambda u: lax.fori_loop(0, 2, lambda i, v: (show(v[1:]), 2 * v)[1], u))(u)
    assert capsys.readouterr().out == drawn
    assert all(f"CPU {d.id}" in drawn for d in jax.devices())


ON_UNEVEN = {
    "element by element": lambda d: jnp.sin(d) * 2,
    "sum": lambda d: d.sum(0),
    "slice": lambda d: d[1:] - d[:-1],
    "index": lambda d: d[3],
    "update": lambda d: d.at[2].set(0),
    "product": lambda d: d @ d.T,
    "sort": lambda d: jnp.sort(-d, axis=0),
    "cumsum": lambda d: jnp.cumsum(d, 0),
    "vmap": jax.vmap(lambda row: row / row.sum()),
    "gradient": jax.grad(lambda d: (d**3).sum()),
    "loop": lambda d: lax.fori_loop(0, 3, lambda i, d: d.at[1:].add(d[:-1]), d),
    "whole": lambda d: jax.device_put(d, NamedSharding(mesh_1d(), P())),
}


@pytest.mark.parametrize("name", ON_UNEVEN)
@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
@pytest.mark.one_in(4)
def test_programs_take_results_that_ranks_do_not_divide(name, transform):
    f, x = transform(ON_UNEVEN[name]), real((4 * SIZE + 1, 3))
    [u] = placed([np.concatenate([x, x[: SIZE - 1]])], [P("i")], mesh_1d())
    d = jax.jit(lambda u: u[: 4 * SIZE + 1])(u)
    assert_same(f(d), f(jnp.asarray(x)), **CLOSE)


@pytest.mark.skipif(SIZE == 1, reason="one rank has whole arrays")
def test_loops_inside_of_each_other_are_tried_once(monkeypatch):
    calls = Counter()
    opened = flow.opened
    monkeypatch.setattr(flow, "opened", lambda *args: calls.update("x") or opened(*args))
    f = heat
    for _ in range(6):
        f = (lambda g: lambda u: lax.fori_loop(0, 2, lambda i, u: g(u), u))(f)
    jax.jit(f).lower(*placed([real((N, N))], [P("i")], mesh_1d()))
    assert calls["x"] <= 6


# Operations that have the same result on some ranks: where their parts are empty.
EQUAL_ON_SOME = {
    "rows": lambda x: (x[3:4], x[4:5], x[-1:]),
    "an update": lambda x: x[3:4].at[x[3:4].reshape(-1).astype(int) % 1].add(1),
    "determinants": lambda x: (jnp.linalg.det(x[3:6]), jnp.linalg.det(x[5:8])),
}


@pytest.mark.parametrize("name", EQUAL_ON_SOME)
def test_parts_that_are_equal_on_some_ranks(name):
    check(EQUAL_ON_SOME[name], [real((N, 3), seed=1)], [P("i")])


@pytest.mark.parametrize("rows", [4 * SIZE, 4 * SIZE + 1, SIZE])
def test_rolls_by_any_number_of_rows(rows):
    x = np.arange(3.0 * rows, dtype=np.float32).reshape(rows, 3)
    [u] = placed([np.concatenate([x, x[: -rows % SIZE]])], [P("i")], mesh_1d())
    by = range(-rows - 1, rows + 2)
    got = jax.jit(lambda u: [jnp.roll(u[:rows], k, 0) for k in by])(u)
    for k, g in zip(by, got, strict=True):
        assert_same(g, np.roll(x, k, 0))


def test_a_roll_is_one_message():
    [u] = placed([real((4 * SIZE, 3))], [P("i")], mesh_1d())
    for k in (1, -1, 3):
        assert kinds(lambda u, k=k: jnp.roll(u, k, 0), u) == ({"permute": 1} if SIZE > 1 else {})


def test_few_rows_are_whole():
    [u] = placed([np.arange(4.0 * SIZE)], [P("i")], mesh_1d())
    d = jax.jit(lambda u: u[: SIZE - 1])(u)
    assert d.is_fully_replicated
    np.testing.assert_array_equal(d, np.arange(SIZE - 1))
