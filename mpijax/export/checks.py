"""Platforms of exported programs, and safety checks that a user may disable."""

from __future__ import annotations

from collections.abc import Sequence


class DisabledSafetyCheck:
    """A safety check to disable: `DisabledSafetyCheck.platform()`, `DisabledSafetyCheck.custom_call(name)`.

    >>> mpijax.export.DisabledSafetyCheck.platform()
    platform
    """

    def __init__(self, _impl: str):
        self._impl = _impl

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Allow running a program on another platform than it was exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Accepted without effect: C functions (`ffi_call`) are called by name, and must be registered at run time."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The name of the allowed custom call, if this check is about one."""
        kind, _, name = self._impl.partition(":")
        return name if kind == "custom_call" and name else None

    def __repr__(self) -> str:
        return self._impl

    def __eq__(self, other) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash(self._impl)


def default_export_platform() -> str:
    """The default platform of exported programs: "cpu".

    >>> mpijax.export.default_export_platform()
    'cpu'
    """
    return "cpu"


def checked_platforms(platforms: Sequence[str] | None) -> tuple[str, ...]:
    """The platforms a program is exported for; any names."""
    return tuple(platforms) if platforms else (default_export_platform(),)
