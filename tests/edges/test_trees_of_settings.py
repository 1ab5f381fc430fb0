"""Settings given as prefixes of pytrees, specifications of meshes, and bounds of known indices: as in JAX."""

from __future__ import annotations

import importlib
import re
from types import SimpleNamespace

import jax
import numpy as np
import pytest

import mpijax

BOTH = [SimpleNamespace(jax=j, jnp=j.numpy) for j in (mpijax, jax)]
THEM = pytest.mark.parametrize("s", BOTH, ids=["ours", "real"])


def said(f, s) -> tuple:
    """What a call returns, or the class and the text of its error."""
    try:
        return "result", s.jax.tree.map(lambda x: np.asarray(x).tolist(), f(s))
    except Exception as error:
        text = re.sub(r"CpuDevice\(id=0\)|TFRT_CPU_0", "cpu", str(error))
        text = re.sub(r"<class '\S*PytreeLeaf'>|pytree leaf", "a leaf", text)
        return type(error).__name__, re.sub(r", memory_kind=\w+", "", text)


def put(x, make):
    return lambda s: s.jax.device_put(x, make(s.jax.devices()[0]))


PUT = {
    "prefix": put((1, (2, 3)), lambda d: (d, d)),
    "None in a prefix": put([1, {"a": 2}], lambda d: [None, d]),
    "one for all": put((1, (2, 3)), lambda d: d),
    "too many": put((1, 2), lambda d: (d, d, d)),
    "other type": put((1, (2, 3)), lambda d: [d, d]),
    "deeper": put((1, (2, 3)), lambda d: ((d, d), d)),
    "two places": put(((1, 2), (2, 3)), lambda d: ([d], [d])),
    "no device": put(1, lambda d: 2),
    "donate": lambda s: s.jax.device_put((1, 2), donate=(True, False, True)),
}


@pytest.mark.parametrize("name", PUT)
def test_device_put(name):
    ours, theirs = (said(PUT[name], s) for s in BOTH)
    assert ours == theirs


@pytest.mark.parametrize("keywords", [False, True])
def test_axes_of_pmap_that_are_no_prefix(keywords):
    def call(s):
        x = s.jnp.array([3.0])
        if keywords:
            return s.jax.pmap(lambda x, y: x, in_axes=((0, 0), 0))(x=(x, x), y=x)
        return s.jax.pmap(lambda x, y: x, in_axes=((0, 0, 0), 0))((x, x), x)

    (ours, text), (theirs, wanted) = (said(call, s) for s in BOTH)
    assert (ours, text) == (theirs, re.sub(r" See the description of `in_axes`.*?jax.pmap(?=\n)", "", wanted))


@THEM
def test_meshes(s):
    mesh = s.jax.make_mesh((1,), "rows")
    kinds = s.jax.sharding.AxisType
    assert mesh.axis_names == ("rows",) and mesh.explicit_axes == ("rows",)
    assert mesh.auto_axes == mesh.manual_axes == ()
    assert s.jax.sharding.AbstractMesh((2,), "x", axis_types=kinds.Auto).auto_axes == ("x",)
    none = s.jax.sharding.Mesh(np.empty((), dtype=object), ())
    assert none.empty and none.size == 0 and none.abstract_mesh.empty
    assert s.jax.sharding.Mesh(np.empty((), dtype=object), []) == none


def nested(s):
    return s.jax.P("x", ("z", ("a",)))


def subclass(s):
    return type("Mine", (s.jax.P,), {})


@pytest.mark.parametrize("f", [nested, subclass])
def test_specifications_refused(f):
    ours, theirs = (said(f, s) for s in BOTH)
    assert ours[0] == theirs[0] and ours[1].partition(".")[0] == theirs[1].partition(".")[0]


@THEM
def test_shard_map_leaves_numbers_alone(s):
    mesh = s.jax.make_mesh((1,), ("x",))
    f = s.jax.shard_map(
        lambda x, shape: x + s.jnp.ones(shape), mesh=mesh, in_specs=(s.jax.P("x"), None), out_specs=s.jax.P("x")
    )
    x = s.jax.device_put(s.jnp.zeros((4, 2)), s.jax.NamedSharding(mesh, s.jax.P("x", None)))
    np.testing.assert_array_equal(s.jax.jit(f, static_argnums=1)(x, (4, 2)), np.ones((4, 2)))
    np.testing.assert_array_equal(f(x, (4, 2)), np.ones((4, 2)))


@THEM
def test_types_of_traced_values_say_how_they_are_split(s):
    mesh = s.jax.make_mesh((1,), ("x",))
    found = []
    with s.jax.set_mesh(mesh):
        x = s.jax.device_put(np.arange(4.0, dtype=np.float32), s.jax.P("x"))
        s.jax.jit(lambda x: found.append(s.jax.ShapeDtypeStruct.like(x).sharding) or x)(x)
    assert found[0].spec == s.jax.P("x")


INDICES = {
    "first": lambda x: x[2],
    "negative": lambda x: x[-3],
    "second": lambda x: x[:, 4],
    "after dots": lambda x: x[..., -4],
    "beside an array": lambda x: x[np.arange(2), 3],
    "get": lambda x: x.at[5].get(),
    "fill": lambda x: x.at[5].get(mode="fill"),
    "promised": lambda x: x.at[5].get(mode="promise_in_bounds"),
    "not counted from the end": lambda x: x.at[-1].get(wrap_negative_indices=False),
    "within": lambda x: x[-2, 2],
    "slice": lambda x: x[1:9, -3],
}


@pytest.mark.parametrize("name", INDICES)
@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.one_in(3)
def test_known_indices_within_bounds(name, jitted):
    def call(s):
        s.jax.config.update("jax_check_static_indices", True)
        try:
            x = s.jnp.arange(6.0).reshape(2, 3)
            return (s.jax.jit(INDICES[name]) if jitted else INDICES[name])(x)
        finally:
            s.jax.config.update("jax_check_static_indices", False)

    (ours, text), (theirs, wanted) = (said(call, s) for s in BOTH)
    assert ours == theirs
    if ours == "result":
        np.testing.assert_array_equal(text, wanted)
    else:
        assert text.partition("\n")[0] == wanted.partition("\n")[0]


@THEM
def test_backward_rules_unchecked(s):
    @s.jax.custom_vjp
    def f(x, y):
        return x

    f.defvjp(lambda x, y: (x, None), lambda _, g: (s.jnp.zeros(3), s.jnp.zeros(3)))
    gradient = s.jax.grad(lambda x, y: f(x, y).sum(), 1)
    with pytest.raises(ValueError, match="same type as the args tuple"):
        gradient(s.jnp.ones(3), s.jnp.ones(4))
    s.jax.config.update("jax_disable_bwd_checks", True)
    try:
        assert gradient(s.jnp.ones(3), s.jnp.ones(4)).shape == (3,)
    finally:
        s.jax.config.update("jax_disable_bwd_checks", False)


@THEM
def test_metadata_that_cannot_be_compared(s):
    node = type("Node", (), {"__init__": lambda self, data: setattr(self, "data", data)})
    s.jax.tree_util.register_dataclass(node, data_fields=[], meta_fields=["data"])
    structures = [s.jax.tree.structure(node(np.arange(4))) for _ in range(2)]
    with pytest.raises(ValueError, match="Exception raised while checking equality of metadata fields of pytree"):
        structures[0] == structures[1]  # noqa: B015


def ragged(lhs, rhs, sizes, numbers, ragged_axes=(0,), group_axes=(0,)):
    def call(s):
        what = s.jax.lax.RaggedDotDimensionNumbers(numbers, ragged_axes, group_axes)
        return s.jax.lax.ragged_dot_general(s.jnp.ones(lhs), s.jnp.ones(rhs), s.jnp.ones(sizes, int), what)

    return call


ROWS = ((1,), (1,)), ((), ())
REFUSED = {
    "ragged axis": ragged((11, 5), (3, 5, 7), (3,), ROWS, (2,)),
    "sizes": ragged((11, 5), (3, 5, 7), (2, 3), ROWS),
    "sizes of a batch": ragged((19, 17, 11, 5), (3, 19, 17, 5, 7), (19, 11, 3), (((3,), (3,)), ((0, 1), (1, 2))), (2,)),
    "no sizes": ragged((11, 5), (3, 5, 7), (), ROWS),
    "group axis": ragged((11, 5), (3, 5, 7), (3,), ROWS, (0,), (9,)),
    "group axis contracted": ragged((11, 3), (3, 3, 7), (3,), ROWS, (0,), (1,)),
    "number of groups": ragged((11, 5), (3, 5, 7), (2,), ROWS),
    "groups where the ragged axis is contracted": ragged((11, 5), (3, 5, 7), (3,), ROWS, (1,), (0,)),
    "groups where the ragged axis is a batch": ragged((3, 11, 5), (3, 5, 7), (3,), (((2,), (1,)), ((0,), (0,)))),
    "no group axis": ragged((11, 5), (3, 5, 7), (3,), ROWS, (0,), ()),
    "two ragged axes": ragged((11, 5), (3, 5, 7), (3,), ROWS, (0, 1)),
    "empty window": lambda s: s.jax.lax.reduce_window(s.jnp.ones(1), 0.0, s.jax.lax.add, (0,), (1,), "VALID"),
    "no stride": lambda s: s.jax.lax.reduce_window(s.jnp.ones(1), 0.0, s.jax.lax.add, (1,), (0,), "VALID"),
    "strides": lambda s: s.jax.lax.conv(s.jnp.zeros((1, 1, 3, 3)), s.jnp.zeros((1, 1, 1, 1)), [1], "SAME"),
    "largest of too many": lambda s: s.jax.eval_shape(
        lambda x: s.jax.lax.top_k(x, 2), s.jax.ShapeDtypeStruct((2**31 + 1,), np.float32)
    ),
    "size along an axis twice": lambda s: s.jnp.size(np.zeros((2, 3)), (0, -2)),
    "gather before its index map": lambda s: s.jax.lax.gather(
        s.jnp.ones((10, 9, 8, 7, 6)),
        s.jnp.ones((5, 4, 3, 2, 2), int),
        s.jax.lax.GatherDimensionNumbers((4, 5, 6, 8, 7), (), (0, 1, 2, 3, 4)),
        (10, 9, 8, 7, 6),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.one_in(3)
def test_refused_as_in_jax(name):
    ours, theirs = (said(REFUSED[name], s) for s in BOTH)
    assert ours == theirs


@THEM
def test_pads_are_ints(s):
    sizes = [np.array(n) for n in ((10, 10), (5, 5), (1, 1))]
    assert {type(n) for pair in s.jax.lax.padtype_to_pads(*sizes, "SAME") for n in pair} == {int}


@THEM
def test_integers_wrap_around(s):
    assert [int(s.jax.lax.convert_element_type(n, "int32")) for n in (2**32, 2**32 - 1, -(2**31) - 1)] == [
        0,
        -1,
        2**31 - 1,
    ]


@THEM
def test_composites_have_no_derivative(s):
    with pytest.raises(ValueError, match="JVP rule for composite not implemented. You can use `jax.custom_jvp`"):
        s.jax.grad(s.jax.lax.composite(lambda x: x**2, "my.square"))(1.0)


@THEM
def test_states_of_generators_in_numpy_arrays(s):
    states = np.arange(12, dtype=np.uint32).reshape(3, 4)
    after, bits = s.jax.vmap(lambda key: s.jax.lax.rng_bit_generator(key, shape=(5, 7)))(states)
    assert after.shape == (3, 4) and bits.shape == (3, 5, 7)
    np.testing.assert_array_equal(after[1:], states[1:])


@THEM
def test_jaxprs_inside(s):
    outer = s.jax.make_jaxpr(s.jax.jit(lambda x: s.jnp.sin(x) * 2))(1.0).jaxpr
    [inner] = importlib.import_module(f"{s.jax.__name__}.extend.core").subjaxprs(outer)
    assert [eqn.primitive.name for eqn in inner.eqns] == ["sin", "mul"]


FILLED = {
    "full": lambda s: s.jnp.full(2, 2**32 - 1, "uint32"),
    "full_like": lambda s: s.jnp.full_like(s.jnp.zeros(2, "uint32"), 2**32 - 1),
    "full of floats": lambda s: s.jnp.full(2, 2**40, float),
    "wrapped": lambda s: s.jax.lax.full((2,), 2**33 + 5, "int32"),
    "of the default type": lambda s: s.jnp.full(2, 2**32 + 7),
}


@pytest.mark.parametrize("name", FILLED)
def test_filled_with_integers_beyond_int32(name):
    ours, theirs = (FILLED[name](s) for s in BOTH)
    assert (ours.dtype, ours.weak_type) == (theirs.dtype, theirs.weak_type)
    np.testing.assert_array_equal(ours, theirs)


@THEM
def test_types_of_keys(s):
    key = s.jax.random.key(3)
    like = s.jax.ShapeDtypeStruct.like(key)
    assert s.jax.eval_shape(lambda x: x, like) == like
    with pytest.raises(ValueError, match="Cannot convert_element_type from key<fry> to int32"):
        s.jax.lax.convert_element_type(key, int)
    with pytest.raises(ValueError, match="Cannot convert_element_type from int32 to key<fry>"):
        s.jax.lax.convert_element_type(np.int32(0), key.dtype)


@THEM
@pytest.mark.parametrize("name", ["device_put_sharded", "device_put_replicated"])
def test_removed_names_say_what_to_use(s, name):
    with pytest.raises(AttributeError, match=f"jax.{name} is deprecated; use jax.device_put instead"):
        getattr(s.jax, name)


@THEM
def test_other_types_than_compiled_for(s):
    compiled = s.jax.pmap(lambda x: x * 2).lower(np.ones((1, 3), np.float32)).compile()
    with pytest.raises(TypeError, match=r"Argument 'flat_args\[0\]' compiled with .*float32.* and called with .*int32"):
        compiled(np.ones((1, 3), np.int32))
