"""Where arguments and results of programs lie, and errors about it, beside the real JAX over four devices.

Run by test_local_devices.py.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from spmd.local_devices import OURS, REAL, V, X

BOTH = pytest.mark.parametrize("s", [OURS, REAL], ids=["ours", "real"])


def mesh(s, *shape, names="ij"):
    devices = np.array(s.jax.devices()[: int(np.prod(shape))]).reshape(shape)
    return s.jax.sharding.Mesh(devices, tuple(names[: len(shape)]))


def put(s, x, *spec):
    return s.jax.device_put(x, s.NamedSharding(mesh(s, 2, 2), s.P(*spec)))


def one(s, i):
    return s.jax.sharding.SingleDeviceSharding(s.jax.devices()[i])


def columns(s):
    thin = mesh(s, 1, 4)
    return s.jax.device_put(X, s.NamedSharding(thin, s.P(None, None))) + 1


def keys(s):
    return s.jax.device_put(s.random.split(s.random.key(0), 4), s.NamedSharding(mesh(s, 2, 2), s.P("i")))


PLACES = {
    "out_shardings of one device": lambda s: s.jax.jit(lambda x: x * 2, out_shardings=one(s, 1))(V),
    "jit for a device": lambda s: s.jax.jit(lambda x: x * 2, device=s.jax.devices()[2])(put(s, V, "i")),
    "under vmap": lambda s: s.jax.vmap(s.jax.jit(lambda x: x * 2, out_shardings=one(s, 1)))(V),
    "what depends on no argument": lambda s: s.jax.jit(lambda x: (x, s.jnp.zeros(3), 4))(put(s, V, "i")),
    "an argument that lies nowhere": lambda s: s.jax.jit(lambda x, y: (x, y * 2))(put(s, V, "i"), V),
    "axes of size 1 keep their names": lambda s: s.jax.device_put(
        X, s.NamedSharding(mesh(s, 1, 4), s.P("i", "j"))) + 1,
    "zeros like a struct": lambda s: s.jnp.zeros_like(
        s.jax.ShapeDtypeStruct((4, 2), np.float32, sharding=s.NamedSharding(mesh(s, 2, 2), s.P("i")))),
    "draws of keys lie where these do": lambda s: s.jax.jit(
        s.jax.vmap(lambda k: s.random.normal(s.random.split(s.random.fold_in(k, 3))[0], (3,))))(keys(s)),
    "the default device on purpose": lambda s: [f(s.jax.device_put(X, s.jax.devices()[0])) for f in (
        lambda x: x + 1, lambda x: x[1], lambda x: x.T, s.jnp.zeros_like, s.jax.jit(lambda x: x * 2), s.jnp.asarray)],
    "a mesh of one device": lambda s: [f(s.jax.device_put(V, s.NamedSharding(mesh(s, 1), s.P("i")))) for f in (
        lambda x: x, lambda x: x + 1, s.jax.jit(lambda x: x))],
    "device_put of a tree": lambda s: s.jax.device_put((V, X), (one(s, 1), s.NamedSharding(mesh(s, 4), s.P("i")))),
}  # fmt: skip


def flat(s, x):
    return [(np.asarray(leaf), leaf.sharding) for leaf in s.jax.tree.leaves(x)]


def ids(sharding, shape):
    return {d.id: str(index) for d, index in sharding.devices_indices_map(shape).items()}


@pytest.mark.filterwarnings("ignore:backend and device")
@pytest.mark.parametrize("name", PLACES)
def test_places_are_those_of_jax(name):
    for (x, mine), (y, theirs) in zip(flat(OURS, PLACES[name](OURS)), flat(REAL, PLACES[name](REAL)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)
        assert ids(mine, x.shape) == ids(theirs, y.shape)
        assert str(getattr(mine, "spec", None)) == str(getattr(theirs, "spec", None))


@BOTH
def test_arrays_put_on_the_default_device_are_committed(s):
    first, free = s.jax.device_put(V, s.jax.devices()[0]), s.jnp.asarray(V)
    assert [x.committed for x in (first, first + free, s.jax.device_put(first), free, free + 1)] == [True] * 3 + [False] * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_layouts_left_to_pjit_are_whole_where_there_is_a_mesh():
    def seen(s):
        module = import_module(f"{s.jax.__name__}.experimental.pjit")
        f = module.pjit(lambda x, y: (x + y, {"a": x}), in_shardings=(s.P("i"), None), out_shardings=None)
        with mesh(s, 2, 2):
            outs = s.jax.tree.leaves((f(V, V), s.jax.jit(f)(V, V), f.lower(V, V).compile()(V, V)))
        free = module.pjit(lambda x: x + 1, in_shardings=None, out_shardings=None)(V)
        return [(len(x.addressable_shards), x.addressable_shards[0].data.shape) for x in (*outs, free)]

    assert seen(OURS) == seen(REAL)


@BOTH
def test_compiled_programs_tell_where_all_lies(s):
    compiled = s.jax.jit(lambda x, y: (x + 1, y)).lower(put(s, V, "i"), np.arange(3)).compile()
    assert [x.spec for x in compiled.input_shardings[0]] == [s.P("i"), s.P()]
    assert [x.sharding.spec for x in compiled.out_info] == [s.P("i"), s.P()]
    alone = s.jax.jit(lambda x: x * 2).lower(V).compile()
    assert alone.out_info.sharding == one(s, 0) == alone.input_shardings[0][0]


def test_given_away_arrays_are_deleted_once_they_are_elsewhere():
    s = OURS  # in JAX some moves copy
    a, b = put(s, V, "i"), put(s, X, "i")
    outs = s.jax.device_put((a, b), s.NamedSharding(mesh(s, 4), s.P("i")), donate=(True, False))
    assert a.is_deleted() and not b.is_deleted()
    np.testing.assert_array_equal(np.asarray(outs[0]), V)


@BOTH
def test_a_number_that_an_inlined_function_returns_is_an_array(s):
    shapes = []
    inner = s.jax.jit(lambda x: s.jnp.array(1), inline=True)
    out = s.jax.jit(lambda x: shapes.append(inner(x).shape) or inner(x))(0.0)
    assert shapes == [()] and out == 1


def struct(s, **how):
    return s.jax.ShapeDtypeStruct((8,), np.float32, **how)


def compiled_elsewhere(s):
    s.jax.jit(lambda x: x * 2).lower(put(s, V, "i")).compile()(put(s, V, "j"))


def names_of_arguments(s):
    def f(first, tree):
        return first, tree

    s.jax.jit(f)(put(s, V, "i"), {"a": [s.jax.device_put(V, s.jax.devices()[1])]})


def on_two_devices(s):
    s.jnp.concatenate([s.jax.device_put(V, d) for d in s.jax.devices()[:2]])


def another_order(s):
    back = s.jax.sharding.Mesh(np.array(s.jax.devices()[3::-1]).reshape(2, 2), ("i", "j"))
    put(s, V, "i") + s.jax.device_put(V, s.NamedSharding(back, s.P("i")))


def no_place(s):
    s.lax.with_sharding_constraint(s.jnp.asarray(V), None)


def free_argument(s):
    s.jax.jit(lambda x: x, in_shardings=s.NamedSharding(mesh(s, 2, 2), s.P(s.P.UNCONSTRAINED, "i")))


@BOTH
@pytest.mark.filterwarnings("ignore:backend and device")
@pytest.mark.parametrize(
    ("f", "error", "text"),
    [
        (compiled_elsewhere, ValueError, r"compiled for input shardings that disagree(.|\n)*1 mismatches:\nArgument x with"),
        (names_of_arguments, ValueError, r"Got argument first of .*f with shape float32\[8\] and with device ids "
         r"\[0, 1, 2, 3\] on platform CPU and argument tree\['a'\]\[0\] of .*f with shape float32\[8\] .*\[1\]"),
        (on_two_devices, ValueError, r"Got argument.* of concatenate with shape float32\[8\] .*ids \[0\] .*and argument.*\[1\]"),
        (another_order, ValueError, r"device ids \[0, 1, 2, 3\] .*and argument .*device ids \[3, 2, 1, 0\]"),
        (no_place, ValueError, "got sharding None which is not allowed"),
        (free_argument, ValueError, "Unconstrained dims are not allowed"),
        (lambda s: s.jax.jit(lambda x: x)({"a": struct(s)}), TypeError, r"Argument 'x\['a'\]' of shape float32\[8\] of type"),
        (lambda s: s.jax.jit(lambda x: (x, struct(s)))(V), Exception, "A ShapeDtypeStruct does not have a value"),
        (lambda s: s.jax.jit(lambda x: x, device=s.jax.devices()[0], backend="cpu"), ValueError, "both a device and a backend"),
        (lambda s: s.jax.jit(lambda x: x, in_shardings=one(s, 0), backend="cpu"), ValueError, "in_shardings should not be"),
        (lambda s: s.jax.jit(lambda x: x, out_shardings=one(s, 0), device=s.jax.devices()[0]), ValueError, "out_shardings should"),
        (lambda s: s.jax.make_mesh(((2,), 2), ("i", "j")), ValueError, "should be a sequence of ints"),
    ],
)  # fmt: skip
def test_refused(s, f, error, text):
    with pytest.raises(error, match=text):
        f(s)
