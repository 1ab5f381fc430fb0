"""Baseline code first, optimised code once a program has run often: the same bits, in this process and in others."""

import os
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from quickly import one_in

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax._ext.loading import rebind
from mpijax.compiler.backend.baseline import is_baseline
from mpijax.compiler.steps.planner import plan_program
from mpijax.core.base import config
from mpijax.runtime.program import code, tiers
from mpijax.runtime.program.loader import load_plan

RNG = np.random.default_rng(7)


def floats(*shape, dtype=np.float32):
    return RNG.normal(size=shape).astype(dtype)


PROGRAMS = {
    "elementwise": (lambda x: jnp.sin(x) * jnp.exp(x) + jnp.log1p(x * x), floats(1003)),
    "doubles": (lambda x: jnp.tanh(x) / (1 + x), floats(77, dtype=np.float64)),
    "sums": (lambda x: (x.sum(0), jnp.var(x, 1), jnp.cumsum(x, 1)), floats(33, 65)),
    "softmax": (lambda x: jax.nn.softmax(x, axis=-1), floats(20, 37)),
    "transposed": (lambda x: (x + 1).T * 2, floats(70, 33)),
    "half": (lambda x: (x.astype(jnp.bfloat16) * 3).astype(jnp.float16).sum(), floats(500)),
    "complex": (lambda x: jnp.exp(lax.complex(x, x * 2)), floats(50)),
    "integers": (lambda x: (x * 100).astype(jnp.int8) // 3, floats(301)),
    "numbers": (lambda x: jax.random.normal(jax.random.key(3), x.shape) * x, floats(129)),
    "special": (lambda x: jax.scipy.special.betainc(jnp.abs(x), 2.0, 0.3), floats(40)),
    "what is known": (lambda x: x * (jnp.float32(1e-38) * jnp.float32(0.01) > 0), floats(9)),
    "gathered": (lambda x: x[(x * 7).astype(int) % 50], floats(50)),
    "gradient": (jax.grad(lambda x: jnp.sum(jnp.tanh(x @ x) ** 2)), floats(31, 31)),
}


@pytest.fixture
def cold(monkeypatch, tmp_path):
    """Every kernel is compiled anew, and kept in a folder of the test's."""
    monkeypatch.setenv("MPIJAX_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("_kernels", "_files"):
        monkeypatch.setattr(code, name, type(getattr(code, name))())
    return tmp_path / "cache"


def compiled(fun, *args):
    """The program of a function, new, and its plan."""
    plan = plan_program(jax.make_jaxpr(fun)(*args))
    return load_plan(plan, "f", tiers.baseline_runs(plan)), plan


def wait_for_threads():
    deadline = time.monotonic() + 60
    while any(t.name == "mpijax optimises" for t in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("name", one_in(3, PROGRAMS))
@pytest.mark.one_in(2)
def test_both_codes_compute_the_same_bits(name, cold):
    fun, x = PROGRAMS[name]
    with config.enable_x64(x.dtype == np.float64):
        program, plan = compiled(fun, x)
        assert program.spec.addresses.baseline
        better = load_plan(plan, "f")
        assert not better.spec.addresses.baseline
        for a, b in zip(program.run([x]), better.run([x]), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_a_program_that_runs_often_gets_optimised_code(cold):
    x = floats(100)
    program, plan = compiled(lambda x: jnp.sin(x) * 3 + x, x)
    before, runs = program.run([x])[0], tiers.baseline_runs(plan)
    assert runs == tiers.MOST_RUNS and program.spec.addresses.baseline
    old = next(iter(program.spec.addresses.codes.values()))
    for _ in range(runs - 1):
        program.run([x])
    assert old.better is None
    program.run([x])
    wait_for_threads()
    assert old.better is not None and old.better.ir is None
    assert np.asarray(program.run([x])[0]).tobytes() == np.asarray(before).tobytes()
    # Other programs with these kernels get the better ones at once.
    assert not compiled(lambda x: jnp.sin(x) * 3 + x, x)[0].spec.addresses.baseline


LOOPS = {
    "while": lambda x: lax.while_loop(lambda c: c[0] < N, lambda c: (c[0] + 1, c[1] * 0.999 + jnp.sin(c[1])), (0, x)),
    "fori": lambda x: lax.fori_loop(0, N, lambda i, c: c * 0.99 + jnp.sin(c) * i, x),
    "scan": lambda x: lax.scan(lambda c, i: (c * 0.99 + jnp.sin(c) * i, c[0]), x, jnp.arange(N * 1.0)),
    "reversed": lambda x: lax.scan(lambda c, i: (jnp.cos(c) + i, c * 2), x, jnp.arange(N * 1.0), reverse=True),
    "two loops": lambda x: lax.fori_loop(0, N, lambda i, c: c * 0.9 + i, lax.fori_loop(0, N, lambda i, c: jnp.sin(c), x)),
    "inner loop": lambda x: lax.fori_loop(
        0, N // 8, lambda j, c: lax.while_loop(lambda d: d[0] < 8, lambda d: (d[0] + 1, jnp.sin(d[1]) + j), (0, c))[1], x
    ),
    "branch": lambda x: lax.fori_loop(0, N, lambda i, c: lax.cond(i % 3 == 0, jnp.sin, lambda y: y + i, c), x),
    "exchanged": lambda x: lax.fori_loop(0, N + 1, lambda i, c: jnp.roll(c, 1) * 1.01, jnp.tile(x, 20)),
    "batched": jax.vmap(lambda x: lax.while_loop(lambda c: c[0] < N * x, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))),
    "products": lambda x: lax.fori_loop(0, N // 10, lambda i, c: jnp.sin(c @ c), jnp.outer(x, x)),
}
N = 150_000


@pytest.mark.parametrize("name", one_in(3, LOOPS))
@pytest.mark.one_in(2)
def test_a_loop_goes_on_with_other_code(name, cold):
    """Whenever the code changes, whoever else runs the program: the bits are those of optimised code alone."""
    x = np.linspace(0.1, 0.9, 7, dtype=np.float32)
    plan = plan_program(jax.make_jaxpr(LOOPS[name])(x))
    baseline = [load_plan(plan, "f", tiers.NEVER) for _ in range(4)]
    better = load_plan(plan, "f")
    wanted = [np.asarray(y).tobytes() for y in better.run([x])]
    for i, program in enumerate(baseline):
        found = []
        threads = [threading.Thread(target=lambda: found.append(program.run([x]))) for _ in range(2)]  # noqa: B023
        for t in threads:
            t.start()
        time.sleep(0.002 * i)
        rebind(program, better.spec.addresses)
        for t in threads:
            t.join()
        assert [[np.asarray(y).tobytes() for y in got] for got in found] == [wanted] * 2


@pytest.mark.parametrize("name", ["while", "inner loop", "branch", "batched", "products"])
@pytest.mark.one_in(2)
def test_a_loop_that_takes_long_gets_optimised_code(name, cold, monkeypatch):
    """The first run, which is short, does not; a later one, which is long, does before it ends."""
    asked = []
    monkeypatch.setattr(tiers, "tier_up", lambda program, run_time: asked.append((program, run_time)))
    x = np.linspace(0.1, 0.9, 7, dtype=np.float32)
    plan = plan_program(jax.make_jaxpr(lambda n, x: LONG[name](n, x))(jnp.int32(1), x))
    program = load_plan(plan, "f", tiers.MOST_RUNS)
    for _ in range(5):
        program.run([jnp.int32(20), x])
    assert asked == []
    program.run([jnp.int32(4 * N), x])  # each takes at least twice as long as `tiers.PATIENCE`
    assert asked == [(program, 0)]
    program.run([jnp.int32(N), x])  # asks until there is other code
    assert asked[1][0] is program and asked[1][1] > tiers.PATIENCE and len(asked) == 2
    rebind(program, None)
    program.run([jnp.int32(N), x])
    assert len(asked) == 2


LONG = {
    "while": lambda n, x: lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, c[1] * 0.999 + jnp.sin(c[1])), (0, x)),
    "inner loop": lambda n, x: lax.fori_loop(0, 3, lambda j, c: lax.fori_loop(0, n, lambda i, d: jnp.sin(d) + j, c), x),
    "branch": lambda n, x: lax.fori_loop(
        0, n, lambda i, c: lax.cond(i % 3 == 0, lambda y: jnp.sin(y) @ jnp.ones((7, 7)), lambda y: y + i, c), x
    ),
    "batched": lambda n, x: jax.vmap(
        lambda y: lax.while_loop(lambda c: c[0] < n * y, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, y))[1]
    )(x),
    "products": lambda n, x: lax.fori_loop(0, n // 2, lambda i, c: jnp.sin(c @ c), jnp.outer(x, x)),
}


@pytest.mark.parametrize("per_byte, waits", [(0, True), (1 << 40, False)])
def test_one_run_waits_for_optimised_code(per_byte, waits, cold, monkeypatch):
    """If the code will be made in the time of some runs: the second run waits twice as long, and the others do not."""
    x = floats(300, 300)
    program, plan = compiled(lambda x: jnp.sin(x) * 3 + x, x)
    assert tiers.baseline_runs(plan) == 1
    monkeypatch.setattr(tiers, "PER_BYTE", per_byte)
    optimized, finish = code.optimized, threading.Event()
    monkeypatch.setattr(code, "optimized", lambda known: finish.wait(60) and optimized(known))
    waited, condition = [], tiers._fewer_wait
    monkeypatch.setattr(condition, "wait_for", lambda done, most: waited.append(most) or done())
    wanted = [np.asarray(y).tobytes() for y in program.run([x])]
    for _ in range(4):
        assert [np.asarray(y).tobytes() for y in program.run([x])] == wanted
    assert len(waited) == waits and all(0 < most < 60 for most in waited)
    finish.set()
    wait_for_threads()
    assert [np.asarray(y).tobytes() for y in program.run([x])] == wanted
    assert next(iter(program.spec.addresses.codes.values())).better is not None


def test_the_run_that_waits_has_optimised_code(cold, monkeypatch):
    monkeypatch.setattr(tiers, "PER_BYTE", 0)
    monkeypatch.setattr(tiers, "WAIT", 1e6)
    x = floats(300, 300)
    program, _ = compiled(lambda x: jnp.sin(x) * 3 + x, x)
    old = next(iter(program.spec.addresses.codes.values()))
    program.run([x])
    assert old.better is None
    program.run([x])
    assert old.better is not None


def test_a_program_without_a_thread_keeps_its_code(cold, monkeypatch):
    def refuse(self):
        raise RuntimeError("can't start new thread")

    x = floats(300, 300)
    program, _ = compiled(lambda x: jnp.sin(x) * 3 + x, x)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    for _ in range(3):
        program.run([x])
    assert next(iter(program.spec.addresses.codes.values())).better is None and not tiers._waiting


def test_how_many_runs():
    def runs(fun, *shapes):
        return tiers.baseline_runs(plan_program(jax.make_jaxpr(fun)(*[np.zeros(s, np.float32) for s in shapes])))

    assert runs(lambda x: x + 1, (8,)) == tiers.MOST_RUNS
    assert runs(lambda x: x + 1, (300, 300)) == 1
    assert runs(lambda x: x + 1, (4000, 4000)) is None
    assert runs(lambda x: lax.while_loop(lambda c: c[1, 1] < 3, lambda c: c @ c, x), (90, 90)) == tiers.MOST_RUNS
    assert runs(lambda x: lax.while_loop(lambda c: c < 3, lambda c: c + 1, x), ()) == tiers.MOST_RUNS
    assert runs(lambda x: lax.fori_loop(0, 10, lambda i, c: c + i, x), ()) == tiers.MOST_RUNS
    assert runs(lambda x: lax.fori_loop(0, 1 << 30, lambda i, c: c + i, x), ()) == 0
    with config.optimization_level("O3"):
        assert runs(lambda x: x + 1, (8,)) is None
    with config.disable_most_optimizations(True):
        assert runs(lambda x: x + 1, (4000, 4000)) == tiers.NEVER


def test_a_compiled_program_has_optimised_code(cold):
    f = jax.jit(lambda x: jnp.cos(x) + 5)
    x = floats(10)
    f(x)
    compiled = f.lower(x).compile()
    assert not compiled._program.spec.addresses.baseline
    assert np.array_equal(compiled(x), f(x))


def test_threads_run_a_program_that_gets_other_code(cold):
    x = floats(5000)
    program, _ = compiled(lambda x: jnp.sin(jnp.exp(x)) * 3 + jnp.cumsum(x), x)
    right = np.asarray(program.run([x])[0]).tobytes()
    wrong, stop = [], threading.Event()

    def run():
        while not stop.is_set():
            if np.asarray(program.run([x])[0]).tobytes() != right:
                wrong.append(1)

    threads = [threading.Thread(target=run) for _ in range(3)]
    for t in threads:
        t.start()
    time.sleep(0.1)
    wait_for_threads()
    stop.set()
    for t in threads:
        t.join()
    assert not wrong and not any(c.better is None for c in program.spec.addresses.codes.values())


PROCESS = """
import sys, time, threading
import numpy as np
import mpijax as jax
from mpijax import numpy as jnp
from mpijax.compiler.backend import llvm
compile_object, made = llvm.compile_object, []
def noted(text, optimize=False, baseline=False):
    made.append("baseline" if baseline else "optimised")
    return compile_object(text, optimize, baseline)
llvm.compile_object = noted
x = np.linspace(0, 1, 100, dtype=np.float32)
f = jax.jit(lambda x: jnp.sin(x) / (x + 2))
for _ in range(int(sys.argv[1])):
    y = f(x)
while any(t.name == "mpijax optimises" for t in threading.enumerate()):
    time.sleep(0.01)
print(*made, np.asarray(y).tobytes().hex())
"""


@pytest.mark.slow  # by default test_plan_cache.py has code of another process
def test_processes_leave_optimised_code_to_one_another(tmp_path, monkeypatch):
    monkeypatch.setenv("MPIJAX_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("MPIJAX_CACHE", raising=False)

    def process(runs):
        done = subprocess.run([sys.executable, "-c", PROCESS, str(runs)], capture_output=True, text=True, check=True)
        return done.stdout.split()

    *made, first = process(1)
    assert made == ["baseline"]
    *made, second = process(100)  # finds the baseline code, and makes the other
    assert made == ["optimised"]
    *made, third = process(100)
    assert made == [] and first == second == third
    kept = [p.read_bytes()[48:] for p in tmp_path.glob("*.o")]
    assert kept and not any(map(is_baseline, kept))


def test_a_process_may_end_while_code_is_optimised():
    text = PROCESS.replace("while any", "sys.exit(7)\nwhile any")
    done = subprocess.run([sys.executable, "-c", text, "70"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (7, "")


FORK = """
import os, sys
import numpy as np
import mpijax as jax
from mpijax import numpy as jnp
from mpijax.runtime.program import tiers
x = np.linspace(0, 1, 100, dtype=np.float32)
tiers._lock.acquire()  # as if the thread held it
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
f = jax.jit(lambda x: jnp.sin(x) / (x + 2))
[f(x) for _ in range(100)]
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_of_a_fork_optimises_too():
    subprocess.run([sys.executable, "-W", "ignore", "-c", FORK], check=True, timeout=60)
