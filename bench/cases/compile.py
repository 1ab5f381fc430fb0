"""How long a user waits: imports, first calls, new shapes, and a second process.

Each is timed once in a process of its own. Data is made beforehand and nothing else has been compiled.
"""

import numpy as np

from bench.case import case
from bench.cases.networks import SIZES, mlp_batch, mlp_loss, mlp_parameters


@case("start/import", ratio=0.27 / 0.15, mode="import")
def import_time(backend):
    """The time of `import mpijax` and of `import jax`, the interpreter's own start excluded."""


def small(backend):
    jnp = backend.jnp
    f = backend.jax.jit(lambda x: jnp.sum(jnp.tanh(x) * x + 1))
    x = backend.array(np.arange(100, dtype=np.float32))
    return [lambda: f(x)]


def mlp_gradient(backend):
    f = backend.jax.jit(backend.jax.value_and_grad(mlp_loss(backend)))
    parameters, batch = mlp_parameters(backend, SIZES), mlp_batch(backend, SIZES, 128)
    return [lambda: f(parameters, *batch)]


@case("start/first call, small function", ratio=2, mode="first", cache="empty")
def cold_small(backend):
    return small(backend)


@case("start/first call, MLP gradient", ratio=1.5, mode="first", cache="empty")
def cold_mlp(backend):
    return mlp_gradient(backend)


@case("start/second process, small function", ratio=5, mode="first", cache="warm")
def warm_small(backend):
    return small(backend)


@case("start/second process, MLP gradient", ratio=5, mode="first", cache="warm")
def warm_mlp(backend):
    return mlp_gradient(backend)


@case("start/new shape, small function", ratio=5, mode="first")
def new_shape_small(backend):
    jnp = backend.jnp
    f = backend.jax.jit(lambda x: jnp.sum(jnp.tanh(x) * x + 1))
    known, *others = [backend.array(np.arange(n, dtype=np.float32)) for n in range(100, 1000, 80)]
    f(known)
    return [lambda x=x: f(x) for x in others]


@case("start/new shape, MLP gradient", ratio=5, mode="first")
def new_shape_mlp(backend):
    f = backend.jax.jit(backend.jax.value_and_grad(mlp_loss(backend)))
    parameters = mlp_parameters(backend, SIZES)
    known, *others = [mlp_batch(backend, SIZES, batch) for batch in (128, 96, 112, 144, 160)]
    f(parameters, *known)
    return [lambda batch=batch: f(parameters, *batch) for batch in others]
