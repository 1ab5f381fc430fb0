"""How many modules stand on each other: the longest chain of imports, which a reader follows from end to end."""

from functools import cache

from structure.sources import MODULES
from structure.test_layers import package_imports

# Shorten it where you can: import a name from where it is defined, or have a face load it on demand.
LONGEST = 25


def with_packages(module: str) -> list[str]:
    """A module and the packages that it is in, whose `__init__` is loaded with it."""
    parts = module.split(".")
    return [".".join(parts[:i]) for i in range(1, len(parts) + 1)]


def loaded_by(module: str) -> set[str]:
    """The modules that an import of one loads, but those that it is a part of."""
    targets = [i.target for i in package_imports(MODULES[module]) if not i.in_function]
    return {name for target in targets for name in with_packages(target)} - set(with_packages(module))


@cache
def chain(module: str) -> tuple[str, ...]:
    """The longest chain of imports that begins with a module."""
    return (module, *max((chain(m) for m in sorted(loaded_by(module)) if m in MODULES), key=len, default=()))


def test_chains_of_imports_are_short():
    longest = max((chain(m) for m in sorted(MODULES)), key=len)
    assert len(longest) <= LONGEST, " -> ".join(longest)
