"""Shape-polymorphic programs: symbolic dimensions, their values in a call, and the specialized program."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from mpijax.core.base.errors import InconclusiveDimensionOperation
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, bound, eval_jaxpr, nested_jaxprs
from mpijax.core.rules.lowering import InlineJaxpr, Partitioned
from mpijax.core.shapes.dimensions import DimExpr, bounds, evaluate
from mpijax.core.shapes.scope import SymbolicScope, symbolic_shape
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.trees import tree
from mpijax.core.types.avals import ShapedArray, ShapeDtypeStruct
from mpijax.core.types.typeof import typeof
from mpijax.spmd.shard_map_rules import inside
from mpijax.transforms.call import call_jaxpr

_PAGE = "https://docs.jax.dev/en/latest/export/shape_poly.html"


def symbolic_dim_bounds(dim: Any) -> tuple[float, float]:
    """A lower and an upper bound of a dimension; infinite if none is known.

    They follow from the constraints of its scope, and need not be tight. The bounds of a number are the number itself.

    >>> from mpijax import export
    >>> (b,) = export.symbolic_shape("b", constraints=("b <= 8",))
    >>> export.symbolic_dim_bounds(2 * b + 1)
    (3, 17)
    """
    return bounds(dim)


def symbolic_args_specs(
    args: Any, shapes_specs: Any, constraints: Sequence[str] = (), scope: SymbolicScope | None = None
) -> Any:
    """`ShapeDtypeStruct`s like `args`, with symbolic dimensions, as arguments for export.

    Args:
      args: a pytree of arrays or `ShapeDtypeStruct`s. Its sizes replace placeholders in shapes.
      shapes_specs: shapes in the syntax of `symbolic_shape`, as a prefix of `args`: one text, or None, applies to all
        leaves below.
      constraints, scope: see `symbolic_shape`.

    Raises ValueError for shapes that do not match, and if both `constraints` and `scope` are given.

    >>> mpijax.export.symbolic_args_specs((np.zeros((8, 3), np.float32),), "batch, ...")
    (ShapeDtypeStruct(shape=(batch, 3), dtype=float32),)
    """
    if scope is None:
        scope = SymbolicScope(constraints)
    elif constraints:
        raise ValueError("Cannot use both `scope` and `constraints`")
    if isinstance(args, tuple) and isinstance(shapes_specs, list):
        shapes_specs = tuple(shapes_specs)
    leaves, structure = tree.tree_flatten(args)
    texts = tree.broadcast_prefix(shapes_specs, args, is_leaf=lambda x: x is None)
    types = [x if isinstance(x, ShapeDtypeStruct) else typeof(x) for x in leaves]
    return tree.tree_unflatten(
        structure,
        [
            ShapeDtypeStruct(symbolic_shape(text, like=t.shape, scope=scope), t.dtype)
            for text, t in zip(texts, types, strict=True)
        ],
    )


def has_names(avals: Sequence[ShapedArray]) -> bool:
    """Whether these types have symbolic dimensions."""
    return any(isinstance(d, DimExpr) for a in avals for d in a.shape)


# ---------------------------------------------------------------- the sizes of a call


def solve(expected: Sequence[ShapedArray], given: Sequence[ShapedArray], name_of: Callable[[int], str]) -> dict:
    """The values of symbolic dimensions for which the given argument types match the expected ones.

    name_of: the name of an argument in messages.

    Raises ValueError if there are none, or if equations in one unknown at a time do not determine them.
    """
    todo = [
        (wanted, size, f"{name_of(i)}.shape[{axis}]")
        for i, (e, g) in enumerate(zip(expected, given, strict=True))
        for axis, (wanted, size) in enumerate(zip(e.shape, g.shape, strict=True))
        if isinstance(wanted, DimExpr)
    ]
    sizes: dict[str, Any] = {}
    found_from: list[str] = []

    def refuse(what: str) -> ValueError:
        obtained = "".join(f"{text}, " for text in found_from)
        return ValueError(
            f"Input shapes do not match the polymorphic shapes specification. {what}{_used(expected, name_of)} "
            f"Obtained dimension variables: {obtained}. Please see {_PAGE}#shape-assertion-errors for more details."
        )

    while todo:
        left = []
        for entry in todo:
            wanted, size, place = entry
            if wanted.variables() <= sizes.keys():
                if wanted.evaluate(sizes) != size:
                    raise refuse(
                        f"Found inconsistency between dimension size {place} (= {size}) and the specification "
                        f"'{wanted}' (= {wanted.evaluate(sizes)})."
                    )
                continue
            unknown = _unknown(wanted, sizes)
            if unknown is None:
                left.append(entry)
                continue
            (name, factor), rest = unknown
            value, remainder = divmod(size - rest, factor)
            if remainder != 0:
                raise refuse(f"Division had remainder {remainder} when computing the value of '{name}'.")
            sizes[name] = value
            found_from.append(f"'{name}' = {value} from specification '{wanted}' for dimension {place} (= {size})")
            if not _surely_positive(value):
                raise refuse(f"Expected value >= 1 for dimension variable '{name}'.")
        if len(left) == len(todo):
            break
        todo = left
    if todo:
        raise ValueError(_unsolvable([(wanted, place) for wanted, _, place in todo], sizes.keys(), expected, name_of))
    _check_constraints(expected, sizes, refuse)
    return sizes


def _surely_positive(size: Any) -> bool:
    try:
        return size >= 1
    except InconclusiveDimensionOperation:
        return False


def _unknown(wanted: DimExpr, sizes: Mapping[str, Any]) -> tuple[tuple[str, int], Any] | None:
    """The only unknown name with its factor, and the rest; None unless the name occurs alone in a term."""
    unknown, rest = None, 0
    for term, k in wanted.terms:
        part = DimExpr(((term, k),), wanted.scope) if term else k
        if not isinstance(part, DimExpr) or part.variables() <= sizes.keys():
            rest = rest + evaluate(part, sizes)
            continue
        factor, power = term[0]
        if unknown is not None or len(term) > 1 or power > 1 or factor.operands:
            return None
        unknown = factor.name, k
    return None if unknown is None else (unknown, rest)


def check_solvable(program: ClosedJaxpr, name_of: Callable[[int], str]) -> None:
    """Raise ValueError for a program whose argument types can never determine all symbolic dimensions."""
    expected = program.in_avals
    todo = [
        (d, f"{name_of(i)}.shape[{axis}]")
        for i, a in enumerate(expected)
        for axis, d in enumerate(a.shape)
        if isinstance(d, DimExpr)
    ]
    known: dict[str, Any] = {}
    while todo:
        entry = next((e for e in todo if e[0].variables() <= known.keys() or _unknown(e[0], known)), None)
        if entry is None:
            raise ValueError(_unsolvable(todo, known.keys(), expected, name_of))
        todo.remove(entry)
        known.update(dict.fromkeys(entry[0].variables() - known.keys(), 1))
    scope = _scope_of(expected)
    if scope is not None:
        known = scope.completed(known)
        for given in scope.constraints:
            _check_known(
                given.difference, known, f"the constraint {given.text} of their scope cannot be checked. Leave it out"
            )
    for inner in nested_jaxprs(program):
        for v in (v for eqn in inner.eqns for v in eqn.outvars if has_names([v.aval])):
            for size in v.aval.shape:
                if isinstance(size, DimExpr):
                    _check_known(
                        size, known, f"the size of a value of type {v.aval.str_short(True)} is unknown. Pass a number"
                    )


def _check_known(size: DimExpr, known: Mapping[str, Any], what: str) -> None:
    for name in size.variables() - known.keys():
        raise ValueError(
            f"Encountered dimension variable '{name}' that is not appearing in the shapes of the function arguments: "
            f"{what}, or use the name for an axis of an argument."
        )


def check_one_scope(args: tuple, kwargs: dict[str, Any], name: str) -> None:
    """Raise ValueError if argument dimensions of the exported function `name` are of several scopes."""
    found = [
        (side + tree.keystr(path), d)
        for side, part in (("args", args), ("kwargs", kwargs))
        for path, leaf in tree.tree_leaves_with_path(part)
        for d in getattr(leaf, "shape", ())
        if isinstance(d, DimExpr)
    ]
    for where, size in found[1:]:
        first, known = found[0]
        known.scope.check_same(size, f"when exporting {name}", f"current (from {first}) ", where)


def _unsolvable(todo: Sequence[tuple[DimExpr, str]], known, expected: Sequence[ShapedArray], name_of: Callable) -> str:
    names = set().union(*(wanted.variables() for wanted, _ in todo)) - set(known)
    listed = ", ".join(f"'{wanted}' for dimension size {place}" for wanted, place in todo)
    return (
        f"Cannot solve for values of dimension variables {names}. We can only solve linear uni-variate constraints."
        f"{_used(expected, name_of)} Unprocessed specifications: {listed}. Please see "
        f"{_PAGE}#dimension-variables-must-be-solvable-from-the-input-shapes for more details."
    )


def _used(expected: Sequence[ShapedArray], name_of: Callable[[int], str]) -> str:
    """The symbolic shapes of arguments, as a sentence to append to a message."""
    shapes = ",".join(f"{name_of(i)}.shape = {e.shape}" for i, e in enumerate(expected) if has_names([e]))
    return f" Using the following polymorphic shapes specifications: {shapes}."


def _scope_of(types: Sequence[ShapedArray]) -> SymbolicScope | None:
    return next((d.scope for a in types for d in a.shape if isinstance(d, DimExpr)), None)


def _check_constraints(expected: Sequence[ShapedArray], sizes: Mapping[str, Any], refuse: Callable) -> None:
    scope = _scope_of(expected)
    found = None if scope is None else scope.broken(sizes)
    if found is not None:
        broken, value = found
        raise refuse(
            f"Input shapes do not match the symbolic shape constraint {broken.text}. Expected '{broken.difference}' to "
            f"be {'equal' if broken.equal else 'greater or equal'} to 0, but found {value}."
        )


# ---------------------------------------------------------------- the program for them


def specialized(closed: ClosedJaxpr, sizes: Mapping[str, Any]) -> ClosedJaxpr:
    """A program with sizes in place of symbolic dimensions. Functions with custom derivatives become calls."""
    return _Specializer(sizes).closed(closed)


class _Specializer:
    def __init__(self, sizes: Mapping[str, Any]):
        self.sizes = sizes
        self.done: dict[int, tuple[Any, Any]] = {}

    def closed(self, given: ClosedJaxpr) -> ClosedJaxpr:
        def fun(*args):
            return eval_jaxpr(given.jaxpr, given.consts, *args, apply=self.bound)

        return trace_to_closed_jaxpr(fun, [self.aval(a) for a in given.in_avals])

    def aval(self, of: ShapedArray) -> ShapedArray:
        return of.update(shape=tuple(evaluate(d, self.sizes) for d in of.shape)) if has_names([of]) else of

    def bound(self, eqn: Eqn, values: Sequence[Any]) -> Sequence[Any]:
        lower = eqn.primitive.lower
        if type(lower) is InlineJaxpr and eqn.primitive.name != "jit":
            closed = self.value(eqn.params[lower.param])
            return call_jaxpr(closed, values, name=str(eqn.params.get("name") or eqn.primitive.name))
        with inside(eqn.params) if isinstance(lower, Partitioned) else nullcontext():
            params = {k: self.value(v) for k, v in eqn.params.items()}
        return bound(eqn.replace(params=params), values)

    def value(self, x: Any) -> Any:
        """A specialized parameter; unchanged if it contains no symbolic dimension."""
        if isinstance(x, DimExpr):
            return x.evaluate(self.sizes)
        if isinstance(x, ShapedArray):
            return self.aval(x)
        if isinstance(x, (ClosedJaxpr, Jaxpr)):
            return self.program(x)
        if isinstance(x, (tuple, list)):
            parts = [self.value(v) for v in x]
            if all(a is b for a, b in zip(parts, x, strict=True)):
                return x
            return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
        if isinstance(x, dict):
            return {k: self.value(v) for k, v in x.items()}
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            fields = {f.name: self.value(getattr(x, f.name)) for f in dataclasses.fields(x) if f.init}
            same = all(v is getattr(x, name) for name, v in fields.items())
            return x if same else dataclasses.replace(x, **fields)
        return x

    def program(self, x: ClosedJaxpr | Jaxpr) -> ClosedJaxpr | Jaxpr:
        known = self.done.get(id(x))
        if known is None:
            closed = self.closed(x if isinstance(x, ClosedJaxpr) else ClosedJaxpr(x))
            known = self.done[id(x)] = x, closed if isinstance(x, ClosedJaxpr) else closed.jaxpr
        return known[1]
