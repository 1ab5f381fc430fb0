"""The resume example: stopped and started again, its losses are those of a run that nobody disturbed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
from examples.programs import load_example, path_of
from launching import marked, mpirun

from mpijax.distributed import launchers, preemption

pytest.importorskip("tensorstore", reason="needs mpijax[checkpoint]")


def run(ranks, folder, steps=40):
    """(exit status, output) of a run on so many ranks."""
    command = [*mpirun(ranks), sys.executable, str(path_of("resume")), str(folder), "--steps", str(steps), "--every", "10"]
    done = subprocess.run(command, env=launchers.outside(os.environ), capture_output=True, text=True, timeout=200)
    return done.returncode, done.stdout + done.stderr


def losses(output):
    return [float.fromhex(line.split()[3]) for line in output.splitlines() if line.startswith("step")]


@marked
@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.slow  # by default the next one stops and starts it, and tests/checkpoint changes the number of ranks
def test_the_losses_are_those_of_an_undisturbed_run(tmp_path, ranks):
    """20 steps on two ranks, then the rest: on two the same bits, on four and on one the same numbers."""
    resume = load_example("resume")
    code, output = run(2, tmp_path / "whole")
    assert code == 0 and "finished" in output, output
    whole = losses(output)
    assert len(whole) == 10 and whole[-1] < whole[0]
    for step in (20, 30, 40):
        assert (tmp_path / "whole" / f"step-{step:08d}").is_dir()
    folder = tmp_path / "again"
    folder.mkdir()
    shutil.copytree(tmp_path / "whole" / "step-00000020", folder / "step-00000020")
    code, output = run(ranks, folder)
    assert code == 0, output
    if ranks == 2:
        assert losses(output) == whole
    np.testing.assert_allclose(losses(output), whole, rtol=1e-4)
    folder = tmp_path / "here"
    folder.mkdir()
    shutil.copytree(tmp_path / "whole" / "step-00000020", folder / "step-00000020")
    final = resume.train(folder, 40, 10)
    np.testing.assert_allclose(np.asarray(final["losses"])[::4], whole, rtol=1e-4)


def test_a_signal_stops_it_and_the_next_run_goes_on(tmp_path):
    resume = load_example("resume")

    def stop(step):
        if step == 7:
            os.kill(os.getpid(), signal.SIGUSR2)

    previous = signal.getsignal(signal.SIGUSR2)
    try:
        preemption._install()
        stopped = resume.train(tmp_path / "a", 15, 10, stop)
        assert int(stopped["step"]) == 7
    finally:
        preemption._asked.clear()
        signal.signal(signal.SIGUSR2, previous)
        preemption._installed = False
    again = resume.train(tmp_path / "a", 15, 10)
    whole = resume.train(tmp_path / "b", 15, 10)
    assert int(again["step"]) == 15
    np.testing.assert_array_equal(again["losses"], whole["losses"])
