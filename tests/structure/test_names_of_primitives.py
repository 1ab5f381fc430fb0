"""What is said of a primitive stands in its slots: interpreters, the compiler and the runtime name none."""

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

from structure.sources import MODULES, ROOT

FOLDERS = ("core", "compiler", "transforms", "runtime")

# How many names each of these still has: a number may fall, and no file may be added.
LEFT = {
    "compiler/graph/exact_products.py": 3,
    "compiler/fusion/gemm.py": 1,
    "compiler/graph/matrix_calls.py": 4,
    "compiler/sharding/messages.py": 2,
    "compiler/graph/normalize.py": 9,
    "compiler/fusion/pieces.py": 2,
    "compiler/fusion/reader.py": 1,
    "compiler/loops/schedule.py": 2,
    "compiler/sharding/unreduced.py": 1,
    "core/shapes/bounds.py": 8,
    "core/shapes/dimensions.py": 2,
    "core/records/serialize.py": 1,
    "core/rules/sharding_rules.py": 7,
    "transforms/custom.py": 1,
    "transforms/policies.py": 6,
    "transforms/residuals.py": 2,
}


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


def _strings(node: ast.AST) -> list[str]:
    """The strings of a literal: itself, those of a tuple, list or set, and the words of `"a b".split()`."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return [node.value]
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return [s for e in node.elts for s in _strings(e)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
        return [word for s in _strings(node.func.value) for word in s.split()]
    return [s for a in node.args for s in _strings(a)] if isinstance(node, ast.Call) else []


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("name", "key")


def _called(node: ast.AST) -> str:
    return getattr(node, "attr", getattr(node, "id", ""))


def candidates(tree: ast.AST) -> Iterator[str]:
    """Strings by which a program chooses among primitives.

    What a name is compared with, what the registry is asked for, keys of tables, collections, and decorators `rule`.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(map(_is_name, (node.left, *node.comparators))):
            yield from (s for e in (node.left, *node.comparators) for s in _strings(e))
        elif isinstance(node, ast.Subscript) and _called(node.value) == "registry":
            yield from _strings(node.slice)
        elif isinstance(node, ast.Dict) and len(node.keys) > 2:
            yield from (s for k in node.keys if k is not None for s in _strings(k))
        elif isinstance(node, ast.Call) and _called(node.func) in ("frozenset", "fromkeys", "rule"):
            yield from _strings(node)
        elif isinstance(node, ast.Set):
            yield from _strings(node)


def counts() -> Counter[str]:
    names = names_of_primitives()
    found: Counter[str] = Counter()
    for module, path in MODULES.items():
        if module.startswith(tuple(f"mpijax.{folder}." for folder in FOLDERS)):
            said = [s for s in candidates(ast.parse(path.read_text())) if s in names]
            if said:
                found[str(path.relative_to(ROOT))] = len(said)
    return found


def test_a_table_by_name_is_found():
    tree = ast.parse('TABLE = {"sin": 1, "cos": 2, "tan": 3}\nif p.name in ("exp",) or registry["log"]: pass')
    assert sorted(candidates(tree)) == ["cos", "exp", "log", "sin", "tan"]


def test_no_primitive_is_named():
    more = {path: n for path, n in counts().items() if n > LEFT.get(path, 0)}
    assert not more, f"give the primitive a slot in place of its name (core/rules/primitive.py): {more}, known are {LEFT}"
