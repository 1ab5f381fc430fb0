"""Keys, values and barriers outside of MPI: answers as those of JAX's coordination service, clients in threads."""

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mpijax.core.base.errors import JaxRuntimeError
from mpijax.runtime.mpi import coordination
from mpijax.runtime.mpi.key_value import Failure, KeyValueStore

SIZE, SECRET = 3, b"s" * 32


@pytest.fixture(scope="module")
def place():
    listener = socket.create_server(("127.0.0.1", 0))
    service = coordination._serve(listener, SIZE, SECRET)
    threading.Thread(target=asyncio.run, args=(service,), daemon=True).start()
    return listener.getsockname()


@pytest.fixture
def clients(place):
    return [coordination.DistributedClient(*place, SECRET, rank) for rank in range(SIZE)]


def test_keys_are_set_once_unless_asked_otherwise(clients):
    one, two, _ = clients
    one.key_value_set("a/b", "1")
    with pytest.raises(JaxRuntimeError, match="^ALREADY_EXISTS: key a/b already exists"):
        two.key_value_set("a/b", "2")
    two.key_value_set("a/b", "2", allow_overwrite=True)
    assert one.key_value_try_get("a/b") == "2"
    with pytest.raises(JaxRuntimeError, match="^NOT_FOUND: Config key a/c not found"):
        one.key_value_try_get("a/c")
    one.key_value_set("a/d/e", "5")
    one.key_value_set("ax", "6")
    for folder in ("a", "a/"):
        assert two.key_value_dir_get(folder) == [("a/b", "2"), ("a/d/e", "5")]
    two.key_value_delete("a")
    two.key_value_delete("a")
    assert one.key_value_dir_get("a") == [] and one.key_value_try_get("ax") == "6"
    assert [one.key_value_increment("n", by) for by in (2, 3)] == [2, 5]
    assert two.key_value_try_get("n") == "5"


def test_bytes(clients):
    data = bytes(range(256)) * 5000
    clients[0].key_value_set_bytes("bytes/b", data)
    assert clients[1].key_value_try_get_bytes("bytes/b") == data
    assert clients[2].blocking_key_value_get_bytes("bytes/b", 100) == data
    assert clients[1].key_value_dir_get_bytes("bytes") == [("bytes/b", data)]


def test_a_rank_waits_for_a_key(clients):
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(clients[0].blocking_key_value_get, "later", 20000)
        clients[1].key_value_set("other", "1")
        assert not waiting.done()
        clients[2].key_value_set("later", "now")
        assert waiting.result() == "now"
    with pytest.raises(JaxRuntimeError, match=r"^DEADLINE_EXCEEDED: GetKeyValue\(\) timed out with key: never"):
        clients[0].blocking_key_value_get("never", 50)


@pytest.mark.parametrize("ranks", [None, [0, 2]])
def test_barriers_wait_for_all_again_and_again(clients, ranks):
    with ThreadPoolExecutor() as threads:
        for _ in range(3):
            early, last = clients[:-1] if ranks is None else clients[:1], clients[-1]
            waiting = [threads.submit(c.wait_at_barrier, f"meet {ranks}", 20000, ranks) for c in early]
            clients[0].key_value_increment("turns", 1)
            assert not any(w.done() for w in waiting)
            last.wait_at_barrier(f"meet {ranks}", 20000, ranks)
            assert [w.result() for w in waiting] == [None] * len(early)


def test_a_barrier_names_who_did_not_come(clients):
    with pytest.raises(JaxRuntimeError, match=r"^DEADLINE_EXCEEDED: Barrier timed out\. Id: alone\. .*: 0, 2$"):
        clients[1].wait_at_barrier("alone", 50)


def test_participants_agree_who_they_are():
    async def meet():
        store = KeyValueStore(3)
        first = asyncio.create_task(store.barrier("unlike", 0, [0, 1], 1))
        await asyncio.sleep(0)
        with pytest.raises(Failure, match="^INVALID_ARGUMENT: rank 1 passes different participants for barrier unlike"):
            await store.barrier("unlike", 1, [0, 1, 2], 1)
        await store.barrier("unlike", 1, [0, 1], 1)
        await first

    asyncio.run(meet())


def test_a_barrier_that_a_stranger_enters_fails_on_all_ranks(clients):
    refused = r"^INVALID_ARGUMENT: A non-participating task \(rank 1\) called the barrier others of the ranks \[0, 2\]"
    with ThreadPoolExecutor() as threads:
        early = threads.submit(clients[0].wait_at_barrier, "others", 20000, [0, 2])
        for client in (clients[1], clients[2]):  # also on the rank that comes after it
            with pytest.raises(JaxRuntimeError, match=refused):
                client.wait_at_barrier("others", 20000, [0, 2])
        with pytest.raises(JaxRuntimeError, match=refused):
            early.result()


def test_strangers_learn_nothing(place):
    stranger = coordination.DistributedClient(*place, b"x" * 32, 0)
    with pytest.raises(JaxRuntimeError, match="^UNAVAILABLE"):
        stranger.key_value_set("secret", "1")
    with socket.create_connection(place) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\n\r\n" * 3)
        received = b"".join(iter(lambda: connection.recv(1000), b""))
        assert len(received) == coordination._NONCE
    honest = coordination.DistributedClient(*place, SECRET, 0)
    with pytest.raises(JaxRuntimeError, match="^NOT_FOUND"):
        honest.key_value_try_get("secret")


def test_requests_that_are_none(clients):
    with pytest.raises(JaxRuntimeError, match="^UNIMPLEMENTED"):
        clients[0]._ask(do="__init__")
    with pytest.raises(JaxRuntimeError, match="^INVALID_ARGUMENT"):
        clients[0]._ask(do="put", key="a")
