"""The foundation of all other packages: types, Jaxprs, traces, pytrees, options.

The public names of ``mpijax.core`` are those of ``jax.core``, imported at first use. Everything else is private.
"""

import importlib as _importlib
import typing as _typing
import warnings as _warnings

_HOMES = {
    "AbstractValue": "mpijax.core.types.abstract",
    "Atom": "mpijax.core.programs.jaxpr",
    "ShapedArray": "mpijax.core.types.avals",
    "Trace": "mpijax.core.tracing.trace",
    "Tracer": "mpijax.core.tracing.tracer",
    "ensure_compile_time_eval": "mpijax.core.tracing.folding",
    "eval_context": "mpijax.core.tracing.trace",
    "eval_jaxpr": "mpijax.core.programs.jaxpr",
    "max_dim": "mpijax.core.shapes.dimensions",
    "min_dim": "mpijax.core.shapes.dimensions",
}

# Names that moved to `mpijax.extend.core`. Access through this module warns, as in JAX.
_MOVED = frozenset(
    """DebugInfo DropVar Effect Effects InconclusiveDimensionOperation JaxprTypeError concrete_or_error find_top_trace
    gensym get_opaque_trace_state jaxprs_in_params new_jaxpr_eqn no_effects nonempty_axis_env_DO_NOT_USE
    primal_dtype_to_tangent_dtype unsafe_am_i_under_a_jit_DO_NOT_USE unsafe_am_i_under_a_vmap_DO_NOT_USE
    unsafe_get_axis_names_DO_NOT_USE valid_jaxtype""".split()
)

_DEPRECATED = {
    "is_constant_dim": "mpijax.core.shapes.dimensions",
    "is_constant_shape": "mpijax.core.shapes.dimensions",
    "pytype_aval_mappings": "mpijax.core.types.foreign",
}

ParamDict = dict[str, _typing.Any]
Value = _typing.Any

__all__ = ["ParamDict", "Value", *_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> _typing.Any:
    if name in _MOVED:
        _warnings.warn(
            f"jax.core.{name} is deprecated. Use jax.extend.core.{name}.", DeprecationWarning, stacklevel=2
        )
        return getattr(_importlib.import_module("mpijax.extend.core"), name)
    if name in _DEPRECATED:
        _warnings.warn(f"jax.core.{name} is deprecated.", DeprecationWarning, stacklevel=2)
        return getattr(_importlib.import_module(_DEPRECATED[name]), name)
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'mpijax.core' has no attribute {name!r}")
    value = globals()[name] = getattr(_importlib.import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
