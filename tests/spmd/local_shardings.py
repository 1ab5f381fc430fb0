"""Shardings asked for by `out_sharding`, `auto_axes` and `explicit_axes`, beside the real JAX over four devices.

Run by test_local_devices.py.
"""

from __future__ import annotations

import numpy as np
import pytest
from quickly import one_in, slow
from spmd.local_devices import OURS, REAL, V, X

BOTH = pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])


def grid(s, kind="Explicit"):
    kinds = (getattr(s.jax.sharding.AxisType, kind),) * 2
    return s.jax.set_mesh(s.jax.make_mesh((2, 2), ("i", "j"), axis_types=kinds))


def put(s, x, *spec):
    return s.jax.device_put(x, s.P(*spec))


def keyed(name, *args, **options):
    return lambda s: getattr(s.random, name)(s.random.key(3), *args, **options, out_sharding=s.P("i", "j"))


RESULTS = {
    "zeros": lambda s: s.jnp.zeros((4, 2), out_sharding=s.P("i", None)),
    "arange": lambda s: s.jnp.arange(4, out_sharding=s.P("j")),
    "iota": lambda s: s.lax.broadcasted_iota(np.int32, (4, 2), 0, out_sharding=s.P("j")),
    "broadcast": lambda s: s.jnp.broadcast_to(put(s, V, "i"), (2, 8), out_sharding=s.P("j", "i")),
    "reshape": lambda s: s.jnp.reshape(put(s, X, "i", None), (32,), out_sharding=s.P("i")),
    "ravel method": lambda s: put(s, X, "i", None).ravel(out_sharding=s.P("i")),
    "dot": lambda s: s.jnp.dot(put(s, X, "i", "j"), put(s, X.T, "j", None), out_sharding=s.P("i")),
    "einsum": lambda s: s.jnp.einsum("ab,cb->ca", put(s, X, "i", "j"), put(s, X, None, "j"), out_sharding=s.P(None, "i")),
    "get": lambda s: put(s, X, "i", None).at[np.array([3, 0])].get(out_sharding=s.P(None, "j")),
    "set": lambda s: put(s, X, "i", "j").at[np.array([3, 0])].set(1.0, out_sharding=s.P("i", "j")),
    "uniform": keyed("uniform", (4, 2)),
    "normal": keyed("normal", (4, 2)),
    "randint": keyed("randint", (4, 2), 0, 9),
    "initializer": lambda s: s.jax.nn.initializers.ones(s.random.key(3), (4, 2), out_sharding=s.P("i")),
    "auto": lambda s: s.jax.sharding.auto_axes(lambda a: a @ a.T, out_sharding=s.P("j", None))(put(s, X, "i", "j")),
    "auto at the call": lambda s: s.jax.sharding.auto_axes(s.jnp.sin)(put(s, V, "i"), out_sharding=s.P("j")),
    "sum": lambda s: put(s, X, "i", "j").sum(1),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(2, RESULTS))
@pytest.mark.one_in(2)
def test_results_lie_as_asked(name):
    found = []
    for s in (OURS, REAL):
        with grid(s):
            out = RESULTS[name](s)
            found.append((tuple(out.sharding.spec), np.asarray(out)))
    (ours, mine), (real, theirs) = found
    assert ours == real
    np.testing.assert_allclose(mine, theirs, rtol=1e-5)


# Of an (8, 8) array over Auto axes, in one program: the names that its axes keep.
KEPT = {
    "roll": lambda s, x: (s.jnp.roll(x, 3, 0), s.jnp.roll(x, 1, 1), s.jnp.roll(x, (2, 1), (0, 1))),
    "halves": lambda s, x: (x[:4], x[:, 4:], *s.jnp.split(x, 2), x[1:5, ::2]),
    "what does not divide": lambda s, x: (x[:3], x[:, 1:], s.jnp.concatenate([x[3:], x[:3]]), x[1:] - x[:-1]),
    "sizes that some axes divide": lambda s, x: (
        x[:6], x[:2], s.jnp.concatenate([x[:3], x[:1]]), s.jnp.concatenate([x[:3], x[:3]]), s.jnp.pad(x, ((0, 2), (0, 0)))),
    "fft": lambda s, x: (s.jnp.fft.fft(x), s.jnp.fft.fft(x, axis=0), s.jnp.fft.rfft(x), s.jnp.fft.fftshift(x)),
    "updates": lambda s, x: (x.at[2, 3].set(1), x.at[0].set(1), x.at[:, 1].add(1), x.at[np.array([1, 2])].mul(2.0)),
    "window": lambda s, x: s.lax.dynamic_update_slice(x, s.jnp.ones((2, 2)), (1, 1)),
    "sort": lambda s, x: (s.jnp.sort(x, 0), s.jnp.sort(x, 1), s.jnp.cumsum(x, 0), s.lax.cummax(x, 1)),
    "convolution": lambda s, x: s.lax.conv_general_dilated(x[None, None], np.ones((1, 1, 3, 3), np.float32), (1, 1), "SAME"),
    "top": lambda s, x: s.lax.top_k(x, 2),
    "decompositions": lambda s, x: (s.jnp.linalg.qr(x)[1], s.jnp.linalg.cholesky(x @ x.T + 99 * s.jnp.eye(8))),
}  # fmt: skip


@pytest.mark.parametrize("name", one_in(3, KEPT))
@pytest.mark.one_in(3)
def test_axes_keep_their_names_as_in_jax(name):
    def specs(s):
        mesh = s.jax.make_mesh((2, 2), ("i", "j"), axis_types=(s.jax.sharding.AxisType.Auto,) * 2)
        x = np.arange(64, dtype=np.float32).reshape(8, 8)
        f = s.jax.jit(lambda x: KEPT[name](s, x))
        places = [("i",), (None, "j"), ("i", "j"), (("i", "j"),)]
        outs = s.jax.tree.leaves([f(s.jax.device_put(x, s.NamedSharding(mesh, s.P(*place)))) for place in places])
        return [str(out.sharding.spec) for out in outs]

    assert specs(OURS) == specs(REAL)


@pytest.mark.parametrize("spec", [("i", None), (None,), (None, "j")])
def test_results_of_shard_map_keep_their_specs(spec):
    found = []
    for s in (OURS, REAL):
        with grid(s, "Auto"):
            double = s.jax.shard_map(lambda x: 2 * x, in_specs=s.P(*spec), out_specs=s.P(*spec))
            found.append((tuple(double(X).sharding.spec), tuple(s.jax.jit(double)(X).sharding.spec)))
    assert found[0] == found[1]


WORDED = {
    "elementwise": (lambda s, x, over: x * 2, ()),
    "square": (lambda s, x, over: x @ x.T, ()),
    "other rank": (lambda s, x, over: x.sum(1), ()),
    "constraint": (lambda s, x, over: s.lax.with_sharding_constraint(x.T, over("j", None)), ()),
    "constraint of another rank": (lambda s, x, over: s.lax.with_sharding_constraint(x[:, None], over("i", None, None)), ()),
    "asked": (lambda s, x, over: (x * 2, x + 1, x * 3), [("i", None), (), ("i",)]),
    "nested": (lambda s, x, over: s.jax.jit(lambda x: x * 3, out_shardings=over("i", None))(x), ()),
}


@pytest.mark.parametrize("spec", [("i", None), ("i",), ()], ids=str)
@pytest.mark.parametrize("name", WORDED)
@pytest.mark.one_in(3)
def test_results_over_auto_axes_are_worded_as_jaxs(name, spec):
    """`P("i")` and `P("i", None)` mean the same and are not equal."""
    f, asked = WORDED[name]

    def specs(s):
        mesh = s.jax.make_mesh((2, 2), ("i", "j"), axis_types=(s.jax.sharding.AxisType.Auto,) * 2)

        def over(*names):
            return s.NamedSharding(mesh, s.P(*names))

        given = {"out_shardings": tuple(over(*names) for names in asked)} if asked else {}
        jitted, x = s.jax.jit(lambda x: f(s, x, over), **given), s.jax.device_put(X, over(*spec))
        outs = s.jax.tree.leaves((jitted(x), jitted.lower(x).compile()(x)))
        return [tuple(out.sharding.spec) for out in outs]

    assert specs(OURS) == specs(REAL)


WORDED_KEYS = {
    "keys": lambda s, k: (k.T, s.jnp.where(np.ones((4, 1), bool), k, k), k[:, 0], k[..., None]),
    "splits": lambda s, k: s.jax.vmap(s.jax.vmap(s.random.split))(k),
    "words": lambda s, k: (s.random.key_data(k), s.jax.jit(s.random.key_data)(k)),
    "keys of words": lambda s, k: s.random.wrap_key_data(s.random.key_data(k)),
    "bits": lambda s, k: s.jax.vmap(s.jax.vmap(s.random.bits))(k),
}


@pytest.mark.parametrize("spec", [("i", None), (None, "j"), ("i", "j")], ids=str)
@pytest.mark.parametrize("name", WORDED_KEYS)
@pytest.mark.one_in(3)
def test_specs_of_keys_are_worded_as_jaxs(name, spec):
    def specs(s):
        mesh = s.jax.make_mesh((2, 2), ("i", "j"), axis_types=(s.jax.sharding.AxisType.Auto,) * 2)
        keys = s.jax.device_put(s.random.split(s.random.key(0), (4, 2)), s.NamedSharding(mesh, s.P(*spec)))
        return [tuple(out.sharding.spec) for out in s.jax.tree.leaves(WORDED_KEYS[name](s, keys))]

    assert specs(OURS) == specs(REAL)


@pytest.mark.parametrize("spec", [("i", None), ("j",), ("j", None), ("i", "j"), (None, "i")], ids=str)
@pytest.mark.one_in(2)
def test_specs_name_all_axes_of_a_type_only_without_auto_axes(spec):
    def specs(s):
        kinds = (s.jax.sharding.AxisType.Explicit, s.jax.sharding.AxisType.Auto)
        with s.jax.set_mesh(s.jax.make_mesh((2, 2), ("i", "j"), axis_types=kinds)):
            x = s.jax.device_put(X, s.P(*spec))
            constrained = s.jax.jit(lambda x: s.lax.with_sharding_constraint(x, s.P("j")))(x)
            outs = (x + 1, x.T, x.sum(1), s.jax.jit(lambda x: x[:, :, None])(x), constrained)
            return [tuple(out.sharding.spec) for out in outs]

    assert specs(OURS) == specs(REAL)


def test_specs_leave_out_mesh_axes_of_one_device():
    def specs(s):
        mesh = s.jax.make_mesh((4, 1), ("i", "j"), axis_types=(s.jax.sharding.AxisType.Auto,) * 2)
        places = [("j", None), (("i", "j"),), ("i", "j"), (None, ("i", "j"))]
        placed = [s.NamedSharding(mesh, s.P(*place)) for place in places]
        f = s.jax.jit(lambda x: [s.lax.with_sharding_constraint(x, over) + 1 for over in placed])
        return [tuple(out.sharding.spec) for out in (*f(X), s.jax.device_put(X, placed[2]) + 1)]

    assert specs(OURS) == specs(REAL)


PLACED = {
    "array": lambda s, d, x: s.jnp.array(x, device=d),
    "array of a constant": lambda s, d, x: s.jnp.asarray(X, device=d) + x,
    "astype": lambda s, d, x: x.astype(np.int32, device=d),
    "arange": lambda s, d, x: s.jnp.arange(3, device=d),
    "linspace": lambda s, d, x: s.jnp.linspace(0, 1, 3, device=d),
    "zeros": lambda s, d, x: s.jnp.zeros(3, device=d),
    "device_put": lambda s, d, x: s.jax.device_put(x, d),
    "device_put of a constant": lambda s, d, x: s.jax.device_put(X, d),
    "device_put to a sharding": lambda s, d, x: s.jax.device_put(x, s.jax.sharding.SingleDeviceSharding(d)) + 1,
    "constant to a sharding": lambda s, d, x: s.jax.device_put(X, s.jax.sharding.SingleDeviceSharding(d)),
}


@pytest.mark.parametrize("held", [None, 2], ids=["not committed", "committed elsewhere"])
@pytest.mark.parametrize("name", PLACED)
@pytest.mark.one_in(3)
def test_where_programs_place_values_on_a_device(name, held):
    def found(s):
        x = X if held is None else s.jax.device_put(X, s.jax.devices()[held])
        try:
            outs = s.jax.jit(lambda x: (PLACED[name](s, s.jax.devices()[1], x), x + 1))(x)
            return [repr(out.sharding) for out in outs]
        except ValueError as e:
            return str(e)[:60]

    assert found(OURS) == found(REAL)


@pytest.mark.parametrize("lowered_for", ["types", "values elsewhere"])
def test_programs_compiled_for_a_device_run_there(lowered_for):
    def found(s):
        one, other = map(s.jax.sharding.SingleDeviceSharding, s.jax.devices()[1:3])
        example = s.jax.ShapeDtypeStruct(X.shape, X.dtype) if lowered_for == "types" else s.jax.device_put(X, other)
        said = []
        for jitted in (s.jax.jit(lambda x: x * 2, in_shardings=one), s.jax.jit(lambda x: x * 3)):
            compiled = jitted.lower(example).compile()
            said.append(repr(compiled.input_shardings))
            for x in (X, X, s.jnp.asarray(X), s.jax.device_put(X, one), s.jax.device_put(X, other)):
                try:
                    said.append(repr(compiled(x).sharding))
                except ValueError as e:
                    said.append(str(e)[:60])
        return said

    assert found(OURS) == found(REAL)


def kinds(s):
    mesh = s.jax.sharding.get_abstract_mesh()
    return mesh.auto_axes, mesh.explicit_axes


def test_types_of_axes_while_a_function_runs():
    found = []
    for s in (OURS, REAL):
        seen = []

        def f(x, s=s, seen=seen):
            seen.append(kinds(s))
            return x

        with grid(s):
            s.jax.sharding.auto_axes(f, axes="j", out_sharding=s.P("i"))(put(s, V, "i"))
            s.jax.jit(s.jax.sharding.auto_axes(f, out_sharding=s.P("i")))(put(s, V, "i"))
            seen.append(kinds(s))
        with grid(s, "Auto"):
            out = s.jax.jit(s.jax.sharding.explicit_axes(f, in_sharding=s.P("j")))(V)
            seen += [kinds(s), tuple(out.sharding.spec)]
        with s.jax.sharding.use_abstract_mesh(s.jax.sharding.AbstractMesh((8,), ("k",))):
            seen.append(s.jax.sharding.get_abstract_mesh().shape_tuple)
        found.append(seen)
    assert found[0] == found[1]


def without_sharding(s):
    with grid(s):
        return s.jax.sharding.auto_axes(lambda x: x)(V)


def without_mesh(s):
    return s.jax.sharding.explicit_axes(lambda x: x, in_sharding=s.P("i"))(V)


def of_another_mesh(s):
    sharding = s.NamedSharding(s.line, s.P("i"))
    with grid(s):
        return s.jax.sharding.auto_axes(lambda x: x, out_sharding=sharding)(V)


def of_another_size(s):
    def mesh(n):
        return s.jax.sharding.use_abstract_mesh(s.jax.sharding.AbstractMesh((n,), ("k",)))

    with mesh(2), mesh(4):
        pass


def over_mapped_axes(s):
    f = s.jax.sharding.auto_axes(lambda x: x, out_sharding=s.P())
    with grid(s):
        return s.jax.jit(s.jax.shard_map(f, in_specs=s.P("i"), out_specs=s.P("i")))(put(s, V, "i"))


@BOTH
@pytest.mark.filterwarnings("ignore:.with mesh:DeprecationWarning")
def test_a_mesh_decorates_functions(s):
    @s.grid
    def f():
        return s.lax.with_sharding_constraint(s.jnp.asarray(V), s.P("j"))

    out = f()
    assert out.sharding.spec == s.P("j") and out.block_until_ready().is_ready()


TILING = r"partitioned 2 times.*size is 3 \(full shape: \(8, 3\), per-dimension tiling factors: \[2, 2\] should evenly"


@BOTH
@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (lambda s: s.NamedSharding(s.grid, s.P("i", "j")).shard_shape((8, 3)), ValueError, TILING),
        (lambda s: s.NamedSharding(s.grid, s.P(None, "i")).check_compatible_aval((8,)), ValueError, "of rank at least 2"),
        (without_sharding, TypeError, "Missing required keyword argument: 'out_sharding'"),
        (without_mesh, ValueError, "Context mesh cannot be empty"),
        (of_another_mesh, ValueError, "mesh"),
        (of_another_size, ValueError, "cannot change the size of the mesh"),
        (over_mapped_axes, NotImplementedError, "Manual"),
        (lambda s: s.jax.sharding.use_abstract_mesh(s.line), ValueError, "Expected mesh of type"),
        (lambda s: s.random.normal(s.random.key(0), (8,), out_sharding=s.P("i")), (RuntimeError, ValueError), "mesh"),
    ],
)
def test_refused(s, f, error, text):
    with pytest.raises(error, match=text):
        f(s)
