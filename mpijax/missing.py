"""Names that JAX has and mpijax lacks: why, and what to use instead. docs/coverage.md lists them.

A missing name raises an error with the reason: modules call `error` for names that they do not have.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from importlib.machinery import ModuleSpec
from typing import Any, NoReturn

_PRIMITIVE = "in mpijax it is a function of other operations, not a primitive"

# Reason, names without "jax."; "module." is a whole module, "module.*" all other names of a module.
_LEFT_OUT: tuple[tuple[str, str], ...] = (
    ("jax.device_put_sharded is deprecated; use jax.device_put instead", "device_put_sharded"),
    ("jax.device_put_replicated is deprecated; use jax.device_put instead", "device_put_replicated"),
    (_PRIMITIVE, "custom_derivatives.remat_opt_p experimental.pallas.pallas_call_p"),
    ("write a custom_vjp whose backward pass recomputes its values", "custom_remat"),
    (
        "it belongs to XLA: mpijax has its own compiler and runtime",
        """cloud_tpu_init. collect_profile. lib. tools. jax2tf_associative_scan_reductions
        extend.backend.* extend.ifrt_programs. extend.mlir. extend.sharding.* extend.xla. extend.lowering.*
        interpreters.mlir.* interpreters.pxla. interpreters.xla.* interpreters.partial_eval.*
        experimental.compute_on.
        experimental.control_deps. experimental.custom_partitioning.* experimental.fused. experimental.overlap.
        experimental.roofline.rooflines. experimental.scheduling_groups.* experimental.source_mapper.
        experimental.topologies.
        experimental.mesh_utils.device_kind_handler_dict""",
    ),
    (
        "kernels for CPUs are written with mpijax.experimental.pallas, numba (mpijax.numba_call) or C (mpijax.ffi)",
        """experimental.mosaic. extend.pallas. experimental.pallas.fuser. experimental.pallas.mosaic_gpu.
        experimental.pallas.ops. experimental.pallas.tpu_sc.""",
    ),
    ("save programs with mpijax.export", "experimental.jax2tf."),
    (
        "ranks are processes of MPI: exchange arrays with mpijax.mpi, and save them with mpijax.checkpoint",
        "experimental.transfer.",
    ),
    (
        "call the three functions of experimental.colocated_python",
        """experimental.colocated_python.func. experimental.colocated_python.func_backend.
        experimental.colocated_python.obj. experimental.colocated_python.obj_backend.
        experimental.colocated_python.serialization.""",
    ),
    (
        "save arrays with mpijax.checkpoint or array_serialization.pytree_serialization (docs/checkpoints.md)",
        """experimental.array_serialization.pytree_serialization_utils.
        experimental.array_serialization.pytree_serialization.* experimental.array_serialization.serialization.*
        experimental.array_serialization.tensorstore_impl.*""",
    ),
    (
        "profiles are files in Chrome's format, for Perfetto (docs/debugging.md)",
        "profiler.register_subprocess experimental.profiler.",
    ),
    (
        "in mpijax, sparsify works on the Jaxpr of a function; the operations are functions of "
        "mpijax.experimental.sparse",
        """experimental.sparse.* experimental.sparse.test_util.""",
    ),
    (
        "it is internal to JAX; set rules with mpijax.extend (docs/custom-operations.md)",
        """extend.source_info_util.* interpreters.ad.jvp interpreters.ad.linearize
        experimental.jet.* experimental.multihost_utils.* experimental.ode.* experimental.EArray experimental.rnn.*""",
    ),
)


@cache
def left_out() -> dict[str, str]:
    """The reasons of the table, by name."""
    return {name: reason for reason, names in _LEFT_OUT for name in names.split()}


def reason_for(module: str, name: str) -> str | None:
    """Why `module` (of mpijax or jax) does not have `name`; None if the table has no reason."""
    table, inside = left_out(), module.partition(".")[2]
    full = f"{inside}.{name}" if inside else name
    return table.get(full) or table.get(f"{full}.") or (table.get(f"{inside}.*") if inside else None)


def error(module: str, name: str) -> AttributeError:
    """The error for a name that `module` does not have, with the reason if there is one."""
    text = f"module {module!r} has no attribute {name!r}"
    # Names like __path__ are asked for by Python itself.
    reason = None if name.startswith("_") else reason_for(module, name)
    return AttributeError(text if reason is None else f"{text}: {reason}.", name=name)


class _Finder:
    """The last of Python's finders: the import of a missing module raises an error with the reason."""

    @staticmethod
    def find_spec(fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        package, _, inside = fullname.partition(".")
        if package == "mpijax" and f"{inside}." in left_out():
            raise ImportError(f"mpijax does not have {inside}: {left_out()[f'{inside}.']}.", name=fullname)
        return None


finder = _Finder()
sys.meta_path.append(finder)  # type: ignore[arg-type]


def missing(name: str, instead: str) -> Callable[..., NoReturn]:
    """A function instead of JAX's `name` that raises an error, which says what to use."""

    def unavailable(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"mpijax does not have {name} yet: {instead}.")

    unavailable.__name__ = unavailable.__qualname__ = name
    unavailable.__doc__ = f"Not available yet: {instead}."
    unavailable.instead = instead  # type: ignore[attr-defined]
    return unavailable
