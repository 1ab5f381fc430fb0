"""LSTM layers: the numbers of JAX's reference."""

import jax
import numpy as np
import pytest
from jax.experimental import rnn as theirs
from quickly import one_in

import mpijax
from mpijax import numpy as jnp
from mpijax.experimental import rnn

INPUTS, HIDDEN, STEPS = 3, 4, 7
LENGTHS = np.array([7, 1, 4, 6, 7], np.int32)
SIZES = [(1, False), (3, False), (1, True), (2, True)]


def given(layers, bidirectional, dtype=np.float32):
    rng = np.random.default_rng(layers)
    sizes = (INPUTS, HIDDEN, layers, bidirectional)
    states = (layers * (1 + bidirectional), len(LENGTHS), HIDDEN)
    arrays = [rng.normal(size=shape).astype(dtype) for shape in ((len(LENGTHS), STEPS, INPUTS), states, states)]
    return sizes, (*arrays, rng.normal(size=theirs.get_num_params_in_lstm(*sizes)).astype(dtype))


def run(module, sizes, x, h, c, weights):
    parts = module.unpack_lstm_weights(weights, *sizes)
    return module.lstm_ref(x, h, c, *parts, LENGTHS, *sizes[:3], 0.0, sizes[3])


@pytest.mark.parametrize(("layers", "bidirectional"), one_in(2, SIZES, rows=True))
def test_values_are_those_of_jaxs_reference(layers, bidirectional):
    sizes, arrays = given(layers, bidirectional)
    expected = run(theirs, sizes, *map(jax.numpy.asarray, arrays))
    for found in (run(rnn, sizes, *arrays), rnn.lstm(*arrays, LENGTHS, *sizes[:3], 0.0, bidirectional)):
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_no_operand_gets_axes_of_its_own_accord():
    sizes, arrays = given(2, True)
    with mpijax.numpy_rank_promotion("raise"):
        run(rnn, sizes, *arrays)


@pytest.mark.parametrize(("layers", "bidirectional"), [SIZES[1], pytest.param(*SIZES[2], marks=pytest.mark.slow)])
def test_gradients_are_those_of_jaxs_reference(layers, bidirectional):
    sizes, arrays = given(layers, bidirectional)
    expected = jax.grad(lambda *xs: sum((y**2).sum() for y in run(theirs, sizes, *xs)), (0, 1, 2, 3))(*arrays)
    loss = lambda *xs: sum((y**2).sum() for y in rnn.lstm(*xs, LENGTHS, *sizes[:3], 0.0, bidirectional))
    for a, b in zip(mpijax.jit(mpijax.grad(loss, (0, 1, 2, 3)))(*arrays), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("layers", "bidirectional"), one_in(2, SIZES, rows=True))
def test_weights_are_those_of_jax(layers, bidirectional):
    sizes = (INPUTS, HIDDEN, layers, bidirectional)
    drawn = rnn.init_lstm_weight(mpijax.random.key(3), *sizes)
    np.testing.assert_array_equal(drawn, theirs.init_lstm_weight(jax.random.key(3), *sizes))
    np.testing.assert_array_equal(rnn.swap_lstm_gates(drawn, *sizes), theirs.swap_lstm_gates(np.asarray(drawn), *sizes))
    for ours, jaxs in zip(rnn.unpack_lstm_weights(drawn, *sizes), theirs.unpack_lstm_weights(drawn, *sizes), strict=True):
        assert list(ours) == list(jaxs)
        for k in ours:
            np.testing.assert_array_equal(ours[k], jaxs[k])


def test_what_is_refused():
    sizes, arrays = given(1, False)
    call = lambda lengths=LENGTHS, dropout=0.0, **options: rnn.lstm(*arrays, lengths, *sizes[:3], dropout, False, **options)
    with pytest.raises(NotImplementedError, match="int32, got float32"):
        call(jnp.ones(5))
    with pytest.raises(NotImplementedError, match="Dropout.*got 0.5"):
        call(dropout=0.5)
    with pytest.raises(NotImplementedError, match="bfloat16"):
        call(precision=mpijax.lax.Precision.DEFAULT)
    with pytest.raises(ValueError, match=r"a vector of 144 elements, got shape \(143,\)"):
        rnn.unpack_lstm_weights(jnp.ones(143), *sizes)
