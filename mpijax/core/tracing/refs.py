"""Mutable array references: boxes that hold an array. Each belongs to one trace.

In the trace that created it, a reference holds its value. Other traces are asked for the value. A trace that runs
operations asks its parent, and passes writes on to it. A trace that records keeps the value within its program. The
program takes the value as an argument and returns the written value (`JaxprTrace.read_ref`). So programs contain no
references, and transformations see only functions of arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import errors, provided
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import Source, current_source
from mpijax.core.base.state import state
from mpijax.core.tracing.jaxpr_trace import JaxprTrace
from mpijax.core.tracing.ref_index import checked_index, indexed_shape
from mpijax.core.tracing.trace import EVAL, Trace
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees.registry import register_pytree_node
from mpijax.core.trees.tree import tree_map
from mpijax.core.types.abstract import AbstractValue
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.foreign import pytype_aval_mappings
from mpijax.core.types.typeof import typeof


class AbstractRef(AbstractValue):
    """The type of a reference.

    Attributes:
      inner_aval: the type of the array that it refers to.
      memory_space: accepted for compatibility with JAX; there is one memory space.
      kind: "no_grad_no_remat" for a reference that stores values without their derivatives, or None.

    >>> mpijax.typeof(mpijax.new_ref(jnp.zeros(3)))
    Ref{float32[3]}
    """

    __slots__ = ("inner_aval", "memory_space", "kind")
    is_ref = True

    def __init__(self, inner_aval: ShapedArray, memory_space: Any = None, kind: str | None = None):
        self.inner_aval = inner_aval
        self.memory_space = memory_space
        self.kind = kind

    shape = property(lambda self: self.inner_aval.shape)
    dtype = property(lambda self: self.inner_aval.dtype)
    ndim = property(lambda self: self.inner_aval.ndim)
    size = property(lambda self: self.inner_aval.size)
    weak_type = property(lambda self: self.inner_aval.weak_type)
    vma = property(lambda self: self.inner_aval.vma)
    sharding = property(lambda self: self.inner_aval.sharding)
    split = property(lambda self: self.inner_aval.split)

    def update(self, inner_aval=None, memory_space=None, kind=None) -> AbstractRef:
        """This type with some fields replaced."""
        return AbstractRef(inner_aval or self.inner_aval, memory_space or self.memory_space, kind or self.kind)

    def to_tangent_aval(self) -> AbstractRef:
        return self.update(self.inner_aval.to_tangent_aval())

    def argument(self, trace: JaxprTrace) -> Ref:
        """A reference as an argument of the program under construction."""
        number = len(trace.invars)
        return Ref(trace, trace.new_arg(self.inner_aval), self, number)

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        return f"Ref{{{self.inner_aval.str_short(short_dtypes)}}}"

    def __repr__(self) -> str:
        return self.str_short(False)

    def __eq__(self, other: object) -> bool:
        return type(other) is AbstractRef and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> tuple:
        return AbstractRef, self.inner_aval, self.memory_space, self.kind


class Ref:
    """A reference to an array that can be read and written in place: `ref[...]`, `ref[i] = x`, `ref[i] += x`.

    Made by `jax.new_ref`. Functions under `jit`, `scan`, `cond` and the other transformations may close over a
    reference or take it as argument; they cannot return it. It is a leaf of pytrees.

    >>> ref = mpijax.new_ref(jnp.zeros(3))
    >>> ref[1] += 2.0
    >>> ref
    Ref([0., 2., 0.], dtype=float32)
    """

    # home: the trace that created it. is_shared: whether other code may hold the array, so that its memory must not be
    # overwritten. is_freed: whether a traced function has freed it.
    __slots__ = ("aval", "home", "is_shared", "is_freed", "_value", "_made", "__weakref__")

    def __init__(self, home: Trace, value: Any, aval: AbstractRef, argument: int | None = None):
        self.aval = aval
        self.home = home
        self._value = value
        self.is_shared = True
        self.is_freed = False
        self._made: int | Source = current_source() if argument is None else argument

    @staticmethod
    def of(value: Any, kind: str | None = None) -> Ref:
        """A reference in the current trace that holds an array."""
        return Ref(state.trace, value, AbstractRef(typeof(value), None, kind))

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)
    is_argument = property(lambda self: type(self._made) is int)
    committed = _committed = property(lambda self: True)
    sharding = property(lambda self: read(self).sharding)
    format = property(lambda self: read(self).format)

    # ------------------------------------------------------------ the value, by trace

    def read_in(self, trace: Trace) -> Any:
        """The value in `trace`."""
        return self._value if trace is self.home else trace.read_ref(self)

    def write_in(self, trace: Trace, value: Any) -> None:
        """Replace the value in `trace` by one of the same type."""
        if trace is not self.home:
            trace.write_ref(self, value)
            return
        if self.aval.kind is not None:
            value = trace.without_derivative(value)
        if trace is EVAL and isinstance(value, Tracer):
            raise errors.UnexpectedTracerError(
                f"The traced value {value!r} was written to a reference of type {self.aval} from outside its trace."
            )
        else:
            self._value, self.is_shared = value, True

    def origin(self, trace: JaxprTrace) -> str:
        """The origin of the reference, as the end of a message about a function traced by `trace`."""
        if self.home is not trace:
            return ""
        if isinstance(self._made, int):
            names = list(trace.debug.arg_names or ()) if trace.debug else []
            known = self._made < len(names)
            return f"\n\nThe returned mutable array was passed in as the argument {names[self._made]}." if known else ""
        return f"\n\nThe returned mutable array was created on line {self._made}."

    def leaked(self) -> errors.UnexpectedTracerError:
        """The error for using a reference outside the trace that created it."""
        debug = getattr(self.home, "debug", None)
        where = f" It was made in {debug.func_src_info} traced for {debug.traced_for}." if debug else ""
        return errors.UnexpectedTracerError(
            "Encountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a "
            f"reference to an intermediate value with type {self.aval} to escape the scope of the transformation.\n"
            "JAX transformations require that functions explicitly return their outputs, and disallow saving "
            f"intermediate values, mutable array references among them, to global state.{where} Make the reference "
            "outside, or return its value (ref[...])."
        )

    # ------------------------------------------------------------ for users

    def __getitem__(self, index: Any) -> Any:
        return get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        swap(self, index, value, False)

    def get(self, idx: Any = ()) -> Any:
        """`ref[idx]`."""
        return get(self, idx)

    def set(self, value: Any, idx: Any = ()) -> None:
        """`ref[idx] = value`."""
        swap(self, idx, value, False)

    def swap(self, value: Any, idx: Any = ()) -> Any:
        """`ref[idx] = value`; returns the old value."""
        return swap(self, idx, value)

    def addupdate(self, x: Any, idx: Any = ()) -> None:
        """Add `x` at `idx`."""
        addupdate(self, idx, x)

    @property
    def at(self) -> _Views:
        """`ref.at[idx]` is a view of a part, with the methods of a reference."""
        return _Views(self)

    def reshape(self, *shape: Any) -> RefView:
        """A view of the elements in another shape, in which one size may be -1."""
        return RefView(self, ()).reshape(*shape)

    def transpose(self, *permutation: Any) -> RefView:
        """A view with the axes in another order, by default reversed."""
        return RefView(self, ()).transpose(*permutation)

    T = property(lambda self: self.transpose())

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __bool__(self) -> bool:
        return True

    def __iter__(self):
        return (self[i] for i in range(len(self)))

    def __array__(self, *_args, **_kwargs):
        raise TypeError(f"a mutable array reference of type {self.aval} is not an array: read it (ref[...])")

    def block_until_ready(self) -> Ref:
        return self

    def unsafe_buffer_pointer(self) -> int:
        return read(self).unsafe_buffer_pointer()

    def __copy__(self) -> Ref:
        return new_ref(read(self), kind=self.aval.kind)

    def __deepcopy__(self, _memo: dict) -> Ref:
        return self.__copy__()

    def __repr__(self) -> str:
        if self.home is not EVAL:
            return f"{self.aval} made while tracing"
        return f"Ref{repr(self._value)[5:]}"


def new_ref(init_val: Any, *, memory_space: Any = None, kind: str | None = None) -> Ref:
    """A mutable array reference that holds a copy of `init_val`.

    Args:
      init_val: an array or number.
      memory_space: must be None, because there is one memory space.
      kind: "no_grad_no_remat" accepts values with derivatives, and drops the derivatives.

    Raises:
      TypeError: `init_val` is not an array.
      NotImplementedError: for a memory space.

    >>> ref = mpijax.new_ref(jnp.arange(3))
    >>> ref[0] = 5
    >>> ref[...]
    Array([5, 1, 2], dtype=int32)
    """
    if memory_space is not None:
        raise NotImplementedError(
            "new_ref does not take a memory_space: mpijax keeps all arrays in the memory of the process. Leave it out."
        )
    try:
        aval = typeof(init_val)
    except TypeError:
        raise TypeError(
            "Error interpreting argument to new_ref as a JAX value. The problematic value is of type "
            f"{type(init_val)} and was passed to new_ref at position 0. Make it an array with jnp.asarray."
        ) from None
    if aval.is_ref:
        raise ValueError(f"new_ref takes an array, got a reference of type {aval}. Read it first: ref[...].")
    value = init_val if isinstance(init_val, Array) or aval.is_high else provided.basic.converted(init_val, aval)
    return Ref.of(value, kind)


def read(ref: Ref) -> Any:
    """The whole value in the current trace. Use it at once: a later write may overwrite its memory."""
    return ref.read_in(state.trace)


def write(ref: Ref, value: Any) -> None:
    """Replace the whole value in the current trace."""
    ref.write_in(state.trace, value)


def run_on(refs: Sequence[Ref], bind: Callable[..., list[Any]], *operands: Any) -> list[Any]:
    """The results of a program that takes the values of `refs` first, and first returns their new values.

    Values of libraries that change may be among `refs`: the program takes them as they are, and returns nothing.
    """
    outs = bind(*(read(x) if type(x) is Ref else x for x in refs), *operands)
    targets = [x for x in refs if type(x) is Ref]
    for ref, value in zip(targets, outs, strict=False):
        write(ref, value)
    return outs[len(targets) :]


# ---------------------------------------------------------------- parts


def get(ref: Any, idx: Any = None) -> Any:
    """`ref[idx]`, an array. Indices are NumPy's with positive steps; None and `...` select everything.

    Raises:
      ValueError: `ref` is not a reference, or an index is out of bounds.

    >>> ref = mpijax.new_ref(jnp.array([1, 2, 3]))
    >>> mpijax.ref.get(ref, slice(1, 3))
    Array([2, 3], dtype=int32)
    """
    if type(ref) is RefView:
        return ref.get(idx)
    idx = _place(ref, idx, "ref_get")
    value = read(ref)
    if not idx:
        ref.is_shared = True
        return value
    return _read_at(value, idx)


def _read_at(value: Any, idx: tuple) -> Any:
    part = provided.part_of(idx, value.shape)
    return value[idx] if part is None else provided.read_part(value, part)


def swap(ref: Any, idx: Any, value: Any, wanted: bool = True) -> Any:
    """`ref[idx] = value`; returns the old value if it is `wanted`.

    Raises:
      ValueError: shape or dtype of `value` differs from `ref[idx]`. Python numbers are converted to the dtype.

    >>> ref = mpijax.new_ref(jnp.array([1.0, 2.0, 3.0]))
    >>> mpijax.ref.swap(ref, 1, 5.0), ref[...]
    (Array(2., dtype=float32), Array([1., 5., 3.], dtype=float32))
    """
    if type(ref) is RefView:
        return ref.swap(value, idx)
    idx = _place(ref, idx, "ref_swap" if wanted else "ref_set")
    value = _fitting(ref, idx, value, "swap", _is_cast(ref, typeof(value)))
    if not idx:
        before = read(ref) if wanted else None
        write(ref, value)
        return before
    whole = read(ref)
    before = _read_at(whole, idx) if wanted else None
    part = provided.part_of(idx, whole.shape)
    _replace(ref, whole.at[idx].set(value) if part is None else provided.write_part(whole, part, value))
    return before


def addupdate(ref: Any, idx: Any, x: Any) -> None:
    """Add `x` to `ref[idx]`.

    Raises:
      ValueError: shape or dtype of `x` differs from `ref[idx]`.

    >>> ref = mpijax.new_ref(jnp.ones(3))
    >>> mpijax.ref.addupdate(ref, 1, 5.0)
    >>> ref[...]
    Array([1., 6., 1.], dtype=float32)
    """
    if type(ref) is RefView:
        return ref.addupdate(x, idx)
    idx = _place(ref, idx, "ref_addupdate")
    x = _fitting(ref, idx, x, "addupdate", False)
    whole = read(ref)
    part = provided.part_of(idx, whole.shape)
    if part is not None:
        _replace(ref, provided.write_part(whole, part, provided.read_part(whole, part) + x))
        return
    _replace(ref, whole.at[idx].add(x) if idx else whole + x)


def _place(ref: Any, idx: Any, function: str) -> tuple:
    """The index as a tuple, () for everything. ValueError if `ref` is freed or not a reference, or out of bounds."""
    if type(ref) is not Ref:
        raise ValueError(f"Can only call `{function}` on a `Ref`: {ref}.")
    if ref.is_freed:
        raise ValueError(
            f"`{function}` got a reference of type {ref.aval} that freeze or free_ref ended. Call it before."
        )
    return _all_of(ref, idx) if ref.aval.inner_aval.is_high else checked_index(idx, ref.shape)


def _all_of(ref: Ref, idx: Any) -> tuple[()]:
    """The index of all of a value of a type of a library; raises NotImplementedError for a part."""
    shape = getattr(ref.aval.inner_aval, "shape", ())
    found = () if idx is None or idx is Ellipsis else checked_index(idx, shape)
    if not all(isinstance(x, slice) and x.indices(n) == (0, n, 1) for x, n in zip(found, shape, strict=False)):
        raise NotImplementedError(
            f"A reference of type {ref.aval} can only be read and written as a whole (ref[...]), got the index {idx}."
        )
    return ()


def _is_cast(ref: Ref, aval: Any) -> bool:
    """Whether a value of this type is converted to the dtype of what it replaces."""
    if aval.is_high or ref.aval.inner_aval.is_high:
        return False
    kinds = [k for k in (np.floating, np.integer) if dtypes.issubdtype(ref.dtype, k)]
    return any(dtypes.issubdtype(aval.dtype, k) and (aval.weak_type or k is np.integer) for k in kinds)


def _fitting(ref: Ref, idx: tuple, value: Any, operation: str, cast: bool) -> Any:
    """`value` as an array of the type of `ref[idx]`, converted only if `cast`."""
    aval, inner = typeof(value), ref.aval.inner_aval
    if aval.is_ref:
        raise ValueError("Cannot store a Ref into another Ref. Did you forget to load from it using `[...]`?")
    if aval.is_high or inner.is_high:
        if aval != inner:
            raise ValueError(f"Invalid type for `{operation}`. Ref type: {ref.aval}. Value type: {aval}.")
        return value
    shape = indexed_shape(ref.shape, idx)
    if aval.shape != shape:
        raise ValueError(
            f"Invalid shape for `{operation}`. Ref shape: {ref.shape}. Expected shape: {shape}. Value shape: "
            f"{aval.shape}. Values are not broadcast: use jnp.full or jnp.broadcast_to."
        )
    if aval.dtype != ref.dtype and not cast:
        raise ValueError(
            f"Invalid dtype for `{operation}`. Ref dtype: {ref.dtype.name}. Value dtype: {aval.dtype.name}. Convert "
            "the value with astype."
        )
    wanted = inner.update(shape=shape, vma=aval.vma)
    return value if aval is wanted and isinstance(value, Array) else provided.basic.converted(value, wanted)


def _replace(ref: Ref, value: Any) -> None:
    """Write a value that was computed here, so no other code holds its memory."""
    write(ref, value)
    ref.is_shared = False


def freeze(ref: Ref) -> Any:
    """The final value of a reference. A traced function must not use the reference afterwards.

    >>> mpijax.freeze(mpijax.new_ref(jnp.arange(3)))
    Array([0, 1, 2], dtype=int32)
    """
    value = get(ref)
    free_ref(ref)
    return value


def free_ref(ref: Ref) -> tuple[()]:
    """Declare that a reference is no longer used. A traced function that uses it afterwards raises an error.

    Its memory is freed with the last Python reference to it.

    >>> ref = mpijax.new_ref(jnp.zeros(3))
    >>> mpijax.free_ref(ref)
    ()
    """
    _place(ref, None, "free_ref")
    ref.is_freed = state.trace is not EVAL
    return ()


def empty_ref(ty: Any, memory_space: Any = None) -> Ref:
    """A reference for values of the type of `ty`: any object with a shape and a dtype. It starts as zeros.

    >>> mpijax.empty_ref(mpijax.ShapeDtypeStruct((2,), jnp.float32)).shape
    (2,)
    """
    if isinstance(ty, AbstractValue) and ty.is_high:
        return new_ref(provided.raised(ty, list(map(_zeros, ty.lo_ty()))), memory_space=memory_space)
    return new_ref(_zeros(ty), memory_space=memory_space)


def _zeros(ty: Any) -> np.ndarray:
    return np.zeros(ty.shape, dtypes.canonicalize_dtype(ty.dtype))


def ref_set(ref: Any, idx: Any, value: Any) -> None:
    """`ref[idx] = value`; see `swap`.

    >>> ref = mpijax.new_ref(jnp.zeros(3))
    >>> mpijax.ref.set(ref, 1, 5.0)
    >>> ref[...]
    Array([0., 5., 0.], dtype=float32)
    """
    swap(ref, idx, value, False)


class _Views:
    """The type of `ref.at`."""

    def __init__(self, ref: Ref | RefView):
        self._ref = ref

    def __getitem__(self, index: Any) -> RefView:
        return RefView(self._ref, index)


@dataclass(frozen=True)
class _Form:
    """How a view orders the elements of a part: its axes permuted, or in another shape.

    axes: of the part, for each axis of the view; None for another shape. before, after: the shapes of part and view.
    """

    axes: tuple[int, ...] | None
    before: tuple[int, ...]
    after: tuple[int, ...]

    def of(self, part: Any) -> Any:
        return part.reshape(self.after) if self.axes is None else part.transpose(self.axes)

    def undone(self, value: Any) -> Any:
        return value.reshape(self.before) if self.axes is None else value.transpose(tuple(np.argsort(self.axes)))


class RefView:
    """A view of a part of a reference, with the methods of a reference.

    Functions under `jit`, `checkpoint`, `cond` and `shard_map` accept a part as an argument, if it is not reshaped or
    transposed.

    >>> ref = mpijax.new_ref(jnp.arange(4))
    >>> ref.at[1:3][...]
    Array([1, 2], dtype=int32)
    >>> ref.reshape(2, -1)[1]
    Array([2, 3], dtype=int32)
    """

    shape: tuple[int, ...]
    dtype: Any

    def __init__(self, ref: Ref | RefView, index: Any, form: _Form | None = None):
        self._ref = ref
        self._index = checked_index(index, ref.shape)
        self._form = form
        self.shape = indexed_shape(ref.shape, self._index) if form is None else form.after
        self.dtype = ref.dtype

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    at = property(lambda self: _Views(self))
    T = property(lambda self: self.transpose())
    is_part = property(lambda self: self._form is None)

    def reshape(self, *shape: Any) -> RefView:
        """A view of the elements in another shape, in which one size may be -1."""
        asked = tuple(shape[0]) if len(shape) == 1 and isinstance(shape[0], (tuple, list)) else shape
        known = math.prod(n for n in asked if n != -1)
        after = tuple(self.size // max(known, 1) if n == -1 else n for n in asked)
        if math.prod(after) != self.size or asked.count(-1) > 1:
            raise TypeError(f"cannot reshape a reference of shape {self.shape} into shape {asked}: their sizes differ")
        return RefView(self, (), _Form(None, self.shape, after))

    def transpose(self, *permutation: Any) -> RefView:
        """A view with the axes in another order, by default reversed."""
        one = len(permutation) == 1 and isinstance(permutation[0], (tuple, list))
        axes = (tuple(permutation[0]) if one else permutation) or tuple(range(self.ndim))[::-1]
        if sorted(axes) != list(range(self.ndim)):
            raise ValueError(f"{axes} is not a permutation of the axes of a reference of shape {self.shape}")
        return RefView(self, (), _Form(axes, self.shape, tuple(self.shape[d] for d in axes)))

    def _read(self) -> Any:
        part = get(self._ref, self._index)
        return part if self._form is None else self._form.of(part)

    def _of_part(self, change: Callable[[Ref], Any]) -> Any:
        """Apply an operation to a new reference that holds the part, then write the part back."""
        held = new_ref(self._read())
        result = change(held)
        part = read(held)
        swap(self._ref, self._index, part if self._form is None else self._form.undone(part), False)
        return result

    def get(self, idx: Any = ()) -> Any:
        """`view[idx]`."""
        return get(new_ref(self._read()), idx)

    def swap(self, value: Any, idx: Any = ()) -> Any:
        """`view[idx] = value`; returns the old value."""
        return self._of_part(lambda part: swap(part, idx, value))

    def set(self, value: Any, idx: Any = ()) -> None:
        """`view[idx] = value`."""
        self._of_part(lambda part: swap(part, idx, value, False))

    def addupdate(self, x: Any, idx: Any = ()) -> None:
        """Add `x` at `idx`."""
        self._of_part(lambda part: addupdate(part, idx, x))

    def __getitem__(self, index: Any) -> Any:
        return self.get(index)

    def __setitem__(self, index: Any, value: Any) -> None:
        self.set(value, index)


def _refuse_view(view: RefView) -> Any:
    raise TypeError(
        "TransformedRefs are not allowed here: functions under jit, checkpoint, cond and shard_map take a view of a "
        "part of a reference. Pass the reference, or its value (view[...])."
    )


pytype_aval_mappings[RefView] = _refuse_view


class _ViewNode:
    """A view as a pytree node. Its leaves are the reference and the indices that are not slices.

    Unflattened with a reference, it becomes a view. With another object as a leaf, such as a type, it stays a node.
    """

    def __init__(self, ref: Any, index: tuple):
        self.ref = ref
        self.index = index


def _flatten_opened(node: _ViewNode) -> tuple[tuple, tuple]:
    slices = tuple((x.start, x.stop, x.step) if isinstance(x, slice) else None for x in node.index)
    return (node.ref, *(x for x in node.index if not isinstance(x, slice))), slices


def _unflatten_opened(slices: tuple, leaves: Sequence[Any]) -> Any:
    ref, *others = leaves
    rest = iter(others)
    index = tuple(slice(*x) if x else next(rest) for x in slices)
    return RefView(ref, index) if isinstance(ref, Ref | RefView) else _ViewNode(ref, index)


register_pytree_node(_ViewNode, _flatten_opened, _unflatten_opened)


def has_views(leaves: Sequence[Any]) -> bool:
    """Whether leaves of arguments include views of parts of references."""
    return any(type(x) is RefView and x.is_part for x in leaves)


def opened(args: Any) -> Any:
    """A pytree in which references and indices replace views as leaves; functions receive the views."""
    return tree_map(lambda x: _ViewNode(x._ref, x._index) if type(x) is RefView and x.is_part else x, args)
