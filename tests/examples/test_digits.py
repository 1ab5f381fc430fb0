"""The digits example: its loss curve is JAX's on any number of ranks, and it learns."""

import re
import subprocess
import sys

import numpy as np
import pytest
from examples.programs import load_example, needs_sklearn, path_of
from quickly import all_slow_but

pytestmark = needs_sklearn

# Mean training loss of the first epochs, from the same file run on jax 0.10.2 (one process).
JAX_CURVES = {
    "mlp": [0.95581488, 0.20915466, 0.12895849],
    "attention": [1.33129575, 0.20128135, 0.10862552],
}


@pytest.mark.mpi
@pytest.mark.two_ranks  # conjugate gradients have a solution on four
@pytest.mark.parametrize("name", all_slow_but(("attention",), JAX_CURVES))  # by default the script below trains the other
@pytest.mark.slow  # by default the script below learns, and federated averaging has JAX's curve on ranks
def test_loss_curve_is_that_of_jax_on_any_number_of_ranks(name):
    digits = load_example("digits")
    mesh = digits.Mesh(np.array(digits.jax.devices()), ("data",))
    curve, _, _ = digits.train(name, digits.load_digits(), mesh, len(JAX_CURVES[name]), 64, digits.silent)
    np.testing.assert_allclose(curve, JAX_CURVES[name], atol=1e-4)


@pytest.mark.parametrize(("models", "epochs", "accuracy"), [(1, 5, 90), pytest.param(2, 30, 97, marks=pytest.mark.slow)])
def test_script_learns_and_draws_the_curves(models, epochs, accuracy, tmp_path):
    plot = tmp_path / "digits.png"
    options = ["--out", plot, "--epochs", str(epochs), "--model", "mlp" if models == 1 else "both"]
    done = subprocess.run([sys.executable, path_of("digits"), *options], capture_output=True, text=True, timeout=250, check=True)
    accuracies = [float(x) for x in re.findall(r"test accuracy ([0-9.]+) %", done.stdout)]
    assert len(accuracies) == models and min(accuracies) >= accuracy
    assert plot.read_bytes().startswith(b"\x89PNG")
