"""Prefix sums, along the split axis and another."""

from bench.partition.modules import jnp, lax
from bench.partition.program import program, rows

ROW = 64 * 4
LEAST = lambda n: ROW  # one row goes from rank to rank


@program("scan/cumsum across", rows(256, 64), least=LEAST)
def cumsum_across(x):
    return jnp.cumsum(x, axis=0)


@program("scan/cumsum along", rows(256, 64))
def cumsum_along(x):
    return jnp.cumsum(x, axis=1)


@program("scan/cummax across", rows(256, 64), least=LEAST)
def cummax_across(x):
    return lax.cummax(x, axis=0)


@program("scan/cumprod, reversed", rows(256, 64), least=LEAST)
def cumprod_reversed(x):
    return lax.cumprod(1 + x / 100, axis=0, reverse=True)


@program("scan/associative_scan", rows(256, 64), rows(256, 64), least=lambda n: 2 * ROW)
def associative(a, b):
    def combine(x, y):
        return x[0] * y[0], y[0] * x[1] + y[1]

    return lax.associative_scan(combine, (0.5 + a / 10, b))


@program("scan/cumulative mean", rows(4096), least=lambda n: 4)
def cumulative_mean(x):
    return jnp.cumsum(x) / (1 + jnp.arange(x.size))
