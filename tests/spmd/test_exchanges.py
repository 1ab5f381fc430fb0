"""All collectives over mesh axes, batch axes and both, with groups along an axis: against the NumPy model; their
transposes by inner products."""

from __future__ import annotations

import numpy as np
import pytest
from quickly import one_in
from spmd.ranks import GRIDS, SIZE, P, assert_same, draw, mesh_1d, mesh_2d, real, summed, whole

import mpijax as jax
from mpijax import lax

pytestmark = pytest.mark.mpi

BATCH = 2
alone = pytest.mark.skipif(SIZE > 1, reason="the ranks have nothing to do with each other here")


def _tiles(x, n, axis):
    return np.split(x, n, axis)


# name: (operation of a shard, what the shard at position k of a group gets of the arrays of all n). A shard's array
# is (2 n, 3 n), or where the axis has to fit, (n, 2 n).
TABLE = {
    "psum": (lax.psum, lambda a, k: summed(a)),
    "pmax": (lax.pmax, lambda a, k: np.max(a, axis=0)),
    "pmin": (lax.pmin, lambda a, k: np.min(a, axis=0)),
    "all_gather": (lambda x, *a, **g: lax.all_gather(x, *a, axis=1, **g), lambda a, k: np.stack(a, 1)),
    "all_gather tiled": (
        lambda x, *a, **g: lax.all_gather(x, *a, axis=-1, tiled=True, **g), lambda a, k: np.concatenate(a, -1)),
    "psum_scatter": (lax.psum_scatter, lambda a, k: summed(a)[k]),
    "psum_scatter tiled": (
        lambda x, *a, **g: lax.psum_scatter(x, *a, scatter_dimension=1, tiled=True, **g),
        lambda a, k: _tiles(summed(a), len(a), 1)[k]),
    "pswapaxes": (lambda x, *a, **g: lax.pswapaxes(x, *a, 0, **g), lambda a, k: np.stack([x[k] for x in a])),
    "all_to_all 0 1": (lambda x, *a, **g: lax.all_to_all(x, *a, 0, 1, **g), lambda a, k: np.stack([x[k] for x in a], 1)),
    "all_to_all tiled 0 1": (
        lambda x, *a, **g: lax.all_to_all(x, *a, 0, 1, tiled=True, **g),
        lambda a, k: np.concatenate([_tiles(x, len(a), 0)[k] for x in a], 1)),
    "all_to_all tiled 1 0": (
        lambda x, *a, **g: lax.all_to_all(x, *a, -1, 0, tiled=True, **g),
        lambda a, k: np.concatenate([_tiles(x, len(a), 1)[k] for x in a], 0)),
    "all_to_all tiled in place": (
        lambda x, *a, **g: lax.all_to_all(x, *a, 1, 1, tiled=True, **g),
        lambda a, k: np.concatenate([_tiles(x, len(a), 1)[k] for x in a], 1)),
}  # fmt: skip
# The same without groups, which these do not take.
WHOLE = {
    "ppermute": (lambda x, a: lax.ppermute(x, a, [(k, (k + 1) % lax.axis_size(a)) for k in range(lax.axis_size(a))]),
                 lambda a, k: a[k - 1]),
    "ppermute of a part": (lambda x, a: lax.ppermute(x, a, [(lax.axis_size(a) - 1, 0)]),
                           lambda a, k: a[-1] if k == 0 else np.zeros_like(a[0])),
    "pshuffle": (lambda x, a: lax.pshuffle(x, a, list(range(lax.axis_size(a)))[::-1]), lambda a, k: a[::-1][k]),
    "pbroadcast": (lambda x, a: lax.pbroadcast(x, a, lax.axis_size(a) - 1), lambda a, k: a[-1]),
    "all_gather invarying": (lambda x, a: lax.all_gather(x, a, tiled=True, to="invarying"),
                             lambda a, k: np.concatenate(a)),
    "axis_index": (lambda x, a: x * 0 + lax.axis_index(a).astype(x.dtype), lambda a, k: a[0] * 0 + a[0].dtype.type(k)),
}  # fmt: skip
# Those that need the size of the axis as the size of an array axis.
FITTING = {"psum_scatter", "pswapaxes", "all_to_all 0 1"}
NOT_LINEAR = {"pmax", "pmin", "axis_index"}


def shards(sizes, per_group, seed, dtype):
    """Arrays of all shards: of some shape, and of one with an axis of the size of a group."""
    n = per_group
    return draw((*sizes, 2 * n, 3 * n), dtype, seed), draw((*sizes, n, 2 * n), dtype, seed + 1)


def expected(table, names, axes, x, fitting, groups):
    """The model: for every shard, what it gets from its group."""
    sizes = x.shape[: len(axes)]
    out = {}
    for name, (_, rule) in table.items():
        arrays = fitting if name in FITTING else x
        at = [axes.index(n) for n in names]
        moved = np.moveaxis(arrays, at, range(len(at)))
        positions = int(np.prod(moved.shape[: len(at)]))
        rest = moved.shape[len(at) : len(axes)]
        flat = moved.reshape(positions, *rest, *arrays.shape[len(axes) :])
        result = {}
        for other in np.ndindex(rest):
            for group in groups or [range(positions)]:
                parts = [flat[(m, *other)] for m in group]
                for k, m in enumerate(group):
                    result[(m, *other)] = rule(parts, k)
        one = result[(0,) * (1 + len(rest))]
        full = np.zeros((positions, *rest, *one.shape), one.dtype)
        for place, value in result.items():
            full[place] = value
        full = full.reshape(*moved.shape[: len(at)], *rest, *one.shape)
        out[name] = np.moveaxis(full, range(len(at)), at)
    assert all(v.shape[: len(axes)] == sizes for v in out.values())
    return out


def program(table, names, mesh, axes, groups=None, check_vma=True):
    """All operations of the table at once; the leading axes of the arguments are those of the mesh, then the batch."""
    mesh_axes = [a for a in axes if a in mesh.axis_names]
    name = names if len(names) > 1 else names[0]
    extra = {} if groups is None else {"axis_index_groups": groups}

    def one(x, fitting):
        return {k: f(fitting if k in FITTING else x, name, **extra) for k, (f, _) in table.items()}

    def body(x, fitting):
        f = one
        for a in reversed([a for a in axes if a not in mesh.axis_names]):
            f = jax.vmap(f, axis_name=a)
        lead = (0,) * len(mesh_axes)
        out = f(x[lead], fitting[lead])
        return jax.tree.map(lambda y: y.reshape((1,) * len(mesh_axes) + y.shape), out)

    spec = P(*mesh_axes)
    return jax.shard_map(body, mesh=mesh, in_specs=(spec, spec), out_specs=spec, check_vma=check_vma)


def check(table, names, mesh, axes, *, groups=None, dtype="float32", check_vma=True):
    sizes = tuple(mesh.shape[a] if a in mesh.axis_names else BATCH for a in axes)
    n = len(groups[0]) if groups else int(np.prod([sizes[axes.index(a)] for a in names]))
    x, fitting = shards(sizes, n, 0, dtype)
    f = program(table, names, mesh, axes, groups, check_vma)
    want = expected(table, names, axes, x, fitting, groups)
    got = jax.jit(f)(x, fitting)
    for k in table:
        assert_same(got[k], want[k])


FULL = {**TABLE, **WHOLE}


@pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no vma"])
@pytest.mark.parametrize("names", [("i",), ("j", "i")], ids=str)
@pytest.mark.parametrize("grid", GRIDS, ids=str)
def test_over_a_mesh(grid, names, check_vma):
    check(FULL, names, mesh_2d(grid), ["i", "j"], check_vma=check_vma)


@alone
@pytest.mark.parametrize("names", [("b",), ("b", "c"), ("c", "b")], ids=str)
def test_over_batches(names):
    check(FULL, names, mesh_1d(), ["i", "b", "c"])


# The table of all results grows with the fourth power of the ranks of a group: at 64 they are gigabytes.
small = pytest.mark.skipif(SIZE > 8, reason="the results of all ranks do not fit")


@pytest.mark.parametrize("names", [pytest.param(("i", "b"), marks=small), ("i",), pytest.param(("b", "i", "c"), marks=small)], ids=str)
@pytest.mark.one_in(3)
def test_over_mesh_and_batch(names):
    check(FULL, names, mesh_1d(), ["i", "b", "c"] if "c" in names else ["i", "b"])


@small
def test_a_batch_between_mesh_axes():
    check(FULL, ("i", "b", "j"), mesh_2d(GRIDS[0]), ["i", "j", "b"])


def halves(n):
    """Two interleaved groups, the second one listed backwards; one if that does not go."""
    return [list(range(0, n, 2)), list(range(1, n, 2))[::-1]] if n % 2 == 0 else [list(range(n))[::-1]]


@pytest.mark.parametrize("check_vma", [True, False], ids=["vma", "no vma"])
@pytest.mark.one_in(2)
def test_groups_over_a_mesh(check_vma):
    check(TABLE, ("i",), mesh_1d(), ["i"], groups=halves(SIZE), check_vma=check_vma)
    check(TABLE, ("i",), mesh_1d(), ["i", "b"], groups=halves(SIZE), check_vma=check_vma)
    grid = GRIDS[0]
    check(TABLE, ("j", "i"), mesh_2d(grid), ["i", "j"], groups=halves(SIZE), check_vma=check_vma)


@alone
def test_groups_over_a_batch():
    check(TABLE, ("b",), mesh_1d(), ["i", "b"], groups=[[1], [0]])
    check(TABLE, ("b",), mesh_1d(), ["i", "b"], groups=[[1, 0]])


def test_groups_of_different_sizes():
    groups = [list(range(1, SIZE)), [0]] if SIZE > 1 else [[0]]
    x = draw((SIZE, 3))
    f = jax.shard_map(lambda x: (lax.psum(x, "i", axis_index_groups=groups), lax.pmax(x, "i", axis_index_groups=groups)),
                      mesh=mesh_1d(), in_specs=P("i"), out_specs=P("i"))  # fmt: skip
    total, top = f(x)
    assert_same(total, np.concatenate([x[:1], np.tile(x[1:].sum(0), (SIZE - 1, 1))]))
    assert_same(top, x if SIZE == 1 else np.concatenate([x[:1], np.tile(x[1:].max(0), (SIZE - 1, 1))]))
    with pytest.raises(ValueError, match="cover all indices exactly once"):
        lax_in_body(lambda x: lax.psum(x, "i", axis_index_groups=[[0], [0]]))
    if SIZE > 2:
        with pytest.raises(ValueError, match="all be the same size"):
            lax_in_body(lambda x: lax.all_gather(x, "i", axis_index_groups=groups))


def lax_in_body(f, shape=(2, 3)):
    x = draw((shape[0] * SIZE, *shape[1:]))
    return jax.shard_map(f, mesh=mesh_1d(), in_specs=P("i"), out_specs=P("i"))(x)


@pytest.mark.parametrize("dtype", ["int32", "bfloat16", "complex64", "uint8"])
def test_dtypes(dtype):
    table = {k: v for k, v in FULL.items() if not (dtype == "complex64" and k in ("pmax", "pmin"))}
    check(table, ("i",), mesh_1d(), ["i"], dtype=dtype)


def test_truth_values():
    moving = {k: v for k, v in FULL.items() if k.startswith(("all_", "pp", "psh", "pbr", "psw")) or k == "psum"}
    check(moving, ("i",), mesh_1d(), ["i"], dtype="bool")


TRANSPOSED = [(("i",), True), (("i",), False), (("b", "i"), True)]
ALONE = [(("b",), True), (("b",), False), (("i", "b"), True), (("b", "i"), False)]


@pytest.mark.parametrize(("names", "check_vma"), one_in(2, TRANSPOSED + (ALONE if SIZE == 1 else []), rows=True))
@pytest.mark.one_in(2)
def test_transposes(names, check_vma):
    """<ct, f(x)> = <f^T(ct), x>, forward derivatives are f itself, and the transpose of the transpose is f."""
    table = {k: v for k, v in FULL.items() if k not in NOT_LINEAR}
    mesh, axes = mesh_1d(), ["i", "b"]
    n = int(np.prod([SIZE if a == "i" else BATCH for a in names]))
    args = real((SIZE, BATCH, 2 * n, 3 * n)), real((SIZE, BATCH, n, 2 * n), 1)
    f = jax.jit(program(table, names, mesh, axes, check_vma=check_vma))
    out, pull = jax.vjp(f, *args)
    cts = jax.tree.map(lambda y: real(y.shape, 2), out)
    back = pull({k: jax.device_put(v, out[k].sharding) for k, v in cts.items()})
    outs = {k: whole(v) for k, v in out.items()}
    left = sum(np.sum(outs[k].astype(np.float64) * cts[k]) for k in table)
    right = sum(np.sum(whole(b).astype(np.float64) * a) for a, b in zip(args, back, strict=True))
    np.testing.assert_allclose(left, right, rtol=1e-4)
    _, tangent = jax.jvp(f, args, args)
    for k in table:
        assert_same(tangent[k], outs[k], rtol=1e-5, atol=1e-6)
    again = jax.linear_transpose(lambda ct: pull(ct), cts)(args)[0]
    for k in table:
        assert_same(again[k], outs[k], rtol=1e-5, atol=1e-5)


def test_in_control_flow():
    """Loops and branches that all ranks take alike."""
    x = draw((SIZE * SIZE, 2))

    def body(x):
        def step(c, k):
            c = lax.all_to_all(c, "i", 0, 0, tiled=True)
            c = lax.cond(k % 2 == 0, lambda c: lax.psum_scatter(lax.all_gather(c, "i"), "i"), lambda c: c + 1, c)
            return c, lax.pswapaxes(c, "i", 0)

        return lax.scan(step, x, np.arange(3))

    f = jax.jit(jax.shard_map(body, mesh=mesh_1d(), in_specs=P("i"), out_specs=(P("i"), P(None, "i"))))
    carry, ys = f(x)
    c, want = x.reshape(SIZE, SIZE, 2), []
    for k in range(3):
        c = c.swapaxes(0, 1)
        c = c * SIZE if k % 2 == 0 else c + 1
        want.append(c.swapaxes(0, 1).reshape(x.shape))
    assert_same(carry, c.reshape(x.shape))
    assert_same(ys, np.stack(want))


BAD = {
    "all_to_all": (lambda x: lax.all_to_all(x, "i", 0, 1), "all_to_all requires the size of the mapped axis"),
    "all_to_all tiled": (lambda x: lax.all_to_all(x, "i", 0, 1, tiled=True), "has to be divisible by the size"),
    "psum_scatter": (lambda x: lax.psum_scatter(x, "i"), "must match shard count"),
    "psum_scatter tiled": (lambda x: lax.psum_scatter(x, "i", tiled=True), "must be divisible by shard_count"),
    "pshuffle": (lambda x: lax.pshuffle(x, "i", [0] * SIZE), "does not represent a permutation"),
    "pbroadcast": (lambda x: lax.pbroadcast(x, "i", SIZE), r"is outside \[0, .*the range of axis"),
    "pcast": (lambda x: lax.pcast(x, "i", to="there"), "Got unexpected `to` value"),
    "all_gather": (lambda x: lax.all_gather(x, "i", to="there"), "Got unexpected `to` value"),
}


@pytest.mark.skipif(SIZE == 1, reason="everything fits one rank")
@pytest.mark.parametrize("name", BAD)
def test_refused(name):
    f, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        lax_in_body(f, (2 * SIZE - 1, 3))
