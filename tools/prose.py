"""Looks for phrases that readers stumble over, in documentation, docstrings and texts of errors and warnings.

    python tools/prose.py [FILES]     the phrases that are found; status 1 if there are any
    python tools/prose.py --rules     the phrases, and what to write instead

docs/style-guide.md says how to write. Code blocks are not read.
"""

from __future__ import annotations

import ast
import itertools
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

# Phrase (a regular expression): what to write instead.
RULES = {
    r"(is|are|was|were|be|been|being) told\b(?! apart| by| otherwise)": "say who logs, raises or prints what",
    r"\btold of\b": "say who logs, raises or prints what",
    r"\bof which there (is|are)\b": "begin a new sentence: There are ...",
    r"\bin vain\b": "say what is wasted, or what never comes",
    r"\b(?<!after )that which\b": "what, or name the thing",
    r"\bthat there (is|are)\b(?! (an?|not?|none|one|two|several|nothing|any|ceil)\b)": "name the thing",
    r"\b(?<!for )those that there are\b": "name them",
    r"\bwhat there is\b": "name the thing",
    r"\bone of before\b": "an earlier one",
    r"(?<!there )\bis no (error|record|folder|list|rank|key|array|file|number|function)\b": "is not a ...",
    r"(?<!there )\bis no (callable|mesh|axis|command|name)\b": "is not a ...",
    r"(?<!there )\bare no (errors|records|ranks|keys|arrays|files|numbers|names)\b": "are not ...",
    r"\bknows? no\b(?! more)": "does not have, or does not know",
    r"\bthe more so\b": "leave it out",
    r"\bnor (is|are|does|do|has|have|can)\b": "a new sentence with not",
    r"\bgoes? by (that|it)\b": "relies on it",
    r"\bwithout (more|further) ado\b": "leave it out",
    r"\bas far as (that|it) is known\b": "if known",
    r"\ban axis more\b|\baxis more\b": "one more axis",
    r"\bto the last bit\b": "bit by bit, or identical",
    r"\bas happens by itself\b": "the default",
    r"\bwhat (it|this) gains\b": "the gain",
    r"\bserve for all else\b": "are for everything else",
    r"\bin place of which\b": "begin a new sentence",
    r"\bby means of\b": "by, or with",
    r"\bin order to\b": "to",
    r"\butili[sz]es?\b": "use",
}
# Files that quote the phrases.
LEFT_OUT = {
    "docs/style-guide.md": "has the phrases in its table",
    "docs/coverage.md": "is written by docs/make_coverage.py",
    "tools/prose.py": "has the rules",
}
_PATTERNS = [(re.compile(rule, re.IGNORECASE), advice) for rule, advice in RULES.items()]


def _literally(rule: str) -> Iterator[str]:
    """The texts that a rule is about, without what must stand before or after them."""
    rule = re.sub(r"\(\?<?!(?:[^()]|\([^()]*\))*\)|\\b", "", rule)
    pieces = re.split(r"(\([^()]*\)|\[\w+\]|\w\?)", rule)
    choices = [
        piece[1:-1].split("|") if piece.startswith("(") else list(piece[1:-1]) if piece.startswith("[")
        else [piece[0], ""] if piece.endswith("?") else [piece]
        for piece in pieces
    ]  # fmt: skip
    for chosen in itertools.product(*choices):
        yield from "".join(chosen).split("|")


# A text without any of these has no phrase.
_PHRASES = sorted({text for rule in RULES for text in _literally(rule)})
assert all(re.fullmatch("[a-z ]{5,}", text) for text in _PHRASES), _PHRASES
# Between two pieces of one string.
_JOINT = re.compile(r"""["']\s*(?:#[^\n]*\n\s*)*[rf]{0,2}["']|\\\n""", re.IGNORECASE)
_RAISING = re.compile(r"(Error|Warning|warn|warn_user|say|Finding|NoLauncher|Unsupported|error|Missing)$")


class Text(NamedTuple):
    """A piece of prose. `line`: of its beginning."""

    file: Path
    line: int
    text: str


def of_markdown(file: Path) -> Iterator[Text]:
    """Paragraphs, without code blocks and code in lines."""
    blocks = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    source = blocks.sub(lambda m: "\n" * m[0].count("\n"), file.read_text())
    source = re.sub(r"^(    |\t).*$", "", source, flags=re.MULTILINE)
    for paragraph in re.finditer(r"(?:^.+\n?)+", source, re.MULTILINE):
        yield Text(file, source.count("\n", 0, paragraph.start()) + 1, re.sub(r"`[^`]*`", "`x`", paragraph[0]))


def of_python(file: Path) -> Iterator[Text]:
    """Docstrings, and strings in calls that raise, warn or report; nothing of a file that cannot have a phrase."""
    source = file.read_text()
    whole = _JOINT.sub("", source).lower()
    if not any(phrase in whole for phrase in _PHRASES):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield Text(file, node.body[0].lineno, re.sub(r"^\s*>>>.*$", "", text, flags=re.MULTILINE))
        elif isinstance(node, ast.Call) and _RAISING.search(getattr(node.func, "attr", getattr(node.func, "id", ""))):
            for part in ast.walk(node):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield Text(file, part.lineno, part.value)


def files() -> list[Path]:
    found = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    found += [ROOT / "launch" / "README.md", *(ROOT / "mpijax").rglob("*.py")]
    return sorted(f for f in found if f.exists() and str(f.relative_to(ROOT)) not in LEFT_OUT)


def findings(paths: list[Path]) -> list[str]:
    """``file:line: phrase: advice`` of each phrase that is found."""
    found = []
    for path in paths:
        texts = list(of_markdown(path) if path.suffix == ".md" else of_python(path))
        together = "\0".join(text.text for text in texts)  # most files have no phrase at all
        patterns = [(pattern, advice) for pattern, advice in _PATTERNS if pattern.search(together)]
        for text in texts:
            for pattern, advice in patterns:
                for match in pattern.finditer(text.text):
                    line = text.line + text.text.count("\n", 0, match.start())
                    shown = " ".join(match[0].split())
                    found.append(f"{path.relative_to(ROOT)}:{line}: {shown!r}: {advice}")
    return found


def main(arguments: list[str]) -> int:
    if arguments == ["--rules"]:
        print("\n".join(f"{rule}\n    -> {advice}" for rule, advice in RULES.items()))
        return 0
    found = findings([Path(a).resolve() for a in arguments] or files())
    print("\n".join(found) or "no phrase to change")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
