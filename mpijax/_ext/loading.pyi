"""Types of ``cython_ext/loading.pyx``."""

from typing import Any

def load_into(program: Any, spec: Any) -> None: ...
