"""The example of federated averaging: the curve of the same algorithm in JAX, on any number of ranks, and it learns."""

import re
import subprocess
import sys

import numpy as np
import pytest
from examples.programs import load_example, needs_sklearn, path_of
from oracle import THEIRS as theirs

import mpijax as jax
from mpijax.experimental.multihost_utils import broadcast_one_to_all

pytestmark = needs_sklearn
ROUNDS = 2


def curve_of_jax(example, data, test, per_round, epochs, size, rate):
    """Federated averaging in plain loops, means in float64."""
    jnp, random = theirs.numpy, theirs.random

    def loss(params, images, labels):
        hidden = theirs.nn.relu(images @ params["w1"] + params["b1"])
        log_p = theirs.nn.log_softmax(hidden @ params["w2"] + params["b2"])
        return -jnp.mean(jnp.take_along_axis(log_p, labels[:, None], 1))

    gradient, key = theirs.jit(theirs.grad(loss)), random.key(0)
    first, second = random.split(random.fold_in(key, 0))
    hidden = example.HIDDEN
    params = {
        "w1": random.normal(first, (64, hidden)) / 8, "b1": jnp.zeros(hidden),
        "w2": random.normal(second, (hidden, 10)) / hidden**0.5, "b2": jnp.zeros(10),
    }  # fmt: skip
    losses = []
    for number in range(1, ROUNDS + 1):
        drawing, keys = random.split(random.fold_in(key, number))
        chosen = random.choice(drawing, len(data), (per_round,), replace=False)
        keys, updates = random.split(keys, len(data)), []
        for client in map(int, chosen):
            examples, mine = data[client].all_examples(), params
            for epoch in random.split(keys[client], epochs):
                order = np.asarray(random.permutation(epoch, len(data[client])))
                for begin in range(0, len(order), size):
                    rows = order[begin : begin + size]
                    slope = gradient(mine, examples["images"][rows], examples["labels"][rows])
                    mine = {name: p - rate * slope[name] for name, p in mine.items()}
            updates.append((mine, len(data[client])))
        total = sum(n for _, n in updates)
        params = {
            name: jnp.asarray(sum(np.asarray(u[name], np.float64) * n for u, n in updates) / total, jnp.float32)
            for name in params
        }
        losses.append(float(loss(params, test["images"], test["labels"])))
    return losses


@pytest.mark.mpi
@pytest.mark.two_ranks  # conjugate gradients have a solution on four
def test_the_curve_is_that_of_jax_on_any_number_of_ranks():
    example = load_example("federated")
    data, images, labels = example.load_clients(12)
    test = {"images": images, "labels": labels}
    _, losses = example.train(data, ROUNDS, 3, 2, 16, 0.1, report=lambda text: None, test=test)
    expected = np.zeros(ROUNDS)
    if jax.process_index() == 0:  # for all ranks
        expected[:] = curve_of_jax(example, data, test, 3, 2, 16, 0.1)
    np.testing.assert_allclose(losses, broadcast_one_to_all(expected), rtol=1e-4)


@pytest.mark.parametrize(("rounds", "accuracy"), [(4, 35), pytest.param(30, 85, marks=pytest.mark.slow)])
@pytest.mark.slow  # by default the curve below is of the same functions
def test_the_program_learns(rounds, accuracy):
    command = [sys.executable, str(path_of("federated")), "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stderr
    assert float(re.search(r"test accuracy ([\d.]+)%", done.stdout)[1]) > accuracy
