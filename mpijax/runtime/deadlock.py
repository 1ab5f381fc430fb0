"""Two ranks of a node that wait for each other, as their records tell.

This rank waits for another one in an operation, and that one for this rank in an operation that does not belong to
it: a receive in each, a receive here and a collective there, two collectives. Neither can go on. Rings of more ranks
are left to the warnings of the watchdog, and so are ranks in which another thread might communicate.
"""

from __future__ import annotations

from typing import Any

from mpijax.runtime.recorder import COLLECTIVE, MESSAGE, Site, recorder

# Seconds in which neither rank may have gone on. A message that is on its way takes much less, also on busy cores.
STUCK = 10.0


class Suspicion:
    """The operations in which other ranks have been seen while this rank is in one of its own, and since when."""

    def __init__(self):
        self.own = -1
        self.seen: dict[int, tuple[int, float]] = {}

    def confirmed(self, what: Site, absent: list[int], now: float) -> str:
        """What two ranks wait in, if that is certain; ''.

        what: this rank's operation, which goes on; absent: ranks of this node that it waits for.
        """
        own = recorder.progress(recorder.mine)[0]
        if own != self.own:
            self.own, self.seen = own, {}
        if what.peers is not None:  # the first one sends; where the message goes to may come later
            absent = [rank for rank in absent if rank in what.peers[:1]]
        for rank in absent:
            region = recorder.region(rank)
            number, busy = recorder.progress(region)
            certain = busy and int(region["exclusive"]) and int(recorder.mine["exclusive"])
            there = _waits_for_this_rank(region, what) if certain else ""
            known, since = self.seen.get(rank, (-1, now))
            if not there or known != number:
                self.seen[rank] = number if there else -1, now
            elif now - since > STUCK:
                return f"rank {recorder.rank} waits for rank {rank} in {what}, and rank {rank} for it in {there}"
        return ""


def _waits_for_this_rank(region: Any, what: Site) -> str:
    """What the rank with that record waits in, if that is for this rank and not what this rank does; ''."""
    site = int(recorder.last(region)["site"])
    text, sequence = recorder.text_of(region, site), recorder.sequence_of(region, site)
    group = next((g for g in recorder.groups.values() if sequence - g.id in (COLLECTIVE, MESSAGE)), None)
    if group is None:
        return ""
    if sequence == group.id + COLLECTIVE:
        return text if recorder.count(recorder.mine, sequence) < recorder.count(region, sequence) else ""
    place = group.ranks.index(recorder.rank)
    words = text.split()
    receives, sends = words[0] == "recv", words[0] == "send"
    if receives and f"source={place}" in words:
        return text if not what.label.startswith("send") else ""
    if sends and f"dest={place}" in words:
        return text if "recv" not in what.label.split()[0] else ""
    return ""
