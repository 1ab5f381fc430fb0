"""Simulated ranks: programs over their devices are planned for one of them, and never run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NoReturn

from mpijax.core.base.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Simulation:
    """A job of `ranks` ranks, planned as one of them."""

    ranks: int
    rank: int

    def refuse(self, what: str) -> NoReturn:
        """Raise RuntimeError for an operation that needs real ranks."""
        raise RuntimeError(
            f"{what} needs rank {self.rank} of {self.ranks:,} simulated ranks, and programs do not run on simulated "
            "ranks. Plan with jit(f).lower(shapes).compile() and its cost_analysis(), memory_analysis() and explain(). "
            f"To run the program, start it on {self.ranks:,} ranks: mpijax run -n {self.ranks} ..."
        )


def simulation_of(devices: Iterable[Any]) -> Simulation | None:
    """The simulation that devices belong to; None for devices of this job. ValueError for a mixture."""
    found = {getattr(d, "simulation", None) for d in devices}
    if len(found) > 1:
        raise ValueError(
            "All devices of a Mesh must be of one job: all from mpijax.devices(), or all from one call of "
            "mpijax.simulate.devices."
        )
    return next(iter(found), None)
