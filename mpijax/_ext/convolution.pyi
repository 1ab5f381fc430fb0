from collections.abc import Mapping
from typing import Any

MAX_RANK: int

def address(blas: Mapping[str, int]) -> int: ...
def scratch(words: Any) -> int: ...
