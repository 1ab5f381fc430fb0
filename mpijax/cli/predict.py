"""``mpijax predict --ranks 1024 --nodes 32 script.py``: predict time and memory on ranks that you do not have.

The program runs here as some of these ranks, side by side, one per core. Each computes its own part, and treats the
other ranks as copies of itself: nothing is sent. The LogGP model, with parameters measured by `mpijax bench`, gives the
time of exchanges. A row of the table is a compiled program on the slowest of these ranks: the time of a call, split
into computing, sending (the rank is busy with messages) and waiting for messages; and its memory.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from mpijax.cli import bench, cores
from mpijax.cli.launcher import NoLauncher, clean_environment
from mpijax.cli.loggp import LogGP, Network
from mpijax.cli.predicted import STARTER
from mpijax.cli.run import PROGRAM, split_program, without_interpreter
from mpijax.cli.scratch import scratch
from mpijax.core.base.units import amount, duration

_VALUED = ("-n", "-np", "--np", "--ranks", "--nodes", "--bench", "--network", "--simulate", "--threads")
# The default between nodes, without --network: a network with remote memory access and 100 Gbit/s.
_USUAL = LogGP(L=1.2e-6, o=0.3e-6, G=0.08e-9)
_ROW = "{:20} {:>7} {:>9} {:>10} {:>9} {:>9} {:>9}"
# Bytes of the exchanges measured here; the model is scaled between them.
_SIZES = "16,256,1K,4K,16K,64K,256K,1M,4M,16M"
# Maximum exchanges shown for a program.
_SHOWN = 5


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="mpijax predict", description=__doc__, usage=f"mpijax predict [options] {PROGRAM}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    names = ("-n", "-np", "--np", "--ranks")
    p.add_argument(*names, dest="ranks", type=int, default=2, help="number of ranks (default: 2)")
    p.add_argument(
        "--nodes", type=int, default=1, help="number of nodes, with the same number of ranks on each (default: 1)"
    )
    p.add_argument(
        "--simulate",
        type=int,
        help="number of ranks that run here at once (default: as many as a node has, at most one per core)",
    )
    p.add_argument("--threads", type=int, help="threads of each rank (default: its share of the cores of this machine)")
    p.add_argument(
        "--bench", type=Path, metavar="FILE", help="output of `mpijax bench --json` on one node (default: measure here)"
    )
    p.add_argument(
        "--network", type=Path, metavar="FILE", help="output of `mpijax bench --json` on ranks of different nodes"
    )
    p.add_argument("--json", action="store_true", help="print JSON; the output of the program goes to standard error")
    p.add_argument("--as-jax", action="store_true", help="`import jax` in the program imports mpijax (mpijax.as_jax)")
    return p


def main(arguments: list[str]) -> int:
    """Return the exit status of the program; 2 for wrong arguments, 1 if nothing could be measured."""
    p = parser()
    given, program = split_program(arguments, _VALUED)
    options, program = p.parse_args(given), without_interpreter(program)
    if not program:
        p.error(f"expected a program: {PROGRAM}")
    if not program[0].startswith("-") and not Path(program[0]).is_file():
        p.error(f"file {program[0]!r} not found; use -m to run a module")
    if options.nodes < 1 or options.ranks < options.nodes:
        p.error(f"each node needs at least 1 rank, got {options.ranks} ranks on {options.nodes} nodes")
    if (options.simulate is not None and options.simulate < 1) or (options.threads is not None and options.threads < 1):
        p.error("--simulate and --threads must be at least 1")
    try:
        network, said = _network(options, p)
    except NoLauncher as error:
        print(f"mpijax predict: {error}", file=sys.stderr)
        return 1
    status, found = _simulated(options, program, network)
    if status == 0:
        result = merged(found, options.ranks, options.nodes) | network.as_data() | {"parameters": said}
        print(json.dumps(result, indent=2) if options.json else text_of(" ".join(program), result))
    return status


def _network(options: argparse.Namespace, p: argparse.ArgumentParser) -> tuple[Network, list[str]]:
    """The model of this machine, and the sources of its parameters."""
    within = _read(options.bench, p) if options.bench else None
    said = [f"within a node: {options.bench}"] if options.bench else []
    if within is None:
        ranks = max(2, min(-(-options.ranks // options.nodes), len(cores.physical())))
        names, sizes = list(bench.OPERATIONS), bench.sizes(_SIZES)
        within = bench.measured(ranks, names, sizes, 0.02)
        assert within is not None  # this process is not a rank
        said.append(f"within a node: measured here, on {ranks} ranks")
    between = _read(options.network, p) if options.network else None
    far = _USUAL if between is None else _model(between)
    if options.nodes > 1:
        said.append(f"between nodes: {'assumed (--network measures it)' if between is None else options.network}")
    return Network(_model(within), far, within["rows"], len(within["ranks"])), said


def _read(file: Path, p: argparse.ArgumentParser) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
        _model(found), [(r["operation"], r["bytes"], r["us"]) for r in found["rows"]], len(found["ranks"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        p.error(f"{file} is not the output of `mpijax bench --json` on several ranks: {error!r}")
    return found


def _model(found: dict[str, Any]) -> LogGP:
    model = found["loggp"]
    return LogGP(model["L_us"] * 1e-6, model["o_us"] * 1e-6, model["G_ns"] * 1e-9)


def _simulated(
    options: argparse.Namespace, program: list[str], network: Network
) -> tuple[int, list[tuple[int, list[dict[str, Any]]]]]:
    """(status, (rank, programs) of each rank run here). Ranks are spread over the job; only the first one prints."""
    data, places = network.as_data(), cores.physical()
    on_node = min(-(-options.ranks // options.nodes), len(places))
    at_once, width = min(on_node, options.simulate or on_node), len(places) // on_node
    threads = options.threads or max(1, min(len(places), int(cores.quota())) // on_node)
    environment = clean_environment() | {"MPIJAX_NUM_THREADS": str(threads)}
    starter = ["-m", "mpijax.as_jax"] if options.as_jax else []
    running = []
    with scratch("predict") as folder:
        for i in range(at_once):
            rank = i * options.ranks // at_once if at_once > 1 else options.ranks // 2
            settings = {
                "ranks": options.ranks, "nodes": options.nodes, "rank": rank, "within": data["within"],
                "between": data["between"], "rows": network.rows, "measured": network.measured,
                "file": str(folder / f"{rank}.json"), "cpus": sum(places[i * width : (i + 1) * width], []),
            }  # fmt: skip
            out = subprocess.DEVNULL if i else sys.stderr.fileno() if options.json else None
            words = [sys.executable, *starter, "-c", STARTER, json.dumps(settings), *program]
            process = subprocess.Popen(words, env=environment, stdout=out, stderr=out if i else None)
            running.append((rank, process, settings["file"]))
        statuses = [process.wait() for _, process, _ in running]
        found = [(rank, json.loads(Path(file).read_text())) for rank, _, file in running if os.path.exists(file)]
    status = next((s for s in statuses if s), 0)
    return status if status >= 0 else 128 - status, found


def merged(found: list[tuple[int, list[dict[str, Any]]]], ranks: int, nodes: int) -> dict[str, Any]:
    """Each program on its slowest rank; the others wait for it.

    A program that the ranks do not share, or compile in another order, is taken from the first rank.
    """
    programs = []
    for i, first in enumerate(found[0][1]):
        same = [(r, ps[i]) for r, ps in found if i < len(ps) and ps[i]["name"] == first["name"]]
        rank, slowest = max(same, key=lambda x: x[1]["computing"] + x[1]["sending"] + x[1]["waiting"])
        whole = slowest["computing"] + slowest["sending"] + slowest["waiting"]
        ends = [
            {"rank": r, "computing": p["computing"], "sending": p["sending"],
             "waiting": whole - p["computing"] - p["sending"]}
            for r, p in same
        ]  # fmt: skip
        memory = max(p["memory"] for _, p in same)
        programs.append({**slowest, "rank": rank, "seconds": whole, "memory": memory, "by_rank": ends})
    return {
        "ranks": ranks, "nodes": nodes, "simulated": [rank for rank, _ in found],
        "seconds": sum(p["seconds"] * p["calls"] for p in programs),
        "memory": max((p["memory"] for p in programs), default=0), "programs": programs,
    }  # fmt: skip


def text_of(what: str, found: dict[str, Any]) -> str:
    """A row for each program that takes at least a hundredth of the time, with its costliest exchanges below."""
    here = f"run here as rank{'s' * (len(found['simulated']) > 1)} {', '.join(map(str, found['simulated']))}"
    lines = [f"{what} on {found['ranks']:,} ranks of {found['nodes']:,} node{'s' * (found['nodes'] > 1)}, {here}"]
    lines.append(_ROW.format("program", "calls", "a call", "computing", "sending", "waiting", "memory"))
    shown = [p for p in found["programs"] if p["seconds"] * p["calls"] * 100 >= found["seconds"]]
    for p in sorted(shown, key=lambda p: -p["seconds"] * p["calls"]):
        times = [duration(p[name] * 1e6) for name in ("seconds", "computing", "sending", "waiting")]
        lines.append(_ROW.format(p["name"], f"{p['calls']:,}", *times, amount(p["memory"])))
        costs = {i: x["times"] * (x["sending"] + x["waiting"]) for i, x in enumerate(p["exchanges"])}
        for i in sorted(costs, key=lambda i: -costs[i])[:_SHOWN]:
            x = p["exchanges"][i]
            what = f"{x['times']:,.0f} x {x['operation']} of {amount(x['bytes'])}"
            lines.append(f"  {duration(costs[i] * 1e6):>9} in {what}  {x['line']}")
    total = duration(found["seconds"] * 1e6)
    lines.append(f"all programs: {total}; at most {amount(found['memory'])} of memory per rank")
    for text, name in zip(found["parameters"], ("within", "between"), strict=False):
        model = found[name]
        numbers = f"L {model['L'] * 1e6:.3g} µs, o {model['o'] * 1e6:.3g} µs, G {model['G'] * 1e9:.3g} ns"
        lines.append(f"{text}: {numbers}")
    return "\n".join(lines)
