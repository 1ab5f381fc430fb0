"""`mpijax.progress`: the values are those of the loops without a bar, and what is shown where."""

import io
import subprocess
import sys
import time

import jax
import numpy as np
import pytest
from launching import UNDER_LAUNCHER
from quickly import one_in

import mpijax
from mpijax import numpy as jnp
from mpijax import progress_bars

X = np.random.default_rng(0).standard_normal((250, 3)).astype(np.float32)


@pytest.fixture
def lines(monkeypatch, capsys):
    """A function that returns what has been written to stderr, a line every 10 %."""
    monkeypatch.setenv("MPIJAX_PROGRESS", "lines")
    return lambda: capsys.readouterr().err


# ---- values ----


@pytest.mark.parametrize("bounds", one_in(3, [(0, 0), (0, 1), (5, 3), (2, 99), (0, 100), (3, 104), (0, 250), (-7, 990), (0, 1009)]))
def test_fori_loop_is_laxs(bounds):
    def body(i, x):
        return jnp.sin(x) + 0.01 * i

    ours = mpijax.progress.fori_loop(*bounds, body, jnp.float32(0.3))
    np.testing.assert_array_equal(ours, mpijax.lax.fori_loop(*bounds, body, jnp.float32(0.3)))
    theirs = jax.lax.fori_loop(*bounds, lambda i, x: jax.numpy.sin(x) + 0.01 * i, np.float32(0.3))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4)


@pytest.mark.parametrize("upper", [0, 3, 100, 101, 777])
def test_bounds_that_are_known_when_it_runs(upper):
    f = mpijax.jit(lambda n: mpijax.progress.fori_loop(2, n, lambda i, x: x + i, 0))
    assert int(f(upper)) == sum(range(2, upper))


@pytest.mark.sweep
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("n", [0, 1, 7, 100, 101, 131, 250])
@pytest.mark.one_in(2)
def test_scan_is_laxs(n, reverse):
    def f(J, c, x):
        return J.numpy.tanh(c + x["a"]), (c, x["b"] * 2)

    xs = {"a": X[:n], "b": np.arange(n)}
    ours = mpijax.progress.scan(lambda c, x: f(mpijax, c, x), jnp.zeros(3), xs, reverse=reverse)
    same = mpijax.lax.scan(lambda c, x: f(mpijax, c, x), jnp.zeros(3), xs, reverse=reverse)
    theirs = jax.lax.scan(lambda c, x: f(jax, c, x), jax.numpy.zeros(3), xs, reverse=reverse)
    mpijax.tree.map(np.testing.assert_array_equal, ours, same)
    mpijax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), ours, jax.tree.map(np.asarray, theirs))


def test_scan_without_xs():
    carry, ys = mpijax.progress.scan(lambda c, _: (c + 1, c), 0, length=205)
    assert int(carry) == 205 and np.array_equal(ys, np.arange(205))


@pytest.mark.parametrize("wrong", [
    {"xs": None}, {"xs": 1.0}, {"xs": (X, X[:2])}, {"xs": X, "length": 3},
])  # fmt: skip
def test_wrong_arguments_raise_as_lax_does(wrong):
    errors = []
    for scan in (mpijax.progress.scan, mpijax.lax.scan):
        with pytest.raises((ValueError, TypeError)) as caught:
            scan(lambda c, x: (c, None), 0.0, **wrong)
        errors.append((type(caught.value), str(caught.value)))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("n", [7, 100, 131])
@pytest.mark.one_in(3)
def test_derivatives_and_batches(n):
    def loss(J, scan, w, x):
        carry, ys = scan(lambda c, v: (J.numpy.tanh(c * w + v), c.sum()), J.numpy.zeros(3), x)
        return (carry**2).sum() + ys.sum()

    ours = mpijax.grad(lambda w, x: loss(mpijax, mpijax.progress.scan, w, x), argnums=(0, 1))(0.7, X[:n])
    theirs = jax.grad(lambda w, x: loss(jax, jax.lax.scan, w, x), argnums=(0, 1))(0.7, X[:n])
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-5)
    weights = np.linspace(0, 1, 4, dtype=np.float32)
    ours = mpijax.vmap(lambda w: loss(mpijax, mpijax.progress.scan, w, X[:n]))(weights)
    np.testing.assert_allclose(ours, jax.vmap(lambda w: loss(jax, jax.lax.scan, w, X[:n]))(weights), rtol=2e-4)

    def power(x):
        return mpijax.progress.fori_loop(0, n, lambda i, y: y * x, jnp.float32(1))

    np.testing.assert_allclose(mpijax.jvp(power, (0.9,), (1.0,))[1], n * 0.9 ** (n - 1), rtol=1e-4)
    np.testing.assert_allclose(mpijax.grad(power)(jnp.float32(0.9)), n * 0.9 ** (n - 1), rtol=1e-4)


def test_a_program_holds_at_most_101_parts_and_no_callback_between_them():
    """What keeps the cost of a bar below 1 % of a loop of a million cheap iterations."""
    text = str(mpijax.make_jaxpr(lambda x: mpijax.progress.fori_loop(0, 1_000_000, lambda i, y: y * x, x))(1.0))
    assert "callback" not in text and text.count("loop_mark") == 2 and "length=100" in text and "length=10000" in text


def test_equal_loops_are_compiled_once():
    def run():
        return mpijax.progress.fori_loop(0, 20, lambda i, x: x, 0.0, desc="same")

    [first, second] = [
        next(eqn.params["loop"] for eqn in mpijax.make_jaxpr(run)().eqns if eqn.primitive.name == "loop_mark")
        for _ in range(2)
    ]
    assert first == second and hash(first) == hash(second)


# ---- what is shown ----


def test_a_loop_of_python(lines):
    assert list(mpijax.progress(range(20), desc="load")) == list(range(20))
    shown = lines().splitlines()
    assert [line.split(" in ")[0] for line in shown] == [f"load: {10 * k}% ({2 * k} of 20)" for k in range(1, 11)]
    assert shown[-1].endswith(" s") and shown[0].endswith(" left")


def test_a_loop_of_unknown_length(lines):
    assert sum(mpijax.progress(iter([1, 2, 3]))) == 6
    shown = lines()
    assert shown.startswith("progress: 3 in ") and shown.count("\n") == 1
    assert len(mpijax.progress(iter([1, 2]), total=2)) == 2
    with pytest.raises(TypeError, match="the length of list_iterator is unknown. Pass it: progress"):
        len(mpijax.progress(iter([1, 2])))


def test_a_loop_that_is_left_early_closes_its_bar(monkeypatch):
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    bar = progress_bars._Bar("steps", 4, time.monotonic())
    bar.show(1)
    bar.close()
    assert shown.getvalue().startswith("\rsteps:  25% [#######                       ] 1/4 in 0.0 s, ")
    assert shown.getvalue().endswith("\n")


def test_a_compiled_loop_shows_where_it_is(lines):
    def body(i, x):
        mpijax.debug.callback(lambda: time.sleep(0.01))
        return x + i

    f = mpijax.jit(lambda: mpijax.progress.fori_loop(0, 100, body, 0, desc="steps"))
    assert int(f()) == 4950
    shown = lines().splitlines()
    shares = [int(line.split("%")[0].removeprefix("steps: ")) for line in shown]
    assert shares == sorted(shares) and len(shares) >= 5 and shares[-1] == 100
    assert all(line.startswith("steps: ") for line in shown) and "(100 of 100)" in shown[-1]


def test_a_fast_loop_shows_nothing(lines):
    f = mpijax.jit(lambda: mpijax.progress.fori_loop(0, 1000, lambda i, x: x + i, 0))
    f()
    begin = time.monotonic()
    f()
    assert time.monotonic() - begin > 0.1 or lines() == ""


def test_a_wrong_choice_is_named(monkeypatch):
    monkeypatch.setenv("MPIJAX_PROGRESS", "loud")
    with pytest.raises(ValueError, match="MPIJAX_PROGRESS must be 'auto', 'bar', 'lines' or 'off', got 'loud'"):
        list(mpijax.progress([1]))


@pytest.mark.parametrize("mode", ["bar", "off"])
def test_without_tqdm(mode, monkeypatch):
    monkeypatch.setenv("MPIJAX_PROGRESS", mode)
    monkeypatch.setattr(progress_bars.importlib.util, "find_spec", lambda name: None)
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    list(mpijax.progress(range(3), desc="x"))
    assert shown.getvalue().split("\r")[-1].startswith("x: 100% [" + "#" * 30 + "] 3/3 in") if mode == "bar" else shown.getvalue() == ""


def test_with_tqdm(monkeypatch):
    pytest.importorskip("tqdm")
    monkeypatch.setenv("MPIJAX_PROGRESS", "bar")
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    list(mpijax.progress(range(3), desc="x"))
    assert "x: 100%|" in shown.getvalue() and "3/3" in shown.getvalue()


def test_a_pipe_gets_lines():
    code = "import mpijax\nfor _ in mpijax.progress(range(3)): pass"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert [line.split(" in ")[0] for line in ran.stderr.splitlines()] == [
        "progress: 30% (1 of 3)", "progress: 60% (2 of 3)", "progress: 100% (3 of 3)"]  # fmt: skip


def shown_on_this_rank():
    sys.stderr = io.StringIO()
    total = sum(mpijax.progress(range(10)))
    return total, sys.stderr.getvalue().count("\n")


@pytest.mark.skipif(UNDER_LAUNCHER, reason="starts jobs itself")
@pytest.mark.slow  # by default tests above have what a display shows
def test_only_rank_0_shows():
    assert mpijax.spawn(shown_on_this_rank, 2, env={"MPIJAX_PROGRESS": "lines"}) == [(45, 10), (45, 0)]


@pytest.mark.skipif(UNDER_LAUNCHER, reason="starts jobs itself")
@pytest.mark.slow  # by default tests/distributed/test_notebook.py has a kernel's output
def test_a_kernel_updates_one_display(monkeypatch):
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    from kernel import Notebook

    with Notebook() as notebook:
        outputs = notebook.run(
            "import mpijax, sys, time\nsys.modules['tqdm'] = None\nimport importlib.util as u\nu.find_spec = lambda n: None\n"
            "for i in mpijax.progress(range(3)): time.sleep(0.15)"
        )
    [shown] = [o["data"]["text/plain"] for o in outputs if o["output_type"] == "display_data"]
    assert shown.startswith("100% [") and " 3/3 in " in shown
