"""Jraph: a graph network on a batch of padded graphs, and its gradient."""

import jax
import jax.numpy as jnp
import jraph
import numpy as np


def graph(seed, nodes, edges):
    rng = np.random.default_rng(seed)
    return jraph.GraphsTuple(
        nodes=rng.normal(size=(nodes, 4)).astype("float32"), edges=rng.normal(size=(edges, 3)).astype("float32"),
        senders=rng.integers(0, nodes, edges), receivers=rng.integers(0, nodes, edges),
        n_node=np.array([nodes]), n_edge=np.array([edges]), globals=np.ones((1, 2), "float32"),
    )  # fmt: skip


def run():
    batch = jraph.pad_with_graphs(jraph.batch_np([graph(s, 4 + s, 7 + s) for s in range(3)]), 20, 30, 5)
    keys = jax.random.split(jax.random.key(0), 3)
    weights = {
        "edge": jax.random.normal(keys[0], (3 + 4 + 4 + 2, 3)), "node": jax.random.normal(keys[1], (4 + 3 + 3 + 2, 4)),
        "global": jax.random.normal(keys[2], (4 + 3 + 2, 2)),
    }  # fmt: skip

    def loss(w):
        join = lambda name: lambda *parts: jnp.tanh(jnp.concatenate(parts, 1) @ w[name])
        net = jraph.GraphNetwork(join("edge"), join("node"), join("global"))
        out = net(net(batch))
        mask = jraph.get_graph_padding_mask(batch)
        return jnp.sum(jnp.where(mask[:, None], out.globals, 0) ** 2), out.globals

    (value, out), grads = jax.jit(jax.value_and_grad(loss, has_aux=True))(weights)
    gat = jraph.GAT(
        lambda n: n @ weights["node"][:4], lambda s, r, e: jax.nn.leaky_relu((s + r).sum(-1, keepdims=True))
    )(batch._replace(edges=None))
    softmax = jraph.segment_softmax(jnp.arange(6.0), jnp.array([0, 0, 1, 1, 1, 2]), 3)
    return {"value": value, "out": out, "gradient": grads["edge"], "gat": gat.nodes[:3], "softmax": softmax}
