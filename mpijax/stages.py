"""``mpijax.stages``: what `jit(f)`, `.trace()`, `.lower()` and `.compile()` return."""

from __future__ import annotations

from mpijax.runtime.program.stages import Compiled, Lowered
from mpijax.transforms.jit import PjitFunction as Wrapped
from mpijax.transforms.jit import Traced
from mpijax.transforms.traced import ArgInfo

__all__ = ["ArgInfo", "Compiled", "CompilerOptions", "Lowered", "Traced", "Wrapped"]

# What `jit(compiler_options=...)` and `.compile(compiler_options=...)` take.
CompilerOptions = dict[str, str | bool]
