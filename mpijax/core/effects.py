"""Effects: what an equation does besides computing its outputs.

An effect that is `kept` pins an equation: it is not removed though nobody reads its outputs, and not merged with
an equal one. An `ordered` one also stays in its place with respect to other ordered equations.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effect:
    """Base of effects; `ordered` ones keep program order among themselves, `kept` ones happen exactly once."""

    @property
    def ordered(self) -> bool:
        return False

    @property
    def kept(self) -> bool:
        return self.ordered


@dataclass(frozen=True)
class NamedAxisEffect(Effect):
    """The equation refers to a named axis, which must be bound where it runs."""

    name: object

    def __str__(self) -> str:
        return f"NamedAxis({self.name})"

    __repr__ = __str__


@dataclass(frozen=True)
class CommunicationEffect(Effect):
    """The equation exchanges data with other ranks."""

    @property
    def ordered(self) -> bool:
        return True

    def __str__(self) -> str:
        return "Communication"


@dataclass(frozen=True)
class CallbackEffect(Effect):
    """The equation calls back into Python for its side effects; `kind` is "Debug" or "IO"."""

    kind: str
    in_order: bool = False

    @property
    def ordered(self) -> bool:
        return self.in_order

    @property
    def kept(self) -> bool:
        return True

    def __str__(self) -> str:
        return f"Ordered{self.kind}" if self.in_order else self.kind

    __repr__ = __str__


communication = CommunicationEffect()
no_effects: frozenset = frozenset()


def pins(effects) -> bool:
    """Whether an equation with these effects must stay although nobody reads its outputs."""
    return any(e.kept for e in effects)
