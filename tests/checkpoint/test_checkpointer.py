"""`Checkpointer`: what it keeps, when it saves, what happens when the disk is full or the process is killed."""

from __future__ import annotations

import datetime
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from launching import UNDER_LAUNCHER, marked, mpirun

import mpijax as jax
from mpijax import numpy as jnp
from mpijax.checkpoint import Checkpointer, CheckpointError, CheckpointWarning, restore, save
from mpijax.checkpointing import folders, metadata
from mpijax.distributed import launchers

ROOT = Path(__file__).parents[2]


def test_keeps_the_latest_and_saves_when_due(folder):
    with Checkpointer(folder, keep=2, every=3) as checkpoints:
        assert checkpoints.latest() is None
        began = [checkpoints.save(step, {"n": step}) for step in range(1, 11)]
        assert began == [step % 3 == 0 for step in range(1, 11)]
        assert checkpoints.save(10, {"n": 10}, force=True) and not checkpoints.save(10, {"n": 10}, force=True)
    assert checkpoints.steps() == [9, 10]
    assert checkpoints.restore() == {"n": 10} and checkpoints.restore(9) == {"n": 9}
    with pytest.raises(CheckpointError, match=r"no checkpoint of step 3. It has checkpoints of steps \[9, 10\]"):
        checkpoints.restore(3)
    with pytest.raises(ValueError, match="closed"):
        checkpoints.save(12, {})


def test_time_between_saves(folder):
    with Checkpointer(folder, every=datetime.timedelta(hours=1)) as checkpoints:
        assert not checkpoints.save(1, [1])
        checkpoints._places[0]._begun -= 3601
        assert checkpoints.save(2, [1]) and not checkpoints.save(3, [1])


def test_the_state_is_that_of_the_call(folder):
    """The program may reuse the memory at once."""
    x = np.ones(1 << 20)
    y = jnp.ones(1 << 20)
    step = jax.jit(lambda y: y + 1, donate_argnums=0)
    with Checkpointer(folder) as checkpoints:
        checkpoints.save(1, [x, y])
        x[:] = 7
        y = step(y)
    assert all(np.all(np.asarray(leaf) == 1) for leaf in checkpoints.restore())


def test_a_tree_that_cannot_be_saved_is_an_error(folder):
    with Checkpointer(folder) as checkpoints, pytest.raises(CheckpointError, match="is a builtins.object"):
        checkpoints.save(1, [object()])
    with pytest.raises(ValueError, match="keep=0"):
        Checkpointer(folder, keep=0)
    with pytest.raises(ValueError, match="every=0"):
        Checkpointer(folder, every=0)


def test_a_folder_that_cannot_be_made_is_a_warning(folder):
    folder.write_text("a file")
    with Checkpointer(folder) as checkpoints, pytest.warns(CheckpointWarning, match="step 1 was not written; no older one exists"):
        assert not checkpoints.save(1, [1])


FULL = """
import resource, sys, warnings
import numpy as np
from mpijax.checkpoint import Checkpointer, CheckpointWarning, CheckpointError, save
with Checkpointer(sys.argv[1]) as checkpoints:
    checkpoints.save(1, {"x": np.zeros(1000)})
    checkpoints.wait()
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        checkpoints.save(2, {"x": np.zeros(100_000)})
        checkpoints.wait()
    [warning] = caught
    text = str(warning.message)
    assert "step 2 was not written; the latest is of step 1: cannot write array x, file" in text, text
    assert "File too large" in text, text
    assert checkpoints.save(3, {"x": np.ones(1000)})
    try:
        save(sys.argv[1] + "/other", {"x": np.zeros(100_000)})
    except CheckpointError as error:
        assert "File too large" in str(error)
    else:
        raise AssertionError("no error")
assert checkpoints.steps() == [1, 3] and checkpoints.restore()["x"][5] == 1
"""


def test_a_full_disk_is_told_and_the_run_goes_on(folder):
    done = subprocess.run([sys.executable, "-c", FULL, folder], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert not list(folder.glob(".step*"))


KILLED = """
import itertools, sys
import numpy as np
from mpijax.checkpoint import Checkpointer, save
with Checkpointer(sys.argv[1] + "/run", keep=2) as checkpoints:
    begin = (checkpoints.latest() or 0) + 1
    for step in itertools.count(begin):
        state = {str(i): np.full(2000, step) for i in range(4)}
        checkpoints.save(step, state)
        save(sys.argv[1] + "/one", state)
        print(step, flush=True)
"""


@pytest.mark.slow  # by default the next ones stop it at chosen moments
def test_killed_at_random_moments(folder):
    """The latest whole checkpoint is there, and a new run goes on from it."""
    rng = random.Random(0)
    latest = 0
    for _ in range(4):
        process = subprocess.Popen([sys.executable, "-c", KILLED, folder], stdout=subprocess.PIPE, text=True)
        process.stdout.readline()  # it has begun
        time.sleep(rng.uniform(0, 0.3))
        process.kill()
        printed = [int(line) for line in process.stdout.read().split()]
        process.wait()
        found = Checkpointer(folder / "run")
        before, latest = latest, found.latest() or 0
        assert len(found.steps()) <= 3 and latest >= max([before, *(s - 1 for s in printed)])
        for step in found.steps():
            assert all(np.all(x == step) and len(x) == 2000 for x in found.restore(step).values())
        one = restore(folder / "one")
        assert len({int(x[i]) for x in one.values() for i in (0, -1)}) == 1


STOPS = ["begin", "first rename", "second rename", "remove"]


@pytest.mark.parametrize("stop", STOPS)
def test_killed_while_a_checkpoint_is_replaced(folder, monkeypatch, stop):
    """At each step of the replacement either the old or the new one is found."""
    save(folder, {"x": 1})

    class Killed(BaseException):
        pass

    def killed(*_, **__):
        raise Killed

    rename, removed = Path.rename, folders.remove

    def renames(allowed):
        count = iter(range(10))
        return lambda self, target: rename(self, target) if next(count) < allowed else killed()

    if stop == "begin":
        monkeypatch.setattr(folders, "commit", killed)
    elif stop == "remove":
        monkeypatch.setattr(folders, "remove", lambda f: killed() if (f / metadata.FILE).exists() else removed(f))
    else:
        monkeypatch.setattr(Path, "rename", renames(STOPS.index(stop) - 1))
    with pytest.raises(Killed):
        save(folder, {"x": 2})
    monkeypatch.undo()
    assert restore(folder) == {"x": 2 if stop == "remove" else 1}
    save(folder, {"x": 3})
    assert restore(folder) == {"x": 3} and [p.name for p in folder.parent.iterdir()] == [folder.name]


def test_what_a_killed_run_left_is_removed(folder):
    with Checkpointer(folder, keep=3) as checkpoints:
        checkpoints.save(1, {"x": 1})
        checkpoints.save(2, {"x": 2})
    (folder / "step-00000002").rename(folder / ".step-00000002.replaced")
    (folder / ".step-00000003.writing").mkdir()
    (folder / "notes").mkdir()
    with Checkpointer(folder) as checkpoints:
        assert checkpoints.steps() == [1, 2] and checkpoints.restore() == {"x": 2}
        checkpoints.save(4, {"x": 4})
    assert sorted(p.name for p in folder.iterdir()) == ["notes", *(f"step-0000000{i}" for i in (1, 2, 4))]


# ---------------------------------------------------------------- over ranks, in jobs of their own

STEPS = """
import os, signal, sys
import numpy as np
import mpijax as jax
from mpijax import numpy as jnp
from mpijax.checkpoint import Checkpointer
path, ends, kills = sys.argv[1], int(sys.argv[2]), sys.argv[3]
mesh = jax.sharding.Mesh(jax.devices(), "i")
rows = jax.NamedSharding(mesh, jax.P("i"))
step = jax.jit(lambda s: {"x": s["x"] * 1.5 + jax.random.normal(s["key"], s["x"].shape), "key": jax.random.split(s["key"])[0]})
state = {"x": jax.device_put(np.arange(16.0, dtype=np.float32), rows), "key": jax.random.key(0)}
with Checkpointer(path, every=2) as checkpoints:
    begin = checkpoints.latest() or 0
    if begin:
        state = checkpoints.restore(like=state)
        assert state["x"].sharding == rows
    for n in range(begin + 1, ends + 1):
        state = step(state)
        if f"{kills}" == f"{n}:{jax.process_index()}":
            os.kill(os.getpid(), signal.SIGUSR2)
        checkpoints.save(n, state)
        if checkpoints.should_stop():
            checkpoints.save(n, state, force=True)
            break
    checkpoints.save(n, state, force=True)
if jax.process_index() == 0:
    print(begin, n)
"""


def job(ranks, *arguments):
    command = [*mpirun(ranks), sys.executable, "-c", STEPS, *map(str, arguments)]
    env = {**launchers.outside(os.environ), "PYTHONPATH": os.environ.get("PYTHONPATH", str(ROOT))}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@marked
@pytest.mark.parametrize("ends", [{2: 5, 1: 12}, pytest.param({4: 5, 2: 8, 1: 12}, marks=pytest.mark.slow)], ids=str)
def test_stopped_by_a_signal_and_started_on_another_number_of_ranks(folder, ends):
    """ends: the last step of each job, by its number of ranks. The first job gets a signal."""
    assert not UNDER_LAUNCHER
    begin = 0
    for ranks, end in ends.items():
        signal = f"5:{ranks - 1}" if begin == 0 else ""
        assert job(ranks, folder, 12 if signal else end, signal) == [str(begin), str(end)]
        begin = end
    assert job(next(iter(ends)), folder.parent / "whole", 12, "") == ["0", "12"]
    found, whole = Checkpointer(folder), Checkpointer(folder.parent / "whole")
    assert found.steps()[-1] == whole.steps()[-1] == 12
    np.testing.assert_array_equal(found.restore()["x"], whole.restore()["x"])
