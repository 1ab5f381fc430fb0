"""The modules that classes of arrays name: with `mpijax.as_jax`, JAX's.

Libraries for several kinds of arrays, such as autoray, choose by the first word of `type(x).__module__`.
"""

from __future__ import annotations

_waiting: list[tuple[type, str]] = []  # classes, and the names that they show once `import jax` returns mpijax
_are_of_jax = False


def name_in_jax(cls: type, module: str) -> None:
    """Give a class this module's name, now or when `mpijax.as_jax` is imported."""
    if _are_of_jax:
        cls.__module__ = module
    else:
        _waiting.append((cls, module))


def show_those_of_jax() -> None:
    """Let all such classes, also future ones, name modules of JAX."""
    global _are_of_jax
    _are_of_jax = True
    for cls, module in _waiting:
        cls.__module__ = module
    _waiting.clear()
