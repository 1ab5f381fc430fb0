"""Threads that trace, compile, call, transform, free and delete at once (`threads_job`), which may crash: in a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

JOB = Path(__file__).with_name("threads_job.py")


@pytest.mark.parametrize("cached", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["compiled before", "nothing compiled before"])
def test_threads_at_once(cached, tmp_path):
    cache = {} if cached else {"MPIJAX_CACHE_DIR": str(tmp_path)}
    job = subprocess.run(
        [sys.executable, "-X", "faulthandler", JOB], env=os.environ | cache, capture_output=True, text=True, timeout=300
    )
    assert job.returncode == 0 and job.stdout.endswith("done\n"), f"status {job.returncode}\n{job.stdout}\n{job.stderr}"
