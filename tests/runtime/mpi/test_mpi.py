"""The shims of ``mpijax._ext.mpi`` against NumPy, on data that differs by rank, for every operation, dtype
and reduction.

Runs on any number of ranks, also one: ``mpirun -n 4 python -m pytest --with-mpi -m mpi
tests/runtime/mpi/test_mpi.py``.
"""

import contextlib
import functools
import operator
import sys
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from mpijax.runtime.mpi import mpi_start

pytestmark = [pytest.mark.mpi, pytest.mark.many_ranks]  # rings, trees and shared memory of several ranks

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]
COMPLEX = ["complex64", "complex128"]
DTYPES = ["bool", *INTEGERS, *FLOATS, *COMPLEX]
SIZES = [0, 1, 7, 1000]

PAIRWISE = {
    "sum": np.add,
    "prod": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
    "land": np.logical_and,
    "lor": np.logical_or,
    "lxor": np.logical_xor,
    "band": np.bitwise_and,
    "bor": np.bitwise_or,
    "bxor": np.bitwise_xor,
}
REDUCTIONS = [
    *product(["bool", *INTEGERS], PAIRWISE),
    *product(FLOATS, ["sum", "prod", "max", "min"]),
    *product(COMPLEX, ["sum", "prod"]),
]
TOLERANCE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 1e-5, "complex64": 1e-5}


@pytest.fixture(scope="module")
def mpi():
    return mpi_start.start()


def dtype_of(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def data(name, rank, shape):
    """What rank `rank` sends: every rank can make every rank's data, to know what it should receive.

    Blocks for all ranks are not kept: on 64 ranks those of all ranks are 64 times 64 blocks.
    """
    return vector(name, rank, shape) if len(shape) == 1 else made(name, rank, shape)


def made(name, rank, shape):
    seed = np.random.SeedSequence([rank, *shape, *name.encode()])
    rng = np.random.default_rng(seed)
    dtype = dtype_of(name)
    if name == "bool":
        x = rng.integers(0, 2, shape) == 1
    elif dtype.kind in "iu":
        x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    elif dtype.kind == "c":
        x = (rng.normal(size=shape) + 1j * rng.normal(size=shape)).astype(dtype)
    else:
        x = rng.normal(size=shape).astype(dtype)
    x.flags.writeable = False
    return x


vector = functools.cache(made)


def reduced(name, op, blocks):
    """The reduction of `blocks`, one array per rank, as the dtype has it."""
    if name == "bool" and op in ("sum", "prod", "max", "min"):
        op = "lor" if op in ("sum", "max") else "land"
    if name in ("float16", "bfloat16"):
        blocks = [b.astype(np.float32) for b in blocks]
    return functools.reduce(PAIRWISE[op], blocks).astype(dtype_of(name))


def close(name, got, want):
    if name in FLOATS + COMPLEX:
        wide = np.complex128 if name in COMPLEX else np.float64
        tolerance = TOLERANCE.get(name, 1e-13)
        np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=tolerance, atol=tolerance * 4)
    else:
        np.testing.assert_array_equal(got, want)


def call(mpi, op, send, recv, **options):
    buffers = [None if x is None else x.reshape(-1).view("u1") for x in (send, recv)]
    mpi.ext.call(op, mpi.ext.handle(options.pop("comm", mpi.world)), *buffers, **options)


def reduction_arguments(mpi, op, name, count):
    datatype, operation = mpi.ext.reduction(op, dtype_of(name))
    return {"send_type": datatype, "reduction": operation, "send_count": count}


def moved(mpi, x):
    return {"send_type": mpi.ext.move_type(), "send_count": x.nbytes}


@pytest.mark.parametrize("name, op", REDUCTIONS)
@pytest.mark.one_in(4)
def test_allreduce(mpi, name, op):
    for n in SIZES:
        send, recv = data(name, mpi.rank, (n,)), np.empty(n, dtype_of(name))
        want = reduced(name, op, [data(name, r, (n,)) for r in range(mpi.size)])
        call(mpi, "allreduce", send, recv, **reduction_arguments(mpi, op, name, n))
        close(name, recv, want)
        in_place = send.copy()
        call(mpi, "allreduce", in_place, in_place, **reduction_arguments(mpi, op, name, n))
        close(name, in_place, want)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("root", [0, -1])
def test_reduce_leaves_other_ranks_what_they_sent(mpi, name, root):
    root %= mpi.size
    for n in SIZES:
        send, recv = data(name, mpi.rank, (n,)), np.empty(n, dtype_of(name))
        call(mpi, "reduce", send, recv, root=root, **reduction_arguments(mpi, "sum", name, n))
        want = (
            reduced(name, "sum", [data(name, r, (n,)) for r in range(mpi.size)]) if mpi.rank == root else send
        )
        close(name, recv, want)
        in_place = send.copy()
        call(mpi, "reduce", in_place, in_place, root=root, **reduction_arguments(mpi, "sum", name, n))
        close(name, in_place, want)


@pytest.mark.parametrize("name", DTYPES)
def test_scan_and_exscan(mpi, name):
    for n in SIZES:
        send = data(name, mpi.rank, (n,))
        before = [data(name, r, (n,)) for r in range(mpi.rank)]
        zeros = np.zeros(n, dtype_of(name))
        for op, want in (
            ("scan", reduced(name, "sum", [*before, send])),
            ("exscan", reduced(name, "sum", before) if before else zeros),
        ):
            recv, in_place = np.empty(n, dtype_of(name)), send.copy()
            call(mpi, op, send, recv, **reduction_arguments(mpi, "sum", name, n))
            close(name, recv, want)
            call(mpi, op, in_place, in_place, **reduction_arguments(mpi, "sum", name, n))
            close(name, in_place, want)


@pytest.mark.parametrize("name", DTYPES)
def test_reduce_scatter(mpi, name):
    for n in SIZES:
        send, recv = data(name, mpi.rank, (mpi.size, n)), np.empty(n, dtype_of(name))
        call(mpi, "reduce_scatter", send, recv, **reduction_arguments(mpi, "sum", name, n))
        close(
            name,
            recv,
            reduced(name, "sum", [data(name, r, (mpi.size, n))[mpi.rank] for r in range(mpi.size)]),
        )


@pytest.mark.parametrize("name", DTYPES)
def test_moves(mpi, name):
    """Operations that move data give exactly what was sent, whatever the dtype."""
    ranks = range(mpi.size)
    root = mpi.size - 1
    for n in SIZES:
        send, recv = data(name, mpi.rank, (n,)), np.zeros(n, dtype_of(name))
        call(mpi, "bcast", send, recv, root=root, **moved(mpi, send))
        np.testing.assert_array_equal(recv, data(name, root, (n,)))

        everything = np.stack([data(name, r, (n,)) for r in ranks])
        gathered = np.zeros((mpi.size, n), dtype_of(name))
        call(mpi, "allgather", send, gathered, **moved(mpi, send))
        np.testing.assert_array_equal(gathered, everything)

        gathered = np.zeros((mpi.size, n), dtype_of(name))
        call(mpi, "gather", send, gathered, root=root, **moved(mpi, send))
        np.testing.assert_array_equal(gathered, everything if mpi.rank == root else np.zeros_like(gathered))

        blocks = data(name, mpi.rank, (mpi.size, n))
        call(mpi, "scatter", blocks, recv, root=root, **moved(mpi, send))
        np.testing.assert_array_equal(recv, data(name, root, (mpi.size, n))[mpi.rank])

        exchanged = np.zeros_like(blocks)
        want = np.stack([data(name, r, (mpi.size, n))[mpi.rank] for r in ranks])
        call(mpi, "alltoall", blocks, exchanged, **moved(mpi, send))
        np.testing.assert_array_equal(exchanged, want)
        in_place = blocks.copy()
        call(mpi, "alltoall", in_place, in_place, **moved(mpi, send))
        np.testing.assert_array_equal(in_place, want)


@pytest.mark.parametrize("yielding, crowded", [(0, 0), (1, 0), (1, 1)], ids=["blocking", "yielding", "crowded"])
def test_ring(mpi, yielding, crowded):
    """Messages of lengths that differ by rank go round, by sendrecv and by send and recv."""
    right, left = (mpi.rank + 1) % mpi.size, (mpi.rank - 1) % mpi.size
    before = mpi.ext.yielding()
    mpi.ext.set_yielding(yielding)
    mpi.ext.set_crowded(crowded)
    try:
        send, want = data("float32", mpi.rank, (mpi.rank + 3,)), data("float32", left, (left + 3,))
        recv = np.empty_like(want)
        sizes = {**moved(mpi, send), "recv_count": recv.nbytes}
        call(mpi, "sendrecv", send, recv, dest=right, source=left, send_tag=5, recv_tag=5, **sizes)
        np.testing.assert_array_equal(recv, want)
        same = send.copy()
        call(mpi, "sendrecv", same, same, dest=mpi.rank, source=mpi.rank, **moved(mpi, same))
        np.testing.assert_array_equal(same, send)
        if mpi.size > 1:
            recv[:] = 0
            sizes = {"recv_type": mpi.ext.move_type(), "recv_count": recv.nbytes}
            receive = functools.partial(call, mpi, "recv", None, recv, source=left, recv_tag=9, **sizes)
            if mpi.rank == 0:
                call(mpi, "send", send, None, dest=right, send_tag=9, **moved(mpi, send))
                receive()
            else:
                receive()
                call(mpi, "send", send, None, dest=right, send_tag=9, **moved(mpi, send))
            np.testing.assert_array_equal(recv, want)
        call(mpi, "barrier", None, None)
    finally:
        mpi.ext.set_yielding(before)
        mpi.ext.set_crowded(False)


@contextlib.contextmanager
def waiting(mpi, way):
    """Ranks wait by 'blocking' or 'yielding' calls of MPI, or in memory that they share: they are 'polling' or 'sleeping'.

    On a communicator of its own, since ranks wait on each in one way.
    """
    before = mpi.world, mpi.ext.yielding()
    sleeping, sharing = mpi.ext.set_sleeping(way == "sleeping"), mpi.ext.set_sharing(way in ("polling", "sleeping"))
    mpi.ext.set_yielding(way in ("yielding", "sleeping"))
    mpi.world = mpi.world.Dup()
    try:
        yield
    finally:
        mpi.world.Free()
        mpi.world = before[0]
        mpi.ext.set_yielding(before[1])
        mpi.ext.set_sleeping(sleeping)
        mpi.ext.set_sharing(sharing)


@pytest.mark.parametrize("way", ["blocking", "yielding", "polling", "sleeping"])
@pytest.mark.one_in(2)
def test_all_ways_of_waiting_give_the_same(mpi, way):
    with waiting(mpi, way):
        for name in ("float32", "bfloat16", "complex64", "bool"):
            if name != "bool":
                test_reduce_scatter(mpi, name)
                test_scan_and_exscan(mpi, name)
            test_reduce_leaves_other_ranks_what_they_sent(mpi, name, 0)
            test_reduce_leaves_other_ranks_what_they_sent(mpi, name, -1)
            test_moves(mpi, name)
            test_allreduce(mpi, name, "sum")
        test_sub_communicators(mpi)
        test_mpi4py_operations_are_understood(mpi)
        test_nan_and_signed_zero_go_through_max_and_min(mpi)
        test_an_error_of_mpi_is_an_exception(mpi)


@pytest.mark.parametrize("way", ["polling", "sleeping"])
def test_operands_larger_than_a_slot_go_in_rounds(mpi, way, monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "SIZES", [70_001 * 4 // max(mpi.size, 4)])
    with waiting(mpi, way):
        test_reduce_scatter(mpi, "float32")
        test_scan_and_exscan(mpi, "int32")
        test_moves(mpi, "float32")
        test_allreduce(mpi, "int32", "sum")
        test_allreduce(mpi, "bfloat16", "sum")
        test_reduce_leaves_other_ranks_what_they_sent(mpi, "float32", -1)


@pytest.mark.parametrize("way", ["polling", "sleeping"])
def test_a_message_of_mpi_goes_on_while_ranks_meet(mpi, way):
    """A large message needs its sender's help, who waits for its receiver in a barrier."""
    with waiting(mpi, way):
        x = np.arange(1 << 20, dtype=np.int64)
        sent = [mpi.world.Isend(x, r) for r in range(1, mpi.size)] if mpi.rank == 0 else []
        if mpi.rank > 0:
            got = np.empty_like(x)
            mpi.world.Recv(got, 0)
            np.testing.assert_array_equal(got, x)
        call(mpi, "barrier", None, None)
        for request in sent:
            request.Wait()


def test_ranks_that_meet_for_different_things_are_told(mpi):
    """All of them, and the communicator can be used afterwards."""
    if mpi.size == 1:
        pytest.skip("nobody to differ from")
    x, y = np.ones(4, "float32"), np.empty(4, "float32")
    with waiting(mpi, "sleeping"):
        wrong = [
            lambda: call(mpi, "bcast", x, y, root=min(mpi.rank, 1), **moved(mpi, x)),
            lambda: call(mpi, "allreduce", x, y, **reduction_arguments(mpi, "sum", "float32", 2 + min(mpi.rank, 1))),
            lambda: call(mpi, "barrier" if mpi.rank else "allgather", x, np.empty((mpi.size, 4), "f4"), **moved(mpi, x)),
        ]
        for each in wrong:
            with pytest.raises(RuntimeError, match="call different operations at this point"):
                each()
            call(mpi, "allreduce", x, y, **reduction_arguments(mpi, "sum", "float32", 4))
            assert y.tolist() == 4 * [mpi.size]


@pytest.mark.parametrize("name", ["float32", "bfloat16", "int16"])
def test_messages_in_parts(mpi, name):
    """What libraries without 64-bit counts need, with parts of 3 elements in place of 2^31."""
    before = mpi.ext.set_chunk(3)
    try:
        with waiting(mpi, "yielding" if mpi.ext.yielding() else "blocking"):
            test_allreduce(mpi, name, "max")
            test_reduce_scatter(mpi, name)
            test_scan_and_exscan(mpi, name)
            test_reduce_leaves_other_ranks_what_they_sent(mpi, name, 0)
            test_moves(mpi, name)
            test_ring(mpi, True, False)
    finally:
        mpi.ext.set_chunk(before)


def test_nan_and_signed_zero_go_through_max_and_min(mpi):
    """NaN of any rank is the result, and +0 is above -0, in whatever order the ranks are combined."""
    for name in FLOATS:
        send = np.array(
            [np.nan if mpi.rank == 0 else 1.0, np.nan if mpi.rank == mpi.size - 1 else -np.inf, -0.0, 0.0]
        )
        send[2:] *= -1.0 if mpi.rank == 0 else 1.0
        send = send.astype(dtype_of(name))
        for op, zeros in (("max", [False, False]), ("min", [True, True])):
            recv = np.empty_like(send)
            call(mpi, "allreduce", send, recv, **reduction_arguments(mpi, op, name, 4))
            assert np.isnan(recv[:2].astype(np.float32)).all()
            if mpi.size > 1:
                assert np.signbit(recv[2:].astype(np.float32)).tolist() == zeros, (name, op)


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_rounds_as_numpy_does(mpi, name):
    """All 65536 values through the conversions: a sum with zero changes none, a sum with others rounds to
    even."""
    every = np.arange(65536, dtype=np.uint16).view(dtype_of(name))
    other = data(name, 0, (65536,)) * dtype_of(name).type(1e-3)
    with np.errstate(all="ignore"):
        for addend in (np.zeros_like(every), other):
            want = (every.astype(np.float32) + addend.astype(np.float32)).astype(every.dtype)
            send = every if mpi.rank == 0 else addend if mpi.rank == 1 else np.full_like(every, -0.0)
            recv = np.empty_like(every)
            call(mpi, "allreduce", send, recv, **reduction_arguments(mpi, "sum", name, every.size))
            if mpi.size == 2:  # with more ranks the order of the sum, and so its rounding, is MPI's choice
                nan = np.isnan(want.astype(np.float32))
                np.testing.assert_array_equal(recv.view("u2")[~nan], want.view("u2")[~nan])
                assert np.isnan(recv[nan].astype(np.float32)).all()


def test_sub_communicators(mpi):
    comm = mpi.world.Split(mpi.rank % 2, -mpi.rank)
    members = [r for r in range(mpi.size) if r % 2 == mpi.rank % 2]
    send, recv = data("int32", mpi.rank, (5,)), np.empty(5, "int32")
    call(mpi, "allreduce", send, recv, comm=comm, **reduction_arguments(mpi, "sum", "int32", 5))
    np.testing.assert_array_equal(
        recv, functools.reduce(operator.add, (data("int32", r, (5,)) for r in members))
    )
    gathered = np.empty((len(members), 5), "int32")
    call(mpi, "allgather", send, gathered, comm=comm, **moved(mpi, send))
    np.testing.assert_array_equal(gathered, np.stack([data("int32", r, (5,)) for r in members[::-1]]))
    comm.Free()


def test_mpi4py_operations_are_understood(mpi):
    MPI = mpi.MPI
    assert mpi.ext.reduction_name(MPI.SUM) == "sum"
    assert mpi.ext.reduction(MPI.MAX, "float32") == mpi.ext.reduction("max", "float32")
    own = MPI.Op.Create(lambda a, b, t: np.frombuffer(b, "i4").__iadd__(np.frombuffer(a, "i4")), commute=True)
    send, recv = data("int32", mpi.rank, (6,)) // 8, np.empty(6, "int32")
    call(mpi, "allreduce", send, recv, **reduction_arguments(mpi, own, "int32", 6))
    np.testing.assert_array_equal(recv, sum(data("int32", r, (6,)) // 8 for r in range(mpi.size)))
    own.Free()


@pytest.mark.parametrize(
    "op, name, error, text",
    [
        ("max", "complex64", TypeError, "'max' does not support complex numbers.*Use prod, sum"),
        ("band", "float32", TypeError, "'band' does not support floating-point numbers"),
        ("sum", "float8_e4m3fn", TypeError, "float8_e4m3fn cannot be reduced over ranks. Convert"),
        ("sum", "int4", TypeError, "int4 cannot be reduced over ranks. Convert"),
        ("mean", "float32", ValueError, "unknown reduction 'mean'. The reductions are sum, prod"),
    ],
)
def test_reductions_that_do_not_exist(mpi, op, name, error, text):
    with pytest.raises(error, match=text):
        mpi.ext.reduction(op, name)


def test_an_error_of_mpi_is_an_exception(mpi):
    x = np.zeros(3, "float32")
    with pytest.raises(RuntimeError, match="MPI bcast failed: .*[Ii]nvalid root"):
        call(mpi, "bcast", x, x.copy(), root=mpi.size, **moved(mpi, x))


def test_one_mpi_library_in_the_process(mpi):
    """The extension has no run path of its own: it is bound to the library that mpi4py loaded."""
    with open("/proc/self/maps") as maps:
        files = {line.split()[-1] for line in maps if "/libmpi" in line}
    assert len(files) == 1
    assert mpi.ext.same_library(mpi.MPI.__file__)
    assert files.pop().endswith(mpi.ext.library_path().rsplit("/", 1)[1])


def test_the_communicator_is_private_and_mpi_runs_serialized(mpi):
    MPI = mpi.MPI
    assert MPI.Comm.Compare(mpi.world, MPI.COMM_WORLD) == MPI.CONGRUENT
    assert MPI.Query_thread() == MPI.THREAD_SERIALIZED
    assert mpi_start.start() is mpi and mpi_start.started()
