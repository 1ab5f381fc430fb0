"""`mpijax.federated`: clients of unequal sizes on any number of ranks, against plain loops and JAX."""

import itertools

import numpy as np
import pytest
from mpi4py import MPI
from oracle import THEIRS as theirs
from spmd.ranks import SIZE, whole

import mpijax as jax
from mpijax import federated
from mpijax import numpy as jnp

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # clients are drawn by key, whatever the number
RANK = jax.process_index()
SIZES = {"a": 7, "b": 1, "c": 0, "d": 12, "e": 5, "f": 5}


def clients():
    """{client: (tree, weight)}, the same on every rank."""
    rng = np.random.default_rng(0)
    return {
        c: ({"w": rng.normal(size=(3, 2)).astype(np.float32), "n": [rng.integers(0, 9, 4)]}, n)
        for c, n in SIZES.items()
    }


def of_this_rank(pairs):
    mine = federated.clients_of_rank(SIZES)
    return [pair for client, pair in pairs.items() if client in mine]


def test_each_client_has_one_rank_and_the_loads_are_even():
    rng = np.random.default_rng(1)
    for ranks, number in itertools.product((1, 2, 3, 5), (0, 1, 4, 40)):
        sizes = {c: int(n) for c, n in enumerate(rng.integers(0, 100, number))}
        parts = [federated.clients_of_rank(sizes, rank, ranks) for rank in range(ranks)]
        assert sorted(c for part in parts for c in part) == list(sizes)
        loads = [sum(sizes[c] for c in part) for part in parts]
        assert max(loads) - min(loads) <= max(sizes.values(), default=0)
    assert federated.clients_of_rank(SIZES) == federated.clients_of_rank(SIZES, RANK, SIZE)
    with pytest.raises(ValueError, match="between 0 and 1"):
        federated.clients_of_rank(SIZES, 2, 2)


def test_the_mean_goes_over_the_clients_of_all_ranks():
    pairs = clients()
    mean = federated.tree_mean(of_this_rank(pairs), like=pairs["a"][0])
    total = sum(SIZES.values())
    for name, leaf in (("w", mean["w"]), ("n", mean["n"][0])):
        rows = [(np.asarray(tree[name] if name == "w" else tree[name][0], np.float64), n) for tree, n in pairs.values()]
        np.testing.assert_allclose(leaf, sum(x * n for x, n in rows) / total, rtol=1e-6)
        assert leaf.dtype == np.float32
    summed = federated.tree_sum([tree["w"] for tree, _ in of_this_rank(pairs)], like=pairs["a"][0]["w"])
    np.testing.assert_allclose(summed, sum(tree["w"].astype(np.float64) for tree, _ in pairs.values()), rtol=1e-5)


def test_ranks_without_clients():
    x = jnp.arange(3.0)
    mine = [(x, 2), (x + 3, 4)] if RANK == 0 else []
    np.testing.assert_allclose(federated.tree_mean(iter(mine), like=x), np.arange(3) + 2, rtol=1e-6)
    np.testing.assert_array_equal(federated.tree_mean([(x, 0.0)]), np.zeros(3))
    if SIZE > 1:
        with pytest.raises(ValueError, match=r"ranks \[1.*\] have no clients. .*like=params"):
            federated.tree_mean(mine)
    with pytest.raises(ValueError, match=r"have no clients"):
        federated.tree_mean([])


def test_an_error_on_one_rank_is_raised_on_all():
    x = jnp.ones(2)
    with pytest.raises(ValueError, match=f"rank {SIZE - 1}: ValueError: weights must not be negative"):
        federated.tree_mean([(x, -1.0 if RANK == SIZE - 1 else 1.0)])

    def failing():
        yield x
        if RANK == 0:
            raise KeyError("data of client 3")
        yield x

    with pytest.raises(ValueError, match="rank 0: KeyError: 'data of client 3'"):
        federated.tree_sum(failing())
    if SIZE > 1:
        with pytest.raises(ValueError, match="differ in shapes or dtypes"):
            federated.tree_mean([(jnp.ones(2 + RANK), 1)])


def test_clients_are_drawn_by_key_the_same_everywhere():
    names = list(SIZES)
    drawn = federated.sample_clients(jax.random.key(3), names, 4)
    ids = [client for client, _ in drawn]
    assert len(set(ids)) == 4 and set(ids) <= set(names)
    everywhere = MPI.COMM_WORLD.allgather([(c, jax.random.key_data(k).tolist()) for c, k in drawn])
    assert everywhere == [everywhere[0]] * SIZE
    drawing, keys = theirs.random.split(theirs.random.key(3))
    want = theirs.random.choice(drawing, 6, (4,), replace=False)
    assert ids == [names[n] for n in want]
    own = theirs.random.key_data(theirs.random.split(keys, 6))
    for client, key in federated.sample_clients(jax.random.key(3), names, 6):
        np.testing.assert_array_equal(jax.random.key_data(key), own[names.index(client)])
    often = [c for n in range(300) for c, _ in federated.sample_clients(jax.random.key(n), names, 2)]
    counts = [often.count(name) for name in names]
    assert min(counts) > 60 and max(counts) < 140  # 100 each, five standard deviations
    with pytest.raises(ValueError, match="num_clients"):
        federated.sample_clients(jax.random.key(0), names, 7)


def test_work_for_clients_is_fedjaxs_loop():
    """Counts of the numbers above a limit, the example of FedJAX's documentation."""
    def init(shared, mine):
        return {"limit": shared["limit"], "count": mine["start"]}

    def step(state, batch):
        number = jnp.sum(batch["x"] > state["limit"])
        return {"limit": state["limit"], "count": state["count"] + number}, {"num": number}

    run = federated.for_each_client(init, step, lambda shared, state: state["count"], with_step_result=True)
    work = [
        ("cid0", [{"x": np.array([1, 2, 3, 4])}, {"x": np.array([1, 2, 3])}], {"start": 2}),
        ("cid1", [{"x": np.array([1, 2])}, {"x": np.array([1, 2, 3, 4, 5])}], {"start": 0}),
        ("empty", [], {"start": 5}),
    ]
    found = [(c, int(out), [int(r["num"]) for r in results]) for c, out, results in run({"limit": 2}, iter(work))]
    assert found == [("cid0", 5, [2, 1]), ("cid1", 3, [0, 3]), ("empty", 5, [])]
    plain = federated.for_each_client(init, lambda state, batch: step(state, batch)[0])
    assert [(c, int(state["count"])) for c, state in plain({"limit": 2}, work)] == [(c, n) for c, n, _ in found]


def test_batches_have_every_example_once_in_each_epoch():
    x = np.arange(22).reshape(11, 2)
    data = federated.ClientDataset({"x": x, "y": x[:, 0] // 2})
    assert len(data) == 11 and data.all_examples()["x"] is data.raw_examples["x"]
    assert [len(b["y"]) for b in data.batch(4)] == [4, 4, 3]
    found = list(data.shuffle_repeat_batch(4, jax.random.key(2), num_epochs=2))
    assert [len(b["y"]) for b in found] == [4, 4, 3] * 2
    epochs = [np.concatenate([b["y"] for b in found[i : i + 3]]) for i in (0, 3)]
    keys = theirs.random.split(theirs.random.key(2), 2)
    for epoch, key in zip(epochs, keys, strict=True):
        np.testing.assert_array_equal(epoch, theirs.random.permutation(key, 11))
    for batch in found:
        np.testing.assert_array_equal(batch["x"], x[batch["y"]])
    assert list(federated.ClientDataset({"x": np.zeros((0, 3))}).batch(2)) == []
    for wrong, text in (({"x": x, "y": x[:3]}, "one row for each example"), ({}, "one row"), ({"x": 3}, "one row")):
        with pytest.raises(ValueError, match=text):
            federated.ClientDataset(wrong)
    with pytest.raises(ValueError, match="batch_size"):
        list(data.batch(0))


def test_a_mean_of_arrays_over_ranks_is_refused_or_right():
    """What a client returns belongs to its rank; parameters that all ranks share stay so."""
    x = jnp.ones((2, 2)) * (RANK + 1)
    mean = federated.tree_mean([(x, RANK + 1)])
    want = sum((r + 1) ** 2 for r in range(SIZE)) / sum(r + 1 for r in range(SIZE))
    np.testing.assert_allclose(whole(mean), np.full((2, 2), want), rtol=1e-6)
