"""Modules that are imported from one file of bytecode, of a small package and of mpijax."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

PACKAGE = {
    "__init__.py": "from small import bytecode\nbytecode.MANY = 2\nbytecode.install(__spec__)\n",
    "one.py": '"""One."""\nVALUE = 1\ndef f(): return VALUE\n',
    "inner/__init__.py": "from small.one import VALUE\n",
    "inner/two.py": "TWO = 2\n",
}

SHOW = """
import sys, small, small.one, small.inner.two
for m in ("small.one", "small.inner", "small.inner.two"):
    print(m, type(sys.modules[m].__loader__).__name__)
print(small.one.VALUE, small.inner.VALUE)
"""

FROM_SOURCE = ["SourceFileLoader"] * 3
FROM_BUNDLE = ["BytecodeLoader"] * 3


@pytest.fixture
def package(tmp_path):
    """A package whose modules were imported once, so that its bundle is there."""
    folder = tmp_path / "small"
    for name, text in PACKAGE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    shutil.copy(ROOT / "mpijax/bytecode.py", folder)
    assert run(tmp_path) == (FROM_SOURCE, "1 1")
    return folder


def run(where, program=SHOW, *options):
    """The loaders of the modules, and what else the program prints."""
    settings = {name: value for name, value in os.environ.items() if name != "PYTHONPYCACHEPREFIX"}
    command = [sys.executable, *options, "-c", program]
    ran = subprocess.run(command, cwd=where, env=settings, capture_output=True, text=True, check=True)
    *lines, last = ran.stdout.splitlines()
    return [line.split()[1] for line in lines], last


def bundle_of(package):
    [found] = (package / "__pycache__").glob("modules.*.bin")
    return found


def test_a_process_that_imported_modules_writes_the_bundle_and_the_next_one_uses_it(package):
    assert run(package.parent) == (FROM_BUNDLE, "1 1")
    assert not bundle_of(package).stat().st_mode & 0o022 and len(list(package.glob("__pycache__/*.bin*"))) == 1


def test_a_source_that_changed_is_imported_as_it_is_now(package):
    time.sleep(0.01)
    (package / "one.py").write_text(PACKAGE["one.py"].replace("= 1", "= 111"))
    loaders, values = run(package.parent)
    assert values == "111 111" and loaders == ["SourceFileLoader", "BytecodeLoader", "BytecodeLoader"]
    (package / "inner/two.py").unlink()
    with pytest.raises(subprocess.CalledProcessError):
        run(package.parent)


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:40],
        lambda data: data[: len(data) // 2],
        lambda data: data + b"x",
        lambda data: data.replace(b"bytecode 1", b"bytecode 0"),
        lambda data: data[:41] + b"\xff" * 8 + data[49:],
        lambda data: data[:60] + bytes(40) + data[100:],
    ],
)
def test_a_damaged_bundle_is_left_alone_and_written_anew(package, damage):
    path = bundle_of(package)
    path.write_bytes(damage(path.read_bytes()))
    assert run(package.parent) == (FROM_SOURCE, "1 1")
    assert run(package.parent) == (FROM_BUNDLE, "1 1")


def test_a_file_that_others_may_write_is_not_used(package):
    path = bundle_of(package)
    path.chmod(0o666)
    assert run(package.parent) == (FROM_SOURCE, "1 1")
    path.unlink()
    elsewhere = package.parent / "elsewhere.bin"
    elsewhere.write_bytes(b"")
    path.symlink_to(elsewhere)
    assert run(package.parent) == (FROM_SOURCE, "1 1")
    assert run(package.parent) == (FROM_BUNDLE, "1 1") and elsewhere.read_bytes() == b""


def test_nothing_is_written_where_python_writes_no_bytecode(package):
    path = bundle_of(package)
    path.unlink()
    assert run(package.parent, SHOW, "-B") == (FROM_SOURCE, "1 1")
    assert not path.exists()


def test_a_file_that_a_killed_process_left_is_removed(package):
    path = bundle_of(package)
    path.unlink()
    new = Path(f"{path}.new")
    new.write_bytes(b"")
    run(package.parent)
    assert new.exists() and not path.exists()  # another process may be writing it
    os.utime(new, (time.time() - 100,) * 2)
    run(package.parent)
    run(package.parent)
    assert path.exists() and not new.exists()


TOOLS = """
import importlib, inspect, pkgutil, importlib.resources, traceback
import small.one, small.inner
print("source", inspect.getsource(small.one.f).strip())
print("lists", *sorted(m.name for m in pkgutil.walk_packages(small.__path__, "small.")))
print("reads", importlib.resources.files("small").joinpath("one.py").is_file())
print("reload", importlib.reload(small.one) is small.one, small.one.__file__ == small.one.__spec__.origin, small.one.__doc__)
print(type(small.one.__loader__).__name__)
"""


def test_what_tools_ask_of_modules_has_the_same_answer(package):
    ran = subprocess.run([sys.executable, "-c", TOOLS], cwd=package.parent, capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "source def f(): return VALUE",
        "lists small.bytecode small.inner small.inner.two small.one",
        "reads True",
        "reload True True One.",
        "BytecodeLoader",
    ]


OPENED = """
import sys
opened = []
sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
import mpijax.sharding
own = mpijax.__path__[0] + "/"
print(len([m for m in sys.modules if m.startswith("mpijax.")]), len([p for p in opened if own in p]))
"""


def test_few_files_of_mpijax_are_opened(tmp_path):
    settings = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    counts = []
    for _ in range(2):
        ran = subprocess.run([sys.executable, "-c", OPENED], cwd=ROOT, env=settings, capture_output=True, text=True, check=True)
        counts.append([int(n) for n in ran.stdout.split()])
    [modules, before], [again, after] = counts
    assert modules == again > 60 and before > 2 * modules and after < 20, counts
