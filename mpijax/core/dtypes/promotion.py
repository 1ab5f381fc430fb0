"""The type promotion lattice: the dtype to which operands of an operation are converted.

A node is a `numpy.dtype`, or one of the Python types int, float, complex for weakly typed values: ``x + 1`` keeps the
dtype of ``x``. ``a`` is below ``b`` if combining an ``a`` with a ``b`` converts the ``a`` to ``b``. Operands are
converted to their join, the lowest node above them all. This is JAX's documented type promotion:


    bool - int* +- uint8 -- uint16 -- uint32 -- uint64 -+ float* +- bfloat16 -+ float32 -- float64 ----+
                |     \\         \\         \\              |        +- float16 --+     \\                 \\
                +- int8 - int16 --- int32 --- int64 -----+        +- complex* -------- complex64 - complex128

The narrow types (4-, 6-, 8-bit floats, 1-, 2-, 4-bit integers) are above their weak type and below nothing, so they
never widen implicitly. With 64-bit types off, ``uint32`` with a signed integer gives ``int32``.
"""

import functools
import itertools

import ml_dtypes
import numpy as np

Node = np.dtype | type

_FLOAT4 = ("float4_e2m1fn",)
_FLOAT6 = ("float6_e2m3fn", "float6_e3m2fn")
_FLOAT8 = (
    "float8_e3m4",
    "float8_e4m3",
    "float8_e8m0fnu",
    "float8_e4m3b11fnuz",
    "float8_e4m3fn",
    "float8_e4m3fnuz",
    "float8_e5m2",
    "float8_e5m2fnuz",
)


def _dtypes(*names: str) -> tuple[np.dtype, ...]:
    return tuple(np.dtype(getattr(ml_dtypes, name, name)) for name in names)


FLOAT4, FLOAT6, FLOAT8 = _dtypes(*_FLOAT4), _dtypes(*_FLOAT6), _dtypes(*_FLOAT8)
_BITS = ("1", "2", "4")
NARROW_SIGNED = _dtypes(*(f"int{bits}" for bits in _BITS))
NARROW_UNSIGNED = _dtypes(*(f"uint{bits}" for bits in _BITS))
NARROW_INT = NARROW_SIGNED + NARROW_UNSIGNED
NARROW_FLOAT = FLOAT4 + FLOAT6 + FLOAT8
CUSTOM_FLOAT = (*NARROW_FLOAT, *_dtypes("bfloat16"))

BOOL = _dtypes("bool")
SIGNED = NARROW_SIGNED + _dtypes("int8", "int16", "int32", "int64")
UNSIGNED = NARROW_UNSIGNED + _dtypes("uint8", "uint16", "uint32", "uint64")
FLOAT = CUSTOM_FLOAT + _dtypes("float16", "float32", "float64")
COMPLEX = _dtypes("complex64", "complex128")
STRONG = BOOL + SIGNED + UNSIGNED + FLOAT + COMPLEX
WEAK = (int, float, complex)


class TypePromotionError(ValueError):
    """No dtype is above the dtypes of all operands."""


def _node(name: str) -> Node:
    return {"int*": int, "float*": float, "complex*": complex}.get(name) or np.dtype(
        getattr(ml_dtypes, name, name)
    )


# Ascending chains. A node may be in several.
_STANDARD = (
    "bool int* uint8 uint16 uint32 uint64 float* bfloat16 float32 float64 complex128",
    "int* int8 int16 int32 int64 float* float16 float32 complex64 complex128",
    "float* complex* complex64",
    "uint8 int16",
    "uint16 int32",
    "uint32 int64",
)


def _standard_steps(x64: bool) -> dict[Node, set[Node]]:
    """Node -> the nodes directly above it."""
    steps: dict[Node, set[Node]] = {node: set() for node in STRONG + WEAK}
    for chain in _STANDARD if x64 else (*_STANDARD, "uint32 int32"):
        nodes = [_node(name) for name in chain.split()]
        for below, above in itertools.pairwise(nodes):
            steps[below].add(above)
    if not x64:
        steps[_node("uint32")].discard(_node("int64"))
    steps[int].update(NARROW_INT)
    steps[float].update(NARROW_FLOAT)
    return steps


def _strict_steps() -> dict[Node, set[Node]]:
    """Only weak values are converted, and bool is not a number."""
    steps: dict[Node, set[Node]] = {node: set() for node in STRONG + WEAK}
    steps[int].update(SIGNED, UNSIGNED, [float])
    steps[float].update(FLOAT, [complex])
    steps[complex].update(COMPLEX)
    return steps


@functools.cache
def _above(strict: bool, x64: bool) -> dict[Node, frozenset[Node]]:
    """Node -> itself and all nodes above it."""
    steps = _strict_steps() if strict else _standard_steps(x64)
    above: dict[Node, frozenset[Node]] = {}

    def climb(node: Node) -> frozenset[Node]:
        if node not in above:
            above[node] = frozenset([node]).union(*map(climb, steps[node]))
        return above[node]

    for node in steps:
        climb(node)
    return above


@functools.cache
def join(strict: bool, x64: bool, *nodes: Node) -> Node:
    """The lowest node above all of `nodes`.

    Args:
        strict: ``jax_numpy_dtype_promotion`` is "strict".
        x64: ``jax_enable_x64``.

    Raises:
        TypePromotionError: there is no such node.
        ValueError: a node is not a valid dtype of arrays.
    """
    above = _above(strict, x64)
    for node in nodes:
        if node not in above:
            raise ValueError(f"dtype={node} is not a valid dtype for JAX type promotion.")
    common = frozenset.intersection(*(above[node] for node in nodes))
    for candidate in common:
        if common <= above[candidate]:
            return candidate
    raise TypePromotionError(_no_path(strict, nodes))


def _no_path(strict: bool, nodes: tuple[Node, ...]) -> str:
    given = tuple(str(node) for node in dict.fromkeys(nodes))
    text = f"Input dtypes {given} have no available implicit dtype promotion path"
    if strict:
        return (
            f"{text} when jax_numpy_dtype_promotion=strict. Try explicitly casting inputs to the desired "
            "output type, or set jax_numpy_dtype_promotion=standard."
        )
    for group, kind, target in (
        (FLOAT8, "8-bit floats", "float32"),
        (FLOAT6, "6-bit floats", "float32"),
        (FLOAT4, "4-bit floats", "float32"),
        (NARROW_INT, "1-bit, 2-bit and 4-bit integers", "int32"),
    ):
        if any(node in group for node in nodes if isinstance(node, np.dtype)):
            return (
                f"{text}. To avoid unintended promotion, {kind} do not support implicit promotion. If you'd "
                "like your inputs to be promoted to another type, you can do so explicitly using e.g. "
                f"x.astype('{target}')"
            )
    return f"{text}. Try explicitly casting inputs to the desired output type."
