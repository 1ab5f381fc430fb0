"""The documentation site: every page can be reached, every public name is described, and Sphinx builds it without a
warning."""

import html
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zlib
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

import docstrings
import pytest
from launching import check_script

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS / "site"))
import api  # noqa: E402
import build  # noqa: E402
import rst  # noqa: E402

TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```", re.MULTILINE | re.DOTALL)


def reached(page: Path) -> set[Path]:
    """The pages below a page in the navigation."""
    found = set()
    for tree in TOCTREE.findall(page.read_text()):
        entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
        found |= {page.parent / f"{entry.rpartition('<')[2].removesuffix('>')}.md" for entry in entries}
    return found


def test_every_page_is_in_the_navigation():
    pages = reached(DOCS / "index.md")
    made = {DOCS / "api" / "index.md", *(DOCS / name for name in build.OUTSIDE.values())}
    assert made <= pages
    assert pages - made == set(DOCS.rglob("*.md")) - {DOCS / "index.md"}


def test_pages_of_most_interest_are_one_click_from_the_start():
    page = (DOCS / "index.md").read_text()
    for name in ("get-started", "first-steps", "checkpoints", "profiling", "cluster-recipes", "libraries", "api/index"):
        assert f"({name}.md)" in page
    assert "docs/index.md" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize(
    "code", re.findall(r"^```bash\n(.*?)^```", (DOCS / "cluster-recipes.md").read_text(), re.M | re.S)
)
def test_batch_files_of_the_recipes_are_scripts(code, tmp_path):
    assert code.startswith("#!/bin/bash\n")
    script = tmp_path / "job.sh"
    script.write_text(code)
    check_script(script)


# ---------------------------------------------------------------------------------------------- the API reference


@pytest.fixture(scope="module")
def reference():
    return api.pages()


def described(pages: dict[str, str]) -> set[str]:
    """The full names that the reference describes."""
    found = set()
    for page, text in pages.items():
        module = re.search(r"^\.\. py:(?:current)?module:: (\S+)$", text, re.MULTILINE)
        for name in re.findall(r"^\.\. py:(?!currentmodule|module)\w+:: ([\w.]+)", text, re.MULTILINE):
            assert module, page
            found.add(f"{module[1]}.{name}")
    return found


def test_every_module_has_a_page_below_one_heading(reference):
    listed = re.findall(r"<(mpijax[\w.]*)>$", reference["api/index.md"], re.MULTILINE)
    assert sorted(listed) == sorted(docstrings.MODULES)
    assert {f"api/{module}.rst" for module in docstrings.MODULES} | {"api/index.md"} == set(reference)


def test_every_public_function_of_the_coverage_list_is_described(reference):
    """Functions and classes of JAX that mpijax has, there or, where a module only imports them, in another one."""
    pytest.importorskip("jax")
    sys.path.insert(0, str(DOCS))
    coverage = importlib.import_module("make_coverage")
    names, lacking = described(reference), []
    anywhere = {name.rpartition(".")[2] for name in names}
    for module in coverage.modules():
        ours = module.replace("jax", "mpijax", 1)
        if ours not in docstrings.MODULES:
            continue
        owner = importlib.import_module(ours)
        for name in coverage.public_names(module):
            value = getattr(owner, name, None)
            if not docstrings._is_ours(value) or not docstrings._shows_something(value):
                continue
            public = name in getattr(owner, "__all__", ())
            if f"{ours}.{name}" not in names and (public or name not in anywhere):
                lacking.append(f"{ours}.{name}")
    assert lacking == []
    assert len(names) > 1700


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The sum of `x` and *y*.", "The sum of ``x`` and \\*y\\*.\n"),
        ("See `sort`s.", "See :py:obj:`sort <m.sort>`\\ s.\n"),
        ("See `m.sort`.", "See :py:obj:`m.sort <m.sort>`.\n"),
        (
            "Args:\n  x: array,\n    of floats.\n  y: other.",
            "**Arguments**\n\n- ``x``: array, of floats.\n- ``y``: other.\n",
        ),
        ("Returns:\n  (q, r): two arrays.", "**Returns**\n\n- (q, r): two arrays.\n"),
        (">>> f(1)\n2", ".. code-block:: pycon\n\n   >>> f(1)\n   2\n"),
        ("    a = 1", ".. code-block:: text\n\n   a = 1\n"),
        ("- one\n- two\n  lines", "- one\n- two lines\n"),
        ("An odd ` mark_", "An odd \\` mark\\_\n"),
    ],
)
def test_docstrings_become_restructured_text(text, expected):
    assert rst.of_docstring(text, "m", {"m.sort"}) == expected


def test_signatures_are_what_one_writes():
    address = object()

    def f(self, a, /, b: int = 1, *rest, key=len, missing=address, **more): ...

    assert api.signature(f) == "(a, /, b=1, *rest, key=len, missing=..., **more)"
    assert api.signature(lambda *, x: x) == "(*, x)"
    assert api.signature(3) == "(...)"


def test_links_lead_to_pages_of_the_site():
    linked = set()
    text = "[a](../CHANGELOG.md#x) [b](../examples/cg.py) [c](communication.md)\n```python\nx[0](y.md)\n```\n[d](https://e.org)"
    shown = build.with_links(text, "docs/page.md", linked)
    assert shown.splitlines()[0] == "[a](changelog.md#x) [b](files/examples/cg.py.md) [c](communication.md)"
    assert "x[0](y.md)" in shown and "[d](https://e.org)" in shown
    assert linked == {"CHANGELOG.md", "examples/cg.py", "docs/communication.md"}
    assert "](../changelog.md)" in build.with_links("[a](../../CHANGELOG.md)", "docs/tutorials/page.md", linked)


# --------------------------------------------------------------------------------------------------- the whole site


class _Page(HTMLParser):
    """The anchors of a page, and what it links to."""

    def __init__(self, text: str):
        super().__init__()
        self.anchors, self.links = set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        self.links |= {given[name] for name in ("href", "src") if given.get(name)}


def inventory(site: Path) -> set[str]:
    """The names in the site's index for other projects, which the search uses as well."""
    content = (site / "objects.inv").read_bytes().split(b"\n", 4)[4]
    return {line.split(" ")[0] for line in zlib.decompress(content).decode().splitlines() if " py:" in line}


@pytest.fixture(scope="module")
def site():
    """The folder of the site, built by Sphinx with warnings as errors."""
    for package in ("sphinx", "myst_parser", "furo", "sphinx_copybutton"):
        pytest.importorskip(package)
    built = subprocess.run([sys.executable, DOCS / "site" / "build.py"], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return ROOT / "build" / "site"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_site_builds_and_its_links_lead_somewhere(reference, site):
    assert described(reference) <= inventory(site)
    assert (site / "searchindex.js").stat().st_size > 100_000

    pages = {page: _Page(page.read_text()) for page in site.rglob("*.html")}
    documents = [page.relative_to(DOCS).with_suffix(".html") for page in DOCS.rglob("*.md")]
    assert [str(page) for page in documents if site / page not in pages] == []
    broken = []
    for page, parsed in pages.items():
        for link in parsed.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            anchor = unquote(parts.fragment)
            if not target.exists() or (anchor and target in pages and anchor not in pages[target].anchors):
                broken.append(f"{page.relative_to(site)}: {link}")
    assert broken == []


# Shows a page of the site in a frame of a given width, and writes down what is wrong with it.
LOOK = """<!doctype html><body><pre id="found">not loaded</pre><script>
const asked = new URLSearchParams(location.search), frame = document.createElement("iframe");
frame.style = `border: 0; width: ${asked.get("width")}px; height: 900px`;
frame.onload = async () => {
  const page = frame.contentDocument, images = [...page.images];
  images.forEach(image => { image.loading = "eager"; });
  await Promise.all(images.map(image => image.decode().catch(() => null)));
  const broken = images.filter(image => !image.naturalWidth).map(image => image.src);
  const root = page.scrollingElement, hidden = e => frame.contentWindow.getComputedStyle(e).overflowX !== "visible";
  const clipped = e => { for (let p = e.parentElement; p && p !== page.body; p = p.parentElement) if (hidden(p)) return true; };
  const wide = [...page.querySelectorAll("article *")]
    .filter(e => e.getBoundingClientRect().right > root.clientWidth + 1 && !clipped(e)).map(e => e.outerHTML.slice(0, 80));
  const found = {width: root.clientWidth, scrolls: root.scrollWidth - root.clientWidth, wide, broken,
                 images: images.length, text: page.querySelector("h1").textContent};
  document.getElementById("found").textContent = JSON.stringify(found);
};
frame.src = asked.get("page");
document.body.append(frame);
</script>"""
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class _Server(SimpleHTTPRequestHandler):
    """The site on the loopback, with the page that looks at the others."""

    def do_GET(self):
        if not self.path.startswith("/look?"):
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(LOOK.encode())

    def log_message(self, *_):
        pass


def look(folder: Path, page: str, width: int, home: Path) -> dict:
    """What the browser finds on a page of a folder, in a window of `width` pixels."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Server, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/look?width={width}&page=/{page}.html"
        words = ["--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width + 100},1000", "--dump-dom"]
        shown = subprocess.run(
            [BROWSER, *words, "--virtual-time-budget=20000", url],
            capture_output=True, text=True, timeout=120, env=os.environ | {"HOME": str(home)},
        )  # fmt: skip
        server.shutdown()
    return json.loads(html.unescape(re.search(r'<pre id="found">(.*?)</pre>', shown.stdout, re.S)[1]))


seen = pytest.mark.skipif(BROWSER is None, reason="needs Chromium")


@seen
@pytest.mark.slow
def test_the_browser_finds_what_is_too_wide_and_images_that_are_not_there(tmp_path):
    head = '<!doctype html><meta name="viewport" content="width=device-width"><h1>A page</h1><article>'
    (tmp_path / "bad.html").write_text(f'{head}<p style="width: 700px">wide</p><img src="missing.png">')
    (tmp_path / "good.html").write_text(f'{head}<div style="overflow: auto"><p style="width: 700px">wide</p></div>')
    bad, good = (look(tmp_path, page, 390, tmp_path) for page in ("bad", "good"))
    assert bad["scrolls"] > 300 and bad["wide"] == ['<p style="width: 700px">wide</p>']
    assert [url.rpartition("/")[2] for url in bad["broken"]] == ["missing.png"]
    assert (good["scrolls"], good["wide"], good["broken"], good["text"]) == (0, [], [], "A page")
    assert look(tmp_path, "bad", 1280, tmp_path)["scrolls"] == 0


@seen
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("width", [390, 1280])  # of a phone, of a desktop
@pytest.mark.parametrize("page", ["index", "profiling", "api/mpijax.numpy"])
def test_pages_fit_their_window_and_their_images_are_there(site, page, width, tmp_path):
    found = look(site, page, width, tmp_path)
    assert found["text"] and width - 30 < found["width"] <= width
    assert (found["scrolls"], found["wide"], found["broken"]) == (0, [], [])
    assert found["images"] or page != "index"
