"""Defines `SymbolicScope`: the names of symbolic dimensions and their constraints; also the parser of dimensions."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

from mpijax.core.shapes.bounds import Fact, fact, is_satisfiable
from mpijax.core.shapes.dimensions import (
    OPERATIONS,
    DimExpr,
    DimOperation,
    Term,
    evaluate,
    operation,
    product,
    term_text,
    variable,
)


class Constraint(NamedTuple):
    """States that `difference` is 0, or at least 0."""

    text: str
    difference: Any
    equal: bool


class SymbolicScope:
    """Names of symbolic dimensions with shared constraints: ``a >= b``, ``a <= 8``, ``mod(a, 2) == 0``.

    An equality rewrites its left side to its right side wherever it occurs.

    Raises:
      ValueError: for constraints that no sizes satisfy, or that are not comparisons of dimensions.

    >>> scope = mpijax.export.SymbolicScope(["a >= b", "mod(b, 2) == 0"])
    >>> a, b = mpijax.export.symbolic_shape("a, b", scope=scope)
    >>> a + 1 > b, b % 2
    (True, 0)
    """

    def __init__(self, constraints_str: Sequence[str] = ()):
        if isinstance(constraints_str, str):
            raise ValueError(f"The symbolic constraints should be a sequence of strings. Got {constraints_str!r}")
        self.constraints: list[Constraint] = []
        self.facts: list[Fact] = []
        # For each dimension: two bounds, and whether they are the best that can be found.
        self.known_bounds: dict[DimExpr, tuple[float, float, bool]] = {}
        self._rules: dict[Term, tuple[int, Any]] = {}
        self.texts = tuple(constraints_str)
        for text in constraints_str:
            self._constrain(text)

    def _constrain(self, text: str) -> None:
        if not isinstance(text, str):
            raise ValueError(f"SymbolicScope constraint must be a string: got {text!r}")
        sign = next((s for s in ("==", ">=", "<=") if s in text), None)
        if sign is None:
            raise ValueError(f"Constraint parsing error: must contain one of '==' or '>=' or '<=', got {text!r}")
        left, _, right = text.partition(sign)
        x, y = self.parse(left), self.parse(right)
        self._add(Constraint(text, y - x if sign == "<=" else x - y, sign == "=="), x, y)

    def _add(self, given: Constraint, x: Any, y: Any) -> None:
        self.facts.append(fact(given.difference, given.equal))
        constant = not isinstance(given.difference, DimExpr)
        broken = constant and (given.difference != 0 if given.equal else given.difference < 0)
        if broken or not (constant or is_satisfiable(self.facts, self)):
            raise ValueError(f"Unsatisfiable explicit constraint: {given.text}")
        if not constant:
            self.constraints.append(given)
            if given.equal:
                self._replace(x, y)
        self.known_bounds.clear()

    def _replace(self, x: Any, y: Any) -> None:
        """Rewrite x to y from now on."""
        if not isinstance(x, DimExpr) or len(x.terms) > 1:
            raise ValueError(
                f"Invalid equality constraint: {x} == {y}. The left-hand-side must be of the form `term * coefficient`."
            )
        ((term, k),) = x.terms
        if term in self._rules:
            raise NotImplementedError(
                f"Found multiple equality constraints with the same left-hand-side: {term_text(term)}"
            )
        self._rules[term] = k, y
        factor, power = term[0]
        is_mod = (k, y, len(term), power) == (1, 0, 1, 1) and factor.name == DimOperation.MOD
        if is_mod and type(factor.operands[1]) is int:
            # A dividend without remainder equals the quotient times the divisor.
            whole, part = factor.operands
            multiple = part * operation(DimOperation.FLOORDIV, whole, part, self)
            self._add(Constraint(f"{multiple} == {whole}", multiple - whole, True), multiple, whole)

    def rewritten(self, term: Term, k: int) -> Any:
        """The result of the scope's equalities for a term with a coefficient; None if none applies."""
        for of, (times, instead) in self._rules.items():
            rest = product(term, of, -1)
            if k % times == 0 and all(power > 0 for _, power in rest):
                found = instead * (k // times)
                return found * DimExpr(((rest, 1),), self) if rest else found
        return None

    def check_same(self, x: DimExpr, when: str, whose: str = "", where: str = "unknown") -> None:
        """Raise ValueError for a dimension of another scope. whose, where: what has this scope, and the dimension."""
        if x.scope is not self:
            raise ValueError(
                f"Invalid mixing of symbolic scopes {when}.\nExpected {whose}scope {self}\nand found for '{x}' "
                f"({where}) scope {x.scope}{x.scope.said_constraints()}\nUse one scope for all sizes of a call: "
                "export.symbolic_shape(..., scope=scope)."
            )

    def said_constraints(self) -> str:
        """The constraints as text, to append to a message."""
        lines = "".join(f"\n  {text}" for text in self.texts)
        return f"\nUsing symbolic scope with constraints:{lines}" if lines else ""

    def parse(self, text: str) -> Any:
        """The dimension that a text denotes. Raises ValueError for invalid text."""
        (found,) = _Parser(text, None, self).shape()
        return found

    def completed(self, sizes: Mapping[str, Any]) -> dict[str, Any]:
        """The sizes, with added sizes of the names that equalities rewrite."""
        found = dict(sizes)
        for ((factor, power), *rest), (k, instead) in reversed(self._rules.items()):
            known = not isinstance(instead, DimExpr) or instead.variables() <= found.keys()
            if known and power == 1 and not rest and not factor.operands:
                found.setdefault(factor.name, evaluate(instead, found) // k)
        return found

    def broken(self, sizes: Mapping[str, Any]) -> tuple[Constraint, Any] | None:
        """The first constraint that concrete sizes violate, and its difference; None if all hold."""
        found = self.completed(sizes)
        for given in self.constraints:
            value = evaluate(given.difference, found)
            if value != 0 if given.equal else value < 0:
                return given, value
        return None

    def __repr__(self) -> str:
        return f"SymbolicScope({list(self.texts)})"


def symbolic_shape(
    shape_spec: str | None,
    *,
    constraints: Sequence[str] = (),
    scope: SymbolicScope | None = None,
    like: Sequence[int | None] | None = None,
) -> tuple[Any, ...]:
    """A shape whose dimensions may be symbolic: ``"batch, 2*n + 1, 3"``.

    Args:
      shape_spec: dimensions separated by commas, optionally in parentheses. A dimension consists of integers, names,
        ``+ - *``, ``^`` with an exponent, ``floordiv(x, y)``, ``mod(x, y)``, ``max(x, y)``, ``min(x, y)``. ``_`` copies
        the dimension at this position of `like`; ``...`` at the end copies all remaining ones. None means ``"..."``.
      constraints: of a new scope; see `SymbolicScope`.
      scope: the scope of the names. Shapes that are used together need the same scope.
      like: the sizes that placeholders copy.

    Raises:
      ValueError: if `shape_spec` is not a shape, or if both `scope` and `constraints` are given.

    >>> mpijax.export.symbolic_shape("batch, 2*n + 1, 3")
    (batch, 2*n + 1, 3)
    >>> mpijax.export.symbolic_shape("b, ...", like=(8, 3))
    (b, 3)
    >>> type_ = mpijax.ShapeDtypeStruct(mpijax.export.symbolic_shape("batch, 2"), np.float32)
    >>> total = mpijax.export.export(mpijax.jit(lambda x: x.sum(0)))(type_)
    >>> total.call(jnp.ones((3, 2))), total.call(jnp.ones((5, 2)))
    (Array([3., 3.], dtype=float32), Array([5., 5.], dtype=float32))
    """
    if shape_spec is not None and not isinstance(shape_spec, str):
        raise ValueError(f"polymorphic shape spec should be None or a string. Found {shape_spec!r}.")
    if scope is None:
        scope = SymbolicScope(constraints)
    elif constraints:
        raise ValueError("Cannot specify both a `scope` and `constraints`.")
    return _Parser("..." if shape_spec is None else shape_spec, like, scope).shape()


# Exponents above this are rejected: expanding them takes memory, and no array has that many elements.
_HIGHEST_POWER = 64
_TOKEN = re.compile(r"\s*(?:(\d+(?:\.\d*)?)|([^\W\d]\w*)|(\.\.\.)|(\S))")


class _Parser:
    """Parses shapes: sums of products of factors."""

    def __init__(self, text: str, like: Sequence[int | None] | None, scope: SymbolicScope):
        self.text, self.like, self.scope = text, like, scope
        self.tokens = [(m.group().strip(), m.end() - len(m.group().strip())) for m in _TOKEN.finditer(text)]
        self.at = 0
        self.sizes: list[Any] = []

    @property
    def next(self) -> str:
        return self.tokens[self.at][0] if self.at < len(self.tokens) else ""

    def take(self, *expected: str) -> str:
        """Consumes and returns the next token; it must be one of `expected`, if any are given."""
        token = self.next
        if expected and token not in expected:
            named = " or ".join(repr(e) if e else "the end" for e in expected)
            self.refuse(f"expecting {named} but found {repr(token) if token else 'the end'}")
        self.at += 1
        return token

    def refuse(self, why: str) -> NoReturn:
        place = self.tokens[self.at][1] if self.at < len(self.tokens) else len(self.text)
        raise ValueError(
            f"syntax error in symbolic shape {self.text!r} in dimension {len(self.sizes)}: {why}. "
            f"Parsed '{self.text[:place]}', remaining '{self.text[place:]}'."
        )

    def shape(self) -> tuple[Any, ...]:
        depth = 0
        while self.next == "(":
            self.take()
            depth += 1
        while self.next not in ("", ")"):
            self.size()
            if self.next not in ("", ")"):
                self.take(",")
        for _ in range(depth):
            self.take(")")
        if self.next:
            self.refuse("expecting the end")
        return tuple(self.sizes)

    def size(self) -> None:
        if self.next not in ("_", "..."):
            found = self.sum()
            if type(found) is int and self.like is not None and self.like[len(self.sizes)] != found:
                self.refuse(f"different size {found} for known dimension; like={self.like}")
            self.sizes.append(found)
            return
        done = len(self.sizes)
        if self.like is None:
            self.refuse("spec contains ... but no 'like' shape was given")
        if len(self.like) < done + (self.next == "_"):
            self.refuse(
                f"cannot resolve placeholder '{self.next}' because we parsed {done} already and 'like' shape has only "
                f"{len(self.like)} dimensions"
            )
        given = self.like[done : done + 1] if self.next == "_" else self.like[done:]
        if None in given:
            self.refuse(f"unexpected placeholder for unknown dimension; like={self.like}")
        if self.take() == "..." and self.next not in ("", ")"):
            self.refuse("'...' must be the last entry")
        self.sizes += given

    def sum(self) -> Any:
        sign = self.take() if self.next in ("+", "-") else "+"
        found = self.product() if sign == "+" else -self.product()
        while self.next not in ("", ")", ","):
            plus = self.take("+", "-") == "+"
            found = found + self.product() if plus else found - self.product()
        return found

    def product(self) -> Any:
        found = self.power()
        while self.next == "*":
            self.take()
            found = found * self.power()
        return found

    def power(self) -> Any:
        found = self.factor()
        if self.next == "^":
            self.take()
            power = self.integer()
            if power > _HIGHEST_POWER:
                self.refuse(f"the power must be at most {_HIGHEST_POWER}")
            found = found**power
        return found

    def factor(self) -> Any:
        token = self.next
        if token == "-":
            self.take()
            return -self.integer()
        if token[:1].isdigit():
            return self.integer()
        if not token.isidentifier() or token == "_":
            self.refuse(f"expecting a name or an integer but found {repr(token) if token else 'the end'}")
        self.take()
        if token not in OPERATIONS and token != "non_negative" or self.next != "(":
            return variable(token, self.scope)
        self.take("(")
        x = self.sum()
        y = 0
        if token != "non_negative":
            self.take(",")
            y = self.sum()
        self.take(")")
        if token in (DimOperation.FLOORDIV, DimOperation.MOD) and (isinstance(x, DimExpr) or isinstance(y, DimExpr)):
            return operation(DimOperation(token), x, y, self.scope)
        apply: Callable = OPERATIONS.get(token, OPERATIONS[DimOperation.MAX])
        return apply(x, y)

    def integer(self) -> int:
        if not self.next.isdecimal():
            self.refuse(f"expecting an integer but found {self.next!r}")
        return int(self.take())
