"""importlib.metadata's answers for jax, jaxlib and mpi4jax while mpijax replaces them."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Iterator
from pathlib import Path

from mpijax import version

_VERSIONS = {"jax": version.jax_version, "jaxlib": version.jax_version, "mpi4jax": version.mpi4jax_version}


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, name: str, number: str):
        self._text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\nSummary: mpijax under another name\n"

    def read_text(self, filename: str) -> str | None:
        return self._text if filename == "METADATA" else None

    def locate_file(self, path):
        return Path(path)  # it has no files


def of(name: str) -> Iterator[importlib.metadata.Distribution]:
    """The requested distribution, if mpijax replaces it."""
    normal = re.sub(r"[-_.]+", "-", name).lower()
    if normal in _VERSIONS:
        yield _Distribution(normal, _VERSIONS[normal])
