"""The check of the prose, and that nothing in the tree has a phrase that it looks for."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_SPEC = importlib.util.spec_from_file_location("prose", ROOT / "tools" / "prose.py")
prose = importlib.util.module_from_spec(_SPEC)
sys.modules["prose"] = prose
_SPEC.loader.exec_module(prose)


def test_no_phrase_that_readers_stumble_over():
    assert prose.findings(prose.files()) == []


@pytest.fixture
def found(tmp_path, monkeypatch):
    def find(name, text):
        monkeypatch.setattr(prose, "ROOT", tmp_path)
        (tmp_path / name).write_text(text)
        return prose.findings([tmp_path / name])

    return find


def test_prose_of_a_page(found):
    text = "A rank that\nis told of\nit.\n\n`in vain` is code.\n\n```\nin vain\n```\n\n    in vain\n\nNo row is in vain.\n"
    lines = [line.split(": ")[0] for line in found("page.md", text)]
    assert lines == ["page.md:2", "page.md:2", "page.md:13"] or sorted(set(lines)) == ["page.md:13", "page.md:2"]


def test_prose_of_a_module(found):
    text = '"""A key, of which there are two."""\nname = "in vain"\ndef f():\n    raise ValueError(f"{name} waits in vain")\n'
    assert [line.split(": ")[:2] for line in found("module.py", text)] == [
        ["module.py:1", "'of which there are'"], ["module.py:4", "'in vain'"],
    ]  # fmt: skip


def test_a_phrase_in_two_pieces_of_a_string(found):
    text = 'raise ValueError(\n    "it waits in "  # for ever\n    f"vain and is \\\ntold {of} it")\n'
    assert sorted(line.split(": ")[1] for line in found("module.py", text)) == ["'in vain'", "'is told'"]


def test_every_pair_of_the_style_guide_is_about_a_real_rule():
    page = (ROOT / "docs" / "style-guide.md").read_text()
    rows = [row.split("|") for row in page.splitlines() if row.startswith("| ")][1:]
    assert len(rows) >= 10 and len(prose.RULES) >= 20
    assert any(pattern.search(row[1]) for row in rows for pattern, _ in prose._PATTERNS)
    assert not any(pattern.search(row[2]) for row in rows for pattern, _ in prose._PATTERNS)


def test_the_rules_are_shown():
    ran = subprocess.run([sys.executable, ROOT / "tools" / "prose.py", "--rules"], capture_output=True, text=True, check=True)
    assert ran.stdout.count("->") == len(prose.RULES)
