"""What `test_threads` runs in a process of its own: many threads, which change places after each instruction.

Prints "done" at its end.
"""

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

import mpijax as jax
import mpijax.numpy as jnp

THREADS = 6
sys.setswitchinterval(1e-6)


def together(work):
    """Run `work(number)` in all threads, which begin at the same time; the first error is raised."""
    barrier = threading.Barrier(THREADS)

    def begin(number):
        barrier.wait(60)
        return work(number)

    with ThreadPoolExecutor(THREADS) as pool:
        return [job.result(120) for job in [pool.submit(begin, k) for k in range(THREADS)]]


def first_calls():
    """The first calls of one function, which all threads compile and remember."""
    for turn in range(12):
        f = jax.jit(lambda x, y, turn=turn: {"sum": x * y + turn, "product": [x, y * turn]})

        def work(number, f=f, turn=turn):
            for size in (3, 4 + number % 2):
                for _ in range(20):
                    got = f(np.float32(2), jnp.full(size, number))
                    np.testing.assert_array_equal(got["sum"], np.full(size, 2 * number + turn))

        together(work)


def static_arguments():
    f = jax.jit(lambda n, x: x * n, static_argnums=0)

    def work(number):
        for n in range(8):
            np.testing.assert_array_equal(f(n, jnp.arange(4)), np.arange(4) * n)
        return number

    together(work)


def caches():
    """Functions are made, traced with new types, forgotten and freed while others are called."""
    shared = jax.jit(lambda x: jnp.sum(x * 2))

    def work(number):
        for turn in range(10):
            own = jax.jit(partial(lambda k, x: x + k, number))
            np.testing.assert_array_equal(own(jnp.ones(turn + 1)), np.full(turn + 1, 1 + number))
            assert float(shared(jnp.ones(turn + 1))) == 2 * (turn + 1)
            del own
            if turn % 4 == number % 4:
                jax.clear_caches()

    together(work)


def transformations():
    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    x = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)
    w = np.linspace(0, 1, 3, dtype=np.float32)
    gradient = jax.jit(jax.grad(loss))
    batched = jax.vmap(gradient, (0, None))
    hidden = np.tanh(x @ w)
    expected = x.T @ (2 * hidden * (1 - hidden**2))

    def work(number):
        for turn in range(4):
            np.testing.assert_allclose(gradient(w, x), expected, rtol=1e-5)
            rows = np.stack([w] * (number % 3 + turn + 1))
            np.testing.assert_allclose(batched(rows, x), np.stack([expected] * len(rows)), rtol=1e-5)
            np.testing.assert_allclose(jax.grad(loss)(w, x), expected, rtol=1e-5)
            total = jax.lax.scan(lambda c, row: (c + row, c), jnp.zeros(3), jnp.asarray(x))[0]
            np.testing.assert_allclose(total, x.sum(0), atol=1e-6)

    together(work)


def arrays():
    """Arrays that all threads read, put, view and delete; trees that all of them change."""
    device = jax.devices()[0]
    shared: dict = {}

    def work(number):
        for turn in range(60):
            x = jax.device_put(np.full(5, turn, np.float32), device)
            shared[f"leaf {number} {turn % 7}"] = x
            shared.pop(f"leaf {(number + 1) % THREADS} {turn % 5}", None)
            jax.tree.map(lambda leaf: leaf + 1, dict(shared))
            jax.tree_util.tree_leaves(shared)
            np.testing.assert_array_equal((x + x)[1:3], np.full(2, 2 * turn, np.float32))
            np.testing.assert_array_equal(np.asarray(x), np.full(5, turn, np.float32))

    together(work)


def deleted_meanwhile():
    """An array that another thread deletes is whole, or an error."""
    f = jax.jit(lambda x: x * 2)

    for _ in range(40):
        x = jnp.ones(20_000)

        def work(number, x=x):
            try:
                for _ in range(3):
                    assert float(f(x)[-1]) == 2
                    assert np.asarray(x)[-1] == 1
                if number == 0:
                    x.delete()
            except RuntimeError as error:
                assert "deleted" in str(error), error

        together(work)


def donated_twice():
    """Of threads that donate one array, the first gets its memory, and the others are told."""
    f = jax.jit(lambda x: x + 1, donate_argnums=0)
    f(jnp.zeros(20_000))
    for _ in range(20):
        x = jnp.zeros(20_000)

        def work(_, x=x):
            try:
                return float(f(x)[0]) == 1
            except RuntimeError as error:
                assert "deleted" in str(error) or "donated" in str(error), error

        assert True in together(work)


def same_program():
    """One program in all threads at once, without the GIL: its temporary memory belongs to each run."""
    f = jax.jit(lambda x: jnp.sort(jnp.cumsum(x @ x, 1), 0).sum(0))
    inputs = [np.random.default_rng(k).normal(size=(70, 70)).astype(np.float32) for k in range(THREADS)]
    expected = [np.sort(np.cumsum(x @ x, 1), 0).sum(0) for x in inputs]

    def work(number):
        for _ in range(10):
            np.testing.assert_allclose(f(inputs[number]), expected[number], rtol=1e-2, atol=1e-2)

    together(work)


def options():
    def work(number):
        for _ in range(10):
            with jax.enable_x64(number % 2 == 0):
                assert jnp.sin(np.arange(3.0)).dtype == (np.float64 if number % 2 == 0 else np.float32)

    together(work)


def first_operation():
    """Nothing has run before: the runtime is loaded by all threads at once."""
    together(lambda number: np.testing.assert_array_equal(jnp.arange(4) + number, np.arange(4) + number))


PARTS = [
    first_operation, first_calls, static_arguments, caches, transformations, arrays, deleted_meanwhile, donated_twice,
    same_program, options,
]  # fmt: skip

if __name__ == "__main__":
    for part in PARTS:
        if not sys.argv[1:] or part.__name__ in sys.argv[1:]:
            part()
            print(part.__name__, flush=True)
    print("done")
