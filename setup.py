"""Builds every ``cython_ext/<name>.pyx`` as ``mpijax._ext.<name>``.

Only ``mpi.pyx`` sees MPI. Its compiler flags come from ``$MPICC -show`` or, when MPICC is not set, from the
mpicc of the ``mpich`` wheel that stands in the same environment as the Python that builds. The run path which
mpicc would add is left out: at run time mpi4py loads the MPI library first, and the extension is bound to
that library by its soname. So an extension built in pip's isolated environment does not look for a library in
a folder that is gone.

One source that fails does not keep the others from being built; the failures are listed at the end.
"""

import contextlib
import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

SOURCES = Path("cython_ext")
# Extensions that only handle Python objects get -O2: -O3 takes a third longer for code as fast. Code that runs once for
# each program gets -O1, which takes half the time.
OBJECTS, ONCE = {"array", "dispatch", "dlpack"}, {"forms", "loading", "record"}
DEPENDENCIES = [
    "numpy>=2.1",
    "scipy>=1.16",
    "ml_dtypes>=0.6",
    "opt_einsum>=3.3", # the order of contraction of einsum with three operands or more
    "cloudpickle>=3.1.2", # functions and classes of scripts and notebooks (spawn); the first version for Python 3.14
    "llvmlite>=0.46",
    "numba>=0.63", # users' kernels (numba_call); the first version that goes with llvmlite 0.46
    "mpi4py>=4.1",
]
# The mpich wheel is MPI for those who have none. It would shadow a system MPI, therefore MPICC leaves it out.
if "MPICC" not in os.environ:
    DEPENDENCIES.append("mpich>=4.3")


def mpi_compiler() -> str:
    """The MPI compiler wrapper: $MPICC, or mpicc of the environment that holds the mpich wheel."""
    if "MPICC" in os.environ:
        return os.environ["MPICC"]
    beside_python = Path(sys.executable).with_name("mpicc")
    found = str(beside_python) if beside_python.exists() else shutil.which("mpicc")
    if found is None:
        raise RuntimeError(
            "no MPI compiler: neither MPICC is set nor is there an mpicc. "
            "Install the mpich wheel (pip install mpich), or set MPICC to the mpicc of your system's MPI."
        )
    return found


def mpi_flags() -> dict[str, list[str]]:
    """Arguments of `Extension` for code that calls MPI, from ``mpicc -show``, without run paths.

    A wrapper that only prints its own name (Cray's ``cc``) needs no flags when it is also CC.
    """
    wrapper = mpi_compiler()
    try:
        shown = subprocess.run([*shlex.split(wrapper), "-show"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", "") or error
        raise RuntimeError(
            f"`{wrapper} -show` failed, so where mpi.h is remains unknown: {detail}"
        ) from error
    flags: dict[str, list[str]] = {"extra_compile_args": [], "extra_link_args": []}
    words = iter(shlex.split(shown.stdout.strip().splitlines()[0])[1:])
    for word in words:
        if word == "-Xlinker":
            next(words, None)
        elif word.startswith(("-I", "-D")):
            flags["extra_compile_args"].append(word)
        elif word.startswith(("-L", "-l")) or (word.startswith("/") and not word.endswith(".c")):
            flags["extra_link_args"].append(word)
    return flags


def extension(source: Path) -> Extension:
    import numpy

    level = "-O1" if source.stem in ONCE else "-O2" if source.stem in OBJECTS else "-O3"
    return Extension(
        f"mpijax._ext.{source.stem}",
        [str(source)],
        include_dirs=[numpy.get_include(), str(SOURCES)],
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION")],
        extra_compile_args=[level, "-g0", "-pthread", "-fno-math-errno", "-fno-trapping-math", "-Wno-unused-function",
                            "-Wno-psabi"],
        extra_link_args=["-pthread"],
    )


def named_by(source: Path) -> set[Path]:
    """The headers and declaration files that a source needs, each through others as well. If one of them changes, the
    extension is built again."""
    found = {path for path in [source.with_suffix(".pxd")] if path.exists()}
    unread = [source, *found]
    while unread:
        text = unread.pop().read_text()
        names = re.findall(r'"(\w+\.h)"', text) + [f"{m}.pxd" for m in re.findall(r"\bmpijax\._ext\.(\w+)", text)]
        new = {SOURCES / name for name in names if (SOURCES / name).exists()} - found
        found |= new
        unread += new
    return found


def size(source: Path) -> int:
    """The bytes of a source and of what it includes."""
    return sum(path.stat().st_size for path in {source, *named_by(source)})


def declarations() -> str:
    """A folder in which ``from mpijax._ext.tree cimport ...`` finds ``cython_ext/tree.pxd``, as the modules
    are named."""
    root = Path("build/pxd")
    package = root / "mpijax"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.pxd").touch()
    (package / "_ext").unlink(missing_ok=True)
    (package / "_ext").symlink_to(SOURCES.resolve())
    return str(root)


@contextlib.contextmanager
def exclusive(folder: Path):
    """Builds of the same tree wait for each other instead of writing the same files."""
    import fcntl  # here, because Windows has none, and shall get the sentence of check_system

    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


# Python runs this line when it starts: with MPIJAX_AS_JAX=1, `jax` is mpijax (mpijax/as_jax). Else it does nothing.
AS_JAX = 'import os; os.environ.get("MPIJAX_AS_JAX", "0") not in ("", "0") and __import__("mpijax.as_jax")\n'


class BuildPy(build_py):
    """Puts the batch scripts, which ``mpijax submit`` fills in, into the package, and a .pth file beside it."""

    def run(self):
        super().run()
        # What is beside the package is installed as it is, in editable form too.
        beside = self.get_finalized_command("install").install_lib if self.editable_mode else self.build_lib
        self.mkpath(beside)
        Path(beside, "mpijax_as_jax.pth").write_text(AS_JAX)
        if not self.editable_mode:
            for script in sorted(Path("launch").glob("*.sh")):
                target = Path(self.build_lib, "mpijax", "cli", "launch", script.name)
                self.mkpath(str(target.parent))
                self.copy_file(str(script), str(target))


class BuildExt(build_ext):
    """Translates the extensions one after the other, and compiles them beside that; only what is out of date."""

    def finalize_options(self):
        super().finalize_options()
        self.in_tree = self.inplace  # which setuptools unsets while it builds

    def run(self):
        self.failures: list[tuple[str, BaseException]] = []
        self.translating = threading.Lock()  # Cython is not made for threads
        self.done = 0
        with exclusive(Path("build")):
            super().run()
        if self.failures:
            lines = [f"  {name}: {type(error).__name__}: {error}" for name, error in self.failures]
            raise SystemExit("\n".join(["these extensions were not built (messages above):", *lines]))

    def build_extensions(self):
        self.check_extensions_list(self.extensions)
        self.total = len(self.extensions)

        def attempt(ext):
            try:
                self.build_extension(ext)
            except Exception as error:
                self.failures.append((ext.name, error))
                self.extensions.remove(ext)  # nothing to copy into the source tree

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            list(pool.map(attempt, list(self.extensions)))

    def build_extension(self, ext):
        from Cython.Build import cythonize

        ext.depends = [str(path) for path in sorted(named_by(Path(ext.sources[0])))]
        if ext.name == "mpijax._ext.mpi":
            for key, value in mpi_flags().items():
                setattr(ext, key, getattr(ext, key) + value)
        with self.translating:
            (translated,) = cythonize([ext], build_dir="build/cython", include_path=[declarations()], quiet=True)
        ext.sources = translated.sources
        ext._needs_stub = False
        built = Path(self.get_ext_fullpath(ext.name))
        in_tree = Path(*ext.name.split(".")).with_name(built.name)
        if self.in_tree and in_tree.exists() and not built.exists():
            # pip has compiled it in a folder that is gone, for an editable installation.
            self.mkpath(str(built.parent))
            self.copy_file(str(in_tree), str(built))
        before = built.stat().st_mtime_ns if built.exists() else None
        super().build_extension(ext)
        self.done += 1
        if before is None or built.stat().st_mtime_ns != before:
            print(f"compiled {ext.name} ({self.done} of {self.total})", flush=True)


def check_system() -> None:
    """The runtime uses futexes, /proc, robust locks and ELF loading: say so instead of failing in a C header."""
    if not sys.platform.startswith("linux"):
        raise SystemExit(
            f"mpijax runs on Linux only, and this is {platform.system() or sys.platform}. "
            "Use a Linux container or virtual machine (on Windows: WSL 2)."
        )


check_system()
setup(
    # The largest first: with them last, one core would wait for another.
    ext_modules=[extension(source) for source in sorted(SOURCES.glob("*.pyx"), key=size, reverse=True)],
    install_requires=DEPENDENCIES,
    cmdclass={"build_ext": BuildExt, "build_py": BuildPy},
)
