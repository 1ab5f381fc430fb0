"""Caches plans of whole programs on disk, so that a second process does not plan and emit them again.

The key of a plan is its input: the Jaxpr with its source lines, the types and shardings (not the values) of its
constants, the donated and sharded arguments, the options, the CPU, and the version of mpijax (in a checkout, the state
of its files). The file is plain data (`core.records.plain`): buffers, instructions, and the names of the machine code
files that hold the kernels.

Programs that contain anything but data are planned in each process: Python callbacks, communicators, and operations
defined outside of mpijax, whose rules may change without a change of version.
"""

from __future__ import annotations

import functools
import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import mpijax
from mpijax.compiler.backend.disk_cache import DiskCache, host_id
from mpijax.compiler.backend.once_on_node import once_on_node
from mpijax.compiler.graph.nodes import Value, ValueKind
from mpijax.compiler.steps.plan import ProgramPlan
from mpijax.core.base import config, option
from mpijax.core.base.source import Source
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.records import plain
from mpijax.core.records.serialize import JaxprReader, JaxprWriter, NotSerializable, fingerprint, pack, unpack
from mpijax.core.rules.registry import registry
from mpijax.runtime.arrays.devices import local_device_count, process_index
from mpijax.runtime.program import code, tiers

_MAGIC = b"mpijax-plan-2\n"
# Seconds of planning below which a file is not worth writing.
WORTH = 2e-3
# Maximum bytes of constants made by the compiler in a stored plan.
LARGEST = 1 << 20

# Fields that only pages show. `jit(f).lower(x)`, which makes pages, plans in each process, so it has these fields.
_NOT_KEPT = frozenset(("nests", "kernels", "placed"))
_FIELDS = tuple(f.name for f in fields(ProgramPlan) if f.name not in _NOT_KEPT)


def _disk() -> DiskCache | None:
    return DiskCache.default(".plan")


class CachedPlan:
    """The place of one program's plan in the cache."""

    def __init__(self, disk: DiskCache, key: str, writer: JaxprWriter):
        self.disk = disk
        self.key = key
        self.constants = writer.constants
        self.began = time.perf_counter()

    def load(self) -> ProgramPlan | None:
        """The plan, with its kernels' machine code loaded; None if any of it is missing."""
        data = self.disk.get(self.key)
        if data is None:
            return None
        try:
            content, tables, blobs = unpack(_MAGIC, data, "a plan")
            files, values = content
            with config.enable_x64(True):  # the plan's types may have 64 bits, whatever the option is now
                read = _PlanReader(tables, blobs, self.constants).values(values)
            loaded: Any = code.load_objects(files)
            return None if loaded is None else ProgramPlan(**dict(zip(_FIELDS, read, strict=True)), kernels=loaded)
        except Exception:  # any defect in a file counts as a missing file
            return None

    def plan(self, make: Callable[[], ProgramPlan]) -> ProgramPlan:
        """The plan from disk, else a new one. If several processes of this node need it, the first one makes it."""

        def made() -> ProgramPlan:
            plan = make()
            self.store(plan)
            return plan

        return self.load() or once_on_node(self.key, self.load, made)

    def store(self, plan: ProgramPlan) -> None:
        """Compile the kernels of a plan, and store it if it is plain data and took time to make."""
        compiled = code.addresses(plan.kernels, baseline=tiers.baseline_runs(plan) is not None)
        if time.perf_counter() - self.began < WORTH:
            return
        files = code.objects_of(compiled)
        if files is None:
            return
        writer = _PlanWriter(self.constants)
        try:
            content = [files, writer.values([getattr(plan, name) for name in _FIELDS])]
        except NotSerializable:
            return
        if sum(map(len, writer.blobs)) <= LARGEST:
            self.disk.put(self.key, pack(_MAGIC, content, writer))


def entry(
    closed: ClosedJaxpr, donated: tuple[bool, ...], in_shardings: tuple, default: Any = None
) -> CachedPlan | None:
    """The cache entry for a program's plan; None if it cannot be cached, or there is no cache."""
    disk = _disk()
    if disk is None:
        return None
    writer = JaxprWriter("types")
    try:
        writer.values((closed, in_shardings))
        shardings = in_shardings, default, tuple(getattr(x, "_sharding", None) for x in writer.constants)
        writer.values(shardings)
        rank = _rank(writer)
        key = fingerprint(_ENVIRONMENT, option.settings(), closed, donated, shardings, rank, writer=writer)
    except NotSerializable:
        return None
    return CachedPlan(disk, key, writer) if all(map(_is_own, writer.primitives)) else None


class _PlanWriter(JaxprWriter):
    """Writes constants of the program as their numbers, and other arrays as bytes."""

    def __init__(self, constants: list[Any]):
        super().__init__()
        self._numbers = {id(c): i for i, c in enumerate(constants)}

    def array(self, x: Any) -> Any:
        number = self._numbers.get(id(x))
        return super().array(x) if number is None else ["x", number]


class _PlanReader(JaxprReader):
    """Reads plans, which contain records of the compiler and the runtime."""

    packages = ("mpijax.",)


class _Origin:
    """Replaces the operation that made a value; keeps only its source line."""

    def __init__(self, source: Source):
        self.source = source


def _write_value(w: plain.Writer, v: Value) -> list[Any]:
    source = None if v.producer is None else w.value(v.producer.source)
    return ["w", w.aval(v.aval), v.kind.value, v.position, source]


def _read_value(r: plain.Reader, x: list[Any]) -> Value:
    _, aval, kind, position, source = x
    origin: Any = None if source is None else _Origin(r.value(source))
    return Value(r.avals[aval], ValueKind(kind), origin, position)


plain.register_writer(Value, _write_value)
plain.register_reader("w", _read_value)


@functools.cache
def _is_own(name: str) -> bool:
    """Whether a primitive is defined in mpijax, so that the version determines its rules."""
    primitive = registry[name]
    lower = primitive.lower
    rules = (primitive.type_rule, primitive.reference, getattr(lower, "rule", None), getattr(lower, "fun", None))
    return all(_home(rule) in ("mpijax", "numpy", "scipy", "builtins") for rule in rules if rule is not None)


def _home(rule: Any) -> str:
    while isinstance(rule, functools.partial):
        rule = rule.func
    module = getattr(rule, "__module__", None) or type(rule).__module__
    return module.split(".")[0]


def _rank(writer: JaxprWriter) -> tuple[int, int]:
    """This rank's number and device count if the program names devices, since the plan then depends on both."""
    has_devices = any(kind.__name__ in ("Mesh", "SingleDeviceSharding") for kind in writer.records)
    return (process_index(), local_device_count()) if has_devices else (0, 0)


def _state_of_files() -> str:
    """In a checkout, the sizes and times of the files that determine a plan; installed, those of the version file."""
    package = Path(mpijax.__file__).parent
    if (package.parent / "pyproject.toml").exists():
        names = [package / part for part in ("compiler", "core", "ops", "scalar", "spmd")]
    else:
        names = [package / "compiler"]
    found = []
    while names:
        with os.scandir(names.pop()) as files:
            for file in files:
                if file.name.endswith(".py"):
                    status = file.stat()
                    found.append((file.path, status.st_mtime_ns, status.st_size))
                elif "." not in file.name and file.name != "__pycache__":
                    names.append(Path(file.path))
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()


# Computed when the module loads: a file that changes later is not what this process runs.
_ENVIRONMENT = f"{host_id()}|{_state_of_files()}"
