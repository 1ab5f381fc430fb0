"""Dataclasses are those of `core/base/lazy_dataclass.py`: the standard library's take 0.6 ms each when they are imported."""

from structure.sources import MODULES, imports

# `scalar` lies below `core`.
_BELOW = ("mpijax.scalar.", "mpijax.core.base.lazy_dataclass")


def test_dataclasses_are_made_at_their_first_use():
    found = [
        f"{path}:{i.line}"
        for module, path in MODULES.items()
        if not module.startswith(_BELOW)
        for i in imports(path)
        if (i.module, i.name) == ("dataclasses", "dataclass")
    ]
    assert not found, "import dataclass from mpijax.core.base.lazy_dataclass:\n" + "\n".join(found)
