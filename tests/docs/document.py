"""Run the Python blocks of a Markdown file, one after the other in one namespace.

    python tests/docs/document.py docs/how-it-works.md             compare what they print with the text blocks
    python tests/docs/document.py --renew docs/how-it-works.md     write what they print into the text blocks
    python tests/docs/document.py --each docs/*.md                 compare each in a process of its own; results as JSON
    python tests/docs/document.py --each --in FOLDER docs/*.md     the same, each in a folder of its own, FOLDER/PAGE

A block marked `text` right after a Python block holds its output.
"""

import argparse
import contextlib
import io
import json
import os
import re
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def run(path: Path) -> tuple[list[str], str]:
    """What differs from the file's text blocks, and the file with the true output in them."""
    source = path.read_text()
    namespace: dict = {"__name__": path.stem}
    differences, pieces, done, printed = [], [], 0, None
    for block in BLOCK.finditer(source):
        language, body = block.groups()
        line = source.count("\n", 0, block.start()) + 1
        if language == "python":
            if printed:
                differences.append(f"{path.name}:{line}: output that no text block holds:\n{printed}")
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile("\n" * line + body, path.name, "exec"), namespace)
            printed = stripped(output.getvalue())
        elif language == "text" and printed is not None:
            if printed != stripped(body):
                differences.append(f"{path.name}:{line}: printed\n{printed}\n--- the document says\n{body}")
            pieces += [source[done : block.start()], f"```text\n{printed}\n```"]
            done, printed = block.end(), None
    return differences, "".join(pieces) + source[done:]


def stripped(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines())


def each(files: list[Path], folder: Path | None = None) -> None:
    """Run each file in a copy of this process, which has loaded mpijax; print {file: [exit status, what it says]}.

    folder: has a folder for each file, with the file's name without its suffix, in which it runs.
    """
    import mpijax.mpi  # noqa: F401

    if any("import matplotlib.pyplot" in file.read_text() for file in files):
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot
    outcomes = {}
    for file in files:
        with tempfile.TemporaryFile("w+") as said:
            copy = os.fork()
            if copy == 0:
                os.dup2(said.fileno(), 1)
                os.dup2(said.fileno(), 2)
                if folder is not None:
                    os.chdir(folder / file.stem)
                sys.exit("\n\n".join(run(file)[0]) or 0)
            status = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
            said.seek(0)
            outcomes[str(file)] = status, said.read()
    print(json.dumps(outcomes))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--renew", action="store_true")
    parser.add_argument("--each", action="store_true")
    parser.add_argument("--in", dest="folder", type=Path)
    arguments = parser.parse_args()
    if arguments.each:
        sys.exit(each(arguments.files, arguments.folder))
    found = []
    for file in arguments.files:
        differences, renewed = run(file)
        if arguments.renew:
            file.write_text(renewed)
        else:
            found += differences
    sys.exit("\n\n".join(found) or 0)
