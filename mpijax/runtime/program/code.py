"""Provides machine code of kernels: from this process, from disk, or newly compiled.

Kernels start with baseline code if a program says so. `optimized` makes better code, which replaces it in this process
and on disk. Loaded programs keep their code until they are given the better one (`tiers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any
from weakref import WeakValueDictionary

from mpijax.compiler.backend import llvm
from mpijax.compiler.backend.baseline import divided, final, is_baseline, packed, unpacked, with_ir
from mpijax.compiler.backend.disk_cache import DiskCache, cache_key
from mpijax.compiler.backend.elf import Code
from mpijax.compiler.backend.once_on_node import once_on_node
from mpijax.compiler.steps.plan import KernelCode, module_text
from mpijax.core.base import locks
from mpijax.runtime.machine.cpus import cpus_per_rank

# Loaded code, by the names of kernels and of files, while programs or plans use it, or it is recent.
_kernels: WeakValueDictionary[str, Code] = WeakValueDictionary()
_files: WeakValueDictionary[str, Code] = WeakValueDictionary()
_recent: deque[Code] = deque(maxlen=1024)
_lock = locks.lock()
# A file either is an object, or names the object file that contains the kernel and others.
_REFERENCE = b"see "
# Kernels with fewer lines are not worth a thread to compile them.
LINES_FOR_A_THREAD = 1000


def _disk() -> DiskCache | None:
    return DiskCache.default()


class Addresses(dict[str, int]):
    """Addresses of kernels, by name, and the objects that contain them."""

    def __init__(self, codes: dict[str, Code]):
        super().__init__({name: code[name] for name, code in codes.items()})
        self.codes = codes

    @property
    def baseline(self) -> bool:
        """Whether better code can be made for any of them."""
        return any(code.ir is not None for code in self.codes.values())


def addresses(kernels: Mapping[str, Any], baseline: bool = False) -> Addresses:
    """The address of each kernel. Compiles those (as `KernelCode`) that are neither in this process nor on disk.

    New kernels are compiled together, which is faster than one by one; many of them in several threads.

    baseline: whether baseline code is enough.
    """
    found = {n: known for n in kernels if (known := _kernels.get(n)) is not None}
    if len(found) < len(kernels):
        with _lock:
            cache = _disk()
            missing = []
            for name in [n for n in kernels if n not in found]:
                code = _kernels.get(name) or _load_from(cache, name)
                if code is None:
                    missing.append(name)
                else:
                    found[name] = code
            if missing:
                found |= _compile({n: kernels[n] for n in kernels if n in missing}, cache, baseline)
    made = Addresses(found)
    return made if baseline else optimized(made)


def optimized(known: Addresses) -> Addresses:
    """The same kernels with optimized code instead of baseline code; compiles it if it does not exist."""
    for code in known.codes.values():
        if code.ir is not None and code.better is None:
            code.better = _keep(_optimized(code.ir, code.key), code.key)
    return Addresses({name: code.better or code for name, code in known.codes.items()})


def _optimized(ir: bytes, key: str | None) -> bytes:
    """The object file of optimized code; it replaces the baseline code on disk."""
    cache = _disk()

    def compiled() -> bytes:
        text, optimize = unpacked(ir)
        made = llvm.compile_object(final(text), optimize)
        if cache is not None and key is not None:
            cache.put(key, made)
        return made

    def found() -> bytes | None:
        kept = None if cache is None or key is None else cache.get(key)
        return None if kept is None or is_baseline(kept) else kept

    return compiled() if cache is None or key is None else once_on_node(f"optimize {key}", found, compiled)


def _load_from(cache: DiskCache | None, name: str) -> Code | None:
    content = None if cache is None else cache.get(cache_key(name))
    if cache is None or content is None or not content.startswith(_REFERENCE):
        return None
    code = _load_file(cache, content[len(_REFERENCE) :].decode())
    return code if code is not None and name in code else None


def _load_file(cache: DiskCache, key: str) -> Code | None:
    """The code in a cache file; None if the file is gone."""
    known = _files.get(key)
    if known is not None:
        return known
    data = cache.get(key)
    return None if data is None else _keep(data, key)


def _keep(content: bytes, key: str | None) -> Code:
    """Load stored content into memory, and register its kernels."""
    data, ir = divided(content)
    code = llvm.load_object(data)
    code.key, code.ir = key, ir
    _kernels.update(dict.fromkeys(code, code))
    if key is not None:
        _files[key] = code
    _recent.append(code)
    return code


def objects_of(names: Iterable[str]) -> dict[str, list[str]] | None:
    """The files that contain these kernels, each with its kernels; None if a kernel is in no file."""
    files: dict[str, list[str]] = {}
    for name in names:
        code = _kernels.get(name)
        if code is None or code.key is None:
            return None
        files.setdefault(code.key, []).append(name)
    return files


def load_objects(files: dict[str, list[str]]) -> dict[str, Code] | None:
    """The kernels listed by `objects_of`, loaded; None if a file is gone."""
    cache, found = _disk(), {}
    with _lock:
        for key, names in files.items():
            for name in names:
                code = _kernels.get(name) or (_load_file(cache, key) if cache is not None else None)
                if code is None or name not in code:
                    return None
                found[name] = code
    return found


def _compile(codes: dict[str, KernelCode], cache: DiskCache | None, baseline: bool) -> dict[str, Code]:
    modules = _modules(codes, cpus_per_rank())
    jobs = [partial(_compiled, {n: codes[n] for n in names}, cache, baseline) for names in modules]
    if len(jobs) == 1:
        made = [jobs[0]()]
    else:
        with ThreadPoolExecutor(len(jobs), "mpijax compiles") as pool:
            made = [done.result() for done in [pool.submit(job) for job in jobs]]
    loaded = [_keep(content, key) for content, key in made]
    return {name: code for names, code in zip(modules, loaded, strict=True) for name in names}


def _compiled(
    codes: dict[str, KernelCode], cache: DiskCache | None, baseline: bool
) -> tuple[bytes, str | None]:
    """The stored form of the machine code of kernels in one module, and the key of its file."""
    text, optimize = module_text(list(codes.values())), any(c.optimize for c in codes.values())
    key = None if cache is None else cache_key(text)

    def compiled() -> bytes:
        if baseline:
            content = with_ir(llvm.compile_object(text, baseline=True), packed(text, optimize))
        else:
            content = llvm.compile_object(final(text), optimize)
        if cache is not None and key is not None:
            cache.put(key, content)
            for name in codes:
                cache.put(cache_key(name), _REFERENCE + key.encode())
        return content

    if cache is None or key is None:
        return compiled(), None
    return once_on_node(key, lambda: cache.get(key), compiled), key


def _modules(codes: dict[str, KernelCode], threads: int) -> list[list[str]]:
    """Names of kernels to compile together, a list for each module.

    Kernels that need LLVM's passes share code and form one module. The others form one module per thread, of about
    equal length.
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
