"""The benchmark's own logic: targets, selection, the table, and what happens where a peer is missing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from bench import front, report
from bench.case import ROOT, Case, Target, load_cases
from bench.runner import last_words, measure
from bench.systems import System


@pytest.mark.parametrize(
    "target, ours, theirs, c, met",
    [
        (Target(ratio=2), 1.0, 2.5, None, True),
        (Target(ratio=2), 1.0, 1.5, None, False),
        (Target(ratio=2), 1.0, None, None, None),
        (Target(seconds=3e-6), 2e-6, None, None, True),
        (Target(c=1.1), 1.2, None, 1.0, False),
        (Target(c=1.1), 1.2, None, None, None),
        (Target(), 1.0, 1.0, 1.0, None),
    ],
)
def test_target_is_met_missed_or_unknown(target, ours, theirs, c, met):
    assert target.met(ours, theirs, c) is met


def test_plain_words_select_anywhere_and_patterns_from_the_start():
    names = [case.name for case in load_cases()]
    assert len(names) == len(set(names)) > 40
    assert {case.name for case in load_cases(["softmax"])} == {n for n in names if "softmax" in n}
    assert {case.name for case in load_cases(["f32*"])} == {n for n in names if n.startswith("f32")}
    assert load_cases(["nothing of the kind"]) == []


def result(value):
    return {"value": value, "all": [value], "peak": 1e8, "growth": 0}


def test_table_shows_amounts_ratio_verdict_and_reasons():
    common = {"unit": "seconds", "target": "× 2", "c": 1e-6}
    good = {"case": "a", **common, "jax": result(4e-3), "mpijax": result(1e-3), "ratio": 4.0, "met": True}
    lost = {"error": "skipped: python has no module jax"}
    missing = {"case": "b", **common, "jax": lost, "mpijax": result(2e-6), "ratio": None, "met": None}
    table = report.text_table([good, missing])
    assert [line.split()[0] for line in table.splitlines()] == ["case", "a", "b"]
    assert "4 ms" in table and "4.00" in table and "met" in table and "skipped" in table
    sentences = " ".join(report.summary([good, missing]))
    assert "1 of 1 targets met" in sentences and "no module jax" in sentences
    assert "| a | 4 ms | 1 ms | 4.00 |" in report.markdown({"machine": "m", "rows": [good, missing]})


@pytest.mark.parametrize("rest", [f"{report.START}\nold\n{report.END}\nafter\n", ""])
def test_the_table_goes_between_its_markers_or_to_the_end(rest, tmp_path, monkeypatch):
    page = tmp_path / "docs" / "benchmarks.md"
    page.parent.mkdir()
    page.write_text(f"before\n{rest}")
    monkeypatch.setattr(report, "ROOT", tmp_path)
    report.write_page({"machine": "this machine", "rows": []})
    text = page.read_text()
    assert text.startswith("before\n") and text.count("this machine") == 1 and "old" not in text
    assert ("after" in text) == bool(rest)
    report.write_page({"machine": "another machine", "rows": []})
    assert page.read_text() == text.replace("this machine", "another machine")


def test_the_front_page_shows_rows_of_the_recorded_table(tmp_path, monkeypatch):
    """`python -m bench --front` changes neither README.md nor its picture."""
    pytest.importorskip("matplotlib")
    for name in ("README.md", "docs/benchmarks.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((ROOT / name).read_text())
    monkeypatch.setattr(front, "ROOT", tmp_path)
    front.write()
    assert (tmp_path / "README.md").read_text() == (ROOT / "README.md").read_text()
    drawn = (tmp_path / front.PICTURE).read_text()
    figures = re.compile(r"[\d.]+ ×|>[a-z][^<]+<")
    assert figures.findall(drawn) == figures.findall((ROOT / front.PICTURE).read_text()) and "allreduce" in drawn


def test_missing_peer_is_a_skip_with_the_reason(tmp_path, monkeypatch):
    monkeypatch.setattr(System, "missing", lambda self, module: f"no module {module}")
    case = Case("nothing", lambda backend: None, Target())
    taken = measure(case, System("jax", Path(sys.executable)), tmp_path, 0.1)
    assert taken == {"error": "skipped: no module jax"}


def test_last_words_of_a_failed_process_are_its_exception():
    output = "Traceback ...\n  File x\nmpijax.errors.ShapeError: shapes (3,) and (4,)\nrank 1 left\n"
    assert last_words(output) == "mpijax.errors.ShapeError: shapes (3,) and (4,)"


def test_command_line_lists_the_cases():
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--list"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "ranks/allreduce 4 B" in done.stdout.splitlines()
