"""``mpijax explain -n 2 script.py``: run a program, and show what each compiled program in it sends, and why.

The table has a row for each communication: the source line, the operation, how often it runs, how many bytes the rank
sends, and how many it receives. Below are the arrays that an operation gathers on every rank, and the annotation that
keeps them split. The table shows the rank that sends most.
"""

from __future__ import annotations

import argparse
import html
import json
import sys
from typing import Any

from mpijax.cli import observed
from mpijax.cli.explained import STARTER
from mpijax.cli.launcher import NoLauncher
from mpijax.core.base import pages
from mpijax.core.base.units import amount
from mpijax.runtime.program.explain import text_of

_PAGE = """<title>mpijax explain</title>
<style>
 body { font: 14px sans-serif; margin: 1em; } pre { background: #f6f6f6; padding: 6px; overflow: auto; }
 summary { cursor: pointer; font-weight: bold; margin: 0.5em 0; }
</style>
<h1>Programs of WHAT</h1>
<p>SUMMARY</p>
PROGRAMS
<script>
document.querySelectorAll("details").forEach((d, i) => { d.open = i === 0; });
</script>
"""


def parser() -> argparse.ArgumentParser:
    return observed.parser("explain", __doc__, "for each program: lines, loops, messages and buffers")


def main(arguments: list[str]) -> int:
    """Return the exit status of the program; 2 for wrong arguments, 1 if there is no launcher."""
    options, program = observed.parsed(parser(), arguments)
    try:
        status, records = observed.observed(options, program, STARTER, str(int(options.html is not None)))
    except NoLauncher as error:
        print(f"mpijax explain: {error}", file=sys.stderr)
        return 1
    found = merged(records)
    if options.html is not None:
        options.html.write_text(_page(" ".join(program), found), encoding="utf-8")
    plain = [{name: x for name, x in p.items() if name != "page"} for p in found]
    print(json.dumps(plain, indent=2) if options.json else _text(plain))
    return status


def merged(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The programs of all ranks, each as on the rank that sends most, in order of compilation.

    A program that was compiled again and sends the same is listed once; `compiled` is the count.
    """
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for record in records:
        met: dict[str, int] = {}
        for p in record["programs"]:
            what = json.dumps([p["name"], [(x["file"], x["line"], x["operation"]) for x in p["lines"] + p["whole"]]])
            key = what, met.setdefault(what, 0)
            met[what] += 1
            known = found.get(key)
            page = p.get("page") or (known or {}).get("page", "")
            if known is None or p["sent"] > known["sent"]:
                known = {**p, "rank": record["rank"], "compiled": 1}
            found[key] = {**known, "page": page}
    listed: dict[tuple[str, float, int], dict[str, Any]] = {}
    for (what, _), p in found.items():
        first = listed.setdefault((what, p["sent"], p["memory"]), p)
        if first is not p:
            first["compiled"] += 1
    return list(listed.values())


def _text(found: list[dict[str, Any]]) -> str:
    """A table for each program that communicates or gathers arrays; the names of the others."""
    busy = [p for p in found if p["lines"] or p["whole"]]
    parts = []
    for p in busy:
        times = f", compiled {p['compiled']} times" if p["compiled"] > 1 else ""
        parts.append(f"program {p['name']}, rank {p['rank']}{times}\n{text_of(p)}")
    quiet = list(dict.fromkeys(p["name"] for p in found if not (p["lines"] or p["whole"])))
    if quiet:
        parts.append(f"programs that send nothing: {', '.join(quiet)}")
    return "\n".join(parts) or "no program was compiled"


def _page(what: str, found: list[dict[str, Any]]) -> str:
    """All programs in one HTML file, those that send most first, each with its page."""
    programs = "".join(
        f"<details><summary>{html.escape(p['name'])}: {amount(p['sent'])} sent, {amount(p['memory'])} of memory"
        f"</summary><pre>{html.escape(text_of(p))}</pre>{pages.frame(p['page'])}</details>"
        for p in sorted(found, key=lambda p: -p["sent"])
    )
    total = amount(sum(p["sent"] for p in found))
    parts = {
        "WHAT": html.escape(what), "PROGRAMS": programs,
        "SUMMARY": f"{len(found)} programs. A rank sends {total} when it runs each of them once.",
    }  # fmt: skip
    return pages.page(_PAGE, parts, framed=[p["page"] for p in found])
