"""What is said of a primitive stands in its slots: interpreters, the compiler and the runtime name none."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from structure import sources
from structure.sources import MODULES, ROOT

FOLDERS = ("core", "compiler", "transforms", "runtime")


NAMES = """
from importlib import import_module
from mpijax import wiring
from mpijax.core.rules.registry import registry
for module in wiring._PRIMITIVES:
    import_module(module)
print(*{name for p in registry.values() for name in (p.name, p.key)}, sep="\\n")
"""


def names_of_primitives() -> set[str]:
    """Asks another process: in this one, tests have defined primitives of their own."""
    asked = subprocess.run([sys.executable, "-c", NAMES], check=True, capture_output=True, text=True)
    return set(asked.stdout.splitlines())


def _elements(node: ast.AST) -> list[ast.expr]:
    """The elements of a tuple, list or set; both outcomes of a conditional; otherwise the expression itself."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [x for e in node.elts for x in _elements(e)]
    if isinstance(node, ast.IfExp):
        return [*_elements(node.body), *_elements(node.orelse)]
    return [node] if isinstance(node, ast.expr) else []


def _strings(node: ast.AST) -> list[str]:
    """The strings of a literal: itself, those of a tuple, list or set, and the words of `"a b".split()`."""
    found = []
    for e in _elements(node):
        if isinstance(e, ast.Constant) and isinstance(e.value, str):
            found.append(e.value)
        elif isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute) and e.func.attr == "split":
            found += [word for s in _strings(e.func.value) for word in s.split()]
        elif isinstance(e, ast.Call):
            found += [s for a in e.args for s in _strings(a)]
    return found


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("name", "key")


def _called(node: ast.AST) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def candidates(nodes: Iterable[ast.AST]) -> Iterator[list[str]]:
    """Strings by which a program chooses among primitives, those of one place together.

    What a name is compared with, what the registry is asked for, keys of tables, collections, and decorators `rule`.
    """
    for node in nodes:
        if isinstance(node, ast.Compare) and any(map(_is_name, (node.left, *node.comparators))):
            yield [s for e in (node.left, *node.comparators) for s in _strings(e)]
        elif isinstance(node, ast.Subscript) and _called(node.value) == "registry":
            yield _strings(node.slice)
        elif isinstance(node, ast.Dict) and len(node.keys) > 2:
            yield [s for k in node.keys if k is not None for s in _strings(k)]
        elif isinstance(node, ast.Call) and _called(node.func) in ("frozenset", "fromkeys", "rule"):
            yield _strings(node)
        elif isinstance(node, ast.Set):
            yield _strings(node)


def named(nodes: Iterable[ast.AST], names: set[str]) -> list[str]:
    """The names of primitives by which a program chooses."""
    found = []
    for strings in candidates(nodes):
        known = [s for s in strings if s in names]
        # Parameters of an equation are a dictionary, too, and one of them may be named as a primitive is.
        if len(known) > 1 or len(strings) < 3:
            found += known
    return found


def compared(nodes: Iterable[ast.AST]) -> list[str]:
    """The primitives (`sin_p`) that a program compares an object with, or by which it keys a table."""
    found = []
    for node in nodes:
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else getattr(node, "keys", None) or ()
        found += [n for side in sides if side is not None for n in map(_called, _elements(side)) if n.endswith("_p")]
    return found


def counts(find: Callable[[Iterable[ast.AST]], list[str]]) -> Counter[str]:
    """How much `find` finds in each file."""
    found: Counter[str] = Counter()
    for module, path in MODULES.items():
        if module.startswith(tuple(f"mpijax.{folder}." for folder in FOLDERS)):
            said = find(sources.nodes(path))
            if said:
                found[str(path.relative_to(ROOT))] = len(said)
    return found


def test_a_choice_by_name_is_found():
    tree = ast.parse(
        'TABLE = {"sin": 1, "cos": 2, "tan": 3}\nif p.name in ("exp",) or registry["log" if x else "abs"]: pass\n'
        'params = {"name": 1, "shape": 2, "jaxpr": 3}'
    )
    assert sorted(named(ast.walk(tree), {*"sin cos tan exp log abs name".split()})) == ["abs", "cos", "exp", "log", "sin", "tan"]


def test_a_choice_by_object_is_found():
    tree = ast.parse("if p is sin_p or p in (cos_p, ops.tan_p) or exp_p.rule is None: pass\nTABLE = {log_p: 1}")
    assert sorted(compared(ast.walk(tree))) == ["cos_p", "log_p", "sin_p", "tan_p"]


def test_no_primitive_is_named():
    names = names_of_primitives()
    found = counts(lambda nodes: named(nodes, names))
    assert not found, f"give the primitive a slot in place of its name (core/rules/primitive.py): {found}"


def test_no_primitive_is_compared():
    found = counts(compared)
    assert not found, f"give the primitive a slot (core/rules/primitive.py): {found}"
