"""Folders of commands: removed at the end, and by the next command if the one that made them was killed."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mpijax.cli.scratch import scratch

KILLED = """
import os, signal
from mpijax.cli.scratch import scratch
with scratch("tried") as folder:
    (folder / "content").mkdir()
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_what_a_killed_command_left_is_removed(temporary):
    ran = subprocess.run([sys.executable, "-c", KILLED], env=os.environ | {"TMPDIR": str(temporary)}, capture_output=True, text=True)
    left = Path(ran.stdout.strip())
    assert left.parent == temporary and (left / "content").is_dir()
    with scratch("tried"):
        assert left.exists()  # it may be new
    os.utime(left, (1e9, 1e9))
    with scratch("other"):
        assert left.exists()
    with scratch("tried") as folder:
        assert not left.exists()
        os.utime(folder, (1e9, 1e9))
        with scratch("tried"):
            assert folder.exists()  # in use
    assert list(temporary.iterdir()) == []


def test_nothing_else_is_removed(temporary):
    theirs = temporary / "mpijax-tried-folder"
    theirs.mkdir()
    (temporary / "mpijax-tried-file").write_text("")
    (temporary / "mpijax-tried-link").symlink_to(theirs)
    for path in temporary.iterdir():
        os.utime(path, (1e9, 1e9), follow_symlinks=False)
    with scratch("tried"):
        pass
    assert len(list(temporary.iterdir())) == 3 and theirs.is_dir()
