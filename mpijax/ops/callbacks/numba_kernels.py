"""Wraps users' numba kernels as functions for the executor, compiled once for each combination of types.

The wrapper of a kernel makes numba arrays over the buffers, with the shapes it receives, and calls the kernel. numba is
imported at the first use of a kernel.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import callable_location, callable_name
from mpijax.core.types.avals import ShapedArray

_DTYPES = frozenset(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split()
)
RAISED, WRONG_SHAPE = 1, 2


@dataclass(frozen=True)
class NumbaKernel:
    """A numba function, and how it takes arrays.

    style: "fills" its last arguments, the results; "returns" the results; or takes "pointers" (a `cfunc`).
    """

    function: Any
    style: str

    @property
    def name(self) -> str:
        return callable_name(python_function(self.function))

    @property
    def where(self) -> str:
        return callable_location(python_function(self.function))

    def __repr__(self) -> str:
        return self.name


def python_function(function: Any) -> Any:
    """The Python function from which a numba function was made."""
    for name in ("py_func", "_pyfunc", "__wrapped__"):
        found = getattr(function, name, None)
        if found is not None:
            return found
    return getattr(getattr(function, "_dispatcher", None), "py_func", function)


def make_kernel(function: Any, num_inputs: int, num_outputs: int, check_bounds: bool) -> NumbaKernel:
    """The kernel, with its style from its number of parameters. Raises TypeError for an unsupported function."""
    from numba.core.ccallback import CFunc
    from numba.core.registry import CPUDispatcher
    from numba.np.ufunc.dufunc import DUFunc
    from numba.np.ufunc.gufunc import GUFunc

    if check_bounds and not isinstance(function, CPUDispatcher):
        raise ValueError(f"numba_call: check_bounds needs an @numba.njit kernel, got {function!r}")
    if isinstance(function, CFunc):
        return NumbaKernel(function, "pointers")
    if isinstance(function, (DUFunc, GUFunc)):
        low = high = function.nin + (function.nout if isinstance(function, GUFunc) else 0)
    elif isinstance(function, CPUDispatcher):
        parameters = inspect.signature(function.py_func).parameters.values()
        low = sum(p.default is p.empty and p.kind != p.VAR_POSITIONAL for p in parameters)
        high = 10**6 if any(p.kind == p.VAR_POSITIONAL for p in parameters) else len(parameters)
        function = _with_checks(function) if check_bounds else function
    else:
        raise TypeError(
            f"numba_call: {callable_location(function) if callable(function) else repr(function)} of type "
            f"{type(function).__name__} is not compiled by numba. Decorate it with @numba.njit."
        )
    kernel = NumbaKernel(function, "fills" if low > num_inputs and not isinstance(function, DUFunc) else "returns")
    if not low <= num_inputs + (num_outputs if kernel.style == "fills" else 0) <= high:
        number = low if low == high else f"{low} to {high}"
        raise TypeError(
            f"numba_call: the kernel {kernel.where} takes {number} arguments. It was called with {num_inputs} "
            f"arguments and {num_outputs} declared result(s). It must take {num_inputs} arguments and return the "
            f"results, or take {num_inputs + num_outputs}: the arguments, then the results to fill."
        )
    return kernel


@functools.cache
def _with_checks(function: Any) -> Any:
    """The same function with numba's index checks."""
    import numba

    options = {k: v for k, v in function.targetoptions.items() if k != "nopython"}
    return numba.njit(**{**options, "boundscheck": True})(function.py_func)


# ---------------------------------------------------------------- the function around a kernel


@functools.cache
def compiled(kernel: NumbaKernel, in_types: tuple, out_types: tuple) -> Any:
    """The compiled wrapper of a kernel, for (dtype, number of axes) of arguments and results.

    Raises TypeError for types that numba or the kernel does not support, with numba's message.
    """
    import numba

    for kind, types in (("argument", in_types), ("result", out_types)):
        for i, (dtype, _) in enumerate(types):
            if str(dtype) not in _DTYPES:
                raise TypeError(
                    f"numba_call: {kind} {i} of the kernel {kernel.where} has dtype {dtype}, which numba does not "
                    "support. Convert it, for example to float32."
                )
    if kernel.style == "pointers":
        _check_pointers(kernel, in_types, out_types)
    source = "\n".join(_source(kernel, in_types, out_types))
    namespace = {"kernel": kernel.function, "pointer": _pointer(), "carray": numba.carray, "i4": numba.int32}
    namespace |= {f"t{i}": numba.from_dtype(dtype) for i, (dtype, _) in enumerate((*in_types, *out_types))}
    exec(compile(source, f"<mpijax numba_call of {kernel.name}>", "exec"), namespace)
    t = numba.types
    signature = t.void(t.CPointer(t.voidptr), t.CPointer(t.int64), t.int64, t.int64)
    try:
        if kernel.style == "returns":
            _check_returned(kernel, in_types, out_types)
        return numba.cfunc(signature)(namespace["call"])
    except numba.core.errors.NumbaError as error:
        raise TypeError(
            f"numba_call: the kernel {kernel.where} does not compile {_described(kernel, in_types, out_types)}. numba "
            f"says:\n{error}"
        ) from error


def _check_returned(kernel: NumbaKernel, in_types, out_types) -> None:
    """Raise TypeError unless a kernel's results match the declared number, axes and kinds of dtypes."""
    import numba
    from numba.np.numpy_support import as_dtype

    function = kernel.function
    if not hasattr(function, "overloads") or len(inspect.signature(function.py_func).parameters) != len(in_types):
        function = numba.njit(_forward(kernel, len(in_types)))
    arguments = tuple(_numba_type(dtype, ndim) for dtype, ndim in in_types)
    function.compile(arguments)
    found: Any = function.overloads[arguments].signature.return_type
    parts = list(found) if isinstance(found, numba.types.BaseTuple) else [found]  # type: ignore[call-overload]
    if not out_types:
        return
    fits = len(parts) == len(out_types)
    for part, (dtype, ndim) in zip(parts, out_types, strict=False):
        element = part.dtype if isinstance(part, numba.types.Array) else part
        scalar = isinstance(element, (numba.types.Number, numba.types.Boolean))
        fits = fits and scalar and getattr(part, "ndim", 0) == ndim
        fits = fits and np.can_cast(as_dtype(element), dtype, "same_kind")
    if not fits:
        raise TypeError(
            f"numba_call: the kernel {kernel.where} returns {found} for arguments {_shown(in_types)}, but the "
            f"declared results are {_shown(out_types)}. Declare the types that it returns, or convert the results in "
            "the kernel."
        )


def _numba_type(dtype: np.dtype, ndim: int) -> Any:
    import numba

    element = numba.from_dtype(dtype)
    return numba.types.Array(element, ndim, "C") if ndim else element


def _forward(kernel: NumbaKernel, count: int) -> Callable[..., Any]:
    """A Python function that calls the kernel with `count` arguments."""
    arguments = ", ".join(f"a{i}" for i in range(count))
    namespace = {"kernel": kernel.function}
    exec(f"def call({arguments}): return kernel({arguments})", namespace)
    return namespace["call"]


def _shown(types) -> str:
    return ", ".join(f"{dtype}[{','.join(':' * ndim)}]" for dtype, ndim in types) or "none"


def _described(kernel: NumbaKernel, in_types, out_types) -> str:
    how = {"fills": "for results to fill", "returns": "to return", "pointers": "for pointers to results"}
    return f"for arguments {_shown(in_types)} and {how[kernel.style]} {_shown(out_types)}"


def _source(kernel: NumbaKernel, in_types, out_types) -> list[str]:
    """The Python source of a kernel's wrapper. `words` are the sizes of all axes, arguments' first."""
    count, words = len(in_types) + len(out_types), 0
    lines = ["def call(buffers, words, begin, end):", f"    status = carray(pointer(buffers, {count}, i4), (48,))"]
    shapes = []
    for i, (_, ndim) in enumerate((*in_types, *out_types)):
        dims = "".join(f"words[{words + k}], " for k in range(ndim))
        shapes.append(f"({dims})")
        words += ndim
        lines.append(f"    a{i} = carray(pointer(buffers, {i}, t{i}), {f'({dims})' if ndim else '(1,)'})")
    n = len(in_types)
    values = [f"a{i}" if ndim else f"a{i}[0]" for i, (_, ndim) in enumerate(in_types)]
    outs = [f"a{n + i}" if ndim else f"a{n + i}.reshape(())" for i, (_, ndim) in enumerate(out_types)]
    if kernel.style == "pointers":
        return [*lines, *_call_pointers(kernel, count, shapes)]
    lines.append("    try:")
    if kernel.style == "fills":
        lines.append(f"        kernel({', '.join([*values, *outs])})")
    else:
        lines.append(f"        r = kernel({', '.join(values)})")
        for i, (_, ndim) in enumerate(out_types):
            part = f"r[{i}]" if len(out_types) > 1 else "r"
            lines += _stored(part, i, n + i, ndim, shapes[n + i])
    return [*lines, "    except Exception:", f"        status[0] = {RAISED}"]


def _stored(part: str, number: int, array: int, ndim: int, shape: str) -> list[str]:
    """Source that stores a returned array if it has the declared shape, and else stores its shape in the status.

    Loops copy the elements: for `a[:] = b`, numba compiles an error text about shapes, which takes seconds.
    """
    if not ndim:
        return [f"        a{array}[0] = {part}"]
    wrong = [f"            status[0] = {WRONG_SHAPE}", f"            status[1] = {number}"]
    wrong += [f"            status[{2 + k}] = {part}.shape[{k}]" for k in range(ndim)]
    loops = [f"{' ' * (12 + k)}for i{k} in range({part}.shape[{k}]):" for k in range(ndim)]
    element = f"[{', '.join(f'i{k}' for k in range(ndim))}]"
    copy = f"{' ' * (12 + ndim)}a{array}{element} = {part}{element}"
    return [f"        if {part}.shape != {shape}:", *wrong, "        else:", *loops, copy]


def _call_pointers(kernel: NumbaKernel, count: int, shapes: Sequence[str]) -> list[str]:
    values = [f"a{i}.ctypes" for i in range(count)]
    if len(kernel.function._sig.args) > count:
        values += [f"a{i}.size" for i in range(count)]
    return [f"    kernel({', '.join(values)})"]


def _check_pointers(kernel: NumbaKernel, in_types, out_types) -> None:
    """Raise TypeError unless a `cfunc` takes a pointer for each array, and optionally their numbers of elements."""
    import numba

    wanted = [numba.types.CPointer(numba.from_dtype(dtype)) for dtype, _ in (*in_types, *out_types)]
    given = list(kernel.function._sig.args)
    sizes = given[len(wanted) :]
    fits = given[: len(wanted)] == wanted and all(isinstance(t, numba.types.Integer) for t in sizes)
    if not fits or len(sizes) not in (0, len(wanted)):
        raise TypeError(
            f"numba_call: the cfunc {kernel.where} has the signature {kernel.function._sig}. "
            f"{_described(kernel, in_types, out_types).capitalize()} it must take ({', '.join(map(str, wanted))}), "
            f"optionally followed by the numbers of elements of all {len(wanted)} arrays as integers."
        )


@functools.cache
def _pointer() -> Callable[..., Any]:
    """In numba code, `pointer(buffers, i, type)`: the i-th pointer of a table, typed."""
    from llvmlite import ir
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def pointer(_context, table, number, element):
        target = types.CPointer(element.dtype)

        def codegen(context, builder, _signature, arguments):
            place = builder.bitcast(arguments[0], context.get_value_type(target).as_pointer())
            return builder.load(builder.gep(place, [builder.trunc(arguments[1], ir.IntType(32))]))

        return target(table, types.int64, element), codegen

    return pointer


# ---------------------------------------------------------------- a call in a program


class NumbaCode:
    """A call of a kernel on arrays of given types, in the compiler's format."""

    def __init__(self, kernel: NumbaKernel, in_types: Sequence[ShapedArray], out_types: Sequence[ShapedArray]):
        self.kernel = kernel
        self.out_types = out_types
        self.label = kernel.name
        self.words = tuple(d for t in (*in_types, *out_types) for d in t.shape)
        self.function = compiled(kernel, kinds(in_types), kinds(out_types))

    def address(self) -> int:
        return self.function.address

    def failed(self, *arrays: np.ndarray) -> NoReturn:
        """Raise an error with the wrong shape that the kernel returned, or with its exception. Machine code only
        records that there was an exception, so the kernel is called again from Python."""
        *inputs, status = arrays
        code, number, *shape = status[: 4 * 48].view(np.int32).tolist()
        who = f"INTERNAL: the numba kernel {self.kernel.where}"
        if code == WRONG_SHAPE:
            declared = self.out_types[number]
            raise JaxRuntimeError(
                f"{who} returned an array of shape {tuple(shape[: declared.ndim])} for result #{number}, but declared "
                f"is {declared.str_short(True)}."
            )
        try:
            self._again(inputs)
        except Exception as error:
            raise JaxRuntimeError(f"{who} raised {type(error).__name__}: {error}") from error
        raise JaxRuntimeError(f"{who} raised an exception.")

    def _again(self, inputs: Sequence[np.ndarray]) -> None:
        arguments = [x.copy() if x.ndim else x[()] for x in inputs]
        if self.kernel.style == "fills":
            arguments += [np.empty(t.shape, t.dtype) for t in self.out_types]
        self.kernel.function(*arguments)


def kinds(types: Sequence[ShapedArray]) -> tuple:
    """The part of types that machine code depends on: dtypes and numbers of axes."""
    return tuple((t.dtype, t.ndim) for t in types)
