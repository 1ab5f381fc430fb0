"""Damaged bytes: each reader of what others may have written raises its own error, or reads them; it does not crash."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import readers
from launching import UNDER_LAUNCHER

TESTS = Path(__file__).parents[1]
pytestmark = pytest.mark.skipif(UNDER_LAUNCHER, reason="forks")


def wrong(reader: str, first: int, count: int) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "fuzz.readers", str(first), str(count), reader],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": f"{TESTS}:{TESTS.parent}"},
    )  # fmt: skip
    assert "'refused'" in done.stdout and "'read'" in done.stdout, done.stdout + done.stderr
    return done.stdout if done.returncode else ""


@pytest.mark.parametrize("reader", readers.READERS)
def test_damaged_bytes_are_refused_or_read(reader):
    assert wrong(reader, 0, 200) == ""


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("reader", readers.READERS)
def test_many_damaged_bytes_are_refused_or_read(reader):
    assert wrong(reader, 1_000_000, 25_000) == ""
