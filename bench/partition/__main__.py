"""Command line of the table of partitioned programs; `python -m bench.partition --help`."""

import argparse
import json
from pathlib import Path

import bench.partition
from bench.case import ROOT
from bench.partition import compile, memory
from bench.partition.program import load_programs
from bench.partition.runner import end_jobs_when_told_to_end, measure, say
from bench.partition.table import summary, text_table


def arguments():
    parser = argparse.ArgumentParser(
        prog="python -m bench.partition",
        description=bench.partition.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--filter", nargs="*", default=(), metavar="WORD", help="programs with a word in their names")
    parser.add_argument("--ranks", type=int, default=4, help="ranks, and devices of JAX (default 4)")
    parser.add_argument("--memory", action="store_true", help="memory of a rank on 2 to 16 simulated ranks instead")
    parser.add_argument("--compile", action="store_true", help="time to compile for a rank, beside one rank, instead")
    parser.add_argument("--list", action="store_true", help="print the names of the programs")
    parser.add_argument("--limit", type=float, default=60, help="seconds a program may take (default 60)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "partition", help="folder of the results")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    programs = load_programs(args.filter)
    if args.list:
        print("\n".join(p.name for p in programs))
        return
    if not programs:
        raise SystemExit(f"no program has one of the words {' '.join(args.filter)}; --list shows all")
    if args.memory:
        print(memory.text_table(map(memory.row, programs)))
        return
    if args.compile:
        print(compile.text_table(compile.row(p, args.ranks) for p in programs))
        return
    end_jobs_when_told_to_end()
    records = measure(programs, args.ranks, args.out, args.limit, say)
    (args.out / ("selection.json" if args.filter else "results.json")).write_text(json.dumps(records, indent=1))
    print(text_table(records), "", *summary(records), sep="\n")


if __name__ == "__main__":
    main()
