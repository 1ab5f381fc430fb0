"""Machine code of kernels: in this process, on disk, or made now."""

from __future__ import annotations

import threading

from mpijax.compiler.backend import llvm
from mpijax.compiler.backend.disk_cache import DiskCache, cache_key
from mpijax.compiler.backend.once_on_node import once_on_node
from mpijax.compiler.steps.plan import KernelCode, module_text

_addresses: dict[str, int] = {}
# The file that holds each kernel, as far as it is known; and the files that have been loaded.
_objects: dict[str, str] = {}
_loaded: set[str] = set()
_lock = threading.Lock()
_disk: list[DiskCache | None] = []
# A file either is an object, or names the object that holds the kernel together with others.
_REFERENCE = b"see "


def _cache() -> DiskCache | None:
    if not _disk:
        _disk.append(DiskCache.default())
    return _disk[0]


def addresses(kernels: dict[str, KernelCode]) -> dict[str, int]:
    """The address of each kernel, compiling those that neither this process nor the disk knows.

    New kernels are compiled together, which is quicker than one by one.
    """
    missing = [n for n in kernels if n not in _addresses]
    if missing:
        with _lock:
            missing = [n for n in missing if n not in _addresses]
            cache = _cache()
            if cache is not None:
                missing = [n for n in missing if not _load_from(cache, n)]
            for optimize in (False, True):
                names = [n for n in missing if kernels[n].optimize == optimize]
                if names:
                    _compile([kernels[n] for n in names], names, optimize, cache)
    return _addresses


def _load_from(cache: DiskCache, name: str) -> bool:
    if name in _addresses:
        return True
    content = cache.get(cache_key(name))
    if content is None or not content.startswith(_REFERENCE):
        return False
    return _load_object(cache, content[len(_REFERENCE) :].decode(), [name])


def _load_object(cache: DiskCache, key: str, names: list[str]) -> bool:
    """Load a file of machine code; whether it has these kernels."""
    if key not in _loaded:
        code = cache.get(key)
        if code is None:
            return False
        found = llvm.load_object(code)
        _addresses.update(found)
        _objects.update(dict.fromkeys(found, key))
        _loaded.add(key)
    return all(name in _addresses for name in names)


def objects_of(names) -> dict[str, list[str]] | None:
    """The files that hold these kernels, each with those it has; None if one is in no file."""
    files: dict[str, list[str]] = {}
    for name in names:
        key = _objects.get(name)
        if key is None:
            return None
        files.setdefault(key, []).append(name)
    return files


def load_objects(files: dict[str, list[str]]) -> bool:
    """Load what `objects_of` told; False if a file is gone."""
    cache = _cache()
    with _lock:
        return cache is not None and all(
            all(name in _addresses for name in names) or _load_object(cache, key, names)
            for key, names in files.items()
        )


def _compile(codes: list[KernelCode], names: list[str], optimize: bool, cache: DiskCache | None) -> None:
    text = module_text(codes)
    if cache is None:
        _addresses.update(llvm.load_object(llvm.compile_object(text, optimize)))
        return
    key = cache_key(text)

    def compiled() -> bytes:
        code = llvm.compile_object(text, optimize)
        cache.put(key, code)
        for name in names:
            cache.put(cache_key(name), _REFERENCE + key.encode())
        return code

    _addresses.update(llvm.load_object(once_on_node(key, lambda: cache.get(key), compiled)))
    _objects.update(dict.fromkeys(names, key))
