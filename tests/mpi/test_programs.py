"""Programs that differ between ranks, grids of ranks, status objects, and wrong calls."""

from __future__ import annotations

import numpy as np
import pytest
from mpi4py import MPI
from spmd.ranks import SIZE, assert_same, draw, real

import mpijax as jax
import mpijax.mpi as mpi4jax
from mpijax import lax, mpi
from mpijax import numpy as jnp
from mpijax.runtime.mpi import mpi_start
from mpijax.runtime.reports.recorder import recorder

pytestmark = pytest.mark.mpi
RANK = jax.process_index()
VALUES = [real((3,), seed=r) for r in range(SIZE)]
X = VALUES[RANK]
several = pytest.mark.skipif(SIZE < 2, reason="needs two ranks")


def close(got, want):
    assert_same(got, np.asarray(want), rtol=2e-5, atol=2e-5)


# ---------------------------------------------------------------- differentiated on all ranks alike


@pytest.mark.parametrize("way", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_a_loss_that_only_the_root_has(way):
    """The others' results do not depend on x, and still their values do on the root."""

    def loss(x):
        everyone = mpi.gather(x**2, 0)
        return jnp.sum(jnp.arange(SIZE)[:, None] * everyone**2) if RANK == 0 else 0.0

    close(way(jax.grad(loss))(X), RANK * 4 * X**3)


@pytest.mark.parametrize("way", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_parameters_that_only_the_root_has(way):
    def loss(w):
        shared = mpi.bcast(jnp.sin(w) if RANK == 0 else jnp.zeros(3), 0)
        return jnp.sum((RANK + 1) * shared)

    close(way(jax.grad(loss))(X), np.cos(X) * SIZE * (SIZE + 1) / 2 if RANK == 0 else np.zeros(3, np.float32))


@several
@pytest.mark.parametrize("way", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_the_receiver_depends_on_nothing_of_its_own(way):
    """A pipeline: what the first rank has is squared by each, and the last one has the loss."""

    def loss(x):
        y = x if RANK == 0 else mpi.recv(jnp.zeros(3), RANK - 1)
        y = jnp.sin(y * y)
        if RANK + 1 < SIZE:
            mpi.send(y, RANK + 1)
            return 0.0
        return jnp.sum(y)

    def whole(x):
        for _ in range(SIZE):
            x = jnp.sin(x * x)
        return jnp.sum(x)

    close(way(jax.grad(loss))(X), jax.grad(whole)(X) if RANK == 0 else np.zeros(3, np.float32))
    tangent = way(lambda x: jax.jvp(loss, (x,), (jnp.ones(3),)))(X)[1]
    close(tangent, jax.jvp(whole, (VALUES[0],), (np.ones(3, np.float32),))[1] if RANK + 1 == SIZE else np.float32(0))


@several
def test_hessian_of_a_pipeline():
    def loss(x):
        if RANK == 0:
            mpi.send(jnp.sin(x), 1)
        if RANK != 1:
            return jnp.sum(x**3)
        return jnp.sum(mpi.recv(x, 0) ** 2 * x)

    got = jax.hessian(loss)(X)

    def whole(x, y):
        return jnp.sum(jnp.sin(x) ** 2 * y) + jnp.sum(x**3)

    if RANK == 0:
        # Tangents run on all ranks together: in direction i of every rank's x.
        d = jax.hessian(whole, argnums=(0, 1))(X, VALUES[1])
        close(got, d[0][0] + d[0][1])


def test_jacobians():
    w = np.stack([real((3,), seed=9 + r) for r in range(SIZE)])[RANK]

    def f(x):
        return jnp.sin(mpi.sendrecv(x * w, x, (RANK - 1) % SIZE, (RANK + 1) % SIZE))

    def all_ranks(xs):
        ws = [real((3,), seed=9 + r) for r in range(SIZE)]
        return [jnp.sin(xs[(r - 1) % SIZE] * ws[(r - 1) % SIZE]) for r in range(SIZE)]

    full = jax.jacrev(all_ranks)(VALUES)
    # Row i of every rank's result at once: the sum over ranks of what they have of x here.
    close(jax.jacrev(f)(X), sum(full[r][RANK] for r in range(SIZE)))
    close(jax.jacfwd(f)(X), sum(full[RANK]))


@pytest.mark.parametrize("transform", [lambda f: f, jax.checkpoint], ids=["plain", "checkpoint"])
def test_custom_rules_and_checkpoint(transform):
    @jax.custom_vjp
    def doubled(x):
        return mpi.allgather(x)

    doubled.defvjp(lambda x: (mpi.allgather(x), None), lambda _, ct: (2 * mpi.reduce_scatter(ct, MPI.SUM),))
    g = jax.grad(transform(lambda x: jnp.sum(doubled(x**2) * (RANK + 1))))(X)
    close(g, 2 * SIZE * (SIZE + 1) / 2 * 2 * X)


@several
def test_what_is_sent_from_a_checkpointed_function_is_sent_again_with_it():
    """The first rank only sends, and needs nothing of that for its derivative; the second one receives."""

    def pair(x):
        if RANK == 0:
            mpi.send(x, 1)
            return x
        return x * mpi.recv(x, 0) if RANK == 1 else x

    def loss(x):
        return jnp.sum(lax.fori_loop(0, 3, lambda _, x: jax.checkpoint(pair)(x), x))

    a, b = VALUES[:2]
    close(jax.jit(jax.grad(loss))(X), {0: 1 + 3 * b * a**2, 1: a**3}.get(RANK, np.ones_like(X)))


def test_pvary():
    """A norm over all ranks, with which each goes on in its own way."""
    weights = [real((3,), seed=20 + r) for r in range(SIZE)]

    def loss(x):
        norm = mpi.pvary(mpi.allreduce(jnp.sum(x**2), MPI.SUM))
        return mpi.allreduce(jnp.sum(weights[RANK] * x / norm), MPI.SUM)

    def whole(xs):
        norm = sum(jnp.sum(x**2) for x in xs)
        return sum(jnp.sum(w * x / norm) for w, x in zip(weights, xs))

    close(jax.grad(loss)(X), jax.grad(whole)(VALUES)[RANK])
    close(jax.jit(jax.grad(loss))(X), jax.grad(whole)(VALUES)[RANK])


def test_conjugate_gradients_with_a_distributed_operator():
    """A x = b for A = D + neighbours, symmetric; `linear_transpose` of the operator gives the same operator."""
    d = 4 + abs(X)

    def operator(v):
        right, left = (RANK + 1) % SIZE, (RANK - 1) % SIZE
        return d * v + mpi.sendrecv(v, v, left, right) + mpi.sendrecv(v, v, right, left)

    close(jax.linear_transpose(operator, X)(X)[0], operator(X))

    def dot(a, b):
        return mpi.allreduce(jnp.vdot(a, b), MPI.SUM)

    @jax.jit
    def solve(b):
        def step(state):
            x, r, p, rr = state
            ap = operator(p)
            alpha = rr / dot(p, ap)
            r_new = r - alpha * ap
            rr_new = dot(r_new, r_new)
            return x + alpha * p, r_new, r_new + rr_new / rr * p, rr_new

        return lax.while_loop(lambda s: s[3] > 1e-10, step, (jnp.zeros_like(b), b, b, dot(b, b)))[0]

    assert_same(operator(solve(X)), X, rtol=1e-4, atol=1e-4)


def test_an_operation_under_vmap_is_one_of_the_whole_batch_on_all_ranks():
    def f(x):
        y = mpi.recv(jnp.zeros(()), RANK - 1) if RANK else x
        if RANK + 1 < SIZE:
            mpi.send(y + 1, RANK + 1)
        return y

    close(jax.vmap(f)(X), VALUES[0] + RANK)


# ---------------------------------------------------------------- mpi4jax


def test_the_names_of_mpi4jax():
    names = "allgather allreduce alltoall barrier bcast gather recv reduce scan scatter send sendrecv".split()
    assert all(callable(getattr(mpi4jax, n)) for n in names)
    assert mpi4jax.has_cuda_support() is False and mpi4jax.has_sycl_support() is False
    comm = MPI.COMM_WORLD.Clone()
    close(mpi4jax.allreduce(X, op=MPI.SUM, comm=comm), sum(VALUES))
    close(mpi4jax.allreduce(1.5, op=MPI.SUM), np.float32(1.5 * SIZE))
    comm.Free()


@pytest.mark.parametrize("way", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_status(way):
    status, other = MPI.Status(), MPI.Status()

    def f(x):
        a = mpi.sendrecv(x, x, (RANK - 1) % SIZE, (RANK + 1) % SIZE, sendtag=5, status=status)
        if SIZE == 1:
            return a
        if RANK == 1:
            mpi.send(x, 0, tag=11)
        return mpi.recv(x, tag=11, status=other) if RANK == 0 else a

    f = way(f)
    for _ in range(2):
        status.Set_tag(0)
        f(X)
        assert (status.Get_source(), status.Get_tag(), status.Get_count(MPI.BYTE)) == ((RANK - 1) % SIZE, 5, 12)
    if SIZE > 1 and RANK == 0:
        assert (other.Get_source(), other.Get_tag()) == (1, 11)


def test_nobody():
    close(mpi.recv(X, MPI.PROC_NULL), X)
    close(jax.jit(lambda x: mpi.sendrecv(x * 2, x, MPI.PROC_NULL, MPI.PROC_NULL))(X), X)
    mpi.send(X, MPI.PROC_NULL)


def test_order_of_messages_under_jit_and_dce():
    """Messages nobody reads are sent and received as well, in the order of the program."""

    @jax.jit
    def f(x):
        mpi.sendrecv(x * 100, x, (RANK - 1) % SIZE, (RANK + 1) % SIZE, sendtag=1, recvtag=1)
        return mpi.sendrecv(x, x, (RANK - 1) % SIZE, (RANK + 1) % SIZE, sendtag=1, recvtag=1)

    close(f(X), VALUES[RANK - 1])


# ---------------------------------------------------------------- grids


def test_blocks():
    assert mpi.block_sizes(10, 4) == (3, 3, 2, 2) and mpi.block_sizes(2, 3) == (1, 1, 0)
    assert [mpi.block_slice(10, 4, i) for i in (0, 3)] == [slice(0, 3), slice(8, 10)]
    assert mpi.block_slice((10, 7), (4, 1), (3, 0)) == (slice(8, 10), slice(0, 7))
    assert mpi.dims_create(12, 2) == (4, 3) and mpi.dims_create(12, (2, 0)) == (2, 6)
    with pytest.raises(ValueError, match="index must be from 0 to 3, got 4"):
        mpi.block_slice(10, 4, 4)
    with pytest.raises(ValueError, match=r"7 ranks cannot form a grid of shape \(2, 0\)"):
        mpi.dims_create(7, (2, 0))
    with pytest.raises(ValueError, match="10 elements cannot be divided into 0 parts"):
        mpi.block_sizes(10, 0)


def test_split():
    comm = mpi.split(RANK % 2, key=-RANK)
    members = [v for r, v in enumerate(VALUES) if r % 2 == RANK % 2][::-1]
    close(mpi.allgather(X, comm=comm), np.stack(members))
    comm.Free()
    with pytest.raises(ValueError, match="allgather: the communicator is MPI.COMM_NULL. It was freed"):
        mpi.allgather(X, comm=comm)


def padded(field, cart, periods, widths, outside=-1):
    """Each rank's part with its halo, from the whole field; outside of it is -1."""
    inner = [n // d for n, d in zip(field.shape, cart.dims)]
    starts = [c * n for c, n in zip(cart.coords, inner)]
    for axis, (wraps, width) in enumerate(zip(periods, widths)):
        how = {"mode": "wrap"} if wraps else {"mode": "constant", "constant_values": outside}
        field = np.pad(field, [(width, width) if i == axis else (0, 0) for i in range(field.ndim)], **how)
    return field[tuple(slice(s, s + n + 2 * w) for s, n, w in zip(starts, inner, widths))]


@pytest.mark.parametrize("periods", [(True, True), (True, False), (False, False)], ids=str)
@pytest.mark.parametrize("width", [1, 2])
def test_halo_exchange(periods, width):
    cart = mpi.create_cart(2, periods)
    assert np.prod(cart.dims) == SIZE
    field = np.arange(144, dtype=np.float32).reshape(12, 12)
    want = padded(field, cart, periods, (width, width))
    start = np.full_like(want, -1)
    inside = (slice(width, -width), slice(width, -width))
    start[inside] = want[inside]
    f = jax.jit(lambda x: mpi.halo_exchange(x, cart, halo=width))
    assert_same(f(start), want)
    assert_same(mpi.halo_exchange(start, cart, halo=(width, width), axes=(0, 1)), want)
    batch = jax.vmap(f, in_axes=2, out_axes=2)(np.stack([start, start], axis=2))
    assert_same(batch, np.stack([want, want], axis=2))
    cart.Free()


@pytest.mark.parametrize("dtype", ["bool", "int8", "bfloat16", "float32", "complex64"])
def test_halos_along_any_axes(dtype):
    """The grid's axes are axes 2 and 0 of the array, with halos of their own; reverse mode is the adjoint."""
    cart = mpi.create_cart(2, periods=(False, True))
    fields = [draw((12, 12), dtype, seed=90 + k) for k in range(3)]
    wants = [padded(f, cart, (False, True), (2, 1), outside=0) for f in fields]
    inside = [np.pad(w[2:-2, 1:-1], ((2, 2), (1, 1))) for w in wants]
    x, want = np.stack(inside).transpose(2, 0, 1), np.stack(wants).transpose(2, 0, 1)

    def exchange(x):
        return mpi.halo_exchange(x, cart, halo=(2, 1), axes=(2, 0))

    assert_same(jax.jit(exchange)(x), want)
    if dtype in ("float32", "complex64"):
        y = np.asarray(real(x.shape, seed=RANK), dtype)
        back = jax.jit(jax.linear_transpose(exchange, x))(y)[0]
        total = MPI.COMM_WORLD.allreduce(np.array([np.sum(want * y), np.sum(x * np.asarray(back))]))
        np.testing.assert_allclose(total[0], total[1], rtol=1e-4)
    cart.Free()


def test_gradient_of_a_halo_exchange():
    """Of a sum of products over the edges of a ring, divided among the ranks."""
    cart = mpi.create_cart(1, True)
    values = [real((4,), seed=30 + r) for r in range(SIZE)]
    ring = np.concatenate(values)

    def energy(x):
        x = mpi.halo_exchange(jnp.pad(x, 1), cart)
        return mpi.allreduce(jnp.sum(jnp.sin(x[1:-1] * x[2:])), MPI.SUM)

    want = jax.grad(lambda x: jnp.sum(jnp.sin(x * jnp.roll(x, -1))))(ring)[4 * RANK : 4 * RANK + 4]
    close(jax.grad(energy)(values[RANK]), want)
    close(jax.jit(jax.grad(energy))(values[RANK]), want)
    cart.Free()


# ---------------------------------------------------------------- wrong calls


@pytest.mark.parametrize("call, error, text", [
    (lambda: mpi.reduce(X, MPI.SUM, SIZE), ValueError, f"reduce: root must be a rank of the communicator, 0 to {SIZE - 1}"),
    (lambda: mpi.gather(X, -1), ValueError, "gather: root must be a rank"),
    (lambda: mpi.scatter(X, 1.0), TypeError, "scatter: root must be an int; .* got: <class 'float'> 1.0"),
    (lambda: jax.jit(lambda r: mpi.bcast(X, r))(0), TypeError, "root must be .* abstract tracer was passed"),
    (lambda: mpi.send(X, SIZE), ValueError, "send: dest must be a rank of the communicator"),
    (lambda: mpi.send(X, MPI.ANY_SOURCE), ValueError, "send: dest must be a rank of the communicator"),
    (lambda: mpi.recv(X, SIZE), ValueError, "recv: source must be a rank .* or MPI.ANY_SOURCE"),
    (lambda: mpi.send(X, 0, tag=-1), ValueError, "send: tag must be from 0 to"),
    (lambda: mpi.recv(X, 0, status=3), TypeError, "recv: status must be a status object of mpi4py"),
    (lambda: mpi.alltoall(np.ones((SIZE + 1, 2), np.float32)), ValueError, f"first axis must have {SIZE} elements"),
    (lambda: mpi.alltoall(np.float32(1)), ValueError, r"Alltoall input must have shape \(nproc, ...\): the first axis must have"),
    (lambda: mpi.allgatherv(X, [4] * SIZE), ValueError, r"the first axis must have 4 elements, counts\["),
    (lambda: mpi.allgatherv(X, [3]), ValueError, "one entry for each") if SIZE > 1 else
    (lambda: mpi.allgatherv(X, [3, 3]), ValueError, "one entry for each"),
    (lambda: mpi.gatherv(X, [-3] * SIZE, 0), ValueError, "counts must not be negative"),
    (lambda: mpi.alltoallv(X, [1] * SIZE, [2] * SIZE), ValueError, "first axis must have|but expects 2"),
    (lambda: mpi.reduce_scatter(X, MPI.SUM, counts=[5] * SIZE), ValueError, "the sum of counts"),
    (lambda: mpi.allreduce(X, op=MPI.MAXLOC), ValueError, "cannot be reduced with"),
    (lambda: mpi.scan(X, op=None), TypeError, "scan: op must be an operation of mpi4py"),
    (lambda: jax.jit(lambda x: mpi.allreduce(x, MPI.BAND))(X), TypeError, "allreduce: 'band' does not support"),
    (lambda: mpi.allgather(X, comm=MPI.COMM_NULL), ValueError, "allgather: the communicator is MPI.COMM_NULL"),
    (lambda: mpi.halo_exchange(X, None), TypeError, "comm must be a Cartesian communicator"),
    (lambda: mpi.create_cart((SIZE + 1,)), ValueError, "cannot form a grid"),
    (lambda: mpi.split(-3), ValueError, "split: color must not be negative, got -3"),
    (lambda: mpi.split("a"), TypeError, "split: color must be an int"),
    (lambda: mpi.allreduce(jax.random.key(0), MPI.SUM), TypeError, "PRNG keys, key<fry>.*, cannot be reduced"),
    (lambda: mpi.allreduce(X, MPI.SUM, comm="world"), TypeError, "comm must be a communicator of mpi4py .* got 'world'"),
    (lambda: mpi.allreduce(X, max), TypeError, "op must be an operation of mpi4py such as MPI.SUM, got <built-in"),
    (lambda: mpi.allreduce(X, "avg"), ValueError, "unknown reduction 'avg'. The reductions are SUM"),
    (lambda: mpi.allgather([X]), TypeError, "allgather takes an array or a scalar, got list.*jax.tree.map to call allgather for each"),
    (lambda: mpi.bcast(X, True), TypeError, "bcast: root must be an int; .* <class 'bool'> True"),
])  # fmt: skip
def test_wrong_calls(call, error, text):
    with pytest.raises(error, match=text):
        call()


OF_MPI4JAX = ["allgather", "allreduce", "alltoall", "barrier", "bcast", "gather", "recv", "reduce", "scan", "scatter", "send", "sendrecv"]


@pytest.mark.parametrize("name", OF_MPI4JAX)
def test_tokens_are_not_taken_any_more(name):
    """RuntimeError, as in mpi4jax; also for the token None, whose result would be unpacked."""
    instead = {"barrier": r"token = barrier\(..., token=token\)` write `barrier\(...\)`"}
    text = instead.get(name, rf"does not take a token: .* write `.*{name}\(...\)`")
    for token in (None, jax.lax.create_token()):
        with pytest.raises(RuntimeError, match=text):
            getattr(mpi4jax, name)(X, token=token)


@pytest.mark.parametrize("shape, settings, error, text", [
    ((5, 9), {"halo": (2, 1)}, ValueError, "axis 0 of an array of shape .* needs at least 6 cells"),
    ((9, 9), {"halo": 1.5}, TypeError, "halo must be an int"),
    ((9, 9), {"halo": -1}, ValueError, "halo must not be negative, got -1"),
    ((9, 9), {"axes": (1, -1)}, ValueError, r"axes \(1, -1\) of an array of shape \(9, 9\) must be different"),
    ((9, 9), {"axes": (0,)}, ValueError, "must have one entry for each of the 2 axes"),
    ((9,), {}, ValueError, r"axis 1 is out of bounds for an array of shape \(9,\)"),
])  # fmt: skip
def test_wrong_halos(shape, settings, error, text):
    cart = mpi.create_cart(2, True)
    with pytest.raises(error, match=text):
        mpi.halo_exchange(np.ones(shape, np.float32), cart, **settings)
    cart.Free()


def test_a_communicator_that_is_freed_after_its_program_was_compiled():
    comm = MPI.COMM_WORLD.Dup()
    f = jax.jit(lambda x: mpi.allreduce(x, MPI.SUM, comm=comm))
    close(f(X), np.sum(VALUES, axis=0))
    traced = jax.jit(f).trace(X)
    comm.Free()
    with pytest.raises(RuntimeError, match="invalid communicator: it was freed after the program was traced"):
        traced.lower().compile()(X)
    other = MPI.COMM_WORLD.Dup()  # may have the same handle
    for _ in range(2):
        with pytest.raises(RuntimeError, match="allreduce on rank .*invalid communicator: it was freed(.|\n)*test_programs.py"):
            f(X)
    other.Free()


def test_what_communicators_keep_goes_with_them():
    """mpi4py's attributes end in memory that is gone, where a communicator has two of them."""
    told, many = [], [mpi_start.start().ext.Attribute(lambda x: told.append(x)) for _ in range(5)]
    for turn in range(20):
        comm = MPI.COMM_WORLD.Dup()
        assert [a.get(comm) for a in many] == [None] * 5
        for k, a in enumerate(many):
            a.set(comm, (turn, k))
        other = comm.Dup()
        assert many[3].get(comm) == (turn, 3) and many[3].get(other) is None
        comm.Free()
        other.Free()
        assert sorted(told) == [(turn, k) for k in range(5)]
        told.clear()


def test_a_communicator_is_not_taken_for_one_that_was_freed():
    """Its handle may be that of another one before it, and on some ranks only."""
    names, kept = [], []
    for _ in range(3):
        first, second = MPI.COMM_WORLD.Dup(), MPI.COMM_WORLD.Dup()
        for comm in (first, second):
            close(mpi.allreduce(X, MPI.SUM, comm=comm), np.sum(VALUES, axis=0))
            names.append(recorder.group(comm, mpi_start.world(), users=True).name)
            assert recorder.group(comm, mpi_start.world()).name == names[-1]
        for comm in (first, second):
            comm.Free()
        if RANK % 2:
            kept.append(MPI.COMM_SELF.Dup())  # has a handle that other ranks use anew
    for comm in kept:
        comm.Free()
    assert len(set(names)) == 6
    assert MPI.COMM_WORLD.allgather(names) == [names] * SIZE


@pytest.mark.parametrize("way", [lambda f: f, jax.jit], ids=["eager", "jit"])
@pytest.mark.parametrize("n", [4, 1 << 15], ids=["short", "long"])
def test_a_message_that_is_shorter_than_its_place(way, n):
    x = np.arange(1, n + 1, dtype=np.float32)
    there, back = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    status = MPI.Status()
    got = way(lambda x: mpi.sendrecv(x[: n // 2], x, back, there, status=status))(x)
    assert np.array_equal(got, np.where(x <= n // 2, x, 0)) and status.Get_count(MPI.FLOAT) == n // 2
    with pytest.raises(RuntimeError, match="shorter than the array(.|\n)*test_programs.py"):
        way(lambda x: mpi.sendrecv(x[: n // 2], x, back, there))(x)
    way(lambda x: mpi.send(x[: n // 2], RANK))(x)
    with pytest.raises(RuntimeError, match="shorter than the array(.|\n)*test_programs.py"):
        way(lambda x: mpi.recv(x, RANK))(x)


def test_a_message_from_any_source_has_no_way_back():
    with pytest.raises(ValueError, match="recv from MPI.ANY_SOURCE cannot be transposed"):
        jax.linear_transpose(lambda x: mpi.recv(x), X)(X)


def test_errors_of_mpi_name_operation_rank_and_line():
    """A message that is too long for its receiver."""

    def f(x):
        return mpi.sendrecv(x, jnp.zeros(1), RANK, RANK)

    with pytest.raises(RuntimeError, match=rf"sendrecv on rank {RANK} \(12 .*4 to receive\)(.|\n)*test_programs.py"):
        jax.jit(f)(X)
    mpi.barrier()


def test_ranks_that_get_no_rows():
    """Their result is empty, and may lie where what they give begins, which MPI forbids."""
    counts = [3] + [0] * (SIZE - 1)

    def f(x):
        return mpi.reduce_scatter(2 * x, MPI.SUM, counts=counts) + 1

    want = 2 * np.sum(VALUES, axis=0)[: counts[RANK]] + 1
    close(jax.jit(f)(X), want)
    close(jax.jit(jax.vmap(f, 1, 1))(np.stack([X, X], 1)), np.stack([want, want], 1))


def test_derivatives_by_no_elements():
    """With no rows there are no directions in which to go forwards."""
    nothing = jnp.zeros((0, 2))
    assert jax.jacfwd(mpi.allgather)(nothing).shape == (SIZE, 0, 2, 0, 2)
    assert jax.jacrev(mpi.allgather)(nothing).shape == (SIZE, 0, 2, 0, 2)


def test_integers_have_no_derivative_and_do_no_harm():
    counts = draw((2,), "int32", seed=RANK)
    g = jax.grad(lambda x: jnp.sum(x) * jnp.sum(mpi.allreduce(counts, MPI.SUM)))(X)
    total = sum(draw((2,), "int32", seed=r).sum() for r in range(SIZE))
    close(g, np.full(3, total, np.float32))


def test_derivative_everywhere():
    """A product with zeros among its factors, and a maximum that several ranks have."""
    values = [np.array([0, r, 2], np.float32) for r in range(SIZE)]

    def product(xs):
        return jnp.sum(jnp.prod(jnp.stack(xs), axis=0))

    close(jax.grad(lambda x: jnp.sum(mpi.allreduce(x, MPI.PROD)))(values[RANK]), jax.grad(product)(values)[RANK])
    g = jax.grad(lambda x: jnp.sum(mpi.allreduce(x, MPI.MAX)))(values[RANK])
    close(g, np.array([1 / SIZE, RANK == SIZE - 1, 1 / SIZE], np.float32))


@pytest.mark.parametrize("name, hint", [
    ("Allreduce", "Use allreduce"), ("SUM", "MPI.SUM"), ("COMM_WORLD", "MPI.COMM_WORLD"), ("isend", "Use send"),
])  # fmt: skip
def test_names_of_mpi4py_say_where_they_are(name, hint):
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'.*{hint}"):
        getattr(mpi, name)
    assert not hasattr(mpi, "nothing") and not hasattr(mpi, "__wrapped__")
