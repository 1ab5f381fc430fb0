"""Maps of long computations take twice as many lanes where the processor has wide registers, with the same bits."""

import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.compiler.loops import scheduling


def prices(stock, strike):
    """Black and Scholes: a logarithm, error functions and a quotient by a constant."""
    d = jnp.log(stock / strike) / 0.3 + 0.1
    share = lambda z: 0.5 * (1 + jax.lax.erf(z / np.float32(2**0.5)))
    return stock * share(d) - strike * jnp.exp(-0.01) * share(d - 0.2)


def draws(key, shape):
    return jax.random.normal(key, shape)


@pytest.mark.parametrize("size", [31, 1001, 5003])
def test_same_bits(size, monkeypatch):
    found = []
    for wide in (False, True):
        monkeypatch.setattr(scheduling, "has_wide_registers", lambda wide=wide: wide)
        stock, strike = np.random.default_rng(0).uniform(0.1, 3, (2, size)).astype(np.float32)
        priced = jax.jit(lambda *xs: prices(*xs)).lower(stock, strike)
        drawn = jax.jit(lambda key: draws(key, (3, size))).lower(jax.random.key(1))
        lanes = ("16 lanes", "32 lanes") if wide else ("8 lanes", "16 lanes")
        assert size < 32 or (lanes[0] in priced.as_text() and lanes[1] in drawn.as_text())
        found.append((np.asarray(priced.compile()(stock, strike)), np.asarray(drawn.compile()(jax.random.key(1)))))
    for narrow, wide in zip(*found, strict=True):
        np.testing.assert_array_equal(narrow.view(np.uint32), wide.view(np.uint32))


def test_reductions_keep_their_lanes(monkeypatch):
    """Otherwise sums would depend on the processor."""
    monkeypatch.setattr(scheduling, "has_wide_registers", lambda: True)
    x = jnp.ones(4096)
    assert "8 lanes" in jax.jit(lambda x: jnp.sum(prices(x, x))).lower(x).as_text()
