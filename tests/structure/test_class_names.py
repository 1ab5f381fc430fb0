"""A class name means one thing in the package: no second class has it, also not with a leading underscore."""

import ast
from collections import defaultdict

from structure.sources import MODULES, ROOT, statements

# Names of several classes, and why.
SHARED = {
    "CompilerParams": "JAX's Pallas has a base class, and one class each for TPUs and GPUs",
    "JaxRuntimeError": "JAX has one in `jax.errors` and one in `jax.experimental.checkify`",
    "Primitive": "JAX's class of `jax.extend.core`, and its base for the primitives of mpijax",
}


def places() -> dict[str, list[str]]:
    """Where each name is defined. Nested classes count."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in MODULES.values():
        for node in statements(path) if "class " in path.read_text() else ():
            if isinstance(node, ast.ClassDef):
                found[node.name.lstrip("_")].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    return found


def test_a_class_name_means_one_thing():
    several = {name: where for name, where in places().items() if len(where) > 1}
    more = {name: where for name, where in several.items() if name not in SHARED}
    assert not more, f"say in each name what the class is: {more}"
    assert SHARED.keys() <= several.keys(), f"only one class has these names: {SHARED.keys() - several.keys()}"
