"""What a case is, and the table of all of them."""

import dataclasses
import fnmatch
import importlib
from collections.abc import Callable
from pathlib import Path

from bench.cases import TOPICS

ROOT = Path(__file__).parents[1]
F32_4M = 4 << 20  # elements of the "4M" cases


@dataclasses.dataclass(frozen=True)
class Target:
    """What mpijax should reach: `ratio` times the peer's speed, `seconds` at most, `c` times C at most."""

    ratio: float | None = None
    seconds: float | None = None
    c: float | None = None

    def text(self) -> str:
        parts = []
        if self.ratio is not None:
            parts.append(f"× {self.ratio:g}")
        if self.seconds is not None:
            parts.append(f"≤ {self.seconds * 1e6:g} µs" if self.seconds < 1e-3 else f"≤ {self.seconds:g} s")
        if self.c is not None:
            parts.append(f"≤ {self.c:g} C")
        return ", ".join(parts)

    def met(self, ours: float, theirs: float | None, c: float | None) -> bool | None:
        """None where what the target speaks of was not measured."""
        checks = []
        if self.ratio is not None:
            checks.append(None if theirs is None else theirs / ours >= self.ratio)
        if self.seconds is not None:
            checks.append(ours <= self.seconds)
        if self.c is not None:
            checks.append(None if c is None else ours <= self.c * c)
        if False in checks:
            return False
        return None if None in checks or not checks else True


@dataclasses.dataclass(frozen=True)
class Case:
    """One row of the table.

    `build(backend)` prepares the data and returns what is timed: one function without arguments for mode
    "steady" (called many times), a list of them for mode "first" (each called once, the median counts),
    a jitted function and its arguments for "memory" (bytes the compiler says it needs), nothing for
    "import". `cache` is the state of the compilers' disk caches: "shared" among the cases of a
    run, "empty", or "warm" (filled by an earlier process that ran the same case).
    """

    name: str
    build: Callable
    target: Target
    mode: str = "steady"
    ranks: int = 1
    cores: int = 1  # of a case of one rank, for its threads
    cache: str = "shared"
    c: str | None = None  # arguments of the C program whose time is the speed limit
    env: tuple[tuple[str, str], ...] = ()

    @property
    def unit(self) -> str:
        return "bytes" if self.mode == "memory" else "seconds"


CASES: dict[str, Case] = {}


def case(name: str, *, ratio=None, seconds=None, c_ratio=None, **fields):
    """Registers the decorated `build` function as a case."""

    def register(build):
        if name in CASES:
            raise ValueError(f"two cases are called {name!r}")
        CASES[name] = Case(name, build, Target(ratio, seconds, c_ratio), **fields)
        return build

    return register


def load_cases(patterns=()) -> list[Case]:
    """The cases that match any of the patterns (shell style; plain text matches anywhere); or all."""
    for topic in TOPICS:
        importlib.import_module(f"bench.cases.{topic}")
    if not patterns:
        return list(CASES.values())
    wanted = [p if any(ch in p for ch in "*?[") else f"*{p}*" for p in patterns]
    return [case for case in CASES.values() if any(fnmatch.fnmatchcase(case.name, p) for p in wanted)]
