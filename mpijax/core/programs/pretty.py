"""Prints Jaxprs as text, in JAX's format."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import numpy as np

from mpijax.core.base.any_depth import any_depth
from mpijax.core.base.source import NO_SCOPES
from mpijax.core.programs import text_layout as pp
from mpijax.core.programs.jaxpr import ClosedJaxpr, DropVar, Eqn, Jaxpr, Literal, Var, subjaxprs

# Inner Jaxprs with more equations than this are printed once, before the program.
_HOIST_ABOVE = 10


def _letters(n: int) -> str:
    """0 -> a, 25 -> z, 26 -> ba: the variable names, as digits in base 26."""
    digits = ""
    while True:
        digits = chr(ord("a") + n % 26) + digits
        n //= 26
        if n == 0:
            return digits


class Names:
    """Names of variables, assigned in the order of first printing; and what else to print.

    sources, scopes: whether to print the source line of each equation, and its `named_scope`s.
    types: whether to print the types of variables.
    """

    def __init__(self, dropped: set[Var], sources: bool = False, scopes: bool = False, types: bool = True):
        self.dropped = dropped
        self.sources, self.scopes, self.types = sources, scopes, types
        self.of: dict[Var, str] = {}
        self.given = 0
        self.shared: dict[int, str] = {}

    def name(self, var: Var) -> str:
        if type(var) is DropVar or var in self.dropped:
            return "_"
        found = self.of.get(var)
        if found is None:
            while True:
                found = _letters(self.given)
                self.given += 1
                if found not in self.shared.values():
                    break
            self.of[var] = found
        return found

    def borrow(self, inner: list, outer: list) -> None:
        """Give the variables of a called Jaxpr the names of the operands at the call."""
        lent: set[Var] = set()
        for a, b in zip(inner, outer, strict=True):
            fresh = isinstance(a, Var) and a not in self.of and a not in self.dropped
            if fresh and isinstance(b, Var) and b not in lent:
                lent.add(b)
                self.of[a] = self.name(b)


def _dead_vars(jaxpr: Jaxpr) -> set[Var]:
    """Variables that are set but never read. As in JAX, unread variables of nested Jaxprs get names."""
    dead: set[Var] = set()
    read = {v for v in jaxpr.outvars if isinstance(v, Var)}
    for eqn in reversed(jaxpr.eqns):
        dead.update(v for v in eqn.outvars if v not in read)
        read.update(v for v in eqn.invars if isinstance(v, Var))
    return dead


def atom_text(atom, names: Names) -> str:
    if isinstance(atom, Literal):
        return f"{np.asarray(atom.val).item()}:{atom.aval.str_short(True)}"
    return names.name(atom)


def _listed(texts, separator: str = "") -> pp.Doc:
    """Words separated by spaces, wrapped into lines."""
    return pp.nest(2, pp.group(pp.join(pp.text(separator) + pp.group(pp.brk()), map(pp.text, texts))))


def _binders(variables, names: Names) -> pp.Doc:
    return _listed(names.name(v) + (f":{v.aval.str_short(True)}" if names.types else "") for v in variables)


def _atoms(atoms, names: Names, separator: str = "") -> pp.Doc:
    return _listed((atom_text(v, names) for v in atoms), separator)


def _without_constants(program: Jaxpr | ClosedJaxpr) -> Jaxpr:
    return program.jaxpr if isinstance(program, ClosedJaxpr) else program


def _param(key: str, value: Any, names: Names) -> pp.Doc:
    if isinstance(value, (Jaxpr, ClosedJaxpr)):
        return pp.text(f"{key}=") + _jaxpr_doc(_without_constants(value), names)
    if isinstance(value, (tuple, list)) and value and all(isinstance(v, (Jaxpr, ClosedJaxpr)) for v in value):
        body = pp.join(pp.brk(), [_jaxpr_doc(_without_constants(v), names) for v in value])
        listed = pp.nest(2, pp.text("(") + pp.brk("") + body) + pp.brk("") + pp.text(")")
        return pp.text(f"{key}=") + pp.group(listed)
    return pp.text(f"{key}={param_text(value)}")


def param_text(value: Any) -> str:
    """A parameter's value as JAX prints it: dtypes and functions by name."""
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, type) and issubclass(value, np.generic):
        return np.dtype(value).name
    if callable(value) and hasattr(value, "__name__"):
        return value.__name__
    if isinstance(value, frozenset):
        return f"frozenset({{{', '.join(repr(v) for v in sorted(value))}}})"
    return str(value)


def _params(params: list[tuple[str, Any]], names: Names) -> pp.Doc:
    if not params:
        return pp.text("")
    docs = [_param(k, v, names) for k, v in params]
    return pp.group(
        pp.concat([pp.nest(2, pp.text("[") + pp.brk("") + pp.join(pp.brk(), docs)), pp.brk(""), pp.text("]")])
    )


def _eqn_doc(eqn: Eqn, names: Names) -> pp.Doc:
    rule = eqn.primitive.pretty
    params = sorted(eqn.params.items()) if rule is None else rule(eqn, names)
    line = str(eqn.source.in_scope(NO_SCOPES)) if names.sources else ""
    scope = f"[{eqn.source.name_stack}]" if names.scopes else ""
    head = [_binders(eqn.outvars, names), pp.text(" = ", line)] if eqn.outvars else []
    called = [pp.text(eqn.primitive.name, scope), _params(params, names), pp.text(" "), _atoms(eqn.invars, names)]
    return pp.concat(head + called)


@any_depth
def _skeleton(jaxpr: Jaxpr, names: Names) -> pp.Doc:
    consts = _binders(jaxpr.constvars, names)
    invars = _binders(jaxpr.invars, names)
    eqns = pp.join(pp.brk("; "), [_eqn_doc(e, names) for e in jaxpr.eqns])
    closing = ")" if len(jaxpr.outvars) != 1 else ",)"
    outs = pp.concat([pp.text("("), _atoms(jaxpr.outvars, names, ","), pp.text(closing)])
    body = pp.concat(
        [
            pp.text("{ lambda "), consts, pp.text("; "), invars, pp.text(". let"),
            pp.nest(2, pp.brk() + eqns), pp.brk(), pp.text("in "), outs,
        ]
    )  # fmt: skip
    return pp.group(pp.nest(2, body) + pp.text(" }"))


def _jaxpr_doc(jaxpr: Jaxpr, names: Names) -> pp.Doc:
    shared = names.shared.get(id(jaxpr))
    return pp.text(shared) if shared else _skeleton(jaxpr, names)


def _shared_jaxprs(top: Jaxpr) -> list[tuple[str, Jaxpr]]:
    """The Jaxprs printed by name: long ones, and those used more than once."""
    uses: Counter[int] = Counter()
    titles: dict[int, str] = {}
    by_id: dict[int, Jaxpr] = {}
    queue = deque([top])
    while queue:
        jaxpr = queue.popleft()
        by_id.setdefault(id(jaxpr), jaxpr)
        uses[id(jaxpr)] += 1
        if jaxpr is not top and len(jaxpr.eqns) > _HOIST_ABOVE:
            uses[id(jaxpr)] += 1
        for eqn in jaxpr.eqns:
            # JAX names calls of custom derivatives, but not the Jaxprs they call.
            title = None if "call_jaxpr" in eqn.params else eqn.params.get("name")
            for sub in subjaxprs(eqn.params):
                queue.append(sub)
                if title is not None:
                    titles.setdefault(id(sub), str(title).strip("<>"))
    taken: Counter[str] = Counter()
    shared = []
    for key, count in uses.items():
        if count == 1:
            continue
        title = titles.get(key, "jaxpr")
        clash = taken[title]
        taken[title] += 1
        if clash:
            title = f"{title}{clash}"
            taken[title] += 1
        shared.append((title, by_id[key]))
    return shared


def jaxpr_text(
    jaxpr: Jaxpr, *, width: int = 80, source_info: bool = False, name_stack: bool = False, print_shapes: bool = True,
    **_options,
) -> str:  # fmt: skip
    """The whole program as text. source_info, name_stack, print_shapes: see `Names`."""
    names = Names(_dead_vars(jaxpr), source_info, name_stack, print_shapes)
    shared = _shared_jaxprs(jaxpr)
    names.shared = {id(sub): title for title, sub in shared}
    docs = [
        pp.concat([pp.text(f"let {title} = "), _skeleton(sub, names), pp.text(" in"), pp.brk()])
        for title, sub in shared
    ]
    docs.append(_jaxpr_doc(jaxpr, names))
    return pp.render(pp.concat(docs), width)


def eqn_text(eqn: Eqn) -> str:
    """One equation as text, with its own variable names."""
    return pp.render(_eqn_doc(eqn, Names(set())))
