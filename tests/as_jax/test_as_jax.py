"""`mpijax.as_jax`: programs and libraries that import jax get mpijax, however they are started."""

import importlib.util
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from launching import PATHS
from quickly import one_in

import mpijax

ROOT = Path(mpijax.__file__).parent.parent

# A library as there are many: it takes names from everywhere, and much of it is never called.
LIBRARY = """
import functools
import typing
import jax
import jax.numpy as jnp
import jax.experimental.pallas as pl
from jax import lax, tree_util
from jax._src import core
from jax._src.ad_checkpoint import saved_residuals
from jax._src.lib import xla_client
from jax._src import custom_api_util, dispatch, dtypes
from jax._src.api import ShapeDtypeStruct
from jax._src.mesh import thread_resources
from jax._src.sharding import Sharding
from jax._src.typing import Array, ArrayLike, DTypeLike
import jaxlib.mlir.ir as ir
from jax._src.numpy import einsum as jax_einsum, lax_numpy
from jax._src.numpy.ufuncs import ufunc
from jax.experimental.pallas import mosaic_gpu as plgpu
from jax.experimental.pallas import tpu as pltpu
from jaxlib.xla_extension import PjitFunction
try:
    from jax._src import gone
except ImportError:
    gone = None
try:
    import jax.interpreters.nothing
except ModuleNotFoundError:
    pass

@tree_util.register_pytree_node_class
class Pair:
    def __init__(self, a, b): self.a, self.b = a, b
    def tree_flatten(self): return (self.a, self.b), None
    @classmethod
    def tree_unflatten(cls, _, children): return cls(*children)

def norm(x: jax.Array, block: "pl.BlockSpec | None" = None) -> jax.Array:
    return jnp.sqrt(lax.dot(x, x))

@custom_api_util.register_custom_decorator_type
class decorated: pass

dispatch.prim_requires_devices_during_lowering.add(decorated)

def outer(x):
    step = ((1, 0), frozenset(), "b,a->ab")
    return jax_einsum._einsum([x, x], (step,), None, None, lambda a, b, *args, **kwargs: 2 * lax.dot_general(a, b, *args, **kwargs))

def negative(x):
    kernel = lambda r, o: o.set(-r[...])
    return pl.pallas_call(kernel, out_shape=x, compiler_params=pltpu.CompilerParams(collective_id=0))(x)

def kernel(x):
    return plgpu.kernel(lambda r, o: None, out_shape=x)(x)

class Params(plgpu.CompilerParams): pass
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "fakelib.py").write_text(LIBRARY)
    return tmp_path


def python(folder, *words, check=True, **variables):
    env = {k: v for k, v in os.environ.items() if k != "MPIJAX_AS_JAX"}
    env |= {"PYTHONPATH": f"{PATHS}{os.pathsep}{folder}", **variables}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=env, cwd=folder, timeout=120)
    assert not check or done.returncode == 0, done.stderr
    return done


def as_jax(folder, code, *words, **kwargs):
    (folder / "program.py").write_text(textwrap.dedent(code))
    return python(folder, "-m", "mpijax.as_jax", "program.py", *words, **kwargs)


def test_modules_of_jax_are_those_of_mpijax(folder):
    as_jax(
        folder,
        """
        import sys, importlib, importlib.util
        import jax.scipy.stats.norm, jax.numpy.linalg as la, jaxlib, mpi4jax, mpijax
        from jax import numpy as jnp, version
        import jax.experimental.pallas.ops.tpu.flash_attention
        from jax.experimental.pallas import ops, tpu

        assert jnp is mpijax.numpy and la is mpijax.numpy.linalg and mpi4jax is mpijax.mpi
        assert jax.vmap is mpijax.vmap and jax.Array is mpijax.Array and jax.Array.__module__ == "jax"
        assert sys.modules["jax.numpy"] is sys.modules["mpijax.numpy"]
        assert jnp.__spec__.name == "mpijax.numpy" and jnp.__name__ == "mpijax.numpy"
        again = importlib.reload(jnp)
        assert again is jnp and jnp.ones(2).sum() == 2
        assert set(dir(mpijax)) <= set(dir(jax)) and jax.__name__ == "jax"
        copies = [n for n, m in sys.modules.items() if n.startswith("jax.") and getattr(m, "__name__", "").startswith("jax.")]
        assert all("pallas.ops" in n for n in copies), copies
        assert importlib.util.find_spec("jax.nothing") is None and importlib.util.find_spec("jax.lax") is not None
        """,
    )


@pytest.mark.parametrize("first", ["", "import mpijax; mpijax.jit(lambda x: x)(mpijax.numpy.ones(2))"])
def test_classes_of_arrays_name_modules_of_jax(folder, first):
    """autoray and wandb choose by these names. The classes are importable from the modules that they name."""
    done = as_jax(
        folder,
        f"""
        import importlib, sys
        {first}
        import mpijax.as_jax
        import jax, jax.numpy as jnp

        kinds = [jax.Array, type(jnp.ones(2)), jax.core.Tracer]
        note = lambda x: kinds.append(type(x)) or x * x
        for f in (jax.jit(note), jax.vmap(note), jax.grad(lambda x: note(x).sum()), lambda x: jax.jvp(note, (x,), (x,))):
            f(jnp.ones(2))
        assert len(set(kinds)) >= 6
        for kind in kinds:
            assert getattr(importlib.import_module(kind.__module__), kind.__name__) is kind, kind
        class Own(jax.core.Tracer): pass
        print({{kind.__module__.split(".")[0] for kind in kinds[2:]}}, kinds[0].__module__, kinds[1], Own.__module__)
        """,
    )
    assert done.stdout == "{'jax'} jax <class 'jaxlib._jax.ArrayImpl'> __main__\n"


def test_modules_that_jax_has_without_an_import_are_among_pythons(folder):
    """Treescope looks there for the module of a name."""
    as_jax(
        folder,
        """
        import sys, jax
        assert jax.tree_util.SequenceKey and sys.modules["jax.tree_util"] is jax.tree_util
        import jax.tree_util as tree_util
        assert tree_util is jax.tree_util and tree_util.__name__ == "mpijax.tree_util"
        assert sys.modules["jax"] is jax and not hasattr(jax, "nothing") and "jax.jit" not in sys.modules
        """,
    )


def test_functions_that_refer_to_modules_are_sent_to_other_processes(folder):
    as_jax(
        folder,
        """
        import cloudpickle, importlib, pickle
        import jax, jax.numpy as jnp
        from jax.experimental.pallas import ops
        from jaxlib import version
        from jax._src import partition_spec
        from jax._src.lib import xla_client
        from jaxlib.xla_client import Device
        assert Device is jax.Device and xla_client.XlaRuntimeError is jax.errors.JaxRuntimeError
        assert partition_spec.PartitionSpec is jax.sharding.PartitionSpec
        for module in (jax, jnp, jax.lax, jax.nn, ops, version):
            assert pickle.loads(cloudpickle.dumps(module)) is module
        """,
    )


def test_versions_are_those_of_the_jax_that_is_followed(folder):
    done = as_jax(
        folder,
        """
        import importlib.metadata as metadata
        import jax, jaxlib, jaxlib.version, jax.version, mpijax
        import numpy
        assert metadata.version("numpy") == numpy.__version__
        print({jax.__version__, jaxlib.__version__, jaxlib.version.__version__, jax.version.__version__,
               metadata.version("jax"), metadata.version("jaxlib"), metadata.distribution("JAX").metadata["Version"]})
        assert mpijax.__version__ == mpijax.version.__version__ != jax.__version__
        assert jax.__version_info__ == mpijax.__version_info__
        assert f"jax:    {jax.__version__}\\njaxlib: {jax.__version__}" in jax.print_environment_info(return_string=True)
        import mpi4jax
        assert mpi4jax.__version__ == metadata.version("mpi4jax") == "0.9.1"
        """,
    )
    assert done.stdout.strip() == str({".".join(map(str, mpijax.__version_info__))})


@pytest.mark.slow  # by default tests above import the modules
def test_a_library_runs(folder):
    as_jax(
        folder,
        """
        import inspect, pickle, typing
        import fakelib, jax, jax.numpy as jnp

        assert float(jax.jit(fakelib.norm)(jnp.array([3.0, 4.0]))) == 5.0
        assert fakelib.negative(jnp.arange(3)).tolist() == [0, -1, -2]
        assert jax.devices()[0].__class__ is fakelib.xla_client.Device and fakelib.saved_residuals(jnp.sin, 1.0)
        assert fakelib.Array is jax.Array and fakelib.Sharding is jax.sharding.Sharding
        assert fakelib.ShapeDtypeStruct is jax.ShapeDtypeStruct and fakelib.dtypes.dtype(1.0) == "float32"
        from jax.interpreters.pxla import thread_resources
        assert thread_resources is fakelib.thread_resources
        assert fakelib.outer(jnp.arange(1, 3)).tolist() == [[2, 4], [4, 8]]
        assert float(jax.grad(lambda p: p.a * p.b)(fakelib.Pair(2.0, 3.0)).a) == 3.0
        assert isinstance(jax.jit(fakelib.norm), fakelib.PjitFunction) and fakelib.gone is None
        hints = typing.get_type_hints(fakelib.norm)
        assert hints["x"] is jax.Array
        assert isinstance(jnp.ones(2), jax.Array) and not isinstance(1.0, fakelib.pl.BlockSpec)
        x = pickle.loads(pickle.dumps({"x": jnp.arange(3), "class": jax.Array, "function": jax.vmap, "spec": jax.P("a")}))
        assert x["class"] is jax.Array and x["function"] is jax.vmap and x["x"].tolist() == [0, 1, 2]
        assert "def vmap" in inspect.getsource(jax.vmap) and inspect.signature(jax.grad)
        """,
    )


def test_public_modules_of_jax_can_be_imported(folder):
    """But for `roofline.roofline`: in both packages, the attribute of that name is a function."""
    jax = Path(importlib.util.find_spec("jax").origin).parent
    paths = [path.relative_to(jax.parent).with_suffix("") for path in jax.rglob("*.py")]
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    public = sorted(n for n in names - {"jax.experimental.roofline.roofline"} if "._" not in n)
    assert len(public) > 100
    as_jax(folder, f"import importlib\nfor name in {public}: importlib.import_module(name)")


def test_what_is_missing_says_so_when_it_is_used(folder):
    done = as_jax(
        folder,
        """
        import fakelib, jax
        for use in (fakelib.Params, lambda: fakelib.kernel(1), lambda: fakelib.plgpu.Missing.some.part()):
            try:
                use()
            except NotImplementedError as error:
                print(error)
        assert not hasattr(fakelib.plgpu, "_private")
        """,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all("mpijax does not have jax.experimental.pallas.mosaic_gpu" in line for line in lines)
    assert "numba" in lines[0]


@pytest.mark.parametrize("start", ["import mpijax.as_jax, jax", pytest.param("import mpijax", marks=pytest.mark.slow)])
def test_asking_for_a_name_is_no_error(folder, start):
    python(
        folder, "-c",
        f"{start}; import mpijax\n"
        "for name in ('lib', 'tools', 'nothing', '__wrapped__', 'cloud_tpu_init'):\n"
        "    assert not hasattr(mpijax, name) and getattr(mpijax.experimental, name, 1) == 1, name\n"
        "assert not hasattr(mpijax.experimental, 'mosaic') and not hasattr(mpijax.interpreters, 'pxla')",
    )  # fmt: skip


def test_without_it_modules_left_out_are_import_errors_with_the_reason(folder):
    for code in ("from mpijax.experimental.pallas import mosaic_gpu", "import mpijax.experimental.pallas.mosaic_gpu"):
        done = python(folder, "-c", code, check=False)
        assert "ImportError: mpijax does not have experimental.pallas.mosaic_gpu: kernels for CPUs are" in done.stderr


# ---------------------------------------------------------------- ways to start


SHOW = "import jax, sys; print(jax.__version__, jax.vmap.__module__.split('.')[0], sys.argv, __name__)"


@pytest.mark.parametrize(
    ("words", "argv"),
    one_in(2, [
        (["shown.py", "a", "-b"], "['shown.py', 'a', '-b']"),
        (["-c", SHOW, "a"], "['-c', 'a']"),
        (["-m", "shown", "-x"], "-x']"),
        (["directory", "a"], "['directory', 'a']"),
    ], rows=True),
)
def test_programs_start_as_python_starts_them(folder, words, argv):
    (folder / "shown.py").write_text(SHOW)
    (folder / "directory").mkdir()
    (folder / "directory" / "__main__.py").write_text(SHOW)
    done = python(folder, "-m", "mpijax.as_jax", *words)
    assert done.stdout.startswith("0.") and " mpijax [" in done.stdout
    assert argv in done.stdout and done.stdout.rstrip().endswith("__main__")


def test_annotations_are_objects_unless_the_program_says_otherwise(folder):
    """The program does not inherit `from __future__ import annotations` of the code that compiles it."""
    code = "def f(x: int): pass\nprint(f.__annotations__)"
    for future, shown in (("", "{'x': <class 'int'>}"), ("from __future__ import annotations\n", "{'x': 'int'}")):
        assert as_jax(folder, future + code).stdout.strip() == shown
        assert python(folder, "-m", "mpijax.as_jax", "-c", future + code).stdout.strip() == shown


def test_statuses_and_tracebacks_are_the_programs(folder):
    done = as_jax(folder, "def f():\n    raise KeyError('x')\nf()\n", check=False)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):" and 'program.py", line 3' in lines[1]
    assert lines[-1] == "KeyError: 'x'" and "runpy" not in done.stderr and "as_jax" not in done.stderr
    assert as_jax(folder, "raise SystemExit(7)", check=False).returncode == 7
    assert "line 1" in as_jax(folder, "x = = 1", check=False).stderr
    assert "cannot open" in python(folder, "-m", "mpijax.as_jax", "none.py", check=False).stderr
    assert python(folder, "-m", "mpijax.as_jax", check=False).returncode == 2


@pytest.mark.slow  # by default others below run programs
def test_classes_and_processes_of_a_program(folder):
    """What multiprocessing starts anew finds the program's functions, and jax."""
    as_jax(
        folder,
        """
        import multiprocessing, pickle, jax, jax.numpy as jnp
        class C: pass
        assert isinstance(pickle.loads(pickle.dumps(C())), C)
        def f(x): return float(jnp.sum(jnp.arange(x))), jax.__name__
        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                assert pool.apply(f, (4,)) == (6.0, "jax")
        """.replace("import multiprocessing", "import mpijax.as_jax, multiprocessing"),
    )


@pytest.mark.slow  # by default tests of libraries run so each night
def test_pytest_runs_under_it(folder):
    (folder / "test_it.py").write_text("import jax\ndef test_name(): assert jax.vmap.__module__.startswith('mpijax')\n")
    assert "1 passed" in python(folder, "-m", "mpijax.as_jax", "-m", "pytest", "-q", "-p", "no:cacheprovider").stdout


def test_the_first_line_of_a_program(folder):
    python(folder, "-c", "import mpijax.as_jax\nimport jax, fakelib\nassert jax.vmap.__module__.startswith('mpijax')")


def test_jax_that_is_imported_already_is_a_clear_error(folder):
    (folder / "jax").mkdir()
    (folder / "jax" / "__init__.py").write_text("")
    done = python(folder, "-c", "import sys; sys.path.insert(0, '.')\nimport jax\nimport mpijax.as_jax", check=False)
    assert "ImportError: mpijax.as_jax: jax is already imported from" in done.stderr
    assert "first line of the program" in done.stderr


@pytest.mark.slow  # by default ranks below get it from the hook
def test_the_installed_hook_heeds_the_variable_and_costs_nothing_without(folder):
    """The line of the .pth file, as Python's `site` runs it."""
    site = folder / "site"
    site.mkdir()
    line = (ROOT / "setup.py").read_text().partition("AS_JAX = ")[2].splitlines()[0]
    (site / "mpijax_as_jax.pth").write_text(eval(line))
    (folder / "sitecustomize.py").write_text(f"import site; site.addsitedir({str(site)!r})")
    modules = "import sys; print('mpijax' in sys.modules)"
    assert python(folder, "-c", modules).stdout == "False\n"
    assert python(folder, "-c", modules, MPIJAX_AS_JAX="0").stdout == "False\n"
    assert python(folder, "-c", modules, MPIJAX_AS_JAX="1").stdout == "True\n"
    shown = python(folder, "-c", SHOW, MPIJAX_AS_JAX="1").stdout
    assert " mpijax " in shown
    child = "import subprocess, sys; print(subprocess.run([sys.executable, 'shown.py'], capture_output=True, text=True))"
    (folder / "shown.py").write_text(SHOW)
    assert " mpijax " in python(folder, "-m", "mpijax.as_jax", "-c", child).stdout


def test_ranks_get_it_from_the_launcher(folder):
    (folder / "shown.py").write_text("import jax, jax.numpy as jnp\nprint(jax.__name__, jax.process_count())")
    done = python(folder, "-m", "mpijax", "run", "--as-jax", "-n", "2", "--bind", "none", "shown.py")
    assert sorted(done.stdout.splitlines()) == ["[0] jax 2", "[1] jax 2"] or "jax 2" in done.stdout


def test_the_hook_for_exceptions_is_installed_once(folder):
    code = """
        import importlib, sys, mpijax.numpy as jnp, mpijax.core.base.tracebacks as tracebacks
        import mpijax.runtime.program.engine as engine
        jnp.ones(2) + 1
        for module in (jnp, tracebacks, engine):
            importlib.reload(module)
        tracebacks.install()
        1 / 0
        """
    (folder / "program.py").write_text(textwrap.dedent(code))
    done = python(folder, "program.py", check=False)
    assert "Error in sys.excepthook" not in done.stderr and done.stderr.count("ZeroDivisionError") == 1
    assert done.stderr.count("Traceback") == 1


# ---------------------------------------------------------------- doctor


def test_doctor_lists_what_a_library_lacks(folder):
    done = python(folder, "-m", "mpijax", "doctor", "--library", "fakelib", check=False)
    assert done.returncode == 1
    found = [line.strip() for line in done.stdout.splitlines() if line.startswith("  jax")]
    assert found == [
        "jax._src.gone",
        "jax.experimental.pallas.mosaic_gpu",
        "jax.interpreters.nothing",
    ]
    assert python(folder, "-m", "mpijax", "doctor", "--library", "nothere", check=False).returncode == 2


def test_doctor_says_what_jax_is(folder):
    from mpijax.cli import checks

    assert "`import jax`" in checks.as_jax().text


@pytest.mark.slow  # by default tests/mpi/test_with_tokens.py has the functions
def test_programs_for_mpi4jax_with_tokens_run_with_the_variable(folder):
    code = """
        from mpi4py import MPI
        import jax
        import mpi4jax
        from mpi4jax import barrier, sendrecv

        @jax.jit
        def total(x):
            y, token = mpi4jax.allreduce(x, op=MPI.SUM, comm=MPI.COMM_WORLD)
            y, token = sendrecv(y, y, 0, 0, comm=MPI.COMM_WORLD, token=token)
            return y, barrier(comm=MPI.COMM_WORLD, token=token)

        print(total(jax.numpy.ones(3))[0])
        """
    assert as_jax(folder, code, MPIJAX_AS_JAX="tokens").stdout == "[1. 1. 1.]\n"
    failed = as_jax(folder, code, check=False)
    assert failed.returncode == 1 and "too many values to unpack" in failed.stderr
