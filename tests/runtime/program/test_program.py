"""The executor: each instruction, control flow, donation, threads, errors; kernels are small C functions."""

import ctypes
import os
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
from thread_counts import threads

from mpijax._ext import array as ext
from mpijax._ext import executor
from mpijax.compiler.graph.nodes import Value, ValueKind
from mpijax.compiler.steps.instructions import (
    Advance,
    Const,
    Copy,
    Fill,
    Finish,
    GemmCall,
    Input,
    KernelCall,
    Loop,
    Operand,
    Output,
    Place,
    Point,
    Pointer,
    PythonCall,
    Swap,
    Switch,
    Temp,
    While,
)
from mpijax.compiler.steps.plan import Result, ResultKind
from mpijax.core.base import config
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.types.avals import ShapedArray
from mpijax.runtime.arrays.array import ArrayImpl, from_numpy
from mpijax.runtime.machine.executable import Call, Carrier, ExchangeSide, ProgramSpec, Report, load
from mpijax.runtime.machine.routines import Routine

SOURCE = r"""
#include <stdint.h>
#include <unistd.h>
typedef int64_t i64;
void add(void **p, i64 *q, i64 b, i64 e) {
    float *x = p[0], *y = p[1], *z = p[2];
    for (i64 i = b; i < e; i++) z[i] = x[i] + y[i];
}
void axpy(void **p, i64 *q, i64 b, i64 e) {   /* z = q0 x + q1 y */
    float *x = p[0], *y = p[1], *z = p[2];
    for (i64 i = b; i < e; i++) z[i] = q[0] * x[i] + q[1] * y[i];
}
void below(void **p, i64 *q, i64 b, i64 e) { *(char *)p[1] = *(float *)p[0] < q[0]; }
void sum_many(void **p, i64 *q, i64 b, i64 e) {
    float s = 0;
    for (i64 i = 1; i <= q[0]; i++) s += *(float *)p[i];
    *(float *)p[0] = s;
}
void mark(void **p, i64 *q, i64 b, i64 e) {   /* which part each element was in */
    i64 *z = p[0];
    for (i64 i = b; i < e; i++) z[i] += 1000000 * (e - b) + 1;
}
void nap(void **p, i64 *q, i64 b, i64 e) { usleep(q[0]); }
void thread_of(void **p, i64 *q, i64 b, i64 e) {
    usleep(2000);
    for (i64 i = b; i < e; i++) ((i64 *)p[0])[i] = (i64)pthread_self();
}
"""


@pytest.fixture(autouse=True, scope="module")
def wide():
    """All dtypes, not only those of 32 bits."""
    with config.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """Addresses of the C functions above."""
    folder = tmp_path_factory.mktemp("kernels")
    (folder / "k.c").write_text("#include <pthread.h>\n" + SOURCE)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-pthread", str(folder / "k.c"), "-o", str(folder / "k.so")]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(str(folder / "k.so"))
    return lambda name: ctypes.cast(getattr(library, name), ctypes.c_void_p).value


def aval(shape, dtype=np.float32, weak=False):
    return ShapedArray(shape, dtype, weak)


def array(value):
    value = np.asarray(value)
    return from_numpy(value, aval(value.shape, value.dtype))


def out(shape, dtype=np.float32, **kw):
    a = aval(shape, dtype)
    return Output(a.nbytes, value=Value(a, ValueKind.NODE), **kw)


def result(kind, index, of):
    return Result(kind, index, of, of)


def call(kernels, name, *buffers, params=(), extent=1, grain=1 << 40):
    ptrs = tuple(b if isinstance(b, Place) else Place(b) for b in buffers)
    return KernelCall(kernels(name), ptrs, tuple(params), extent, grain)


def adder(kernels, n=8, **kw):
    """z = x + y on n floats."""
    buffers = (Input(0, 4 * n), Input(1, 4 * n), out((n,)))
    steps = (call(kernels, "add", 0, 1, 2, extent=n),)
    return load(ProgramSpec(2, buffers, steps, (result(ResultKind.BUFFER, 2, aval((n,))),), **kw))


def single(num_inputs, buffers, steps, **kw):
    """A program that returns its last output buffer."""
    number = [i for i, b in enumerate(buffers) if isinstance(b, Output)][-1]
    results = (result(ResultKind.BUFFER, number, buffers[number].value.aval),)
    return load(ProgramSpec(num_inputs, tuple(buffers), tuple(steps), results, **kw))


# ---- kernels and buffers


@pytest.mark.parametrize("release_gil", [False, True])
def test_kernel(kernels, release_gil):
    program = adder(kernels, release_gil=release_gil)
    x = np.arange(8, dtype=np.float32)
    for args in ([array(x), array(x)], [x, array(x)], [x, x]):
        (z,) = program.run(args)
        assert type(z) is ArrayImpl and z.aval is aval((8,))
        assert z.tolist() == (x + x).tolist()


def test_results_are_new_each_time(kernels):
    program = adder(kernels)
    x = array(np.ones(8, np.float32))
    first, second = program.run([x, x])[0], program.run([x, x])[0]
    assert first.unsafe_buffer_pointer() != second.unsafe_buffer_pointer()


def test_temporaries_constants_and_offsets(kernels):
    """((x + c)[1:5] + x[2:6]) with the sum in the arena."""
    c = np.arange(8, dtype=np.float32) * 10
    buffers = (Input(0, 32), Const(c), Temp(64), out((4,)))
    steps = (
        call(kernels, "add", 0, 1, 2, extent=8),
        call(kernels, "add", Place(2, 4), Place(0, 8), 3, extent=4),
    )
    program = single(1, buffers, steps, arena=128)
    x = np.arange(8, dtype=np.float32)
    before = ext.memory_stats()["live_bytes"]
    (z,) = program.run([x])
    assert z.tolist() == ((x + c)[1:5] + x[2:6]).tolist()
    del z
    assert ext.memory_stats()["live_bytes"] == before


def test_const_may_be_an_array_that_the_user_deletes(kernels):
    c = array(np.full(4, 3, np.float32))
    program = single(1, (Input(0), Const(c), out((4,))), (call(kernels, "add", 0, 1, 2, extent=4),))
    c.delete()
    assert c.is_deleted()
    assert program.run([np.ones(4, np.float32)])[0].tolist() == [4] * 4


def test_many_buffers(kernels):
    """More than fits the stack of a run."""
    n = 300
    buffers = (*(Input(i) for i in range(n)), out(()))
    program = single(n, buffers, (call(kernels, "sum_many", n, *range(n), params=[n]),))
    values = [np.float32(i) for i in range(n)]
    assert float(program.run([array(v) for v in values])[0]) == sum(range(n))


def test_many_results():
    n = 200
    buffers = tuple(out((), np.uint8) for _ in range(n))
    steps = tuple(Fill(Place(i), 1, bytes([i])) for i in range(n))
    results = tuple(result(ResultKind.BUFFER, i, b.value.aval) for i, b in enumerate(buffers))
    got = load(ProgramSpec(0, buffers, steps, results)).run([])
    assert [int(x) for x in got] == list(range(n))


def test_params(kernels):
    steps = (call(kernels, "axpy", 0, 1, 2, params=(-3, 2), extent=4),)
    program = single(2, (Input(0), Input(1), out((4,))), steps)
    x, y = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    assert program.run([x, y])[0].tolist() == (-3 * x + 2 * y).tolist()


@pytest.mark.parametrize("pattern", [b"\0", b"\7\7", b"\1\2", b"\0\0\x80?", b"12345678", b"0123456789abcdef"])
@pytest.mark.parametrize("count", [0, 1, 3, 8, 37])
def test_fill(pattern, count):
    n = len(pattern) * count
    steps = (Fill(Place(0), n + 1, b"\xff"), Fill(Place(0), n, pattern))
    (z,) = single(0, (out((n + 1,), np.uint8),), steps).run([])
    assert bytes(z._value) == pattern * count + b"\xff"


def test_copy_may_overlap():
    steps = (Copy(Place(1), Place(0), 8), Copy(Place(1, 2), Place(1), 6))
    (z,) = single(1, (Input(0), out((8,), np.uint8)), steps).run([np.arange(8, dtype=np.uint8)])
    assert z.tolist() == [0, 1, 0, 1, 2, 3, 4, 5]


# ---- results


def test_kinds_of_results(kernels):
    weak = aval((8,), weak=True)
    c = np.arange(2.0)
    buffers = (Input(0), Input(1), out((8,)), Const(c))
    results = (
        result(ResultKind.BUFFER, 2, aval((8,))),
        result(ResultKind.BUFFER, 2, aval((8,))),
        result(ResultKind.BUFFER, 2, weak),
        result(ResultKind.INPUT, 1, aval((8,))),
        result(ResultKind.INPUT, 0, aval((8,))),
        result(ResultKind.CONST, 3, aval((2,), np.float64)),
        result(ResultKind.INPUT, 1, weak),
    )
    program = load(ProgramSpec(2, buffers, (call(kernels, "add", 0, 1, 2, extent=8),), results))
    x, y = np.arange(8, dtype=np.float32), array(np.ones(8, np.float32))
    a, b, c_weak, d, e, f, g = program.run([x, y])
    assert a is b and c_weak.aval is weak and c_weak.unsafe_buffer_pointer() == a.unsafe_buffer_pointer()
    assert d is y and e.tolist() == x.tolist() and not np.shares_memory(e._value, x)
    assert f.tolist() == [0, 1] and g.weak_type and g.tolist() == y.tolist()
    del a, b
    assert c_weak.tolist() == (x + 1).tolist()


def test_references_are_balanced(kernels):
    program = adder(kernels)
    x, y = array(np.ones(8, np.float32)), np.ones(8, np.float32)
    counts = [sys.getrefcount(v) for v in (x, y, aval((8,)))]
    for _ in range(50):
        program.run([x, y])
    with pytest.raises(TypeError):
        program.run([x, "no"])
    assert [sys.getrefcount(v) for v in (x, y, aval((8,)))] == counts


# ---- donation


def in_place_adder(kernels):
    """x += y in the memory of x, which the output takes over."""
    buffers = (Input(0, 32), Input(1, 32), out((8,), donor=0))
    return single(2, buffers, (call(kernels, "add", 2, 1, 2, extent=8),))


def test_donation_reuses_memory(kernels):
    program = in_place_adder(kernels)
    x, y = array(np.arange(8, dtype=np.float32)), array(np.ones(8, np.float32))
    pointer = x.unsafe_buffer_pointer()
    (z,) = program.run([x, y])
    assert z.tolist() == list(range(1, 9)) and z.unsafe_buffer_pointer() == pointer
    assert x.is_deleted() and not y.is_deleted()
    with pytest.raises(RuntimeError, match="Array has been deleted"):
        program.run([x, y])


def test_donation_of_shared_memory_copies(kernels):
    """An ndarray that shows the memory keeps its values; the array counts as deleted nevertheless."""
    program = in_place_adder(kernels)
    x, y = array(np.arange(8, dtype=np.float32)), array(np.ones(8, np.float32))
    view = np.asarray(x)
    (z,) = program.run([x, y])
    assert view.tolist() == list(range(8)) and z.tolist() == list(range(1, 9)) and x.is_deleted()
    own = np.arange(8, dtype=np.float32)
    (z,) = program.run([own, y])
    assert own.tolist() == list(range(8)) and z.tolist() == list(range(1, 9))


def test_donating_an_array_given_twice_is_an_error(kernels):
    x = array(np.arange(8, dtype=np.float32))
    with pytest.raises(JaxRuntimeError, match=r"INVALID_ARGUMENT.*f\(donate\(a\), a\)"):
        in_place_adder(kernels).run([x, x])
    assert not x.is_deleted()


# ---- matrix products


TRANS = {"N": lambda a: a, "T": lambda a: a.T}


def sample(rng, shape, dtype):
    value = rng.standard_normal(shape)
    return (value + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else value).astype(dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("trans_a", ["N", "T"])
@pytest.mark.parametrize("trans_b", ["N", "T"])
@pytest.mark.parametrize("m, n, k", [(3, 4, 5), (1, 7, 2), (4, 1, 3), (2, 3, 0), (0, 2, 3), (33, 17, 40)])
@pytest.mark.one_in(4)
def test_gemm(dtype, trans_a, trans_b, m, n, k):
    rng = np.random.default_rng(m + n + k)
    a = sample(rng, (m, k) if trans_a == "N" else (k, m), dtype)
    b = sample(rng, (k, n) if trans_b == "N" else (n, k), dtype)
    step = GemmCall(np.dtype(dtype), trans_a, trans_b, m, n, k, Place(0), a.shape[1], Place(1), b.shape[1], Place(2), n)
    (c,) = single(2, (Input(0), Input(1), out((m, n), dtype)), (step,)).run([a, b])
    expected = TRANS[trans_a](a) @ TRANS[trans_b](b)
    tolerance = 1e-4 if np.finfo(dtype).bits == 32 else 1e-12
    np.testing.assert_allclose(c, expected, rtol=tolerance, atol=tolerance)


def test_gemm_batched_with_offsets():
    """c[i, j] = a[j] @ b[i], where a is read from inside a larger array."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape) for shape in ((3, 4, 9), (2, 5, 6)))
    step = GemmCall(
        np.dtype(np.float64), "N", "N", 4, 6, 5, Place(0, 16), 9, Place(1), 6, Place(2), 6,
        (2, 3), (0, 36), (30, 0), (72, 24),
    )  # fmt: skip
    (got,) = single(2, (Input(0), Input(1), out((2, 3, 4, 6), np.float64)), (step,)).run([a, b])
    np.testing.assert_allclose(got, np.einsum("jmk,ikn->ijmn", a[:, :, 2:7], b))


def test_gemm_rejects_what_blas_cannot():
    base = {"trans_a": "N", "trans_b": "N", "m": 2, "n": 2, "k": 2}
    base |= {"a": Place(0), "lda": 2, "b": Place(1), "ldb": 2, "c": Place(2), "ldc": 2}
    buffers = (Input(0), Input(1), out((2, 2)))
    cases = [
        ({"dtype": np.dtype(np.int32)}, TypeError, "got int32"),
        ({"dtype": np.dtype(np.float32), "m": 1 << 31}, ValueError, "32-bit integers"),
        ({"dtype": np.dtype(np.float32), "trans_a": "X"}, ValueError, "trans"),
        ({"dtype": np.dtype(np.float32), "batch": (3,)}, ValueError, "stride"),
    ]
    for changes, error, text in cases:
        with pytest.raises(error, match=text):
            single(2, buffers, (GemmCall(**{**base, **changes}),))


# ---- host calls


def f32(number, shape):
    return Operand(Place(number), shape, np.dtype(np.float32))


def test_host_call():
    seen = []

    def fun(x, y):
        seen.append((x, y, x.flags.writeable))
        return x @ y, [[1.0]]

    with pytest.raises(ValueError, match=r"returned float64\[1, 1\], expected float32\[1, 1\]"):
        host(fun).run([np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)])

    def right(x, y):
        seen.append((x, y, x.flags.writeable))
        return x @ y, np.float32([[1.0]])

    p, q = host(right).run([np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)])
    assert p.tolist() == [[3, 3], [3, 3]] and q.tolist() == [[1]] and seen[-1][2] is False


def host(fun):
    buffers = (Input(0), Input(1), out((2, 2)), out((1, 1)))
    step = PythonCall(fun, (f32(0, (2, 3)), f32(1, (3, 2))), (f32(2, (2, 2)), f32(3, (1, 1))))
    results = (result(ResultKind.BUFFER, 2, aval((2, 2))), result(ResultKind.BUFFER, 3, aval((1, 1))))
    return load(ProgramSpec(2, buffers, (step,), results, release_gil=True))


@pytest.mark.parametrize("release_gil", [False, True])
def test_host_call_errors_pass_through(kernels, release_gil):
    def fail(x, y):
        raise KeyError("from the host")

    buffers = (Input(0), Input(1), out((2, 2)), Temp(0))
    step = PythonCall(fail, (f32(0, (2, 3)), f32(1, (3, 2))), (f32(2, (2, 2)),))
    results = (result(ResultKind.BUFFER, 2, aval((2, 2))),)
    program = load(ProgramSpec(2, buffers, (step,), results, arena=4096, release_gil=release_gil))
    before = ext.memory_stats()["live_bytes"]
    x = array(np.ones((2, 3), np.float32))
    for _ in range(3):
        with pytest.raises(KeyError, match="from the host"):
            program.run([x, x])
    assert ext.memory_stats()["live_bytes"] == before + 64
    x.delete()
    assert ext.memory_stats()["live_bytes"] == before


def test_host_call_may_run_programs_and_delete_arguments(kernels):
    inner = adder(kernels)
    x = array(np.arange(8, dtype=np.float32))

    def fun(v):
        x.delete()
        return inner.run([v, v])[0]._value

    step = PythonCall(fun, (f32(0, (8,)),), (f32(1, (8,)),))
    program = single(1, (Input(0), out((8,))), (step, call(kernels, "add", 0, 1, 1, extent=8)))
    (z,) = program.run([x])
    assert z.tolist() == (3 * np.arange(8)).tolist() and x.is_deleted()


# ---- control flow


def test_loop(kernels):
    """x + 5 y by repeated addition; nested loops multiply."""
    steps = (Copy(Place(2), Place(0), 16), Loop(5, (call(kernels, "add", 2, 1, 2, extent=4),)))
    program = single(2, (Input(0), Input(1), out((4,))), steps)
    x, y = np.arange(4, dtype=np.float32), np.float32([1, 2, 3, 4])
    assert program.run([x, y])[0].tolist() == (x + 5 * y).tolist()
    nested = (Copy(Place(2), Place(0), 16), Loop(3, (Loop(2, steps[1:]), Loop(0, steps[1:]))))
    assert single(2, (Input(0), Input(1), out((4,))), nested).run([x, y])[0].tolist() == (x + 30 * y).tolist()


def test_while(kernels):
    """Doubles until at least 100."""
    steps = (
        Copy(Place(1), Place(0), 4),
        While(
            (call(kernels, "below", 1, 2, params=[100]),),
            Place(2),
            (call(kernels, "add", 1, 1, 1, extent=1),),
        ),
    )
    program = single(1, (Input(0), out(()), Temp(0)), steps, arena=64)
    for start, end in ((3, 192), (100, 100), (0.5, 128)):
        assert float(program.run([array(np.float32(start))])[0]) == end


@pytest.mark.parametrize("index, expected", [(0, 10), (1, 20), (2, 30), (-5, 10), (99, 30)])
def test_switch(index, expected):
    branches = tuple((Fill(Place(1), 1, bytes([v])),) for v in (10, 20, 30))
    program = single(1, (Input(0), out((), np.uint8)), (Switch(Place(0), branches), Fill(Place(1), 0, b"x")))
    assert int(program.run([array(np.int32(index))])[0]) == expected


def test_scan_with_moving_pointers(kernels):
    """Running sums: slices of x advance, two carries swap."""
    rows = 5
    buffers = (
        Input(0), out((rows, 4)), Temp(0), Temp(64),
        Pointer(), Pointer(), Pointer(), Pointer(),
    )  # fmt: skip
    start = (Point(4, Place(0)), Point(5, Place(1)), Point(6, Place(2)), Point(7, Place(3)))
    body = (
        call(kernels, "add", 6, 4, 7, extent=4),
        Copy(Place(5), Place(7), 16),
        Swap(6, 7),
        Advance(4, 16),
        Advance(5, 16),
    )
    program = single(1, buffers, (*start, Fill(Place(2), 16, b"\0"), Loop(rows, body)), arena=128)
    x = np.arange(rows * 4, dtype=np.float32).reshape(rows, 4)
    for _ in range(2):
        assert program.run([x])[0].tolist() == np.cumsum(x, 0).tolist()


# ---- threads


@pytest.fixture
def four_threads():
    with threads(4):
        yield


def marker(kernels, n, grain):
    steps = (Fill(Place(0), 8 * n, b"\0"), call(kernels, "mark", 0, extent=n, grain=grain))
    return single(0, (out((n,), np.int64),), steps, release_gil=True)


@pytest.mark.parametrize("n", [0, 1, 7, 100, 1003, 100000])
@pytest.mark.parametrize("grain", [1, 7, 64, 501])
@pytest.mark.one_in(4)
def test_every_element_is_done_once(kernels, four_threads, n, grain):
    program = marker(kernels, n, grain)
    for _ in range(20):
        got = program.run([])[0]._value
        parts = got // 1000000
        assert (got % 1000000 == 1).all()
        if n >= 2 * grain and n:  # whole parts but for the last
            assert (parts[:-grain] >= grain).all() and parts.max() < n or executor.num_workers() < 3
        else:
            assert (parts == n).all()


def test_parts_run_on_several_threads(kernels, four_threads):
    program = single(0, (out((16,), np.int64),), (call(kernels, "thread_of", 0, extent=16, grain=1),))
    assert len(set(program.run([])[0].tolist())) > 1
    assert executor.num_workers() == 3


def test_programs_run_from_several_threads(kernels, four_threads):
    program, errors = marker(kernels, 5000, 100), []

    def work():
        for _ in range(100):
            if not (program.run([])[0]._value % 1000000 == 1).all():
                errors.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors


def test_gil_is_released(kernels):
    program = single(0, (out(()),), (call(kernels, "nap", 0, params=[300000]),), release_gil=True)
    turns, done = 0, threading.Event()
    thread = threading.Thread(target=lambda: (program.run([]), done.set()))
    thread.start()
    while not done.wait(0.01):
        turns += 1
    thread.join()
    assert turns > 5


def test_arguments_deleted_meanwhile_stay_until_the_end(kernels):
    steps = (call(kernels, "nap", 0, params=[200000]), call(kernels, "add", 0, 0, 1, extent=1000))
    program = single(1, (Input(0), out((1000,))), steps, release_gil=True)
    x, got = array(np.ones(1000, np.float32)), []
    thread = threading.Thread(target=lambda: got.append(program.run([x])[0]))
    thread.start()
    thread.join(0.05)
    x.delete()
    others = [array(np.zeros(1000, np.float32)) for _ in range(4)]
    thread.join()
    assert x.is_deleted() and got[0].tolist() == [2] * 1000 and others


def test_fork(kernels, four_threads):
    program = marker(kernels, 1000, 10)
    program.run([])
    child = os.fork()
    if child == 0:
        ok = executor.num_workers() == 0 and (program.run([])[0]._value % 1000000 == 1).all()
        os._exit(0 if ok and executor.num_workers() == 3 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# ---- errors


def test_wrong_arguments(kernels):
    program = adder(kernels, name="adder")
    x = np.ones(8, np.float32)
    cases = [
        ([x], TypeError, "adder takes 2 arguments, got 1"),
        ([x, [1.0]], TypeError, "argument 1 must be an array, got list"),
        ([x, x[:4]], ValueError, r"argument 1 must have 32 bytes, got float32\[4\]"),
        ([x, np.ones(16, np.float32)[::2]], ValueError, "C-contiguous"),
    ]
    for args, error, text in cases:
        with pytest.raises(error, match=text):
            program.run(args)
    dead = array(x)
    dead.delete()
    with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[8\]"):
        program.run([x, dead])


@pytest.mark.parametrize(
    "buffers, steps, results",
    [
        ((Input(3),), (), ()),
        ((out((1,), donor=2),), (), (result(ResultKind.BUFFER, 0, aval((1,))),)),
        ((out((1,)),), (Copy(Place(4), Place(0), 1),), (result(ResultKind.BUFFER, 0, aval((1,))),)),
        ((out((1,)),), (Swap(0, 9),), (result(ResultKind.BUFFER, 0, aval((1,))),)),
        (("x",), (), ()),
        ((), ("x",), ()),
        ((out((4,)),), (Fill(Place(0), 5, b"ab"),), (result(ResultKind.BUFFER, 0, aval((4,))),)),
        ((out((4,)),), (Fill(Place(0), 5, b""),), (result(ResultKind.BUFFER, 0, aval((4,))),)),
        ((out((4,)),), (Switch(Place(0), ()),), (result(ResultKind.BUFFER, 0, aval((4,))),)),
        ((out((4,)),), (KernelCall(0, (), (), 1, 1),), (result(ResultKind.BUFFER, 0, aval((4,))),)),
        ((out((4,)),), (), (result(ResultKind.BUFFER, 0, aval((4,))), result("what", 0, aval(())))),
        ((Input(0),), (), (result(ResultKind.BUFFER, 0, aval(())),)),
    ],
)
def test_malformed_programs_are_refused(buffers, steps, results):
    with pytest.raises((IndexError, TypeError, ValueError)):
        load(ProgramSpec(1, buffers, steps, results))


def test_out_of_memory_in_the_arena_leaves_nothing_behind():
    before = ext.memory_stats()["live_bytes"]
    program = single(0, (out((4,)),), (), arena=1 << 46)
    with pytest.raises(JaxRuntimeError, match="RESOURCE_EXHAUSTED"):
        program.run([])
    assert ext.memory_stats()["live_bytes"] == before


# ---- communication


@pytest.mark.mpi
def test_allreduce_and_errors():
    """Sums over the ranks; an error of MPI becomes an exception that names the operation and the line."""
    from mpijax.runtime.mpi import mpi_start

    world, shims = mpi_start.world(), mpi_start.start().ext
    dtype, mpi_op = shims.reduction("sum", "float32")
    sent, received = ExchangeSide(Place(0), 4, dtype), ExchangeSide(Place(1), 4, dtype)
    call = Call(Routine.ALLREDUCE, shims.handle(world), sent, received, mpi_op)
    program = single(1, (Input(0), out((4,))), (call,), release_gil=True)
    x = np.arange(4, dtype=np.float32) * (world.rank + 1)
    assert program.run([x])[0].tolist() == (np.arange(4) * sum(range(1, world.size + 1))).tolist()
    bad = replace(call, op="bcast", root=1000, report=Report(line="train.py:12"))
    with pytest.raises(RuntimeError, match=r"MPI error in bcast(.|\n)*root(.|\n)*train\.py:12"):
        single(1, (Input(0), out((4,))), (bad,)).run([x])


@pytest.mark.mpi
def test_communication_without_buffers():
    from mpijax.runtime.mpi import mpi_start

    comm = mpi_start.start().ext.handle(mpi_start.world())
    assert load(ProgramSpec(0, (), (Call(Routine.BARRIER, comm), Call(Routine.BARRIER, comm)), ())).run([]) == []


def test_unknown_communication_is_refused():
    with pytest.raises(ValueError, match="unknown operation 'shout'. The operations are allreduce"):
        load(ProgramSpec(0, (), (Call("shout", 0),), ()))


GOES_ON = Call(Routine.BARRIER, 0, carrier=Carrier(goes_on=True))
CALL = PythonCall(print, (), ())
UNFINISHED = {
    "nothing goes on": ((Finish(),), "no exchange is in flight"),
    "never": ((GOES_ON, Fill(Place(0), 4, b"a")), "finished in the same list"),
    "in another list": ((GOES_ON, Loop(2, (Finish(),))), "must wait until the previous exchange is finished"),
    "began in another list": ((Loop(2, (GOES_ON,)), Finish()), "finished in the same list"),
    "one of two": ((GOES_ON, GOES_ON, Finish()), "finished in the same list"),
    "too many at once": ((*[GOES_ON] * 5, *[Finish()] * 5), "at most 4 exchanges can be in flight"),
    "a blocking barrier before the finish": ((GOES_ON, Call(Routine.BARRIER, 0), Finish()), "must wait"),
    "a call of Python": ((GOES_ON, CALL, Finish()), "must wait"),
    "a call of Python in a loop": ((GOES_ON, Loop(2, (CALL,)), Finish()), "must wait"),
}


@pytest.mark.parametrize("name", UNFINISHED)
def test_exchanges_that_go_on_are_finished(name):
    instructions, message = UNFINISHED[name]
    with pytest.raises(ValueError, match=message):
        load(ProgramSpec(0, (Temp(0),), instructions, (), 64))
