"""What importlib.metadata says of jax and jaxlib while mpijax stands for them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

_NAMES = ("jax", "jaxlib")


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, name: str, version: str):
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: mpijax under JAX's name\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path):
        return Path(path)  # it has no files


def of(name: str, version: str) -> Iterator[importlib.metadata.Distribution]:
    """The distribution that is asked for, if it is one of JAX's."""
    normal = re.sub(r"[-_.]+", "-", name).lower()
    if normal in _NAMES:
        yield _Distribution(normal, version)
