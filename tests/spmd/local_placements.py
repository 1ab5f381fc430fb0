"""Where arguments and results of programs lie, and errors about it, beside the real JAX over four devices.

Run by test_local_devices.py.
"""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from quickly import one_in, slow
from spmd.local_devices import OURS, REAL, V, X

BOTH = pytest.mark.parametrize("s", [OURS, *slow(REAL)], ids=["ours", "real"])


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


class Held:
    """An array of a library's own type, such as a variable of Flax."""

    def __init__(self, array):
        self.shape, self.dtype, self.sharding = array.shape, array.dtype, array.sharding
        self.__jax_array__ = lambda: array


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
    "like a library's object that holds an array": lambda s: [f(Held(put(s, V, "i"))) for f in (
        s.jnp.zeros_like, s.jnp.ones_like, lambda x: s.jnp.full_like(x, 2.0), lambda x: s.jnp.zeros_like(x, shape=(3,)))],
    "draws of keys lie where these do": lambda s: s.jax.jit(
        s.jax.vmap(lambda k: s.random.normal(s.random.split(s.random.fold_in(k, 3))[0], (3,))))(keys(s)),
    "the default device on purpose": lambda s: [f(s.jax.device_put(X, s.jax.devices()[0])) for f in (
        lambda x: x + 1, lambda x: x[1], lambda x: x.T, s.jnp.zeros_like, s.jax.jit(lambda x: x * 2), s.jnp.asarray)],
    "a mesh of one device": lambda s: [f(s.jax.device_put(V, s.NamedSharding(mesh(s, 1), s.P("i")))) for f in (
        lambda x: x, lambda x: x + 1, s.jax.jit(lambda x: x))],
    "in_shardings of one device": lambda s: [s.jax.jit(lambda x: x * 2, in_shardings=one(s, 1))(x) for x in (
        V, s.jax.device_put(V, s.jax.devices()[0]))],
    "in_shardings over a mesh of other axes": lambda s: s.jax.jit(
        lambda x: x * 2, in_shardings=s.NamedSharding(mesh(s, 4), s.P("i")))(
            s.jax.device_put(V, s.NamedSharding(mesh(s, 2, 2), s.P(("i", "j"))))).addressable_shards[3].data,
    "pmap over devices in another order": lambda s: s.jax.pmap(lambda x: x, devices=s.jax.devices()[::-1])(
        s.jax.device_put(V[:4], s.NamedSharding(mesh(s, 4), s.P("i")))).addressable_shards[1].data,
    "a body over a mesh without devices": lambda s: s.jax.jit(lambda x: s.jax.shard_map(
        lambda x: x * 2, mesh=mesh(s, 2).abstract_mesh, in_specs=s.P("i"), out_specs=s.P("i"))(x))(
            s.jax.device_put(V, s.NamedSharding(s.jax.sharding.Mesh(s.jax.devices()[2:4], "i"), s.P()))),
    "compiled for arrays without devices": lambda s: s.jax.jit(s.jax.shard_map(
        lambda x: x, mesh=mesh(s, 4), in_specs=s.P("i"), out_specs=s.P("i"))).lower(s.jnp.asarray(V)).compile()(V),
    "a gradient of what goes to other devices": lambda s: s.jax.value_and_grad(lambda x: s.jnp.sum(s.jax.jit(lambda y: y * 3)(
        s.jax.device_put(x**2, s.NamedSharding(s.jax.sharding.Mesh(s.jax.devices()[2:4], "i"), s.P("i"))))))(
            s.jax.device_put(V, s.NamedSharding(mesh(s, 2), s.P("i")))),
    "parts in a Format": lambda s: s.jax.make_array_from_callback(
        (8,), put(s, V, "i").format, lambda index: V[index]),
    "compiled for a type": lambda s: s.jax.jit(lambda x: x * 2).lower(
        s.jax.core.ShapedArray((8,), np.float32)).compile()(V),
    "an operation of others on one device": lambda s: s.jax.jit(s.jnp.fft.rfft)(s.jax.device_put(V, s.jax.devices()[2])),
    "from_dlpack onto a device": lambda s: s.jnp.from_dlpack(X, device=s.jax.devices()[2]),
    "device_put of a tree": lambda s: s.jax.device_put((V, X), (one(s, 1), s.NamedSharding(mesh(s, 4), s.P("i")))),
}  # fmt: skip


def flat(s, x):
    return [(np.asarray(leaf), leaf.sharding) for leaf in s.jax.tree.leaves(x)]


def ids(sharding, shape):
    return {d.id: str(index) for d, index in sharding.devices_indices_map(shape).items()}


@pytest.mark.filterwarnings("ignore:backend and device")
@pytest.mark.parametrize("name", one_in(2, PLACES))
@pytest.mark.one_in(2)
def test_places_are_those_of_jax(name):
    for (x, mine), (y, theirs) in zip(flat(OURS, PLACES[name](OURS)), flat(REAL, PLACES[name](REAL)), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5)
        assert ids(mine, x.shape) == ids(theirs, y.shape)
        assert str(getattr(mine, "spec", None)) == str(getattr(theirs, "spec", None))


INSPECTED = {
    "a result": lambda s, look: s.jax.jit(lambda x: look(x * 2))(put(s, X, "i")),
    "a sum": lambda s, look: s.jax.jit(lambda x: look(x.sum(0)))(put(s, X, "i", "j")),
    "a gradient": lambda s, look: s.jax.jit(s.jax.grad(lambda x: look(s.jnp.sin(x)).sum()))(put(s, X, "i")),
    "what is asked for": lambda s, look: s.jax.jit(lambda x: look(constrained(s, x * 2)))(put(s, X)),
    "a branch": lambda s, look: s.jax.jit(lambda x: s.jax.lax.cond(x[0, 0] > 1, look, lambda x: x + 1, x))(
        put(s, X, "i")),
    "examples": lambda s, look: s.jax.vmap(look)(put(s, X, "i")),
    "what is differentiated": lambda s, look: s.jax.grad(lambda x: look(x).sum())(put(s, X, None, "j")),
    "a shard": lambda s, look: s.jax.jit(s.jax.shard_map(
        look, mesh=mesh(s, 2, 2), in_specs=s.P("i"), out_specs=s.P("i")))(put(s, X, "i")),
}  # fmt: skip


@pytest.mark.parametrize("name", INSPECTED)
def test_shardings_seen_in_programs_are_those_of_jax(name):
    def seen(s):
        found = []

        def look(x):
            s.jax.debug.inspect_array_sharding(x, callback=found.append)
            return x

        INSPECTED[name](s, look)
        return [(str(x.spec), dict(x.mesh.shape)) for x in found]

    assert seen(OURS) == seen(REAL) != []


CONTEXTS = {
    "the mesh set": lambda s: s.jax.set_mesh(mesh(s, 2, 2)),
    "another mesh set": lambda s: s.jax.set_mesh(mesh(s, 4)),
    "a mesh of Explicit axes set": lambda s: s.jax.set_mesh(
        mesh(s, 4).update(axis_types=(s.jax.sharding.AxisType.Explicit,))),
    "a mesh entered": lambda s: mesh(s, 2, 2),
    "a default device": lambda s: s.jax.default_device(s.jax.devices()[3]),
    "another default device": lambda s: s.jax.default_device(s.jax.devices()[2]),
}

# Of arrays made before, outside of the context: one that lies nowhere, one put on a device, one over the mesh.
MADE = {
    "array": lambda s, *_: s.jnp.array(V),
    "asarray": lambda s, x, *_: s.jnp.asarray(x),
    "arange": lambda s, *_: s.jnp.arange(4),
    "put": lambda s, *_: s.jax.device_put(V),
    "operation": lambda s, x, *_: x + 1,
    "part": lambda s, x, *_: x[1:3].sum(),
    "jit": lambda s, x, *_: DOUBLE[s](x),
    "gradient": lambda s, x, *_: s.jax.grad(lambda x: (x**2).sum())(x),
    "key": lambda s, *_: s.random.key(1),
    "put before": lambda s, _, y, z: y + 1,
    "laid out before": lambda s, x, _, z: z + x,
    "pmap": lambda s, x, *_: s.jax.pmap(lambda x: x)(x[:4]),
}
DOUBLE = {s: s.jax.jit(lambda x: x * 2) for s in (OURS, REAL)}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("context", one_in(2, CONTEXTS))
@pytest.mark.one_in(3)
def test_what_lies_nowhere_goes_where_the_context_says(context):
    def seen(s):
        found = {}
        before = s.jnp.asarray(V), one_array(s, 1), put(s, V, "i")
        with CONTEXTS[context](s):
            for name, make in MADE.items():
                try:
                    x = make(s, *before)
                    found[name] = str(x.sharding), x.committed, str(x.dtype)
                except ValueError as error:
                    found[name] = (str(error)[:50],)
        return found

    def one_array(s, i):
        return s.jax.device_put(V, s.jax.devices()[i])

    ours, theirs = seen(OURS), seen(REAL)
    # A mesh in context is not compared here with that of arrays over Auto axes.
    free = {name for name, (said, *_) in theirs.items() if said.startswith(("The context mesh", "For primitive"))}
    assert free <= {"pmap", "laid out before"}
    assert {name: x for name, x in ours.items() if name not in free} == {
        name: x for name, x in theirs.items() if name not in free}


def test_an_array_on_a_default_device_is_free_to_go():
    def seen(s):
        with s.jax.default_device(s.jax.devices()[3]):
            x = s.jnp.asarray(V)
        y = s.jax.device_put(V, s.jax.devices()[1])
        all_of = x, x + 1, x + y, s.jax.device_put(x), s.jax.device_put(x, x.sharding), x.addressable_shards[0].data
        return [(str(a.sharding), a.committed) for a in all_of]

    assert seen(OURS) == seen(REAL)


def test_derivatives_move_and_cotangents_go_back():
    def seen(s):
        here, there = s.jax.devices()[2:4]
        x, f = s.jax.device_put(V, here), lambda x: s.jax.device_put(x, there) ** 2
        y, pull = s.jax.vjp(f, x)
        all_of = y, *pull(y), *s.jax.jvp(f, (x,), (x,)), s.jax.grad(lambda x: f(x).sum())(x), s.jax.vmap(f)(x)
        return [(str(a.sharding), a.committed, np.asarray(a).tolist()) for a in all_of]

    assert seen(OURS) == seen(REAL)


@BOTH
def test_arrays_put_on_the_default_device_are_committed(s):
    first, free = s.jax.device_put(V, s.jax.devices()[0]), s.jnp.asarray(V)
    assert [x.committed for x in (first, first + free, s.jax.device_put(first), free, free + 1)] == [True] * 3 + [False] * 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_shardings_left_to_pjit_are_whole_where_there_is_a_mesh():
    def seen(s):
        module = import_module(f"{s.jax.__name__}.experimental.pjit")
        f = module.pjit(lambda x, y: (x + y, {"a": x}), in_shardings=(s.P("i"), None), out_shardings=None)
        g = module.pjit(lambda x: x + 1)
        with mesh(s, 2, 2):
            outs = s.jax.tree.leaves((f(V, V), s.jax.jit(f)(V, V), f.lower(V, V).compile()(V, V), g(V)))
            with pytest.raises(ValueError, match="Received incompatible devices"):
                g(s.jax.device_put(V, s.jax.devices()[1]))
        free = module.pjit(lambda x: x + 1, in_shardings=None, out_shardings=None)(V)
        return [(len(x.addressable_shards), x.addressable_shards[0].data.shape) for x in (*outs, free)]

    assert seen(OURS) == seen(REAL)


@BOTH
def test_a_program_is_compiled_for_a_sharding_over_the_mesh_in_context(s):
    with s.jax.set_mesh(mesh(s, 4)):
        compiled = s.jax.jit(lambda x: x * 2).lower(struct(s, sharding=s.P("i"))).compile()
        assert compiled(s.jax.device_put(V, s.P("i"))).sharding == s.NamedSharding(mesh(s, 4), s.P("i"))


@BOTH
def test_compiled_programs_tell_where_all_lies(s):
    compiled = s.jax.jit(lambda x, y: (x + 1, y)).lower(put(s, V, "i"), np.arange(3)).compile()
    assert [x.spec for x in compiled.input_shardings[0]] == [s.P("i"), s.P()]
    assert [x.sharding.spec for x in compiled.out_info] == [s.P("i"), s.P()]
    alone = s.jax.jit(lambda x: x * 2).lower(V).compile()
    assert alone.out_info.sharding == one(s, 0) == alone.input_shardings[0][0]


@BOTH
@pytest.mark.parametrize("given", ["array", "struct"])
def test_programs_with_out_shardings_are_compiled_for_arguments_as_they_lie(s, given):
    over = s.NamedSharding(mesh(s, 4), s.P("i"))
    x = s.jax.device_put(V, over)
    program = s.jax.jit(lambda x: x * 2, out_shardings=s.NamedSharding(mesh(s, 4), s.P()))
    compiled = program.lower(x if given == "array" else struct(s, sharding=over)).compile()
    assert compiled.input_shardings[0] == (over,)
    np.testing.assert_array_equal(compiled(x), 2 * V)


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


def kinds_of_memory(s):
    """Shardings, and what is said of arrays in the host's memory and of results."""
    pinned, rows = "pinned_host", s.NamedSharding(mesh(s, 2), s.P("i"))
    there, alone = rows.with_memory_kind(pinned), s.jax.sharding.SingleDeviceSharding(s.jax.devices()[1], memory_kind=pinned)
    x, y, z = s.jax.device_put(V, there), s.jax.device_put(V, alone), s.jax.device_put(V, rows)
    arrays = [
        x, y, x + 1, y * 2, x.sum(), s.jax.jit(lambda x: x * 2)(y), x.addressable_shards[1].data, y.copy(),
        s.jax.device_put(x, rows), s.jax.device_put(z, s.jax.memory.Space.Host), s.jax.device_put(y, s.jax.memory.Space.Device),
        s.jax.jit(lambda x: s.jax.device_put(x * 2, rows))(x), s.jax.jit(lambda x: s.jax.device_put(x * 2, there))(z),
        *[s.jax.jit(lambda x, to=to: s.jax.device_put(x * 2, to))(a) for a, to in (
            (z, s.jax.memory.Space.Host), (V, s.jax.memory.Space.Host), (x, s.jax.memory.Space.Device))],
        s.jax.device_put(3.0, alone).addressable_shards[0].data, s.jax.jit(lambda x: s.jax.device_put(x * 2, alone))(V), s.jax.jit(lambda x: x * 2, out_shardings=there)(z),
    ]  # fmt: skip
    device = s.jax.devices()[2]
    memories = [device.default_memory(), *device.addressable_memories(), device.memory("unpinned_host")]
    shardings = [rows, there, alone, alone.with_memory_kind("device"), there.update(spec=s.P()),
               s.NamedSharding(mesh(s, 2).abstract_mesh, s.P(), memory_kind=pinned)]
    told = [rows == there, there == there.with_memory_kind(pinned), there.with_memory_kind("device") == rows,
            hash(rows) == hash(there.with_memory_kind("device")), rows.is_equivalent_to(there, 1), alone == one(s, 1),
            s.NamedSharding(rows.mesh.abstract_mesh, s.P()).memory_kind]
    return (
        [(str(a.sharding), np.asarray(a).tolist()) for a in arrays], [(str(m), repr(m), m.kind) for m in memories],
        [x.memory_kind for x in shardings], list(map(str, shardings[:-1])), told,
    )  # fmt: skip


def test_kinds_of_memory_are_said_of_arrays():
    assert kinds_of_memory(OURS) == kinds_of_memory(REAL)


def joined(s, parts, **how):
    return s.jax.make_array_from_single_device_arrays((8,), s.NamedSharding(mesh(s, 2), s.P("i")), parts, **how)


def shards(s, *dtypes):
    return [s.jax.device_put(np.arange(4, dtype=t), d) for t, d in zip(dtypes, s.jax.devices())]


def over_sums(s, **sums):
    return s.NamedSharding(mesh(s, 2, 2), s.P("i", **sums))


def constrained(s, x, shape=(2, 2), names="ij"):
    abstract = mesh(s, *shape, names=names).abstract_mesh
    return s.lax.with_sharding_constraint(x, s.NamedSharding(abstract, s.P(names[0])))


@BOTH
def test_a_struct_lies_over_the_mesh_in_context(s):
    x = s.jax.ShapeDtypeStruct((4, 2), np.float32, sharding=s.P("i"))
    for over in (mesh(s, 2), mesh(s, 4)):
        with s.jax.set_mesh(over):
            assert x.sharding == s.NamedSharding(over, s.P("i"))
            assert s.jax.jit(lambda x: x * 2).lower(x).compile().input_shardings[0][0].is_equivalent_to(x.sharding, 2)
            assert s.jnp.zeros_like(x).sharding.is_equivalent_to(x.sharding, 2)
    with pytest.raises(TypeError, match="the context mesh cannot be empty"):
        print(x.sharding)
    with s.jax.set_mesh(mesh(s, 2, names="k")), pytest.raises(ValueError, match="Resource axis.* is not found in mesh"):
        print(x.sharding)


@BOTH
def test_a_sharding_over_a_mesh_without_devices_is_over_that_of_the_array(s):
    x = put(s, V, "j")
    for f in (constrained, lambda s, x: s.jax.jit(lambda x: constrained(s, x))(x)):
        assert f(s, x).sharding == s.NamedSharding(mesh(s, 2, 2), s.P("i"))
    batch = s.jax.jit(s.jax.vmap(lambda x: constrained(s, x)))(put(s, X, "j"))
    assert batch.sharding.spec == s.P("j", "i")
    alone = s.jax.jit(lambda x: constrained(s, x))(V)
    assert alone.sharding == one(s, 0) and s.lax.with_sharding_constraint(alone, one(s, 0)).committed


def over_four(s, f):
    """A program over four devices, of an array that was put on one."""
    sharding = s.NamedSharding(mesh(s, 2, 2), s.P("i"))
    return s.jax.jit(lambda x: f(x, sharding))(s.jax.device_put(V, s.jax.devices()[0]))


ELSEWHERE = [
    lambda s: over_four(s, s.lax.with_sharding_constraint),
    lambda s: over_four(s, lambda x, sharding: s.jax.jit(lambda x: x, in_shardings=sharding, out_shardings=sharding)(x)),
    lambda s: over_four(s, lambda x, sharding: s.jax.shard_map(
        lambda x: x, mesh=sharding.mesh, in_specs=sharding.spec, out_specs=sharding.spec)(x)),
    lambda s: s.jax.jit(lambda x: (x, x), out_shardings=(s.NamedSharding(mesh(s, 2), s.P()), s.NamedSharding(mesh(s, 4), s.P())))(V),
    lambda s: s.jax.jit(lambda x: x, out_shardings=one(s, 1))(s.jax.device_put(V, s.jax.devices()[0])),
    lambda s: s.lax.with_sharding_constraint(put(s, V), s.NamedSharding(
        s.jax.sharding.Mesh(s.jax.devices()[::-1], ("i",)), s.P("i"))),
]  # fmt: skip


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
        *((f, ValueError, "Received incompatible devices for jitted computation") for f in ELSEWHERE),
        (lambda s: s.jax.jit(lambda x: x, out_shardings=s.P(s.P.UNCONSTRAINED)), ValueError, "Unconstrained dims are not allowed"),
        (lambda s: s.jax.jit(lambda x: x, out_shardings=s.NamedSharding(s.jax.sharding.Mesh(
            np.empty((), object), ()), s.P()))(V), ValueError, "leaf specifications got an empty NamedSharding"),
        (lambda s: struct(s, sharding=s.NamedSharding(mesh(s, 2, 2), s.P("i", "j"))), ValueError, "of rank at least 2"),
        (lambda s: struct(s, sharding=s.P("i", None)), ValueError, "of rank at least 2, but was applied to a value of rank 1"),
        (lambda s: s.jax.jit(lambda x: x, in_shardings=one(s, 0))(x=V), ValueError, "does not support kwargs when in_shardings"),
        (lambda s: s.jax.reshard(V, s.NamedSharding(mesh(s, 4), s.P("i"))), ValueError, "that are of type Auto or Manual"),
        (lambda s: over_four(s, s.lax.with_sharding_constraint), ValueError,
         r"with device ids \[0\].* and sharding_constraint inside jit with device ids \[0, 1, 2, 3\]"),
        (lambda s: s.jax.vmap(lambda x: s.lax.with_sharding_constraint(x, one(s, 0)), spmd_axis_name="i")(V), ValueError,
         "If you are using spmd_axis_name parameter"),
        (lambda s: s.jax.vmap(lambda x: s.lax.with_sharding_constraint(x, s.NamedSharding(mesh(s, 2, 2), s.P("i"))),
                              spmd_axis_name="i")(X), ValueError, "cannot appear in with_sharding_constraint spec"),
        (lambda s: joined(s, []), ValueError, "has no addressable shards, `dtype` must be provided"),
        (no_place, ValueError, "got sharding None which is not allowed"),
        (free_argument, ValueError, "Unconstrained dims are not allowed"),
        (lambda s: s.jax.jit(lambda x: x)({"a": struct(s)}), TypeError, r"Argument 'x\['a'\]' of shape float32\[8\] of type"),
        (lambda s: s.jax.jit(lambda x: (x, struct(s)))(V), Exception, "A ShapeDtypeStruct does not have a value"),
        (lambda s: s.jax.jit(lambda x: x, device=s.jax.devices()[0], backend="cpu"), ValueError, "both a device and a backend"),
        (lambda s: s.jax.jit(lambda x: x, in_shardings=one(s, 0), backend="cpu"), ValueError, "in_shardings should not be"),
        (lambda s: s.jax.jit(lambda x: x, out_shardings=one(s, 0), device=s.jax.devices()[0]), ValueError, "out_shardings should"),
        (lambda s: s.jax.make_mesh(((2,), 2), ("i", "j")), ValueError, "should be a sequence of ints"),
        (lambda s: import_module(f"{s.jax.__name__}.experimental.mesh_utils").create_device_mesh(((2,), 2)), ValueError, "`mesh_shape` passed to `create_device_mesh` should"),
        (lambda s: s.NamedSharding(s.jax.make_mesh((2,), ("i",)), s.P(s.P.UNCONSTRAINED)), ValueError,
         r"cannot contain `P.UNCONSTRAINED` when no mesh axis_types are `Auto`. Got mesh axis_types: \(Explicit,\)"),
        *((lambda s, name=name: s.jax.jit(lambda x: x, **{name: s.P("i", "i")}), Exception,
           rf"A single {name} specification can map .* but P\('i', 'i'\) has duplicate entries for `i`")
          for name in ("in_shardings", "out_shardings")),
        (lambda s: s.jax.jit(lambda x: joined(s, [x, x]))(V), ValueError, "requires a list of concrete arrays as input"),
        (lambda s: joined(s, s.jnp.asarray(V)), TypeError, "`arrays` argument must be a list or tuple"),
        (lambda s: joined(s, [put(s, V, "i")] * 2), ValueError, r"array had 4 shard\(s\)"),
        (lambda s: joined(s, shards(s, "i4", "i4"), dtype="f4"), ValueError, "it must match the dtype of the addressable"),
        (lambda s: joined(s, shards(s, "f4", "i4")), ValueError, "matching dtypes. Got int32, expected float32"),
        (lambda s: s.jax.jit(lambda x: s.jax.make_array_from_callback((8,), one(s, 0), lambda i: x[i]))(V), Exception,
         "make_array_from_callback cannot be called within a traced context"),
        (lambda s: one(s, 0).with_memory_kind("hbm"), ValueError, r"can address .*: device, pinned_host, unpinned_host\. Got .* hbm"),
        (lambda s: s.NamedSharding(mesh(s, 2).abstract_mesh, s.P(), memory_kind="hbm"), ValueError, "Got invalid memory kind: hbm"),
        (lambda s: s.jax.jit(lambda x: x, in_shardings=s.NamedSharding(mesh(s, 2, 2), s.P("i")))(
            s.jax.device_put(put(s, V, "i"), s.jax.memory.Space.Host)), ValueError, "Got jit memory kind: device, arg memory kind: pin"),
        (lambda s: over_sums(s, unreduced={"k"}), ValueError, "Unreduced axes k is not found in mesh"),
        (lambda s: over_sums(s, reduced={"j"}), ValueError, "Reduced axes can only refer to .* `Explicit`"),
        (lambda s: s.P("i", reduced={None}), ValueError, "reduced cannot contain None"),
        (lambda s: s.P("i", reduced={"i"}), ValueError, "partitions cannot overlap with reduced"),
        (lambda s: s.P("i", unreduced={"j"}) + (None,), TypeError, "has unreduced in `__add__`"),
        (lambda s: (None,) + s.P("i", reduced={"j"}), TypeError, "has reduced in `__radd__`"),
        (lambda s: mesh(s, 2, 2).update(axis_types=s.jax.sharding.AxisType.Auto), ValueError, "match the number of axis_types"),
        (lambda s: s.jax.sharding.AbstractMesh((2,), ("i",), axis_types="e"), TypeError, "to AbstractMesh must be of type"),
        (lambda s: s.NamedSharding(mesh(s, 2), s.P("i")).check_compatible_aval(()), ValueError, r"should be P\(\)"),
        (lambda s: constrained(s, V), ValueError, "requires the input passed should be a `jax.Array`"),
        (lambda s: constrained(s, s.jnp.asarray(V)), TypeError, "sharding on the input must be a `NamedSharding`"),
        (lambda s: constrained(s, put(s, V, "i"), (4,), "k"), ValueError, r"\(\('i', 2\), \('j', 2\)\) does not match the mesh"),
    ],
)  # fmt: skip
def test_refused(s, f, error, text):
    with pytest.raises(error, match=text):
        f(s)


def exported(s, devices, inner):
    over = s.NamedSharding(s.jax.sharding.Mesh(np.array(s.jax.devices()[:devices]), ("i",)), s.P("i"))
    export = import_module(f"{s.jax.__name__}.export")
    return export.export(s.jax.jit(inner(s, over)))(V)


EXPORTED = {
    "constraint": lambda s, over: lambda x: s.lax.with_sharding_constraint(x * 2, over) + 1,
    "nested": lambda s, over: s.jax.jit(lambda x: s.jax.jit(lambda y: s.lax.with_sharding_constraint(y, over))(x) * 3),
    "result": lambda s, over: s.jax.jit(lambda x: x * 2, out_shardings=over),
}


@pytest.mark.parametrize("inner", EXPORTED)
@pytest.mark.parametrize(("made", "run"), [(1, [0, 1, 2, 3]), (1, [3]), (2, [1, 0]), (2, [2, 3]), (4, [3, 1, 0, 2])])
@pytest.mark.one_in(3)
def test_exported_programs_run_on_the_devices_of_their_arguments(made, run, inner):
    results = []
    for s in (OURS, REAL):
        there = s.jax.sharding.Mesh(np.array(s.jax.devices())[run], ("k",))
        out = exported(s, made, EXPORTED[inner]).call(s.jax.device_put(V, s.NamedSharding(there, s.P("k"))))
        results.append((np.asarray(out).tolist(), sorted(d.id for d in out.devices())))
    assert results[0] == results[1]


def test_gradients_of_exported_programs_run_there_too():
    there = OURS.jax.sharding.Mesh(np.array(OURS.jax.devices())[[3, 1]], ("k",))
    found = exported(OURS, 2, EXPORTED["constraint"])
    x = OURS.jax.device_put(V, OURS.NamedSharding(there, OURS.P("k")))
    gradient = OURS.jax.grad(lambda x: (found.call(x) ** 2).sum())(x)
    np.testing.assert_allclose(gradient, 4 * (2 * V + 1), rtol=1e-6)
    assert {d.id for d in gradient.devices()} == {3, 1}


def test_exported_programs_within_a_program_run_on_the_devices_of_its_arguments():
    sums = lambda s, over: lambda x: s.jax.shard_map(
        lambda x: s.lax.psum(x, over.mesh.axis_names[0]), mesh=over.mesh, in_specs=over.spec, out_specs=s.P()
    )(x)
    for inner in (EXPORTED["constraint"], EXPORTED["result"], sums):
        results = []
        for s in (OURS, REAL):
            there = s.jax.sharding.Mesh(np.array(s.jax.devices())[[3, 1]], ("k",))
            out = s.jax.jit(exported(s, 2, inner).call)(s.jax.device_put(V, s.NamedSharding(there, s.P("k"))))
            results.append((np.asarray(out).tolist(), sorted(d.id for d in out.devices())))
        assert results[0] == results[1]
    alone = OURS.jax.jit(exported(OURS, 2, EXPORTED["result"]).call)(V)
    assert {d.id for d in alone.devices()} == {0, 1}


def test_an_exported_program_for_several_devices_needs_as_many():
    for s in (OURS, REAL):
        with pytest.raises(ValueError, match="was exported for 2 devices and is called in a context with 4 devices"):
            exported(s, 2, EXPORTED["constraint"]).call(put(s, V, "i"))


def without_devices(s, kind="Auto"):
    types = (getattr(s.jax.sharding.AxisType, kind),)
    return s.NamedSharding(s.jax.sharding.AbstractMesh((4,), ("i",), axis_types=types), s.P("i"))


def exported_without_devices(s, inner, kind="Auto"):
    over = without_devices(s, kind)
    return import_module(f"{s.jax.__name__}.export").export(s.jax.jit(inner(s, over)))(struct(s, sharding=over))


def over_devices(s, n, kind="Auto"):
    types = (getattr(s.jax.sharding.AxisType, kind),)
    return s.NamedSharding(s.jax.make_mesh((n,), ("k",), axis_types=types), s.P("k"))


ARGUMENT = {"argument": lambda s, over: lambda x: x * 2}


@pytest.mark.parametrize(("inner", "kind"), [(name, "Auto") for name in EXPORTED | ARGUMENT] + [("argument", "Explicit")])
@pytest.mark.one_in(2)
def test_programs_are_exported_without_devices(inner, kind):
    results = []
    for s in (OURS, REAL):
        found = exported_without_devices(s, (EXPORTED | ARGUMENT)[inner], kind)
        devices = without_devices(s, kind).mesh
        seen = [found.nr_devices, str(found.in_shardings_jax(devices))]
        if kind == "Auto":
            seen.append(str(found.out_shardings_jax(devices)))
        split = over_devices(s, 4, kind)
        for spec in (s.P("k"), s.P()) if kind == "Auto" else (s.P("k"),):
            out = found.call(s.jax.device_put(V, s.NamedSharding(split.mesh, spec)))
            seen += [np.asarray(out).tolist(), out.addressable_shards[3].data.shape]
        with s.jax.set_mesh(split.mesh):
            seen.append(found.call(s.jnp.asarray(V)).addressable_shards[3].data.shape)
        results.append(seen)
    assert results[0] == results[1]


@BOTH
def test_a_program_exported_without_devices_needs_as_many(s):
    found = exported_without_devices(s, EXPORTED["constraint"])
    for x, count in ((V, 1), (s.jax.device_put(V, over_devices(s, 2)), 2)):
        with pytest.raises(ValueError, match=f"was exported for 4 devices and is called in a context with {count} dev"):
            found.call(x)


@BOTH
def test_a_program_lowered_without_devices_is_compiled_for_some(s):
    over = without_devices(s)
    for shardings in ({}, {"in_shardings": over, "out_shardings": over}):
        traced = s.jax.jit(lambda x: x * 2, **shardings).trace(struct(s, sharding=over))
        lowered = traced.lower(lowering_platforms=("cpu",))
        with pytest.raises(RuntimeError, match="device_assignment cannot be `None`"):
            lowered.compile()
        with pytest.raises(ValueError, match="device assignment|num_devices|devices"):
            lowered.compile(device_assignment=tuple(s.jax.devices()[:2]))
        backwards = s.NamedSharding(s.jax.sharding.Mesh(s.jax.devices()[::-1], "i"), s.P("i"))
        out = lowered.compile(device_assignment=tuple(s.jax.devices()[::-1]))(s.jax.device_put(V, backwards))
        np.testing.assert_array_equal(out, 2 * V)
        assert out.sharding.is_equivalent_to(backwards, 1) and len(traced.in_avals) == 2


def test_a_program_exported_without_devices_within_a_program():
    found = exported_without_devices(OURS, EXPORTED["constraint"])
    x = OURS.jax.device_put(V, over_devices(OURS, 4))
    np.testing.assert_array_equal(OURS.jax.jit(lambda x: found.call(x) + 1)(x), 2 * V + 2)


@BOTH
def test_a_program_for_a_mesh_without_devices_is_traced_and_not_run(s):
    over = without_devices(s)
    for program, x in (
        (s.jax.jit(lambda x: x * 2), struct(s, sharding=over)),
        (s.jax.jit(lambda x: x * 2, in_shardings=over), struct(s)),
        (s.jax.jit(lambda x: x * 2, out_shardings=over), struct(s)),
    ):
        assert program.trace(x).jaxpr.out_avals[0].shape == (8,)
        with pytest.raises(ValueError, match="(?i)AbstractMesh.*context"):
            program.lower(x)
    with pytest.raises(ValueError, match="(?i)AbstractMesh.*context"):
        s.jax.jit(lambda x: x * 2, out_shardings=over)(V)
    assert s.jax.jit(lambda x: x * 2, out_shardings=over).eval_shape(V).sharding == over


def alike(s, x, y):
    return import_module(f"{s.jax.__name__}.experimental.shard_alike").shard_alike(x, y)


ALIKE = {
    "computed values": lambda s: s.jax.jit(lambda x: alike(s, x, s.jnp.arange(8.0))[1])(put(s, V, "i")),
    "the first of two": lambda s: s.jax.jit(lambda x: alike(s, 2 * x, s.jnp.ones((8, 4))))(put(s, X, "i")),
    "values outside of programs": lambda s: alike(s, put(s, X, "i", "j"), X)[1],
    "gradients": lambda s: s.jax.grad(lambda x: (alike(s, x * x, s.jnp.arange(8.0))[1] * x).sum())(put(s, V, "j")),
    "batches": lambda s: s.jax.jit(s.jax.vmap(lambda x, y: alike(s, x, y)[1], in_axes=(0, None)))(
        put(s, X, "i"), s.jnp.ones(X.shape[1])),
}  # fmt: skip


@pytest.mark.parametrize("label", ALIKE)
def test_arrays_are_laid_out_alike(label):
    def seen(s):
        outs = s.jax.tree.leaves(ALIKE[label](s))
        return [(np.asarray(x).tolist(), x.addressable_shards[3].index, len(x.devices())) for x in outs]

    assert seen(OURS) == seen(REAL)


@pytest.mark.filterwarnings("ignore:backend and device")
def test_guards_of_moves_between_devices():
    def refused(s):
        x, other = s.jnp.ones(1), s.jax.local_devices()[1]
        moves = [lambda: s.jax.device_put(x, other), lambda: s.jax.jit(lambda x: x, device=other)(x)]
        found = []
        for level in ("log", "disallow", "disallow_explicit"):
            for i, move in enumerate(moves):
                try:
                    with s.jax.transfer_guard_device_to_device(level):
                        move()
                except s.jax.errors.JaxRuntimeError:
                    found.append((level, i))
        return found

    assert refused(OURS) == refused(REAL) == [("disallow", 1), ("disallow_explicit", 0), ("disallow_explicit", 1)]
