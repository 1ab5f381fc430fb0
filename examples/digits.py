"""Train an MLP and a small attention model on scikit-learn's digits, data-parallel over all ranks.

    python examples/digits.py                      one process
    mpirun -n 2 python examples/digits.py          two ranks, half of every batch each

The whole training step is one jitted program. Every rank computes the loss of its shard of the batch, `lax.pmean`
averages the gradient over the ranks inside the step, and Adam updates the parameters, which are the same on every rank.
The loss curve does not depend on the number of ranks. If you replace `mpijax` by `jax`, the file runs on JAX.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.sharding import Mesh
from mpijax.sharding import PartitionSpec as P

CLASSES = 10
TOKENS = 8  # an image of 8x8 pixels is 8 tokens, one for each row
WIDTH = 32
HEADS = 4


# ---------------------------------------------------------------------------------------------------- data


def load_digits():
    """Images and labels for training, images and labels for the test: float32[n, 64] in [0, 1] and int32[n]."""
    from sklearn.datasets import load_digits as load

    images, labels = load(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    images = (images[order] / 16).astype(np.float32)
    labels = labels[order].astype(np.int32)
    split = 360
    return images[split:], labels[split:], images[:split], labels[:split]


def batches(images, labels, size, epochs):
    """The same NumPy arrays on every rank, shuffled again in each epoch. It drops a last partial batch."""
    rng = np.random.default_rng(1)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for start in range(0, len(images) - size + 1, size):
            chosen = order[start : start + size]
            yield images[chosen], labels[chosen]


# -------------------------------------------------------------------------------------------------- models


def dense(key, inputs, outputs):
    """Weights of a linear layer, He-scaled: {"w": float32[inputs, outputs], "b": float32[outputs]}."""
    scale = np.float32(np.sqrt(2 / inputs))
    return {"w": scale * jax.random.normal(key, (inputs, outputs)), "b": jnp.zeros(outputs)}


def linear(layer, x):
    return x @ layer["w"] + layer["b"]


def init_mlp(key):
    sizes = [64, 128, 128, CLASSES]
    keys = jax.random.split(key, len(sizes) - 1)
    return [dense(k, m, n) for k, m, n in zip(keys, sizes[:-1], sizes[1:], strict=True)]


def mlp(params, images):
    """float32[batch, 64] -> logits float32[batch, 10]."""
    *hidden, last = params
    x = images
    for layer in hidden:
        x = jax.nn.relu(linear(layer, x))
    return linear(last, x)


def init_attention(key):
    embed, position, qkv, out, up, down, head = jax.random.split(key, 7)
    return {
        "embed": dense(embed, 64 // TOKENS, WIDTH),
        "position": 0.5 * jax.random.normal(position, (TOKENS, WIDTH)),
        "norm1": {"scale": jnp.ones(WIDTH), "shift": jnp.zeros(WIDTH)},
        "qkv": jax.random.normal(qkv, (WIDTH, 3, HEADS, WIDTH // HEADS)) / np.float32(np.sqrt(WIDTH)),
        "out": dense(out, WIDTH, WIDTH),
        "norm2": {"scale": jnp.ones(WIDTH), "shift": jnp.zeros(WIDTH)},
        "up": dense(up, WIDTH, 4 * WIDTH),
        "down": dense(down, 4 * WIDTH, WIDTH),
        "head": dense(head, TOKENS * WIDTH, CLASSES),
    }


def layer_norm(norm, x):
    mean = jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean((x - mean) ** 2, axis=-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * norm["scale"] + norm["shift"]


def self_attention(params, x):
    """float32[batch, tokens, width] -> the same shape; every token attends to every token, with HEADS heads."""
    q, k, v = jnp.einsum("btw,wchd->cbhtd", x, params["qkv"])
    scores = jnp.einsum("bhtd,bhsd->bhts", q, k) / np.float32(np.sqrt(q.shape[-1]))
    mixed = jnp.einsum("bhts,bhsd->bthd", jax.nn.softmax(scores), v)
    return linear(params["out"], mixed.reshape(x.shape))


def attention(params, images):
    """float32[batch, 64] -> logits float32[batch, 10]."""
    x = linear(params["embed"], images.reshape(-1, TOKENS, 64 // TOKENS)) + params["position"]
    x = x + self_attention(params, layer_norm(params["norm1"], x))
    x = x + linear(params["down"], jax.nn.gelu(linear(params["up"], layer_norm(params["norm2"], x))))
    return linear(params["head"], x.reshape(len(images), -1))


MODELS = {"mlp": (init_mlp, mlp), "attention": (init_attention, attention)}


# ------------------------------------------------------------------------------------------------ training


def cross_entropy(model, params, images, labels):
    """Mean negative log-likelihood of the labels: a float32 scalar."""
    log_probabilities = jax.nn.log_softmax(model(params, images))
    return -jnp.mean(jnp.sum(log_probabilities * jax.nn.one_hot(labels, CLASSES), axis=-1))


def init_state(params):
    """The state that a step takes and returns: parameters, Adam's two moments, and the number of steps."""
    mean, square = jax.tree.map(jnp.zeros_like, params), jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "mean": mean, "square": square, "count": jnp.zeros((), jnp.int32)}


def adam(state, grads, rate=4e-3, decay=(0.9, 0.999), epsilon=1e-6):
    """One step of Adam (Kingma & Ba 2015, algorithm 1) on a state made by `init_state`."""
    a, b = decay
    count = state["count"] + 1
    mean = jax.tree.map(lambda m, g: a * m + (1 - a) * g, state["mean"], grads)
    square = jax.tree.map(lambda s, g: b * s + (1 - b) * g * g, state["square"], grads)
    mean_scale, square_scale = 1 / (1 - a**count), 1 / (1 - b**count)

    def move(p, m, s):
        return p - rate * (m * mean_scale) / (jnp.sqrt(s * square_scale) + epsilon)

    params = jax.tree.map(move, state["params"], mean, square)
    return {"params": params, "mean": mean, "square": square, "count": count}


def make_step(model, mesh):
    """step(state, images, labels) -> (new state, loss of the whole batch), one program for all ranks.

    The state is donated: the new state uses the memory of the old one.
    """

    def step(state, images, labels):
        def loss_of(params):
            # `grad` differentiates the mean over the ranks, too, so it returns the averaged gradient.
            return lax.pmean(cross_entropy(model, params, images, labels), "data")

        loss, grads = jax.value_and_grad(loss_of)(state["params"])
        return adam(state, grads), loss

    sharded = jax.shard_map(step, mesh=mesh, in_specs=(P(), P("data"), P("data")), out_specs=(P(), P()))
    return jax.jit(sharded, donate_argnums=0)


def train(name, data, mesh, epochs, batch, progress):
    """Train one model. Returns the mean loss of each epoch, the test accuracy, and the images per second."""
    init, model = MODELS[name]
    train_images, train_labels, test_images, test_labels = data
    step = make_step(model, mesh)
    state = init_state(init(jax.random.key(0)))
    steps = len(train_images) // batch
    losses, curve = [], []
    start = time.perf_counter()
    for i, (images, labels) in enumerate(batches(train_images, train_labels, batch, epochs), 1):
        state, loss = step(state, images, labels)
        losses.append(loss)
        if i == 1:
            loss.block_until_ready()
            start = time.perf_counter()  # leave out the compilation
        if i % steps == 0:
            curve.append(float(np.mean([float(x) for x in losses])))
            losses.clear()
            progress(name, i // steps, epochs, curve[-1])
    speed = (epochs * steps - 1) * batch / max(time.perf_counter() - start, 1e-9)
    predict = jax.jit(lambda params, images: jnp.argmax(model(params, images), axis=-1))
    predicted = predict(state["params"], test_images)
    return curve, float(np.mean(np.asarray(predicted) == test_labels)), speed


# -------------------------------------------------------------------------------------------------- report


def progress_bar(name, done, total, loss):
    """A progress bar without carriage returns, so that it also works under mpirun and in a log file."""
    if done == 1:
        print(f"{name:>9} [", end="", file=sys.stderr)
    print("#" * (30 * done // total - 30 * (done - 1) // total), end="", file=sys.stderr, flush=True)
    if done == total:
        print(f"] {total} epochs, loss {loss:.4f}", file=sys.stderr, flush=True)


def silent(name, done, total, loss):
    """The progress bar of all ranks except the first: none."""


def save_plot(curves, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
    for name, curve in curves.items():
        axes.semilogy(range(1, len(curve) + 1), curve, label=name)
    axes.set(xlabel="epoch", ylabel="training loss", title="scikit-learn digits")
    axes.legend()
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=["mlp", "attention", "both"], default="both")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--batch", type=int, default=64, help="images per step, over all ranks")
    parser.add_argument("--out", type=Path, default=Path("digits.png"), help="picture of the loss curves")
    parser.add_argument("--curves", type=Path, help="write the loss curves to this file")
    return parser.parse_args()


def main():
    args = arguments()
    mesh = Mesh(np.array(jax.devices()), ("data",))
    first = jax.process_index() == 0
    names = list(MODELS) if args.model == "both" else [args.model]
    data, curves = load_digits(), {}
    for name in names:
        progress = progress_bar if first else silent
        curves[name], accuracy, speed = train(name, data, mesh, args.epochs, args.batch, progress)
        if first:
            print(f"{name}: test accuracy {100 * accuracy:.2f} %, {speed:,.0f} images per second", flush=True)
    if first:
        save_plot(curves, args.out)
        print(f"loss curves: {args.out}")
        if args.curves:
            np.savetxt(args.curves, np.array(list(curves.values())).T, header=" ".join(curves))


if __name__ == "__main__":
    main()
