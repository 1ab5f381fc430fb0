"""``jax.ad``: what may become of cotangents in a backward pass (see `VJP.with_refs` of what `vjp` returns)."""

from mpijax.transforms.pullback import DidntWant, DontWant, GradRef, GradValue

__all__ = ["DidntWant", "DontWant", "GradRef", "GradValue"]
