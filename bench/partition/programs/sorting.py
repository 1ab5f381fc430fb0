"""Sorting and searching, along the split axis and another."""

from bench.partition.modules import jnp, lax
from bench.partition.program import program, rows, whole

SHARD = lambda n: 4096 * 4 / n * (n - 1) / n  # each element to the rank where it belongs

QUERIES = lambda n: 2 * 64 * 4 * (n - 1) / n  # their places, summed


@program("sort/across", rows(4096), least=SHARD)
def sort_across(x):
    return jnp.sort(x)


@program("sort/along", rows(64, 256))
def sort_along(x):
    return jnp.sort(x, axis=1)


@program("sort/argsort across", rows(4096), least=lambda n: 2 * SHARD(n))
def argsort_across(x):
    return jnp.argsort(x)


@program("sort/argsort along", rows(64, 256))
def argsort_along(x):
    return jnp.argsort(x, axis=1)


@program("sort/columns of split rows", rows(256, 64))
def sort_columns(x):
    return jnp.sort(x, axis=0)


@program("sort/with keys", rows(4096, drawn=100), rows(4096), least=lambda n: 2 * SHARD(n))
def with_keys(k, x):
    return lax.sort((k, x), num_keys=1)


@program("sort/median across", rows(4096))
def median_across(x):
    return jnp.median(x)


@program("sort/median along", rows(64, 256))
def median_along(x):
    return jnp.median(x, axis=1)


@program("sort/quantile across", rows(4096))
def quantile(x):
    return jnp.quantile(x, jnp.array([0.1, 0.5, 0.9]))


@program("sort/top_k across", rows(4096), least=lambda n: 2 * 8 * 4 * (n - 1))
def top_k_across(x):
    return lax.top_k(x, 8)


@program("sort/top_k along", rows(64, 256))
def top_k_along(x):
    return lax.top_k(x, 8)


@program("sort/unique", rows(4096, drawn=50))
def unique(x):
    return jnp.unique(x, size=50, fill_value=-1)


@program("sort/searchsorted, queries split", whole(512, drawn="sorted"), rows(4096))
def searchsorted_queries(a, x):
    return jnp.searchsorted(a, x)


@program("sort/searchsorted, table split", rows(4096, drawn="sorted"), whole(64), least=QUERIES)
def searchsorted_table(a, x):
    return jnp.searchsorted(a, x)
