"""Command line of the benchmark; `python -m bench --help`."""

import argparse
import datetime
import json
import os
import platform
import re
import sys
from pathlib import Path

import bench
from bench import front, report
from bench.case import ROOT, load_cases
from bench.plot import save_plot
from bench.runner import run
from bench.systems import PEERS_VARIABLE


def arguments():
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=bench.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=f"{PEERS_VARIABLE}=FOLDER names an environment with jax and mpi4jax; default: this one.",
    )
    parser.add_argument(
        "patterns", nargs="*", help="shell patterns of case names; plain words match anywhere"
    )
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument(
        "--rounds", type=int, default=3, help="processes of each system a case gets (default 3)"
    )
    parser.add_argument(
        "--time", type=float, default=570, help="begin no round that would end after so many seconds"
    )
    parser.add_argument(
        "--budget", type=float, default=0.3, help="seconds of timing in one process (default 0.3)"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="folder of the results")
    parser.add_argument(
        "--readme", action="store_true",
        help="write the table of the last results into docs/benchmarks.md, and README's rows and picture",
    )  # fmt: skip
    parser.add_argument(
        "--front", action="store_true", help="write README's rows and picture from the table in docs/benchmarks.md"
    )
    return parser.parse_args()


def machine() -> str:
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        named = re.search(r"model name\s*: (.*)", cpuinfo.read_text())
        model = named[1] if named else model
    today = datetime.date.today().isoformat()
    cores, python = len(os.sched_getaffinity(0)), platform.python_version()
    return f"{model}, {cores} cores (one used by each rank), Python {python}, {today}."


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    args = arguments()
    results_file = args.out / "results.json"
    if args.readme:
        if not results_file.exists():
            raise SystemExit(f"{results_file} is not there yet: run python -m bench first")
        report.write_page(json.loads(results_file.read_text()))
    if args.readme or args.front:
        front.write()
        return
    cases = load_cases(args.patterns)
    if args.list:
        print("\n".join(case.name for case in cases))
        return
    if not cases:
        raise SystemExit(f"no case matches {' '.join(args.patterns)}; python -m bench --list shows all")
    results = {"machine": machine(), "rows": run(cases, args.rounds, args.time, args.budget, say)}
    args.out.mkdir(parents=True, exist_ok=True)
    # A selection leaves the table of a complete run alone.
    name = "selection" if args.patterns else "results"
    (args.out / f"{name}.json").write_text(json.dumps(results, indent=1))
    (args.out / f"{name}.md").write_text(report.markdown(results))
    problem = save_plot(results["rows"], args.out / f"{name}.png")
    print(report.text_table(results["rows"]), *report.summary(results["rows"]), problem or "", sep="\n")


if __name__ == "__main__":
    main()
