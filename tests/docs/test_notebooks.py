"""The cells in docs/notebooks.md run in a kernel, and show what it says; `...` there stands for anything."""

import re
from pathlib import Path

import pytest
from kernel import Notebook, text
from launching import starts_jobs

TEXT = (Path(__file__).resolve().parents[2] / "docs" / "notebooks.md").read_text()
CELL = re.compile(r"^```ipython\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)

pytestmark = starts_jobs


def shown(outputs):
    return "\n".join([text(outputs).strip(), *text(outputs, "value"), text(outputs, "error")]).strip()


def test_the_page_shows_what_the_cells_do():
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    with Notebook() as notebook:
        for source, expected in CELL.findall(TEXT):
            found, expected = shown(notebook.run(source.strip())), expected.strip()
            if "[0] rank 0" in expected:  # the ranks print in any order
                assert sorted(found.splitlines()) == sorted(expected.splitlines())
            else:
                assert re.fullmatch(re.escape(expected).replace(r"\.\.\.", ".*"), found, re.DOTALL), f"{source}\n{found}"
