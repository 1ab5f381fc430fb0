"""Loops and branches as programs: what is copied, what is overwritten, what leaves the loop, what is one function."""

import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.compiler.steps.instructions import Copy, GemmCall, KernelCall, Loop, Switch, Temp, walk
from mpijax.compiler.steps.planner import plan_program


def plan_of(f, *args, donated=()):
    return plan_program(jax.make_jaxpr(f)(*args), donated)


def kinds(plan):
    return [type(s) for s in walk(plan.instructions)]


SMALL = np.arange(8, dtype=np.float32)
BIG = np.random.default_rng(0).normal(size=(512, 512)).astype(np.float32)


def test_small_loop_is_one_function():
    plan = plan_of(lambda x: lax.fori_loop(0, 10, lambda i, x: x * 2 + i, x), SMALL)
    [step] = [s for s in plan.instructions if not isinstance(s, Copy)]
    assert isinstance(step, KernelCall) and step.label.startswith("loop")


def test_while_and_switch_are_one_function():
    def f(x):
        def body(x):
            return lax.cond(x.sum() > 5, lambda x: x + 1, lambda x: x * 3, x)

        return lax.while_loop(lambda x: x.sum() < 100, body, x)

    plan = plan_of(f, SMALL[:3])
    assert set(kinds(plan)) == {KernelCall} and len(plan.instructions) == 1
    x = SMALL[:3].copy()
    while x.sum() < 100:
        x = x + 1 if x.sum() > 5 else x * 3
    np.testing.assert_array_equal(jax.jit(f)(SMALL[:3]), x)


def test_large_bodies_are_lists_of_instructions():
    plan = plan_of(lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sin(x) + i, x), BIG)
    assert Loop in kinds(plan)


def test_elementwise_carry_is_updated_in_place():
    plan = plan_of(lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sin(x), x), BIG)
    assert plan.arena < BIG.nbytes
    assert sum(isinstance(s, Copy) and s.nbytes == BIG.nbytes for s in walk(plan.instructions)) == 1  # the argument's


def test_donated_argument_becomes_the_carry():
    plan = plan_of(lambda x: lax.fori_loop(0, 3, lambda i, x: jnp.sin(x), x), BIG, donated=(True,))
    assert plan.arena < BIG.nbytes
    assert not [s for s in walk(plan.instructions) if isinstance(s, Copy) and s.nbytes == BIG.nbytes]


@pytest.mark.parametrize("turns", [1, 2, 3, 4])
def test_carry_that_is_read_elsewhere_changes_places(turns):
    def f(x):
        return lax.fori_loop(0, turns, lambda i, x: jnp.roll(x, 1, 0) + i, x)

    plan = plan_of(f, BIG)
    for loop in (s for s in plan.instructions if isinstance(s, Loop)):
        assert not any(isinstance(s, Copy) and s.nbytes == BIG.nbytes for s in walk(loop.body))
    expected = BIG
    for i in range(turns):
        expected = np.roll(expected, 1, 0) + np.float32(i)
    np.testing.assert_array_equal(jax.jit(f)(BIG), expected)


def test_loop_of_one_turn_is_no_loop():
    plan = plan_of(lambda x, xs: lax.scan(lambda c, x: (c + x, c * x), x, xs), SMALL, SMALL[None])
    assert not any(s.label.startswith("loop") for s in plan.instructions if isinstance(s, KernelCall))


@pytest.mark.parametrize("turns", [0, 1, 2, 5])
def test_large_carry_of_a_while_loop_ends_in_its_result(turns):
    f = jax.jit(lambda x, n: lax.fori_loop(0, n, lambda i, x: x.T + i, x))
    expected = BIG
    for i in range(turns):
        expected = expected.T + i
    np.testing.assert_array_equal(f(BIG, turns), expected)


def test_carries_may_change_places_among_each_other():
    def f(x, y, z):
        return lax.fori_loop(0, 4, lambda i, c: (c[1], c[2], c[0] + 1), (x, y, z))

    for x in (SMALL, BIG):
        a, b, c = x, x + 1, x + 2
        got = jax.jit(f)(a, b, c)
        for _ in range(4):
            a, b, c = b, c, a + 1
        for g, e in zip(got, (a, b, c), strict=True):
            np.testing.assert_array_equal(g, e)


def test_unchanged_products_leave_the_loop():
    w = np.random.default_rng(1).normal(size=(256, 256)).astype(np.float32)
    plan = plan_of(lambda w, x: lax.fori_loop(0, 3, lambda i, x: jnp.tanh(x + w @ w), x), w, w)
    at = {id(s): depth for depth, steps in enumerate([plan.instructions]) for s in steps}
    gemms = [s for s in walk(plan.instructions) if isinstance(s, GemmCall)]
    assert len(gemms) == 1 and id(gemms[0]) in at


@pytest.mark.parametrize(
    "op, kernels",
    [
        (lambda w: w + w.T, ["add"]),  # the loop reads one array instead of two
        (lambda w: (w - w.T) * 3, ["mul"]),
        (lambda w: jnp.exp(w.T), ["exp"]),
        (lambda w: w.reshape(50, 200).reshape(100, 100) * 3, []),  # the loop would read no less
        (lambda w: w + jnp.arange(100.0), []),
    ],
)
def test_operations_on_views_of_outside_arrays_leave_the_loop(op, kernels):
    w = np.random.default_rng(1).normal(size=(100, 100)).astype(np.float32)
    plan = plan_of(lambda w, x: lax.fori_loop(0, 3, lambda i, x: jnp.tanh(op(w) @ x), x), w, w[0])
    *before, loop = [s.label for s in plan.instructions if isinstance(s, KernelCall)]
    assert [label for label in before if label != "iota"] == kernels and "loop" in loop


@pytest.mark.slow  # by default tests above have one view
def test_many_views_of_an_outside_array_leave_the_loop():
    """However many there are: no function calls itself for each."""
    w = np.random.default_rng(1).normal(size=(70, 70)).astype(np.float32)

    def body(w, x):
        v = w
        for _ in range(500):
            v = v.T.reshape(35, 140).reshape(70, 70)
        return x + jnp.exp(v)[0]

    found = jax.jit(lambda w, x: lax.fori_loop(0, 3, lambda _, x: body(w, x), x))(w, w[0])
    np.testing.assert_allclose(found, w[0] + 3 * np.asarray(body(w, 0)), rtol=1e-5)


def test_views_of_outside_arrays_cost_no_memory_inside():
    plan = plan_of(lambda w, x: lax.fori_loop(0, 3, lambda i, x: x + w.T[1:, None].sum(1), x), BIG, BIG[:-1])
    temporaries = [b.nbytes for b in plan.buffers if isinstance(b, Temp)]
    assert max(temporaries, default=0) < BIG.nbytes or len(temporaries) <= 2


def test_scanned_slices_are_read_where_they_are():
    xs = np.random.default_rng(2).normal(size=(10, 128, 128)).astype(np.float32)
    plan = plan_of(lambda xs: lax.scan(lambda c, x: (c + x, c * x), jnp.zeros((128, 128)), xs), xs)
    assert plan.arena < 3 * xs[0].nbytes
    loop = next((s for s in plan.instructions if isinstance(s, Loop)), None)
    inside = loop.body if loop else plan.instructions
    assert not [s for s in walk(inside) if isinstance(s, Copy) and s.nbytes == xs[0].nbytes]


def test_equal_stacked_results_are_stored_once():
    xs = np.random.default_rng(2).normal(size=(1000, 64)).astype(np.float32)

    def loss(xs):
        def step(c, x):
            h = jnp.tanh(c + x)
            return h, h

        return (lax.scan(step, jnp.zeros(64), xs)[1] ** 2).sum()

    plan = plan_of(jax.grad(loss), xs)
    stacked = [b for b in plan.buffers if isinstance(b, Temp) and b.nbytes == xs.nbytes]
    # The states, which are a result and a residual, what else the derivative of tanh needs, and the cotangents.
    assert len({b.offset for b in stacked}) == 3


def test_branch_runs_only_the_one_taken():
    plan = plan_of(lambda p, x: lax.cond(p, lambda x: x @ x, lambda x: x, x), True, BIG)
    assert Switch in kinds(plan)
    switch = next(s for s in plan.instructions if isinstance(s, Switch))
    assert [sum(isinstance(s, GemmCall) for s in walk(b)) for b in switch.branches] == [0, 1]


def test_known_branch_is_inlined():
    plan = plan_of(lambda x: lax.switch(1, [jnp.sin, jnp.cos], x), SMALL)
    assert [type(s) for s in plan.instructions] == [KernelCall]
    assert "cos" in plan.instructions[0].label


def test_nested_loops_reset_their_pointers():
    xs = np.random.default_rng(3).normal(size=(4, 5)).astype(np.float32)

    def f(xs):
        def outer(c, _):
            c, ys = lax.scan(lambda c, x: (c * 0.5 + x, c), c, xs)
            return c, ys

        return lax.scan(outer, jnp.zeros(5), None, length=3)

    c, expected = np.zeros(5, np.float32), []
    for _ in range(3):
        row = []
        for x in xs:
            row.append(c)
            c = c * np.float32(0.5) + x
        expected.append(row)
    got_c, got = jax.jit(f)(xs)
    np.testing.assert_allclose(got_c, c, rtol=1e-6)
    np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_one_kernel_that_makes_two_results_reads_before_it_writes():
    # The second result reads the argument whose memory the first could take.
    f = jax.jit(lambda a, b: (b * 2, a * 3), donate_argnums=0)
    a, b = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
    x, y = f(jnp.array(a), jnp.array(b))
    np.testing.assert_array_equal(x, b * 2)
    np.testing.assert_array_equal(y, a * 3)


def test_while_is_shown_in_the_text_of_the_program():
    f = jax.jit(lambda x: lax.while_loop(lambda x: (x @ x).sum() < 1e9, lambda x: x @ x, x))
    text = f.lower(np.eye(300, dtype=np.float32) * 2).compile().as_text()
    assert "while" in text and "gemm" in text


def random_body(rng, width, depth):
    """A function of a list of arrays to a list of as many, with loops and branches in it."""
    steps = []
    for _ in range(rng.integers(1, 4)):
        kind = rng.choice(["map", "mix", "rotate", "update", "reduce"] + (["loop", "cond", "while"] if depth else []))
        i, j = rng.integers(width, size=2)
        inner = random_body(rng, width, depth - 1) if kind in ("loop", "cond", "while") else None
        other = random_body(rng, width, depth - 1) if kind == "cond" else None
        steps.append((kind, i, j, int(rng.integers(0, 4)), inner, other))

    def run(xs, np, loops):
        xs = list(xs)
        for kind, i, j, n, inner, other in steps:
            if kind == "map":
                xs[i] = np.sin(xs[i]) + xs[j] * 0.5
            elif kind == "mix":
                xs[i], xs[j] = xs[j], xs[i] - xs[j]
            elif kind == "rotate":
                xs[i] = np.roll(xs[i], n) + np.cos(xs[j][::-1])
            elif kind == "update":
                xs[i] = np.concatenate([xs[i][:1] * 0.5, xs[j][1:]])
            elif kind == "reduce":
                xs[i] = xs[i] - xs[j].mean()
            elif kind == "loop":
                xs = loops.fori(n, lambda k, xs, inner=inner: [x + 0.1 * k for x in inner(xs, np, loops)], xs)
            elif kind == "cond":
                branches = [lambda xs, f=f: f(xs, np, loops) for f in (inner, other)]
                xs = loops.cond(xs[i].sum() > 0.37, *branches, xs)
            else:
                xs = loops.bounded(n + 1, lambda xs, inner=inner: inner(xs, np, loops), xs)
        return [x / (1 + abs(x)) for x in xs]

    return run


class Plain:
    @staticmethod
    def fori(n, body, xs):
        for k in range(n):
            xs = body(k, xs)
        return xs

    @staticmethod
    def cond(p, f, g, xs):
        return f(xs) if p else g(xs)

    @staticmethod
    def bounded(n, body, xs):
        k = 0
        while k < n and xs[0].sum() < 50:
            xs, k = body(xs), k + 1
        return xs


class Traced:
    fori = staticmethod(lambda n, body, xs: lax.fori_loop(0, n, body, xs))
    cond = staticmethod(lax.cond)

    @staticmethod
    def bounded(n, body, xs):
        return lax.while_loop(lambda c: (c[0] < n) & (c[1][0].sum() < 50), lambda c: (c[0] + 1, body(c[1])), (0, xs))[1]


def check_random_program(seed):
    rng = np.random.default_rng(seed)
    width, size = int(rng.integers(1, 4)), int(rng.choice([1, 3, 17, 2000]))
    run = random_body(rng, width, 2)
    with jax.enable_x64(True):
        xs = [rng.normal(size=size) for _ in range(width)]
        got = jax.jit(lambda xs: run(xs, jnp, Traced))(xs)
    for g, e in zip(got, run(xs, np, Plain), strict=True):
        np.testing.assert_allclose(g, e, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.one_in(4)
def test_random_programs_with_loops(seed):
    check_random_program(seed)


@pytest.mark.slow
def test_many_random_programs_with_loops():
    for seed in range(1000, 1600):
        check_random_program(seed)


def test_index_known_outside_is_known_in_the_body():
    """Where a checkpointed loop is in another one, the indices of `x.at[1:-1, 1:-1].add` are made in that."""

    def loss(x):
        def step(i, x):
            return x.at[1:-1, 1:-1].add(jnp.sin(x[1:-1, 1:-1]))

        segment = jax.checkpoint(lambda x, _: (lax.fori_loop(0, 3, step, x), None))
        return lax.scan(segment, x, None, length=2)[0].sum()

    plan = plan_of(jax.grad(loss), BIG)
    labels = [s.label for s in walk(plan.instructions) if isinstance(s, KernelCall)]
    assert labels and not [label for label in labels if "scatter" in label or "gather" in label]
    x, d = BIG.astype(np.float64), np.ones_like(BIG, np.float64)
    inner = np.s_[1:-1, 1:-1]
    for _ in range(6):
        d[inner] *= 1 + np.cos(x[inner])
        x[inner] += np.sin(x[inner])
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(BIG), d, rtol=1e-3, atol=1e-4)


def test_loop_and_the_loop_around_it_are_in_one_module():
    """A kernel is called by the program and by another kernel of its module; a random constant makes both new."""
    c = np.random.default_rng().uniform(0.1, 0.9)

    def loop(x):
        return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.cos(s[1]) * c), (0, x))[1]

    @jax.jit
    def f(x, xs):
        twice = lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, loop(s[1])), (0, x))[1]
        return loop(x), lax.cond(x[0] > 0, loop, lambda x: x, x), twice, lax.scan(lambda n, y: (n, loop(y)), 0, xs)[1]

    def expected(x, times):
        for _ in range(times):
            x = np.cos(x) * c
        return x

    xs = np.linspace(0.1, 1, 24).reshape(4, 6)
    got = f(xs[0], xs)
    for value, want in zip(got, (expected(xs[0], 3), expected(xs[0], 3), expected(xs[0], 6), expected(xs, 3)), strict=True):
        np.testing.assert_allclose(value, want, rtol=1e-5)


def test_small_carry_in_the_gap_between_large_ones():
    def f(*start):
        def step(carry, _):
            return lax.cond(carry[2] < 9, lambda c: (c[0] * 2, c[1] + c[2], c[2] + 1), lambda c: c, carry), ()

        return lax.scan(step, start, None, length=3)[0]

    args = np.ones_like(BIG), np.zeros_like(BIG), np.int32(0)
    plan = plan_of(f, *args)
    assert all(b.offset + b.nbytes <= plan.arena for b in plan.buffers if isinstance(b, Temp))
    for got, want in zip(jax.jit(f)(*args), (8, 3, 3), strict=True):
        np.testing.assert_array_equal(got, np.full_like(got, want))
