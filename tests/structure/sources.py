"""The modules of the package, and what each imports. A file is parsed once for all tests of a process."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mpijax

ROOT = Path(mpijax.__file__).parent


def modules() -> dict[str, Path]:
    """The modules of the package by name."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("mpijax", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


@dataclass(frozen=True)
class Import:
    """`import module`, where `name` is empty, or one name of `from module import name`.

    for_types: under `if TYPE_CHECKING`. A relative import has its dots in `module`.
    """

    line: int
    module: str
    name: str
    in_function: bool
    for_types: bool

    @property
    def full(self) -> str:
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def target(self) -> str:
        """The module that is imported, of which a name may be taken."""
        return self.full if self.full in MODULES else self.module


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


# Where a statement has others.
_INSIDE = ("body", "orelse", "handlers", "finalbody", "cases")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of a file."""
    return list(ast.walk(tree(path)))


def statements(path: Path) -> Iterator[ast.AST]:
    """All statements of a file, and what is between them: handlers and cases. They are a twelfth of the nodes."""
    found: list[ast.AST] = [tree(path)]
    for node in found:
        yield node
        for field in _INSIDE:
            inside = getattr(node, field, ())
            found.extend(inside if isinstance(inside, list) else ())


@cache
def imports(path: Path) -> tuple[Import, ...]:
    """All imports of a file. Only statements are visited: no expression has an import."""
    found: list[Import] = []

    def visit(statements: list, in_function: bool, for_types: bool) -> None:
        for node in statements:
            if isinstance(node, ast.ImportFrom):
                module = "." * node.level + (node.module or "")
                found.extend(Import(node.lineno, module, n.name, in_function, for_types) for n in node.names)
            elif isinstance(node, ast.Import):
                found.extend(Import(node.lineno, n.name, "", in_function, for_types) for n in node.names)
            else:
                inside = in_function or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
                types = for_types or _is_for_types(node)
                for field in _INSIDE:
                    visit(getattr(node, field, []), inside, types)

    visit(tree(path).body, False, False)
    return tuple(found)
