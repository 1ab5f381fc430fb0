"""What a device sends in one run of a program of XLA, from the text of the compiled module.

The bytes of a collective are counted as `mpijax.runtime.program.traffic` counts them.
"""

from __future__ import annotations

import dataclasses
import math
import re

ITEM_SIZES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2, "c64": 8, "c128": 16}
_SHAPE = re.compile(r"\b(pred|bf16|[a-z]+\d+[a-z0-9]*)\[([\d,]*)\]")
_COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
_CALL = re.compile(r" ([a-z][a-z0-9-]*)\(")
_CALLED = re.compile(r"(?:calls|to_apply|body|condition|true_computation|false_computation)=%([\w.-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')


@dataclasses.dataclass
class Traffic:
    """Bytes each device sends, the largest result of an all-gather, and whether all loops have known trip counts."""

    sent: list[float]
    gathered: int = 0
    known: bool = True

    def add(self, other: Traffic, times: int = 1) -> None:
        self.sent = [a + times * b for a, b in zip(self.sent, other.sent, strict=True)]
        self.gathered = max(self.gathered, other.gathered)
        self.known = self.known and other.known


def nbytes(text: str) -> int:
    """Bytes of all arrays in a type: ``(f32[16,1], s32[])``."""
    return sum(
        _item_size(name) * math.prod(int(d) for d in dims.split(",") if d) for name, dims in _SHAPE.findall(text)
    )


def _item_size(name: str) -> int:
    if name in ITEM_SIZES:
        return ITEM_SIZES[name]
    return int(re.match(r"[a-z]+(\d+)", name)[1]) // 8


def traffic(module: str, devices: int) -> Traffic:
    """The communication of one run of a module that is compiled for several devices."""
    computations, entry = _computations(module)
    done: dict[str, Traffic] = {}

    def of(name: str) -> Traffic:
        if name not in done:
            total = Traffic([0.0] * devices)
            for line in computations.get(name, ()):
                _count(line, total, of, devices)
            done[name] = total
        return done[name]

    return of(entry)


def _computations(module: str) -> tuple[dict[str, list[str]], str]:
    """The lines of each computation, and the name of the one that is run."""
    found, entry, name = {}, "", None
    for line in module.splitlines():
        head = re.match(r"(ENTRY )?%([\w.-]+) \(.*\{$", line)
        if head:
            name = head[2]
            found[name] = []
            entry = name if head[1] else entry
        elif name is not None and " = " in line:
            found[name].append(line)
    return found, entry


def _count(line: str, total: Traffic, of, devices: int) -> None:
    """Adds what one instruction sends, and the computations it calls."""
    result, _, rest = line.partition(" = ")
    call = _CALL.search(rest)
    if call is None:
        return
    kind = call[1].removesuffix("-start")
    if kind in _COLLECTIVES:
        total.add(_collective(kind, rest[: call.start()], rest, devices))
        return
    branches = _BRANCHES.search(rest)
    if branches or "true_computation=" in rest:
        names = re.findall(r"%([\w.-]+)", branches[1]) if branches else _CALLED.findall(rest)
        total.add(max((of(name) for name in names), key=lambda t: max(t.sent)))
        return
    turns = _TURNS.search(rest)
    for name in _CALLED.findall(rest):
        inside = of(name)
        if kind == "while" and turns is None and any(inside.sent):
            inside = dataclasses.replace(inside, known=False)
        total.add(inside, int(turns[1]) if turns else 1)


def _collective(kind: str, result: str, rest: str, devices: int) -> Traffic:
    n = nbytes(result)
    if kind == "collective-permute":
        pairs = re.findall(r"\{(\d+),(\d+)\}", rest[rest.index("source_target_pairs=") :].split("}}")[0] + "}")
        senders = [int(a) for a, b in pairs if a != b]
        return Traffic([n * float(senders.count(d)) for d in range(devices)])
    size = _group_size(rest, devices)
    each = {
        "all-gather": n * (size - 1) / size,
        "all-reduce": 2 * n * (size - 1) / size,
        "all-to-all": n * (size - 1) / size,
        "reduce-scatter": float(n * (size - 1)),
    }[kind]
    return Traffic([each] * devices, n if kind == "all-gather" and size > 1 else 0)


def _group_size(rest: str, devices: int) -> int:
    """How many devices take part with each other: three ways to write it."""
    named = re.search(r"replica_groups=mesh\[([^\]]*)\] \{([^}]*)\}", rest)
    if named:
        sizes = {name: int(n) for name, n in re.findall(r"'(\w+)'=(\d+)", named[1])}
        return math.prod(sizes[name] for name in re.findall(r"'(\w+)'", named[2]))
    tiled = re.search(r"replica_groups=\[(\d+),(\d+)\]", rest)
    if tiled:
        return int(tiled[2])
    listed = re.search(r"replica_groups=\{\{([\d,]*)\}", rest)
    return len(listed[1].split(",")) if listed and listed[1] else devices
