"""Damaged bytes: each reader of what others may have written raises its own error, or reads them; it does not crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import readers
from launching import PATHS, UNDER_LAUNCHER

TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(UNDER_LAUNCHER, reason="forks")


def wrong(first: int, count: int, *chosen: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "fuzz.readers", str(first), str(count), *chosen],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": f"{TESTS}:{PATHS}"},
    )  # fmt: skip
    assert done.stdout.count("'refused'") == done.stdout.count("'read'") == len(chosen), done.stdout + done.stderr
    return done.stdout if done.returncode else ""


def test_damaged_bytes_are_refused_or_read():
    assert wrong(0, 200, *readers.READERS) == ""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("reader", readers.READERS)
def test_many_damaged_bytes_are_refused_or_read(reader):
    assert wrong(1_000_000, 25_000, reader) == ""
