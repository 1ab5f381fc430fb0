"""What several processes of one test run use, and one of them computes.

`pytest -n` may give the tests of one file to several processes, each of which sets up the file's fixtures.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def shared_folder(folders: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all processes of this run know by its name."""
    base = folders.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


def computed_once(folder: Path, compute: Callable[[], Any]) -> Any:
    """What the first process of this run got from `compute`, as JSON has it. It is kept in the shared folder."""
    result = folder / "result.json"
    with (folder / "lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        if not result.exists():
            result.write_text(json.dumps(compute()))
    return json.loads(result.read_text())
