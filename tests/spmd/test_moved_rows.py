"""Operations that move rows of a split array: results, gradients, and the bytes that ranks send for them."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, mesh_2d, real

import mpijax as jax
from mpijax import NamedSharding
from mpijax import numpy as jnp
from mpijax.ops.indexing import rows_on_request
from mpijax.runtime.program.traffic import sent

pytestmark = pytest.mark.mpi
many = pytest.mark.skipif(SIZE == 1, reason="one rank has all of every array")

N = 12 * SIZE
X = real((N, 3))
ROWS = P("i")


def split(x, spec=ROWS, mesh=None):
    return jax.device_put(x, NamedSharding(mesh or mesh_1d(), spec))


def traffic(f, *xs):
    return sent(jax.jit(f).lower(*xs).compiler_ir())


def bytes_of(f, *xs):
    return sum(s.total for s in traffic(f, *xs))


def check(f, *xs, cut_off: int = 0, rtol: float = 1e-6):
    """Compares results, gradients and a batch of results on split arrays with those on whole arrays.

    The function receives each array without its first `cut_off` rows, so ranks have unequal parts.
    """

    def cut(*ys):
        return f(*(y[cut_off:] for y in ys))

    def loss(*ys):
        return jnp.sum(jnp.sin(cut(*ys)))

    ys = [split(x) for x in xs]
    assert_same(jax.jit(cut)(*ys), np.asarray(cut(*xs)), rtol=rtol, atol=1e-6)
    for got, want in zip(jax.jit(jax.grad(loss, range(len(xs))))(*ys), jax.grad(loss, range(len(xs)))(*xs), strict=True):
        assert_same(got, np.asarray(want), rtol=1e-5, atol=1e-5)
    batch = [np.stack([x, -x, 2 * x], 1) for x in xs]
    mapped = jax.vmap(cut, in_axes=1, out_axes=1)
    assert_same(jax.jit(mapped)(*map(split, batch)), np.asarray(mapped(*batch)), rtol=rtol, atol=1e-6)


# ---------------------------------------------------------------- copies


@pytest.mark.sweep
@pytest.mark.parametrize("cut_off", [0, 1])
@pytest.mark.parametrize("reps", [(2, 1), (3, 2), (SIZE + 2, 1), (1, 4), (0, 1)], ids=str)
@pytest.mark.one_in(2)
def test_tiled(reps, cut_off):
    check(lambda x: jnp.tile(x, reps), X, cut_off=cut_off)


def test_tiled_along_two_split_axes():
    mesh = mesh_2d((SIZE // 2, 2) if SIZE % 2 == 0 else (SIZE, 1))
    x = real((N, N))
    for reps in ((2, 3), (SIZE + 1, 2)):
        got = jax.jit(lambda x: jnp.tile(x, reps))(split(x, P("i", "j"), mesh))  # noqa: B023
        assert_same(got, np.tile(x, reps))


@many
def test_a_tiled_array_stays_split():
    x = split(X)
    assert not any("gather" in s.kind for s in traffic(lambda x: jnp.tile(x, (2, 1)) if SIZE > 2 else x, x))
    assert bytes_of(lambda x: jnp.tile(x, (2, 1)), x) <= 2 * X.nbytes / SIZE
    for copies in (2, SIZE + 1):
        got = jax.jit(lambda x: jnp.tile(x, (copies, 1)))(x)  # noqa: B023
        assert not got.is_fully_replicated


@many
def test_a_whole_array_is_split_like_the_rows_written_into_it():
    def f(x):
        return jnp.zeros((N + SIZE, 3)).at[1 : N + 1].set(x)

    got = jax.jit(f)(split(X))
    assert_same(got, np.asarray(f(X)))
    assert not got.is_fully_replicated
    assert bytes_of(f, split(X)) < X.nbytes / 2
    few = jax.jit(lambda x: jnp.zeros((4 * N, 3)).at[:N].set(x))(split(X))
    assert few.is_fully_replicated


# ---------------------------------------------------------------- rows at any positions

AT = np.random.default_rng(5).permutation(N)
SOME = np.random.default_rng(6).integers(-N, N, N)  # with repeats
BESIDE = np.random.default_rng(7).integers(-3 * N, 3 * N, (2 * SIZE, SIZE))


@pytest.mark.parametrize("cut_off", [0, 1])
@pytest.mark.one_in(2)
def test_rows_in_another_order(cut_off):
    order = np.argsort(np.argsort(AT[: N - cut_off]))
    check(lambda x: x[order], X, cut_off=cut_off)
    check(lambda x: x[SOME[: N - cut_off] % (N - 1)], X, cut_off=cut_off)
    check(lambda x: x[SOME % (N - 1)].T[0], X, cut_off=cut_off)


@pytest.mark.parametrize("mode", ["clip", "fill", "wrap"])
@pytest.mark.parametrize("of_positions", [P(), P("i"), P(None, "i")], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.one_in(3)
def test_positions_beside_the_array(mode, of_positions, axis):
    x, spec = (X, P("i")) if axis == 0 else (X.T.copy(), P(None, "i"))
    f = lambda x, at: jnp.take(x, at, axis=axis, mode=mode)
    assert_same(jax.jit(f)(split(x, spec), split(BESIDE, of_positions)), np.asarray(f(x, BESIDE)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64"])
def test_positions_of_every_type(dtype):
    at = (AT % 100).astype(dtype)
    assert_same(jax.jit(lambda x, at: x[at])(split(X), split(at)), X[at])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64", "uint8"])
def test_rows_of_every_type(dtype):
    x = X > 0 if dtype == "bool" else X.astype(jnp.dtype(dtype))
    assert_same(jax.jit(lambda x, at: x[at])(split(x), split(AT)), x[AT])


def test_unique_positions_some_of_which_are_beside_the_array():
    at = np.where(AT % 3 == 0, AT + 5 * N, AT)
    f = jax.jit(lambda x, at: x.at[at].get(mode="fill", unique_indices=True, fill_value=-7))
    want = np.where((at < N)[:, None], X[at % N], np.float32(-7))
    assert_same(f(split(X), split(at)), want)
    assert_same(f(split(X), at), want)


def test_positions_over_two_mesh_axes():
    mesh = mesh_2d((SIZE // 2, 2) if SIZE % 2 == 0 else (SIZE, 1))
    x = real((N, 4 * SIZE))
    for spec, of_positions in ((P("i", "j"), P("i")), (P("j", "i"), P("i")), (P(("i", "j")), P("j")), (P("j"), P())):
        got = jax.jit(lambda x, at: x[at])(split(x, spec, mesh), split(AT, of_positions, mesh))
        assert_same(got, x[AT])


def test_permutations_of_rows():
    for cut_off in (0, 1):
        f = lambda x: jax.random.permutation(jax.random.key(3), x[cut_off:])  # noqa: B023
        assert_same(jax.jit(f)(split(X)), np.asarray(f(X)))
        check(lambda x: jax.random.permutation(jax.random.key(3), x), X, cut_off=cut_off)


WRITES = {
    "add": lambda x, at, new: x.at[at].add(new, mode="fill", unique_indices=True),
    "set": lambda x, at, new: x.at[at].set(new, mode="fill", unique_indices=True),
    "max": lambda x, at, new: x.at[at].max(new, mode="promise_in_bounds", unique_indices=True),
    "columns": lambda x, at, new: (x.T.at[:, at].multiply(new.T, mode="fill", unique_indices=True)).T,
}


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.one_in(2)
def test_rows_are_sent_to_their_owners(name):
    """Whether the array is split or not; positions beside it are dropped, except where the program promises none."""
    f, new = WRITES[name], real((N, 3), 5)
    at = AT if name == "max" else np.where(AT % 5 == 0, AT + 3 * N, AT)
    want = np.asarray(f(jnp.asarray(X), jnp.asarray(at), jnp.asarray(new)))
    for x in (split(X), split(X, P())):
        args = x, split(at), split(new)
        assert_same(jax.jit(f)(*args), want)
        assert SIZE == 1 or {t.kind for t in traffic(f, *args)} == {"alltoall", "alltoallv"}
    uneven = lambda x, at, new: f(x[1:], at[1:], new[1:])
    at = np.argsort(np.append(-1, AT[1:]))
    args = X, np.append(0, at[1:] - 1), new
    assert_same(jax.jit(uneven)(*map(split, args)), np.asarray(uneven(*map(jnp.asarray, args))))


@many
def test_the_gradient_of_a_permutation_is_sent_back():
    f = lambda x: jnp.sum(jnp.sin(jax.random.permutation(jax.random.key(3), x)) * x)
    assert_same(jax.jit(jax.grad(f))(split(X)), np.asarray(jax.grad(f)(jnp.asarray(X))), rtol=1e-5, atol=1e-5)
    assert bytes_of(jax.grad(f), split(X)) < 3 * X.nbytes / SIZE + 100


@pytest.mark.parametrize("cut_off", [0, 1])
def test_rows_are_requested_in_passes(monkeypatch, cut_off):
    monkeypatch.setattr(rows_on_request, "PASS", 0)
    monkeypatch.setattr(rows_on_request, "FEW", 1)
    x, rows = split(X), np.random.default_rng(9).integers(-2 * N, 2 * N, (N - 5, 1))
    f = lambda x, at: jnp.take(x[cut_off:], at[cut_off:, 0], axis=0, mode="fill")
    assert_same(jax.jit(f)(x, rows), np.asarray(f(X, rows)))
    assert_same(jax.jit(f)(x, split(np.resize(rows, (N, 1)))), np.asarray(f(X, np.resize(rows, (N, 1)))))
    shuffled = lambda x: jax.random.permutation(jax.random.key(3), x[cut_off:])
    assert_same(jax.jit(shuffled)(x), np.asarray(shuffled(X)))
    if SIZE > 1:
        found = [s for s in traffic(f, x, rows) if "alltoall" in s.kind]
        assert found and all(s.times > 1 for s in found)


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_unique_elements(dtype):
    x = np.random.default_rng(8).integers(0, 9, N).astype(dtype)
    f = lambda x: jnp.unique(x[1:], True, True, True, size=12, fill_value=-1)
    for got, want in zip(jax.jit(f)(split(x)), f(x), strict=True):
        assert_same(got, np.asarray(want))


@many
def test_only_the_requested_rows_are_sent():
    x, row = split(X), X.nbytes / N
    part = (N / SIZE) * (SIZE - 1) / SIZE
    alone = {"at a permutation": (lambda x: jax.random.permutation(jax.random.key(0), x), part * (row + 4)),
             "at split positions": (lambda x: x[jnp.argsort(x[:, 0])], None)}  # fmt: skip
    for f, most in alone.values():
        found = traffic(f, x)
        assert not any("allgather" in s.kind and s.received >= X.nbytes for s in found)
        assert most is None or sum(s.total for s in found) <= most + 8 * SIZE
    assert not jax.jit(lambda x: x[AT])(x).is_fully_replicated
    assert jax.jit(lambda x: x[AT[:2]])(x).is_fully_replicated
