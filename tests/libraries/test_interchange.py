"""Arrays go to other libraries and come back: DLPack, the array API standard, NumPy's protocols."""

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


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES[:1] + ["int32", "float32", "float16", "complex64"])
def test_dlpack_to_torch_and_back(dtype):
    torch = pytest.importorskip("torch")
    x = jnp.asarray(X).astype(dtype)
    there = torch.from_dlpack(x)
    np.testing.assert_array_equal(there.numpy(), x)
    back = jnp.from_dlpack(there.clone().contiguous())
    assert back.dtype == x.dtype
    np.testing.assert_array_equal(back, x)


def as_jax(program: str) -> None:
    """Run a program in which `jax` is mpijax, for libraries that ask whether an array is JAX's."""
    done = subprocess.run(
        [sys.executable, "-m", "mpijax.as_jax", "-c", program], env={**os.environ, "SCIPY_ARRAY_API": "1"},
        capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.slow
def test_scikit_learns_array_api():
    """Some metrics. Much of it writes into arrays, which neither JAX's nor these allow."""
    pytest.importorskip("sklearn")
    as_jax(
        "import numpy as np, jax, jax.numpy as jnp, sklearn\n"
        "from sklearn import metrics\n"
        "x = np.random.default_rng(0).normal(size=(20, 3)).astype('f4')\n"
        "for f in (metrics.mean_squared_error, metrics.mean_absolute_error):\n"
        "    with sklearn.config_context(array_api_dispatch=True):\n"
        "        got = f(jnp.asarray(x[:, 0]), jnp.asarray(x[:, 0] + x[:, 1]))\n"
        "    np.testing.assert_allclose(float(got), f(x[:, 0], x[:, 0] + x[:, 1]), rtol=1e-5)\n"
    )


@pytest.mark.slow
def test_xarray_holds_arrays():
    xarray = pytest.importorskip("xarray")
    theirs, ours = (xarray.DataArray(x, dims=("a", "b"), coords={"a": np.arange(6)}) for x in (X, jnp.asarray(X)))
    for f in (lambda d: d.mean("a"), lambda d: d.isel(a=slice(1, 3)) * 2, lambda d: d.sel(a=3), lambda d: d.T @ d.T.T):
        np.testing.assert_allclose(f(ours).values, f(theirs).values, rtol=1e-5)
    assert isinstance(ours.mean("a").data, jax.Array)


@pytest.mark.slow
def test_einops():
    pytest.importorskip("einops")
    as_jax(
        "import einops, numpy as np, jax, jax.numpy as jnp\n"
        "x = np.random.default_rng(0).normal(size=(6, 4)).astype('f4')\n"
        "for f in (lambda x: einops.rearrange(x, '(a b) c -> b (a c)', a=2), lambda x: einops.reduce(x, 'a b -> b', 'mean'),\n"
        "          lambda x: einops.repeat(x, 'a b -> a b 3')):\n"
        "    got = jax.jit(f)(jnp.asarray(x))\n"
        "    np.testing.assert_allclose(got, f(x), rtol=1e-5)\n"
        "    assert isinstance(f(jnp.asarray(x)), jax.Array)\n"
    )


@pytest.mark.slow
def test_pandas_tables():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(jnp.asarray(X), columns=list("abcd"))
    np.testing.assert_array_equal(jnp.asarray(frame.to_numpy()), X)
    np.testing.assert_allclose(jnp.asarray(frame["a"]).sum(), X[:, 0].sum(), rtol=1e-6)
    assert pandas.Series(jnp.arange(3)).tolist() == [0, 1, 2]


@pytest.mark.slow
def test_matplotlib_draws_arrays(tmp_path):
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 4)
    x = jnp.asarray(X)
    (line,) = axes[0].plot(x[:, 0], x[:, 1])
    np.testing.assert_array_equal(line.get_ydata(), X[:, 1])
    axes[1].imshow(x), axes[2].hist(x[:, 0]), axes[3].errorbar(jnp.arange(6), x[:, 0], yerr=jnp.abs(x[:, 1]))
    figure.savefig(tmp_path / "figure.png")
    pyplot.close(figure)
