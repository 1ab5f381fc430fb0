"""Types of ``cython_ext/forms.pyx``."""

from collections.abc import Sequence
from typing import Any

def install(routines: Sequence[Sequence[Any]]) -> None: ...
def addresses() -> dict[str, int]: ...
