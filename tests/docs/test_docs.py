"""The code in the documents runs, and prints what they say. Each runs in a process of its own."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    "README.md",
    "docs/how-it-works.md",
    "docs/add-a-primitive.md",
    "docs/communication.md",
    "docs/custom-operations.md",
    "docs/debugging.md",
    "docs/explicit-sharding.md",
    "docs/transformations.md",
]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_document_runs_and_prints_what_it_says(name):
    command = [sys.executable, "tests/docs/document.py", name]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, f"{ran.stderr}\nTo accept: python tests/docs/document.py --renew {name}"


def test_every_dependency_is_explained():
    explained = (ROOT / "docs" / "dependencies.md").read_text()
    setup = (ROOT / "setup.py").read_text()
    listed = setup[setup.index("DEPENDENCIES = [") : setup.index("]", setup.index("DEPENDENCIES = ["))]
    names = [line.strip().strip('",').split(">=")[0] for line in listed.splitlines()[1:] if line.strip()]
    names = [name.split('"')[0] for name in names]
    assert [name for name in names if f"**{name}**" not in explained] == []


def test_links_lead_somewhere():
    import re

    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
