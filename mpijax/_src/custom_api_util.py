"""Classes of decorators that libraries define."""

from typing import TypeVar

_Class = TypeVar("_Class", bound=type)


def register_custom_decorator_type(cls: _Class) -> _Class:
    """Returns the class. mpijax's transformations take any callable, so they need no register of such classes."""
    return cls


__all__ = ["register_custom_decorator_type"]
