"""All pairs of rows."""

from bench.partition.modules import jnp
from bench.partition.program import program, rows, whole

POINTS = lambda n: 512 * 4 * 4 / n * (n - 1)  # every other shard comes here


@program("pairs/distances", rows(512, 4), least=POINTS)
def distances(x):
    return jnp.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=-1))


@program("pairs/nearest", rows(512, 4), least=POINTS)
def nearest(x):
    d = ((x[:, None] - x[None]) ** 2).sum(axis=-1) + 1e9 * jnp.eye(512)
    return jnp.argmin(d, axis=1)


@program("pairs/forces", rows(512, 4), least=POINTS)
def forces(x):
    d = x[:, None] - x[None]
    return (d / (1 + (d**2).sum(axis=-1, keepdims=True)) ** 1.5).sum(axis=1)


@program("pairs/outer", rows(512), rows(512), least=lambda n: 512 * 4 / n * (n - 1))
def outer(x, y):
    return jnp.outer(x, y)


@program("pairs/x @ x.T", rows(256, 64), least=lambda n: 256 * 64 * 4 / n * (n - 1))
def gram_of_rows(x):
    return x @ x.T


@program("pairs/x.T @ x", rows(256, 64))
def gram_of_columns(x):
    return x.T @ x


@program("pairs/k-means step", rows(1024, 4), whole(8, 4))
def k_means(x, centres):
    nearest = jnp.argmin(((x[:, None] - centres) ** 2).sum(axis=-1), axis=1)
    member = (nearest[:, None] == jnp.arange(8)).astype(x.dtype)
    return member.T @ x / jnp.maximum(member.sum(axis=0), 1)[:, None]
