"""Of processes that need the same work at once, one does it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest
from launching import PATHS, marked, mpirun

from mpijax.cli.launcher import clean_environment
from mpijax.compiler.backend import once_on_node as once

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets are Linux's")


def at_once(number: int, work) -> None:
    """Call `work` in as many threads at once."""
    threads = [threading.Thread(target=work) for _ in range(number)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()


@LINUX
def test_one_makes_and_the_others_find():
    left, made, got = [], [], []

    def make():
        made.append(1)
        time.sleep(0.2)
        left.append("it")
        return "it"

    at_once(4, lambda: got.append(once.once_on_node("one makes", lambda: left[0] if left else None, make)))
    assert made == [1] and got == ["it"] * 4


@LINUX
def test_where_nothing_is_left_those_who_waited_work_at_once():
    begun, ended, overlapping = [], [], []

    def make():
        begun.append(1)
        time.sleep(0.3)
        overlapping.append(len(begun) - len(ended) > 1)
        ended.append(1)
        return "it"

    at_once(5, lambda: once.once_on_node("nothing is left", lambda: None, make))
    assert len(ended) == 5 and any(overlapping)


@LINUX
def test_a_forked_child_does_not_keep_the_claim():
    (read, write), (runs, forked) = os.pipe(), os.pipe()
    children = []

    def make():
        child = os.fork()
        if child == 0:
            os.write(forked, b"x")  # handlers of the fork have run
            os.close(write)
            os.read(read, 1)  # lives until the parent closes its end
            os._exit(0)
        children.append(child)
        os.read(runs, 1)
        return "it"

    try:
        once.once_on_node("forks", lambda: None, make)
        claim = once._claim("forks")
    finally:
        os.close(write)
        os.waitpid(children[0], 0)
        for end in (read, runs, forked):
            os.close(end)
    assert claim is not None
    claim.close()


@LINUX
def test_an_error_is_that_of_who_works():
    def fails():
        time.sleep(0.1)
        raise ValueError("unwell")

    raised = []

    def work():
        with pytest.raises(ValueError, match="unwell"):
            once.once_on_node("an error", lambda: None, fails)
        raised.append(1)

    at_once(3, work)
    assert raised == [1] * 3 and once.once_on_node("an error", lambda: None, lambda: 7) == 7


HOLDS = "import time; from mpijax.compiler.backend.once_on_node import _claim; c = _claim({!r}); print(c is not None, flush=True); time.sleep(100)"


@LINUX
def test_a_process_that_is_stopped_is_not_waited_for_and_one_that_dies_neither(monkeypatch):
    other = subprocess.Popen([sys.executable, "-c", HOLDS.format("held")], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout.readline() == "True\n"
        monkeypatch.setattr(once, "PATIENCE", 0.3)
        began = time.monotonic()
        assert once.once_on_node("held", lambda: None, lambda: "mine") == "mine"
        assert time.monotonic() - began >= 0.3
        monkeypatch.setattr(once, "PATIENCE", 60)
        threading.Timer(0.2, other.kill).start()
        assert once.once_on_node("held", lambda: None, lambda: "mine") == "mine"
        assert time.monotonic() - began < 30
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


RANKS = """
import numpy as np, mpijax as jax
from mpijax import numpy as jnp
from mpijax.compiler.backend import llvm
count, compile_object = [], llvm.compile_object
llvm.compile_object = lambda *a, **k: count.append(1) or compile_object(*a, **k)
jax.process_index()
f = jax.jit(lambda x: sum(jnp.sort(jnp.sin(i + x)) for i in range(40)))
y = f(np.arange(30.0))
np.testing.assert_allclose(y, sum(np.sort(np.sin(i + np.arange(30.0))) for i in range(40)), rtol=1e-4, atol=1e-4)
print(len(count))
"""


@LINUX
@marked
def test_ranks_compile_a_program_once(tmp_path):
    environment = clean_environment() | {"MPIJAX_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": PATHS}
    ran = subprocess.run(
        [*mpirun(3), sys.executable, "-c", RANKS], env=environment, capture_output=True, text=True, timeout=100, check=True
    )
    counts = sorted(map(int, ran.stdout.split()))
    assert counts[-1] >= 1 and sum(counts) == counts[-1], ran.stdout + ran.stderr
