"""Pages whose code runs on any number of ranks: it prints what the page says, and makes the page's picture.

`PYTHONPATH=tests python tests/docs/test_tutorials.py NAME ...` writes output and pictures into the pages, to be looked at
before they are committed.
"""

import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from launching import PATHS, marked, mpirun
from once import computed_once, shared_folder

from mpijax.cli.launcher import clean_environment

ROOT = Path(__file__).resolve().parents[2]
PICTURES = ROOT / "docs" / "images" / "tutorials"
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))
PAGES += [ROOT / "docs" / name for name in ("from-numpy-mpi4py.md", "from-pytorch.md", "gradients.md", "same-bits.md")]
NAMES = [page.stem for page in PAGES]
# Programs that send many messages, or take long: of what they use, other tests run each part on several ranks.
ON_ONE_RANK = tuple(name for name in NAMES if name not in ("mpi4py", "from-numpy-mpi4py"))
# They run programs of examples/, which tests/examples runs with smaller numbers.
OF_EXAMPLES = ("data-parallel", "ocean")
ALONE = [page for page in PAGES if page.stem in ON_ONE_RANK and page.stem not in OF_EXAMPLES]
# On two ranks a page is a job of its own.
JOBS = [pytest.param(page, id=page.stem, marks=pytest.mark.slow if page.stem in ON_ONE_RANK else ()) for page in PAGES]
QUOTED = re.compile(r"^```python file=(\S+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def parts(page: Path, kind: str) -> str:
    return "".join(re.findall(rf"^```{kind}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL))


def run(command: list, folder: Path) -> subprocess.CompletedProcess:
    """A command, in a folder from which `examples` can be reached."""
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(ROOT / "examples")
    environment = clean_environment() | {"PYTHONPATH": PATHS}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=250)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def pictures(page: Path) -> set[str]:
    """The names of the pictures that a page shows."""
    return set(re.findall(r"images/tutorials/(\S+\.png)", page.read_text()))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """By page: its folder, the exit status, and what it said. One process that has loaded all they need is copied for each."""
    folder = shared_folder(tmp_path_factory, "tutorials")

    def compute():
        for page in ALONE:
            (folder / page.stem).mkdir()
        document = ROOT / "tests" / "docs" / "document.py"
        ran = run([sys.executable, document, "--each", "--in", folder, *ALONE], folder)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    return {page: (folder / page.stem, *computed_once(folder, compute)[str(page)]) for page in ALONE}


@pytest.mark.parametrize("page", ALONE, ids=lambda page: page.stem)
def test_prints_what_the_page_says(alone, page):
    folder, status, said = alone[page]
    assert status == 0, said
    assert {picture.name for picture in folder.glob("*.png")} == pictures(page)


@marked
@pytest.mark.parametrize("page", JOBS)
def test_prints_the_same_on_two_ranks(page, tmp_path):
    (tmp_path / "page.py").write_text(parts(page, "python"))
    ran = run([*mpirun(2), sys.executable, "page.py"], tmp_path)
    assert lines(ran.stdout) == lines(parts(page, "text")), ran.stderr
    assert {picture.name for picture in tmp_path.glob("*.png")} == pictures(page)


def test_pictures_are_small_and_used():
    pages = "".join(page.read_text() for page in PAGES)
    for picture in PICTURES.iterdir():
        assert picture.stat().st_size < 60_000, f"{picture.name} is too large"
        assert f"images/tutorials/{picture.name}" in pages, f"no page shows {picture.name}"


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_quoted_code_is_that_of_the_file(page):
    for file, code in QUOTED.findall(page.read_text()):
        assert code in (ROOT / file).read_text(), f"{page.name} quotes {file}, which has other code now"


def renew(names: list[str]) -> None:
    for page in PAGES:
        if page.stem not in names:
            continue
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "examples").symlink_to(ROOT / "examples")
            command = [sys.executable, str(ROOT / "tests" / "docs" / "document.py"), "--renew", str(page)]
            subprocess.run(command, cwd=folder, check=True)
            for picture in Path(folder).glob("*.png"):
                shutil.copy(picture, PICTURES)


if __name__ == "__main__":
    renew(sys.argv[1:] or NAMES)
