"""What rules say becomes of the sign of a zero is what their operations do with it."""

from functools import partial
from importlib import import_module

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax, nn, wiring
from mpijax import numpy as jnp
from mpijax.core.rules.lowering import Elementwise, Zeros
from mpijax.core.rules.registry import registry
from mpijax.extend import core
from mpijax.runtime.program.plan_cache import _is_own

for module in wiring._PRIMITIVES:
    import_module(module)
SAID = {
    key: p.lower.zeros
    for key, p in registry.items()
    if _is_own(key) and isinstance(p.lower, Elementwise) and p.lower.zeros is not Zeros.SHOWN
}
EVEN = np.arange(8) % 2 == 0
# Operations by the names of their primitives; those of two operands get the zero as either.
UNARY = {
    "add_any": lambda x: core.primitives.add_jaxvals_p.bind(x, np.float32(1)),
    "convert_element_type": lambda x: lax.convert_element_type(x, np.float16),
    "copy": lambda x: jnp.copy(x),
    "reduce_precision": lambda x: lax.reduce_precision(x, 5, 10),
    "select_n": lambda x: lax.select_n(EVEN, x, -x),
}
UNARY |= {
    key: getattr(lax, key)
    for key in "abs cos cosh exp exp2 expm1 is_finite log log1p logistic neg sin sqrt tanh".split()
}
BINARY = {key: getattr(lax, key) for key in "add eq ge gt le lt max min mul ne sub".split()}
OTHERS = np.array([0, -0.0, 1.5, -2, np.inf, -np.inf, np.nan, 3e38], np.float32)


def test_every_such_rule_is_tested():
    assert sorted(SAID) == sorted(UNARY | BINARY)


@pytest.mark.parametrize("key", SAID)
@pytest.mark.one_in(4)
def test_operations_keep_what_their_rules_say(key):
    functions = [UNARY[key]] if key in UNARY else [lambda x: BINARY[key](x, OTHERS), lambda x: BINARY[key](OTHERS, x)]
    for f in functions:
        positive, negative = (np.asarray(jax.jit(f)(np.full(8, zero, np.float32))) for zero in (0.0, -0.0))
        np.testing.assert_array_equal(positive, negative)
        if SAID[key] is not Zeros.PASSED:
            np.testing.assert_array_equal(np.signbit(positive * 1.0), np.signbit(negative * 1.0))
        if SAID[key] is Zeros.POSITIVE:
            assert not np.signbit(f(OTHERS)[np.asarray(f(OTHERS)) == 0]).any()


@pytest.mark.parametrize("size", [9, 300, 5000])
def test_rows_of_zeros_of_both_signs(size):
    """The maximum that is subtracted is a zero of either sign."""
    x = -np.abs(np.random.default_rng(size).normal(size=(7, size)).astype(np.float32))
    x[:, 1:size:3], x[:, 2:size:4] = 0.0, -0.0
    x[5], x[6] = -0.0, 0.0
    for f in (nn.softmax, nn.log_softmax, partial(nn.logsumexp, axis=1), lambda x: x - x.max(1, keepdims=True)):
        got, want = jax.jit(f)(x), f(jnp.asarray(x))
        np.testing.assert_allclose(got, want, rtol=2e-6)
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
