"""The code in the documents runs, and prints what they say. Each runs in a process of its own."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from launching import PATHS, marked
from once import computed_once, shared_folder

from mpijax.cli.launcher import clean_environment

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "docs/how-it-works.md",
    "docs/add-a-primitive.md",
    "docs/checkpoints.md",
    "docs/communication.md",
    "docs/custom-operations.md",
    "docs/debugging.md",
    "docs/explicit-sharding.md",
    "docs/faq.md",
    "docs/from-jax.md",
    "docs/from-mpi4jax.md",
    "docs/get-started.md",
    "docs/global-arrays.md",
    "docs/memory.md",
    "docs/predict.md",
    "docs/profiling.md",
    "docs/pallas.md",
    "docs/security.md",
    "docs/sharp-bits.md",
    "docs/transformations.md",
]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """By document: the exit status, and what it said."""
    command = [sys.executable, "tests/docs/document.py", "--each", *DOCUMENTS]

    def run():
        return json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)

    return computed_once(shared_folder(tmp_path_factory, "documents"), run)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_runs_and_prints_what_it_says(outcomes, name):
    status, said = outcomes[name]
    assert status == 0, f"{said}\nTo accept: python tests/docs/document.py --renew {name}"


@marked
def test_the_first_program_gives_the_same_on_two_ranks(tmp_path):
    """As README.md starts it: `mpijax run -n 4 mean.py`."""
    text = (ROOT / "README.md").read_text()
    program, printed = re.search(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", text, re.MULTILINE | re.DOTALL).groups()
    (tmp_path / "mean.py").write_text(program)
    environment = clean_environment() | {"PYTHONPATH": PATHS}
    command = [sys.executable, "-m", "mpijax", "run", "-n", "2", "mean.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert ran.stdout == f"[0] {printed}", ran.stderr


@marked
@pytest.mark.slow  # by default the page runs on one rank
@pytest.mark.parametrize("ranks", [2, 3])  # 3: uneven parts
def test_global_arrays_are_the_same_on_several_ranks(ranks, tmp_path):
    text = (ROOT / "docs" / "global-arrays.md").read_text()
    program, printed = ("".join(re.findall(rf"^```{kind}\n(.*?)^```", text, re.M | re.S)) for kind in ("python", "text"))
    (tmp_path / "page.py").write_text(program)
    environment = clean_environment() | {"PYTHONPATH": PATHS}
    command = [sys.executable, "-m", "mpijax", "run", "-n", str(ranks), "page.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=100)
    assert [line.removeprefix("[0] ") for line in ran.stdout.splitlines()] == printed.splitlines(), ran.stderr


def test_every_dependency_is_explained():
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    setup = (ROOT / "setup.py").read_text()
    listed = setup[setup.index("DEPENDENCIES = [") : setup.index("]", setup.index("DEPENDENCIES = ["))]
    names = [line.strip().strip('",').split(">=")[0] for line in listed.splitlines()[1:] if line.strip()]
    names = [name.split('"')[0] for name in names]
    assert [name for name in names if f"**{name}**" not in explained] == []


def test_links_lead_somewhere():
    for document in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "packaging" / "README.md"]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            if target != "api/index.md":  # which `make docs` writes
                assert (document.parent / target).exists(), f"{document.name} links to {target}"
