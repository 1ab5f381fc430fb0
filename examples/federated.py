"""Federated averaging on scikit-learn's digits: clients with data sets of different sizes, spread over all ranks.

    python examples/federated.py                      one process
    mpirun -n 4 python examples/federated.py          four ranks, each works for some of the clients

In each round the server draws clients with a key. Each client trains a copy of the server's parameters on its own
examples. The new parameters are the mean of the copies, weighted by the number of examples of each client (McMahan et
al. 2017, https://arxiv.org/abs/1602.05629). The learning curve does not depend on the number of ranks.

It is a simulation: nothing is encrypted, and ranks see the data of their clients.
"""

import argparse

import numpy as np

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import federated

CLASSES, HIDDEN = 10, 32


def load_clients(number, seed=0):
    """({client: ClientDataset}, test images, test labels). A client has from a few to some hundred examples, mostly of
    two digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images, labels = (images / 16).astype(np.float32), labels.astype(np.int32)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(images))
    test, train = order[:360], order[360:]
    shares = rng.dirichlet(np.full(number, 0.8))  # share of the examples of each client
    taste = rng.dirichlet(np.full(number, 0.3), CLASSES)  # share of each digit of each client
    weights = shares * taste[labels[train]]
    owner = np.array([rng.choice(number, p=w / w.sum()) for w in weights])
    data = {}
    for client in range(number):
        mine = train[owner == client]
        data[client] = federated.ClientDataset({"images": images[mine], "labels": labels[mine]})
    return data, images[test], labels[test]


def init(key):
    """Parameters of a network with one hidden layer."""
    first, second = jax.random.split(key)
    return {
        "w1": jax.random.normal(first, (64, HIDDEN)) / 8,
        "b1": jnp.zeros(HIDDEN),
        "w2": jax.random.normal(second, (HIDDEN, CLASSES)) / HIDDEN**0.5,
        "b2": jnp.zeros(CLASSES),
    }


def logits(params, images):
    hidden = jax.nn.relu(images @ params["w1"] + params["b1"])
    return hidden @ params["w2"] + params["b2"]


def loss(params, batch):
    """Mean cross-entropy."""
    log_p = jax.nn.log_softmax(logits(params, batch["images"]))
    return -jnp.mean(jnp.take_along_axis(log_p, batch["labels"][:, None], 1))


def client_update(rate):
    """The work of a client: SGD on its batches, beginning with the server's parameters."""

    def step(params, batch):
        return jax.tree.map(lambda p, g: p - rate * g, params, jax.grad(loss)(params, batch))

    return federated.for_each_client(lambda server, _: server, step)


def train(data, rounds, clients_per_round=8, epochs=2, batch_size=16, rate=0.1, key=None, report=print, test=None):
    """The server's parameters after `rounds` rounds, and the test loss after each round."""
    key = jax.random.key(0) if key is None else key
    params = init(jax.random.fold_in(key, 0))
    run, losses = client_update(rate), []
    for number in range(1, rounds + 1):
        drawn = dict(federated.sample_clients(jax.random.fold_in(key, number), list(data), clients_per_round))
        mine = federated.clients_of_rank({client: len(data[client]) for client in drawn})
        work = (
            (client, data[client].shuffle_repeat_batch(batch_size, drawn[client], epochs), None) for client in mine
        )
        updates = ((updated, len(data[client])) for client, updated in run(params, work))
        params = federated.tree_mean(updates, like=params)
        if test is not None:
            losses.append(float(loss(params, test)))
            report(f"round {number}: test loss {losses[-1]:.4f}")
    return params, losses


def accuracy(params, test):
    return float(jnp.mean(jnp.argmax(logits(params, test["images"]), 1) == test["labels"]))


def main():
    parser = argparse.ArgumentParser(description="Federated averaging on digits.")
    parser.add_argument("--clients", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=40)
    arguments = parser.parse_args()

    data, images, labels = load_clients(arguments.clients)
    test = {"images": images, "labels": labels}
    report = print if jax.process_index() == 0 else lambda text: None
    sizes = [len(d) for d in data.values()]
    report(f"{len(data)} clients with {min(sizes)} to {max(sizes)} examples on {jax.process_count()} ranks")
    params, _ = train(data, arguments.rounds, report=report, test=test)
    report(f"test accuracy {accuracy(params, test):.1%}")


if __name__ == "__main__":
    main()
