"""Programs over four devices of one process, beside the real JAX with as many. Run by test_local_devices.py."""

from __future__ import annotations

from functools import partial

import jax as real
import numpy as np
import pytest
from quickly import one_in, slow

import mpijax as ours

rng = np.random.default_rng(7)
X = rng.normal(size=(8, 4)).astype(np.float32)
V = rng.normal(size=8).astype(np.float32)


class System:
    """One of the two systems, with the names that programs use."""

    def __init__(self, jax):
        self.jax, self.jnp, self.lax, self.random = jax, jax.numpy, jax.lax, jax.random
        self.P, self.NamedSharding = jax.sharding.PartitionSpec, jax.sharding.NamedSharding
        devices = np.array(jax.devices()[:4], dtype=object)
        self.line = jax.sharding.Mesh(devices, ("i",))
        self.grid = jax.sharding.Mesh(devices.reshape(2, 2), ("i", "j"))

    def over(self, f, mesh, in_specs, out_specs, **options):
        return self.jax.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs, **options)

    def put(self, x, spec, mesh=None):
        return self.jax.device_put(x, self.NamedSharding(self.line if mesh is None else mesh, spec))


OURS, REAL = System(ours), System(real)


def on_line(body, out="i", **options):
    return lambda s: s.jax.jit(s.over(lambda x: body(s, x), s.line, s.P("i"), s.P(out), **options))(X)


def on_grid(body, out=("i", "j"), **options):
    return lambda s: s.jax.jit(s.over(lambda x: body(s, x), s.grid, s.P("i", "j"), s.P(*out), **options))(X)


def while_all(s, x):
    def go_on(c):
        return s.lax.pmax(s.jnp.max(c[0]), "i") < 50.0

    return s.lax.while_loop(go_on, lambda c: (c[0] * 2 + 1, c[1]), (x, x))[0]


def scanned(s, x):
    def step(c, row):
        c = c + s.lax.ppermute(row, "i", [(k, (k + 1) % 4) for k in range(4)])
        return c, s.lax.psum(c, "i")

    start = s.lax.pcast(s.jnp.zeros(4), "i", to="varying")
    return s.lax.scan(step, start, x)[0][None]


def of_gradients(s):
    """The gradient of a global loss, through a sum, a permutation and a replicated weight."""

    def shard(w, x):
        y = s.jnp.tanh(x @ w)
        y = y + s.lax.ppermute(y, "i", [(0, 1), (1, 0)])
        return s.lax.psum(s.jnp.sum(y * y), ("i", "j"))

    loss = s.over(shard, s.grid, (s.P("j"), s.P("i", "j")), s.P())
    return s.jax.jit(s.jax.value_and_grad(loss, argnums=(0, 1)))(X[:4].T @ X[:4] * 0.1, X)


def of_pmap(s):
    f = s.jax.pmap(lambda a, b: s.lax.pmean(a * b, "n") + s.lax.axis_index("n"), axis_name="n", in_axes=(0, None))
    return f(X[:4], X[0])


def of_second_order(s):
    f = s.over(lambda x: s.lax.psum(s.jnp.sum(s.jnp.sin(x) * x), "i"), s.line, s.P("i"), s.P())
    return s.jax.jit(s.jax.hessian(lambda v: f(v) ** 2))(V)


def of_vmap(s):
    f = s.over(lambda x: s.lax.all_gather(x, "i", tiled=True) * x.sum(), s.line, s.P("i"), s.P("i"))
    return s.jax.vmap(f, in_axes=1)(X)


def of_partial_axes(s):
    inner = s.over(lambda x: s.lax.psum(x, "i"), s.grid, s.P("i"), s.P(), axis_names={"i"})
    return s.jax.jit(inner)(X)


def of_keys(s):
    f = s.over(lambda k: s.random.normal(k[0], (2, 3)), s.line, s.P("i"), s.P("i"))
    return f(s.random.split(s.random.key(3), 4))


def of_callbacks(s):
    def host(x):
        return np.cumsum(np.asarray(x), axis=0)

    def shard(x):
        return s.jax.pure_callback(host, s.jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    return s.over(shard, s.line, s.P("i"), s.P("i"))(X)


def of_looks(s):
    """Outside of jit, what is the same on all devices is known to Python."""

    def shard(x):
        total = s.lax.psum(s.jnp.sum(x), ("i", "j"))
        return x * 2 if total > 0 else x + total

    return s.over(shard, s.grid, s.P("i", "j"), s.P("i", "j"))(X)


def halves(s, x, perm):
    """JAX has them on GPUs only."""
    if s is REAL:
        return 2 * s.lax.ppermute(x, "i", perm)
    return 2 * s.lax.precv(s.lax.psend(x, "i", perm), x, "i", perm)


PROGRAMS = {
    "psum": on_line(lambda s, x: s.lax.psum(x, "i"), None),
    "psum of two axes": on_grid(lambda s, x: s.lax.psum(x, ("i", "j")), ()),
    "pmax and pmin": on_grid(lambda s, x: s.lax.pmax(x, "j") - s.lax.pmin(x, "j"), ("i",)),
    "pmean of one": on_grid(lambda s, x: s.lax.pmean(x, "i"), (None, "j")),
    "all_gather": on_line(lambda s, x: s.lax.all_gather(x, "i").sum(0) + x),
    "all_gather of two axes": on_grid(lambda s, x: s.lax.all_gather(x, ("i", "j"), axis=1, tiled=True)[:, :2]),
    "reduce scatter": on_line(lambda s, x: s.lax.psum_scatter(s.jnp.tile(x, (2, 1)), "i", tiled=True)),
    "all_to_all": on_line(lambda s, x: s.lax.all_to_all(x, "i", 1, 0, tiled=True), None, check_vma=False),
    "halves of ppermute": on_line(lambda s, x: halves(s, x, [(0, 1), (1, 3), (3, 0)])),
    "ppermute": on_grid(lambda s, x: s.lax.ppermute(x, "j", [(0, 1)])),
    "positions": on_grid(lambda s, x: x + 10 * s.lax.axis_index("i") + s.lax.axis_index(("j", "i"))),
    "groups": on_line(lambda s, x: s.lax.psum(x, "i", axis_index_groups=[[0, 3], [1, 2]]), check_vma=False),
    "groups over two axes": on_grid(
        lambda s, x: s.lax.psum_scatter(x, ("i", "j"), axis_index_groups=[[0, 2], [1, 3]], tiled=True), check_vma=False
    ),
    "groups side by side": on_grid(
        lambda s, x: s.lax.all_gather(x, ("j", "i"), axis_index_groups=[[0, 3], [1, 2]], axis=1), check_vma=False
    ),
    "groups exchange": on_grid(
        lambda s, x: s.lax.all_to_all(x, ("i", "j"), 0, 1, axis_index_groups=[[3, 0], [1, 2]], tiled=True),
        check_vma=False,
    ),
    "loop until all": on_line(while_all),
    "scan": on_line(scanned),
    "loop from zeros alike": on_line(lambda s, x: s.lax.fori_loop(0, 3, lambda i, c: c + x, s.jnp.zeros_like(x))),
    "branch by position": on_line(
        lambda s, x: s.lax.cond(s.lax.axis_index("i") == 2, lambda v: v * 10, lambda v: -v, x)
    ),
    "unchecked": on_grid(lambda s, x: s.lax.psum(x, "i"), (None, "j"), check_vma=False),
    "gradients": of_gradients,
    "second order": of_second_order,
    "vmap": of_vmap,
    "some axes": of_partial_axes,
    "pmap": of_pmap,
    "pmap of some devices": lambda s: s.jax.pmap(lambda v: s.lax.psum(v, "n"), axis_name="n")(V[:3]),
    "keys": of_keys,
    "callbacks": of_callbacks,
    "Python looks at a sum": of_looks,
    "no specification": lambda s: s.over(lambda x, y: x * 2, s.line, (None, s.P("i")), s.P())(X, V),
    "a mesh without devices": lambda s: s.over(s.jnp.sin, s.line.abstract_mesh, s.P("i"), s.P("i"))(s.put(X, s.P("i"))),
    "a vmap of the same name": lambda s: s.jax.vmap(s.over(s.jnp.sin, s.line, s.P("i"), s.P("i")), axis_name="i")(X.T),
}


@pytest.mark.parametrize("name", one_in(2, PROGRAMS))
@pytest.mark.one_in(2)
def test_programs(name):
    got, want = (real.tree.leaves(PROGRAMS[name](s)) for s in (OURS, REAL))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-5, atol=2e-5)


def test_ordered_callbacks_of_a_device_come_in_the_order_of_the_program():
    seen = []

    def shard(x):
        for number in range(3):
            ours.experimental.io_callback(lambda v, n=number: seen.append((n, v[0])), None, x, ordered=True)
        return x

    ours.jit(OURS.over(shard, OURS.line, OURS.P("i"), OURS.P("i")))(V)
    assert [[n for n, v in seen if v == first] for first in V[::2]] == [[0, 1, 2]] * 4


OPERATIONS = {
    "element by element": lambda s, x: s.jnp.sin(x) + 1,
    "reduced": lambda s, x: x.sum(0),
    "reduced to a number": lambda s, x: x.sum(),
    "kept": lambda s, x: x.max(1),
    "product": lambda s, x: x @ X.T,
    "transposed": lambda s, x: x.T,
    "one row": lambda s, x: x[0],
    "zeros alike": lambda s, x: (s.jnp.zeros_like(x), s.jnp.full_like(x, 2.0), s.jnp.ones_like(x, dtype=np.int32)),
    "under jit": lambda s, x: s.jax.jit(lambda a: (a * 2, a.sum(0)))(x),
    "gradient": lambda s, x: s.jax.grad(lambda a: (a * a).sum())(x),
    "asked for": lambda s, x: s.jax.jit(lambda a: a, out_shardings=s.NamedSharding(s.line, s.P(None, "i")))(x),
    "constrained": lambda s, x: s.jax.jit(
        lambda a: s.lax.with_sharding_constraint(a * 2, s.NamedSharding(s.line, s.P(None, "i")))
    )(x),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.one_in(3)
def test_shardings_follow_through_operations(name):
    got, want = (real.tree.leaves(OPERATIONS[name](s, s.put(X, s.P("i")))) for s in (OURS, REAL))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-6, atol=2e-6)
        assert str(a.sharding) == str(b.sharding)


@pytest.mark.parametrize("f", [
    lambda s, x: s.jnp.linalg.svd(x, full_matrices=False)[1],
    lambda s, x: s.jnp.tile(x, (2, 1)),
    lambda s, x: s.jnp.tile(x, (5, 1)),
    lambda s, x: s.lax.scan(lambda c, row: (c + row, c), x[0], x),
])  # fmt: skip
def test_operations_whose_rule_is_a_program(f):
    """Over ranks they become other operations. The devices of a process share the array, so they stay as they are."""
    got, want = (real.tree.leaves(s.jax.jit(lambda x: f(s, x))(s.put(X, s.P("i")))) for s in (OURS, REAL))  # noqa: B023
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-5, atol=1e-5)


PICKS = {
    "one position": lambda x: x[:, -1, :],
    "one position of one row": lambda x: x[-1, -1],
    "one column": lambda x: x[:, 1:2],
    "one row": lambda x: x[3],
}


@pytest.mark.parametrize("name", PICKS)
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.one_in(2)
def test_shardings_stay_along_other_axes(name, jitted):
    x = np.arange(32.0, dtype=np.float32).reshape(4, 4, 2)
    for spec in (("i", "j"), ("j", None, "i"), (None, ("i", "j"))):
        shardings = []
        for s in (OURS, REAL):
            f = s.jax.jit(PICKS[name]) if jitted else PICKS[name]
            shardings.append(str(f(s.put(x, s.P(*spec), s.grid)).sharding))
        assert shardings[0] == shardings[1]


def test_devices():
    for s in (OURS, REAL):
        assert s.jax.device_count() == s.jax.local_device_count() == 4 and s.jax.process_count() == 1
    for a, b in zip(ours.devices(), real.devices(), strict=True):
        assert (repr(a), str(a), a.id, a.process_index) == (repr(b), str(b), b.id, b.process_index)
        assert a.local_hardware_id == b.local_hardware_id


@pytest.mark.parametrize("spec", [("i",), (None, "i"), ()])
def test_shards(spec):
    a, b = (s.put(X, s.P(*spec)) for s in (OURS, REAL))
    assert a.is_fully_addressable and a.is_fully_replicated == b.is_fully_replicated
    assert {d.id for d in a.devices()} == {d.id for d in b.devices()}
    for p, q in zip(a.addressable_shards, b.addressable_shards, strict=True):
        assert (p.index, p.replica_id, p.device.id) == (q.index, q.replica_id, q.device.id)
        np.testing.assert_array_equal(np.asarray(p.data), np.asarray(q.data))
        assert p.data.devices() == {p.device}
    np.testing.assert_array_equal(np.asarray(a.addressable_data(2)), np.asarray(b.addressable_data(2)))
    with pytest.raises(IndexError):
        a.addressable_data(4)


def test_one_of_the_devices():
    for s in (OURS, REAL):
        second = s.jax.devices()[1]
        x = s.jax.device_put(V, second)
        assert x.devices() == {second} == (x * 2).devices() == s.jnp.sum(x).devices()
        assert x.device == second and x.committed
        assert s.jnp.zeros_like(x, shape=(3,)).devices() == {second} == x[x > np.inf].devices()
        assert s.jax.device_put(x, s.jax.devices()[0]).devices() == {s.jax.devices()[0]}
        with pytest.raises(ValueError, match="incompatible devices for jitted computation"):
            x + s.jax.device_put(V, s.jax.devices()[2])


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_an_error_names_the_argument_that_lies_elsewhere(s):
    sharding = s.NamedSharding(s.grid, s.P("j", None))

    def shifted(rows):
        return s.jax.lax.with_sharding_constraint(rows, sharding) + 1

    rows = s.jax.device_put(np.zeros((4, 2), np.float32), s.jax.devices()[3])
    text = r"argument rows of .*shifted.* with shape float32\[4,2\] and.* device ids \[3\].*sharding_constraint inside jit"
    with pytest.raises(ValueError, match=text):
        s.jax.jit(shifted)(rows)


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_arrays_of_parts(s):
    sharding = s.NamedSharding(s.grid, s.P("j", None))
    asked = []

    def part(index):
        asked.append(index[0].indices(8)[:2])
        return X[index]

    np.testing.assert_array_equal(np.asarray(s.jax.make_array_from_callback(X.shape, sharding, part)), X)
    assert set(asked) == {(0, 4), (4, 8)}
    parts = [s.jax.device_put(X[k : k + 2], d) for k, d in zip(range(0, 8, 2), s.jax.devices(), strict=True)]
    whole = s.jax.make_array_from_single_device_arrays(X.shape, s.NamedSharding(s.line, s.P("i")), parts[::-1])
    np.testing.assert_array_equal(np.asarray(whole), X)
    make = s.jax.make_array_from_process_local_data
    local = make({"a": sharding, "b": s.jax.devices()[1]}, {"a": X, "b": [X, X[:2]]}, {"a": X.shape, "b": None})
    assert (local["a"].shape, local["a"].sharding) == (X.shape, sharding)
    assert [(x.shape, x.devices()) for x in local["b"]] == [(n, {s.jax.devices()[1]}) for n in (X.shape, X[:2].shape)]
    with s.jax.set_mesh(sharding.mesh):
        assert make(s.P(sharding.spec[0]), X).sharding.is_equivalent_to(sharding, 2)
    with pytest.raises(ValueError):
        make(sharding, {"a": X}, {"a": X.shape, "b": X.shape})


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_specifications_in_the_context_of_a_mesh(s):
    with s.jax.set_mesh(s.line):
        assert s.jax.device_put(X, s.P("i")).sharding == s.NamedSharding(s.line, s.P("i"))


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_refused(s):
    with pytest.raises(ValueError, match=r"only varying across mesh axes \{\} and not \{i,j\}"):
        s.over(lambda x: x, s.grid, s.P("i", "j"), s.P())(X)
    with pytest.raises(ValueError, match=r"shard_map in_specs\[0\]"):
        s.over(lambda x: x, s.line, ([s.P("i")],), s.P("i"))([X, X])
    with pytest.raises(ValueError, match=r"consider using an in_specs entry of `P\(\)`"):
        s.over(lambda x: x, s.line, s.P(None), s.P())(3.0)
    with pytest.raises(ValueError, match="Please pass `jax.Array`s with a `NamedSharding`"):
        s.over(lambda x: x, s.line.abstract_mesh, s.P("i"), s.P("i"))(X)


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_parts_that_do_not_fit(s):
    sharding, (a, b, c) = s.NamedSharding(s.line, s.P("i")), s.jax.devices()[:3]
    with pytest.raises(ValueError, match=r"Expected shard shape \(2, 4\) doesn't match the single device array shape"):
        s.jax.make_array_from_callback(X.shape, sharding, lambda index: X)
    pair = s.NamedSharding(s.jax.sharding.Mesh([a, b], "i"), s.P("i"))
    for devices, message in [((a, a), "must be from distinct devices"), ((c, a), "per-device arrays devices do not mat")]:
        with pytest.raises(ValueError, match=message):
            s.jax.make_array_from_single_device_arrays((8,), pair, [s.jax.device_put(V[:4], d) for d in devices])
    with pytest.raises(ValueError, match="implies that array axis 0 is partitioned 4 times, but the dimension size is 7"):
        s.put(V[:7], s.P("i"))


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_shardings_of_compiled_programs(s):
    sharding = s.NamedSharding(s.line, s.P("i"))
    struct = s.jax.ShapeDtypeStruct((8,), np.float32, sharding=sharding)
    for f, x in [(s.jax.jit(lambda x: x * 2), struct), (s.jax.jit(lambda x: x * 2, in_shardings=sharding), V)]:
        compiled = f.lower(x).compile()
        assert compiled.input_shardings == ((sharding,), {}) and compiled.output_shardings == sharding
        np.testing.assert_array_equal(np.asarray(compiled(s.put(V, s.P("i")))), V * 2)


def test_compiled_pmap_takes_the_arguments_of_the_function():
    results = []
    for s in (OURS, REAL):
        f = s.jax.pmap(lambda d, n, y=1.0: {"s": d["a"] * n + d["b"][0] + y}, static_broadcasted_argnums=1)
        x = {"a": X[:4], "b": (V[:4], ())}
        lowered = f.lower(x, 3, y=V[4:])
        results.append(np.asarray(lowered.compile()(x, y=V[4:])["s"]))
        results.append((str(lowered.in_tree), [info.shape for info in s.jax.tree.leaves(lowered.args_info)]))
    np.testing.assert_allclose(results[0], results[2], rtol=1e-6)
    assert results[1] == results[3]


def test_specifications_from_the_arguments():
    explicit = ours.make_mesh((4,), ("i",))
    x = OURS.put(X, OURS.P("i"), explicit)
    f = ours.shard_map(lambda a: a.sum(0, keepdims=True), mesh=explicit, out_specs=OURS.P("i"))
    np.testing.assert_allclose(np.asarray(f(x)), X.reshape(4, 2, 4).sum(1), rtol=1e-6)
    np.testing.assert_array_equal(np.asarray(ours.jit(f)(x)), np.asarray(f(x)))


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_examples_split_over_a_mesh_axis(s):
    f = s.over(lambda x: s.lax.psum(x, "i") * 2, s.grid, s.P("i"), s.P())
    g = s.jax.vmap(f, spmd_axis_name="j")
    np.testing.assert_allclose(np.asarray(g(X)), 2 * X.reshape(8, 2, 2).sum(1), rtol=1e-6)
    text = str(s.jax.make_jaxpr(g)(X))
    assert "in_specs=(P('j', 'i'),)" in text and "out_specs=(P('j',),)" in text and "f32[4,2]{V:(i,j)}" in text
    h = s.jax.vmap(lambda x: s.lax.with_sharding_constraint(x * 2, s.NamedSharding(s.grid, s.P("i"))), spmd_axis_name="j")
    assert s.jax.jit(h)(X).sharding.spec == s.P("j", "i")


def gradients_of_examples(jax, f, x, weights) -> list:
    """Of w f(x) for each x and w, with the examples split over mesh axis "j", in several orders of transformations."""
    one = jax.grad(lambda x, w: f(x) * w)
    each = partial(jax.vmap, spmd_axis_name="j")
    return [
        each(one)(x, weights),
        jax.jit(each(jax.jit(one)))(x, weights),
        each(jax.grad(jax.checkpoint(lambda x, w: f(x) * w)))(x, weights),
        each(jax.grad(lambda x, w: one(x, w).sum()))(x, weights),
        each(lambda x, w: jax.vjp(f, x)[1](w)[0])(x, weights),
        jax.grad(lambda x: (each(f)(x) * weights).sum())(x),
    ]


@pytest.mark.parametrize("check", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_gradients_of_examples_split_over_a_mesh_axis(check):
    def of(s):
        total = (lambda x: s.lax.psum(x.sum(), "i")) if check else lambda x: x.sum()
        f = s.over(lambda x: s.jnp.sin(total(x)), s.grid, s.P("i"), s.P(), check_vma=check)
        return gradients_of_examples(s.jax, f, s.jnp.asarray(X[:4]), s.jnp.arange(1.0, 5.0))

    for mine, theirs in zip(of(OURS), real.jit(lambda: of(REAL))(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-4)


@pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])
def test_names_are_strings_or_tuples(s):
    with pytest.raises(TypeError, match="must be a tuple or a str"):
        s.over(lambda x: s.lax.pcast(x, {"i"}, to="varying"), s.line, s.P(), s.P("i"))(V)


def test_a_sum_over_devices_is_one_loop():
    f = OURS.over(lambda x: OURS.lax.psum(x, "i") * x, OURS.line, OURS.P("i"), OURS.P("i"))
    text = ours.jit(f).lower(X).compile().as_text()
    assert "communicate" not in text and text.count("kernel") == 1
