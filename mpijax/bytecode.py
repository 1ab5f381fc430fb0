"""Imports mpijax's modules from one file of bytecode, `mpijax/__pycache__/modules.cpython-3xx.bin`.

Python opens, reads and closes one file for each module, and asks the file system about several more. A first program
needs 400 modules. On a cluster, all ranks do so at the same time on one file system. With the bundle, a rank maps one
file into memory (ranks of a node share its pages), and asks for the status of each source file.

The bundle is used for a module as Python uses a `.pyc` file: only if the source's time and size are those of the
bytecode. Otherwise Python imports the module as usual. So a missing, old or damaged bundle costs time only.

A process writes the bundle when it ends, if it imported many modules without it and Python may write bytecode.
`python -m mpijax.bytecode` compiles all modules and writes the bundle, for a folder that users cannot write to.

The finders stand in `sys.path_importer_cache` for mpijax's own folders, so other packages are imported as before.
"""

import atexit
import marshal
import mmap
import os
import sys
import time
from importlib import machinery

# A process that imported fewer modules without the bundle does not write it.
MANY = 40

_HEAD = f"bytecode 1 of {sys.implementation.name} {sys.hexversion:08x}\n".encode()
_LENGTH = 8  # bytes of the index's length, which stands between head and index

_DETAILS = (
    (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
    (machinery.SourceFileLoader, machinery.SOURCE_SUFFIXES),
    (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
)


class Bundle:
    """The bytecode of a package's modules, in one file.

    package: the package's spec. path: the file, beside the bytecode of the package's `__init__.py`.
    entries: for each module, the path of its source below the package's folder, the source's time and size, and the
    place and length of its bytecode in `content`.
    """

    def __init__(self, package: machinery.ModuleSpec):
        self.package = package
        self.folder = os.path.dirname(package.origin or "")
        where, name = os.path.split(package.cached or "")
        self.path = os.path.join(where, name.replace("__init__.", "modules.", 1).removesuffix(".pyc") + ".bin")
        self.entries: dict[str, tuple[str, int, int, int, int]] = {}
        self.content = memoryview(b"")
        try:
            self._open(os.stat(self.folder).st_uid)
        except (OSError, ValueError, EOFError, TypeError):
            self.entries = {}

    def _open(self, owner: int) -> None:
        file = os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(file)
            if status.st_uid not in (owner, os.geteuid(), 0) or status.st_mode & 0o022:
                return  # another user may have written it
            # A map holds a descriptor: if a standard stream is closed, that would stand for the stream.
            mapped = file > 2
            content = memoryview(
                mmap.mmap(file, status.st_size, access=mmap.ACCESS_READ) if mapped else os.read(file, status.st_size)
            )
        finally:
            os.close(file)
        begin = len(_HEAD) + _LENGTH
        end = begin + int.from_bytes(content[len(_HEAD) : begin], "little")
        if content[: len(_HEAD)] != _HEAD or end > len(content):
            return
        size, entries = marshal.loads(content[begin:end])
        if size == len(content) - end:
            self.content, self.entries = content[end:], entries

    def source(self, module: str) -> str | None:
        """The source file of a module in the bundle."""
        return os.path.join(self.folder, self.entries[module][0]) if module in self.entries else None

    def code(self, module: str, status: os.stat_result) -> memoryview | None:
        """The marshalled code of a module whose source has this status; None if it has another time or size there."""
        if module not in self.entries:
            return None
        _, seconds, size, at, length = self.entries[module]
        return self.content[at : at + length] if (int(status.st_mtime), status.st_size) == (seconds, size) else None

    def write(self, modules: dict[str, str]) -> None:
        """Write the bytecode of modules with these source files to the bundle. Does nothing if another process does.

        Raises OSError if the folder cannot be written to.
        """
        entries: dict[str, tuple[str, int, int, int, int]] = {}
        parts: list[bytes | memoryview] = []
        at = 0
        for module, source in modules.items():
            try:
                status = os.stat(source)
                code = self.code(module, status) or _compiled(source, status)
            except OSError:
                continue
            if code is not None:
                path = os.path.relpath(source, self.folder)
                entries[module] = (path, int(status.st_mtime), status.st_size, at, len(code))
                parts.append(code)
                at += len(code)
        index = marshal.dumps((at, entries))
        new = f"{self.path}.new"
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        except FileExistsError:
            _remove_old(new)
            return
        try:
            with open(file, "wb") as out:
                out.write(_HEAD + len(index).to_bytes(_LENGTH, "little") + index)
                out.writelines(parts)
            os.replace(new, self.path)
        except BaseException:
            os.unlink(new)
            raise


def _compiled(source: str, status: os.stat_result) -> bytes | None:
    """The marshalled code in Python's own file for a source with this status; None if that file is not up to date."""
    from importlib import util  # slow to import, and needed only here

    with open(util.cache_from_source(source), "rb") as file:
        data = file.read()
    flags, seconds, size = (int.from_bytes(data[i : i + 4], "little") for i in (4, 8, 12))
    wanted = (0, int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
    return data[16:] if data[:4] == util.MAGIC_NUMBER and (flags, seconds, size) == wanted else None


def _remove_old(path: str) -> None:
    """Remove a file that a killed process left."""
    try:
        if time.time() - os.stat(path).st_mtime > 60:
            os.unlink(path)
    except OSError:
        return


class BytecodeLoader(machinery.SourceFileLoader):
    """Loads a module from the bundle; `get_source` and all else are those of source files."""

    def __init__(self, fullname: str, path: str, code: memoryview):
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname):
        try:
            return marshal.loads(self._code)
        except (ValueError, EOFError, TypeError):
            return super().get_code(fullname)


class ModuleFinder(machinery.FileFinder):
    """Finds the modules of one of the package's folders."""

    def __init__(self, path: str, bundle: Bundle):
        super().__init__(path, *_DETAILS)
        self.bundle = bundle

    def find_spec(self, fullname, target=None):
        spec = self._in_bundle(fullname) or super().find_spec(fullname, target)
        if spec is not None:
            for folder in spec.submodule_search_locations or ():
                sys.path_importer_cache[folder] = ModuleFinder(folder, self.bundle)
        return spec

    def _in_bundle(self, fullname: str) -> machinery.ModuleSpec | None:
        source = self.bundle.source(fullname)
        try:
            code = None if source is None else self.bundle.code(fullname, os.stat(source))
        except OSError:
            return None
        if source is None or code is None:
            return None
        spec = machinery.ModuleSpec(fullname, BytecodeLoader(fullname, source, code), origin=source)
        if source.endswith("__init__.py"):
            spec.submodule_search_locations = [os.path.dirname(source)]
        spec.has_location = True
        return spec


def _imported(package: str) -> tuple[dict[str, str], int]:
    """The source files of the package's modules that are imported; how many were imported without the bundle."""
    modules, without = {}, 0
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.name == name and name.startswith(f"{package}.") and spec.origin is not None:
            if isinstance(spec.loader, machinery.SourceFileLoader):
                modules[name] = spec.origin
                without += not isinstance(spec.loader, BytecodeLoader)
    return modules, without


def _write_at_end(bundle: Bundle) -> None:
    modules, without = _imported(bundle.package.name)
    if without < MANY or sys.dont_write_bytecode:
        return
    known = {module: os.path.join(bundle.folder, source) for module, (source, *_) in bundle.entries.items()}
    try:
        bundle.write(known | modules)
    except OSError:
        return  # Python, too, goes on if it cannot write bytecode


def install(package: machinery.ModuleSpec) -> Bundle | None:
    """Import the modules of a package from its bundle. None for a package that is not a folder of source files."""
    if not isinstance(package.loader, machinery.SourceFileLoader) or not package.cached:
        return None
    bundle = Bundle(package)
    for folder in package.submodule_search_locations or ():
        sys.path_importer_cache[folder] = ModuleFinder(folder, bundle)
    atexit.register(_write_at_end, bundle)
    return bundle


def main() -> None:
    """Compile all modules of mpijax, and write the bundle."""
    import compileall

    package = sys.modules["mpijax"].__spec__
    assert package is not None
    bundle = Bundle(package)
    compileall.compile_dir(bundle.folder, quiet=1)
    modules = {}
    for folder, _, files in os.walk(bundle.folder):
        below = os.path.relpath(folder, bundle.folder)
        inside = [package.name, *([] if below == os.curdir else below.split(os.sep))]
        for file in files:
            if file.endswith(".py"):
                name = inside if file == "__init__.py" else [*inside, file.removesuffix(".py")]
                modules[".".join(name)] = os.path.join(folder, file)
    bundle.write(modules)
    print(bundle.path)


if __name__ == "__main__":
    main()
