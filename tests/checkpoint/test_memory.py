"""Checkpoints in memory: found before those on the disk, as long as the nodes that are left have all parts."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from launching import PATHS, UNDER_LAUNCHER, marked, mpirun

from mpijax.checkpoint import Checkpointer, CheckpointError
from mpijax.cli import launcher
from mpijax.distributed import launchers

alone = pytest.mark.skipif(UNDER_LAUNCHER, reason="of one process")

# Ranks take node `rank % nodes`, which has a folder of its own. w is split over the ranks, b is the same on all.
PROGRAM = """
import os, sys, warnings
import numpy as np
rank = int(os.environ.get("PMI_RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))
folder, nodes, steps = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
os.environ["MPIJAX_MEMORY"] = f"{folder}/node-{rank % nodes}"
import mpijax as jax
from mpijax.checkpoint import Checkpointer
mesh = jax.make_mesh((jax.device_count(),), ("i",))
rows, whole = jax.NamedSharding(mesh, jax.P("i")), jax.NamedSharding(mesh, jax.P())
w, b = np.arange(24, dtype=np.float32).reshape(12, 2), np.arange(5, dtype=np.int32)
state = {"w": jax.device_put(w, rows), "b": jax.device_put(b, whole), "bf16": jax.numpy.ones(3, "bfloat16"), "n": 0}
add = lambda k: jax.tree.map(lambda x: x + k, state)
with Checkpointer(folder + "/disk", every=10, memory=1) as checkpoints:
    begin = checkpoints.latest() or 0
    if begin:
        found = checkpoints.restore(like=state)
        assert found["w"].sharding == rows
        own = lambda x: x.addressable_shards[0].data if isinstance(x, jax.Array) else x
        assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(own(a), own(b)), found, add(begin)))
        assert np.array_equal(own(checkpoints.restore()["w"]), w + begin)
    for step in range(begin + 1, begin + steps + 1):
        checkpoints.save(step, add(step))
    checkpoints.wait()
    held = checkpoints.steps()
if rank == 0:
    print(begin, held)
"""


def job(ranks: int, folder: Path, nodes: int, steps: int) -> str:
    command = [*mpirun(ranks), sys.executable, "-c", PROGRAM, str(folder), str(nodes), str(steps)]
    env = {**launchers.outside(os.environ), "PYTHONPATH": PATHS, "MPIJAX_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@marked
@pytest.mark.slow
def test_a_node_that_lost_its_memory_gets_it_from_its_neighbour(tmp_path):
    assert job(3, tmp_path, 3, 12) == "0 [10, 12]"
    assert job(3, tmp_path, 3, 1) == "12 [10, 13]"
    shutil.rmtree(tmp_path / "node-1")
    assert job(3, tmp_path, 3, 0) == "13 [10, 13]"  # node 1 has now what its rank needs, and not all that it had
    shutil.rmtree(tmp_path / "node-2")
    assert job(2, tmp_path, 2, 1) == "13 [10, 14]"  # on fewer ranks and nodes
    for node in (0, 1):
        shutil.rmtree(tmp_path / f"node-{node}")
    assert job(2, tmp_path, 2, 1) == "10 [10, 11]"  # two neighbours at once: the disk has it


@marked
@pytest.mark.parametrize("ranks", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_ranks_of_a_node_share_its_memory(tmp_path, ranks):
    assert job(ranks, tmp_path, 2, 3) == "0 [3]"
    shutil.rmtree(tmp_path / "node-0")
    assert job(ranks, tmp_path, 2, 0) == "3 [3]"
    held = {f.name for f in (tmp_path / "node-1").glob("*/step-00000003/w/c*")}
    assert held == {f"c.{i}.0" for i in range(ranks)}


@pytest.fixture
def memory(tmp_path, monkeypatch):
    monkeypatch.setenv("MPIJAX_MEMORY", str(tmp_path / "memory"))
    return tmp_path / "memory"


@alone
def test_the_latest_of_memory_and_disk(tmp_path, memory):
    with Checkpointer(tmp_path / "run", every=4, memory=3) as checkpoints:
        began = [checkpoints.save(step, {"x": np.full(3, step)}) for step in range(1, 9)]
        assert began == [step % 4 == 0 for step in range(1, 9)]  # whether the disk gets it
    assert checkpoints.steps() == [4, 6, 8] and checkpoints.restore(6)["x"][0] == 6
    assert Checkpointer(tmp_path / "run").steps() == [4, 8]  # who does not ask for memory gets none
    assert Checkpointer(tmp_path / "other", memory=1).steps() == []
    assert memory.stat().st_mode & 0o777 == 0o700


@alone
def test_damage_in_memory_is_an_error(tmp_path, memory):
    with Checkpointer(tmp_path / "run", every=4, memory=1) as checkpoints:
        for step in range(1, 6):
            checkpoints.save(step, {"x": np.full(3, step)})
    [file] = memory.glob("*/step-00000005/x/c*")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    with pytest.raises(CheckpointError, match="array x, file"):
        checkpoints.restore()
    assert checkpoints.latest() == 4 and checkpoints.restore()["x"][0] == 4


@alone
def test_a_folder_that_others_may_write_is_refused(tmp_path, memory):
    memory.mkdir()
    memory.chmod(0o770)
    with pytest.raises(CheckpointError, match="must be a folder of this user with mode 0700"):
        Checkpointer(tmp_path / "run", memory=1).latest()
    memory.rmdir()
    memory.symlink_to(tmp_path)
    with pytest.raises(CheckpointError, match="must be a folder of this user with mode 0700"):
        Checkpointer(tmp_path / "run", memory=1).latest()


RESTARTED = """
import os, sys
import numpy as np
from mpijax.checkpoint import Checkpointer
with Checkpointer(sys.argv[1], every=100, memory=1) as checkpoints:
    begin = checkpoints.latest() or 0
    for step in range(begin + 1, 8):
        checkpoints.save(step, {"x": np.full(3, step)})
        checkpoints.wait()
        if step == 4 and begin == 0:
            os._exit(9)
    print(begin, checkpoints.restore()["x"], os.path.dirname(os.environ["MPIJAX_MEMORY"]), flush=True)
"""


@marked
def test_the_launcher_keeps_it_until_the_job_ends(tmp_path):
    before = set(Path("/dev/shm").glob("mpijax-memory-*"))
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "mpijax", "run", "-n", "1", "--restart", "1", "-c", RESTARTED, tmp_path / "run"]
    ran = subprocess.run(words, env=env, capture_output=True, text=True, timeout=90)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "4 [7 7 7] /dev/shm\n"
    assert set(Path("/dev/shm").glob("mpijax-memory-*")) <= before
    assert not list((tmp_path / "run").glob("step*"))
