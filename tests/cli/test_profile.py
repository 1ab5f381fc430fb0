"""``mpijax profile``: seconds, bytes and operations of each line, over all ranks."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from launching import PATHS, UNDER_LAUNCHER, marked

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.cli import launcher, profile
from mpijax.cli.profiled import traffic
from mpijax.core.base.config import optimization_level, profile_kernels
from mpijax.runtime.reports import step_notes

PROGRAM = """
import sys, time
import numpy as np
import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax, mpi

def inner(x):
    time.sleep(0.2)
    return x

@jax.jit
def step(x):
    y = x @ x
    z = jnp.tanh(y).sum(0)
    z = jax.pure_callback(inner, z, z)
    if len(sys.argv) > 1:
        z = mpi.allreduce(z, op="SUM")
    return z

@jax.jit
def loop(x):
    return lax.fori_loop(0, 1000, lambda i, c: jnp.sin(c) + i, x)

x = jnp.ones((64, 64))
for _ in range(3):
    print("result", step(x)[0])
loop(jnp.ones(3))
sys.exit(3)
"""
EXCHANGE = 'z = mpi.allreduce(z, op="SUM")'
alone = pytest.mark.skipif(UNDER_LAUNCHER, reason="starts a program of its own")


def lines_of(text):
    """{part of the source: "line (function)"}"""
    return {line.strip(): number for number, line in enumerate(text.splitlines(), 1)}


def run(*words):
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS}
    command = [sys.executable, "-m", "mpijax", "profile", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=120)


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def row_of(found, program, source):
    number = lines_of(PROGRAM)[source]
    [row] = [r for r in profile.by_line(found) if r["line"].startswith(f"{program}:{number} ") and not r["exchange"]]
    return row


@alone
def test_lines_calls_bytes_and_operations(program, tmp_path):
    page = tmp_path / "page.html"
    done = run("--json", "--html", page, program)
    assert done.returncode == 3 and done.stderr.count("result") == 3
    found = json.loads(done.stdout)
    gemm = row_of(found, program, "y = x @ x")
    assert gemm["calls"] == 3 and gemm["flops"] == 3 * 2 * 64**3 and gemm["bytes"] == 3 * 3 * 64 * 64 * 4
    tanh = row_of(found, program, "z = jnp.tanh(y).sum(0)")
    assert tanh["bytes"] == 3 * (64 * 64 + 64) * 4 and tanh["flops"] >= 3 * 2 * 64 * 64
    callback = row_of(found, program, "z = jax.pure_callback(inner, z, z)")
    assert callback["calls"] == 3 and 0.6 <= callback["seconds"] <= found["seconds"]
    assert row_of(found, program, "return lax.fori_loop(0, 1000, lambda i, c: jnp.sin(c) + i, x)")["calls"] == 1
    assert sum(s["seconds"] for s in found["steps"]) < found["seconds"]
    text = page.read_text()
    assert "pure_callback" in text and 'class="box"' in text and "Content-Security-Policy" in text


@alone
@pytest.mark.slow  # by default the test of two ranks has the rows
def test_the_table(program):
    done = run(program)
    assert done.returncode == 3
    _, _, _, whole, machine, head, *rows = done.stdout.splitlines()
    assert re.fullmatch(r"[\d.]+ m?s: programs compute .*s, Python and compiling .*s", whole)
    assert "GB/s of memory" in machine and head.split()[:4] == ["a", "rank", "share", "calls"]
    assert f"{program}:{lines_of(PROGRAM)['z = jax.pure_callback(inner, z, z)']} (step)" in rows[0]


@marked
def test_ranks_are_put_together(program):
    done = run("-n", 2, "--json", program, "exchange")
    found = json.loads(done.stdout)
    assert done.returncode == 3 and found["ranks"] == 2
    [row] = [r for r in profile.by_line(found) if r["exchange"]]
    assert row["calls"] == 3 and len(row["by_rank"]) == 2 and "allreduce" in next(iter(row["labels"]))
    assert row["line"].startswith(f"{program}:{lines_of(PROGRAM)[EXCHANGE]} ")
    assert np.isclose(sum(row["by_rank"]) / 2, row["seconds"])


def record(rank, seconds, calls=2):
    step = {"program": "f", "kind": "kernel", "label": "add", "line": "a.py:3 (f)", "calls": calls, "seconds": seconds,
            "flops": 4e9, "bytes": 2e9}  # fmt: skip
    return {"rank": rank, "seconds": 4.0, "steps": [step], "bytes_per_second": 1e10, "flops_per_second": 1e12}


def test_the_mean_of_ranks_and_the_slowest():
    found = profile.merged([record(0, 0.5), record(1, 1.5)])
    [row] = profile.by_line(found)
    assert (row["seconds"], row["calls"], row["bytes"], row["by_rank"]) == (1.0, 2, 2e9, [0.5, 1.5])
    text = profile.text_of(profile.merged([record(0, 0.1), record(1, 0.1), record(2, 2.8)]))
    assert "20% memory" in text and "rank 2 takes longest: 2.8 s" in text and "25.0%" in text
    assert "4 s, in the mean of 3 ranks: programs compute 1 s, Python and compiling 3 s" in text


def test_a_program_inside_of_a_step_counts_for_itself():
    long = jax.jit(lambda x: jax.lax.fori_loop(0, 300, lambda i, y: jnp.sin(y) @ y, x))

    @jax.jit
    def outer(x):
        return jax.pure_callback(lambda x: np.asarray(long(x)), x, jnp.cos(x))

    first = step_notes.count()
    x = np.ones((64, 64), np.float32)
    with profile_kernels(True), optimization_level("O3"):  # no run waits for better code
        long(x)  # compiles
        for _ in range(2):
            outer(x)
    found = {step.label: (calls, seconds) for step, calls, seconds in step_notes.sums()[first:]}
    assert {name: calls for name, (calls, _) in found.items() if name in ("sin", "cos", "pure_callback")} == {
        "sin": 900, "cos": 2, "pure_callback": 2
    }  # fmt: skip
    inside = sum(seconds for name, (_, seconds) in found.items() if name not in ("cos", "pure_callback"))
    assert 0 < found["pure_callback"][1] < inside


def test_bytes_of_a_loop_nest():
    def bytes_of(fun, *shapes):
        plan = jax.jit(fun).lower(*[np.zeros(s, np.float32) for s in shapes]).compiler_ir()
        return sum(map(traffic, plan.nests))

    assert bytes_of(lambda x, y: x * y + x, (100,), (100,)) == 3 * 400
    assert bytes_of(lambda x: x[:10] * 2, (1000,)) == 80
    assert bytes_of(lambda x: x.sum(0), (30, 20)) == 4 * (600 + 20)


def test_wrong_words(capsys):
    for words, said in (([], "expected a program"), (["nowhere.py"], "not found"), (["-n", "0", __file__], "at least 1")):
        with pytest.raises(SystemExit) as ended:
            profile.main(words)
        assert ended.value.code == 2 and said in capsys.readouterr().err
