"""The clients of a round, their distribution over the ranks, and the work for each client."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from mpijax.random import choice, split
from mpijax.runtime.mpi import mpi_start
from mpijax.transforms.jit import jit


def sample_clients(key: Any, client_ids: Sequence[Hashable], num_clients: int) -> list[tuple[Hashable, Any]]:
    """[(client, its own key), ...] for clients drawn without replacement: the same on every rank. Does not communicate.

    The key of a client depends on the key of the round and on the position of the client in `client_ids`, not on the
    other clients drawn.

    >>> from mpijax import federated
    >>> [client for client, _ in federated.sample_clients(mpijax.random.key(0), ["a", "b", "c"], 3)]
    ['a', 'c', 'b']
    """
    if not 0 <= num_clients <= len(client_ids):
        raise ValueError(f"num_clients must be in 0 ... {len(client_ids)}, the number of clients; got {num_clients}")
    drawing, clients = split(key)
    numbers = np.asarray(choice(drawing, len(client_ids), (num_clients,), replace=False))
    keys = split(clients, len(client_ids))
    return [(client_ids[n], keys[n]) for n in numbers]


def clients_of_rank(sizes: Mapping[Hashable, int], rank: int | None = None, ranks: int | None = None) -> list[Hashable]:
    """The clients that a rank works for (default: this rank), such that all ranks have about the same number of
    examples.

    The largest remaining client always goes to the rank with the fewest examples, so the largest sum is at most 4/3 of
    the best possible. All ranks compute the same result for the same sizes. Does not communicate.

    sizes: the number of examples, or of steps, of each client.

    >>> from mpijax import federated
    >>> sizes = {"a": 9, "b": 2, "c": 5, "d": 4}
    >>> [federated.clients_of_rank(sizes, rank, 2) for rank in range(2)]
    [['a', 'b'], ['c', 'd']]
    """
    ranks = mpi_start.size() if ranks is None else ranks
    rank = mpi_start.rank() if rank is None else rank
    if not 0 <= rank < ranks:
        raise ValueError(f"rank must be between 0 and {ranks - 1}, got {rank}")
    loads = [(0, r) for r in range(ranks)]
    mine: list[Hashable] = []
    for client in sorted(sizes, key=lambda c: -sizes[c]):  # a stable sort: ties stay in the order of `sizes`
        load, least = heapq.heappop(loads)
        heapq.heappush(loads, (load + sizes[client], least))
        if least == rank:
            mine.append(client)
    return mine


def _state(shared_input: Any, state: Any) -> Any:
    return state


def for_each_client(
    client_init: Callable[[Any, Any], Any],
    client_step: Callable[[Any, Any], Any],
    client_final: Callable[[Any, Any], Any] = _state,
    with_step_result: bool = False,
) -> Callable[[Any, Iterable[tuple[Hashable, Iterable[Any], Any]]], Iterator[tuple]]:
    """A function that runs the work of one client after the other: `run(shared_input, clients)`.

    Args:
      client_init: (shared_input, client_input) -> state.
      client_step: (state, batch) -> state, or with `with_step_result` (state, result).
      client_final: (shared_input, state) -> output; by default the state.

    `clients` is an iterable of (client id, batches, client_input) with the clients of this rank; see `clients_of_rank`.
    `run` yields (client id, output), and with `with_step_result` also the list of the results of the steps. The three
    functions are jitted: batches of a new shape are traced again. `run` does not communicate; `tree_mean` of the
    outputs does.

    >>> from mpijax import federated
    >>> run = federated.for_each_client(lambda shared, mine: shared + mine, lambda state, batch: state + jnp.sum(batch))
    >>> [(name, int(out)) for name, out in run(100, [("a", [np.arange(3), np.arange(2)], 10), ("b", [], 20)])]
    [('a', 114), ('b', 120)]
    """
    init, step, final = jit(client_init), jit(client_step), jit(client_final)

    def run(shared_input: Any, clients: Iterable[tuple[Hashable, Iterable[Any], Any]]) -> Iterator[tuple]:
        for client, batches, client_input in clients:
            state, results = init(shared_input, client_input), []
            for batch in batches:
                if with_step_result:
                    state, result = step(state, batch)
                    results.append(result)
                else:
                    state = step(state, batch)
            output = final(shared_input, state)
            yield (client, output, results) if with_step_result else (client, output)

    return run
