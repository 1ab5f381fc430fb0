"""``mpijax explain``: tables of what programs send, for people and for programs, and their page."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
from launching import PATHS, UNDER_LAUNCHER, marked

from mpijax.cli import explain, launcher
from mpijax.cli.explain import merged

PROGRAM = """
import sys
import mpijax as jax
import mpijax.numpy as jnp
from mpijax.sharding import Mesh, NamedSharding, PartitionSpec as P

mesh = Mesh(jax.devices(), ("i",))
x = jax.device_put(jnp.ones((4, 8, 8)), NamedSharding(mesh, P(None, "i")))

@jax.jit
def step(x):
    return jnp.linalg.qr(x)[1].sum()

print("result", step(x), sys.argv[1:])
sys.exit(len(sys.argv) - 1)
"""


@pytest.fixture
def program(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    return file


def run(*words, **settings):
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS} | settings
    command = [sys.executable, "-m", "mpijax", "explain", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=env, timeout=90)


alone = pytest.mark.skipif(UNDER_LAUNCHER, reason="starts a program of its own")


@alone
def test_a_program_that_runs_alone_sends_nothing(program):
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
    result, told = done.stdout.splitlines()
    assert result.startswith("result ") and re.fullmatch(r"programs that send nothing: .*\bstep\b.*", told)


@alone
@pytest.mark.slow  # by default test_cli.py has both for `run`
def test_arguments_and_the_exit_status_are_the_programs(program):
    done = run("--json", program, "a", "--json")
    assert done.returncode == 2 and "['a', '--json']" in done.stderr
    assert [p["name"] for p in json.loads(done.stdout)][-1] == "step"


@alone
def test_what_was_compiled_before_an_error_is_shown():
    code = "import mpijax as jax; jax.jit(lambda x: x * 2)(1.0); raise ValueError('stop')"
    done = run("-c", code)
    assert done.returncode == 1 and "ValueError: stop" in done.stderr
    assert done.stdout == "programs that send nothing: <lambda>\n"


@alone
@pytest.mark.slow  # by default tests/as_jax runs such programs
def test_a_program_written_for_jax():
    done = run("--as-jax", "-c", "import jax; jax.jit(jax.numpy.sin)(1.0)")
    assert (done.returncode, done.stdout) == (0, "programs that send nothing: sin\n")


@alone
@pytest.mark.slow  # by default the test of two ranks has the page, and tests of the plan cache the plans
def test_programs_in_the_cache_are_shown_with_their_loops(program, tmp_path):
    for name in ("first.html", "second.html"):
        done = run("--html", tmp_path / name, program, MPIJAX_CACHE_DIR=str(tmp_path / "cache"))
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "second.html").read_text() == (tmp_path / "first.html").read_text()
    assert "for i0 in" in (tmp_path / "second.html").read_text()


@marked
def test_two_ranks(program, tmp_path):
    page = tmp_path / "programs.html"
    done = run("-n", 2, "--html", page, program)
    assert done.returncode == 0, done.stderr
    table = done.stdout[done.stdout.index("program step") :]
    line = f"{program}:12 (step)"
    assert re.search(rf"{re.escape(line)} +all_gather +1 +512 +512 +1,024  qr needs the whole of a sharded array\n", table)
    assert f"gathered: f32[4,8,8] (1.02 kB on every rank) for qr at {line}\n  to avoid it, shard argument 0" in table
    text = page.read_text()
    assert text.count("<iframe") == text.count("<details>") and "all_gather" in text and text.count("</script>") == 1
    if shutil.which("chromium") is not None:  # each page in a frame runs its script
        shown = subprocess.run(
            ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--dump-dom", page.as_uri()],
            capture_output=True, text=True, timeout=60, env=os.environ | {"HOME": str(tmp_path)},
        )  # fmt: skip
        assert "CONSOLE" not in shown.stderr and "Content Security Policy" not in shown.stderr
        assert "<details open" in shown.stdout


@marked
@pytest.mark.slow
def test_two_ranks_as_data(program):
    done = run("-n", 2, "--json", program)
    [step] = [p for p in json.loads(done.stdout) if p["name"] == "step"]
    [whole] = step["whole"]
    assert whole["code"] == "return jnp.linalg.qr(x)[1].sum()" and whole["line"] == 12 and whole["bytes"] == 1024
    assert step["sent"] == 512 and step["compiled"] == 1 and "[0-1] result" in done.stderr


def record(rank, *programs):
    made = [{"name": n, "sent": s, "memory": 8, "lines": [], "whole": []} for n, s in programs]
    return {"rank": rank, "programs": made}


def test_ranks_are_merged():
    found = merged([record(0, ("f", 1), ("f", 1), ("g", 0), ("f", 2)), record(1, ("f", 1), ("f", 3), ("h", 4))])
    assert [(p["name"], p["sent"], p["rank"], p["compiled"]) for p in found] == [
        ("f", 1, 0, 1), ("f", 3, 1, 1), ("g", 0, 0, 1), ("f", 2, 0, 1), ("h", 4, 1, 1)
    ]  # fmt: skip
    again = merged([record(0, ("f", 1), ("f", 1), ("f", 1))])
    assert [(p["name"], p["compiled"]) for p in again] == [("f", 3)]


@pytest.mark.parametrize(("words", "said"), [
    ([], "expected a program"),
    (["missing.py"], "file 'missing.py' not found"),
    (["-n", "0", "-c", "1"], "ranks must be at least 1"),
])  # fmt: skip
def test_wrong_arguments(words, said, capsys):
    with pytest.raises(SystemExit) as status:
        explain.main(words)
    assert status.value.code == 2 and said in capsys.readouterr().err
