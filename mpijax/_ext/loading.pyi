"""Types of ``cython_ext/loading.pyx``."""

from collections.abc import Callable
from typing import Any

def load_into(program: Any, spec: Any) -> None: ...
def read_programs_of(
    classes: dict[str, type],
    result_kind: type,
    send: Any,
    strided: str,
    addresses: Callable[[], Any],
    thread_functions: Callable[[], Any],
) -> None: ...
def rebind(p: Any, addresses: Any) -> None: ...
