"""``mpijax.stages``: what `jit(f)`, `.trace()`, `.lower()` and `.compile()` return."""

from mpijax.runtime.stages import Compiled, Lowered
from mpijax.transforms.jit import JitFunction as Wrapped
from mpijax.transforms.traced import ArgInfo, Traced

__all__ = ["ArgInfo", "Compiled", "Lowered", "Traced", "Wrapped"]
