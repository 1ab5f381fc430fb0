"""Operations defined outside mpijax: a primitive whose rules may be added one by one.

There are two ways to define one. mpijax's way passes all rules at once, as keywords (`docs/add-a-primitive.md`). JAX's
way makes a primitive from a name, and adds rules with `def_impl`, `def_abstract_eval`, and the tables of
`mpijax.interpreters`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from mpijax.core.rules import primitive as core
from mpijax.core.rules.lowering import Decompose
from mpijax.core.tracing.trace import evaluate
from mpijax.core.types.array_api import is_whole

# For each slot without a rule: JAX's name of the rule, and the call that sets it.
_SLOTS = {
    "impl": (
        "Evaluation rule for '{name}' not implemented",
        "call {name}.def_impl(function of arrays), or give it a lowering by mlir.register_lowering",
    ),
    "type_rule": (
        "Abstract evaluation for '{name}' not implemented",
        "call {name}.def_abstract_eval(function of the operands' types that returns a ShapedArray)",
    ),
    "lower": (
        "MLIR translation rule for primitive '{name}' not found for platform cpu",
        "call mlir.register_lowering({name}, mlir.lower_fun(function of mpijax.numpy operations, "
        "multiple_results={multiple_results}))",
    ),
    "jvp": ("Differentiation rule for '{name}' not implemented", "set interpreters.ad.primitive_jvps[{name}]"),
    "transpose": (
        "Transpose rule (for reverse-mode differentiation) for '{name}' not implemented",
        "set interpreters.ad.primitive_transposes[{name}]",
    ),
    "batch": ("Batching rule for '{name}' not implemented", "set interpreters.batching.primitive_batchers[{name}]"),
    "reference": (
        "NumPy reference of '{name}' not implemented",
        "pass reference=..., or give it a lowering by mlir.register_lowering",
    ),
}


class Unset:
    """Fills the slot of a missing rule."""

    def __init__(self, primitive: Primitive, slot: str):
        self.primitive = primitive
        self.slot = slot

    def __call__(self, *_args: Any, **_params: Any) -> NoReturn:
        what, fix = _SLOTS[self.slot]
        p = self.primitive
        words = {"name": p.name, "multiple_results": p.multiple_results}
        raise NotImplementedError(f"{what.format(**words)}. To define it, {fix.format(**words)}.")


def has_open_slots(primitive: Any) -> bool:
    """Whether a primitive was defined outside mpijax, so that its rules may be set one by one."""
    return issubclass(type(primitive), Primitive)


class _EveryPrimitive(type):
    """As in JAX, mpijax's own primitives are instances of `mpijax.extend.core.Primitive` too; libraries check it."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, core.Primitive) if cls is Primitive else super().__instancecheck__(instance)


class Primitive(core.Primitive, metaclass=_EveryPrimitive):
    """An operation defined outside mpijax.

    Args:
      name: the name in Jaxprs. When programs are read from files, a second primitive with the same name replaces the
        first. If mpijax itself has a primitive with this name, files have it with an underscore.
      rules: those of `core.rules.primitive.Primitive`: type_rule, reference, lower, jvp, transpose, batch,
        multiple_results, effects, and so on. All are optional, and can be set later as attributes or with the methods
        below. Using a rule that was never set raises NotImplementedError.

    As in JAX, a subclass may define rules as methods: `impl`, and `abstract_eval`, which returns type(s) and a set of
    effects; and `multiple_results` as an attribute.

    Outside programs, `def_impl`'s function is called with the unchanged arguments. Without it, the lowering runs as a
    program.

    >>> double_p = mpijax.extend.core.Primitive("doubled")
    >>> result = double_p.def_impl(lambda x: 2 * x)
    >>> double_p.bind(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """

    multiple_results = False

    def __init__(self, name: str, **rules: Any):
        key = name
        while (known := _known(key)) is not None and not has_open_slots(known):
            key += "_"
        self._effectful_rule: Callable | None = None
        self._lower: Any = None
        given = {slot: rules.pop(slot, Unset(self, slot)) for slot in _SLOTS if slot != "impl"}
        lower = given.pop("lower")
        if isinstance(lower, Unset):
            lower = Decompose(lower)
        rules.setdefault("multiple_results", type(self).multiple_results)
        super().__init__(name, key=key, lower=lower, register=False, **given, **rules)
        if not self.is_set("lower"):
            self.impl = Unset(self, "impl")
        for method, define in (("impl", self.def_impl), ("abstract_eval", self.def_effectful_abstract_eval)):
            if hasattr(type(self), method):
                define(getattr(type(self), method).__get__(self))
        core.registry[key] = self

    def is_set(self, slot: str) -> bool:
        """Whether a rule is set."""
        rule = getattr(self, slot)
        return not isinstance(rule.fun if isinstance(rule, Decompose) else rule, Unset)

    def unset(self, slot: str) -> None:
        """Remove a rule."""
        setattr(self, slot, Unset(self, slot))

    @property
    def lower(self) -> Any:
        """The lowering: a record of `mpijax.extend.lowering`."""
        return self._lower

    @lower.setter
    def lower(self, record: Any) -> None:
        self._lower = record
        if isinstance(getattr(self, "impl", None), Unset):
            self.impl = None  # run it as a program

    def def_impl(self, impl: Callable) -> Callable:
        """Set the evaluation outside programs: `impl(*arrays, **params) -> array(s)`."""

        def run(*args: Any, **params: Any) -> Any:
            if all(map(is_whole, args)):
                return impl(*args, **params)
            return evaluate(self, args, params)  # a program on the whole of an array sharded over ranks

        self.impl = run
        return impl

    def def_abstract_eval(self, rule: Callable) -> Callable:
        """Set the types of results: `rule(*types, **params) -> type`, or a sequence with `multiple_results`."""
        self.type_rule = rule
        self._effectful_rule = None
        return rule

    def def_effectful_abstract_eval(self, rule: Callable) -> Callable:
        """Like `def_abstract_eval`, for a rule that returns the type(s) and a set of effects."""
        self._effectful_rule = rule

        @functools.wraps(rule)
        def type_rule(*avals: Any, **params: Any) -> Any:
            return rule(*avals, **params)[0]

        self.type_rule = type_rule
        return rule

    def infer(self, avals: Any, params: Any) -> tuple[Any, frozenset]:
        out, effects = super().infer(avals, params)
        if isinstance(out, (tuple, list)) != self.multiple_results:
            raise ValueError(
                f"{self.name}.abstract_eval() method should return a tuple or a list iff {self.name}.multiple_results; "
                f"it returned {out!r}."
            )
        if self._effectful_rule is not None:
            effects = frozenset(self._effectful_rule(*avals, **params)[1])
        return out, effects


def _known(name: str) -> core.Primitive | None:
    try:
        return core.registry[name]
    except KeyError:
        return None
