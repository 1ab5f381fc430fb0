"""Effects: what an equation does besides computing its outputs.

An ordered effect pins an equation to its place in the program: it is neither
removed nor reordered with respect to other ordered equations.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Effect:
    """Base of effects; `ordered` ones keep program order among themselves."""

    @property
    def ordered(self) -> bool:
        return False


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
    """The equation calls back into Python for its side effects."""

    name: str = "Callback"

    @property
    def ordered(self) -> bool:
        return True

    def __str__(self) -> str:
        return self.name


communication = CommunicationEffect()
no_effects: frozenset = frozenset()


def pins(effects) -> bool:
    """Whether an equation with these effects must stay although nobody reads its outputs."""
    return any(e.ordered for e in effects)
