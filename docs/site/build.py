"""Builds the documentation site from docs/ into build/site. A warning is an error.

    make docs                           in the environment of the Makefile
    python docs/site/build.py           needs the packages of the extra `docs`
    python docs/site/build.py --pages   only writes the pages that Sphinx reads, into build/site-pages

Sphinx reads a copy of docs/ with three additions: the API reference, made from the docstrings; the changelog and other
pages from outside of docs/; and a page for each program or script that a page links to.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import api

ROOT = Path(__file__).resolve().parents[2]
PAGES = ROOT / "build" / "site-pages"
SITE = ROOT / "build" / "site"

# Markdown pages outside of docs/, and where they are on the site.
OUTSIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "launch/README.md": "batch-scripts.md",
    "packaging/README.md": "packaging.md",
}
LANGUAGES = {".py": "python", ".sh": "bash", ".yaml": "yaml+jinja", ".toml": "toml", ".c": "c", ".h": "c"}

_BLOCK = re.compile(r"^(```|~~~).*?^\1$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^()#:\s]+)(#[^()\s]*)?\)")


def page_of(file: str) -> str:
    """Where a file of the repository is on the site."""
    if file in OUTSIDE:
        return OUTSIDE[file]
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    return f"files/{file}.md"


def with_links(text: str, file: str, linked: set[str]) -> str:
    """The page `file` with its links as they are on the site. Adds the files of the repository that it links to."""
    here = page_of(file)

    def replaced(link: re.Match) -> str:
        target = os.path.normpath(os.path.join(os.path.dirname(file), link[1]))
        linked.add(target)
        return f"]({os.path.relpath(page_of(target), os.path.dirname(here) or '.')}{link[2] or ''})"

    pieces, done = [], 0
    for block in _BLOCK.finditer(text):
        pieces += [_LINK.sub(replaced, text[done : block.start()]), block[0]]
        done = block.end()
    return "".join(pieces) + _LINK.sub(replaced, text[done:])


def file_page(file: str) -> str:
    """A page that shows a file of the repository."""
    path = ROOT / file
    if not path.is_file():
        raise SystemExit(f"a page links to {file}, which is not a file of the repository")
    language = LANGUAGES.get(path.suffix, "text")
    return f"---\norphan: true\n---\n\n# `{file}`\n\n~~~~{language}\n{path.read_text().rstrip()}\n~~~~\n"


def write(page: str, text: str) -> None:
    path = PAGES / page
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_pages() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs" / "images", PAGES / "images")
    linked: set[str] = set()
    documents = [str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")]
    for file in [*documents, *OUTSIDE]:
        write(page_of(file), with_links((ROOT / file).read_text(), file, linked))
    for file in linked:
        if page_of(file).startswith("files/"):
            write(page_of(file), file_page(file))
    for page, text in api.pages().items():
        write(page, text)


def without_wrong_links() -> None:
    """Takes out what sphinx.ext.viewcode gets wrong where several modules have names of one file: links from the code
    back to the reference, and entries of the list of files for which it has no page."""
    back = re.compile(r'<a class="viewcode-back".*?</a>', re.DOTALL)
    for page in (SITE / "_modules").rglob("*.html"):
        page.write_text(back.sub("", page.read_text()))
    listed = SITE / "_modules" / "index.html"
    entry = re.compile(r'<li><a href="([^"#]*)">.*?</a></li>')

    def kept(found: re.Match) -> str:
        return found[0] if (listed.parent / found[1]).exists() else ""

    listed.write_text(entry.sub(kept, listed.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pages", action="store_true", help="only write the pages that Sphinx reads")
    arguments = parser.parse_args()
    write_pages()
    if arguments.pages:
        return 0
    shutil.rmtree(SITE, ignore_errors=True)  # viewcode leaves pages as they are where the code has not changed
    options = ["-W", "--keep-going", "-q", "-j", "2", "-b", "html", "-c", str(Path(__file__).parent)]
    built = subprocess.run([sys.executable, "-m", "sphinx", *options, str(PAGES), str(SITE)])
    if built.returncode == 0:
        without_wrong_links()
        print(f"open {SITE.relative_to(ROOT)}/index.html")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
