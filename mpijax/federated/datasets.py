"""The examples of one client, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from mpijax.random import permutation, split


class ClientDataset:
    """The examples of one client: NumPy arrays by name, each with one row for each example.

    >>> from mpijax import federated
    >>> data = federated.ClientDataset({"x": np.arange(5)})
    >>> len(data), [batch["x"].tolist() for batch in data.batch(2)]
    (5, [[0, 1], [2, 3], [4]])
    """

    def __init__(self, raw_examples: Mapping[str, Any]):
        self.raw_examples = {name: np.asarray(rows) for name, rows in raw_examples.items()}
        shapes = {name: rows.shape for name, rows in self.raw_examples.items()}
        sizes = {shape[0] if shape else -1 for shape in shapes.values()}
        if len(sizes) != 1 or -1 in sizes:
            raise ValueError(f"a client's arrays must have one row for each example; got arrays of shapes {shapes}")
        [self._size] = sizes

    def __len__(self) -> int:
        return self._size

    def all_examples(self) -> dict[str, np.ndarray]:
        """All examples as one batch."""
        return self.raw_examples

    def batch(self, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
        """Batches of the examples, in order; the last batch may be smaller."""
        return self._batches(np.arange(self._size), batch_size)

    def shuffle_repeat_batch(
        self, batch_size: int, key: Any, num_epochs: int = 1
    ) -> Iterator[dict[str, np.ndarray]]:
        """Batches of the examples, shuffled with the key, in another order in each epoch. The last batch of an epoch
        may be smaller."""
        for epoch_key in split(key, num_epochs):
            yield from self._batches(np.asarray(permutation(epoch_key, self._size)), batch_size)

    def _batches(self, order: np.ndarray, batch_size: int) -> Iterator[dict[str, np.ndarray]]:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        for begin in range(0, self._size, batch_size):
            chosen = order[begin : begin + batch_size]
            yield {name: rows[chosen] for name, rows in self.raw_examples.items()}
