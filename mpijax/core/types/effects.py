"""Defines effects: what an equation does besides computing its outputs.

A `kept` effect pins an equation: dead-code elimination does not remove it, and it is not merged with an equal one.
Equations with `ordered` effects also keep their order among each other.
"""

from __future__ import annotations

from mpijax.core.base.lazy_dataclass import dataclass


class Effect:
    """Base of effects. `ordered` effects keep program order among themselves; `kept` effects happen exactly once.

    >>> effects = mpijax.make_jaxpr(lambda x: mpijax.debug.print("{}", x))(1.0).effects
    >>> [isinstance(effect, mpijax.extend.core.Effect) for effect in effects]
    [True]
    """

    @property
    def ordered(self) -> bool:
        return False

    @property
    def kept(self) -> bool:
        return self.ordered

    @property
    def everywhere(self) -> bool:
        """Whether to transform the equation even if none of its operands is transformed."""
        return False


@dataclass(frozen=True)
class NamedAxisEffect(Effect):
    """The equation uses a named axis, which must be in scope where it runs."""

    name: object

    def __str__(self) -> str:
        return f"NamedAxis({self.name})"

    __repr__ = __str__


@dataclass(frozen=True)
class CommunicationEffect(Effect):
    """The equation communicates with other ranks."""

    @property
    def ordered(self) -> bool:
        return True

    def __str__(self) -> str:
        return "Communication"


@dataclass(frozen=True)
class ExchangeEffect(CommunicationEffect):
    """The equation communicates with ranks that may run a different program.

    Its result may be differentiated or batched on another rank only. So each rank always differentiates, transposes and
    batches such equations. If that depended on whether an operand has a tangent, some ranks would wait for messages
    that others never send.
    """

    @property
    def everywhere(self) -> bool:
        return True

    def __str__(self) -> str:
        return "Exchange"


@dataclass(frozen=True)
class OneSidedEffect(CommunicationEffect):
    """The equation is one half of a message between shards, `psend` or `precv`."""

    def __str__(self) -> str:
        return "one-sided communication"


@dataclass(frozen=True)
class SinkEffect(Effect):
    """The equation uses a value to force its computation, though no result depends on it."""

    @property
    def kept(self) -> bool:
        return True

    def __str__(self) -> str:
        return "NoDCE"


@dataclass(frozen=True)
class StateEffect(Effect):
    """The equation reads or changes a value that changes while it lives."""

    @property
    def kept(self) -> bool:
        return True

    def __str__(self) -> str:
        return "State"


@dataclass(frozen=True)
class LinearEffect(Effect):
    """The equation creates a linear value without linear operands: the zero tangent of what an exchange sends."""

    @property
    def everywhere(self) -> bool:
        return True

    def __str__(self) -> str:
        return "Linear"


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


class DebugEffect(CallbackEffect):
    """The equation shows values: `debug.callback` and `debug.print`, unordered.

    >>> jaxpr = mpijax.make_jaxpr(lambda x: mpijax.debug.print("{}", x))(1.0)
    >>> [isinstance(effect, mpijax.debug.DebugEffect) for effect in jaxpr.effects]
    [True]
    """

    def __init__(self) -> None:
        super().__init__("Debug")


class OrderedDebugEffect(CallbackEffect):
    """Like `DebugEffect`, but in program order.

    >>> jaxpr = mpijax.make_jaxpr(lambda x: mpijax.debug.print("{}", x, ordered=True))(1.0)
    >>> [isinstance(effect, mpijax.debug.OrderedDebugEffect) for effect in jaxpr.effects]
    [True]
    """

    def __init__(self) -> None:
        super().__init__("Debug", in_order=True)


@dataclass(frozen=True)
class FfiEffect(Effect):
    """The equation calls the user's machine code for its side effects."""

    @property
    def ordered(self) -> bool:
        return True

    def __str__(self) -> str:
        return "FFI"

    __repr__ = __str__


communication = CommunicationEffect()
exchange = ExchangeEffect()
one_sided = OneSidedEffect()
sink = SinkEffect()
changing = StateEffect()
linear = LinearEffect()
no_effects: frozenset = frozenset()


def of_the_chosen(effects) -> list[str]:
    """Names of the effects that must happen only for examples that take a branch or are still in a loop.

    Effects that show values (`debug.print`) may happen for other examples too.
    """
    return sorted(str(e) for e in effects if (e.kind != "Debug" if isinstance(e, CallbackEffect) else e.ordered))


def pins(effects) -> bool:
    """Whether an equation with these effects must stay even if nobody reads its outputs."""
    return any(e.kept for e in effects)


def everywhere(primitive, params) -> bool:
    """Whether transformations must process an operation even if none of its operands is transformed."""
    return primitive.effects is not None and any(e.everywhere for e in primitive.effects(params))
