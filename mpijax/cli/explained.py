"""One rank of ``mpijax explain``: runs the program and writes down what it compiled.

The words of the command line are FOLDER, PAGES, and those of the program. FOLDER gets `RANK.json`: the `explanation` of
each compiled program, with its name. If PAGES is 1, rank 0 adds the program's page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mpijax.aliasing import program
from mpijax.cli import rank
from mpijax.compiler.steps.plan import Plan
from mpijax.runtime.program import loader
from mpijax.runtime.program.explain import explanation
from mpijax.runtime.program.program_page import ProgramPage

# What Python runs. It is no module, because the program takes the place of the module `__main__`.
STARTER = "from mpijax.cli.explained import main; raise SystemExit(main())"


def main() -> int:
    """The exit status of the program."""
    folder, with_pages, number = Path(sys.argv[1]), sys.argv[2] == "1", rank.given_rank()
    sys.argv[1:] = sys.argv[3:]
    found: list[dict[str, Any]] = []

    def note(plan: Plan, name: str) -> None:
        page = {"page": ProgramPage(plan, name).html} if with_pages and number == "0" else {}
        found.append({"name": name, **explanation(plan), **page})

    loader.watchers.append(note)
    try:
        return program.main()
    finally:
        loader.watchers.remove(note)
        if folder.is_dir():  # on the machine that asked
            (folder / f"{number}.json").write_text(json.dumps({"rank": int(number), "programs": found}))
