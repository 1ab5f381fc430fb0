"""Programs over arrays sharded over ranks: global results, results' shardings, and what is communicated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from spmd.ranks import GRIDS, SIZE, P, assert_same, draw, mesh_1d, mesh_2d, real, whole

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.core.rules.shape_rules import reshaped_groups
from mpijax.experimental.multihost_utils import process_allgather
from mpijax.experimental.pjit import pjit
from mpijax.sharding import Mesh

pytestmark = pytest.mark.mpi
many = pytest.mark.skipif(SIZE == 1, reason="one rank has all of every array")

N = 2 * SIZE
S = P("i")
C = P(None, "i")


def _drawn(key):
    """Numbers from keys that are made, split and told apart where the seed is."""
    return jax.random.uniform(jax.random.split(jax.random.fold_in(key, 3))[1], (3,))


# How many messages a rank sends at most, by the number of ranks.
ROUNDS = {
    "reversed": int(SIZE > 1),
    "doubled": {2: 2, 3: 2, 4: 4}.get(SIZE, 0),
}

# name: (function of arrays, their shapes, their shardings, sharding of the result, communications)
PROGRAMS = {
    "pointwise": (lambda x: jnp.sin(x) * 2 + x, [(N, N)], [S], S, 0),
    "column added": (lambda x, y: x + y, [(N, N), (N, 1)], [S, S], S, 0),
    "row added": (lambda x, y: x * y, [(N, N), (1, N)], [S, P()], S, 0),
    "row added, split": (lambda x, y: x * y, [(N, N), (1, N)], [S, C], S, 1),
    "where": (lambda x, y: jnp.where(x > 0, x, y), [(N, N), (N, N)], [S, P()], S, 0),
    "two shardings": (lambda x, y: x + y, [(N, N), (N, N)], [S, C], S, 1),
    "rows": (lambda x: x.sum(1), [(N, N)], [S], S, 0),
    "columns": (lambda x: x.sum(0), [(N, N)], [S], P(), 1),
    "sum": (lambda x: x.sum(), [(N, N)], [C], P(), 1),
    "max": (lambda x: x.max(0), [(N, N)], [S], P(), 1),
    "min": (lambda x: x.min((0, 2)), [(N, 3, 2)], [S], P(), 1),
    "prod": (lambda x: (1 + x / 16).prod(0), [(N, 3)], [S], P(), 1),
    "any": (lambda x: (x > 0.9).any(0), [(N, 3)], [S], P(), 1),
    "all": (lambda x: (x > -0.9).all(), [(N, 3)], [S], P(), 1),
    "argmax": (lambda x: jnp.argmax(x, axis=1), [(N, 5)], [S], S, 0),
    "argmax over": (lambda x: lax.argmax(x, 0, np.int32), [(N, 5)], [S], P(), 2),
    "mean and var": (lambda x: (x - x.mean(0)) / (1 + x.var(0)), [(N, 3)], [S], S, 2),
    "draws of many keys": (
        jax.vmap(lambda x: _drawn(jax.random.key((x * 1000).astype(np.int32)))), [(N,)], [S], S, 0),
    "softmax": (lambda x: jax.nn.softmax(x, axis=-1), [(N, 5)], [S], S, 0),
    "softmax over": (lambda x: jax.nn.softmax(x, axis=0), [(N, 5)], [S], S, 2),
    "rows of a product": (lambda x, y: x @ y, [(N, 3), (3, 4)], [S, P()], S, 0),
    "columns of a product": (lambda x, y: x @ y, [(4, 3), (3, N)], [P(), C], C, 0),
    "contracted": (lambda x, y: x @ y, [(4, N), (N, 3)], [C, S], P(), 1),
    "contracted, one whole": (lambda x, y: x @ y, [(4, N), (N, 3)], [C, P()], P(), 1),
    "gram": (lambda x: x.T @ x, [(N, 3)], [S], P(), 1),
    "batch": (lambda x, y: jnp.einsum("bij,bjk->bik", x, y), [(N, 2, 3), (N, 3, 2)], [S, P()], S, 0),
    "outer": (lambda x, y: x[:, None] * y, [(N,), (N,)], [S, S], S, 1),
    "transpose": (lambda x: x.T, [(N, 3)], [S], C, 0),
    "reshape": (lambda x: x.reshape(N, 6), [(N, 3, 2)], [S], S, 0),
    "flatten": (lambda x: x.reshape(-1), [(N, 3)], [S], S, 0),
    "divide": (lambda x: x.reshape(SIZE, 2, 3), [(N, 3)], [S], S, 0),
    "flatten across": (lambda x: x.reshape(-1), [(N, N)], [C], S, 1),
    "squeeze": (lambda x: x[:, 0], [(N, 1)], [S], S, 0),
    "slice along": (lambda x: x[:, 1:-1], [(N, 5)], [S], S, 0),
    "slice across": (lambda x: x[1:], [(N, 5)], [S], S, 1),
    "take a column": (lambda x: lax.dynamic_index_in_dim(x, 2, 1), [(N, 5)], [S], S, 0),
    "reverse along": (lambda x: x[:, ::-1], [(N, 5)], [S], S, 0),
    "reverse across": (lambda x: x[::-1], [(N, 5)], [S], S, ROUNDS["reversed"]),
    "concatenate": (lambda x, y: jnp.concatenate([x, y], 1), [(N, 2), (N, 3)], [S, P()], S, 0),
    "concatenate across": (lambda x: jnp.concatenate([x, x]), [(N, 2)], [S], S, ROUNDS["doubled"]),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 2))), [(N, 2)], [S], S, 0),
    "cumsum along": (lambda x: jnp.cumsum(x, 1), [(N, 4)], [S], S, 0),
    "cumsum across": (lambda x: jnp.cumsum(x, 0), [(N, 4)], [S], S, 1),
    "sorted": (lambda x: jnp.sort(x, axis=1), [(N, 4)], [S], S, 0),
    "gelu of a product": (lambda x, w, b: jax.nn.gelu(x @ w + b), [(N, 3), (3, 4), (4,)], [S, P(), P()], S, 0),
    "constraint": (lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh_1d(), C)) + 1, [(N, N)], [S], C, 1),
    "gathered": (lambda x: lax.with_sharding_constraint(x + 1, NamedSharding(mesh_1d(), P())), [(N, N)], [S], P(), 1),
    "cut": (lambda x: lax.with_sharding_constraint(x + 1, NamedSharding(mesh_1d(), S)), [(N, N)], [P()], S, 0),
}  # fmt: skip


def sharded(shapes, shardings, mesh=None):
    mesh = mesh or mesh_1d()
    arrays = [real(shape, k) for k, shape in enumerate(shapes)]
    return arrays, [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(arrays, shardings, strict=True)]


def communications(f, args) -> int:
    from mpijax.compiler.steps.planner import plan_program
    from mpijax.runtime.program.engine import shardings_of
    from mpijax.runtime.program.stages import cost_analysis

    plan = plan_program(jax.make_jaxpr(f)(*args), (), shardings_of(args) or ())
    return int(cost_analysis(plan)["communications"])


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.one_in(4)
def test_programs(name):
    f, shapes, shardings, out, count = PROGRAMS[name]
    arrays, placed = sharded(shapes, shardings)
    want = whole(f(*map(jnp.asarray, arrays)))
    for g in (f, jax.jit(f)):
        got = g(*placed)
        assert_same(got, want, rtol=1e-5, atol=1e-6)
    if SIZE > 1:
        assert got.sharding.is_equivalent_to(NamedSharding(mesh_1d(), out), got.ndim) or (
            got.is_fully_replicated and out == P()
        )
        assert communications(f, placed) == count


def test_gradients():
    """A data-parallel step as one reads it in JAX: the gradient of the weights is summed over the split batch."""
    x, y, w = real((N, 3)), real((N, 2), 1), real((3, 2), 2)

    def loss(w, x, y):
        return jnp.mean((jnp.tanh(x @ w) - y) ** 2)

    batch = NamedSharding(mesh_1d(), S)
    step = jax.jit(jax.value_and_grad(loss), in_shardings=(NamedSharding(mesh_1d(), P()), batch, batch))
    want = jax.value_and_grad(loss)(w, x, y)
    for args in ((w, jnp.asarray(x), jnp.asarray(y)), (w, jax.device_put(x, batch), jax.device_put(y, batch))):
        value, grad = step(*args)
        assert_same(value, whole(want[0]), rtol=1e-5)
        assert_same(grad, whole(want[1]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("grid", GRIDS, ids=str)
@pytest.mark.one_in(2)
@pytest.mark.many_ranks  # meshes of two axes
def test_every_sharding_to_every_other(grid):
    mesh = mesh_2d(grid)
    specs = [P(), P("i"), P("j"), P("i", "j"), P("j", "i"), P(("i", "j")), P(("j", "i")), P(None, ("i", "j"))]
    x = draw((N, N))
    for a in specs:
        y = jax.device_put(x, NamedSharding(mesh, a))
        outs = jax.jit(lambda y: [lax.with_sharding_constraint(y, NamedSharding(mesh, b)) for b in specs])(y)
        for b, z in zip(specs, outs, strict=True):
            assert z.sharding.is_equivalent_to(NamedSharding(mesh, b), z.ndim)
            assert_same(z, x)


def test_jit_shardings():
    mesh = mesh_1d()
    split, copies = NamedSharding(mesh, S), NamedSharding(mesh, P())
    x = {"a": draw((N, 3)), "b": draw((N,))}
    traces = []

    def f(x, k):
        traces.append(None)
        return jax.tree.map(lambda v: v * k, x), k

    g = jax.jit(f, in_shardings=({"a": split, "b": None}, None), out_shardings=(split, copies))
    whole_arrays = jax.tree.map(jnp.asarray, x)
    for given in (whole_arrays, jax.device_put(x, split), whole_arrays):
        out, k = g(given, 2.0)
        assert_same(out["a"], x["a"] * 2)
        assert_same(out["b"], x["b"] * 2)
        assert out["a"].sharding == out["b"].sharding == split and k.sharding == copies
    assert len(traces) == 1
    h = jax.jit(lambda x: g(x, 3.0)[0]["a"].sum())
    assert_same(h(x), (x["a"] * 3).sum(dtype=np.float32), rtol=1e-6)
    assert_same(jax.grad(h)(x)["a"], np.full((N, 3), 3, np.float32))
    batch = jax.vmap(lambda x: g(x, 3.0)[0]["b"], out_axes=1)({"a": np.ones((2, N, 3)), "b": draw((2, N), seed=4)})
    assert_same(batch, draw((2, N), seed=4).T * 3)


def test_partition_specs_over_the_mesh_in_context():
    x = jnp.asarray(draw((N, 3)))
    f = jax.jit(lambda x: lax.with_sharding_constraint(x * 2, P("i")), in_shardings=P("i"), out_shardings=P(None))
    with jax.set_mesh(mesh_1d()):
        assert f(x).sharding == NamedSharding(mesh_1d(), P(None))
        assert_same(f(x), x * 2)
        with pytest.raises(ValueError, match=r"of type Auto or Manual.* i of type: AxisType\.Auto"):
            jax.reshard(f(x), P("i"))
    with pytest.raises(RuntimeError, match="requires a non-empty mesh in context"):
        f(x)
    with pytest.raises(RuntimeError, match="requires a non-empty mesh in context"):
        lax.with_sharding_constraint(x, P("i"))
    for place in ("in_shardings", "out_shardings"):
        with pytest.raises(RuntimeError, match="^pjit requires a non-empty mesh in context"):
            pjit(lambda x: x, **{place: P("i")})(x)


@many
def test_arrays_of_numpy_are_split_by_device_put_only():
    """Each rank may have another one, as in JAX."""
    split, copies = NamedSharding(mesh_1d(), S), NamedSharding(mesh_1d(), P())
    x = draw((N,))
    f = jax.jit(lambda x, k: x * k, in_shardings=(split, None))
    for call in (f, f.lower):
        with pytest.raises(ValueError, match=r"Passing non-trivial shardings for numpy inputs is not allowed.*args\[0\]"):
            call(x, 2.0)
    for given in (jnp.asarray(x), jax.device_put(x, split)):
        assert_same(f(given, 2.0), 2 * x)
    assert_same(jax.jit(lambda x: x * 2, in_shardings=copies)(x), 2 * x)
    assert_same(jax.jit(lambda x: f(x, 2.0))(x), 2 * x)


def test_static_and_donated():
    split = NamedSharding(mesh_1d(), S)
    f = jax.jit(lambda x, n: x * n, in_shardings=(split,), static_argnums=1, donate_argnums=0)
    y = jax.device_put(draw((N,)), split)
    assert_same(f(y, 3), draw((N,)) * 3)
    assert y.is_deleted()


def test_within_loops_and_branches():
    """Bodies work on whole arrays; a constraint lays out what it is given, there too."""
    split = NamedSharding(mesh_1d(), S)
    x = draw((N, 2))

    def f(x):
        def step(c, _):
            c = lax.with_sharding_constraint(c, split) + 1
            return lax.cond(c.sum() > 0, lambda c: c * 2, lambda c: c - x, c), c[0]

        return lax.scan(step, x, None, length=3)

    want = jax.jit(f)(jnp.asarray(x))
    got = jax.jit(f)(jax.device_put(x, split))
    for g, w in zip(got, want, strict=True):
        assert_same(g, whole(w))


def test_a_replicated_result_says_so():
    f = jax.jit(jax.shard_map(lambda x: lax.psum(x, "i"), mesh=mesh_1d(), in_specs=S, out_specs=P()))
    out = f(draw((N,)))
    assert out.sharding == NamedSharding(mesh_1d(), P()) and out.is_fully_replicated
    assert_same(f(jnp.tile(out, SIZE)), whole(out) * SIZE)


def test_equivalent_shardings():
    mesh = mesh_1d()
    assert NamedSharding(mesh, P("i")).is_equivalent_to(NamedSharding(mesh, P("i", None)), 2)
    assert NamedSharding(mesh, P(("i",))).is_equivalent_to(NamedSharding(mesh, P("i")), 1)
    assert NamedSharding(mesh, P(None, "i")).is_equivalent_to(NamedSharding(mesh, P("i")), 2) == (SIZE == 1)
    x = draw((N, 2))
    y = jax.device_put(x, NamedSharding(mesh, P("i", None)))
    assert_same(jax.jit(lambda x: x + 1, in_shardings=NamedSharding(mesh, P("i")))(y), x + 1)
    f = jax.shard_map(lambda x: x + 1, mesh=mesh, in_specs=P("i"), out_specs=P("i"))
    assert communications(f, (y,)) == 0


def bad(name):
    mesh = mesh_1d()
    split, x = NamedSharding(mesh, S), draw((N + 1,))

    def f(*args):
        return args[0]

    return {
        "odd argument": lambda: jax.jit(f, in_shardings=split)(x),
        "odd result": lambda: jax.jit(f, out_shardings=split)(x),
        "odd reshard": lambda: jax.reshard(x, split),
        "rank": lambda: jax.jit(f, in_shardings=NamedSharding(mesh, P("i", None)))(draw((N,))),
        "other sharding": lambda: jax.jit(f, in_shardings=split)(jax.device_put(draw((N,)), NamedSharding(mesh, P()))),
        "length": lambda: jax.jit(f, in_shardings=(split,))(x, x),
        "prefix": lambda: jax.jit(f, out_shardings=(split, split))(x),
        "keyword": lambda: jax.jit(lambda x: x, in_shardings=split)(x=draw((N,))),
        "axis twice": lambda: NamedSharding(mesh, P("i", "i")),
        "no axis": lambda: NamedSharding(mesh, P("k")),
        "type": lambda: jax.jit(f, in_shardings=3),
    }[name]


ERRORS = {
    "odd argument": (ValueError, "implies that array axis 0 is partitioned"),
    "odd result": (ValueError, "implies that array axis 0 is partitioned"),
    "odd reshard": (ValueError, "implies that array axis 0 is partitioned"),
    "rank": (ValueError, "only valid for values of rank at least 2"),
    "other sharding": (ValueError, "does not match the sharding on the respective arg"),
    "length": (ValueError, "wrong length"),
    "prefix": (ValueError, "out_shardings specification must be a tree prefix"),
    "keyword": (ValueError, "does not support kwargs"),
    "axis twice": (ValueError, "at most one"),
    "no axis": (ValueError, "not found in mesh"),
    "type": (TypeError, "leaf specifications are expected to be PartitionSpec"),
}


@many
@pytest.mark.parametrize("name", ERRORS)
def test_refused(name):
    kind, message = ERRORS[name]
    with pytest.raises(kind, match=message):
        bad(name)()


@many
def test_what_lies_on_all_ranks_is_gathered_once():
    mesh = mesh_1d()
    rows = jax.device_put(draw((N, 3)), NamedSharding(mesh, S))
    for spec in (S, P()):
        x = jax.device_put(rows, NamedSharding(mesh, spec))
        np.testing.assert_array_equal(process_allgather(x, tiled=True), draw((N, 3)))
    number = jax.device_put(np.float32(2), NamedSharding(mesh, P()))
    assert process_allgather(number, tiled=True) == 2
    assert process_allgather(np.zeros(2)).shape == (SIZE, 2)


@many
@pytest.mark.parametrize("spec", [S, P()], ids=str)
def test_what_lies_on_all_ranks_is_gathered_tiled_only(spec):
    x = jax.device_put(draw((N, 3)), NamedSharding(mesh_1d(), spec))
    with pytest.raises(ValueError, match=r"only supports tiled=True: process_allgather got float32\[\d+,3\]"):
        process_allgather(x)


def test_numbers_are_gathered_as_arrays():
    assert process_allgather(3, tiled=True).tolist() == (3 if SIZE == 1 else [3] * SIZE)  # as it is, alone: so does JAX


def test_an_odd_constraint_leaves_the_axis_whole():
    x = draw((N + 1, N))
    y = jax.jit(lambda x: lax.with_sharding_constraint(x, NamedSharding(mesh_1d(), P("i"))))(x)
    assert y.is_fully_replicated
    assert_same(y, x)


@pytest.mark.parametrize(
    ("shape", "out", "want"),
    [
        ((4, 6), (24,), [([0, 1], [0])]),
        ((24,), (4, 6), [([0], [0, 1])]),
        ((2, 3, 4), (6, 4), [([0, 1], [0]), ([2], [1])]),
        ((4, 3), (4, 1, 3), [([0], [0]), ([1], [1, 2])]),
        ((1, 4), (4,), [([0, 1], [0])]),
    ],
)
def test_factors_of_a_reshape(shape, out, want):
    pairs = list(reshaped_groups(shape, out))
    for ins, outs in pairs:
        assert np.prod([shape[i] for i in ins]) == np.prod([out[j] for j in outs])
    assert [i for ins, _ in pairs for i in ins] == list(range(len(shape)))
    assert [j for _, outs in pairs for j in outs] == list(range(len(out)))
    assert len(pairs) >= len(want)


def test_an_array_like_another_lies_as_it_does_without_a_mesh_in_context():
    sharding = jax.NamedSharding(jax.make_mesh((SIZE,), ("R",)), P("R"))
    x = jax.device_put(np.ones((2 * SIZE, 3), np.float32), sharding)
    for filled, value in ((jnp.zeros_like(x), 0), (jnp.full_like(x, 2), 2), (jax.jit(jnp.ones_like)(x), 1)):
        assert filled.sharding.is_equivalent_to(sharding, 2)
        assert_same(filled, np.full((2 * SIZE, 3), value, np.float32))


@many
@pytest.mark.parametrize("spec", [P(), P("i")])
def test_results_keep_the_sharding_of_arrays_that_all_ranks_have(spec):
    """As in JAX: also those of single operations, beside arrays that nobody has placed."""
    sharding = NamedSharding(mesh_1d(), spec)
    x = jax.device_put(jnp.arange(2.0 * SIZE), sharding)
    found = [x + 1, jnp.sin(x), x + np.ones(2 * SIZE), x + jnp.ones(2 * SIZE), jax.jit(lambda x: x * 2)(x)]
    for y in found:
        assert y.sharding == sharding and y.committed
    for y in (x[0], x @ x, jnp.stack([x, x])[:, 0]):
        assert y.sharding == NamedSharding(mesh_1d(), P())


def test_calls_on_arrays_over_ranks_find_their_program():
    """A sharding is part of what a program is found by, as types are: a second call runs no Python of the first."""
    f = jax.jit(lambda x: x + 1)
    for spec in (P(), P("i"), P(), P("i")):
        x = jax.device_put(jnp.arange(2.0 * SIZE), NamedSharding(mesh_1d(), spec))
        assert_same(f(x), np.arange(2.0 * SIZE, dtype=np.float32) + 1)
    assert f._num_programs() == 2


@many
def test_threads_compile_programs_that_communicate():
    """Communicators are made at the first call: threads of different ranks come in different orders."""
    mesh = Mesh(np.array(jax.devices(), dtype=object).reshape(1, SIZE), ("compiled", "in_threads"))
    x = jax.device_put(draw((N, 3)), NamedSharding(mesh, P("in_threads")))
    order = [0, 1, 2, 3] if jax.process_index() == 0 else [3, 2, 1, 0]
    with ThreadPoolExecutor(4) as threads:
        made = dict(zip(order, threads.map(lambda k: jax.jit(lambda x: x.sum() + k).lower(x).compile(), order), strict=True))
    for k in range(4):
        assert_same(made[k](x), draw((N, 3)).sum(dtype=np.float32) + k)
        assert made[k].runtime_executable() is made[k].runtime_executable()
