"""Sums of products in Einstein's notation, as a sequence of `dot_general`, sums and transposes.

A contraction takes one or two operands. For more than two operands, opt_einsum chooses the order; it is imported only
then.
"""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.shapes.dimensions import DimExpr
from mpijax.core.tracing.out_sharding import explicit_sharding, under_auto_axes, with_out_sharding
from mpijax.numpy.linear_algebra.linear import result_type
from mpijax.numpy.util import convert, ensure_arraylike_tuple, shape_of, unwrap
from mpijax.transforms.jit import jit

# The number that stands for a symbolic size in the choice of the order of contractions.
_USUAL_SIZE = 8
# Positions of the operands to contract, names summed over, "names,names->names".
Contraction = tuple[tuple[int, ...], frozenset[str], str]


def einsum(
    subscripts: Any,
    /,
    *operands: Any,
    out: None = None,
    optimize: str | bool | list[tuple[int, ...]] = "auto",
    precision: Any = None,
    preferred_element_type: Any = None,
    _dot_general: Callable | None = None,
    out_sharding: Any = None,
) -> Any:
    """Sum of products of arrays whose axes are named by letters: `einsum("ij,jk->ik", a, b)` is `a @ b`.

    Args:
      subscripts: names of the axes of each operand, and after "->" those of the result. "..." stands for axes that
        broadcast. Without "->", the result has the names that occur once, in alphabetical order.
      operands: arrays. `einsum(a, (0, 1), b, (1, 2), (0, 2))` names the axes by numbers instead.
      optimize: how to choose the order of contraction of three or more operands: see opt_einsum.contract_path.
      precision, preferred_element_type: as in `dot`.
      out_sharding: the sharding of the result.

    Returns:
      Array with the axes named after "->".

    Raises:
      ValueError: axes with one name have different sizes, or no operand has a name of the result.

    >>> jnp.einsum("ij,j->i", jnp.array([[1, 2], [3, 4]]), jnp.array([1, 10]))
    Array([21, 43], dtype=int32)
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.einsum is not supported.")
    arrays, contractions = _plan((subscripts, *operands), optimize)
    dot_general = lax.dot_general if _dot_general is None else _dot_general
    arrays = list(ensure_arraylike_tuple("einsum", arrays))
    sharding = explicit_sharding(out_sharding, "einsum")
    if sharding is not None and (len(contractions) > 1 or len(arrays) == 1):
        kind = {"optimize": optimize, "precision": precision, "preferred_element_type": preferred_element_type}
        kind |= {"_dot_general": _dot_general}
        return under_auto_axes(einsum, (subscripts, *operands), kind, sharding, out_sharding)
    out = _einsum(arrays, contractions, precision, preferred_element_type, dot_general, sharding)
    return with_out_sharding(out, out_sharding, "einsum")


def einsum_path(
    subscripts: Any, /, *operands: Any, optimize: bool | str | list[tuple[int, ...]] = "auto"
) -> tuple[list[tuple[int, ...]], Any]:
    """The order in which `einsum` would contract its operands, and its cost; see opt_einsum.contract_path.

    Returns:
      (list of the positions of the operands to contract in each step; a report).

    >>> a, b, c = jnp.ones((50, 2)), jnp.ones((2, 50)), jnp.ones((50, 3))
    >>> jnp.einsum_path("ij,jk,kl->il", a, b, c)[0]
    [(1, 2), (0, 1)]
    """
    import opt_einsum  # slow to import, rarely needed

    count = len(operands) if isinstance(subscripts, str) else (len(operands) + 1) // 2
    return opt_einsum.contract_path(subscripts, *operands, optimize=_opt_einsum_optimize(optimize, count))


def _opt_einsum_optimize(optimize: Any, count: int) -> Any:
    """The `optimize` argument as opt_einsum takes it, for `count` operands."""
    if optimize is True:
        return "optimal"
    # False: the first two operands, each time.
    return [(0, 1)] * (count - 1) if optimize is False else optimize


def _plan(operands: tuple, optimize: Any) -> tuple[list[Any], tuple[Contraction, ...]]:
    """The arrays among the operands, and the contractions that lead to the result."""
    operands = tuple(map(unwrap, operands))
    if isinstance(operands[0], str):
        text, arrays = operands[0].replace(" ", ""), list(operands[1:])
    else:
        text, arrays = _text_of_numbers(operands)
    inputs, output = _parse(text, [shape_of(a) for a in arrays])
    if len(arrays) > 2:
        return _plan_many(inputs, output, arrays, optimize)
    _check_sizes(inputs, arrays)
    summed = frozenset("".join(inputs)) - frozenset(output)
    # The order in which opt_einsum names the operands of a step: the last one first.
    names = ",".join(reversed(inputs))
    return arrays, ((tuple(reversed(range(len(arrays)))), summed, f"{names}->{output}"),)


def _plan_many(inputs, output, arrays, optimize):
    text = f"{','.join(inputs)}->{output}"
    optimize = _opt_einsum_optimize(optimize, len(arrays))
    _, steps = path_of_any_sizes(text, *arrays, einsum_call=True, use_blas=True, optimize=optimize)
    return arrays, tuple((positions, frozenset(summed), step) for positions, summed, step, *_ in steps)


def path_of_any_sizes(text: str, *arrays: Any, **options: Any) -> tuple[list[Any], Any]:
    """(arrays, opt_einsum's steps), where the arrays may have symbolic sizes. options: those of its contract_path."""
    import opt_einsum  # slow to import; two operands do without

    _, steps = opt_einsum.contract_path(text, *map(_with_numbers, arrays), **options)
    return list(arrays), steps


def _with_numbers(x: Any) -> Any:
    """x; for symbolic sizes, a value with numbers as sizes, for which opt_einsum compares costs."""
    shape = shape_of(x)
    if not any(isinstance(d, DimExpr) for d in shape):
        return x
    return np.broadcast_to(np.int8(0), [_USUAL_SIZE if isinstance(d, DimExpr) else d for d in shape])


def _text_of_numbers(operands: tuple) -> tuple[str, list[Any]]:
    """`a, (0, 1), b, (1, 2), (0, 2)` as `"ij,jk->ik", [a, b]`."""
    arrays, lists = list(operands[0:-1:2]), list(operands[1::2])
    result = operands[-1] if len(operands) % 2 else None
    names = sorted({n for axes in (*lists, result or ()) for n in _names(axes)}, key=str)
    try:
        names.sort()
    except TypeError:
        pass
    letters = dict(zip(names, string.ascii_letters, strict=False))
    if len(letters) < len(names):
        raise ValueError(f"einsum supports at most {len(string.ascii_letters)} different axis labels, got {len(names)}")

    def write(axes):
        return "".join("..." if n is Ellipsis else letters[n] for n in axes)

    text = ",".join(map(write, lists))
    return (text if result is None else f"{text}->{write(result)}"), arrays


def _names(axes: Any) -> list[Any]:
    return [n for n in axes if n is not Ellipsis] if isinstance(axes, (tuple, list, range)) else []


def _parse(text: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[str], str]:
    """Names of the axes of each operand and of the result, without ellipses."""
    left, arrow, output = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(shapes):
        raise ValueError(
            f"Number of einsum subscripts must be equal to the number of operands: {text!r} names "
            f"{len(inputs)}, "
            f"got {len(shapes)}."
        )
    bad = [c for c in text.replace("->", "").replace("...", "") if c in ".->"]
    if bad:
        raise ValueError(f"Character {bad[0]!r} is not a valid einsum subscript in {text!r}.")
    unused = [c for c in string.ascii_letters if c not in text]
    depth = max(
        (len(s) - len(i.replace("...", "")) for i, s in zip(inputs, shapes, strict=True) if "..." in i),
        default=0,
    )
    dots = "".join(unused[:depth])
    full = []
    for names, shape in zip(inputs, shapes, strict=True):
        if "..." in names:
            count = len(shape) - len(names.replace("...", ""))
            if count < 0:
                raise ValueError(f"Ellipses lengths do not match: {names!r} for an operand of shape {shape}.")
            names = names.replace("...", dots[depth - count :])
        if len(names) != len(shape):
            raise ValueError(
                f"Einstein sum subscript {names!r} does not contain the correct number of indices for an "
                "operand of "
                f"shape {shape}."
            )
        full.append(names)
    if arrow:
        output = output.replace("...", dots)
    else:
        counts = Counter("".join(inputs).replace("...", ""))
        output = dots + "".join(sorted(n for n, c in counts.items() if c == 1))
    for name in output:
        if output.count(name) > 1:
            raise ValueError(f"Output character {name!r} appeared more than once in {text!r}.")
        if not any(name in names for names in full):
            raise ValueError(f"Output character {name!r} did not appear in the input of {text!r}.")
    return full, output


def _check_sizes(inputs: Sequence[str], arrays: Sequence[Any]) -> None:
    sizes: dict[str, int] = {}
    for position, (names, array) in enumerate(zip(inputs, arrays, strict=True)):
        for name, size in zip(names, shape_of(array), strict=True):
            known = sizes.setdefault(name, size)
            if size != known and 1 not in (size, known):
                raise ValueError(
                    f"Size of label {name!r} for operand {position} ({size}) does not match previous terms ({known})."
                )
            sizes[name] = max(size, known) if 0 not in (size, known) else min(size, known)


# -- carrying out a plan
# ----------------------------------------------------------------------------------------------


def contract(
    operands, contractions, precision, preferred_element_type, dot_general=lax.dot_general, sharding=None
):  # fmt: skip
    """Carry out contractions; operands are consumed, each result is appended. sharding: of the only one's result."""
    dtype, weak_type = result_type("einsum", preferred_element_type, *operands)
    operands = list(operands)
    for positions, summed, text in contractions:
        names, result = text.split("->")
        taken = [_Named(operands.pop(p), n) for p, n in zip(positions, names.split(","), strict=True)]
        names_summed = sorted(summed)
        if len(taken) == 1:
            out = _contract_one(taken[0], names_summed, result, dtype)
        elif len(taken) == 2:
            out = _contract_two(*taken, names_summed, result, dtype, precision, dot_general, sharding)
        else:
            raise NotImplementedError(
                "jax.numpy.einsum does not support simultaneous contraction of 3 or more operands. "
                "Typically this "
                "means you've passed an unsupported path to the einsum optimize parameter."
            )
        if out.names != result:
            out.array = lax.transpose(out.array, tuple(map(out.names.index, result)))
        operands.append(out.array)
    return convert(operands[0], dtype, weak_type)


_einsum = jit(contract, static_argnums=(1, 2, 3, 4, 5), inline=True)


class _Named:
    """An array and the names of its axes, one letter each."""

    def __init__(self, array: Any, names: str):
        self.array = array
        self.names = names

    def sum(self, axes: Sequence[int], dtype: Any) -> None:
        x = self.array
        if dtypes.result_type(x, dtype) != x.dtype:
            x = x.astype(dtype)
        combine = lax.bitwise_or if x.dtype == np.bool_ else lax.add
        self.array = lax.reduce(x, np.array(0, x.dtype), combine, axes)

    def sum_over(self, names: Sequence[str], dtype: Any) -> None:
        """Sum over axes whose names occur once."""
        if names:
            self.sum([self.names.index(n) for n in names], dtype)
            self.names = "".join(n for n in self.names if n not in names)

    def take_diagonals(self, counts: Counter, kept: str, dtype: Any) -> None:
        """Make each name occur once, by taking diagonals; names not among `kept` are summed over as well."""
        for name, count in counts.items():
            if count == 1:
                continue
            axes = [i for i, n in enumerate(self.names) if n == name]
            diagonal = _diagonal_mask(self.array.shape, axes)
            self.array = lax.select(diagonal, self.array, lax.full_like(self.array, 0))
            if name in kept:
                self.sum(axes[:-1], dtype)
                self.names = self.names.replace(name, "", count - 1)
            else:
                self.sum(axes, dtype)
                self.names = self.names.replace(name, "")

    def drop_broadcast_axes(self, other: _Named) -> None:
        """Drop axes of size 1 that have another size in `other`."""
        keep = [
            size != 1 or name not in other.names or other.array.shape[other.names.find(name)] == 1
            for name, size in zip(self.names, self.array.shape, strict=True)
        ]
        self.array = lax.squeeze(self.array, [i for i, k in enumerate(keep) if not k])
        self.names = "".join(n for n, k in zip(self.names, keep, strict=True) if k)


def _diagonal_mask(shape: Sequence[int], axes: Sequence[int]) -> Any:
    """bool array of `shape`, true where the positions along all `axes` agree."""
    sizes = tuple(shape[a] for a in axes)
    positions = [lax.broadcasted_iota(np.dtype(np.uint32), sizes, i) for i in range(len(axes))]
    mask = lax.eq(positions[0], positions[1])
    for a, b in zip(positions[1:], positions[2:], strict=False):
        mask = lax.bitwise_and(mask, lax.eq(a, b))
    return mask if len(axes) == len(shape) else lax.broadcast_in_dim(mask, shape, axes)


def _contract_one(x: _Named, summed: Sequence[str], result: str, dtype: Any) -> _Named:
    counts = Counter(x.names)
    x.sum_over([n for n in summed if counts[n] == 1], dtype)
    x.take_diagonals(counts, result, dtype)
    return x


def _contract_two(x, y, summed, result, dtype, precision, dot_general, sharding) -> _Named:
    x.drop_broadcast_axes(y)
    y.drop_broadcast_axes(x)
    x_counts, y_counts = Counter(x.names), Counter(y.names)
    x.sum_over([n for n in summed if x_counts[n] == 1 and y_counts[n] == 0], dtype)
    y.sum_over([n for n in summed if y_counts[n] == 1 and x_counts[n] == 0], dtype)
    x.take_diagonals(x_counts, result + y.names, dtype)
    y.take_diagonals(y_counts, result + x.names, dtype)

    summed = [n for n in summed if n in x.names or n in y.names]
    batch = [n for n in result if n in x.names and n in y.names]
    gone = {*batch, *summed}
    x_free = "".join(n for n in x.names if n not in gone)
    y_free = "".join(n for n in y.names if n not in gone)
    # dot_general gives the free axes of its first operand before those of its second: take them in the order
    # that needs no transpose, if there is one.
    names = "".join(batch) + y_free + x_free
    if names == result:
        x, y = y, x
    else:
        names = "".join(batch) + x_free + y_free
    numbers = (
        ([x.names.index(n) for n in summed], [y.names.index(n) for n in summed]),
        ([x.names.index(n) for n in batch], [y.names.index(n) for n in batch]),
    )
    asked = {}
    if sharding is not None:
        parts = sharding.spec.padded(len(result))
        spec = sharding.spec.update([parts[result.index(n)] for n in names])
        asked["out_sharding"] = sharding.update(spec=spec)
    return _Named(dot_general(x.array, y.array, numbers, precision, preferred_element_type=dtype, **asked), names)
