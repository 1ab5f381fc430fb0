"""64-bit dtypes that a program asks for by name while `jax_enable_x64` is off and `jax_explicit_x64_dtypes` allows."""

import numpy as np
import pytest
from oracle import OURS, THEIRS

WIDE = np.linspace(0.1, 0.9, 5)


def x(J):
    return J.numpy.linspace(0.1, 0.9, 5, dtype="float64")


PROGRAMS = {
    "array of a number": lambda J: J.numpy.array(1, dtype="int64"),
    "array of a list": lambda J: J.numpy.array([1.5, 2], dtype="float64"),
    "scalar type": lambda J: J.numpy.float64(1.125),
    "array of NumPy's": lambda J: J.numpy.asarray(WIDE),
    "array of NumPy's, named": lambda J: J.numpy.asarray(WIDE, dtype="float64"),
    "zeros": lambda J: J.numpy.zeros(2, "complex128"),
    "full": lambda J: J.numpy.full(3, 1.125, "float64"),
    "full_like": lambda J: J.numpy.full_like(x(J), 1.125),
    "arange": lambda J: J.numpy.arange(3, dtype="int64"),
    "iota": lambda J: J.lax.iota("uint64", 3),
    "astype": lambda J: J.numpy.ones(2).astype("float64") * 1.125,
    "convert": lambda J: J.lax.convert_element_type(1.125, "float64"),
    "sum": lambda J: J.numpy.ones(3).sum(dtype="float64"),
    "numbers": lambda J: (x(J) * 1.125, x(J) ** 2, 2 - x(J), J.numpy.arange(3, dtype="int64") // 2),
    "NumPy's numbers": lambda J: (x(J) + np.float32(1), x(J) * np.float64(2)),
    "functions": lambda J: (J.numpy.sin(x(J)), J.nn.softmax(x(J)), J.scipy.special.erf(x(J))),
    "reductions": lambda J: (x(J).mean(), J.numpy.var(x(J)), J.numpy.quantile(x(J), 0.3), J.numpy.cumsum(x(J))),
    "convolve": lambda J: J.numpy.convolve(x(J), x(J)),
    "solve": lambda J: J.numpy.linalg.inv(J.numpy.eye(3, dtype="float64") * 2 + 0.125),
    "grad": lambda J: J.grad(lambda x: (J.numpy.sin(x) * x**2 * 1.125).sum())(x(J)),
    "scan": lambda J: J.lax.scan(lambda c, t: (c + t * 1.125, c), J.numpy.array(0, "float64"), x(J)),
    "bits": lambda J: J.random.bits(J.random.key(0), (3,), "uint64"),
    "bits of another generator": lambda J: J.random.bits(J.random.key(0, impl="rbg"), (3,), "uint64"),
    "bitcasts": lambda J: (
        J.lax.bitcast_convert_type(x(J), "uint16"),
        J.lax.bitcast_convert_type(J.numpy.ones((3, 8), "uint8"), "float64"),
    ),
    "uniform": lambda J: J.random.uniform(J.random.key(0), (3,), "float64"),
    "exponential": lambda J: J.random.exponential(J.random.key(0), (3,), "float64"),
}


@pytest.mark.sweep
@pytest.mark.parametrize("jitted", [False, True], ids=["", "jit"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.one_in(4)
def test_programs_as_in_jax(program, jitted):
    results = []
    for J in (OURS, THEIRS):
        J.config.update("jax_explicit_x64_dtypes", "allow")
        try:
            results.append(J.tree.leaves(J.jit(lambda J=J: program(J))() if jitted else program(J)))
        finally:
            J.config.update("jax_explicit_x64_dtypes", "warn")
    for ours, theirs in zip(*results, strict=True):
        assert (ours.dtype, ours.weak_type, ours.shape) == (theirs.dtype, theirs.weak_type, theirs.shape)
        np.testing.assert_allclose(ours, theirs, rtol=1e-13 if ours.dtype.itemsize >= 8 else 1e-6)


def test_normal_numbers_are_those_of_64_bits():
    """JAX raises TypeError here; while 64-bit types are on, it draws these."""
    draws = [
        lambda J: J.random.normal(J.random.key(0), (4,), "float64"),
        lambda J: J.random.truncated_normal(J.random.key(0), -1.0, 1.0, (4,), "float64"),
        lambda J: J.random.gamma(J.random.key(0), 2.0, (4,), "float64"),
    ]
    for draw in draws:
        with THEIRS.enable_x64(True):
            wanted = np.asarray(draw(THEIRS))
        OURS.config.update("jax_explicit_x64_dtypes", "allow")
        try:
            np.testing.assert_allclose(draw(OURS), wanted, rtol=1e-12)
        finally:
            OURS.config.update("jax_explicit_x64_dtypes", "warn")
