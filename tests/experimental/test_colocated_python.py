"""Python functions and objects that run where the devices are, as `jax.experimental.colocated_python` has them."""

import threading

import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.experimental.colocated_python import colocated_cpu_devices, colocated_python, colocated_python_class

DEVICES = colocated_cpu_devices(jax.local_devices())


def test_devices_are_those_given():
    mesh = jax.make_mesh((1,), ("x",))
    assert colocated_cpu_devices(mesh) is mesh
    assert tuple(jax.local_devices()) == DEVICES


def test_functions_of_trees():
    add_one = colocated_python(lambda x, *, by=None: jax.tree.map(lambda v: v + 1 if by is None else v + by, x))
    out = add_one([jnp.array(1), {"v": jnp.arange(3.0)}], by=jnp.array(2))
    assert jax.tree.map(np.asarray, out)[0] == 3
    np.testing.assert_array_equal(out[1]["v"], [2, 3, 4])
    keys = colocated_python(jax.random.split)(jax.random.key(3))
    assert (keys == jax.random.split(jax.random.key(3))).all()


def test_what_is_fixed_is_checked():
    spec = jax.ShapeDtypeStruct((), np.int32)
    f = colocated_python(lambda x: x.astype(float))
    with pytest.raises(ValueError, match="Results of a colocated_python function differ"):
        f.specialize(out_specs_fn=lambda x: x)(jnp.array(1))
    g = f.specialize(in_specs=((spec,), {}))
    assert g(jnp.array(1)).dtype == np.float32
    with pytest.raises(ValueError, match="Arguments of a colocated_python function differ"):
        g(jnp.arange(2))
    with pytest.raises(ValueError, match="in_specs already specified"):
        g.specialize(in_specs=((spec,), {}))


def test_arguments_and_results_are_arrays_on_the_same_devices():
    with pytest.raises(ValueError, match="only supports jax.Array"):
        colocated_python(lambda x: x)(np.array(1))
    with pytest.raises(ValueError, match="only supports jax.Array"):
        colocated_python(lambda x: 1)(jnp.array(1))
    zero = colocated_python(lambda: jnp.array(0))
    with pytest.raises(ValueError, match=r"No devices found\. colocated_python function without input arguments"):
        zero()
    assert zero.specialize(devices=DEVICES[:1])() == 0


def test_calls_of_several_threads_run_at_once():
    barrier = threading.Barrier(3)
    wait = colocated_python(lambda x: (barrier.wait(timeout=20), x)[1])
    threads = [threading.Thread(target=wait, args=(jnp.array(1),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not barrier.broken


def test_objects_are_made_at_the_first_call_and_end_with_the_last_reference():
    told = []

    @colocated_python_class
    class Total:
        """A sum."""

        def __init__(self, start, *, scale):
            told.append("made")
            self.sum = start * scale

        def __del__(self):
            told.append("ended")

        def add(self, x):
            self.sum = self.sum + x
            return self.sum

        def get(self):
            return self.sum

    assert Total.__name__ == "Total" and Total.__doc__ == "A sum."
    total = Total(jnp.array(2), scale=3)
    assert not told
    assert total.add(jnp.array(1)) == 7 and total.add(jnp.array(1)) == 8 and told == ["made"]
    with pytest.raises(ValueError, match="No devices found"):
        total.get()
    total.get = total.get.specialize(devices=DEVICES[:1])
    assert total.get() == 8
    del total
    assert told == ["made", "ended"]
    del told[:]
    unused = Total(jnp.array(1), scale=1)
    del unused
    assert not told
