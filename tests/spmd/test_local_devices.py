"""Several devices in one process: a program of its own, because devices are counted once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def run(program: list[str], **settings: str) -> subprocess.CompletedProcess:
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "MPIJAX_NUM_LOCAL_DEVICES")}
    return subprocess.run(
        [sys.executable, *program], env={**kept, **settings}, capture_output=True, text=True, timeout=300, check=False
    )


@pytest.mark.parametrize("options", [pytest.param([], id="quick"), pytest.param(["--slow", "-m", "slow"], id="slow", marks=pytest.mark.slow)])
def test_programs_and_shardings_are_those_of_jax(options):
    """All files in one process: another would load JAX and mpijax again."""
    files = [str(HERE / f"local_{name}.py") for name in ("devices", "bodies", "shardings", "explicit", "sums", "placements", "partly_manual")]
    program = ["-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", *options, *files]
    done = run(program, XLA_FLAGS="--xla_force_host_platform_device_count=4")
    assert done.returncode == 0, done.stdout + done.stderr


COUNT = "import mpijax as jax; {}; print(jax.local_device_count(), len(jax.devices()))"


@pytest.mark.parametrize(
    ("before", "settings", "expected"),
    [
        ("pass", {}, "1 1"),
        ("pass", {"MPIJAX_NUM_LOCAL_DEVICES": "3", "XLA_FLAGS": "--xla_force_host_platform_device_count=5"}, "3 3"),
        ("jax.config.update('jax_num_cpu_devices', 2)", {"MPIJAX_NUM_LOCAL_DEVICES": "3"}, "2 2"),
    ],
)
def test_how_many(before, settings, expected):
    done = run(["-c", COUNT.format(before)], **settings)
    assert done.stdout.strip() == expected, done.stderr


def test_a_count_that_is_none():
    done = run(["-c", COUNT.format("pass")], MPIJAX_NUM_LOCAL_DEVICES="two")
    assert done.returncode and "MPIJAX_NUM_LOCAL_DEVICES must be the number of devices" in done.stderr
