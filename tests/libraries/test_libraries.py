"""Programs on JAX's libraries, on JAX and on mpijax: the same numbers. `make test-libraries` prepares and runs them.

The Pythons of two environments are named by MPIJAX_LIBRARIES (libraries and mpijax, without JAX) and
MPIJAX_LIBRARIES_JAX (the same libraries with JAX).
"""

import functools
import json
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted(file.stem for file in (HERE / "programs").glob("*.py"))
OURS, THEIRS = (os.environ.get(name) for name in ("MPIJAX_LIBRARIES", "MPIJAX_LIBRARIES_JAX"))
# Relative to the largest number of a result. Markov chains and trained networks multiply the last bit of a float.
TOLERANCE = 1e-3
LOOSE = {"blackjax_": 1e-2, "keras_": 1e-2, "netket_": 5e-2, "numpyro_": 1e-2, "optax_": 2e-2}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not (OURS and THEIRS), reason="needs the environments of make test-libraries"),
]


def ran(python: str, program: str, launcher: Sequence[str] = (), **variables: str) -> dict:
    env = {"KERAS_BACKEND": "jax", "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", **os.environ, **variables}
    env.pop("PYTHONPATH", None)
    with tempfile.TemporaryDirectory() as folder:  # JAXNS leaves a log where it runs
        done = subprocess.run(
            [*launcher, python, str(HERE / "runner.py"), program],
            env=env, capture_output=True, text=True, timeout=1500, cwd=folder,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    # Libraries print as well.
    return json.loads([line for line in done.stdout.splitlines() if line.startswith("{")][-1])


@functools.cache
def on_jax(program: str) -> dict:
    return ran(THEIRS, program)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_has_the_same_numbers(program):
    theirs = on_jax(program)
    ours = ran(OURS, program, MPIJAX_AS_JAX="1")
    assert "mpijax" in ours["file"] and "mpijax" not in theirs["file"]
    times = ("import", "first", "first, processor", "again")
    print(program, *(f"{name} {theirs[name]:.1f} s, mpijax {ours[name]:.1f} s;" for name in times))
    assert ours["results"].keys() == theirs["results"].keys()
    for name, value in theirs["results"].items():
        scale = max(1e-12, float(np.max(np.abs(value), initial=0)))
        rtol = LOOSE.get(program, TOLERANCE)
        np.testing.assert_allclose(ours["results"][name], value, rtol=rtol, atol=rtol * scale, err_msg=name)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("program", ["orbax_manager", *(name for name in PROGRAMS if name.endswith("_ranks"))])
def test_a_program_has_the_same_numbers_on_ranks(program, ranks):
    """Orbax: each rank saves and restores its part of a sharded array. Flax, Keras: a batch split over the ranks. NetKet:
    Markov chains and samples split over them. NumPyro: its chains are."""
    launcher = [str(Path(OURS).with_name("mpirun")), "-n", str(ranks)]
    ours = ran(OURS, program, launcher=launcher, MPIJAX_AS_JAX="1")
    for name, value in on_jax(program)["results"].items():
        np.testing.assert_allclose(ours["results"][name], value, rtol=LOOSE.get(program, TOLERANCE), err_msg=name)
