"""Platforms, and the checks of them that a user may turn off."""

from __future__ import annotations

from collections.abc import Sequence

KNOWN_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


class DisabledSafetyCheck:
    """A check to leave out: `DisabledSafetyCheck.platform()`, `DisabledSafetyCheck.custom_call(name)`.

    >>> mpijax.export.DisabledSafetyCheck.platform()
    platform
    """

    def __init__(self, _impl: str):
        self._impl = _impl

    @classmethod
    def platform(cls) -> DisabledSafetyCheck:
        """Let a program run on another platform than it was exported for."""
        return cls("platform")

    @classmethod
    def custom_call(cls, target_name: str) -> DisabledSafetyCheck:
        """Accepted; C functions (`ffi_call`) are called by name, and must be registered where the program runs."""
        return cls(f"custom_call:{target_name}")

    def is_custom_call(self) -> str | None:
        """The name of the custom call that is let through, if this is about one."""
        kind, _, name = self._impl.partition(":")
        return name if kind == "custom_call" and name else None

    def __repr__(self) -> str:
        return self._impl

    def __eq__(self, other) -> bool:
        return isinstance(other, DisabledSafetyCheck) and self._impl == other._impl

    def __hash__(self) -> int:
        return hash(self._impl)


def default_export_platform() -> str:
    """The platform that programs are exported for unless told otherwise: "cpu".

    >>> mpijax.export.default_export_platform()
    'cpu'
    """
    return "cpu"


def checked_platforms(platforms: Sequence[str] | None) -> tuple[str, ...]:
    """The platforms a program is exported for. Raises ValueError for a name that is none."""
    found = (default_export_platform(),) if platforms is None else tuple(platforms)
    unknown = [p for p in found if p not in KNOWN_PLATFORMS]
    if unknown or not found:
        raise ValueError(f"platforms are among {KNOWN_PLATFORMS}, got {found}")
    return found
