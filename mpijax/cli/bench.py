"""``mpijax bench``: latency and bandwidth of communication by message size, inside a compiled loop.

The last line has the parameters of the LogGP model: latency L, processor time o per message, and time G per byte.

Times are those of the slowest rank; bandwidth is the bytes of a rank's argument divided by this time. It starts the
ranks itself; under a launcher (``mpirun -n 8 mpijax bench``, ``srun ...``) it measures the ranks of that job.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

from mpijax.cli import cores
from mpijax.cli.launcher import NoLauncher, is_rank
from mpijax.cli.measure import MARK, OPERATIONS
from mpijax.cli.run import Job, run

DEFAULT_SIZES = "16,1K,16K,256K,1M,4M,16M"
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def sizes(text: str) -> list[int]:
    """The sizes in bytes of ``16,1K,4M``."""
    try:
        found = [int(float(p[:-1]) * _UNITS[p[-1]]) if p[-1] in _UNITS else int(p) for p in text.upper().split(",")]
    except (ValueError, IndexError):
        raise argparse.ArgumentTypeError(f"expected sizes such as 16,1K,4M, got {text!r}") from None
    if min(found) < 1:
        raise argparse.ArgumentTypeError("the size of a message must be at least 1 byte")
    return found


def operations(text: str) -> list[str]:
    """Names of operations, separated by commas."""
    unknown = set(text.split(",")) - set(OPERATIONS)
    if unknown:
        raise argparse.ArgumentTypeError(
            f"unknown operations {', '.join(unknown)}. The operations are {', '.join(OPERATIONS)}"
        )
    return text.split(",")


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="mpijax bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    p.add_argument(
        "-n", "-np", "--np", "--ranks", dest="ranks", type=int,
        help="number of ranks (default: one for each core, at least 2)",
    )  # fmt: skip
    p.add_argument("--operations", type=operations, default=list(OPERATIONS), help=f"of {','.join(OPERATIONS)}")
    p.add_argument(
        "--sizes",
        type=sizes,
        default=sizes(DEFAULT_SIZES),
        help=f"sizes of messages in bytes (default: {DEFAULT_SIZES})",
    )
    p.add_argument("--seconds", type=float, default=0.05, help="seconds of measurement for each result (default: 0.05)")
    p.add_argument("--bind", choices=("core", "none"), help="as in mpijax run")
    p.add_argument("--launcher", help="as in mpijax run")
    p.add_argument("--json", action="store_true", help="print JSON instead of a table")
    p.add_argument("--plot", type=Path, metavar="FILE", help="draw the results (needs matplotlib)")
    return p


def main(arguments: list[str]) -> int:
    """Measure and print; 1 if the ranks could not be started or failed."""
    p = parser()
    options = p.parse_args(arguments)
    if options.plot and not _has_matplotlib():
        p.error("--plot needs matplotlib: pip install matplotlib")
    ranks = options.ranks if options.ranks is not None else max(2, len(cores.physical()))
    try:
        found = measured(ranks, options.operations, options.sizes, options.seconds, options.bind, options.launcher)
    except NoLauncher as error:
        print(f"mpijax bench: {error}", file=sys.stderr)
        return 1
    if found is None:  # rank 0 prints
        return 0
    print(json.dumps(found) if options.json else table(found))
    if options.plot:
        plot(found, options.plot)
    return 0


def measured(
    ranks: int, names: list[str], nbytes: list[int], seconds: float, bind: str | None = None,
    launcher: str | None = None,
) -> dict[str, Any] | None:  # fmt: skip
    """The measurements of `cli.measure` on `ranks` ranks. Under a launcher, on its ranks; None on all but the first.
    Raises NoLauncher if ranks cannot be started, or fail."""
    wanted = json.dumps({"operations": names, "sizes": nbytes, "seconds": seconds})
    program = ["-m", "mpijax.cli.measure", wanted]
    output = io.BytesIO()
    if is_rank():
        return _in_place(wanted)
    status = run(Job(program, ranks, bind, None, True, launcher), stdout=output)
    text = output.getvalue().decode(errors="replace")
    for line in text.splitlines():
        _, mark, found = line.partition(MARK)
        if mark:
            return json.loads(found)
    raise NoLauncher(f"the measurement on {ranks} ranks ended with status {status}\n{text}".rstrip())


def _in_place(wanted: str) -> dict[str, Any] | None:
    import contextlib

    from mpijax.cli import measure

    output = io.StringIO()
    sys.argv[1:] = [wanted]
    with contextlib.redirect_stdout(output):
        measure.main()
    return json.loads(output.getvalue().removeprefix(MARK)) if output.getvalue() else None


def table(found: dict[str, Any]) -> str:
    """A block of rows for each operation."""
    nodes = len({r["node"] for r in found["ranks"]})
    lines = [f"{len(found['ranks'])} ranks on {nodes} machine{'s' * (nodes > 1)}, {' '.join(found['library'].split())}"]
    lines.append(f"{'operation':10} {'bytes':>10} {'µs':>12} {'MB/s':>10}")
    for row in found["rows"]:
        us = f"{row['us']:.2f}" if row["us"] < 1000 else f"{row['us']:.0f}"
        lines.append(f"{row['operation']:10} {row['bytes']:10,} {us:>12} {row['MB/s']:10,.0f}")
    if found["loggp"]:
        lines.append("LogGP: L {L_us:.3g} µs, o {o_us:.3g} µs, G {G_ns:.3g} ns".format(**found["loggp"]))
    return "\n".join(lines)


def _has_matplotlib() -> bool:
    import importlib.util

    return importlib.util.find_spec("matplotlib") is not None


def plot(found: dict[str, Any], file: Path) -> None:
    """Plot time and bandwidth over bytes, a line for each operation."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    quantities = (("us", "time, µs"), ("MB/s", "bandwidth, MB/s"))
    for axes, (quantity, title) in zip(figure.subplots(1, 2), quantities, strict=True):
        for name in dict.fromkeys(row["operation"] for row in found["rows"]):
            rows = [row for row in found["rows"] if row["operation"] == name]
            axes.loglog([r["bytes"] for r in rows], [r[quantity] for r in rows], marker="o", label=name)
        axes.set(xlabel="bytes", title=title)
        axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    figure.suptitle(table(found).splitlines()[0])
    figure.savefig(file)
