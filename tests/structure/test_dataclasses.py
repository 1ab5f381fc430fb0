"""Dataclasses are those of `core/lazy_dataclass.py`: the standard library's take 0.6 ms each when they are imported."""

import ast

from structure.test_layers import MODULES

# `scalar` lies below `core`.
_BELOW = ("mpijax.scalar.", "mpijax.core.lazy_dataclass")


def test_dataclasses_are_made_at_their_first_use():
    found = []
    for module, path in MODULES.items():
        if module.startswith(_BELOW):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module == "dataclasses":
                found += [f"{path}:{node.lineno}" for name in node.names if name.name == "dataclass"]
    assert not found, "import dataclass from mpijax.core.lazy_dataclass:\n" + "\n".join(found)
