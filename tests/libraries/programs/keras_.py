"""Keras 3 on its JAX backend: a convolutional network by compile/fit/evaluate, and a recurrent one with attention."""

import os

os.environ["KERAS_BACKEND"] = "jax"

import keras
import numpy as np


def run():
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(64, 8, 8, 1)).astype("float32")
    y = (x.mean((1, 2, 3)) > 0).astype("int32")
    model = keras.Sequential([
        keras.Input((8, 8, 1)), keras.layers.Conv2D(8, 3, activation="relu"), keras.layers.BatchNormalization(),
        keras.layers.MaxPooling2D(), keras.layers.Flatten(), keras.layers.Dense(16, activation="gelu"),
        keras.layers.Dense(2),
    ])  # fmt: skip
    model.compile(
        optimizer=keras.optimizers.Adam(1e-2), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )  # fmt: skip
    history = model.fit(x, y, batch_size=16, epochs=3, verbose=0, shuffle=False)
    evaluated = model.evaluate(x, y, verbose=0)

    tokens = keras.Input((10,), dtype="int32")
    h = keras.layers.Embedding(20, 8)(tokens)
    h = keras.layers.Bidirectional(keras.layers.LSTM(6, return_sequences=True))(h)
    h = keras.layers.MultiHeadAttention(2, 4)(h, h)
    h = keras.layers.GRU(5)(keras.layers.LayerNormalization()(h))
    sequence = keras.Model(tokens, keras.layers.Dense(1)(h))
    sequence.compile("rmsprop", "mse")
    ids = rng.integers(0, 20, (32, 10))
    fitted = sequence.fit(ids, ids.mean(1), batch_size=16, epochs=2, verbose=0, shuffle=False)
    return {
        "loss": history.history["loss"], "evaluated": evaluated, "predicted": model.predict(x[:2], verbose=0),
        "sequence": fitted.history["loss"], "backend": float(keras.backend.backend() == "jax"),
    }  # fmt: skip
