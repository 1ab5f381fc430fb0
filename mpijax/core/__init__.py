"""What everything else is built on: types, Jaxprs, traces, pytrees, options.

Public as ``mpijax.core`` are the names of ``jax.core``, loaded when they are first used; all else is not.
"""

import importlib as _importlib
import typing as _typing

_HOMES = {
    "Atom": "mpijax.core.jaxpr",
    "ShapedArray": "mpijax.core.avals",
    "Trace": "mpijax.core.trace",
    "Tracer": "mpijax.core.trace",
    "eval_context": "mpijax.core.trace",
    "eval_jaxpr": "mpijax.core.jaxpr",
}

_RENAMED = {"AbstractValue": "ShapedArray", "ensure_compile_time_eval": "eval_context"}

ParamDict = dict[str, _typing.Any]
Value = _typing.Any
# Sizes are integers here, of which JAX's symbolic dimensions are a generalization.
max_dim, min_dim = max, min

__all__ = ["ParamDict", "Value", "max_dim", "min_dim", *_HOMES, *_RENAMED]  # noqa: PLE0604


def __getattr__(name: str) -> _typing.Any:
    source = _RENAMED.get(name, name)
    home = _HOMES.get(source)
    if home is None:
        raise AttributeError(f"module 'mpijax.core' has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(home), source)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
