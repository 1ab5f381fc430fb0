"""Options: process-wide values that a ``with`` block overrides for its thread.

    config.update("jax_enable_x64", True)      # for the process
    with enable_x64(True): ...                 # for this thread, until the block ends
    config.jax_enable_x64                      # the value in force in this thread

An option's initial value is from the environment (``MPIJAX_ENABLE_X64``, else ``JAX_ENABLE_X64``), else its default.

Storage: `values` is a `threading.local`. Its *class* attributes are the process-wide values and its *instance*
attributes are this thread's overrides. So one attribute read (about 50 ns) gives the value in force. The same holds for
``values.trace_key``, an integer that identifies the values of all options that affect tracing. Jit caches use it as a
key: when a ``with`` block ends, the key is the old one again and the old cache entries are found.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from mpijax.core.base import flags, locks
from mpijax.core.base.option_examples import EXAMPLES

_TRUE = ("y", "yes", "t", "true", "on", "1")
_FALSE = ("n", "no", "f", "false", "off", "0")
_REQUIRED: Any = object()
_INHERIT: Any = object()


class _Values(threading.local):
    """Values in force: process-wide ones in the class, overrides of one thread in an instance dictionary."""

    trace_key: int = 0
    # Whether an option that affects single operations differs from its default. If not, operations need no cache key.
    checks_operations: bool = False


values = _Values()

_lock = locks.reentrant_lock()
_options: dict[str, Option] = {}
_traced: list[str] = []
_checking: list[str] = []
# Contexts of users (`make_user_context`); those that differ from their default are part of jit cache keys.
_contexts: list[str] = []
# Interned settings of the traced options; the position in the dictionary is the key.
_interned: dict[tuple, int] = {}
# Instance dictionaries of the threads that have overrides now. An update of another option's process-wide value
# must change their trace_key too.
_overriding: dict[int, dict[str, Any]] = {}


def end_of_thread() -> None:
    """Forget this thread and its overrides."""
    with _lock:  # an update may be reading them
        _overriding.pop(id(values.__dict__), None)


def trace_key() -> int:
    """An integer that is equal if and only if all options that affect tracing are equal: ``values.trace_key``."""
    return values.trace_key


def settings() -> list[str]:
    """The traced options that differ from their default in this thread, as text: the contents of `trace_key`."""
    found = ((name, getattr(values, name)) for name in _traced)
    return [f"{name}={value!r}" for name, value in found if value != _options[name].default]


def differing(one: int, other: int) -> list[tuple[str, Any, Any]]:
    """The traced options whose values differ between two values of `trace_key`: name, and both values."""
    with _lock:
        known = list(_interned)
    pairs = zip(_traced, known[one][0], known[other][0], strict=False)
    return [(name, a, b) for name, a, b in pairs if (a, type(a)) != (b, type(b))]


def _intern_settings(overrides: dict[str, Any]) -> int:
    settings = tuple(overrides[name] if name in overrides else getattr(_Values, name) for name in _traced)
    for name in _contexts:
        value = overrides[name] if name in overrides else getattr(_Values, name)
        if value is not _options[name].default:
            settings = (*settings, name, value)
    # The types are part of the key because True == 1 == 1.0.
    return _interned.setdefault((settings, tuple(map(type, settings))), len(_interned))


def add_context(name: str) -> None:
    """Include a newly defined option in jit cache keys while it differs from its default."""
    with _lock:
        _contexts.append(name)


def global_value(name: str) -> Any:
    """The process-wide value of an option."""
    return getattr(_Values, name)


def _checks_operations(overrides: dict[str, Any]) -> bool:
    return any(overrides.get(name, getattr(_Values, name)) != _options[name].default for name in _checking)


def _is_followed(name: str) -> bool:
    """Whether `trace_key` or `checks_operations` depends on an option."""
    return name in _traced or name in _contexts or name in _checking


def _set_global(name: str, value: Any) -> None:
    with _lock:
        setattr(_Values, name, value)
        if _is_followed(name):
            _Values.trace_key = _intern_settings({})
            _Values.checks_operations = _checks_operations({})
            for overrides in _overriding.values():
                overrides["trace_key"] = _intern_settings(overrides)
                overrides["checks_operations"] = _checks_operations(overrides)


def _swap_local(name: str, value: Any) -> Any:
    """Set this thread's override of an option (``_INHERIT`` removes it); return the previous one."""
    mine = values.__dict__
    previous = mine.pop(name, _INHERIT)
    if value is not _INHERIT:
        mine[name] = value
    if _is_followed(name):
        with _lock:
            if any(map(_is_followed, mine)):
                mine["trace_key"] = _intern_settings(mine)
                mine["checks_operations"] = _checks_operations(mine)
                _overriding[id(mine)] = mine
            else:
                mine.pop("trace_key", None)
                mine.pop("checks_operations", None)
                _overriding.pop(id(mine), None)
    return previous


class _Override:
    """Context manager, and decorator, that sets options to one value for this thread."""

    __slots__ = ("_names", "_previous", "_value")

    def __init__(self, names: tuple[str, ...], value: Any):
        self._names, self._value, self._previous = names, value, []  # type: ignore[var-annotated]

    def __enter__(self) -> None:
        self._previous.append([_swap_local(name, self._value) for name in self._names])

    def __exit__(self, *exc_info) -> None:
        for name, previous in zip(self._names, self._previous.pop(), strict=True):
            _swap_local(name, previous)

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            with _Override(self._names, self._value):
                return function(*args, **kwargs)

        return wrapper


class Option:
    """One option: ``option.value`` reads it, ``with option(value):`` overrides it for this thread.

    Args:
        name: full name, e.g. ``jax_enable_x64``.
        default: value if neither the environment nor the program sets one.
        parse: converts a user's value (text, if it is from the environment), or raises.
        traced: the option affects tracing, so it is part of jit cache keys.
        checks: it also affects single operations. While it differs from its default, they are cached by these keys.
        guards: it affects single operations only, and is not part of the keys.
        also: other options that it sets to the same value.
        bare: the value for ``with option():``; without it, the argument is required.
        doc: what the option does.
        variable: another environment variable that sets it, if those of its name are not set.
        changed: called with each new process-wide value.
    """

    def __init__(
        self, name, default, parse, *, traced=False, checks=False, guards=False, bare=_REQUIRED, doc="", variable=None,
        changed=None, also=(),
    ):  # fmt: skip
        if name in _options:
            raise ValueError(f"Config option {name} already defined")
        self.name, self.parse, self._bare = name, parse, bare
        self.default, self.changed, self.names = default, changed, (name, *also)
        self.__name__ = name.removeprefix("jax_")
        example = EXAMPLES.get(self.__name__)
        self.__doc__ = doc if example is None else f"{doc}\n{example}\n    "
        with _lock:
            _options[name] = self
            if traced or checks:
                _traced.append(name)
            if checks or guards:
                _checking.append(name)
            value = _from_environment(name, default, parse, variable)
            _set_global(name, value)
            if value != default:
                for other in also:
                    _set_global(other, value)
        if changed is not None and value != default:
            changed(value)

    @property
    def value(self) -> Any:
        """The value in force in this thread."""
        return getattr(values, self.name)

    def __call__(self, new_val: Any = _REQUIRED) -> _Override:
        if new_val is _REQUIRED:
            new_val = self._bare
            if new_val is _REQUIRED:
                raise TypeError(
                    f"Context manager for {self.__name__} config option requires an argument representing "
                    "the new value for the config option."
                )
        return _Override(self.names, self.parse(new_val))

    def __bool__(self):
        raise TypeError(f"An option has no truth value. Use config.{self.name} or {self.__name__}.value.")

    def __repr__(self):
        return f"<option {self.name} = {self.value!r}>"


def _from_environment(name: str, default: Any, parse: Callable[[str], Any], other: str | None) -> Any:
    """The value of ``jax_foo``: from the variable MPIJAX_FOO, else JAX_FOO, else `other`, else the default."""
    shared = name.upper()
    own = f"MPI{shared}" if shared.startswith("JAX_") else f"MPIJAX_{shared}"
    for variable in filter(None, (own, shared, other)):
        if variable in os.environ:
            try:
                return parse(os.environ[variable])
            except (TypeError, ValueError) as e:
                raise type(e)(f"environment variable {variable}: {e}") from None
    return default


class Config:
    """The options as attributes; see the module. ``mpijax.config`` is the only instance."""

    def update(self, name: str, val: Any) -> None:
        """Set the process-wide value of an option.

        Raises:
            AttributeError: no option has that name.
            ValueError, TypeError: the option does not take that value.
        """
        option = _options.get(name)
        if option is None:
            raise AttributeError(f"Unrecognized config option: {name}")
        value = option.parse(val)
        for each in option.names:
            _set_global(each, value)
        if option.changed is not None:
            option.changed(value)

    def read(self, name: str) -> Any:
        """The value in force of an option."""
        if name not in _options:
            raise AttributeError(f"Unrecognized config option: {name}")
        return getattr(values, name)

    def parse_flags_with_absl(self) -> None:
        """Set options from the command line (`--jax_enable_x64=true`), and define them in absl if it is in use."""
        flags.tell_absl(_options)
        for name, text in flags.given(sys.argv[1:], _options).items():
            self.update(name, text)

    config_with_absl = parse_flags_with_absl

    @property
    def values(self) -> dict[str, Any]:
        """All options with their values in force, without contexts of users."""
        return {name: getattr(values, name) for name in _options if name not in _contexts}

    @property
    def x64_enabled(self) -> bool:
        return values.jax_enable_x64

    @staticmethod
    def trace_key() -> int:
        """An integer that is equal if and only if all options that affect tracing are equal."""
        return values.trace_key

    def __getattr__(self, name: str) -> Any:
        if name not in _options:
            raise AttributeError(f"'Config' object has no attribute '{name}'")
        return getattr(values, name)

    def __setattr__(self, name: str, value: Any):
        raise AttributeError(f"options are set by config.update({name!r}, {value!r})")

    def __dir__(self):
        return [*super().__dir__(), *_options]


config = Config()
update = config.update


def _parse_bool(value: Any) -> bool:
    if isinstance(value, str):
        word = value.lower()
        if word in _TRUE or word in _FALSE:
            return word in _TRUE
        raise ValueError(f"invalid truth value {value!r}: expected one of {', '.join(_TRUE + _FALSE)}")
    return bool(value)


def bool_option(
    name: str, default: bool, doc: str, *, traced: bool = False, checks: bool = False, variable: str | None = None,
    changed: Callable | None = None,
) -> Option:  # fmt: skip
    """Define a boolean option; ``with option():`` turns it on."""
    return Option(
        name, default, _parse_bool, traced=traced, checks=checks, bare=True, doc=doc, variable=variable, changed=changed
    )


def enum_option(
    name: str, choices: str, default: str | None, doc: str, *, traced: bool = False, changed: Callable | None = None,
    guards: bool = False, also: tuple[str, ...] = (),
) -> Option:  # fmt: skip
    """Define an option with one of the words in `choices` as value (or None, if its default is None)."""
    words = choices.split()

    def parse(value: Any) -> str | None:
        if value is None and default is None:
            return None
        if not isinstance(value, str) or str(value) not in words:
            allowed = f"None or in {words}" if default is None else f"in {words}"
            raise ValueError(f"new enum value must be {allowed}, got {value} of type {type(value)} for {name}.")
        return str(value)

    return Option(name, default, parse, traced=traced, doc=doc, changed=changed, guards=guards, also=also)


def number_option(
    name: str, kind: type, default: Any, doc: str, *, traced: bool = False, variable: str | None = None
) -> Option:
    """Define an option with an int or a float as value (`kind`), or None if its default is None."""

    def parse(value: Any) -> Any:
        if value is None and default is None:
            return None
        try:
            return kind(value)
        except (TypeError, ValueError) as e:
            raise type(e)(f"new value for {name} must be of type {kind.__name__}, got {value!r}") from None

    return Option(name, default, parse, traced=traced, doc=doc, variable=variable)


def object_option(
    name: str, default: Any, doc: str, *, traced: bool = False, checks: bool = False, changed: Callable | None = None
) -> Option:
    """Define an option with any hashable value. If its default is a number, text is parsed as a number."""
    number = type(default) if isinstance(default, int | float) else None

    def parse(value: Any) -> Any:
        return number(value) if number is not None and isinstance(value, str) else value

    return Option(name, default, parse, traced=traced, checks=checks, doc=doc, changed=changed)
