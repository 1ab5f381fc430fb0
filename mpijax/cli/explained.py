"""One rank of ``mpijax explain``: runs the program and records what it compiled.

The arguments are FOLDER, PAGES, and the program's command line. It writes `RANK.json` into FOLDER: the `explanation` of
each compiled program, with its name. If PAGES is 1, rank 0 adds the program's page.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from mpijax.aliasing import program
from mpijax.cli import rank
from mpijax.compiler.steps.plan import ProgramPlan
from mpijax.runtime.program import loader
from mpijax.runtime.program.explain import explanation
from mpijax.runtime.program.program_page import ProgramPage

# The code that Python runs. It is not a module, because the program replaces the module `__main__`.
STARTER = "from mpijax.cli.explained import main; raise SystemExit(main())"


def main() -> int:
    """Run the program and return its exit status."""
    folder, with_pages, number = Path(sys.argv[1]), sys.argv[2] == "1", rank.given_rank()
    sys.argv[1:] = sys.argv[3:]
    found: list[dict[str, Any]] = []

    def note(plan: ProgramPlan, name: str) -> None:
        page = {"page": ProgramPage(plan, name).html} if with_pages and number == "0" else {}
        found.append({"name": name, **explanation(plan), **page})

    loader.watchers.append(note)
    try:
        return program.main()
    finally:
        loader.watchers.remove(note)
        if folder.is_dir():  # on the machine of the command
            (folder / f"{number}.json").write_text(json.dumps({"rank": int(number), "programs": found}))
