"""Optimizers and layers: the same steps and outputs as JAX's."""

import importlib

import numpy as np
import pytest
from oracle import OURS, THEIRS, sample
from quickly import one_in

PARAMS = {"w": sample(3, 2), "b": sample(2, seed=1), "s": np.float32(2)}
OPTIMIZERS = {
    "sgd": lambda o: o.sgd(0.1),
    "momentum": lambda o: o.momentum(o.constant(0.1), 0.9),
    "nesterov": lambda o: o.nesterov(o.exponential_decay(0.1, 2, 0.5), 0.9),
    "adagrad": lambda o: o.adagrad(o.piecewise_constant([1], [0.1, 0.2])),
    "rmsprop": lambda o: o.rmsprop(o.inverse_time_decay(0.1, 2, 0.5, staircase=True)),
    "rmsprop_momentum": lambda o: o.rmsprop_momentum(o.polynomial_decay(0.1, 2, 0.01)),
    "adam": lambda o: o.adam(0.1),
    "adamax": lambda o: o.adamax(0.1),
}


def library(J, name):
    return importlib.import_module(f"{J.name}.example_libraries.{name}")


def steps(J, make, params=PARAMS):
    optimizers = library(J, "optimizers")
    init, update, get_params = make(optimizers)
    state = init(J.tree.map(J.numpy.asarray, params))
    for i in range(3):
        gradients = J.tree.map(lambda x: x * 0.5, get_params(state))
        state = update(i, optimizers.clip_grads(gradients, 3.0), state)
    again = optimizers.pack_optimizer_state(optimizers.unpack_optimizer_state(state))
    return J.tree.map(np.asarray, get_params(again))


@pytest.mark.parametrize("name", one_in(2, OPTIMIZERS))
@pytest.mark.one_in(2)
def test_steps_are_jaxs(name):
    theirs, ours = (steps(J, OPTIMIZERS[name]) for J in (THEIRS, OURS))
    assert theirs.keys() == ours.keys()
    for key in theirs:
        np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-5)


def test_sm3_steps_are_jaxs():
    arrays = {"w": PARAMS["w"], "b": PARAMS["b"]}
    theirs, ours = (steps(J, lambda o: o.sm3(0.1), arrays) for J in (THEIRS, OURS))
    for key in theirs:
        np.testing.assert_allclose(ours[key], theirs[key], rtol=1e-5)


def test_gradients_of_another_structure():
    init, update, _ = library(OURS, "optimizers").sgd(0.1)
    with pytest.raises(TypeError, match="did not match the parameter tree"):
        update(0, [X := sample(2), X], init({"a": X}))
    init, update, _ = library(OURS, "optimizers").optimizer(lambda: (lambda x: x, lambda i, g, s: (s,), lambda s: s))()
    with pytest.raises(TypeError, match="output structure that did not match its input structure"):
        update(0, X, init(X))
    with pytest.raises(ValueError, match="one shorter"):
        library(OURS, "optimizers").piecewise_constant([1, 2], [0.1, 0.2])


def network(stax):
    branch = stax.parallel(stax.serial(stax.Dense(4), stax.Tanh), stax.Identity)
    return stax.serial(
        stax.Conv(4, (3, 3), padding="SAME"), stax.BatchNorm(), stax.Relu, stax.MaxPool((2, 2), strides=(2, 2)),
        stax.AvgPool((2, 2), padding="SAME"), stax.ConvTranspose(2, (2, 2)), stax.SumPool((2, 2)), stax.Flatten,
        stax.FanOut(2), branch, stax.FanInConcat(), stax.Dropout(0.5, mode="test"), stax.Dense(3), stax.LogSoftmax,
    )  # fmt: skip


def test_a_network_is_jaxs():
    images = sample(2, 6, 6, 1)

    def outputs(J):
        init, apply = network(library(J, "stax"))
        shape, params = init(J.random.key(0), images.shape)
        return shape, np.asarray(J.jit(apply)(params, images, rng=J.random.key(1)))

    (their_shape, theirs), (shape, ours) = outputs(THEIRS), outputs(OURS)
    assert shape == their_shape == ours.shape
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_dropout_drops():
    stax = library(OURS, "stax")
    init, apply = stax.serial(stax.FanOut(2), stax.FanInSum, stax.Dropout(0.5))
    assert init(OURS.random.key(0), (100,))[0] == (100,)
    out = np.asarray(apply([(), (), ()], np.ones(1000, np.float32), rng=OURS.random.key(0)))
    assert set(out) == {0, 4} and 400 < (out == 0).sum() < 600
    with pytest.raises(ValueError, match="requires apply_fun to be called with a PRNG key"):
        apply([(), (), ()], np.ones(2))
    _, dependent = stax.shape_dependent(lambda shape: stax.elementwise(lambda x: x * shape[0]))
    np.testing.assert_array_equal(dependent((), np.ones(3)), [3, 3, 3])
