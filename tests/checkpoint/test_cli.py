"""``mpijax checkpoint ls``, ``show`` and ``diff``."""

import datetime
import json

import numpy as np
import pytest

import mpijax as jax
from mpijax import numpy as jnp
from mpijax.checkpoint import Checkpointer, save
from mpijax.checkpointing import chunks
from mpijax.cli import main


@pytest.fixture
def run(folder, monkeypatch):
    monkeypatch.setattr(chunks.chunk_shape, "__defaults__", (64,))
    with Checkpointer(folder) as checkpoints:
        for step in (1, 2):
            w = jnp.arange(60.0).reshape(3, 20).at[1, 2].add(step / 4)
            checkpoints.save(step, {"w": w, "key": jax.random.key(step), "step": step, "b": np.ones(2)})
    return folder


def test_ls(run, capsys):
    assert main(["checkpoint", "ls", str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["step-00000001", "step-00000002"]
    assert lines[0].endswith("264 B  4 leaves")
    assert main(["checkpoint", "ls", str(run / "step-00000001")]) == 0
    assert capsys.readouterr().out.splitlines() == lines[:1]


def test_show(run, capsys):
    assert main(["checkpoint", "show", str(run)]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == f"{run}/step-00000002: 4 leaves, 264 B"
    assert [line.split() for line in lines] == [
        ["b", "float64[2]", "16", "B"], ["key", "key<threefry2x32>[]", "8", "B"], ["step", "2"],
        ["w", "float32[3,20]", "240", "B"],
    ]  # fmt: skip


def test_diff(run, capsys):
    a, b = (str(run / f"step-0000000{i}") for i in (1, 2))
    assert main(["checkpoint", "diff", a, a]) == 0
    assert capsys.readouterr().out == "0 of 4 leaves differ\n"
    assert main(["checkpoint", "diff", a, b]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "! key  1 of 2 elements differ", "! step  1 -> 2", "! w  1 of 60 elements differ, by at most 0.25",
        "3 of 4 leaves differ",
    ]  # fmt: skip
    other = str(run / "other")
    save(other, {"w": jnp.ones((3, 20), jnp.bfloat16), "c": True, "b": np.array([1.0, np.nan])})
    assert main(["checkpoint", "diff", str(run), other]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "! b  1 of 2 elements differ", "- key  key<threefry2x32>[]", "- step  2",
        "! w  float32[3,20] -> bfloat16[3,20]", "+ c  True", "5 of 5 leaves differ",
    ]  # fmt: skip


def test_json(run, capsys):
    def told(*words):
        status = main(["checkpoint", *map(str, words), "--json"])
        return status, json.loads(capsys.readouterr().out)

    status, listed = told("ls", run)
    assert status == 0 and [(r["name"], r["bytes"], r["leaves"]) for r in listed] == [
        ("step-00000001", 264, 4), ("step-00000002", 264, 4)]  # fmt: skip
    assert datetime.datetime.fromisoformat(listed[0]["written"]).year > 2000
    status, shown = told("show", run)
    assert (status, shown["bytes"], shown["folder"]) == (0, 264, f"{run}/step-00000002")
    assert shown["leaves"][2:] == [{"path": "step", "value": "2"}, {"path": "w", "value": "float32[3,20]", "bytes": 240}]
    status, found = told("diff", run / "step-00000001", run / "step-00000002")
    assert status == 1 and found["leaves"] == 4
    assert [(d["sign"], d["path"]) for d in found["differences"]] == [("!", "key"), ("!", "step"), ("!", "w")]
    assert told("diff", run, run) == (0, {"leaves": 4, "differences": []})


def test_what_cannot_be_read(folder, capsys):
    assert main(["checkpoint", "show", str(folder)]) == 2
    assert "is not a checkpoint" in capsys.readouterr().err
