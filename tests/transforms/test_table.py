"""Every primitive under every transformation, against the plain call, loops over examples and finite differences.

Functions are made of the floats of a row alone, in double precision. `Form` is what a transformation makes of them, next
to what it must be.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from transforms.table import EXCLUDED, ROWS, Row

import mpijax
from mpijax import lax

EPS = 1e-6  # step of central differences
DIFFERENCE = {"rtol": 2e-6, "atol": 2e-6}
CLOSE = {"rtol": 1e-11, "atol": 1e-11}
BATCH = 3


def first_of_each(rows: list[Row]) -> list[Row]:
    """Enough rows to have every primitive, at its highest order, and all calls."""
    seen: set = set()
    chosen = []
    for row in rows:
        new = {(p, row.order) for p in row.primitives} - seen
        if new:
            chosen.append(row)
            seen |= new
    return chosen


FIRST = first_of_each(ROWS)

def rows(chosen: list[Row], often=lambda row: True):
    """In the default run: those of `FIRST` for which `often` is true."""
    return pytest.mark.parametrize(
        "row", [pytest.param(r, marks=() if r in FIRST and often(r) else pytest.mark.slow, id=r.name) for r in chosen]
    )


SMOOTH = [row for row in ROWS if row.order]


@pytest.fixture(autouse=True)
def double_precision():
    with mpijax.enable_x64(True):
        yield


def names_in_registry(lookup: str = "") -> set[str]:
    """Of a process of its own: other tests define primitives."""
    code = f"""
import importlib, pkgutil
from mpijax.core.rules.registry import registry
for name in {lookup!r}.split():
    registry[name]
if not {lookup!r}:
    for name in ("ops", "checkify", "transforms", "spmd", "random"):
        package = importlib.import_module("mpijax." + name)
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            importlib.import_module(module.name)
print(*registry)"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(ran.stdout.split())


def test_every_primitive_has_a_row_or_a_reason():
    names = names_in_registry()
    sampled = {name for row in ROWS for name in row.primitives}
    assert names - sampled - set(EXCLUDED) == set(), "neither sampled nor excluded"
    assert sampled - names == set() and set(EXCLUDED) - names == set(), "not in the registry"
    assert sampled & set(EXCLUDED) == set()


def test_every_primitive_is_found_by_its_name():
    """By a process that has used none yet, as one that reads a program from a file."""
    names = {name for row in ROWS for name in row.primitives} | set(EXCLUDED)
    assert names - names_in_registry(" ".join(names)) == set()


def flat(tree) -> list[np.ndarray]:
    return [np.asarray(x) for x in mpijax.tree.leaves(tree)]


def assert_close(got, want, label, **tolerance):
    got, want = flat(got), flat(want)
    assert len(got) == len(want), label
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype, f"{label}: {g.dtype}{g.shape}, not {w.dtype}{w.shape}"
        if np.dtype(g.dtype) in (np.float32, np.complex64):  # of rows that name a type
            tolerance = {name: max(x, 1e-6) for name, x in tolerance.items()}
        np.testing.assert_allclose(g, w, err_msg=label, **tolerance)


def rows_of_batch(row: Row) -> list[tuple]:
    """`BATCH` examples: floats differ a little, other arguments are reversed where that is another value."""

    def example(x, k):
        x = np.asarray(x)
        if x.dtype.kind in "fc":
            return x * (1 + 0.01 * k)
        return x[::-1] if k == 1 and x.ndim else x

    return [tuple(example(x, k) for x in row.args) for k in range(BATCH)]


def stacked(examples) -> list:
    return [np.stack(column) for column in zip(*examples, strict=True)]


# -- values --------------------------------------------------------------------------------------------------


def in_scan(fun):
    return lambda *columns: lax.scan(lambda c, xs: (c + 1, fun(*xs)), 0, tuple(columns))[1]


def in_cond(fun):
    return lambda which, *xs: lax.cond(which, fun, lambda *xs: mpijax.tree.map(lambda y: y, fun(*xs)), *xs)


def in_while(fun):
    """Twice around: the first result is replaced by the second."""

    def loop(*xs):
        start = mpijax.tree.map(lambda y: mpijax.numpy.zeros(y.shape, y.dtype), mpijax.eval_shape(fun, *xs))
        body = lambda s: (s[0] + 1, fun(*s[2]), s[2])
        return lax.while_loop(lambda s: s[0] < 2, body, (0, start, tuple(map(mpijax.numpy.asarray, xs))))[1]

    return loop


@rows(ROWS, lambda row: row.thorough or not row.order or FIRST.index(row) % 2 == 0)
@pytest.mark.one_in(3)
def test_values(row: Row):
    """Compiled, in bodies of loops, in branches, vectorized and under checkpoint: what the plain call returns."""
    examples = rows_of_batch(row)
    plain = [row.fun(*xs) for xs in examples]
    columns = stacked(examples)
    together = [np.stack(leaves) for leaves in zip(*map(flat, plain), strict=True)]

    @mpijax.jit
    def forms(xs, columns):
        return {
            "jit": row.fun(*xs),
            "cond": in_cond(row.fun)(True, *xs),
            "while": in_while(row.fun)(*xs),
            "checkpoint": mpijax.checkpoint(row.fun)(*xs),
        }, {"scan": in_scan(row.fun)(*columns), **({"vmap": mpijax.vmap(row.fun)(*columns)} if row.batched else {})}

    one, several = forms(examples[0], columns)
    for label, got in one.items():
        assert_close(got, plain[0], label, **CLOSE)
    for label, got in several.items():
        assert_close(got, together, label, **CLOSE)
    if row.batched:
        assert_close(mpijax.vmap(row.fun)(*columns), together, "vmap", **CLOSE)
        last = [np.moveaxis(x, 0, -1) for x in columns]
        turned = mpijax.vmap(row.fun, in_axes=-1, out_axes=-1)(*last)
        assert_close(turned, [np.moveaxis(x, 0, -1) for x in together], "vmap of the last axes", **CLOSE)


# -- derivatives ---------------------------------------------------------------------------------------------


def of_floats(row: Row, args=None):
    """The function of its floats, with the results that are floats, and the floats."""
    args = row.args if args is None else args

    def fun(*floats):
        filled = list(args)
        for i, x in zip(row.smooth, floats, strict=True):
            filled[i] = x
        return [y for y in mpijax.tree.leaves(row.fun(*filled)) if y.dtype.kind in "fc"]

    return fun, tuple(np.asarray(args[i]) for i in row.smooth)


def random_like(rng, x) -> np.ndarray:
    x = np.asarray(x)
    noise = np.asarray(rng.uniform(-1, 1, x.shape))
    return (noise + 1j * np.asarray(rng.uniform(-1, 1, x.shape)) if x.dtype.kind == "c" else noise).astype(x.dtype)


def inner(a, b) -> float:
    """The pairing of cotangents and tangents: real, without conjugation."""
    return float(sum(np.real(np.sum(x * y)) for x, y in zip(flat(a), flat(b), strict=True)))


def along(fun, xs, vs):
    """The central difference of `fun` along `vs`."""
    step = lambda sign: flat(fun(*(x + sign * EPS * v for x, v in zip(xs, vs, strict=True))))
    return [(up - down) / (2 * EPS) for up, down in zip(step(1), step(-1), strict=True)]


def pull(fun):
    return lambda xs, cts: mpijax.vjp(fun, *xs)[1](cts)


def cond_of(fun):
    return lambda *xs: in_cond(fun)(True, *xs)


def examples_of(xs) -> tuple:
    return tuple(np.stack([x * (1 + 0.01 * k) for k in range(BATCH)]) for x in xs)


def repeated(xs) -> list:
    return [np.stack([x] * BATCH) for x in xs]


def check_forms(derivative, loop, plain, forms, args, columns):
    """Compile all `forms`; those of a column of examples must be the loop."""
    one, several = mpijax.jit(forms)(args, columns)
    for label, got in one.items():
        assert_close(got, plain, f"{label} of {derivative}", **CLOSE)
    together = [np.stack(leaves) for leaves in zip(*map(flat, loop), strict=True)]
    for label, got in several.items():
        assert_close(got, together, f"{label} and {derivative}", **CLOSE)


@rows(SMOOTH, lambda row: row.thorough or not row.reverse)  # reverse mode is compared with forward mode
@pytest.mark.one_in(4)
def test_forward_mode(row: Row, request):
    """The difference quotient; compiled, vectorized, in loops and branches the same."""
    if not row.forward:
        pytest.skip("has a reverse mode only")
    fun, xs = of_floats(row)
    vs = tuple(random_like(np.random.default_rng(1), x) for x in xs)
    push = lambda fun: lambda xs, vs: mpijax.jvp(fun, tuple(xs), tuple(vs))[1]
    tangents = push(fun)(xs, vs)
    assert_close(tangents, along(fun, xs, vs), "jvp", **DIFFERENCE)

    def forms(args, columns):
        one = {"jit": push(fun)(*args), "linearize": mpijax.linearize(fun, *args[0])[1](*args[1])}
        several = {}
        if row.batched:
            several["vmap outside"] = mpijax.vmap(push(fun))(*columns)
            several["vmap inside"] = push(mpijax.vmap(fun))(*columns)
        if row.thorough or request.config.getoption("--slow"):
            one["cond"], one["while"] = push(cond_of(fun))(*args), push(in_while(fun))(*args)
            one["checkpoint"] = push(mpijax.checkpoint(fun))(*args)
            several["scan outside"] = lax.scan(lambda c, a: (c, push(fun)(*a)), 0, columns)[1]
            several["scan inside"] = push(in_scan(fun))(*columns)
        return one, several

    columns = examples_of(xs), tuple(repeated(vs))
    loop = [push(fun)(*([c[k] for c in column] for column in columns)) for k in range(BATCH)]
    check_forms("jvp", loop, tangents, forms, (xs, vs), columns)


@rows(SMOOTH)
@pytest.mark.one_in(4)
def test_reverse_mode(row: Row, request):
    """The transpose of forward mode, or where there is none of the difference quotient; under transformations the same."""
    if not row.reverse:
        pytest.skip("has a forward mode only")
    fun, xs = of_floats(row)
    rng = np.random.default_rng(1)
    vs = tuple(random_like(rng, x) for x in xs)
    tangents = mpijax.jvp(fun, xs, vs)[1] if row.forward else along(fun, xs, vs)
    cts = [random_like(rng, y) for y in tangents]
    cotangents = pull(fun)(xs, cts)
    rel = 1e-10 if row.forward else 1e-6
    assert inner(cts, tangents) == pytest.approx(inner(cotangents, vs), rel=rel, abs=rel)

    def forms(args, columns):
        one = {"jit": pull(fun)(*args), "jit inside": pull(mpijax.jit(fun))(*args)}
        several = {}
        if row.batched:
            several["vmap outside"] = mpijax.vmap(pull(fun))(*columns)
            several["vmap inside"] = pull(mpijax.vmap(fun))(*columns)
        if row.thorough or request.config.getoption("--slow"):
            one["cond"], one["checkpoint"] = pull(cond_of(fun))(*args), pull(mpijax.checkpoint(fun))(*args)
            several["scan outside"] = lax.scan(lambda c, a: (c, pull(fun)(*a)), 0, columns)[1]
            several["scan inside"] = pull(in_scan(fun))(*columns)
        return one, several

    columns = examples_of(xs), repeated(cts)
    loop = [pull(fun)(*([c[k] for c in column] for column in columns)) for k in range(BATCH)]
    check_forms("vjp", loop, cotangents, forms, (xs, cts), columns)


@rows(SMOOTH, lambda row: row.thorough or FIRST.index(row) % 3 == 0)
@pytest.mark.one_in(4)
def test_second_derivatives(row: Row):
    """<c, D2 f(u, v)> is the same number by all four orders of modes, and by differences of first derivatives."""
    if row.order < 2:
        pytest.skip("differentiable once")
    fun, xs = of_floats(row)
    rng = np.random.default_rng(2)
    us, vs = (tuple(random_like(rng, x) for x in xs) for _ in range(2))
    cts = [random_like(rng, y) for y in fun(*xs)]
    push = lambda *xs: mpijax.jvp(fun, xs, vs)[1]
    back = lambda *xs: pull(fun)(xs, cts)
    found = {}
    if row.reverse:
        want = inner(along(back, xs, us), vs)
        found["reverse over reverse"] = inner(mpijax.jit(lambda xs, vs: mpijax.vjp(back, *xs)[1](vs))(xs, vs), us)
    if row.forward:
        want = inner(cts, along(push, xs, us))
        found["forward over forward"] = inner(cts, mpijax.jvp(push, xs, us)[1])
    if row.forward and row.reverse:
        found["forward over reverse"] = inner(mpijax.jit(lambda xs, us: mpijax.jvp(back, xs, us)[1])(xs, us), vs)
        found["reverse over forward"] = inner(mpijax.vjp(push, *xs)[1](cts), us)
    exact = next(iter(found.values()))
    for label, got in found.items():
        assert got == pytest.approx(exact, rel=1e-9, abs=1e-9), label
        assert got == pytest.approx(want, rel=2e-5, abs=2e-5), label
