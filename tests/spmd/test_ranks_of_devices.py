"""Several devices in each of several ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from launching import PATHS, marked, mpirun

from mpijax.runtime.arrays.devices import Device
from mpijax.sharding import Mesh, NamedSharding
from mpijax.sharding import PartitionSpec as P

HERE = Path(__file__).parent


def devices(processes) -> np.ndarray:
    """Devices in the places of the numbers of their processes."""
    of = np.array(processes)
    return np.array([Device(i, int(p)) for i, p in enumerate(of.flat)], dtype=object).reshape(of.shape)


@pytest.mark.parametrize(
    ("processes", "ranks", "within"),
    [
        ([[0, 1], [2, 3]], (2, 2), (1, 1)),
        ([[0, 0], [1, 1]], (2, 1), (1, 2)),
        ([[1, 0], [1, 0]], (1, 2), (2, 1)),
        ([[0, 0, 1, 1], [0, 0, 1, 1]], (1, 2), (2, 2)),
        ([[0, 0], [0, 0]], (1, 1), (2, 2)),
    ],
)
def test_each_process_has_a_block_of_a_mesh(processes, ranks, within):
    mesh = Mesh(devices(processes), ("a", "b"))
    assert tuple(mesh.processes_along.values()) == ranks and tuple(mesh.within.values()) == within


@pytest.mark.parametrize("processes", [[0, 1, 0, 1], [0, 0, 1], [0, 0, 1, 1, 1, 0], [[0, 0], [0, 1], [1, 1]]])
def test_in_other_meshes_each_process_stands_for_all(processes):
    mesh = Mesh(devices(processes), ("a", "b")[: np.ndim(processes)])
    assert mesh.lies_apart and set(mesh.processes_along.values()) == {1} and mesh.within == mesh.shape


@pytest.mark.parametrize("spec", [P("a"), P("b", "a"), P(("a", "b")), P(("b", "a")), P(None, ("a", "b")), P("a", "b")])
@pytest.mark.parametrize("processes", [np.arange(4) // 2, np.arange(4) // 4, np.arange(4) % 2, [0, 1, 1, 0]])
def test_a_device_has_the_same_part_whatever_process_it_is_of(spec, processes):
    of = np.array(processes).reshape(2, 2)
    found, expected = (NamedSharding(Mesh(devices(p), ("a", "b")), spec) for p in (of, np.arange(4).reshape(2, 2)))
    parts = [[i.indices(8) for i in part] for part in found.devices_indices_map((8, 8)).values()]
    assert parts == [[i.indices(8) for i in part] for part in expected.devices_indices_map((8, 8)).values()]


def run(ranks: int, count: int, *words: str) -> subprocess.CompletedProcess:
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"} | {"MPIJAX_NUM_LOCAL_DEVICES": str(count)}
    env["PYTHONPATH"] = f"{PATHS}{os.pathsep}{HERE.parent}"
    program = [sys.executable, "-m", "spmd.ranks_of_devices", *words]
    return subprocess.run([*mpirun(ranks), *program], env=env, capture_output=True, text=True, timeout=300, check=False)


@marked
@pytest.mark.parametrize(("ranks", "count", "programs"), [(2, 2, "3"), pytest.param(2, 2, "12", marks=pytest.mark.slow), pytest.param(2, 3, "4", marks=pytest.mark.slow)])
def test_values_are_those_of_whole_arrays(ranks, count, programs):
    done = run(ranks, count, programs)
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stdout + done.stderr
