"""The programs of examples/, as modules and as files."""

import importlib.util
from pathlib import Path

import pytest

# Asked without an import: each rank and each worker would take seconds for it, whatever tests it runs.
needs_sklearn = pytest.mark.skipif(importlib.util.find_spec("sklearn") is None, reason="needs scikit-learn")


def path_of(name: str) -> Path:
    return Path(__file__).parents[2] / "examples" / f"{name}.py"


def load_example(name: str):
    """The module of an example, which no other test has."""
    spec = importlib.util.spec_from_file_location(f"{name}_example", path_of(name))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
