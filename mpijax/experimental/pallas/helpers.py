"""Control flow, buffers and numbers for kernels."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

import mpijax.numpy as jnp
from mpijax import checkify, debug, lax
from mpijax.core.base import config
from mpijax.core.tracing.refs import Ref, new_ref, read
from mpijax.core.trees import tree
from mpijax.core.types.array_api import Array
from mpijax.experimental.pallas.memory import MemoryRef, new_buffer, uninitialized


def when(condition: Any, /) -> Callable[[Callable[[], None]], None]:
    """A decorator that runs a function immediately if `condition` holds.

    condition: a bool. If it is traced, the program has both branches.

    >>> from mpijax.experimental import pallas as pl
    >>> def kernel(x_ref, o_ref):
    ...     o_ref[...] = x_ref[...]
    ...     @pl.when(pl.program_id(0) == 1)
    ...     def _():
    ...         o_ref[...] = -x_ref[...]
    >>> one = pl.BlockSpec((1,), lambda i: (i,))
    >>> pl.pallas_call(kernel, out_shape=mpijax.ShapeDtypeStruct((3,), jnp.float32), grid=(3,), in_specs=[one],
    ...                out_specs=one)(jnp.ones(3))
    Array([ 1., -1.,  1.], dtype=float32)
    """

    def run(fun: Callable[[], None]) -> None:
        if not isinstance(condition, (bool, np.bool_)):
            lax.cond(condition, fun, lambda: None)
        elif condition:
            fun()

    return run


def loop(
    lower: Any, upper: Any, *, init_carry: Any = None, step: Any = 1, unroll: int | bool | None = None
) -> Callable[[Callable[..., Any]], Any]:
    """A decorator that runs a function for each number in [`lower`, `upper`), as `lax.fori_loop` does.

    The function gets the number, and the carry if there is an `init_carry`; the decorator returns the last carry.

    >>> from mpijax.experimental import pallas as pl
    >>> @pl.loop(0, 10, step=3, init_carry=0)
    ... def total(i, carry):
    ...     return carry + i
    >>> int(total)
    18
    """

    def run(body: Callable[..., Any]) -> Any:
        def iteration(i, carry):
            number = lower + i * step
            return body(number) if init_carry is None else body(number, carry)

        return lax.fori_loop(0, cdiv(upper - lower, step), iteration, init_carry, unroll=unroll)

    return run


def cdiv(a: Any, b: Any) -> Any:
    """a / b, rounded up.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.cdiv(9, 2)
    5
    """
    if isinstance(a, Array) or isinstance(b, Array):
        return lax.div(a + (b - 1), b)
    return (a + b - 1) // b


def align_to(a: Any, alignment: Any) -> Any:
    """`a` rounded up to a multiple of `alignment`.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.align_to(5, 4)
    8
    """
    return cdiv(a, alignment) * alignment


def next_power_of_2(x: int) -> int:
    """The smallest power of two that is at least `x`. Raises ValueError for a negative number.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.next_power_of_2(5)
    8
    """
    if x < 0:
        raise ValueError(f"`next_power_of_2` requires a non-negative integer, got {x}")
    return 1 << (x - 1).bit_length() if x else 1


def strides_from_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The distance, in elements, of neighbours along each axis, in row-major order.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.strides_from_shape((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def multiple_of(x: Any, values: Any) -> Any:
    """Returns `x`. That it is a multiple of `values` is a hint for other compilers.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.multiple_of(8, 4)
    8
    """
    return x


def reciprocal(x: Any, *, approx: bool = False, full_range: bool = True) -> Any:
    """1 / x, always with full precision.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.reciprocal(jnp.array([2.0, 4.0]))
    Array([0.5 , 0.25], dtype=float32)
    """
    return jnp.reciprocal(x)


def broadcast_to(a: Any, shape: tuple[int, ...]) -> Any:
    """`jnp.broadcast_to`.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.broadcast_to(jnp.ones(2), (1, 2))
    Array([[1., 1.]], dtype=float32)
    """
    return jnp.broadcast_to(a, shape)


def debug_print(fmt: str, *args: Any) -> None:
    """Print values from inside of a kernel, as `jax.debug.print` does.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.debug_print("x = {}", jnp.arange(2))
    x = [0 1]
    """
    debug.print(fmt, *args, skip_format_check=True)


def debug_check(condition: Any, message: str) -> None:
    """`checkify.debug_check`, if `pl.enable_debug_checks` is set.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.debug_check(False, "not checked")
    """
    if config.pallas_enable_debug_checks.value:
        checkify.debug_check(condition, message)


def delay(nanos: Any) -> None:
    """Has no effect: there is no other core to wait for.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.delay(100)
    """


# ---------------------------------------------------------------- buffers


def empty(shape: Any, dtype: Any) -> Any:
    """An array without defined contents, as `lax.empty`.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.empty((2, 3), jnp.float32).shape
    (2, 3)
    """
    return lax.empty(shape, dtype)


def empty_like(x: Any) -> Any:
    """An array without defined contents for each leaf, which has a shape and a dtype.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.empty_like({"a": mpijax.ShapeDtypeStruct((2,), jnp.int32)})["a"].shape
    (2,)
    """
    return tree.tree_map(lambda leaf: lax.empty(leaf.shape, leaf.dtype), x)


def empty_ref_like(x: Any) -> Ref:
    """A reference to a buffer without defined contents, for a `ShapeDtypeStruct` or the type of a buffer.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.empty_ref_like(pl.ANY((2,), jnp.int32)).shape
    (2,)
    """
    if not isinstance(x, MemoryRef) and not (hasattr(x, "shape") and hasattr(x, "dtype")):
        raise ValueError(f"empty_ref_like does not support {type(x)}. Pass a ShapeDtypeStruct or a pl.MemoryRef.")
    return new_ref(uninitialized(x.shape, x.dtype))


def run_scoped(f: Callable[..., Any], *types: Any, collective_axes: Any = (), **kw_types: Any) -> Any:
    """Call `f` with references to new buffers, and return its result.

    Args:
      types, kw_types: pytrees of types of buffers, such as `pltpu.VMEM((8,), jnp.float32)`.
      collective_axes: axes of cores that share the buffers; must be empty.

    >>> from mpijax.experimental import pallas as pl
    >>> def both(a_ref, b_ref):
    ...     a_ref[...] = jnp.ones(2)
    ...     b_ref[...] = a_ref[...] + 1
    ...     return b_ref[...]
    >>> pl.run_scoped(both, pl.ANY((2,), jnp.float32), b_ref=pl.ANY((2,), jnp.float32))
    Array([2., 2.], dtype=float32)
    """
    if collective_axes not in ((), None):
        raise NotImplementedError(
            f"run_scoped: buffers that cores share are not supported, got {collective_axes=}. Programs "
            "run one after the other: use scratch_shapes of pallas_call."
        )
    args, kwargs = tree.tree_map(lambda t: new_buffer(t, "run_scoped"), (types, kw_types))
    return f(*args, **kwargs)


def with_scoped(*types: Any, collective_axes: Any = (), **kw_types: Any) -> Callable[[Callable], Callable]:
    """A decorator: the function gets references to new buffers as last arguments; see `run_scoped`.

    >>> from mpijax.experimental import pallas as pl
    >>> @pl.with_scoped(pl.ANY((), jnp.int32))
    ... def double(x, ref):
    ...     ref[...] = x
    ...     return ref[...] * 2
    >>> double(4)
    Array(8, dtype=int32)
    """

    def decorator(f: Callable) -> Callable:
        @functools.wraps(f)
        def inner(*args):
            return run_scoped(functools.partial(f, *args), *types, collective_axes=collective_axes, **kw_types)

        return inner

    return decorator


def run_state(f: Callable[..., None]) -> Callable[[Any], Any]:
    """A function of arrays that calls `f` with references to them, and returns their contents after the call.

    >>> from mpijax.experimental import pallas as pl
    >>> def fill(refs):
    ...     refs["y"][...] = refs["x"][...] * 2
    >>> pl.run_state(fill)({"x": jnp.ones(2), "y": jnp.zeros(2)})["y"]
    Array([2., 2.], dtype=float32)
    """

    def run(args: Any) -> Any:
        refs = tree.tree_map(lambda x: new_ref(jnp.asarray(x)), args)
        f(refs)
        return tree.tree_map(read, refs)

    return run
