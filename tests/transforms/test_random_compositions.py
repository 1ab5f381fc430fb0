"""Random compositions of transformations have JAX's values, one operation at a time and compiled.

    python -m pytest tests/transforms/test_random_compositions.py --slow -k 'slow and 123'     one of the long run
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from oracle import OURS, THEIRS
from quickly import one_in
from transforms.compositions import arguments, compose

import mpijax

SEEDS = range(16)
MORE = range(16, 632)


def check(seed: int, depth: int) -> None:
    """Compare with JAX, which compiles all at once: its operations one by one take longer."""
    expression, args = compose(seed, depth), arguments(seed)
    want = np.asarray(jax.jit(expression.make(THEIRS))(*args))
    for label, fun in (("eager", expression.make(OURS)), ("jit", mpijax.jit(expression.make(OURS)))):
        got = np.asarray(fun(*args))
        assert got.dtype == want.dtype, expression.text
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-4, err_msg=f"{label}: {expression.text}")


@pytest.mark.parametrize("seed", one_in(3, SEEDS))
@pytest.mark.one_in(2)
def test_values_are_jaxs(seed):
    check(seed, 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MORE)
def test_more_values_are_jaxs(seed):
    check(seed, 4 if seed % 4 else 5)
