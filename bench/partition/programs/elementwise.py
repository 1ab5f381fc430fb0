"""Element by element, and reductions."""

from bench.partition.modules import jax, jnp
from bench.partition.program import columns, grid, program, rows, whole


@program("elementwise/chain", rows(256, 64))
def chain(x):
    return jnp.tanh(jnp.sin(x) * 2 + x**2)


@program("elementwise/row added", grid(128, 128), whole(128))
def row_added(x, b):
    return x * b + 1


@program("elementwise/where", rows(256, 64), whole(256, 64))
def where(x, y):
    return jnp.where(x > 0, x, y)


@program("elementwise/two layouts", rows(256, 64), columns(256, 64), least=lambda n: 256 * 64 * 4 / n * (n - 1) / n)
def two_layouts(x, y):
    return x + y


@program("reduce/sum of all", grid(128, 128))
def sum_of_all(x):
    return x.sum()


@program("reduce/along rows", rows(256, 64))
def along_rows(x):
    return x.mean(axis=1), x.max(axis=1)


@program("reduce/across rows", rows(256, 64))
def across_rows(x):
    return x.sum(axis=0)


@program("reduce/mean and variance", rows(256, 64))
def mean_and_variance(x):
    return (x - x.mean(axis=0)) / jnp.sqrt(x.var(axis=0) + 1e-5)


@program("reduce/argmax", rows(256, 64))
def argmax(x):
    return jnp.argmax(x, axis=0), jnp.argmax(x, axis=1)


@program("reduce/logsumexp", columns(64, 256))
def logsumexp(x):
    return jax.nn.logsumexp(x, axis=1)


@program("reduce/norms", grid(128, 128))
def norms(x):
    return jnp.linalg.norm(x), jnp.linalg.norm(x, axis=1)


@program("reduce/any and all", rows(256, 64))
def any_and_all(x):
    return jnp.any(x > 2), jnp.all(x > -5, axis=0)
