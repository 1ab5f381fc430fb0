"""Every operation of mpijax.mpi in every transformation and dtype, beside the program of one process.

All of it takes minutes: `test_on_ranks`, a slow test, runs it on 1 to 4 ranks.
"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from launching import mpirun, starts_jobs
from mpi.table import RANK, TABLE
from spmd.ranks import SIZE, assert_same, draw, dtype_of

import mpijax as jax
from mpijax import lax
from mpijax import numpy as jnp

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
INEXACT = ["float16", "bfloat16", "float32", "float64", "complex64", "complex128"]
# Of values that are not exact: relative to what is computed in few steps, PROD's derivatives in float16 the worst.
TOLERANCE = {"float16": 4e-2, "bfloat16": 0.25, "float32": 2e-4, "complex64": 2e-4, "float64": 1e-9, "complex128": 1e-9}


class Case:
    """One operation and dtype: what each rank gives, and what comes of it in one process that has all of it."""

    def __init__(self, name: str, dtype: str):
        self.row, self.dtype = TABLE[name], dtype
        self.linear = not any(word in name for word in ("PROD", "MAX", "MIN", "exchange"))
        self.values = self.draw(0)

    def draw(self, seed: int, batch=()):
        return [jnp.asarray(self._one((*self.row.shape(r), *batch), [seed, r])) for r in range(SIZE)]

    def _one(self, shape, seed):
        if self.dtype not in INEXACT:
            return draw(shape, self.dtype, seed=sum(seed))
        rng = np.random.default_rng(seed)
        x = rng.uniform(0.5, 1.5, shape) * rng.choice([-1, 1], shape)  # products do not vanish
        return (x + 1j * rng.uniform(-1, 1, shape) if "complex" in self.dtype else x).astype(dtype_of(self.dtype))

    @property
    def x(self):
        return self.values[RANK]

    @property
    def tangents(self):
        return self.draw(7)

    @property
    def cotangents(self):
        """Of a result that all ranks share there is one."""
        outs = self.row.model(self.values)
        return [jnp.asarray(self._one(o.shape, [9, 0 if self.row.shared else r])) for r, o in enumerate(outs)]

    def back(self, model, values, cts):
        """The cotangents of all ranks' values."""
        if self.row.shared:
            cts = [cts[0], *(jnp.zeros_like(c) for c in cts[1:])]
        return jax.vjp(model, values)[1](cts)[0]

    def curved(self, x):
        return jnp.sin(self.row.run(x * x))

    def curved_model(self, xs):
        return [jnp.sin(y) for y in self.row.model([x * x for x in xs])]

    def same(self, got, want):
        loose = TOLERANCE.get(self.dtype)
        assert_same(got, np.asarray(want), **({} if loose is None else {"rtol": loose, "atol": loose}))


def pulled(run, x, ct):
    return jax.vjp(run, x)[1](ct)[0]


# ---------------------------------------------------------------- (result of this rank, what it should be)


def value(c):
    want = c.row.model(c.values)[RANK]
    return [(c.row.run(c.x), want), (jax.jit(c.row.run)(c.x), want)]


def vmap(c):
    values = c.draw(3, (2, 2))
    want = [[c.row.model([v[..., i, j] for v in values])[RANK] for j in range(2)] for i in range(2)]
    got = jax.jit(jax.vmap(jax.vmap(c.row.run, -1), -2))(values[RANK])
    return [(got, jnp.stack([jnp.stack(w) for w in want]))]


def the_same_for_all_examples(c):
    want = c.row.model(c.values)[RANK]
    return [(jax.vmap(lambda _: c.row.run(c.x))(jnp.arange(2)), jnp.stack([want, want]))]


def loops(c):
    want = c.row.model(c.values)[RANK]
    none = jnp.zeros_like(want)

    def turns(x, n):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, c.row.run(x)), (0, none))[1]

    return [
        (jax.jit(lambda x: lax.scan(lambda i, _: (i, c.row.run(x)), 0, None, length=2)[1])(c.x), jnp.stack([want] * 2)),
        (jax.jit(turns)(c.x, 2), want),
        (jax.jit(turns)(c.x, 0), none),
    ]


def branches(c):
    want = c.row.model(c.values)[RANK]
    f = jax.jit(lambda p, x: lax.cond(p, c.row.run, lambda x: jnp.zeros_like(want), x))
    return [(f(True, c.x), want), (f(False, c.x), jnp.zeros_like(want))]


def jvp(c):
    want, want_dot = jax.jvp(c.row.model, (c.values,), (c.tangents,))
    got, got_dot = jax.jit(lambda x, t: jax.jvp(c.row.run, (x,), (t,)))(c.x, c.tangents[RANK])
    linear = jax.linearize(c.row.run, c.x)[1]
    return [(got, want[RANK]), (got_dot, want_dot[RANK]), (linear(c.tangents[RANK]), want_dot[RANK])]


def vjp(c):
    cts = c.cotangents
    want = c.back(c.row.model, c.values, cts)[RANK]
    return [(pulled(c.row.run, c.x, cts[RANK]), want), (jax.jit(lambda x, ct: pulled(c.row.run, x, ct))(c.x, cts[RANK]), want)]


def remat(c):
    cts = c.cotangents
    f = jax.checkpoint(c.curved)
    return [(jax.jit(lambda x, ct: pulled(f, x, ct))(c.x, cts[RANK]), c.back(c.curved_model, c.values, cts)[RANK])]


def custom_rules(c):
    cts = c.cotangents
    want = c.back(c.row.model, c.values, cts)[RANK]
    by_vjp = jax.custom_vjp(lambda x: c.row.run(x))
    by_vjp.defvjp(lambda x: (c.row.run(x), x), lambda x, ct: (2 * pulled(c.row.run, x, ct),))
    by_jvp = jax.custom_jvp(lambda x: c.row.run(x))
    by_jvp.defjvp(lambda x, t: jax.jvp(c.row.run, x, t))
    pull = jax.jit(pulled, static_argnums=0)
    return [(pull(by_vjp, c.x, cts[RANK]), 2 * want), (pull(by_jvp, c.x, cts[RANK]), want)]


def linear_transpose(c):
    if not c.linear:
        return []
    cts = c.cotangents
    want = c.back(c.row.model, c.values, cts)[RANK]
    return [(jax.jit(lambda ct: jax.linear_transpose(c.row.run, c.x)(ct)[0])(cts[RANK]), want)]


def forward_over_reverse(c):
    cts, ts = c.cotangents, c.tangents
    want = jax.jvp(lambda xs: c.back(c.curved_model, xs, cts), (c.values,), (ts,))[1][RANK]
    got = jax.jit(lambda x, t: jax.jvp(lambda x: pulled(c.curved, x, cts[RANK]), (x,), (t,))[1])(c.x, ts[RANK])
    return [(got, want)]


def forward_over_forward(c):
    ts = c.tangents
    want = jax.jvp(lambda xs: jax.jvp(c.curved_model, (xs,), (ts,))[1], (c.values,), (ts,))[1][RANK]
    got = jax.jit(lambda x, t: jax.jvp(lambda x: jax.jvp(c.curved, (x,), (t,))[1], (x,), (t,))[1])(c.x, ts[RANK])
    return [(got, want)]


def reverse_over_both(c):
    """Where the result is shared, the cotangents of the first and of the second derivative are shared by different ranks."""
    if c.row.shared:
        return []
    cts, ts = c.cotangents, c.tangents
    over_reverse = jax.vjp(lambda xs: c.back(c.curved_model, xs, cts), c.values)[1](ts)[0][RANK]
    over_forward = jax.vjp(lambda xs: jax.jvp(c.curved_model, (xs,), (ts,))[1], c.values)[1](cts)[0][RANK]
    pull = jax.jit(pulled, static_argnums=0)
    return [
        (pull(lambda x: pulled(c.curved, x, cts[RANK]), c.x, ts[RANK]), over_reverse),
        (pull(lambda x: jax.jvp(c.curved, (x,), (ts[RANK],))[1], c.x, cts[RANK]), over_forward),
    ]


def batches_of_derivatives(c):
    values, cts = c.draw(3, (2,)), c.cotangents
    parts = [[v[..., i] for v in values] for i in range(2)]
    want = jnp.stack([c.back(c.row.model, v, cts)[RANK] for v in parts])
    both = jnp.stack([cts[RANK]] * 2)
    return [
        (jax.jit(jax.vmap(lambda x: pulled(c.row.run, x, cts[RANK]), -1))(values[RANK]), want),
        (jax.jit(lambda x, ct: pulled(jax.vmap(c.row.run, -1), x, ct))(values[RANK], both), jnp.moveaxis(want, 0, -1)),
    ]


def derivatives_of_loops(c):
    cts, ts = c.cotangents, c.tangents
    back = c.back(c.row.model, c.values, cts)[RANK]
    forth = jax.jvp(c.row.model, (c.values,), (ts,))[1][RANK]

    def repeated(x):
        return lax.scan(lambda s, _: (s + lax.cond(s.size >= 0, c.row.run, c.row.run, x), None), jnp.zeros_like(cts[RANK]),
                        None, length=2)[0]  # fmt: skip

    def last(x, n):
        return lax.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, c.row.run(x)), (0, jnp.zeros_like(forth)))[1]

    pull = jax.jit(pulled, static_argnums=0)
    push = jax.jit(lambda x, t, n: jax.jvp(lambda x: last(x, n), (x,), (t,))[1])
    return [(pull(repeated, c.x, cts[RANK]), 2 * back), (push(c.x, ts[RANK], 2), forth)]


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
        for name in (n for n in TABLE if possible(n, dtype)):
            compare(check, name, dtype)


def compare(check, name: str, dtype: str) -> None:
    case = Case(name, dtype)
    for number, (got, want) in enumerate(check(case)):
        try:
            case.same(got, want)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__} {number} of {name} in {dtype}: {error}") from None


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["allreduce-SUM", "scan-MAX", "scatterv", "exchange"])
@pytest.mark.parametrize("check", [the_same_for_all_examples, remat, custom_rules, reverse_over_both, batches_of_derivatives],
                         ids=lambda f: f.__name__)  # fmt: skip
def test_some(check, name):
    """What the tests of operations leave out."""
    compare(check, name, "float32")


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
