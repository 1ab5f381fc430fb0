"""The errors of tracing: JAX's classes, what they say, and what to do about them.

A message has three parts: what happened and to which value, where that value comes from (as far as the tracer
knows), and the usual way out. The tracer that a constructor takes is anything that describes itself: a tracer
(``_error_repr()``, ``_origin_msg()``), an object with an ``aval``, or a text.
"""

from collections.abc import Iterable
from typing import Any

_PAGE = "https://docs.jax.dev/en/latest/errors.html"


def _describe(tracer: Any) -> str:
    """``traced array with shape float32[3]``."""
    if isinstance(tracer, str):
        return tracer
    if hasattr(tracer, "_error_repr"):
        return tracer._error_repr()
    if hasattr(tracer, "aval"):
        return f"traced array with shape {tracer.aval}"
    return repr(tracer)


def _origin(tracer: Any) -> str:
    """Where the value comes from, on a line of its own; empty if the tracer does not know."""
    return _line(tracer._origin_msg() if hasattr(tracer, "_origin_msg") else "")


def _line(text: str) -> str:
    return f"\n{text.strip()}" if text.strip() else ""


class _WithRemedy:
    """Adds the class's `remedy`, and where JAX's documentation explains the error, to the message."""

    remedy = ""

    def __init__(self, message: str):
        fix = f"\n{self.remedy}" if self.remedy else ""
        super().__init__(f"{message.rstrip()}{fix}\nSee {_PAGE}#jax.errors.{type(self).__name__}")  # type: ignore[call-arg]


class JAXTypeError(_WithRemedy, TypeError):
    """A `TypeError` of the tracing machinery."""


class JAXIndexError(_WithRemedy, IndexError):
    """An `IndexError` of the tracing machinery."""


class ConcretizationTypeError(JAXTypeError):
    """A traced value was used where its number is needed while tracing.

    Inside ``jit``, ``vmap``, ``grad`` of a jitted function, ``scan`` and the like, values have a shape and a
    dtype but no number yet: they cannot decide a shape or a Python ``range``, nor become a ``float``.

    Args:
        tracer: the value.
        context: which conversion or argument needed the number.
    """

    remedy = (
        "If the value does not depend on array data, mark the argument as static (jit's static_argnums or "
        "static_argnames); if it decides a shape, give the shape a fixed bound (e.g. the size= argument)."
    )

    def __init__(self, tracer: Any, context: str = ""):
        super().__init__(
            "Abstract tracer value encountered where concrete value is expected: "
            f"{_describe(tracer)}{_line(context)}{_origin(tracer)}"
        )


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used as a condition, as ``if``, ``while``, ``and``, ``not``, ``min``, ``max`` do."""

    remedy = (
        "For a choice that depends on data use jnp.where(condition, a, b) or lax.cond, for a loop "
        "lax.while_loop, for `and`/`or`/`not` the operators & | ~, for min and max jnp.minimum and "
        "jnp.maximum. A flag that is known beforehand can be a static argument of jit (static_argnums or "
        "static_argnames)."
    )

    def __init__(self, tracer: Any):
        JAXTypeError.__init__(self, f"Attempted boolean conversion of {_describe(tracer)}.{_origin(tracer)}")


class TracerIntegerConversionError(JAXTypeError):
    """A traced value was used as a Python integer: an index into a list, a ``range``, a size, an axis."""

    remedy = (
        "To index a Python list or a NumPy array by a traced value, make it an array first: "
        "jnp.asarray(table)[i]. A size, an axis or a count must be static: mark that argument in jit's "
        "static_argnums or static_argnames; a loop over a traced count is lax.fori_loop."
    )

    def __init__(self, tracer: Any):
        super().__init__(f"The __index__() method was called on {_describe(tracer)}{_origin(tracer)}")


class TracerArrayConversionError(JAXTypeError):
    """A traced value was given to NumPy (or another library that takes NumPy arrays)."""

    remedy = (
        "Use the function of the same name in jax.numpy instead of numpy; index NumPy arrays as "
        "jnp.asarray(array)[i]; call code that needs real numbers through jax.pure_callback."
    )

    def __init__(self, tracer: Any):
        super().__init__(
            "The numpy.ndarray conversion method __array__() was called on "
            f"{_describe(tracer)}{_origin(tracer)}"
        )


class UnexpectedTracerError(JAXTypeError):
    """A traced value was used after its trace had ended.

    A function under ``jit``, ``grad``, ``vmap``, ... stored an intermediate value outside itself (in a
    global, a list, an attribute), and that value was used later. The message says what it is and where it was
    made.
    """

    remedy = (
        "Return the value from the transformed function instead of storing it. "
        "jax.checking_leaks() raises where the value escapes rather than where it is used."
    )


class NonConcreteBooleanIndexError(JAXIndexError):
    """A traced array of bool was used as an index, so that the shape of the result would depend on data."""

    remedy = (
        "Use jnp.where(mask, x, fill), which keeps the shape (x.at[mask].set(v) is jnp.where(mask, v, x)), "
        "or indices of a fixed number: jnp.nonzero(mask, size=...)."
    )

    def __init__(self, tracer: Any):
        described = tracer if isinstance(tracer, str) else getattr(tracer, "aval", tracer)
        super().__init__(f"Array boolean indices must be concrete; got {described}{_origin(tracer)}")


class KeyReuseError(JAXTypeError):
    """A PRNG key was used twice, which gives equal numbers; keys are looked at under `mpijax.debug_key_reuse`."""

    remedy = "Make a new key for each use: key, subkey = jax.random.split(key)."


class InconclusiveDimensionOperation(Exception):
    """An operation on symbolic dimensions has an answer only for some of their values."""


def shape_error(shape: Any, context: str = "") -> TypeError:
    """The error for a shape that is no sequence of numbers known while tracing."""
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    traced = [d for d in sizes if hasattr(d, "_origin_msg")]
    hint = "\nIf using `jit`, try using `static_argnums` or applying `jit` to smaller subfunctions." if traced else ""
    where = _origin(traced[0]) if traced else ""
    after = f" {context}." if context else ""
    return TypeError(
        f"Shapes must be 1D sequences of concrete values of integer type, got {shape}.{after}{hint}{where}"
    )


class JaxprTypeError(TypeError):
    """A Jaxpr does not type-check: an equation's types differ from what its primitive yields."""


class ShardingTypeError(Exception):
    """Operands of which it is not clear how the result is split over mesh axes of type Explicit."""


class JaxRuntimeError(RuntimeError):
    """A compiled program failed: no memory, a failed library call, communication that does not match."""


class MismatchError(JaxRuntimeError):
    """Ranks of a communicator are about to communicate in ways that do not belong together."""


# Tracebacks name the place where programs find them.
for _error in (
    *(JAXTypeError, JAXIndexError, ConcretizationTypeError, TracerBoolConversionError, TracerIntegerConversionError),
    *(TracerArrayConversionError, UnexpectedTracerError, NonConcreteBooleanIndexError, KeyReuseError),
    *(InconclusiveDimensionOperation, JaxprTypeError, JaxRuntimeError),
):
    _error.__module__ = "mpijax.errors"


class BrokenForm(AssertionError):
    """A form between two stages of the compiler breaks one of its rules, which the message says.

    Beside each form is a function `verify(form) -> None` that raises this. The compiler calls it for each form that it
    makes if `jax_enable_checks` is on.
    """


def require(rules: Iterable[tuple[bool, str]], form: str) -> None:
    """Raise BrokenForm for the first rule that does not hold."""
    for holds, rule in rules:
        if not holds:
            raise BrokenForm(f"{form} breaks a rule of its form: {rule}")
