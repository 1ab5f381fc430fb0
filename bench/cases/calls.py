"""What a call costs when there is hardly anything to compute."""

import numpy as np

from bench.case import case


def eight(backend):
    return backend.array(np.arange(8, dtype=np.float32))


@case("call/jit 8 floats", ratio=2)
def jitted_call(backend):
    f = backend.jax.jit(lambda x: x * 2 + 1)
    x = eight(backend)
    return lambda: f(x)


@case("call/jit pytree of 20 leaves", ratio=2)
def jitted_tree(backend):
    f = backend.jax.jit(lambda tree: backend.jax.tree.map(lambda x: x * 2 + 1, tree))
    tree = {f"layer{i}": {"w": eight(backend), "b": eight(backend)} for i in range(10)}
    return lambda: f(tree)


@case("call/eager add", ratio=2)
def eager_add(backend):
    x, y = eight(backend), eight(backend)
    return lambda: x + y


@case("call/eager x[3:7]", ratio=3)
def eager_slice(backend):
    x = eight(backend)
    return lambda: x[3:7]
