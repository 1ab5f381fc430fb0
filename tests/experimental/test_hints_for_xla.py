"""What JAX's users tell XLA, and mpijax takes without needing it."""

import importlib

import numpy as np
import pytest
from oracle import OURS, THEIRS, run

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.experimental.custom_partitioning import custom_partitioning
from mpijax.experimental.shard_alike import shard_alike
from mpijax.interpreters import batching


def test_custom_partitioning_is_the_function():
    @custom_partitioning
    def norm(x):
        return jnp.sqrt(jnp.sum(x * x, -1))

    partition = lambda *_: None
    assert norm.def_partition(partition, sharding_rule="i j -> i", decode_shardings=False) is partition
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(jax.jit(norm)(x), np.linalg.norm(x, axis=1), rtol=1e-6)
    assert norm.__name__ == "norm" and jax.vmap(norm)(x[:, None]).shape == (2, 1)


def alike_in(J):
    """Jaxprs and values of shard_alike: itself, of batches, derivatives."""
    alike = importlib.import_module(f"{J.name}.experimental.shard_alike").shard_alike
    x = J.numpy.arange(6.0).reshape(2, 3)
    total = lambda x, y: sum(alike(x * 2, y * 3)).sum()
    calls = [
        (alike, (x, x + 1)), (alike, ({"a": x}, {"a": x + 1})), (J.vmap(alike, in_axes=(0, 1)), (x, x.T)),
        (J.grad(total, (0, 1)), (x, x)),
        (J.grad(lambda x, y: alike(x * 2, y)[0].sum()), (x, x)), (alike, (J.random.key(0), J.random.key(1))),
    ]  # fmt: skip
    repeated = J.vmap(alike, in_axes=(None, 1))(x[0], x.T)
    return [(str(J.make_jaxpr(f)(*args)), str(f(*args))) for f, args in calls], str(repeated)


def test_shard_alike_is_that_of_jax():
    assert alike_in(OURS) == alike_in(THEIRS)
    assert shard_alike({}, {}) == ({}, {})
    with pytest.raises(ValueError, match="Trees should be equal"):
        shard_alike(jnp.ones(2), [1])
    with pytest.raises(ValueError, match="shapes of `x` and `y` should match"):
        shard_alike(jnp.ones(2), jnp.ones(3))


def seen_of_formats(J):
    x = J.numpy.ones((2, 3))
    compiled = J.jit(lambda x, y: (x + y["a"], 1)).lower(x, {"a": x}).compile()
    layout = importlib.import_module(f"{J.name}.experimental.layout")
    row_by_row = layout.Layout((0, 1))
    constrained = J.jit(lambda x: layout.with_layout_constraint(x, row_by_row))(x)
    wrong = [run(lambda a=a: layout.with_layout_constraint(x, a))[1] for a in (layout.Layout((0,)), 3)]
    return str([x.format, compiled.input_formats, compiled.output_formats, constrained, wrong])


def test_formats():
    assert seen_of_formats(OURS) == seen_of_formats(THEIRS)


class Pair:
    def __init__(self, left, right):
        self.left, self.right = left, right


class Axes:
    """The mapped axes of a `Pair`."""

    def __init__(self, left, right):
        self.left, self.right = left, right


def mapped_pairs(J):
    """Values computed over containers whose handlers compute, with axes of a type of their own."""

    def from_elt(put, size, pair, axes):
        return Pair(put(size, pair.left + 1, axes.left) * 2, put(size, pair.right, axes.right))

    J.interpreters.batching.register_vmappable(
        Pair, Axes, int,
        lambda take, _index, p, axes: Pair(take(p.left * 3, axes.left), take(p.right, axes.right)),
        from_elt,
        None,
    )  # fmt: skip
    try:
        left, right = J.numpy.arange(6.0).reshape(2, 3), J.numpy.arange(2.0)

        def f(left, right):
            pair = Pair(left, right)
            one = J.vmap(lambda p: p, Axes(1, None), Axes(0, None), axis_size=3)(pair)
            two = J.vmap(lambda p, x: (Pair(p.left * x, x), x), (Axes(0, 0), 0), (Axes(1, 0), 0), axis_size=2)
            other, x = two(pair, right)
            return one.left, one.right, other.left, other.right, x

        return [*f(left, right), *J.jit(f)(left, right), *J.jacobian(f)(left, right)]
    finally:
        J.interpreters.batching.unregister_vmappable(Pair)


def test_vmap_of_containers_with_axes_of_their_own():
    for ours, theirs in zip(mapped_pairs(OURS), mapped_pairs(THEIRS), strict=True):
        np.testing.assert_allclose(ours, theirs)


def test_vmap_asks_containers_for_examples():
    batching.register_vmappable(
        Pair, int, int,
        lambda take, _index, p, axis: Pair(take(p.left, axis), take(p.right, axis)),
        lambda put, size, p, axis: Pair(put(size, p.left, axis), put(size, p.right, axis)),
        None,
    )  # fmt: skip
    try:
        pair = Pair(jnp.arange(6.0).reshape(2, 3), jnp.arange(2.0))
        total, swapped = jax.vmap(lambda p, s: (p.left.sum() * s, Pair(p.right, p.left)), in_axes=(0, None))(pair, 2)
        np.testing.assert_array_equal(total, [6, 24])
        assert swapped.left.shape == (2,) and swapped.right.shape == (2, 3)
        assert jax.vmap(lambda p, x: p.left[0, 0] + x, in_axes=(None, 0))(pair, jnp.ones(4)).shape == (4,)
        with pytest.raises(ValueError, match="inconsistent sizes"):
            jax.vmap(lambda p: p.left)(Pair(jnp.ones(2), jnp.ones(3)))
    finally:
        batching.unregister_vmappable(Pair)


def test_a_shape_may_stand_for_an_argument_that_a_jitted_function_does_not_read():
    shape = jax.ShapeDtypeStruct((2,), np.float32)
    inner = jax.jit(lambda x, unused: x + 1)
    np.testing.assert_array_equal(jax.jit(lambda x: inner(x, shape))(jnp.ones(2)), [2, 2])
    read = jax.jit(lambda x, y: x + y)
    with pytest.raises(TypeError, match="ShapeDtypeStruct does not have a value"):
        jax.jit(lambda x: read(x, shape))(jnp.ones(2))


def test_objects_with_strange_names_are_functions_too():
    class Mean:
        def __init__(self):
            self.__name__ = self.__qualname__ = self.__doc__ = None

        def __call__(self, x):
            return 2 * x

    mean = Mean()
    for transform in (jax.jit, jax.vmap, jax.checkpoint):
        np.testing.assert_array_equal(transform(mean)(jnp.ones(2)), [2, 2])
    assert jax.grad(mean)(1.0) == 2
