"""Defines the errors of tracing: JAX's classes, with messages that say how to fix the problem.

A message has three parts: what happened to which value, where the value comes from (if the tracer knows), and the
usual fix. The tracer that a constructor takes may be a tracer (``_error_repr()``, ``_origin_msg()``), an object with an
``aval``, or a text.
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
    """The origin of the value, on its own line; empty if the tracer does not know it."""
    return _line(tracer._origin_msg() if hasattr(tracer, "_origin_msg") else "")


def _line(text: str) -> str:
    return f"\n{text.strip()}" if text.strip() else ""


class _WithRemedy:
    """Adds the class's `remedy`, and a link to JAX's documentation of the error, to the message."""

    remedy = ""

    def __init__(self, message: str):
        fix = f"\n{self.remedy}" if self.remedy else ""
        super().__init__(f"{message.rstrip()}{fix}\nSee {_PAGE}#jax.errors.{type(self).__name__}")  # type: ignore[call-arg]


class JAXTypeError(_WithRemedy, TypeError):
    """A `TypeError` from tracing."""


class JAXIndexError(_WithRemedy, IndexError):
    """An `IndexError` from tracing."""


class ConcretizationTypeError(JAXTypeError):
    """Tracing needed the concrete value of a traced value.

    Inside ``jit``, ``vmap``, ``grad`` of a jitted function, ``scan`` and so on, values have a shape and a
    dtype but no concrete value. They cannot decide a shape or a Python ``range``, or become a ``float``.

    Args:
        tracer: the value.
        context: the conversion or argument that needed the concrete value.
    """

    remedy = (
        "Use functions of jax.numpy instead of those of math. If the value does not depend on array data, mark the "
        "argument as static (static_argnums or static_argnames of jit). If it decides a shape, give the shape a fixed "
        "bound (e.g. the size= argument)."
    )

    def __init__(self, tracer: Any, context: str = ""):
        super().__init__(
            "Abstract tracer value encountered where concrete value is expected: "
            f"{_describe(tracer)}{_line(context)}{_origin(tracer)}"
        )


class TracerBoolConversionError(ConcretizationTypeError):
    """A traced value was used as a condition: by ``if``, ``while``, ``and``, ``not``, ``min`` or ``max``."""

    remedy = (
        "If the choice depends on array data, use jnp.where(condition, a, b) or lax.cond instead of `if`, "
        "lax.while_loop instead of `while`, the operators & | ~ instead of `and`, `or`, `not`, (a < x) & (x < b) "
        "instead of a < x < b, and jnp.minimum, jnp.maximum and jnp.sort instead of min, max and sorted. If it does "
        "not, mark the argument as static (static_argnums or static_argnames of jit)."
    )

    def __init__(self, tracer: Any):
        JAXTypeError.__init__(self, f"Attempted boolean conversion of {_describe(tracer)}.{_origin(tracer)}")


class TracerIntegerConversionError(JAXTypeError):
    """A traced value was used as a Python integer: an index into a list, a ``range``, a size, an axis."""

    remedy = (
        "To index a Python list or a NumPy array with a traced value, convert it first: jnp.asarray(table)[i]. A size, "
        "an axis or a count must be static: mark the argument with static_argnums or static_argnames of jit. For a "
        "loop with a traced count use lax.fori_loop."
    )

    def __init__(self, tracer: Any):
        super().__init__(f"The __index__() method was called on {_describe(tracer)}{_origin(tracer)}")


class TracerArrayConversionError(JAXTypeError):
    """A traced value was passed to NumPy (or another library that takes NumPy arrays)."""

    remedy = (
        "Use the function of jax.numpy with the same name instead of that of numpy. Index NumPy arrays as "
        "jnp.asarray(array)[i]. Call code that needs concrete values through jax.pure_callback."
    )

    def __init__(self, tracer: Any):
        super().__init__(
            "The numpy.ndarray conversion method __array__() was called on "
            f"{_describe(tracer)}{_origin(tracer)}"
        )


class UnexpectedTracerError(JAXTypeError):
    """A traced value was used after its trace had ended.

    A function under ``jit``, ``grad``, ``vmap``, ... stored an intermediate value outside itself (in a
    global, a list, an attribute), and that value was used later. The message gives its type and the line
    that created it.
    """

    remedy = (
        "Return the value from the transformed function instead of storing it. "
        "With jax.checking_leaks(), the error appears where the value escapes instead of where it is used."
    )


class NonConcreteBooleanIndexError(JAXIndexError):
    """A traced boolean array was used as an index: the shape of the result would depend on data."""

    remedy = (
        "Use jnp.where(mask, x, fill), which keeps the shape (instead of x.at[mask].set(v) use jnp.where(mask, v, x)), "
        "or a fixed number of indices: jnp.nonzero(mask, size=...)."
    )

    def __init__(self, tracer: Any):
        described = tracer if isinstance(tracer, str) else getattr(tracer, "aval", tracer)
        super().__init__(f"Array boolean indices must be concrete; got {described}{_origin(tracer)}")


class KeyReuseError(JAXTypeError):
    """A PRNG key was used twice, which gives equal numbers. `mpijax.debug_key_reuse` turns the check on."""

    remedy = "Make a new key for each use: key, subkey = jax.random.split(key)."


class InconclusiveDimensionOperation(Exception):
    """The result of an operation on symbolic dimensions depends on their values."""


def shape_error(shape: Any, context: str = "") -> TypeError:
    """The error for a shape that is not a sequence of concrete integers."""
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    traced = [d for d in sizes if hasattr(d, "_origin_msg")]
    hint = "\nIf using `jit`, try using `static_argnums` or applying `jit` to smaller subfunctions." if traced else ""
    where = _origin(traced[0]) if traced else ""
    after = f" {context}." if context else ""
    return TypeError(
        f"Shapes must be 1D sequences of concrete values of integer type, got {shape}.{after}{hint}{where}"
    )


class JaxprTypeError(TypeError):
    """A Jaxpr does not type-check: an equation's types differ from the types its primitive gives."""


class ShardingTypeError(Exception):
    """The operands do not determine how Explicit mesh axes split the result."""


class JaxRuntimeError(RuntimeError):
    """A compiled program failed: out of memory, a failed library call, mismatched communication."""


class MismatchError(JaxRuntimeError, AssertionError):
    """Ranks of a communicator are about to run communication that does not match, or pass values that differ.

    It is an AssertionError too, which JAX raises if processes pass different values to `device_put`.
    """


# Tracebacks show the module from which programs import the error.
for _error in (
    *(JAXTypeError, JAXIndexError, ConcretizationTypeError, TracerBoolConversionError, TracerIntegerConversionError),
    *(TracerArrayConversionError, UnexpectedTracerError, NonConcreteBooleanIndexError, KeyReuseError),
    *(InconclusiveDimensionOperation, JaxprTypeError, JaxRuntimeError, MismatchError),
):
    _error.__module__ = "mpijax.errors"


class BrokenForm(AssertionError):
    """A form between two stages of the compiler violates one of its rules. The message names the rule.

    The module of each form has a function `verify(form) -> None` that raises this. If `jax_enable_checks` is on, the
    compiler calls it for each form that it builds.
    """


def require(rules: Iterable[tuple[bool, str]], form: str) -> None:
    """Raise BrokenForm for the first rule that is violated."""
    for holds, rule in rules:
        if not holds:
            raise BrokenForm(f"{form} violates a rule: {rule}")
