"""The finders of `mpijax.as_jax`: JAX's modules are mpijax's, under a second name.

`Aliases` is the first of Python's finders: `jax.numpy` is the object `mpijax.numpy`, and no module is executed twice.
`Virtual` comes after the finders of files. It makes modules without a file, for names that libraries import. There are
two kinds: public modules of JAX that mpijax lacks (`placeholders`), and private ones of which libraries use a few names
(`names`).
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mpijax import version
from mpijax.aliasing import names, placeholders
from mpijax.faces import PickledByName

# The replacement of each package; jaxlib has no counterpart.
ROOTS = {"jax": "mpijax", "jaxlib": "jaxlib", "mpi4jax": "mpijax.mpi"}
# With "tokens" as its value, `mpi4jax` is that before 0.8, whose operations take and return tokens.
VARIABLE = "MPIJAX_AS_JAX"
WITH_TOKENS = "tokens"


def counterpart(name: str) -> str | None:
    """mpijax's name for a module of JAX; None for other modules.

    >>> from mpijax.aliasing import finders
    >>> finders.counterpart("jax.numpy.linalg"), finders.counterpart("numpy")
    ('mpijax.numpy.linalg', None)
    """
    root, dot, rest = name.partition(".")
    if root == "mpi4jax" and os.environ.get(VARIABLE) == WITH_TOKENS:
        return "mpijax.mpi.with_tokens" + dot + rest
    return ROOTS[root] + dot + rest if root in ROOTS else None


class Jax(PickledByName):
    """The module `jax`: reads and sets mpijax's attributes, under JAX's name and version."""

    def __init__(self) -> None:
        super().__init__("jax", importlib.import_module("mpijax").__doc__)
        super().__dict__.update(
            __file__=sys.modules["mpijax"].__file__,
            __path__=sys.modules["mpijax"].__path__,
            __version__=version.jax_version,
            __version_info__=version.__version_info__,
            version=importlib.import_module("jaxlib.version"),
        )

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return {**vars(sys.modules["mpijax"]), **super().__dict__}

    def __getattr__(self, name: str) -> Any:
        if name == "_src":  # accessible without an import, as in JAX
            return importlib.import_module("mpijax._src")
        try:
            found = getattr(sys.modules["mpijax"], name)
        except AttributeError as error:
            error.args = (str(error).replace("module 'mpijax'", "module 'jax'", 1),)
            raise
        if isinstance(found, ModuleType) and found.__name__ == "mpijax." + name:
            sys.modules.setdefault("jax." + name, found)  # accessible without an import, as in JAX
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        elif name != "version":
            setattr(sys.modules["mpijax"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(sys.modules["mpijax"], name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dict__, *dir(sys.modules["mpijax"])})


class _Alias(Loader):
    """Loads the existing module `name` under another name."""

    def __init__(self, name: str):
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.name)
        self.spec = module.__spec__  # Python is about to overwrite it
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _NoFileLoader(Loader):
    """Loads a module that has no file."""

    def __init__(self, module: ModuleType):
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing: the module has no code."""


def _made(name: str, module: ModuleType) -> ModuleSpec:
    """The spec of a module without a file. Its submodules, if any, have no files either."""
    return ModuleSpec(name, _NoFileLoader(module), origin="mpijax.as_jax", is_package=True)


class Aliases(MetaPathFinder):
    """Finds `jax`, `jaxlib`, `mpi4jax` and their submodules, and gives importlib.metadata their versions."""

    makes_mpijax_jax = True

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        real = counterpart(fullname)
        if real is None:
            return None
        if fullname == "jax":
            spec = _made(fullname, Jax())
            spec.submodule_search_locations = list(sys.modules["mpijax"].__path__)
            return spec
        if fullname == "jax.version":
            return ModuleSpec(fullname, _Alias("jaxlib.version"))
        if real == fullname:
            return Virtual.found(fullname)
        found = _spec(real)
        if found is None:
            return None
        spec = ModuleSpec(fullname, _Alias(real), origin=found.origin)
        spec.submodule_search_locations = found.submodule_search_locations
        return spec

    def find_distributions(self, context: Any) -> Iterable[Any]:
        """The three distributions when requested by name, but not in listings of a folder, such as pip's."""
        if "path" in vars(context) or context.name is None:
            return []
        return importlib.import_module("mpijax.aliasing.distributions").of(context.name)

    @staticmethod
    def invalidate_caches() -> None:
        """Does nothing: there are no caches."""


def _spec(name: str) -> ModuleSpec | None:
    """The spec of a module of mpijax, without importing it."""
    loaded = sys.modules.get(name)
    return importlib.util.find_spec(name) if loaded is None else loaded.__spec__


class Virtual(MetaPathFinder):
    """Finds modules of mpijax and jaxlib that have no file."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return self.found(fullname) if fullname.startswith("mpijax.") else None

    @staticmethod
    def found(name: str) -> ModuleSpec | None:
        """The spec of a module without a file."""
        if name in names.modules():
            return _made(name, names.AliasModule(name))
        reason = placeholders.reason(name)
        return None if reason is None else _made(name, placeholders.Placeholder(name, reason))
