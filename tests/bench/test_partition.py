"""The table of programs on global arrays: bytes of XLA's collectives, the rows of jobs that fail, and what is noted."""

import json
import sys
from pathlib import Path

import pytest

from bench.partition import hlo, runner, table
from bench.partition.program import PROGRAMS, columns, grid, load_programs, program, rows, whole
from bench.systems import System

MODULE = """HloModule jit_f, num_partitions=4

%body (param: (s32[], f32[16,64])) -> (s32[], f32[16,64]) {
  %all-gather = f32[64,64]{1,0} all-gather(%x), replica_groups=mesh['axis_0'=4,'axis_1'=1] {'axis_0'}, dimensions={0}
  ROOT %tuple = (s32[], f32[16,64]{1,0}) tuple(%a, %b)
}

%condition (param.1: (s32[], f32[16,64])) -> pred[] {
  ROOT %compare = pred[] compare(%a, %b)
}

%small (p: f32[4]) -> f32[4] {
  ROOT %all-reduce.9 = f32[4]{0} all-reduce(%p), replica_groups={{0,1},{2,3}}, to_apply=%sum
}

%large (p: f32[8]) -> f32[8] {
  ROOT %all-reduce.8 = f32[8]{0} all-reduce(%p), replica_groups=[2,2]<=[2,2]T(1,0), to_apply=%sum
}

ENTRY %main (param.2: f32[16,64]) -> f32[16,64] {
  %while.1 = (s32[], f32[16,64]{1,0}) while(%t), condition=%condition, body=%body, backend_config=TURNS
  %all-to-all.2 = (c64[1,8]{1,0}, c64[1,8]{1,0}) all-to-all(%a, %b), replica_groups={{0,1},{2,3}}
  %collective-permute = bf16[8]{0} collective-permute(%c), channel_id=1, source_target_pairs={{1,0},{2,1},{3,3}}
  %reduce-scatter = pred[3]{0} reduce-scatter(%d), replica_groups={}, dimensions={0}, to_apply=%sum
  %conditional = f32[8]{0} conditional(%p, %q, %r), branch_computations={%small, %large}
  ROOT %copy = f32[16,64]{1,0} copy(%e)
}
"""


def test_bytes_of_collectives():
    """Loops count their iterations, branches the dearest one, permutations what leaves a device."""
    found = hlo.traffic(MODULE.replace("TURNS", '{"known_trip_count":{"n":"10"}}'), 4)
    gathers, turned, scattered, reduced = 10 * 3 * 16 * 64 * 4, 2 * 8 * 8 / 2, 3 * 3, 2 * 32 / 2
    same = gathers + turned + scattered + reduced
    assert found.sent == [same, same + 16, same + 16, same]
    assert found.gathered == 64 * 64 * 4 and found.known
    once = hlo.traffic(MODULE.replace("TURNS", "{}"), 4)
    assert once.sent[0] == same - 9 * 3 * 16 * 64 * 4 and not once.known


def test_programs_are_drawn_the_same_each_time_and_divide_by_two_and_four():
    programs = load_programs()
    assert len(programs) > 80 and {p.name for p in load_programs(["stencil"])} == {
        p.name for p in programs if "stencil" in p.name
    }
    for p in programs:
        sizes = p.mesh_shape(4)
        assert all(n % sizes[a] == 0 for x in p.arrays for n, a in zip(x.shape, x.spec, strict=False) if a), p.name
    first = programs[0]
    assert all((a == b).all() for a, b in zip(first.draw(), first.draw(), strict=True))


def test_meshes():
    assert PROGRAMS or load_programs()
    p = program("test/mesh", grid(8, 8), rows(8), columns(2, 8), whole(3))(lambda *x: x)
    try:
        assert PROGRAMS["test/mesh"].mesh_shape(4) == {"i": 2, "j": 2}
        assert PROGRAMS["test/mesh"].mesh_shape(6) == {"i": 3, "j": 2}
        assert PROGRAMS["test/mesh"].largest == 256
        with pytest.raises(ValueError, match="two programs are called 'test/mesh'"):
            program("test/mesh")(p)
    finally:
        del PROGRAMS["test/mesh"]


JOB = """
import json, sys, time
output, _, _, *names = sys.argv[1:]
with open(output, "a", buffering=1) as lines:
    for name in names:
        if name == "dies":
            raise MemoryError("too much")
        if name == "hangs":
            print("RuntimeError: waiting", flush=True)
            time.sleep(60)
        lines.write(json.dumps({"name": name, "sent": 1}) + "\\n")
"""


def test_another_job_goes_on_after_one_that_dies_or_hangs(monkeypatch, tmp_path):
    monkeypatch.setattr(runner, "command", lambda system, devices: [sys.executable, "-c", JOB])
    programs = [runner.Program(name, None, ()) for name in ("a", "dies", "b", "hangs", "c")]
    found = dict(runner.run(System("jax", Path(sys.executable)), programs, 4, tmp_path, 2, lambda text: None))
    assert list(found) == ["a", "dies", "b", "hangs", "c"]
    assert found["a"] == found["b"] == found["c"] == {"sent": 1}
    assert found["dies"] == {"error": "MemoryError: too much"}
    assert found["hangs"] == {"error": "no result after 2 s: RuntimeError: waiting"}


def record(name="p", least=None, **ours):
    theirs = {"sent": 100.0, "held": 1000, "gathered": 0, "known": True, "whole": [False], "wrong": "", "seconds": 1e-3}
    return {"name": name, "largest": 4096, "least": least, "jax": theirs, "mpijax": theirs | ours}


def test_notes_and_verdicts():
    same, more, gathering = record(), record(sent=106.0), record(gathered=4096, held=2000, whole=[True])
    assert not table.exceeds(same, "sent") and table.exceeds(more, "sent")
    assert table.exceeds(record(least=50), "sent") and not table.exceeds(record(least=90), "sent")
    assert table.notes(same) == "" and table.notes(gathering) == "mpijax gathers, whole result"
    assert table.notes(record(wrong="1 of 2 elements are wrong")) == "mpijax WRONG: 1 of 2 elements are wrong"
    failed = record() | {"mpijax": {"error": "ValueError: no"}}
    assert table.notes(failed) == "mpijax: ValueError: no"
    text = table.text_table([same, more, gathering, failed])
    assert "1.06!" in text and "2.00!" in text and len(text.splitlines()) == 5
    assert table.summary([same, more, gathering, failed])[0] == "3 of 4 right, 1 with errors."
    nothing = record()
    nothing["jax"]["sent"] = 0
    assert table.ratio(nothing, "sent") == float("inf")


def test_what_is_kept_of_jax_depends_on_the_program(monkeypatch, tmp_path):
    [chain, *_] = load_programs(["elementwise/chain"])
    calls = []

    def run(system, programs, *rest):
        calls.append([p.name for p in programs])
        return [(p.name, {"sent": 0}) for p in programs]

    monkeypatch.setattr(runner, "run", run)
    monkeypatch.setattr(System, "missing", lambda self, module: None)
    for _ in range(2):
        found, folder = runner.jax_rows([chain], 4, tmp_path, 1, None)
        assert found[chain.name]["sent"] == 0
    assert calls == [[chain.name], []]
    kept = json.loads((folder / "rows.json").read_text())
    kept[chain.name]["state"] = "old"
    (folder / "rows.json").write_text(json.dumps(kept))
    runner.jax_rows([chain], 4, tmp_path, 1, None)
    assert calls[-1] == [chain.name]
