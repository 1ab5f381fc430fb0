"""The scripts in launch/: read by shellcheck, and run where this machine can stand for the cluster."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import PATHS, check_script, starts_jobs

from mpijax.cli import submit
from mpijax.cli.launcher import clean_environment

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted([*ROOT.glob("launch/*.sh"), *ROOT.glob("tools/*.sh")])
PROGRAM = """
import sys
import numpy as np
import mpijax as jax
from mpijax import mpi
total = int(mpi.allreduce(np.int32(jax.process_index() + 1), "SUM"))
sys.stdout.write(f"rank {jax.process_index()}: {total} {sys.argv[1:]}\\n")
"""
# What a scheduler says of a job of two ranks on this machine.
JOBS = {
    "hosts": ({"CORES": "1"}, ["{folder}/hosts", "2", "program.py", "a b"]),
    "pbs": ({"PBS_NODEFILE": "{folder}/ranks", "PBS_O_WORKDIR": "{folder}", "NCPUS_PER_RANK": "1"}, []),
    "lsf": ({"LSB_MCPU_HOSTS": "localhost 2", "LSB_DJOB_NUMPROC": "2", "LS_SUBCWD": "{folder}"}, []),
}


@pytest.mark.parametrize("script", SCRIPTS, ids=[s.name for s in SCRIPTS])
def test_shellcheck(script):
    check_script(script)
    assert script.stat().st_mode & 0o100 or script.parent.name == "tools"


class TestJobs:
    pytestmark = starts_jobs

    def run(self, script, name, folder):
        settings, words = JOBS[name]
        (folder / "program.py").write_text(PROGRAM)
        (folder / "hosts").write_text("localhost\n")
        (folder / "ranks").write_text("localhost\nlocalhost\n")
        env = clean_environment() | {"MPIJAX_VENV": sys.prefix, "PYTHONPATH": PATHS}
        if os.geteuid() == 0:
            env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if name != "hosts":
            env |= {"PROGRAM": "program.py", "ARGUMENTS": "a b"}
        env |= {key: value.format(folder=folder) for key, value in settings.items()}
        command = ["bash", str(script), *(word.format(folder=folder) for word in words)]
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "WARNING" not in done.stderr
        return sorted(re.findall(r"^rank .*$", done.stdout, re.MULTILINE))

    @pytest.mark.parametrize("name", ["hosts", pytest.param("pbs", marks=pytest.mark.slow)])
    def test_as_they_are(self, name, tmp_path):
        arguments = ["a b"] if name == "hosts" else ["a", "b"]
        expected = [f"rank {rank}: 3 {arguments}" for rank in range(2)]
        assert self.run(ROOT / f"launch/{name}.sh", name, tmp_path) == expected

    @pytest.mark.parametrize("name", ["pbs", pytest.param("lsf", marks=pytest.mark.slow)])
    def test_as_submit_writes_them(self, name, tmp_path):
        script = tmp_path / "script.sh"
        script.write_text(submit.render(name, submit.Request(1, 2, 1, 30, ["program.py", "a b"])))
        assert self.run(script, name, tmp_path) == ["rank 0: 3 ['a b']", "rank 1: 3 ['a b']"]
