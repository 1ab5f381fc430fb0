"""`%%mpijax` in a real kernel, and the parts that it is made of."""

import json
import pickle
import time

import numpy as np
import pytest
from kernel import Notebook, text

import mpijax
from mpijax import numpy as jnp
from mpijax.distributed import cell_worker, launchers, shared_values
from mpijax.distributed.cells import RankError, Ranks
from mpijax.distributed.notebook import table

pytestmark = pytest.mark.skipif(launchers.under_launcher(), reason="starts jobs itself")


@pytest.fixture(scope="module")
def notebook():
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    with Notebook() as started:
        started.run("%load_ext mpijax")
        yield started


def test_state_stays_and_values_come_out(notebook):
    assert text(notebook.run("%mpijax -n 3")) == "mpijax: 3 ranks run\n"
    notebook.run("import numpy as np\nstart, steps = np.arange(3), {'n': 2, 'names': ('a', None)}")
    cell = "%%mpijax --in start,steps\nimport mpijax\nrank = mpijax.process_index()\nprint('all', steps)\nrank * start"
    shown = notebook.run(cell)
    assert text(shown) == "[0-2] all {'n': 2, 'names': ('a', None)}\n"
    first, others = text(shown, "value")
    assert first == "array([0, 0, 0])"
    assert others.splitlines() == ["rank  value", "1     array([0, 1, 2])", "2     array([0, 2, 4])"]
    again = notebook.run("%%mpijax --out total --gather rank\nfrom mpijax import mpi\nimport mpijax.numpy as jnp\n"
                         "total = mpi.allreduce(jnp.float32(rank * 1.5), 'SUM')\ntotal")  # fmt: skip
    assert text(again, "value") == ["Array(4.5, dtype=float32)"]
    assert text(notebook.run("total, type(total).__name__, rank"), "value") == [
        "(array(4.5, dtype=float32), 'ndarray', [0, 1, 2])"
    ]


def test_an_error_shows_once_and_ranks_stay(notebook):
    notebook.run("%mpijax -n 2\n")
    notebook.run("%%mpijax\nkept = 7")
    error = notebook.run("%%mpijax\ndef f():\n    return 1 / 0\nf()")
    said = text(error, "error")
    assert "ranks 0-1 of 2:" in said and said.count("return 1 / 0") == 1 and "ZeroDivisionError: division by zero" in said
    assert "mpijax/distributed" not in said and "notebook.py" not in said
    assert text(notebook.run("%%mpijax\nkept"), "value") == ["7"]


def test_one_rank_that_fails_while_another_waits(notebook):
    notebook.run("%mpijax -n 2")
    error = notebook.run("%%mpijax\nimport mpijax\nfrom mpijax import mpi\n"
                         "if mpijax.process_index() == 1: raise KeyError('lost')\nmpi.barrier()")  # fmt: skip
    said = text(error, "error")
    assert "KeyError: 'lost' (rank 1)" in said and "next cell starts new ones" in said
    assert text(notebook.run("%%mpijax\nimport mpijax\nmpijax.process_count()"), "value") == ["2"]


def test_an_interrupt_stops_the_cell_and_leaves_the_ranks(notebook):
    notebook.run("%mpijax -n 2")
    notebook.run("%%mpijax\nimport time, mpijax\nturns = 0")
    timer = notebook.interrupt_after(2.0)
    begin = time.monotonic()
    stopped = notebook.run("%%mpijax\nprint('begins')\nwhile True:\n    turns += 1\n    time.sleep(0.01)")
    timer.join()
    assert time.monotonic() - begin < 10
    said = text(stopped, "error")
    assert said.endswith("CellInterrupted: The cell was interrupted. The ranks are still alive.")
    assert "time.sleep(0.01)" in said and "cells.py" not in said
    assert text(stopped) == "[0-1] begins\n"
    assert text(notebook.run("%%mpijax\nturns > 0"), "value") == ["True"]


@pytest.mark.slow  # by default one rank that fails while another waits ends them too
def test_an_interrupt_in_a_wait_that_does_not_end(notebook):
    notebook.run("%mpijax -n 2")
    notebook.run("%%mpijax\nimport time, mpijax\nfrom mpijax import mpi\nmpi.barrier()")
    timer = notebook.interrupt_after(2.0)
    stopped = notebook.run("%%mpijax\nif mpijax.process_index(): time.sleep(60)\nmpi.barrier()")
    timer.join()
    assert "new ones" in text(stopped, "error")
    assert text(notebook.run("%%mpijax\n1 + 1"), "value") == ["2"]


def test_restart_stop_and_another_number(notebook):
    notebook.run("%mpijax -n 2")
    notebook.run("%%mpijax\na = 1")
    refused = text(notebook.run("%%mpijax -n 3\na"), "error")
    assert "2 ranks run and hold the variables of earlier cells" in refused and "`%mpijax -n 3`" in refused
    assert text(notebook.run("%mpijax restart")) == "mpijax: 2 ranks run\n"
    assert "NameError: name 'a' is not defined (ranks 0-1)" in text(notebook.run("%%mpijax\na"), "error")
    assert text(notebook.run("%mpijax stop")) == "mpijax: no ranks run\n"
    assert text(notebook.run("%mpijax")) == "mpijax: no ranks run\n"


@pytest.mark.slow  # by default the tests above have output
def test_output_comes_while_the_cell_runs_and_a_bar_overwrites_itself(notebook):
    notebook.run("%mpijax -n 2")
    shown = text(notebook.run(
        "%%mpijax\nimport sys, time\n"
        "for i in range(3):\n    sys.stdout.write(f'\\rstep {i}'); sys.stdout.flush(); time.sleep(0.4)\nprint()"
    ))  # fmt: skip
    assert "[0-1] step 0" in shown and "\r" in shown and shown.endswith("[0-1] step 2\n") and "\x1b" not in shown


@pytest.mark.parametrize(("line", "message"), [
    ("--in missing", "%%mpijax: the notebook has no variable missing"),
    ("--in a-b", "'a-b' is not the name of a variable. Write --in a,b"),
    ("-n two", "argument -n/-np/--np/--ranks: invalid int value: 'two'"),
    ("-n 0", "%mpijax needs at least 1 rank, got -n 0"),
])  # fmt: skip
def test_wrong_lines_start_nothing(notebook, line, message):
    notebook.run("%mpijax stop")
    assert message in text(notebook.run(f"%%mpijax {line}\n1"), "error")
    assert text(notebook.run("%mpijax")) == "mpijax: no ranks run\n"


def test_values_that_cannot_be_shared_are_named(notebook):
    notebook.run("fun = lambda: 1\n%mpijax -n 1")
    said = text(notebook.run("%%mpijax --in fun\n1"), "error")
    assert "fun holds a function, which cannot be copied between a notebook and its ranks" in said
    said = text(notebook.run("%%mpijax --out made\nmade = object()"), "error")
    assert "made holds a object" in said
    assert "--out names never, but no cell has assigned" in text(notebook.run("%%mpijax --out never\n1"), "error")


# ---- the parts, without a kernel ----

VALUES = [
    None, True, 3, 2.5, float("inf"), "text", 1 + 2j, b"\x00\xff", [1, [2]], (1, ()), {1, 2}, {"a": {1: (2.0,)}},
    np.arange(6.0).reshape(2, 3), np.float32(2), np.array(["a", "bc"]), np.zeros((0, 3), np.int8),
    np.array([(1, 2.0)], [("i", "i4"), ("x", "f8")]), [np.ones(2), {"k": np.int64(3)}],
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_come_back_as_they_were(value):
    arrays = []
    packed = shared_values.pack("x", value, arrays)
    found = shared_values.unpack(json.loads(json.dumps(packed)), arrays, keep_jax=True)
    np.testing.assert_equal(found, value)
    assert type(found) is type(value)
    if isinstance(value, np.ndarray):
        assert (found.dtype, found.shape) == (value.dtype, value.shape)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float8_e4m3fn", "bool", "complex64"])
def test_arrays_of_mpijax_keep_their_dtype(dtype):
    arrays = []
    packed = shared_values.pack("x", jnp.arange(2).astype(dtype), arrays)
    ours, numpys = (shared_values.unpack(packed, arrays, keep_jax=keep) for keep in (True, False))
    assert isinstance(ours, mpijax.Array) and type(numpys) is np.ndarray
    assert ours.dtype == numpys.dtype == dtype
    np.testing.assert_array_equal(np.asarray(ours).astype(complex), [0, 1])


def test_nothing_is_pickled():
    with pytest.raises(TypeError, match="x holds a NumPy array of Python objects"):
        shared_values.pack("x", np.array([object()]), [])
    data = pickle.dumps(np.array([object]))
    with pytest.raises(ValueError, match="allow_pickle"):
        shared_values.unpack({"array": 0, "kind": "numpy", "dtype": None}, [data], keep_jax=False)


def test_the_table_escapes_and_groups():
    shown = table(["0", "<b>1</b>", "<b>1</b>", "x" * 200])
    assert shown["text/plain"].splitlines() == ["rank  value", "1-2   <b>1</b>", "3     " + "x" * 97 + "..."]
    assert "<code>&lt;b&gt;1&lt;/b&gt;</code>" in shown["text/html"]


@pytest.mark.parametrize(("source", "value"), [
    ("1 + 1", 2), ("x = 1", None), ("1 + 1;", None), ("", None), ("# only this", None), ("x = 1\nx + 1  # sum", 2),
    ("def f(x: int): pass\nf.__annotations__", {"x": int}),
])  # fmt: skip
def test_the_value_of_a_cell(source, value):
    assert cell_worker.run_cell(source, "<test cell>", {}) == value


def test_ways_in_which_a_value_shows_itself():
    class Rich:
        def _repr_html_(self):
            return "<b>1</b>"

        def _repr_png_(self):
            return b"png"

        __repr__ = lambda self: "plain"

    assert cell_worker.shown(Rich()) == {"text/plain": "plain", "text/html": "<b>1</b>", "image/png": "cG5n"}


def test_ranks_that_stopped_at_different_places_are_ended(capsys):
    """Rank 0 begins a collective more than rank 1: what comes after would be matched wrongly."""
    ranks = Ranks(2)
    try:
        cell = ("import mpijax, mpijax.numpy as jnp\nfrom mpijax import mpi\n"
                "mpi.allreduce(jnp.ones(3), 'SUM')\n"
                "if mpijax.process_index() == 1: raise ValueError('early')\n"
                "mpi.bcast(jnp.ones(3), 0)\nraise ValueError('late')")  # fmt: skip
        with pytest.raises(RankError, match=r"(?s)early.*(different places|could not be stopped).*new ones"):
            ranks.run(cell, {}, [])
        assert not ranks.alive
    finally:
        ranks.stop()


@pytest.mark.slow  # by default the test above ends the ranks
def test_a_rank_that_is_killed():
    ranks = Ranks(2)
    with pytest.raises(RankError, match=r"rank 1 was killed by SIGKILL.*All ranks were killed"):
        ranks.run("import mpijax, os, signal\nif mpijax.process_index(): os.kill(os.getpid(), signal.SIGKILL)", {}, [])
    assert not ranks.alive


def test_a_timeout_leaves_the_ranks():
    ranks = Ranks(1)
    try:
        ranks.run("", {}, [])  # so that the rank has started
        with pytest.raises(TimeoutError, match="The cell did not finish within 1 s and was interrupted"):
            ranks.run("import time\nn = 3\ntime.sleep(60)", {}, [], timeout=1)
        [(answer, _)] = ranks.run("n", {}, [])
        assert ranks.alive and answer["shown"] == {"text/plain": "3"}
    finally:
        ranks.stop()
