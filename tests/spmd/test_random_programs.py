"""Random programs on global arrays: their results are those of the same programs on arrays that are not split.

Some by default, others for each number of ranks; `--slow` runs thousands. A failure prints the seeds with their programs; `python -m
spmd.random_global SEED 1` in tests/ runs one again, under mpirun or with MPIJAX_NUM_LOCAL_DEVICES.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from spmd.random_algorithms import FROM
from spmd.random_global import check, draw, failures

import mpijax as jax

RANKS = jax.process_count()
# Programs that once failed: on four ranks, one has an empty block and does not read a sum that the others read; on two,
# one has an empty part of two different arrays; on two, a result is sent from the place of another value.
FAILED = [5125, 250119, 1002050]


@pytest.mark.mpi
@pytest.mark.parametrize("first", [0, FROM] if RANKS < 4 else [40, FROM + 20])
@pytest.mark.one_in(2)
def test_over_ranks(first):
    found = failures(range(first, first + (10 if RANKS < 4 else 6)))
    assert not found, "\n".join(found)


@pytest.mark.mpi
def test_programs_that_failed():
    assert failures(FAILED) == []


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("first", [*range(0, 2100, 100), *range(FROM, FROM + 2100, 100)])
def test_many_over_ranks(first):
    found = failures(range(first, first + 100))
    assert not found, "\n".join(found)


def run(first: int, count: int, devices: int) -> str:
    """What fails over several devices of one process."""
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"MPIJAX_NUM_LOCAL_DEVICES": str(devices)}
    program = [sys.executable, "-m", "spmd.random_global", str(first), str(count)]
    tests = Path(__file__).parents[1]
    env["PYTHONPATH"] = os.pathsep.join([str(tests.parent), str(tests), env.get("PYTHONPATH", "")])
    done = subprocess.run(program, cwd=tests, env=env, capture_output=True, text=True, timeout=600, check=False)
    return done.stdout + (done.stderr if done.returncode else "")


@pytest.mark.parametrize("devices", [3, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.slow  # by default test_local_devices.py has each operation
def test_over_local_devices(devices):
    assert run(1000 * devices, 12 if devices == 3 else 25, devices) == ""


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 3, 4, 8])
def test_many_over_local_devices(devices):
    assert run(1000 * devices, 1000, devices) == ""


def test_a_seed_is_one_program():
    assert str(draw(5)) == str(draw(5)) != str(draw(6))


def test_a_wrong_result_is_found(monkeypatch):
    """The check can fail: a program whose sharded run yields something else is printed with its seed."""
    monkeypatch.setattr("spmd.random_global.fetch", lambda x: x.__array__() + 1)
    wrong = check(5)
    assert wrong.startswith("seed 5, mesh") and "elements are wrong" in wrong
