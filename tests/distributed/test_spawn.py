"""`mpijax.spawn`."""

import io
import os
import signal
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest

import mpijax
from mpijax import mpi
from mpijax import numpy as jnp
from mpijax.distributed import functions, launchers
from mpijax.distributed.spawning import RankTraceback

pytestmark = pytest.mark.skipif(launchers.under_launcher(), reason="starts jobs itself")


def gather(offset, scale=1):
    rank = mpijax.process_index()
    return {"ranks": mpi.allgather(jnp.asarray(rank + offset)), "mine": scale * rank, "n": mpijax.process_count()}


def test_results_of_three_ranks_in_order():
    results = mpijax.spawn(gather, 3, (np.int32(10),), {"scale": 2})
    assert [(result["mine"], result["n"]) for result in results] == [(0, 3), (2, 3), (4, 3)]
    for result in results:
        assert type(result["ranks"]) is np.ndarray
        np.testing.assert_array_equal(result["ranks"], [10, 11, 12])


def test_an_exception_has_the_ranks_traceback_and_ends_the_others():
    def fails():
        if mpijax.process_index() == 1:
            raise KeyError("lost")
        mpi.barrier()

    begin = time.monotonic()
    with pytest.raises(KeyError, match="lost") as caught:
        mpijax.spawn(fails, 2)
    assert time.monotonic() - begin < 60
    assert caught.value.__notes__ == ["raised by rank 1 of 2"]
    assert isinstance(caught.value.__cause__, RankTraceback)
    assert 'raise KeyError("lost")' in str(caught.value.__cause__)


@pytest.mark.parametrize(
    "fn, how, error, message",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), {}, RuntimeError, "rank 0 was killed by SIGKILL"),
        (lambda: os._exit(3), {}, RuntimeError, "rank 0 exited with status 3 before it returned a result"),
        (lambda: time.sleep(60), {"timeout": 2}, TimeoutError, "rank 0 returned no result within 2 s"),
    ],
)
def test_ranks_that_do_not_answer(fn, how, error, message):
    with pytest.raises(error, match=message):
        mpijax.spawn(fn, 1, **how)


def test_what_cannot_be_sent_is_told_before_anything_starts():
    with pytest.raises(TypeError, match="cannot be sent to the ranks.*plain data"):
        mpijax.spawn(gather, 2, (threading.Lock(),))
    with pytest.raises(ValueError, match="nprocs=0"):
        mpijax.spawn(gather, 0)


def test_functions_of_main_travel_with_what_they_use():
    main = types.ModuleType("__main__")
    source = """
import math
factor = 3
def even(n): return True if n == 0 else odd(n - 1)
def odd(n): return False if n == 0 else even(n - 1)
def outer(k, *, more=1):
    def inner(x): return [math.floor(x * factor * k + more) for _ in range(2)]
    return inner
class Own: pass
def uses_own(): return Own()
"""
    exec(source, main.__dict__)
    assert functions.loads(functions.dumps(main.even))(10) is True
    assert functions.loads(functions.dumps(main.outer(2.5)))(2) == [16, 16]
    assert type(functions.loads(functions.dumps(main.uses_own))()) is main.Own  # known here, so it is not made twice


PROGRAM = """
import linecache
from dataclasses import dataclass
import mpijax

@dataclass
class Point:
    x: float
    def doubled(self): return Point(2 * self.x)

class Lost(Exception): pass

cell = "def fails(p):\\n    raise Lost(p.x)  # in a cell\\n"
linecache.cache["<cell 1>"] = len(cell), None, cell.splitlines(keepends=True), "<cell 1>"
exec(compile(cell, "<cell 1>", "exec"))

if __name__ == "__main__":
    print(mpijax.spawn(lambda p: p.doubled(), 1, (Point(1.5),)) == [Point(3.0)])
    try:
        mpijax.spawn(fails, 1, (Point(4.0),))
    except Lost as error:
        print(error, "raise Lost(p.x)  # in a cell" in str(error.__cause__))
"""


@pytest.mark.slow  # by default the test above sends functions
def test_classes_of_a_script_and_functions_of_a_cell(tmp_path):
    """Instances and exceptions come back as those of the script's own classes."""
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines() == ["True", "4.0 True"], done.stderr


@pytest.mark.slow  # by default tests/cli/test_cli.py merges lines
def test_lines_appear_with_their_ranks_where_the_output_is_no_file(monkeypatch):
    def show(start):
        print("all", start)
        print("rank", mpijax.process_index())

    shown = io.StringIO()
    monkeypatch.setattr(sys, "stdout", shown)
    mpijax.spawn(show, 3, (np.arange(2),))
    lines = shown.getvalue().splitlines()
    assert sorted(lines[-3:]) == ["[0] rank 0", "[1] rank 1", "[2] rank 2"]
    assert lines[0].endswith("] all [0 1]") and lines[0].startswith("[0")
