"""The store and barriers that the ranks of a job share; `coordination` serves them on rank 0.

A request is a dict with `do`, the name of a method below, and its arguments. The answer is a value or an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any


class Failure(Exception):
    """An answer that is an error. It starts with a gRPC code, by which libraries distinguish errors."""


class KeyValueStore:
    """Strings by key, and barriers by name. Keys are paths: `a/b` is below `a`."""

    def __init__(self, size: int):
        self._size = size
        self._values: dict[str, str] = {}
        self._changed = asyncio.Condition()
        self._barriers: dict[str, _Barrier] = {}

    async def answer(self, request: Any) -> Any:
        """Answer a request. Raises Failure, also for invalid requests."""
        name = request.pop("do", None) if isinstance(request, dict) else None
        call = _REQUESTS.get(name) if isinstance(name, str) else None
        if call is None:
            raise Failure("UNIMPLEMENTED: unknown request")
        return await call(self, **request)

    async def put(self, key: str, value: str, overwrite: bool) -> None:
        if key in self._values and not overwrite:
            raise Failure(f"ALREADY_EXISTS: key {key} already exists.")
        await self._set(key, value)

    async def _set(self, key: str, value: str) -> None:
        async with self._changed:
            self._values[key] = value
            self._changed.notify_all()

    async def increment(self, key: str, by: int) -> int:
        value = int(self._values.get(key, "0")) + by
        await self._set(key, str(value))
        return value

    async def get(self, key: str, seconds: float) -> str:
        """Waits up to `seconds` for the key; 0: does not wait."""
        if key not in self._values and seconds <= 0:
            raise Failure(f"NOT_FOUND: Config key {key} not found.")
        try:
            async with asyncio.timeout(seconds or None), self._changed:
                await self._changed.wait_for(lambda: key in self._values)
                return self._values[key]
        except TimeoutError:
            raise Failure(
                f"DEADLINE_EXCEEDED: GetKeyValue() timed out with key: {key} and duration: {1000 * seconds:.0f}ms"
            ) from None

    async def below(self, key: str) -> list[tuple[str, str]]:
        """The keys below `key`, with their values."""
        folder = key.rstrip("/") + "/"
        return sorted((k, v) for k, v in self._values.items() if k.startswith(folder))

    async def delete(self, key: str) -> None:
        """Delete a key and the keys below it."""
        for name, _ in [*await self.below(key), (key, "")]:
            self._values.pop(name, None)

    async def barrier(self, name: str, rank: int, ranks: list[int], seconds: float) -> None:
        """Wait until all of `ranks` (empty: all ranks of the job) are here.

        A barrier that another rank enters fails on all ranks, also on those that come later.
        """
        wanted = frozenset(ranks or range(self._size))
        barrier = self._barriers.setdefault(name, _Barrier(wanted))
        if rank not in wanted:
            barrier.refused = (
                f"INVALID_ARGUMENT: A non-participating task (rank {rank}) called the barrier {name} of the ranks "
                f"{sorted(wanted)}"
            )
            barrier.passed.set()
        elif barrier.wanted != wanted:
            raise Failure(
                f"INVALID_ARGUMENT: rank {rank} passes different participants for barrier {name}: {sorted(wanted)}"
            )
        if barrier.refused:
            raise Failure(barrier.refused)
        barrier.here.add(rank)
        if barrier.here == wanted:
            barrier.passed.set()
            del self._barriers[name]  # later arrivals form a new barrier
        try:
            await asyncio.wait_for(barrier.passed.wait(), seconds)
            if barrier.refused:
                raise Failure(barrier.refused)
        except TimeoutError:
            absent = sorted(wanted - barrier.here)
            self._barriers.pop(name, None)
            raise Failure(
                f"DEADLINE_EXCEEDED: Barrier timed out. Id: {name}. Ranks that did not arrive within {seconds:g} s: "
                f"{', '.join(map(str, absent))}"
            ) from None


class _Barrier:
    def __init__(self, wanted: frozenset[int]):
        self.wanted, self.here, self.passed, self.refused = wanted, set[int](), asyncio.Event(), ""


_REQUESTS: dict[str, Callable[..., Any]] = {
    "put": KeyValueStore.put,
    "increment": KeyValueStore.increment,
    "get": KeyValueStore.get,
    "below": KeyValueStore.below,
    "delete": KeyValueStore.delete,
    "barrier": KeyValueStore.barrier,
}
