"""Layers of neural networks."""

from bench.partition.modules import jax, jnp
from bench.partition.program import Array, columns, program, rows, whole


@program("nn/Megatron MLP", whole(32, 64), columns(64, 256), rows(256, 64))
def megatron(x, v, w):
    return jax.nn.gelu(x @ v) @ w


@program("nn/Megatron MLP, batch split", Array((64, 64), ("j",)), columns(64, 256), rows(256, 64))
def megatron_2d(x, v, w):
    return jax.nn.gelu(x @ v) @ w


def attend(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / jnp.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)


BATCH = [rows(4, 64, 8, 16)] * 3
HEADS = [Array((4, 64, 8, 16), (None, None, "i"))] * 3
SEQUENCE = [Array((4, 64, 8, 16), (None, "i"))] * 3
TENSOR = 4 * 64 * 8 * 16 * 4


@program("nn/attention, batch", *BATCH)
def attention_batch(q, k, v):
    return attend(q, k, v)


@program("nn/attention, heads", *HEADS)
def attention_heads(q, k, v):
    return attend(q, k, v)


@program("nn/attention, sequence", *SEQUENCE, least=lambda n: 2 * TENSOR * (n - 1) / n)
def attention_sequence(q, k, v):
    return attend(q, k, v)


@program("nn/attention, causal, sequence", *SEQUENCE, least=lambda n: 2 * TENSOR * (n - 1) / n)
def attention_causal(q, k, v):
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k)
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(mask, scores, -1e9), axis=-1), v)


LONG = [Array((1, 2048, 4, 64), (None, "i"))] * 3
LONG_TENSOR = 2048 * 4 * 64 * 4


@program("nn/attention, long sequence", *LONG, least=lambda n: 2 * LONG_TENSOR * (n - 1) / n)
def attention_long(q, k, v):
    return attend(q, k, v)


@program("nn/attention, causal, long sequence", *LONG, least=lambda n: 2 * LONG_TENSOR * (n - 1) / n)
def attention_causal_long(q, k, v):
    return jax.nn.dot_product_attention(q, k, v, is_causal=True)


@program("nn/layernorm", rows(256, 64), whole(64), whole(64))
def layernorm(x, scale, shift):
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) * jax.lax.rsqrt(x.var(axis=-1, keepdims=True) + 1e-6) * scale + shift


@program("nn/layernorm, features split", columns(64, 256), columns(256), columns(256))
def layernorm_features(x, scale, shift):
    return layernorm(x, scale, shift)


@program("nn/softmax", columns(64, 256))
def softmax(x):
    return jax.nn.softmax(x, axis=-1)


@program("nn/embedding, table whole", whole(100, 32), rows(64, drawn=100))
def embedding(table, tokens):
    return table[tokens]


@program("nn/embedding, rows split", rows(128, 32), whole(64, drawn=128), least=lambda n: 2 * 64 * 32 * 4 * (n - 1) / n)
def embedding_rows(table, tokens):
    return table[tokens]


@program("nn/embedding, features split", columns(100, 32), whole(64, drawn=100))
def embedding_features(table, tokens):
    return jnp.take(table, tokens, axis=0)


@program("nn/cross entropy, classes split", columns(64, 128), whole(64, drawn=128))
def cross_entropy(logits, labels):
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], axis=1)
    return -picked.mean()


@program("nn/one_hot", rows(256, drawn=32))
def one_hot(x):
    return jax.nn.one_hot(x, 32)
