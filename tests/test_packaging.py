"""Installing: what is built, where it finds MPI, and what is said when the machine lacks something."""

import os
import re
import shutil
import stat
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mpijax

ROOT = Path(__file__).resolve().parent.parent
PARTS = [
    "setup.py",
    "pyproject.toml",
    "MANIFEST.in",
    "README.md",
    "LICENSE",
    "NOTICE",
    "Makefile",
    "tools",
    "mpijax",
    "cython_ext",
]


def run(*command, cwd, **environment):
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "MPI"))}
    env.update(environment)
    command = [str(word) for word in command]
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=1500)


def copy_sources(folder):
    """The sources without anything that was built, as in a fresh clone."""
    for name in PARTS:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            shutil.copy(ROOT / name, folder)
    return folder


def script(path, text):
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# ---- what is said when something is missing ----


@pytest.fixture
def sources(tmp_path):
    return copy_sources(tmp_path)


def environment(folder, **variables):
    done = run("sh", "tools/environment.sh", "test", cwd=folder, **{"PYTHON": sys.executable, **variables})
    return done.returncode, done.stderr


def test_no_python(sources):
    code, said = environment(sources, PYTHON="python9")
    assert code and "There is no python9." in said and "apt install python3" in said


def test_old_python(sources):
    old = script(sources / "old", 'case "$1" in --version) echo Python 3.9.2;; *) exit 1;; esac\n')
    code, said = environment(sources, PYTHON=str(old))
    assert code and "is Python 3.9.2, and mpijax needs 3.11 or newer" in said


def test_no_compiler(sources):
    code, said = environment(sources, CC="no-such-cc")
    assert code and "There is no C compiler (no-such-cc)." in said and "apt install gcc" in said


def test_no_python_headers(sources):
    bare = script(sources / "bare", 'case "$2" in *get_path*) echo /nowhere;; *) exit 0;; esac\n')
    code, said = environment(sources, PYTHON=str(bare))
    assert code and "/nowhere/Python.h" in said and "apt install python3-dev" in said


def test_no_venv_module(sources):
    no_venv = script(sources / "nv", f'[ "$2" = venv ] && exit 1\nexec {sys.executable} "$@"\n')
    code, said = environment(sources, PYTHON=str(no_venv))
    assert code and "cannot make virtual environments" in said and "apt install python3-venv" in said
    assert not (sources / ".venv").exists()


def test_mpicc_that_does_not_exist(sources):
    code, said = environment(sources, MPICC="/opt/none/mpicc")
    assert code and "MPICC is set to /opt/none/mpicc, which does not exist" in said


@pytest.mark.slow
def test_no_network(sources):
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_RETRIES": "0", "PIP_FIND_LINKS": ""}
    code, said = environment(sources, **nowhere, PIP_CONFIG_FILE="/dev/null", PIP_EXTRA_INDEX_URL="")
    assert code and "pip cannot reach a package index" in said and "PIP_INDEX_URL" in said


def test_another_system(sources):
    """A sentence, before a C header is missing."""
    code = "import sys, runpy, setuptools.command.build_ext; sys.platform = 'darwin'; sys.argv[1:] = ['--version']; runpy.run_path('setup.py', run_name='__main__')"
    done = run(sys.executable, "-c", code, cwd=sources)
    assert done.returncode and done.stderr.startswith("mpijax runs on Linux only"), done.stderr


@pytest.mark.slow  # by default nothing is installed
def test_progress_is_shown_where_pip_takes_long(sources):
    """Outside of a terminal a line every 20 s; pip is a stand-in."""
    text = (sources / "tools" / "environment.sh").read_text()
    functions = text[text.index("install() {") : text.index("failed() {")].replace("sleep 1", "sleep 0.01")
    script(sources / "pip", 'echo "Collecting numpy>=2"; echo "  compiled mpijax._ext.array (3 of 20)"; sleep 3; exit 7\n')
    (sources / "venv" / "bin").mkdir(parents=True)
    (sources / "pip").rename(sources / "venv" / "bin" / "pip")
    done = run("sh", "-c", f"venv=venv; log=log\n{functions}\ninstall x; echo status $?", cwd=sources)
    assert "20 s   compiled mpijax._ext.array (3 of 20)" in done.stdout and done.stdout.endswith("status 7\n"), done.stdout


# ---- what a package index and a visitor read ----


def test_metadata():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0" and all((ROOT / name).exists() for name in project["license-files"])
    assert {f"Programming Language :: Python :: 3.{minor}" for minor in range(11, 15)} <= set(project["classifiers"])
    assert "the mpijax developers" in [a["name"] for a in project["authors"]]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {mpijax.__version__}\n" in citation and "license: Apache-2.0" in citation


def test_the_front_page_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


# ---- building ----


def test_headers_define_no_name_twice():
    """Two definitions of one macro with different values: a warning of the compiler, and the wrong size in one place."""
    defined: dict[str, set[str]] = {}
    for header in (ROOT / "cython_ext").glob("*.h"):
        for name in re.findall(r"^#define (MJ_\w+)[ (]", header.read_text(), re.MULTILINE):
            defined.setdefault(name, set()).add(header.name)
    assert {name: files for name, files in defined.items() if len(files) > 1} == {}


@pytest.mark.slow
def test_one_source_that_fails_keeps_no_other_from_being_built(tmp_path):
    copy_sources(tmp_path)
    shutil.rmtree(tmp_path / "cython_ext")
    (tmp_path / "cython_ext").mkdir()
    (tmp_path / "cython_ext" / "bad.pyx").write_text("def f(int a: return a\n")
    (tmp_path / "cython_ext" / "good.pyx").write_text("def f(int a): return a + 1\n")
    done = run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=tmp_path)
    assert done.returncode and "mpijax._ext.bad: CompileError" in done.stderr
    built = [path.name.split(".")[0] for path in (tmp_path / "mpijax" / "_ext").glob("*.so")]
    assert built == ["good"]


@pytest.mark.slow
def test_isolated_install_uses_the_mpi_of_its_environment(tmp_path):
    """pip builds in an environment that it throws away; the extension must not look for MPI there."""
    sources = tmp_path / "sources"
    sources.mkdir()
    copy_sources(sources)
    assert run(sys.executable, "-m", "venv", "venv", cwd=tmp_path).returncode == 0
    python = tmp_path / "venv" / "bin" / "python"
    done = run(python, "-m", "pip", "install", sources, cwd=tmp_path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]

    [extension] = (tmp_path / "venv").glob("lib/python*/site-packages/mpijax/_ext/mpi.*.so")
    dynamic = run("readelf", "-d", extension, cwd=tmp_path).stdout
    paths = [line for line in dynamic.splitlines() if "RPATH" in line or "RUNPATH" in line]
    assert not any("pip-build-env" in line or str(tmp_path) in line for line in paths)

    report = (
        "from mpijax.runtime.mpi import mpi_start as m; ext = m.start().ext; import sys\n"
        "maps = {line.split()[-1] for line in open('/proc/self/maps') if '/libmpi' in line}\n"
        "sys.stdout.write(f'{m.size()} {len(maps)} {ext.library_path()}\\n')\n"
    )
    mpirun = tmp_path / "venv" / "bin" / "mpirun"
    done = run(mpirun, "-n", "2", python, "-c", report, cwd=tmp_path)
    assert done.stdout.splitlines() == [f"2 1 {tmp_path}/venv/lib/libmpi.so.12"] * 2, done.stderr


@pytest.mark.slow
def test_a_source_distribution_holds_what_building_needs(tmp_path):
    copy_sources(tmp_path)
    done = run(sys.executable, "setup.py", "-q", "sdist", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    [archive] = (tmp_path / "dist").glob("*.tar.gz")
    names = {name.split("/", 1)[-1] for name in run("tar", "tzf", archive, cwd=tmp_path).stdout.splitlines()}
    needed = {f"cython_ext/{p.name}" for p in (ROOT / "cython_ext").glob("*.p*x*")}
    needed |= {f"cython_ext/{p.name}" for p in (ROOT / "cython_ext").glob("*.h")}
    assert needed <= names and {"setup.py", "pyproject.toml"} <= names


@pytest.mark.slow
@pytest.mark.parametrize("form", [[], ["-e"]])
def test_what_is_installed_heeds_mpijax_as_jax(tmp_path, form):
    """A line that Python runs when it starts, beside the package or its editable form; without extensions, for time."""
    sources = tmp_path / "sources"
    sources.mkdir()
    copy_sources(sources)
    for source in (sources / "cython_ext").glob("*.pyx"):
        source.unlink()
    assert run(sys.executable, "-m", "venv", "--without-pip", "venv", cwd=tmp_path).returncode == 0
    python = tmp_path / "venv" / "bin" / "python"
    [site] = (tmp_path / "venv").glob("lib/python*/site-packages")
    (site / "zz.pth").write_text(os.path.dirname(os.path.dirname(pytest.__file__)))
    clean = {"PYTHONPATH": ""}
    done = run(
        python, "-m", "pip", "install", "--no-build-isolation", "--no-deps", "--ignore-installed", *form, sources,
        cwd=tmp_path, **clean,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    code = "import sys; print('mpijax' in sys.modules); import jax; print(jax.__file__)"
    shown = run(python, "-c", code, cwd=tmp_path, **clean, MPIJAX_AS_JAX="1").stdout.splitlines()
    assert shown[0] == "True" and "mpijax" in shown[1]
    assert run(python, "-c", code, cwd=tmp_path, **clean).stdout.startswith("False\n")
