"""The commands in docs/launching.md run, and print what it says; `...` there stands for anything."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import PATHS, starts_jobs

from mpijax.cli.launcher import clean_environment

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs" / "launching.md").read_text()
COMMANDS = [
    re.match(r"\$ (.*)\n((?s:.*))", part).groups()
    for block in re.findall(r"^```console\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    for part in re.split(r"^(?=\$ )", block, flags=re.MULTILINE)
    if part
]

pytestmark = starts_jobs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """With the document's files, and the command on the PATH."""
    folder = tmp_path_factory.mktemp("launching")
    for name, body in re.findall(r"^```python\n# (\S+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL):
        (folder / name).write_text(body)
    (folder / "bin").mkdir()
    for name, what in {"mpijax": f"{sys.executable} -m mpijax", "python": sys.executable}.items():
        command = folder / "bin" / name
        command.write_text(f'#!/bin/sh\nexec {what} "$@"\n')
        command.chmod(0o755)
    return folder


# tests/cli/test_cli.py runs these as well, and looks at more of what they do.
SLOW = ("mpijax doctor", "mpijax bench", "cd heat && mpijax run")
CASES = [
    pytest.param(command, expected, marks=pytest.mark.slow if command.startswith(SLOW) else (), id=command[:40])
    for command, expected in COMMANDS
]


@pytest.mark.parametrize(("command", "expected"), CASES)
def test_command_prints_what_the_document_says(command, expected, folder):
    path = os.pathsep.join([str(folder / "bin"), os.environ["PATH"]])
    env = clean_environment() | {"PATH": path, "PYTHONPATH": PATHS}
    ran = subprocess.run(["bash", "-c", f"exec 2>&1; {command}"], cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    pattern = re.escape(expected.strip()).replace(r"\.\.\.", ".*")
    assert re.fullmatch(pattern, ran.stdout.strip(), re.DOTALL), ran.stdout
    assert ran.returncode == 0
