"""`live_arrays`: arrays wherever Python keeps them, as in JAX; each once, and none that is gone."""

import threading
import types

import jax as theirs
import numpy as np
import pytest

import mpijax as ours
from mpijax import numpy as jnp


def kept(jax):
    """Names of the arrays of a program that are alive at three times; arrays are told apart by their size."""
    make = jax.numpy.ones
    before = {id(x) for x in jax.live_arrays()}

    def sizes():
        return sorted(x.size for x in jax.live_arrays() if id(x) not in before and x.size > 100)

    class Holder:
        __slots__ = ("x",)

    def closure():
        y = make(101)
        return lambda: y

    def generator():
        y = make(102)
        yield
        print(y)

    holder, running, call = Holder(), generator(), closure()
    next(running)
    holder.x = make(103)
    nested = [{"a": (make(104), (make(105),))}, types.SimpleNamespace(b=make(106))]
    twice = [local := make(107), local]
    done, ready = threading.Event(), threading.Event()

    def wait(x):
        x = (x,)
        ready.set()
        done.wait()

    thread = threading.Thread(target=wait, args=(make(108),))
    thread.start()
    ready.wait()
    deleted = make(109)
    seen = [sizes()]
    deleted.delete()
    given = make(110)
    result = jax.jit(lambda x: x + 1, donate_argnums=0)(given)
    done.set()
    thread.join()
    del call, running, nested, twice, local, thread
    seen.append(sizes())
    del holder, result
    seen.append(sizes())
    return seen


@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_arrays_are_found_wherever_python_keeps_them():
    assert kept(ours) == kept(theirs) == [list(range(101, 110)), [103, 110], []]


def test_the_very_arrays_are_found_and_only_those_of_mpijax():
    x, y = jnp.arange(200), np.arange(200)
    keys = ours.random.split(ours.random.key(0), 300)
    found = ours.live_arrays()
    assert any(x is f for f in found) and any(keys is f for f in found)
    assert not any(y is f for f in found) and len({id(f) for f in found}) == len(found)
    shapes = []
    ours.jit(lambda x: shapes.extend(f is x for f in ours.live_arrays()) or x + 1)(x)
    assert not any(shapes)  # tracers are no arrays


@pytest.mark.parametrize("jax", [ours, theirs])
def test_platforms(jax):
    assert isinstance(jax.live_arrays("cpu"), list)
    with pytest.raises(RuntimeError, match="[Uu]nknown backend"):
        jax.live_arrays("gpux")
