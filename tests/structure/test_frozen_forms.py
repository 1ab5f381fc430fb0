"""Forms between two stages of the compiler do not change: frozen dataclasses, or classes that only their makers fill."""

import ast
from collections.abc import Iterator
from pathlib import Path

from structure import sources
from structure.sources import MODULES, ROOT

from mpijax.compiler.fusion import expr
from mpijax.compiler.graph import nodes

# Classes for which a frozen dataclass would cost compile time, and the folder or file that may assign to their fields.
MADE_IN = {
    (nodes.Value, nodes.Node): "compiler/graph/",
    (expr.Expr, expr.Load, expr.KnownNumber, expr.IndexValue, expr.ReducedValue, expr.MemberValue, expr.Choice, expr.Applied):
        "compiler/fusion/expr.py",
}  # fmt: skip
# Working state of one pass: it changes while the pass runs, and no later stage sees it.
WORKING = {
    "FusionGroup", "JaxprFrame", "Pairs", "PartitionState", "PlanBuilder", "RunningSoftmax", "Unit"
}  # fmt: skip


def assigned(path: Path) -> Iterator[str]:
    """The attributes that code assigns to, of objects other than `self`; items of attributes count."""
    for node in sources.nodes(path):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, (ast.AugAssign, ast.AnnAssign)) else []
        for target in (t for x in targets for t in (x.elts if isinstance(x, ast.Tuple) else [x])):
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Attribute) and not (isinstance(target.value, ast.Name) and target.value.id == "self"):
                yield target.attr


def compiler() -> Iterator[tuple[str, Path]]:
    for module, path in MODULES.items():
        if module.startswith(("mpijax.compiler.", "mpijax.runtime.program.")):
            yield path.relative_to(ROOT).as_posix(), path


def test_fields_are_assigned_where_the_form_is_made():
    found = set()
    for name, path in compiler():
        attributes = set(assigned(path))
        for classes, home in MADE_IN.items():
            fields = {field for c in classes for field in c.__slots__}
            if not name.startswith(home):
                found |= {(name, attribute) for attribute in attributes & fields}
    assert not found


def test_dataclasses_of_the_compiler_are_frozen():
    found = set()
    for name, path in compiler():
        if name.startswith("compiler/"):
            for node in sources.nodes(path):
                if isinstance(node, ast.ClassDef):
                    found |= {node.name for d in node.decorator_list if ast.unparse(d).startswith("dataclass") and "frozen=True" not in ast.unparse(d)}
    assert found == WORKING
