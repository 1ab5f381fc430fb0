"""What type checkers see: stubs of the packages that load their names late, and a program under mypy --strict."""

import subprocess
import sys
from pathlib import Path

import pytest

import mpijax

ROOT = Path(__file__).parents[1]


def run(*command):
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True)


def test_stubs_are_up_to_date():
    ran = run("tools/make_stubs.py", "--check")
    assert ran.returncode == 0, ran.stderr


def test_the_package_says_that_it_has_types():
    assert (Path(mpijax.__file__).parent / "py.typed").exists()


@pytest.mark.slow  # by default the type checker reads it
def test_the_program_runs():
    ran = run("tests/typed_program.py")
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_a_program_is_accepted_strictly():
    pytest.importorskip("mypy")
    ran = run(
        "-m", "mypy", "--strict", "--config-file=", "--follow-imports=silent", "--ignore-missing-imports",
        "--cache-dir=build/mypy", "tests/typed_program.py",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout
