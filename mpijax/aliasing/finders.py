"""The finders of `mpijax.as_jax`: modules of JAX are those of mpijax, under a second name.

`Aliases` stands first among Python's finders: `jax.numpy` is the object `mpijax.numpy`, and nothing is executed twice.
`Virtual` comes after the finders of files: it makes modules that have no file, for names that libraries import. These
are of two kinds: public modules of JAX that mpijax lacks (`placeholders`), and private ones of which libraries use a
few names (`names`).
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mpijax import version
from mpijax.aliasing import names, placeholders

# What a name of a package stands for; jaxlib has no counterpart.
ROOTS = {"jax": "mpijax", "jaxlib": "jaxlib", "mpi4jax": "mpijax.mpi"}


def counterpart(name: str) -> str | None:
    """mpijax's name of a module of JAX; None for modules of others.

    >>> from mpijax.aliasing import finders
    >>> finders.counterpart("jax.numpy.linalg"), finders.counterpart("numpy")
    ('mpijax.numpy.linalg', None)
    """
    root, dot, rest = name.partition(".")
    return ROOTS[root] + dot + rest if root in ROOTS else None


class Jax(ModuleType):
    """The module `jax`: the attributes of mpijax, set and read there, under JAX's name and version."""

    def __init__(self) -> None:
        super().__init__("jax", importlib.import_module("mpijax").__doc__)
        self.__dict__.update(
            __file__=sys.modules["mpijax"].__file__,
            __path__=sys.modules["mpijax"].__path__,
            __version__=version.jax_version,
            __version_info__=version.__version_info__,
            version=importlib.import_module("jaxlib.version"),
        )

    def __getattr__(self, name: str) -> Any:
        if name == "_src":  # there without an import, as in JAX
            return importlib.import_module("mpijax._src")
        try:
            found = getattr(sys.modules["mpijax"], name)
        except AttributeError as error:
            error.args = (str(error).replace("module 'mpijax'", "module 'jax'", 1),)
            raise
        if type(found) is ModuleType and found.__name__ == "mpijax." + name:
            sys.modules.setdefault("jax." + name, found)  # there without an import, as in JAX
        return found

    def __setattr__(self, name: str, value: Any) -> None:
        if name.startswith("__"):
            super().__setattr__(name, value)
        elif name != "version":
            setattr(sys.modules["mpijax"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(sys.modules["mpijax"], name)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *dir(sys.modules["mpijax"])})


class _Alias(Loader):
    """Gives the module `name` under another name, as it is."""

    def __init__(self, name: str):
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self.name)
        self.spec = module.__spec__  # Python is about to replace it
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self.spec


class _Made(Loader):
    """Gives a module that has no file."""

    def __init__(self, module: ModuleType):
        self.module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing to execute."""


def _made(name: str, module: ModuleType) -> ModuleSpec:
    """Its submodules, if any, have no files either."""
    return ModuleSpec(name, _Made(module), origin="mpijax.as_jax", is_package=True)


class Aliases(MetaPathFinder):
    """Finds `jax`, `jaxlib`, `mpi4jax` and what is below them, and tells their versions to importlib.metadata."""

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
        """Of the three, whoever asks for them by name; not for what is installed in a folder, as pip does."""
        if "path" in vars(context) or context.name is None:
            return []
        return importlib.import_module("mpijax.aliasing.distributions").of(context.name)

    @staticmethod
    def invalidate_caches() -> None:
        """There are none."""


def _spec(name: str) -> ModuleSpec | None:
    """Of a module of mpijax, which need not have been imported."""
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
        """The spec of a module without file."""
        if name in names.modules():
            return _made(name, names.Names(name))
        reason = placeholders.reason(name)
        return None if reason is None else _made(name, placeholders.Placeholder(name, reason))
