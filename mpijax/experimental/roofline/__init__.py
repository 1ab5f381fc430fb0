"""``jax.experimental.roofline``: estimates a program's arithmetic, memory traffic and messages without running it."""

from mpijax import missing as _missing
from mpijax.experimental.roofline.estimate import roofline, roofline_and_grad
from mpijax.experimental.roofline.results import RooflineResult, RooflineRuleContext, RooflineShape
from mpijax.experimental.roofline.rules import register_roofline, register_standard_roofline

__all__ = [
    "RooflineResult", "RooflineRuleContext", "RooflineShape", "register_roofline", "register_standard_roofline",
    "roofline", "roofline_and_grad",
]  # fmt: skip


def __getattr__(name: str):
    raise _missing.error(__name__, name)
