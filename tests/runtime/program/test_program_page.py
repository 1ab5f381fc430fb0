"""Pages of compiled programs: what they show, and that nothing in them is HTML but the page's own."""

import base64
import hashlib
import html
import html.parser
import linecache
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from launching import marked, mpirun

import mpijax
from mpijax import numpy as jnp
from mpijax.compiler.steps.plan import ResultPlacement
from mpijax.core.base import units
from mpijax.core.base.source import UNKNOWN
from mpijax.core.sharding.cuts import Cut, even_cut
from mpijax.core.types.avals import ShapedArray
from mpijax.runtime.program.program_page import grid

EVIL = "<script>alert(1)</script>"


def program():
    """A program whose file, function and lines have names that are HTML."""
    name = f"/{EVIL}.py"
    source = f"def f(x):\n    y = J.sin(x @ x)  # {EVIL}\n    return y + J.cos(x)\n"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space = {"J": jnp}
    exec(compile(source, name, "exec"), space)
    space["f"].__name__ = space["f"].__qualname__ = f"f{EVIL}"
    return mpijax.jit(space["f"])


class Elements(html.parser.HTMLParser):
    """The names of elements of a page, in order, with their attributes."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def page():
    return program().graph(jnp.ones((32, 32))).html


def test_only_the_pages_own_script_runs(page):
    elements = Elements(page).found
    assert [tag for tag, _ in elements].count("script") == 1
    [policy] = [a["content"] for tag, a in elements if a.get("http-equiv") == "Content-Security-Policy"]
    script = page[page.index("<script>") + 8 : page.index("</script>")]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert policy == f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    assert not any(name.startswith("on") or name in ("src", "href") for _, attrs in elements for name in attrs)


def test_lines_steps_and_kernels_are_there(page):
    lines = re.findall(r'<tr class="line" data-line="([^"]*)">(.*?)</tr>', page)
    assert [html.unescape(at).rpartition(":")[2] for at, _ in lines] == ["2", "3"]
    assert html.escape(f"y = J.sin(x @ x)  # {EVIL}") in lines[0][1]
    assert 'class="step leaf library"' in page and 'class="step leaf kernel"' in page
    assert "t1 = sin(t0)" in page or "sin(t" in page
    assert page.count("<td>b") == len(program().lower(jnp.ones((32, 32))).compiler_ir().buffers)


def test_a_notebook_shows_it_in_a_frame_of_its_own(page):
    shown = program().lower(jnp.ones((32, 32))).compile().show()._repr_html_()
    [(tag, attributes)] = Elements(shown).found
    assert tag == "iframe" and attributes["sandbox"] == "allow-scripts" and attributes["srcdoc"] == page


def test_it_is_saved(tmp_path, page):
    program().graph(jnp.ones((32, 32))).save(tmp_path / "program.html")
    assert (tmp_path / "program.html").read_text(encoding="utf-8") == page


def test_loops_and_branches_hold_their_steps():
    def f(x):
        return mpijax.lax.fori_loop(0, 5, lambda i, y: mpijax.lax.cond(y.sum() > 0, lambda z: z @ x, lambda z: -z, y), x)

    page = mpijax.jit(f).graph(jnp.ones((64, 64))).html
    loop, branch = page.index("loop 5 times"), page.index("switch b")
    assert loop < branch < page.index("gemm", branch) and "part 1" in page


@pytest.mark.parametrize(("shape", "cuts", "owners", "blocks"), [
    ((8, 6), (even_cut(8, ("a",), 2), None), ["0-2", "3-5"], ["0.0 0.0 120.0 30.0", "0.0 30.0 120.0 30.0"]),
    ((4,), (Cut(("b",), ((0, 1), (1, 1), (1, 4))),), ["0,3", "1,4", "2,5"], ["0.0 0.0 120.0 15.0", "0.0 15.0 120.0 0.0", "0.0 15.0 120.0 45.0"]),
    ((2, 5, 3), (even_cut(2, ("a",), 2), None, even_cut(3, ("b",), 3)), list("012345"), None),
    ((2, 2), (None, None), ["0-5"], ["0.0 0.0 120.0 60.0"]),
    ((), (), ["0-5"], ["0.0 0.0 120.0 60.0"]),
])  # fmt: skip
def test_grids_show_which_rank_has_which_block(shape, cuts, owners, blocks):
    drawn = grid(ResultPlacement(ShapedArray(shape, np.float32), "add", UNKNOWN, (("a", 2), ("b", 3)), cuts))
    assert re.findall(r">([\d,-]*)</text>", drawn) == owners
    found = [" ".join(r) for r in re.findall(r'<rect x="(.*?)" y="(.*?)" width="(.*?)" height="(.*?)"', drawn)]
    assert blocks is None or found == blocks


@pytest.mark.mpi(min_size=2)
def test_where_arrays_lie():
    mesh = mpijax.sharding.Mesh(mpijax.devices(), ("r",))
    n = mpijax.device_count()
    x = mpijax.device_put(jnp.ones((12 * n, 4)), mpijax.sharding.NamedSharding(mesh, mpijax.P("r")))
    page = mpijax.jit(lambda x: jnp.sum((x[1:] - x[:-1]) ** 2)).graph(x).html
    assert "Shards of arrays" in page and "communicate" in page
    placement = page[page.index("Shards of arrays") : page.index("<h2>Steps")]
    assert f"f32[{12 * n - 1},4]" in placement and re.search(r"\d+ B sent|\d kB sent", placement)
    assert {str(r) for r in range(n)} <= set(re.findall(r">(\d+)</text>", placement))


ANOTHER_PROCESS = """
import sys
import mpijax as jax, mpijax.numpy as jnp
mesh = jax.sharding.Mesh(jax.devices(), ("r",))
x = jax.device_put(jnp.ones((24, 4)), jax.sharding.NamedSharding(mesh, jax.P("r")))
f = jax.jit(lambda x: jnp.sum((x[1:] - x[:-1]) ** 2))
f(x).block_until_ready()
if jax.process_index() == 0:
    f.lower(x).compile().show().save(sys.argv[1])
"""


@marked
@pytest.mark.slow  # by default tests/cli/test_explain.py has this on one rank
def test_a_second_process_shows_the_same_page(tmp_path):
    """The program itself then comes from the cache on disk, which keeps no loops and no placements."""
    script, env = tmp_path / "program.py", os.environ | {"MPIJAX_CACHE_DIR": str(tmp_path / "cache")}
    script.write_text(ANOTHER_PROCESS)
    found = []
    for name in ("first.html", "second.html"):
        subprocess.run([*mpirun(2), sys.executable, script, tmp_path / name], env=env, check=True, timeout=120)
        found.append((tmp_path / name).read_text())
        assert list((tmp_path / "cache").glob("*.plan"))
    assert found[0] == found[1] and "Shards of arrays" in found[1] and "for i0 in" in found[1]


@pytest.mark.parametrize(("number", "text"), [(0, "0 B"), (999, "999 B"), (1234, "1.23 kB"), (5.6e6, "5.6 MB"), (7e10, "70 GB"), (999.6e3, "1 MB"), (999.4e3, "999 kB"), (2.5e12, "2.5 TB"), (1.5e16, "15,000 TB")])
def test_amounts_have_units(number, text):
    assert units.amount(number) == text


@pytest.mark.parametrize(("us", "text"), [(0.5, "0.5 µs"), (12.34, "12.3 µs"), (4567, "4.57 ms"), (2e6, "2 s"), (999.7, "1 ms"), (7.2e9, "7,200 s")])
def test_durations_have_units(us, text):
    assert units.duration(us) == text


DOM = """
const element = () => ({ classList: { toggle() {} }, dataset: { line: "a" }, textContent: "a", value: "" });
const one = element(), all = [element(), element()];
globalThis.document = { getElementById: () => one, querySelectorAll: () => all };
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_script_runs(page):
    script = page[page.index("<script>") + 8 : page.index("</script>")]
    subprocess.run(["node", "-e", f"{DOM}{script};all[0].onclick();one.oninput()"], check=True)
