"""Compiled programs as bytes: read again, here and in another process, they are the same programs."""

import subprocess
import sys

import numpy as np
import pytest

import mpijax as jax
from mpijax import numpy as jnp
from mpijax.experimental.serialize_executable import deserialize_and_load, serialize
from mpijax.sharding import NamedSharding
from mpijax.sharding import PartitionSpec as P

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def again(function, *args, **options):
    compiled = jax.jit(function, **options).lower(*args).compile()
    return compiled, deserialize_and_load(*serialize(compiled))


def test_trees_constants_and_loops():
    table = np.arange(4.0, dtype=np.float32)

    def f(tree, *, scale):
        looped = jax.lax.fori_loop(0, 3, lambda i, y: y * scale + table, tree["a"])
        return {"sum": looped.sum(), "pair": (jnp.sin(tree["b"][0]), looped)}

    compiled = jax.jit(f).lower({"a": X, "b": [X[0]]}, scale=jnp.float32(0.5)).compile()
    read = deserialize_and_load(*serialize(compiled))
    found = (c({"a": X, "b": [X[0]]}, scale=jnp.float32(0.5)) for c in (compiled, read))
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(a, b)
    assert read.in_tree == compiled.in_tree and read.out_tree == compiled.out_tree
    with pytest.raises(TypeError):
        read({"a": X[:2], "b": [X[0]]}, scale=jnp.float32(0.5))


def test_donated_arguments_are_deleted():
    _, read = again(lambda x, y: (x + 1, y * 2), X, X, donate_argnums=0)
    x, y = jnp.asarray(X) + 0, jnp.asarray(X) + 0
    assert [info.donated for info in jax.tree.leaves(read.args_info)] == [True, False]
    np.testing.assert_array_equal(read(x, y)[0], X + 1)
    assert x.is_deleted() and not y.is_deleted()


def test_another_process():
    blob, in_tree, out_tree = serialize(jax.jit(lambda x: jnp.tanh(x) @ x.T).lower(X).compile())
    code = (
        "import sys, numpy as np, mpijax as jax\n"
        "from mpijax.experimental.serialize_executable import deserialize_and_load\n"
        "x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)\n"
        "trees = jax.tree.structure(((x,), {})), jax.tree.structure(x)\n"
        "sys.stdout.buffer.write(np.asarray(deserialize_and_load(sys.stdin.buffer.read(), *trees)(x)).tobytes())"
    )
    assert (in_tree, out_tree) == (jax.tree.structure(((X,), {})), jax.tree.structure(X))
    ran = subprocess.run([sys.executable, "-c", code], input=blob, capture_output=True, check=True)
    np.testing.assert_allclose(np.frombuffer(ran.stdout, np.float32).reshape(3, 3), np.tanh(X) @ X.T, rtol=1e-6)


@pytest.mark.two_ranks
@pytest.mark.mpi
def test_arrays_that_are_split_over_ranks():
    mesh = jax.make_mesh((jax.device_count(),), ("i",))
    rows = NamedSharding(mesh, P("i"))
    whole = np.random.default_rng(0).normal(size=(4 * jax.device_count(), 3)).astype(np.float32)
    x = jax.device_put(whole, rows)
    compiled, read = again(lambda x: (x * 2, x.sum(0)), x)
    for a, b in zip(compiled(x), read(x), strict=True):
        assert a.sharding == b.sharding
        np.testing.assert_array_equal(a.addressable_shards[0].data, b.addressable_shards[0].data)


def test_what_is_refused():
    compiled = jax.jit(jnp.sin).lower(X).compile()
    blob, in_tree, out_tree = serialize(compiled)
    two = jax.tree.structure(((X, X), {}))
    with pytest.raises(TypeError, match="expected a compiled program"):
        serialize(jax.jit(jnp.sin))
    with pytest.raises(ValueError, match="1 arguments, but in_tree"):
        deserialize_and_load(blob, two, out_tree)
    with pytest.raises(ValueError, match="1 results, but out_tree"):
        deserialize_and_load(blob, in_tree, two)
    with pytest.raises(ValueError, match="are not devices of this job"):
        deserialize_and_load(blob, in_tree, out_tree, execution_devices=["gpu"])
    with pytest.raises(NotImplementedError):
        serialize(jax.jit(lambda x: jax.pure_callback(np.sin, x, x)).lower(X).compile())
    ref = jax.new_ref(X)
    with pytest.raises(ValueError, match="can't serialize with a closed-over mutable array ref"):
        serialize(jax.jit(lambda x: ref[...] + x).lower(X).compile())
    for damaged in (blob[:40], b"", blob[:-9] + b"123456789"):
        with pytest.raises(ValueError):
            deserialize_and_load(damaged, in_tree, out_tree)
