"""Arrays go to other libraries and come back: DLPack, the array API standard, NumPy's protocols."""

import ctypes
import json
import os
import subprocess
import sys

import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp

X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
DTYPES = ["bool", "int8", "int32", "uint16", "float16", "float32", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_to_numpy_and_back(dtype):
    x = jnp.asarray(X).astype(dtype)
    there = np.from_dlpack(x)
    assert there.dtype == np.dtype(dtype)
    np.testing.assert_array_equal(there, x)
    back = jnp.from_dlpack(there[1:, ::1])
    assert isinstance(back, jax.Array) and back.dtype == x.dtype
    np.testing.assert_array_equal(back, x[1:])


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
    )


@pytest.mark.parametrize("dtype, code", {
    "bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9, "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13, "float8_e8m0fnu": 14,
}.items())
def test_dlpack_of_the_formats_that_numpy_exports_as_integers(dtype, code):
    x = jnp.asarray(X).astype(dtype)
    back = jnp.from_dlpack(x)
    assert back.dtype == x.dtype and back.unsafe_buffer_pointer() == x.unsafe_buffer_pointer()
    assert jnp.from_dlpack(x, copy=True).unsafe_buffer_pointer() != x.unsafe_buffer_pointer()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    capsule = x.__dlpack__()
    tensor = DLTensor.from_address(pointer(capsule, b"dltensor"))
    assert (tensor.code, tensor.bits, tensor.lanes) == (code, 8 * x.dtype.itemsize, 1)
    with pytest.raises(RuntimeError, match="Unsupported dtype"):
        np.from_dlpack(x)


@pytest.mark.parametrize("dtype", ["int2", "int4", "uint2", "uint4", "float4_e2m1fn"])
def test_dlpack_refuses_formats_of_less_than_a_byte(dtype):
    with pytest.raises(BufferError, match=f"Arrays of {dtype} cannot be exported by DLPack"):
        jnp.zeros(3, dtype).__dlpack__()
    assert not jax.dlpack.is_supported_dtype(dtype)


def test_from_dlpack_onto_the_device_where_the_memory_is():
    device = jax.devices()[0]
    with pytest.raises(TypeError, match="Expected a string or dtype-like object"):
        jax.dlpack.is_supported_dtype(None)
    x = jnp.from_dlpack(X, device=jax.sharding.SingleDeviceSharding(device), copy=False)
    assert x.unsafe_buffer_pointer() == X.ctypes.data and x.devices() == {device}


def test_dlpack_of_an_array_that_is_not_contiguous():
    np.testing.assert_array_equal(jnp.from_dlpack(X.T), X.T)
    np.testing.assert_array_equal(jax.dlpack.from_dlpack(X[::2, 1:]), X[::2, 1:])


PROTOCOLS = {
    "asarray": lambda x: np.asarray(x),
    "ufunc": lambda x: np.sin(x),
    "function": lambda x: np.concatenate([x, x]),
    "operator": lambda x: X + x,
    "index": lambda x: X[np.asarray(x[:, 0] > 0)],
    "iteration": lambda x: np.stack(list(x)),
    "scalar": lambda x: np.float32(float(x[0, 0])) + x[0, 0],
    "buffer": lambda x: np.frombuffer(memoryview(np.asarray(x)), np.float32),
    "format": lambda x: np.array([f"{v:.3f}" for v in x[0]], dtype="U").astype(np.float64),
}  # fmt: skip


@pytest.mark.parametrize("name", PROTOCOLS)
def test_numpys_protocols(name):
    np.testing.assert_allclose(PROTOCOLS[name](jnp.asarray(X)), PROTOCOLS[name](X), rtol=1e-6)


# Run in a process of its own, because SciPy reads SCIPY_ARRAY_API when it is imported. SciPy and scikit-learn write into
# arrays unless these are JAX's: `mpijax.as_jax` makes them so.
SCIPY = """
import json, numpy as np, jax, jax.numpy as jnp
import scipy.fft, scipy.special, scipy.stats, scipy.linalg, scipy.signal, scipy.integrate, scipy.cluster.vq, scipy.optimize
X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
V = np.abs(X[:, 0]) + 0.5
TABLE = {
    "fft": lambda x, v: scipy.fft.fft(x).real, "rfft": lambda x, v: scipy.fft.irfft(scipy.fft.rfft(x), n=4),
    "fftshift": lambda x, v: scipy.fft.fftshift(x), "special": lambda x, v: scipy.special.gammaln(v),
    "logsumexp": lambda x, v: scipy.special.logsumexp(x, axis=1), "softmax": lambda x, v: scipy.special.softmax(x, axis=1),
    "zscore": lambda x, v: scipy.stats.zscore(x), "moment": lambda x, v: scipy.stats.moment(x, 2),
    "skew": lambda x, v: scipy.stats.skew(x), "gmean": lambda x, v: scipy.stats.gmean(v),
    "variation": lambda x, v: scipy.stats.variation(v), "entropy": lambda x, v: scipy.stats.entropy(v),
    "trapezoid": lambda x, v: scipy.integrate.trapezoid(x, axis=0),
    "whiten": lambda x, v: scipy.cluster.vq.whiten(x), "rosen": lambda x, v: scipy.optimize.rosen(v),
    "detrend": lambda x, v: scipy.signal.detrend(x, axis=0), "convolve": lambda x, v: scipy.signal.convolve(v, v[:2]),
}
out = {}
for name, f in TABLE.items():
    try:
        got, expected = f(jnp.asarray(X), jnp.asarray(V)), f(X, V)
        out[name] = [isinstance(got, jax.Array), bool(np.allclose(got, expected, rtol=1e-4, atol=1e-5))]
    except Exception as error:
        out[name] = f"{type(error).__name__}: {error}"[:300]
print(json.dumps(out))
"""


@pytest.mark.slow  # by default tests/numpy/test_array_api.py has the standard
def test_scipys_array_api():
    pytest.importorskip("scipy")
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mpijax.as_jax", "-c", SCIPY], env={**os.environ, "SCIPY_ARRAY_API": "1"}, capture_output=True,
        text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: value for name, value in found.items() if value != [True, True]} == {}


# ---------------------------------------------------------------- libraries that may not be installed

# `make test-libraries` has an environment with them.
PYTHON = os.environ.get("MPIJAX_LIBRARIES", sys.executable)
BEGIN = """
import numpy as np, jax, jax.numpy as jnp
X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
x = jnp.asarray(X)
"""

WITH_LIBRARY = {
    "torch": """
import torch
for dtype in ("bool", "int8", "int32", "float32", "float16", "complex64"):
    y = x.astype(dtype)
    there = torch.from_dlpack(y)
    np.testing.assert_array_equal(there.numpy(), y)
    back = jnp.from_dlpack(there.clone().contiguous())
    assert back.dtype == y.dtype
    np.testing.assert_array_equal(back, y)
""",
    # Much of scikit-learn writes into arrays, which neither JAX's nor these allow.
    "sklearn": """
import sklearn
from sklearn import decomposition, metrics, preprocessing
classes, guessed = np.array([0, 1, 2, 1, 0, 2]), np.array([0, 1, 1, 1, 2, 2])
V = np.abs(X) + 0.5
calls = [
    *((f, (X[:, 0], X[:, 1])) for f in (metrics.mean_squared_error, metrics.mean_absolute_error)),
    (metrics.d2_tweedie_score, (V[:, 0], V[:, 1])),
    *((f, (classes, guessed)) for f in (metrics.accuracy_score, metrics.zero_one_loss, metrics.confusion_matrix)),
    (metrics.pairwise.polynomial_kernel, (X, X)),
    (lambda a: decomposition.PCA(2, svd_solver="full").fit(a).explained_variance_, (X,)),
    (lambda a: preprocessing.LabelEncoder().fit_transform(a), (classes,)),
]
for f, args in calls:
    with sklearn.config_context(array_api_dispatch=True):
        got = f(*map(jnp.asarray, args))
    np.testing.assert_allclose(np.asarray(got), f(*args), rtol=1e-4, atol=1e-5, err_msg=str(f))
""",
    "xarray": """
import xarray
theirs, ours = (xarray.DataArray(a, dims=("a", "b"), coords={"a": np.arange(6)}) for a in (X, x))
for f in (lambda d: d.mean("a"), lambda d: d.isel(a=slice(1, 3)) * 2, lambda d: d.sel(a=3), lambda d: d.T @ d.T.T):
    np.testing.assert_allclose(f(ours).values, f(theirs).values, rtol=1e-5)
assert isinstance(ours.mean("a").data, jax.Array)
""",
    "einops": """
import einops
for f in (
    lambda x: einops.rearrange(x, "(a b) c -> b (a c)", a=2), lambda x: einops.reduce(x, "a b -> b", "mean"),
    lambda x: einops.repeat(x, "a b -> a b 3"),
):
    np.testing.assert_allclose(jax.jit(f)(x), f(X), rtol=1e-5)
    assert isinstance(f(x), jax.Array)
""",
    "pandas": """
import pandas
frame = pandas.DataFrame(x, columns=list("abcd"))
np.testing.assert_array_equal(jnp.asarray(frame.to_numpy()), X)
np.testing.assert_allclose(jnp.asarray(frame["a"]).sum(), X[:, 0].sum(), rtol=1e-6)
assert pandas.Series(jnp.arange(3)).tolist() == [0, 1, 2]
""",
    "matplotlib": """
import matplotlib
matplotlib.use("Agg")
from matplotlib import pyplot
figure, axes = pyplot.subplots(1, 4)
(line,) = axes[0].plot(x[:, 0], x[:, 1])
np.testing.assert_array_equal(line.get_ydata(), X[:, 1])
axes[1].imshow(x), axes[2].hist(x[:, 0]), axes[3].errorbar(jnp.arange(6), x[:, 0], yerr=jnp.abs(x[:, 1]))
figure.savefig("figure.png")
""",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("library", WITH_LIBRARY)
def test_arrays_in_a_library(library, tmp_path):
    """`jax` is mpijax, for libraries that ask whether an array is JAX's."""
    found = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({library!r}) is None)"
    if subprocess.run([PYTHON, "-c", found]).returncode:
        pytest.skip(f"{library} is not installed")
    done = subprocess.run(
        [PYTHON, "-m", "mpijax.as_jax", "-c", BEGIN + WITH_LIBRARY[library]], env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True, text=True, timeout=240, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
