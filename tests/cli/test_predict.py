"""``mpijax predict``: the model by hand, the imagined ranks, and what the command prints."""

import json
import math
import subprocess
import sys
import time

import numpy as np
import pytest
from launching import PATHS, UNDER_LAUNCHER

import mpijax as jax
import mpijax.experimental
from mpijax import numpy as jnp
from mpijax.cli import launcher, measure, predict
from mpijax.cli.loggp import Cost, LogGP, Network, RankGroup
from mpijax.cli.predicted import Clock, _PredictedExchange, _PredictedProgram
from mpijax.core.rules.lowering import Exchange
from mpijax.sharding import Mesh, NamedSharding
from mpijax.sharding import PartitionSpec as P

WITHIN, BETWEEN = LogGP(L=2e-6, o=1e-6, G=1e-9), LogGP(L=10e-6, o=3e-6, G=5e-9)
ROWS = [{"operation": "allreduce", "bytes": b, "us": us} for b, us in ((16, 8.0), (1600, 32.0))]
BENCH = {"loggp": {"L_us": 2.0, "o_us": 1.0, "G_ns": 1.0}, "rows": ROWS, "ranks": [{}, {}]}


# ---------------------------------------------------------------- the model


@pytest.mark.parametrize(
    ("exchange", "group", "nbytes", "sending", "waiting"),
    [
        (Exchange.ALLREDUCE, RankGroup(1), 100, 0, 0),
        (Exchange.ALLREDUCE, RankGroup(8), 100, 3 * (1 + 0.1), 3 * 3),
        (Exchange.ALLREDUCE, RankGroup(8), 10**6, 6 + 2 * 1000 * 7 / 8, 6 * 3),
        (Exchange.BCAST, RankGroup(5), 100, 3 * 1.1, 9),
        (Exchange.REDUCE_SCATTER, RankGroup(4), 4000, 2 + 3, 6),
        (Exchange.ALLGATHER, RankGroup(4), 1000, 2 + 3, 6),
        (Exchange.ALLTOALL, RankGroup(4), 4000, 2 + 4, 6),
        (Exchange.ALLTOALL, RankGroup(4), 4 * 10**6, 3 + 3000, 9),
        (Exchange.SCAN, RankGroup(4), 100, 2 * 1.1, 6),
        (Exchange.BARRIER, RankGroup(4), 0, 2, 6),
        (Exchange.ALLREDUCE, RankGroup(8, nodes=2), 100, 2 * 1.1 + 3.5, 6 + 13),
        (Exchange.ALLGATHER, RankGroup(8, nodes=2), 1000, (2 + 3) + (3 + 20), 6 + 13),
    ],
)
def test_costs_are_those_of_the_rounds(exchange, group, nbytes, sending, waiting):
    found = Network(WITHIN, BETWEEN).collective(exchange, group, nbytes)
    assert (found.sending * 1e6, found.waiting * 1e6) == pytest.approx((sending, waiting))


def test_costs_of_messages():
    network = Network(WITHIN, BETWEEN)
    for far, sends, receives, cost in [
        (False, True, True, Cost(2e-6, 3e-6)), (True, True, False, Cost(8e-6, 0)), (False, False, True, Cost(0, 4e-6)),
    ]:  # fmt: skip
        found = network.message(1000, far, sends, receives)
        assert (found.sending, found.waiting) == pytest.approx((cost.sending, cost.waiting))


def test_the_model_is_scaled_to_what_was_measured():
    network = Network(WITHIN, BETWEEN, ROWS, measured=2)
    for nbytes, us in ((16, 8.0), (1600, 32.0), (1, 8 * 4.001 / 4.016)):
        assert network.collective(Exchange.ALLREDUCE, RankGroup(2), nbytes).total * 1e6 == pytest.approx(us)
    between = network.collective(Exchange.ALLREDUCE, RankGroup(2), 160).total / (4e-6 + 160e-9)
    assert between == pytest.approx(math.sqrt(8 / 4.016 * 32 / 5.6))  # in the middle of the logarithms
    alone = Network(WITHIN, BETWEEN)
    assert network.collective(Exchange.ALLGATHER, RankGroup(2), 16) == alone.collective(Exchange.ALLGATHER, RankGroup(2), 16)
    nodes = [n.collective(Exchange.ALLREDUCE, RankGroup(4, nodes=4), 16) for n in (network, alone)]
    assert nodes[0] == nodes[1]


# ---------------------------------------------------------------- what the model is scaled to


def test_what_is_measured_is_sending_what_was_just_computed():
    sent = []

    def call(x):
        return jax.experimental.io_callback(lambda x: sent.append(float(x)), None, x, ordered=True)

    measure._loop(call)(4, jnp.float32(3))
    assert sent == [3, 4, 5, 6]


def test_what_a_turn_takes_besides_is_subtracted():
    assert measure._fastest(lambda turns: 5e-3, lambda turns: 2e-3, 1e-3) == pytest.approx(3e-3)
    assert 0 < measure._fastest(lambda turns: 2e-3, lambda turns: 3e-3, 1e-3) < 1e-7


# ---------------------------------------------------------------- the clock


def test_an_exchange_beside_computation_is_waited_for_only_where_it_takes_longer():
    for seconds, waited in ((0.05, 0.0), (0.0, 0.04)):
        clock, p = Clock(), _PredictedProgram("p", {})
        clock.begin(p)
        clock.exchange(_PredictedExchange("", "", 0, Cost(0.001, 0.04)), True, lambda: time.sleep(0.01))
        time.sleep(seconds)
        clock.finish()
        clock.end()
        [(computing, sending, waiting)] = p.runs
        assert seconds <= computing < seconds + 0.02 and sending == 0.001
        assert waiting == pytest.approx(waited, abs=0.02) and (waiting == 0) == (waited == 0)


def test_what_watching_an_exchange_costs_is_no_computing(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    def passes(seconds):
        now[0] += seconds

    clock, p = Clock(), _PredictedProgram("p", {})
    clock.plain = 1.0
    clock.begin(p)
    passes(1 + 3)
    exchange = _PredictedExchange("", "", 0, Cost()), False, lambda: passes(100)
    clock.exchange(*exchange)
    passes(2.5)
    clock.after_exchange(*exchange)
    passes(1.5)
    clock.after_exchange(*exchange)  # nothing was computed since the last one
    passes(1.5 + 5)
    clock.end()
    assert p.runs == [[3 + 5, 0, 0]]


def test_finding_the_program_of_a_call_is_computing(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock, p = Clock(), _PredictedProgram("p", {})
    clock.dispatch = 1.0

    def run(seconds):
        now[0] += seconds
        clock.begin(p)
        clock.end()

    clock.called(run)(50.0)  # compiles
    clock.called(run)(5.0)  # Python looks at the shardings of the arguments
    run(7.0)  # found by types alone: what passes before is the user's
    assert [computing for computing, _, _ in p.runs] == [1, 1 + 5, 1]


# ---------------------------------------------------------------- imagined ranks

PROGRAM = """
import numpy as np
import mpijax as jax
import mpijax.experimental
from mpijax import lax, mpi, numpy as jnp
from mpijax.sharding import Mesh, NamedSharding, PartitionSpec as P

n, r = jax.process_count(), jax.process_index()
assert (n, jax.device_count(), [d.id for d in jax.local_devices()]) == (6, 6, [r])
x = np.arange(12, dtype=np.float32) + 1


def same(got, expected):
    np.testing.assert_array_equal(np.asarray(got), np.asarray(expected, np.float32))


@jax.jit
def collectives(x):
    return [
        mpi.allreduce(x, "SUM"), mpi.allreduce(x, "MAX"), mpi.scan(x, "SUM"), mpi.exscan(x, "SUM"), mpi.bcast(x, 1),
        mpi.allgather(x), mpi.alltoall(x.reshape(6, 2)), mpi.reduce_scatter(x.reshape(6, 2), "SUM"),
        mpi.sendrecv(x, x, (r - 1) % n, (r + 1) % n), mpi.recv(x, (r - 1) % n),
    ]


block = x.reshape(6, 2)[r]
for got, expected in zip(collectives(x), [
    6 * x, x, (r + 1) * x, r * x, x, np.tile(x, (6, 1)), np.tile(block, (6, 1)), 6 * block, x, 0 * x,
]):
    same(got, expected)

grid = Mesh(np.array(jax.devices()).reshape(2, 3), ("i", "j"))
place = jax.shard_map(lambda: (lax.axis_index(("j", "i")), lax.psum(1.0, "j")), mesh=grid, in_specs=(), out_specs=P(),
                      check_vma=False)
got, total = jax.jit(place)()
assert int(got) == r % 3 * 2 + r // 3, got
same(total, 3)

mesh = Mesh(np.array(jax.devices()), ("i",))
u = jax.device_put(np.ones((60, 50), np.float32), NamedSharding(mesh, P("i")))


@jax.jit
def heat(u):
    step = lambda _, u: u.at[1:-1].add(0.1 * (u[2:] + u[:-2] - 2 * u[1:-1]))
    return lax.fori_loop(0, 10, step, u), jnp.sum(u)


for _ in range(3):
    u, total = heat(u)
same(total, 3000)
print("rank", r)
"""

alone = pytest.mark.skipif(UNDER_LAUNCHER, reason="starts programs of its own")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "bench.json").write_text(json.dumps(BENCH))
    return tmp_path


def run(folder, *words):
    env = launcher.clean_environment() | {"PYTHONPATH": PATHS}
    command = [sys.executable, "-m", "mpijax", "predict", "--bench", "bench.json", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=folder, timeout=120)


def heat(u):
    return jax.lax.fori_loop(0, 10, lambda _, u: u.at[1:-1].add(0.1 * (u[2:] + u[:-2] - 2 * u[1:-1])), u), jnp.sum(u)


@alone
def test_imagined_ranks(folder):
    done = run(folder, "-n", 6, "--nodes", 3, "--simulate", 1, "--json", "program.py")
    assert done.returncode == 0, done.stderr
    assert "rank 3\n" in done.stderr
    found = json.loads(done.stdout)
    assert (found["ranks"], found["nodes"], found["simulated"]) == (6, 3, [3])
    programs = {p["name"]: p for p in found["programs"]}
    got = programs["heat"]
    assert got["calls"] == 3 and got["rank"] == 3 and [end["rank"] for end in got["by_rank"]] == [3]

    # What rank 3 of 6 sends and holds is what simulated ranks plan.
    mesh = Mesh(np.array(jax.simulate.devices(6, 3)), ("i",))
    shape = jax.ShapeDtypeStruct((60, 50), np.float32, sharding=NamedSharding(mesh, P("i")))
    planned = jax.jit(heat).lower(shape).compile()
    assert got["memory"] == planned.memory_analysis().peak_memory_in_bytes
    assert got["sent"] == planned.cost_analysis()["bytes sent"]

    # Ranks 2 and 3 are on node 1, and rank 4 is on another: one message comes from there and one goes there.
    messages = [x for x in got["exchanges"] if x["operation"] == "ppermute"]
    [total] = [x for x in got["exchanges"] if x["operation"] != "ppermute"]
    assert [(x["bytes"], x["times"]) for x in messages] == [(200, 10), (200, 10)]
    usual = predict._USUAL
    for x in messages:
        assert x["sending"] == pytest.approx(usual.o + 200 * usual.G)
    inside = LogGP(2e-6, 1e-6, 1e-9).rounds(1, 4).total * 8 / 4.016
    assert total["bytes"] == 4 and total["sending"] + total["waiting"] == pytest.approx(
        inside + usual.rounds(2, 8).total, rel=1e-3
    )
    for name in ("sending", "waiting"):
        assert got[name] == pytest.approx(sum(x["times"] * x[name] for x in got["exchanges"]))
    assert got["seconds"] == pytest.approx(got["computing"] + got["sending"] + got["waiting"])


@alone
@pytest.mark.slow  # by default tests above have the model, and the next one has the command
def test_more_work_takes_longer(folder):
    (folder / "work.py").write_text(
        "import numpy as np, mpijax as jax, sys\n"
        "f = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, x: jax.numpy.tanh(x @ x), x))\n"
        "for _ in range(5): f(np.ones((int(sys.argv[1]),) * 2, np.float32))\n"
    )
    seconds = []
    for size in (20, 400):
        [p] = json.loads(run(folder, "-n", 64, "--nodes", 32, "--json", "work.py", size).stdout)["programs"]
        assert p["exchanges"] == [] and p["sending"] == p["waiting"] == 0
        seconds.append(p["fastest"])
    assert seconds[1] > 10 * seconds[0] > 0


@alone
def test_the_table_names_lines_and_assumptions(folder):
    done = run(folder, "-n", 6, "--nodes", 3, "program.py")
    assert done.returncode == 0, done.stderr
    first, head, *rest = done.stdout.splitlines()[1:]
    assert first.startswith("program.py on 6 ranks of 3 nodes, run here as rank")
    assert head.split() == ["program", "calls", "a", "call", "computing", "sending", "waiting", "memory"]
    assert any(row.startswith("heat ") for row in rest) and any("10 x ppermute of 200 B  " in row for row in rest)
    assert rest[-2] == "within a node: bench.json: L 2 µs, o 1 µs, G 1 ns"
    assert rest[-1] == "between nodes: assumed (--network measures it): L 1.2 µs, o 0.3 µs, G 0.08 ns"


@alone
def test_what_cannot_be_imagined_is_an_error(folder):
    (folder / "split.py").write_text("from mpijax import mpi\nmpi.split(0)")
    done = run(folder, "-n", 4, "--simulate", 1, "split.py")
    assert done.returncode == 1 and "mpijax predict runs some of the ranks only, so the program cannot use" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", "3", "program.py"], "each node needs at least 1 rank, got 2 ranks on 3 nodes"),
        (["--simulate", "0", "program.py"], "--simulate and --threads must be at least 1"),
        (["--bench", "program.py", "program.py"], "program.py is not the output of `mpijax bench --json` on several ranks"),
        (["none.py"], "file 'none.py' not found"),
        ([], "expected a program"),
    ],
)
def test_wrong_words(words, said, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    with pytest.raises(SystemExit) as ended:
        predict.main(words)
    assert ended.value.code == 2 and said in " ".join(capsys.readouterr().err.split())
