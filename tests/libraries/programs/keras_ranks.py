"""Keras with DataParallel: the weights on all ranks, each batch split over them; `predict` gives each rank all rows."""

import jax
import keras
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec


class Network(keras.Sequential):
    def predict_step(self, state, data):
        outputs, state = super().predict_step(state, data)
        mesh = keras.distribution.distribution().device_mesh.backend_mesh
        return jax.lax.with_sharding_constraint(outputs, NamedSharding(mesh, PartitionSpec())), state


def run():
    keras.utils.set_random_seed(0)
    devices = keras.distribution.list_devices()
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices, auto_shard_dataset=False))
    model = Network([
        keras.layers.Input((4,)), keras.layers.Dense(8, activation="tanh"), keras.layers.LayerNormalization(),
        keras.layers.Dense(1),
    ])  # fmt: skip
    model.compile(optimizer="adam", loss="mse")
    x = np.random.default_rng(0).normal(size=(64, 4)).astype("float32")
    # Of each batch of 16 rows this rank gives its part, as `auto_shard_dataset=False` asks for.
    rank, ranks = jax.process_index(), jax.process_count()
    part = 16 // ranks
    mine = x.reshape(4, 16, 4)[:, rank * part : (rank + 1) * part].reshape(-1, 4)
    y = mine.sum(1, keepdims=True)
    history = model.fit(mine, y, batch_size=part, epochs=4, verbose=0, shuffle=False)
    loss = model.evaluate(mine, y, batch_size=part, verbose=0)
    predicted = model.predict(mine, batch_size=part, verbose=0)
    keras.distribution.set_distribution(None)
    return {
        "losses": history.history["loss"], "loss": loss, "weights": np.asarray(model.weights[0]),
        "predicted": predicted,
    }  # fmt: skip
