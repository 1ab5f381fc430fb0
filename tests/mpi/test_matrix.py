"""Every operation of mpijax.mpi in every transformation and dtype, beside the program of one process.

All of it takes minutes: `test_on_ranks`, a slow test, runs it on 1 to 4 ranks, `make test-many` on 16, and what is
float32 on 64.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
import time
import traceback

import numpy as np
import pytest
from launching import mpirun, starts_jobs
from mpi.table import RANK, TABLE
from mpi4py import MPI
from spmd.ranks import SIZE, assert_same, draw, dtype_of

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
INEXACT = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
# Of values that are not exact: relative to what is computed in few steps, PROD's derivatives in float16 the worst.
TOLERANCE = {"float16": 4e-2, "bfloat16": 0.25, "float32": 2e-4, "complex64": 2e-4, "float64": 1e-9, "complex128": 1e-9}
# Sums and products over many ranks are brought near those over four, or a sine of them means nothing.
NEAR_ONE = min(1, 4 / SIZE)


class Case:
    """One operation and dtype: what each rank gives, and what comes of it in one process that has all of it."""

    def __init__(self, name: str, dtype: str):
        self.name, self.row, self.dtype = name, TABLE[name], dtype
        self.linear = not any(word in name for word in ("PROD", "MAX", "MIN", "exchange"))

    def part(self, seed: int, rank: int, batch=()):
        return jnp.asarray(self._one((*self.row.shape(rank), *batch), [seed, rank]))

    def draw(self, seed: int, batch=()):
        return [self.part(seed, r, batch) for r in range(SIZE)]

    def _one(self, shape, seed):
        if self.dtype not in INEXACT:
            return draw(shape, self.dtype, seed=sum(seed))
        rng = np.random.default_rng(seed)
        x = rng.uniform(0.5, 1.5, shape) ** NEAR_ONE * rng.choice([-1, 1], shape)  # products do not vanish
        y = 1j * NEAR_ONE * rng.uniform(-1, 1, shape)
        return (x + y if "complex" in self.dtype else x).astype(dtype_of(self.dtype))

    def _cotangent(self, rank: int):
        """Of a result that all ranks share there is one."""
        return jnp.asarray(self._one(shapes_of_results(self.name)[rank], [9, 0 if self.row.shared else rank]))

    x = property(lambda self: self.part(0, RANK))
    t = property(lambda self: self.part(7, RANK))
    ct = property(lambda self: self._cotangent(RANK))
    values = property(lambda self: self.draw(0))
    tangents = property(lambda self: self.draw(7))
    cotangents = property(lambda self: [self._cotangent(r) for r in range(SIZE)])

    def back(self, model, values, cts):
        """The cotangents of all ranks' values."""
        if self.row.shared:
            cts = [cts[0], *(jnp.zeros_like(c) for c in cts[1:])]
        return jax.vjp(model, values)[1](cts)[0]

    def all_back(self):
        return [self.back(self.row.model, self.values, self.cotangents)]

    def curved(self, x):
        return jnp.sin(NEAR_ONE * self.row.run(x * x))

    def curved_model(self, xs):
        return [jnp.sin(NEAR_ONE * y) for y in self.row.model([x * x for x in xs])]


@functools.cache
def shapes_of_results(name: str) -> list[tuple[int, ...]]:
    return [o.shape for o in TABLE[name].model(Case(name, "int32").values)]


def pulled(run, x, ct):
    return jax.vjp(run, x)[1](ct)[0]


# ---------------------------------------------------------------- checks
#
# A check first yields what computes its references, each a list with the value of every rank. It is sent this rank's
# values, and yields (result of this rank, what it should be).


def value(c):
    [want] = yield lambda: [c.row.model(c.values)]
    yield c.row.run(c.x), want
    yield jax.jit(c.row.run)(c.x), want


def vmap(c):
    def model():
        values = c.draw(3, (2, 2))
        parts = [[c.row.model([v[..., i, j] for v in values]) for j in range(2)] for i in range(2)]
        return [[jnp.stack([jnp.stack([parts[i][j][r] for j in range(2)]) for i in range(2)]) for r in range(SIZE)]]

    [want] = yield model
    yield jax.jit(jax.vmap(jax.vmap(c.row.run, -1), -2))(c.part(3, RANK, (2, 2))), want


def the_same_for_all_examples(c):
    [want] = yield lambda: [c.row.model(c.values)]
    yield jax.vmap(lambda _: c.row.run(c.x))(jnp.arange(2)), jnp.stack([want, want])


def loops(c):
    [want] = yield lambda: [c.row.model(c.values)]
    none = jnp.zeros_like(want)

    def turns(x, n):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, c.row.run(x)), (0, none))[1]

    scanned = jax.jit(lambda x: lax.scan(lambda i, _: (i, c.row.run(x)), 0, None, length=2)[1])
    turns = jax.jit(turns)
    yield scanned(c.x), jnp.stack([want] * 2)
    yield turns(c.x, 2), want
    yield turns(c.x, 0), none


def branches(c):
    [want] = yield lambda: [c.row.model(c.values)]
    f = jax.jit(lambda p, x: lax.cond(p, c.row.run, lambda x: jnp.zeros_like(want), x))
    yield f(True, c.x), want
    yield f(False, c.x), jnp.zeros_like(want)


def jvp(c):
    want, want_dot = yield lambda: jax.jvp(c.row.model, (c.values,), (c.tangents,))
    got, got_dot = jax.jit(lambda x, t: jax.jvp(c.row.run, (x,), (t,)))(c.x, c.t)
    yield got, want
    yield got_dot, want_dot
    yield jax.linearize(c.row.run, c.x)[1](c.t), want_dot


def vjp(c):
    [want] = yield c.all_back
    yield pulled(c.row.run, c.x, c.ct), want
    yield jax.jit(lambda x, ct: pulled(c.row.run, x, ct))(c.x, c.ct), want


def remat(c):
    [want] = yield lambda: [c.back(c.curved_model, c.values, c.cotangents)]
    f = jax.checkpoint(c.curved)
    yield jax.jit(lambda x, ct: pulled(f, x, ct))(c.x, c.ct), want


def custom_rules(c):
    [want] = yield c.all_back
    by_vjp = jax.custom_vjp(lambda x: c.row.run(x))
    by_vjp.defvjp(lambda x: (c.row.run(x), x), lambda x, ct: (2 * pulled(c.row.run, x, ct),))
    by_jvp = jax.custom_jvp(lambda x: c.row.run(x))
    by_jvp.defjvp(lambda x, t: jax.jvp(c.row.run, x, t))
    pull = jax.jit(pulled, static_argnums=0)
    yield pull(by_vjp, c.x, c.ct), 2 * want
    yield pull(by_jvp, c.x, c.ct), want


def linear_transpose(c):
    if c.linear:
        [want] = yield c.all_back
        yield jax.jit(lambda ct: jax.linear_transpose(c.row.run, c.x)(ct)[0])(c.ct), want


def forward_over_reverse(c):
    def model():
        cts = c.cotangents
        return [jax.jvp(lambda xs: c.back(c.curved_model, xs, cts), (c.values,), (c.tangents,))[1]]

    [want] = yield model
    ct = c.ct
    yield jax.jit(lambda x, t: jax.jvp(lambda x: pulled(c.curved, x, ct), (x,), (t,))[1])(c.x, c.t), want


def forward_over_forward(c):
    def model():
        ts = c.tangents
        return [jax.jvp(lambda xs: jax.jvp(c.curved_model, (xs,), (ts,))[1], (c.values,), (ts,))[1]]

    [want] = yield model
    yield jax.jit(lambda x, t: jax.jvp(lambda x: jax.jvp(c.curved, (x,), (t,))[1], (x,), (t,))[1])(c.x, c.t), want


def reverse_over_both(c):
    """Where the result is shared, the cotangents of the first and of the second derivative are shared by different ranks."""
    if c.row.shared:
        return

    def model():
        values, cts, ts = c.values, c.cotangents, c.tangents
        over_reverse = jax.vjp(lambda xs: c.back(c.curved_model, xs, cts), values)[1](ts)[0]
        over_forward = jax.vjp(lambda xs: jax.jvp(c.curved_model, (xs,), (ts,))[1], values)[1](cts)[0]
        return [over_reverse, over_forward]

    over_reverse, over_forward = yield model
    ct, t = c.ct, c.t
    pull = jax.jit(pulled, static_argnums=0)
    yield pull(lambda x: pulled(c.curved, x, ct), c.x, t), over_reverse
    yield pull(lambda x: jax.jvp(c.curved, (x,), (t,))[1], c.x, ct), over_forward


def batches_of_derivatives(c):
    def model():
        values, cts = c.draw(3, (2,)), c.cotangents
        parts = [c.back(c.row.model, [v[..., i] for v in values], cts) for i in range(2)]
        return [[jnp.stack([p[r] for p in parts]) for r in range(SIZE)]]

    [want] = yield model
    x, ct = c.part(3, RANK, (2,)), c.ct
    yield jax.jit(jax.vmap(lambda x: pulled(c.row.run, x, ct), -1))(x), want
    both = jax.jit(lambda x, ct: pulled(jax.vmap(c.row.run, -1), x, ct))
    yield both(x, jnp.stack([ct] * 2)), jnp.moveaxis(want, 0, -1)


def derivatives_of_loops(c):
    back, forth = yield lambda: [*c.all_back(), jax.jvp(c.row.model, (c.values,), (c.tangents,))[1]]
    ct, t = c.ct, c.t

    def repeated(x):
        return lax.scan(lambda s, _: (s + lax.cond(s.size >= 0, c.row.run, c.row.run, x), None), jnp.zeros_like(ct),
                        None, length=2)[0]  # fmt: skip

    def last(x, n):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, c.row.run(x)), (0, jnp.zeros_like(forth)))[1]

    yield jax.jit(pulled, static_argnums=0)(repeated, c.x, ct), 2 * back
    yield jax.jit(lambda x, t, n: jax.jvp(lambda x: last(x, n), (x,), (t,))[1])(c.x, t, 2), forth


VALUES = [value, vmap, the_same_for_all_examples, loops, branches]
DERIVATIVES = [
    jvp, vjp, remat, custom_rules, linear_transpose, forward_over_reverse, forward_over_forward, reverse_over_both,
    batches_of_derivatives, derivatives_of_loops,
]  # fmt: skip


def possible(name: str, dtype: str) -> bool:
    if dtype == "bool":
        return name not in ("exchange", "sendrecv-line")  # they multiply
    return "complex" not in dtype or not any(word in name for word in ("MAX", "MIN"))


@pytest.mark.mpi
@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", *INTEGERS, *INEXACT])
@pytest.mark.parametrize("check", VALUES + DERIVATIVES, ids=lambda f: f.__name__)
def test_matrix(check, dtype):
    if check in DERIVATIVES and dtype not in INEXACT:
        pytest.skip("has no derivatives")
    with jax.enable_x64(True):
        compare(check, [n for n in TABLE if possible(n, dtype)], dtype)


def compare(check, names: list[str], dtype: str) -> None:
    """Check operations; what fails, and why, when all have been tried, so that the ranks go on together."""
    checks = {name: check(Case(name, dtype)) for name in names}
    models = {name: model for name, c in checks.items() if (model := next(c, None)) is not None}
    failures = {}
    for name, wants in shared(models).items():
        try:
            if isinstance(wants, Exception):
                raise wants
            results = [checks[name].send([jnp.asarray(w) for w in wants]), *checks[name]]
            for number, (got, want) in enumerate(results):
                same(dtype, got, want, f"result {number} of {len(results)}")
        except Exception as error:
            failures[name] = "".join(traceback.format_exception(error))
    assert not failures, "\n".join([
        *(f"{check.__name__} of {name} in {dtype}: {why}" for name, why in failures.items()),
        f"{check.__name__} in {dtype} fails for {', '.join(failures)}",
    ])  # fmt: skip


def same(dtype: str, got, want, which: str) -> None:
    loose = TOLERANCE.get(dtype)
    try:
        assert_same(got, np.asarray(want), **({} if loose is None else {"rtol": loose, "atol": loose}))
    except AssertionError as error:
        error.add_note(which)
        raise


def shared(models: dict) -> dict:
    """The references of this rank. Each model has all ranks' references, so one rank computes it, and sends them."""
    parts: list[dict] = [{} for _ in range(SIZE)]
    for name in list(models)[RANK::SIZE]:
        try:
            wants = [[np.asarray(w) for w in want] for want in models[name]()]
            for r, part in enumerate(parts):
                part[name] = [want[r] for want in wants]
        except Exception as error:
            for part in parts:
                part[name] = RuntimeError(f"its model: {error!r}")
    found = {}
    for part in exchanged(parts):
        found |= part
    return {name: found[name] for name in models}


def exchanged(parts: list) -> list:
    """An alltoall that leaves the core to the ranks that are not there yet: they may be many, and have a lot to do."""
    comm, tag = MPI.COMM_WORLD, 99
    requests = [comm.isend(part, r, tag) for r, part in enumerate(parts)]
    found: list = [None] * SIZE
    while None in found:
        time.sleep(1e-3)
        for r in range(SIZE):
            if found[r] is None and comm.iprobe(r, tag):
                found[r] = comm.recv(None, r, tag)
    MPI.Request.waitall(requests)
    return found


@pytest.mark.mpi
@pytest.mark.parametrize("check", [the_same_for_all_examples, remat, custom_rules, reverse_over_both, batches_of_derivatives],
                         ids=lambda f: f.__name__)  # fmt: skip
@pytest.mark.one_in(2)
def test_some(check):
    """What the tests of operations leave out."""
    compare(check, ["allreduce-SUM", "scan-MAX", "scatterv", "exchange"], "float32")


@starts_jobs[0]
@starts_jobs[1]
@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_on_ranks(ranks, tmp_path):
    tests = [sys.executable, "-m", "pytest", "--with-mpi", "--slow", "-m", "mpi", "-q", "--timeout-method=thread",
             "-p", "no:cacheprovider", __file__]  # fmt: skip
    job = subprocess.run(
        [*mpirun(ranks), *tests], env=os.environ | {"MPIJAX_TRACE_DIR": str(tmp_path)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert job.returncode == 0, job.stdout[-4000:]
