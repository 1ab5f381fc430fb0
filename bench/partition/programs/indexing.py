"""Rows that data choose."""

from bench.partition.modules import jax, jnp
from bench.partition.program import columns, program, rows, whole

ROWS = 64 * 32 * 4  # bytes of 64 rows

OWNERS = lambda n: (ROWS + 64 * 4) / n * (n - 1) / n  # positions to the ranks that have the rows, the rows back


@program("index/rows by index", rows(256, 32), whole(64, drawn=256), least=lambda n: 2 * ROWS * (n - 1) / n)
def rows_by_index(x, at):
    return x[at]


@program("index/rows by split index", rows(256, 32), rows(64, drawn=256), least=OWNERS)
def rows_by_split_index(x, at):
    return x[at]


@program("index/rows in another order", rows(1024, 16), rows(1024), least=lambda n: 1024 * 17 * 4 / n * (n - 1) / n)
def rows_in_another_order(x, keys):
    return x[jnp.argsort(keys)]


@program("index/columns by index", rows(256, 32), whole(16, drawn=32))
def columns_by_index(x, at):
    return x[:, at]


@program("index/one row", rows(256, 32), whole(drawn=256))
def one_row(x, at):
    return jax.lax.dynamic_index_in_dim(x, at, 0)


@program("index/take_along_axis", rows(256, 32), rows(256, 8, drawn=32))
def take_along_axis(x, at):
    return jnp.take_along_axis(x, at, axis=1)


@program("index/take_along_axis across", columns(64, 128), columns(16, 128, drawn=64))
def take_along_other_axis(x, at):
    return jnp.take_along_axis(x, at, axis=0)


@program("index/scatter-add of split rows", whole(64, 32), rows(256, drawn=64), rows(256, 32))
def scatter_add(x, at, updates):
    return x.at[at].add(updates)


@program("index/scatter-add into split rows", rows(256, 32), whole(64, drawn=256), whole(64, 32))
def scatter_into(x, at, updates):
    return x.at[at].add(updates)


@program("index/segment_sum", rows(256, 32), rows(256, drawn=16))
def segment_sum(x, segments):
    return jax.ops.segment_sum(x, segments, num_segments=16)


@program("index/histogram", rows(4096))
def histogram(x):
    return jnp.histogram(x, bins=32, range=(-4.0, 4.0))[0]


@program("index/bincount", rows(4096, drawn=32))
def bincount(x):
    return jnp.bincount(x, length=32)


@program("index/masked sum", rows(4096))
def masked_sum(x):
    return jnp.sum(x, where=x > 0), jnp.count_nonzero(x > 0)
