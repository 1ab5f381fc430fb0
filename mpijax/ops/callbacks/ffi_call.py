"""Defines `ffi_call`: calls a C function from a program, without Python in between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import Native
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.effects import FfiEffect
from mpijax.core.types.typeof import typeof
from mpijax.ops.callbacks.ffi_words import attributes_of, words
from mpijax.ops.callbacks.host import VMAP_METHODS, batch_call, declared_results

# Addresses of C functions by name. Functions of other platforms are registered too, and never called.
targets: dict[str, int] = {}


@dataclass(frozen=True)
class FfiCode:
    """A call of a registered function. Its address is looked up when the program is loaded."""

    label: str
    words: tuple[int, ...]

    def address(self) -> int:
        found = targets.get(self.label)
        if found is None:
            known = ", ".join(sorted(targets)) or "none"
            raise JaxRuntimeError(
                f"NOT_FOUND: no FFI target {self.label!r} is registered for the CPU (registered are: {known}). Call "
                f"mpijax.ffi.register_ffi_target({self.label!r}, mpijax.ffi.pycapsule(function)) first, on every rank."
            )
        return found

    def failed(self, *arrays: np.ndarray) -> NoReturn:
        text = arrays[-1][4:].tobytes().split(b"\0")[0].decode(errors="replace")
        raise JaxRuntimeError(f"INTERNAL: the FFI target {self.label!r} failed: {text}")


def _code(in_types, out_types, *, target_name, attributes, **_) -> FfiCode:
    return FfiCode(target_name, words([*in_types, *out_types], len(in_types), attributes))


def _no_derivative(*_args, target_name, **_params):
    raise ValueError(
        f"The FFI call to `{target_name}` cannot be differentiated. You can use `jax.custom_jvp` or `jax.custom_vjp` "
        "to add support."
    )


def _reference(*arrays, target_name, **_):
    raise NotImplementedError(f"the FFI target {target_name!r} has no NumPy reference")


def _batch(axis, args, dims, *, vmap_method, input_layouts, output_layouts, **params):
    def batched(layout):
        return (*(n + 1 for n in layout), 0)

    if vmap_method not in ("sequential", "sequential_unrolled"):
        output_layouts = tuple(map(batched, output_layouts))
        keeps = vmap_method == "legacy_vectorized"
        input_layouts = tuple(
            x if keeps and d is None else batched(x) for x, d in zip(input_layouts, dims, strict=True)
        )
    layouts = {"input_layouts": input_layouts, "output_layouts": output_layouts}
    return batch_call(ffi_call_p, axis, args, dims, vmap_method=vmap_method, **params, **layouts)


ffi_call_p = Primitive(
    "ffi_call",
    type_rule=lambda *_, result_avals, **params: list(result_avals),
    reference=_reference,
    lower=Native(_code, aliases="input_output_aliases"),
    jvp=_no_derivative,
    transpose=_no_derivative,
    batch=_batch,
    multiple_results=True,
    effects=lambda params: frozenset({FfiEffect()} if params["has_side_effect"] else ()),
    sharding_type=types.whole,
    pretty=lambda eqn, names: sorted(eqn.params.items()),
)


def ffi_call(
    target_name: str,
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_layouts: Sequence[Any] | None = None,
    output_layouts: Any = None,
    input_output_aliases: dict[int, int] | None = None,
    custom_call_api_version: int = 4,
    legacy_backend_config: str | None = None,
) -> Callable[..., Any]:
    """A function that calls a registered C function without the GIL, in traced code and outside of it.

    Args:
      target_name: the name given to `register_ffi_target` before the program is compiled.
      result_shape_dtypes: a `ShapeDtypeStruct`, or a list or tuple of them: the arrays that the C function writes.
      has_side_effect: calls are neither dropped nor merged, and keep program order.
      vmap_method: what `vmap` does, as in `pure_callback`; "sequential" is a loop of calls.
      input_layouts, output_layouts: None, or row-major, which is the only layout of arrays.
      input_output_aliases: `{argument: result}`, of equal types: the result starts with the argument's elements, and
        uses its memory if nothing else reads the argument.
      custom_call_api_version, legacy_backend_config: must have their default values; others belong to XLA's interface.

    The returned function takes the arguments, and as keywords the attributes: numbers, strings, NumPy arrays and dicts
    that are known during tracing. C finds the entry "b" of the dict `a` by the name "a.b". There is no derivative: wrap
    it in `custom_jvp` or `custom_vjp`. Nothing is communicated: under `shard_map` each rank calls its own function on
    its own shard.

    Raises:
      JaxRuntimeError: for a name that is not registered when the program is compiled; when the program runs, if the
        C function reports an error with `mpijax_fail`.
      ValueError: for results that are not types, aliases that do not match, an unknown `vmap_method`; under `grad`.
      TypeError: for attributes of other types.

    >>> scale = mpijax.ffi.ffi_call("scale", mpijax.ShapeDtypeStruct((3,), jnp.float32))
    >>> mpijax.eval_shape(scale, jnp.ones(3))
    ShapeDtypeStruct(shape=(3,), dtype=float32)
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be one of the allowed methods {list(VMAP_METHODS)}, but got: {vmap_method}")
    if custom_call_api_version != 4 or legacy_backend_config is not None:
        raise ValueError(
            f"custom_call_api_version={custom_call_api_version} and legacy_backend_config={legacy_backend_config!r} "
            "belong to XLA's interface, which mpijax does not support. Leave them out, and pass options as "
            "attributes."
        )
    several = isinstance(result_shape_dtypes, (list, tuple))
    wanted = result_shape_dtypes if several else [result_shape_dtypes]
    result_avals = declared_results(wanted, ValueError)

    def call(*args: Any, **attributes: Any) -> Any:
        avals = [typeof(x) for x in args]
        outs = ffi_call_p.bind(
            *args,
            result_avals=result_avals, vmap_method=vmap_method, target_name=target_name,
            has_side_effect=has_side_effect,
            input_layouts=_layouts("input", avals, input_layouts),
            output_layouts=_layouts("output", result_avals, _per_result(output_layouts, several)),
            input_output_aliases=alias_pairs(input_output_aliases or {}, avals, result_avals),
            custom_call_api_version=custom_call_api_version, legacy_backend_config=legacy_backend_config,
            attributes=attributes_of(attributes),
        )  # fmt: skip
        if not several:
            return outs[0]
        return tuple(outs) if isinstance(result_shape_dtypes, tuple) else outs

    return call


def _per_result(layouts: Any, several: bool) -> Any:
    return layouts if several or layouts is None else (layouts,)


def _layouts(which: str, avals: Sequence[ShapedArray], given: Sequence[Any] | None) -> tuple[tuple[int, ...], ...]:
    """Row-major layouts, from the fastest to the slowest axis, as JAX prints them."""
    if given is not None and len(given) != len(avals):
        raise ValueError(f"ffi_call: {len(given)} {which}_layouts for {len(avals)} {which}s")
    for i, (a, layout) in enumerate(zip(avals, given or (), strict=False)):
        order = getattr(layout, "major_to_minor", layout)
        if order is not None and tuple(order) != tuple(range(a.ndim)):
            raise NotImplementedError(
                f"ffi_call: the layout of {which} {i} of type {a.str_short(True)} is {tuple(order)}, but arrays of "
                "mpijax are row-major. Transpose the array instead: jnp.transpose(x, order)."
            )
    return tuple(tuple(reversed(range(a.ndim))) for a in avals)


def alias_pairs(given: dict[int, int], avals, result_avals) -> tuple[tuple[int, int], ...]:
    pairs = sorted((int(i), int(o)) for i, o in given.items())
    if len({o for _, o in pairs}) < len(pairs):
        raise ValueError(f"input_output_aliases {given} maps several inputs to the same output")
    for i, o in pairs:
        for kind, k, known in (("input", i, avals), ("output", o, result_avals)):
            if not 0 <= k < len(known):
                raise ValueError(
                    f"input_output_aliases contains the mapping '{i}:{o}' with {kind} index {k} outside the range "
                    f"[0, {len(known)})."
                )
        if (avals[i].shape, avals[i].dtype) != (result_avals[o].shape, result_avals[o].dtype):
            raise ValueError(
                f"input_output_aliases contains the mapping '{i}:{o}' referring to an input with abstract value "
                f"{avals[i]} and an output with a different abstract value {result_avals[o]}. They share memory, so "
                "their types must be equal."
            )
    return tuple(pairs)
