"""The public names: where JAX's programs look for them, loaded lazily, and what the small modules do."""

import importlib
import importlib.util
import subprocess
import sys

import jax
import numpy as np
import pytest
from oracle import OURS, THEIRS, sample

import mpijax

X3 = sample(3)
SMALL_MODULES = "ad_checkpoint tree tree_util errors dtypes typing test_util flatten_util dlpack distributed".split()
# Names of JAX's that belong to XLA, to other accelerators or to parts which are not there yet.
ELSEWHERE = set(
    """api_util core export image lib memory monitoring ops
    stages Shard host_ids make_user_context
    jax2tf_associative_scan_reductions ad ds""".split()
)


def loaded_by(code: str, packages: str) -> set[str]:
    """Which of some packages a new Python process has loaded after running `code`."""
    show = "import sys; print(*{m.split('.')[0] for m in sys.modules})"
    ran = subprocess.run(
        [sys.executable, "-c", f"{code}\n{show}"], capture_output=True, text=True, check=True
    )
    return set(ran.stdout.split()) & set(packages.split())


def test_import_loads_nothing_else():
    assert loaded_by("import mpijax", "numpy scipy llvmlite numba mpi4py ml_dtypes") == set()


def test_tracing_loads_no_mpi_and_no_scipy():
    code = "import mpijax, mpijax.numpy as jnp; mpijax.make_jaxpr(lambda x: jnp.sin(x) @ x)(jnp.ones(3))"
    assert loaded_by(code, "scipy numba mpi4py") == set()


@pytest.mark.parametrize("name", mpijax.__all__)
def test_every_name_is_there(name):
    assert getattr(mpijax, name) is not None
    assert name in dir(mpijax)


def test_jaxs_names_are_there():
    theirs = {n for n in dir(jax) if not n.startswith("_")}
    assert theirs - set(mpijax.__all__) - ELSEWHERE == set()


@pytest.mark.parametrize("module", SMALL_MODULES)
def test_small_modules_have_jaxs_names(module):
    theirs = importlib.import_module(f"jax.{module}")
    ours = importlib.import_module(f"mpijax.{module}")
    missing = {n for n in dir(theirs) if not n.startswith("_")} - set(dir(ours)) - ELSEWHERE
    assert {n for n in missing if not isinstance(getattr(theirs, n), type(sys))} == set()


def test_no_module_stands_in_for_a_function():
    """A module named like a function would take its place in the package once something imports it."""
    import mpijax.numpy as jnp

    names = [name for name in jnp.__all__ if name not in ("fft", "linalg")]
    assert [n for n in names if importlib.util.find_spec(f"mpijax.numpy.{n}") is not None] == []


def test_unknown_names_are_attribute_errors():
    with pytest.raises(AttributeError, match="module 'mpijax' has no attribute 'grda'"):
        mpijax.grda  # noqa: B018
    with pytest.raises(ImportError):
        from mpijax import grda  # noqa: F401


# ---------------------------------------------------------------- contexts


def test_contexts_change_tracing_and_end():
    with OURS.enable_x64(True):
        assert OURS.numpy.ones(2).dtype == np.float64
        with OURS.experimental.disable_x64():
            assert OURS.numpy.ones(2).dtype == np.float32
    assert OURS.numpy.ones(2).dtype == np.float32
    with OURS.experimental.enable_x64(), OURS.named_scope("layer"), OURS.default_device(None):
        assert OURS.numpy.arange(2).dtype == np.int64


def test_named_scope_and_named_call_leave_programs_alone():
    @OURS.named_scope("layer")
    def f(x):
        return OURS.named_call(lambda y: y * 2, name="inner")(x)

    assert float(f(2.0)) == 4
    with pytest.raises(TypeError, match="name argument must be a string"):
        OURS.named_scope(3)


def test_compile_time_values_in_a_traced_function():
    @OURS.jit
    def f(x):
        with OURS.ensure_compile_time_eval():
            count = int(OURS.numpy.cumsum(OURS.numpy.arange(4))[1])
        return x[:count]

    assert f(X3).shape == (1,)


def test_clear_caches_traces_again():
    seen = []
    f = OURS.jit(lambda x: seen.append(1) or x)
    f(X3)
    OURS.clear_caches()
    f(X3)
    assert len(seen) == 2


def test_environment_info_names_versions():
    text = OURS.print_environment_info(return_string=True)
    assert mpijax.__version__ in text and np.__version__ in text and "ranks:  " in text and "jaxlib" not in text


# ---------------------------------------------------------------- vectors of trees, exchange of arrays


@pytest.mark.parametrize(
    "tree",
    [
        {"a": X3, "b": [np.float32(2), sample(2, 2)]},
        {"a": X3, "b": np.int32(3)},
        {},
        (X3 > 0, np.ones(2, np.int8)),
    ],
)
def test_ravel_pytree_is_jaxs(tree):
    (theirs, back), (ours, ours_back) = (J.flatten_util.ravel_pytree(tree) for J in (THEIRS, OURS))
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
    for a, b in zip(OURS.tree.leaves(ours_back(ours)), THEIRS.tree.leaves(back(theirs)), strict=True):
        assert a.dtype == b.dtype and np.array_equal(a, b)


def test_unravel_checks_its_argument():
    vector, unravel = OURS.flatten_util.ravel_pytree({"a": X3, "b": np.int32(3)})
    with pytest.raises(ValueError, match="shape"):
        unravel(vector[:2])
    with pytest.raises(TypeError, match="but expected dtype float32"):
        unravel(vector.astype("int32"))
    assert unravel == OURS.flatten_util.ravel_pytree({"a": X3, "b": np.int32(3)})[1]


def test_gradients_through_ravel():
    def loss(J):
        vector, unravel = J.flatten_util.ravel_pytree({"a": X3, "b": X3 * 2})
        return np.asarray(J.grad(lambda v: (unravel(v)["a"] * unravel(v)["b"]).sum())(vector))

    np.testing.assert_array_equal(loss(OURS), loss(THEIRS))


def test_dlpack_shares_memory():
    buffer = np.arange(1024, dtype=np.float32)
    shared = OURS.dlpack.from_dlpack(buffer)
    buffer[0] = 7
    assert float(shared[0]) == 7 and isinstance(shared, OURS.Array)
    copied = OURS.dlpack.from_dlpack(buffer, copy=True)
    buffer[0] = 8
    assert float(copied[0]) == 7
    assert np.from_dlpack(OURS.numpy.arange(3)).tolist() == [0, 1, 2]
    assert np.asarray(OURS.dlpack.from_dlpack(buffer[::2])).tolist() == buffer[::2].tolist()


def test_dlpack_refuses_what_it_cannot_take():
    with pytest.raises(TypeError, match="__dlpack__"):
        OURS.dlpack.from_dlpack([1, 2])
    with pytest.raises(ValueError, match="copy=False"):
        OURS.dlpack.from_dlpack(np.arange(4.0)[::2], copy=False)
    assert OURS.dlpack.is_supported_dtype(np.float32) and not OURS.dlpack.is_supported_dtype("U3")


# ---------------------------------------------------------------- arrays and devices


def test_device_put_and_get():
    tree = {"a": X3, "b": 2.0}
    placed = OURS.device_put(tree, OURS.devices()[0])
    assert all(isinstance(x, OURS.Array) for x in placed.values())
    assert isinstance(OURS.device_get(placed)["a"], np.ndarray)
    assert OURS.block_until_ready(placed) is placed
    assert OURS.typeof(placed["a"]).shape == (3,)
    OURS.effects_barrier()


def test_distributed_initialize_checks_the_launcher():
    distributed = OURS.distributed
    try:
        with pytest.raises(RuntimeError, match=r"expects 1000 processes.*mpirun -n 1000"):
            distributed.initialize(num_processes=1000)
        with pytest.raises(RuntimeError, match="Leave process_id out"):
            distributed.initialize(process_id=999)
        with pytest.raises(ValueError, match="one device"):
            distributed.initialize(local_device_ids=[1])
        assert not distributed.is_initialized()
        distributed.initialize(num_processes=OURS.process_count(), process_id=OURS.process_index())
        assert distributed.is_initialized()
        with pytest.raises(RuntimeError, match="only be called once"):
            distributed.initialize()
    finally:
        distributed.shutdown()
    assert not distributed.is_initialized()
