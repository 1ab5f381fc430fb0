"""Denormals are zero inside of programs, as XLA has them, and outside they are what they were."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from numba import njit
from oracle import OURS, THEIRS
from thread_counts import threads

import mpijax
import mpijax.numpy as jnp
from mpijax._ext import executor
from mpijax.core.base.config import keep_denormals

SMALL, TINY = np.float32(1e-40), np.float32(1.5e-38)  # a denormal, and a normal number that a product makes one
WIDE = np.float64(1e-310)

# Values that XLA gives, with signs: (function of the library and its operand, operand).
CASES = {
    "results": (lambda J, x: x * np.float32(0.01), -TINY),
    "differences": (lambda J, x: x - np.float32(1.4e-38), TINY),
    "quotients": (lambda J, x: x / np.float32(3), TINY),
    "operands": (lambda J, x: x * np.float32(1e30), SMALL),
    "dividing": (lambda J, x: 1 / x, -SMALL),
    "sqrt": (lambda J, x: J.numpy.sqrt(x), SMALL),
    "rsqrt": (lambda J, x: J.lax.rsqrt(x), SMALL),
    "log": (lambda J, x: J.numpy.log(x), SMALL),
    "exp": (lambda J, x: J.numpy.exp(x), np.float32(-95)),
    "square": (lambda J, x: x * x, np.float32(1e-20)),
    "greater": (lambda J, x: x > 0, SMALL),
    "equal": (lambda J, x: x == 0, SMALL),
    "equal to each other": (lambda J, x: x == 2 * x, SMALL),
    "as bool": (lambda J, x: x.astype(bool), SMALL),
    "not": (lambda J, x: J.numpy.logical_not(x), SMALL),
    "count": (lambda J, x: J.numpy.count_nonzero(x), np.array([SMALL, 0, 1], np.float32)),
    "where": (lambda J, x: J.numpy.where(x != 0, x, 7), SMALL),
    "sign": (lambda J, x: J.numpy.sign(x), -SMALL),
    "floor": (lambda J, x: J.numpy.floor(x), -SMALL),
    "ceil": (lambda J, x: J.numpy.ceil(x), SMALL),
    "maximum": (lambda J, x: J.numpy.maximum(x, np.float32(0)), SMALL),
    "minimum": (lambda J, x: J.numpy.minimum(x, np.float32(0)), -SMALL),
    "largest": (lambda J, x: J.numpy.max(x), np.full(4, SMALL)),
    "where the largest is": (lambda J, x: J.numpy.argmax(x), np.array([0, SMALL, 2 * SMALL])),
    "sum": (lambda J, x: J.numpy.sum(x), np.full(100, SMALL)),
    "mean": (lambda J, x: J.numpy.mean(x), np.array([TINY, 0, 0, 0])),
    "product": (lambda J, x: J.numpy.prod(x), np.full(2, np.float32(1e-20))),
    "cumulative sum": (lambda J, x: J.numpy.cumsum(x), np.full(4, SMALL)),
    "dot": (lambda J, x: J.numpy.dot(x, x), np.full(4, np.float32(1e-20))),
    "matmul": (lambda J, x: x @ x, np.full((40, 40), np.float32(1e-20))),
    "scatter": (lambda J, x: x.at[0].add(SMALL), np.array([SMALL, 0])),
    "loop": (lambda J, x: J.lax.fori_loop(0, 10, lambda i, c: c * np.float32(0.1), x), np.float32(1e-30)),
    "complex": (lambda J, x: x * x, np.complex64(1e-20 + 1e-20j)),
    "softmax": (lambda J, x: J.nn.softmax(x), np.array([0, -95], np.float32)),
    "cholesky": (lambda J, x: J.numpy.linalg.cholesky(x), np.array([[SMALL]])),
    "double to single": (lambda J, x: x.astype(np.float32), np.float64(1e-40)),
    "single to double": (lambda J, x: x.astype(np.float64), SMALL),
    "double": (lambda J, x: x * 2, WIDE),
    "double difference": (lambda J, x: x - 2.3e-308, np.float64(2.4e-308)),
    "bfloat16": (lambda J, x: x.astype("bfloat16") * 2, SMALL),
    # Moved bits stay, and the denormals of float16 are normal numbers of float32.
    "negative": (lambda J, x: -x, SMALL),
    "absolute": (lambda J, x: J.numpy.abs(x), -SMALL),
    "copysign": (lambda J, x: J.numpy.copysign(x, np.float32(-1)), SMALL),
    "concatenate": (lambda J, x: J.numpy.concatenate([x, x]), np.array([SMALL])),
    "gather": (lambda J, x: x[np.array([1, 0])], np.array([SMALL, 2 * SMALL])),
    "bits": (lambda J, x: J.lax.bitcast_convert_type(x, np.int32), SMALL),
    "nextafter": (lambda J, x: J.numpy.nextafter(x, np.float32(1)), np.float32(0)),
    "top_k": (lambda J, x: J.lax.top_k(x, 2)[0], np.array([0, SMALL, 2 * SMALL])),
    "to bfloat16": (lambda J, x: x.astype("bfloat16"), SMALL),
    "half": (lambda J, x: x * np.float16(1), np.float16(1e-6)),
    "to half": (lambda J, x: x.astype(np.float16), np.float32(1e-6)),
    "from half": (lambda J, x: x.astype(np.float32), np.float16(1e-6)),
    "array": (lambda J, x: J.numpy.array(x), SMALL),
}


def bits(x):
    x = np.asarray(x)
    return x.dtype, x.shape, x.tobytes()


def process_sees_denormals():
    """Whether NumPy computes with them in this thread."""
    return (np.full(9, SMALL) * np.float32(0.5)).all() and (np.full(9, WIDE) * 0.5).all()


@pytest.mark.sweep
@pytest.mark.parametrize("mode", ["eager", "jitted"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.one_in(4)
def test_as_in_jax(name, mode):
    function, x = CASES[name]
    results = []
    for J in (THEIRS, OURS):
        with J.enable_x64(True):
            if mode == "jitted":
                results.append(bits(J.jit(lambda x, J=J: function(J, x))(x)))
            else:
                results.append(bits(function(J, J.numpy.asarray(x))))
            assert J is THEIRS or process_sees_denormals()
    assert results[0] == results[1]


@pytest.mark.parametrize("library", [np, jnp], ids=["numpy", "program"])
def test_sorting_keeps_the_values(library):
    """Their order among each other is anyone's."""
    x = np.array([SMALL, 0, -SMALL, 2 * SMALL, -2 * SMALL, 1, -1] * 40, np.float32)
    np.testing.assert_array_equal(np.asarray(library.sort(x)), np.sort(x))


@pytest.fixture
def three_threads():
    with threads(3):
        yield


def test_every_thread_of_a_kernel(three_threads):
    x = np.full(1 << 20, TINY)
    multiply, returned = mpijax.jit(lambda x: x * np.float32(0.01)), mpijax.jit(lambda x: x > 0)
    for _ in range(5):
        assert not np.asarray(multiply(x)).any()
        assert not np.asarray(returned(np.full(1 << 20, SMALL))).any()
        with keep_denormals(True):  # the same workers
            assert np.asarray(multiply(x)).all()
    assert executor.num_workers() >= 1


def test_threads_of_the_user():
    def job():
        found.append((float(jnp.asarray(TINY) * np.float32(0.01)), process_sees_denormals()))

    found = []
    for _ in range(2):
        thread = threading.Thread(target=job)
        thread.start()
        thread.join()
    assert found == [(0.0, True)] * 2


@pytest.mark.parametrize("jitted", [True, False])
def test_callbacks_see_denormals(jitted):
    """And the program goes on without."""

    def look(x):
        seen.append((process_sees_denormals(), float(np.asarray(x))))
        inner.append(float(jnp.asarray(TINY) * np.float32(0.01)))  # a program in a callback of a program
        seen.append((process_sees_denormals(), float(np.asarray(x))))
        return np.asarray(x)

    def function(x):
        y = mpijax.pure_callback(look, mpijax.ShapeDtypeStruct((), np.float32), x)
        return y * np.float32(1e30)

    seen, inner = [], []
    got = (mpijax.jit(function) if jitted else function)(SMALL)
    assert float(got) == 0 and seen == [(True, float(SMALL))] * 2 and inner == [0.0]


def test_an_error_in_a_callback():
    def fail(x):
        raise ValueError("no")

    with pytest.raises(Exception, match="no"):
        mpijax.jit(lambda x: mpijax.pure_callback(fail, mpijax.ShapeDtypeStruct((), np.float32), x) * x)(SMALL)
    assert process_sees_denormals()


def test_numba_kernels_see_denormals():
    @njit
    def double(x, out):
        for i in range(x.size):
            out[i] = x[i] * np.float32(2)

    x = np.array([SMALL, 1], np.float32)
    shape = mpijax.ShapeDtypeStruct((2,), np.float32)
    got = mpijax.jit(lambda x: mpijax.numba_call(double, shape)(x))(x)
    np.testing.assert_array_equal(np.asarray(got), 2 * x)
    assert not np.asarray(mpijax.jit(lambda x: mpijax.numba_call(double, shape)(x) * np.float32(0.5))(x))[0]


def test_an_option_keeps_them():
    multiply = mpijax.jit(lambda x: x * np.float32(0.01))
    kept = float(np.float32(TINY * np.float32(0.01)))
    for _ in range(2):
        assert float(multiply(TINY)) == 0 and float(jnp.asarray(TINY) * np.float32(0.01)) == 0
        with keep_denormals(True):
            assert float(multiply(TINY)) == kept and float(jnp.asarray(TINY) * np.float32(0.01)) == kept
            assert jnp.asarray(SMALL) > 0


def test_the_variable_keeps_them():
    code = "import mpijax.numpy as jnp, numpy as np; print(bool(jnp.float32(1e-40) * 1e30 > 0))"
    for value, expected in (("1", "True"), ("0", "False")):
        env = os.environ | {"MPIJAX_KEEP_DENORMALS": value}
        job = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
        assert job.stdout.strip() == expected, job.stderr


def test_a_program_keeps_the_mode_it_was_compiled_for():
    x = np.full(3, TINY)
    with keep_denormals(True):
        kept = mpijax.jit(lambda x: x * np.float32(0.01)).lower(x).compile()
    zero = mpijax.jit(lambda x: x * np.float32(0.01)).lower(x).compile()
    assert np.asarray(kept(x)).all() and not np.asarray(zero(x)).any()


@pytest.mark.parametrize(
    "name, x, y", [("gt", SMALL, 0), ("mul", TINY, 0.01), ("mul", SMALL, 1e30), ("sub", TINY, 1.4e-38)]
)
def test_what_is_known_when_compiling(name, x, y):
    """XLA's compiler computes with denormals where all numbers are literals."""
    theirs, ours = (J.jit(lambda J=J: getattr(J.lax, name)(x, np.float32(y)))() for J in (THEIRS, OURS))
    assert bits(theirs) == bits(ours)


@pytest.mark.parametrize("name", ["i0", "i0e", "i1e"])
def test_functions_of_large_numbers_whose_reciprocals_are_denormal(name):
    x = np.float32(-1.04e38)
    theirs, ours = (getattr(J.scipy.special, name)(x) for J in (THEIRS, OURS))
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-6)


def test_angles_of_small_points():
    y, x = np.float32(-3.5093396e-38), np.float32(3.7990303e-38)
    np.testing.assert_allclose(np.asarray(jnp.arctan2(y, x)), np.arctan2(y, x), rtol=1e-6)
