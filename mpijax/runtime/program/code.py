"""Machine code of kernels: in this process, on disk, or made now."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from mpijax.compiler.backend import llvm
from mpijax.compiler.backend.disk_cache import DiskCache, cache_key
from mpijax.compiler.backend.once_on_node import once_on_node
from mpijax.compiler.steps.plan import KernelCode, module_text
from mpijax.runtime.machine.cpus import cpus_per_rank

_addresses: dict[str, int] = {}
# The file that holds each kernel, as far as it is known; and the files that have been loaded.
_objects: dict[str, str] = {}
_loaded: set[str] = set()
_lock = threading.Lock()
_disk: list[DiskCache | None] = []
# A file either is an object, or names the object that holds the kernel together with others.
_REFERENCE = b"see "
# Kernels of fewer lines are not worth a thread that compiles them.
LINES_FOR_A_THREAD = 1000


def _cache() -> DiskCache | None:
    if not _disk:
        _disk.append(DiskCache.default())
    return _disk[0]


def addresses(kernels: dict[str, KernelCode]) -> dict[str, int]:
    """The address of each kernel, compiling those that neither this process nor the disk knows.

    New kernels are compiled together, which is quicker than one by one; many of them by several threads.
    """
    missing = [n for n in kernels if n not in _addresses]
    if missing:
        with _lock:
            missing = [n for n in missing if n not in _addresses]
            cache = _cache()
            if cache is not None:
                missing = [n for n in missing if not _load_from(cache, n)]
            if missing:
                _compile({n: kernels[n] for n in missing}, cache)
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


def _compile(codes: dict[str, KernelCode], cache: DiskCache | None) -> None:
    modules = _modules(codes, cpus_per_rank())
    for code in _in_threads([partial(_compiled, {n: codes[n] for n in names}, cache) for names in modules]):
        _addresses.update(llvm.load_object(code))


def _compiled(codes: dict[str, KernelCode], cache: DiskCache | None) -> bytes:
    """Machine code of kernels that are one module."""
    text, optimize = module_text(list(codes.values())), any(c.optimize for c in codes.values())
    if cache is None:
        return llvm.compile_object(text, optimize)
    key = cache_key(text)

    def compiled() -> bytes:
        code = llvm.compile_object(text, optimize)
        cache.put(key, code)
        for name in codes:
            cache.put(cache_key(name), _REFERENCE + key.encode())
        return code

    code = once_on_node(key, lambda: cache.get(key), compiled)
    _objects.update(dict.fromkeys(codes, key))
    return code


def _modules(codes: dict[str, KernelCode], threads: int) -> list[list[str]]:
    """Names of kernels that are compiled together.

    Those that LLVM's passes run on share kernels, and are one module. The others are a module for each thread, about
    equally long.
    """
    optimized = [n for n, code in codes.items() if code.optimize]
    lines = {n: code.define.count("\n") for n, code in codes.items() if not code.optimize}
    parts: list[list[str]] = [[] for _ in range(min(threads, 1 + sum(lines.values()) // LINES_FOR_A_THREAD))]
    filled = [0] * len(parts)
    for n in sorted(lines, key=lines.__getitem__, reverse=True):
        i = filled.index(min(filled))
        parts[i].append(n)
        filled[i] += lines[n]
    return [part for part in (optimized, *parts) if part]


def _in_threads(jobs: Sequence[Callable[[], bytes]]) -> list[bytes]:
    """What the functions return, each called by a thread of its own; raises what one of them raises."""
    done: dict[int, bytes] = {}
    failed: list[Exception] = []

    def call(i: int) -> None:
        try:
            done[i] = jobs[i]()
        except Exception as e:  # raised again below
            failed.append(e)

    threads = [threading.Thread(target=call, args=(i,), name="mpijax compiles") for i in range(1, len(jobs))]
    for thread in threads:
        thread.start()
    call(0)
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    return [done[i] for i in range(len(jobs))]
