"""packaging/ and .github/workflows: they parse, and name the packages, versions and targets that there are."""

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from launching import check_script

ROOT = Path(__file__).parents[2]
PACKAGING = ROOT / "packaging"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def dependencies() -> dict[str, str]:
    """{name: oldest version} of what mpijax needs at run time, as setup.py has it."""
    for node in ast.walk(ast.parse((ROOT / "setup.py").read_text())):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DEPENDENCIES":
            return dict(entry.split(">=") for entry in ast.literal_eval(node.value))
    raise AssertionError("setup.py has no DEPENDENCIES")


def version() -> str:
    return re.search(r'^__version__ = "(.*)"', (ROOT / "mpijax" / "version.py").read_text(), re.MULTILINE)[1]


def conda_recipe() -> dict:
    """meta.yaml with its variables filled in."""
    text = (PACKAGING / "conda" / "meta.yaml").read_text()
    values = dict(re.findall(r'\{% set (\w+) = "(.*?)" %\}', text))
    text = re.sub(r"\{%.*?%\}", "", text)
    return yaml.safe_load(re.sub(r"\{\{ (.*?) \}\}", lambda m: values.get(m[1], "filled_in"), text))


def test_conda_recipe_names_what_setup_names():
    recipe = conda_recipe()
    assert recipe["package"] == {"name": "mpijax", "version": version()}
    needed = {f"{name} >={oldest}" for name, oldest in dependencies().items()}
    assert needed <= set(recipe["requirements"]["run"])
    build = PROJECT["build-system"]["requires"]
    wanted = {re.sub(r">=", " >=", name) for name in build if not name.startswith("mpich")}
    assert wanted <= set(recipe["requirements"]["host"])
    assert (PACKAGING / "conda" / recipe["source"]["path"] / "setup.py").resolve() == ROOT / "setup.py"
    variants = yaml.safe_load((PACKAGING / "conda" / "conda_build_config.yaml").read_text())
    assert variants == {"mpi": ["mpich", "openmpi"]}


def test_conda_forges_linter_wants_what_only_a_release_has():
    """Where conda-forge's conda-smithy is installed, which PyPI does not have."""
    linter = pytest.importorskip("conda_smithy.lint_recipe")
    wishes, hints = linter.main(str(PACKAGING / "conda"), conda_forge=False, return_hints=True)
    later = ("The home item is expected in the about section", "The recipe could do with some maintainers listed")
    assert [wish for wish in wishes if not wish.startswith(later)] == hints == []


def test_spack_recipe_names_what_setup_names():
    tree = ast.parse((PACKAGING / "spack" / "package.py").read_text())
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "depends_on"]
    named = {call.args[0].value for call in calls}
    assert {f"py-{name.replace('_', '-')}@{oldest}:" for name, oldest in dependencies().items()} <= named
    assert {"mpi", "c"} <= named
    supported = [c.rsplit(" ", 1)[1] for c in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    assert f"python@{supported[0]}:{supported[-1]}" in named


def test_apptainer_definition_has_sections_that_are_scripts(tmp_path):
    text = (PACKAGING / "apptainer.def").read_text()
    header, *rest = re.split(r"^%(\w+)\n", text, flags=re.MULTILINE)
    sections = dict(zip(rest[::2], rest[1::2]))
    assert re.search(r"^Bootstrap: docker\nFrom: python:3\.\d+-slim$", header, re.MULTILINE)
    assert set(sections) == {"files", "post", "environment", "runscript", "test", "labels", "help"}
    for name in ("post", "environment", "runscript", "test"):
        script = tmp_path / name
        script.write_text(f"#!/bin/sh\n{sections[name]}")
        check_script(script)


def test_modulefile_is_for_this_version():
    """Its calls are those of Lmod, its parentheses and strings are closed."""
    text = (PACKAGING / "modulefile.lua").read_text()
    assert f'"/apps/mpijax/{version()}"' in text and f"Version: {version()}" in text
    code = re.sub(r'\[\[[^\]]*\]\]|"[^"\n]*"|--.*', "", text)
    assert '"' not in code and code.count("(") == code.count(")")
    calls = set(re.findall(r"^(\w+)\(", code, re.MULTILINE))
    assert calls == {"help", "whatis", "depends_on", "conflict", "prepend_path", "setenv"}


@pytest.mark.skipif(shutil.which("luacheck") is None, reason="needs luacheck: apt install lua-check")
def test_luacheck_finds_nothing_in_the_modulefile():
    names = ["help", "whatis", "depends_on", "conflict", "prepend_path", "setenv", "pathJoin"]
    command = ["luacheck", "--no-config", "--no-color", str(PACKAGING / "modulefile.lua"), "--read-globals", *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("file", WORKFLOWS, ids=[file.stem for file in WORKFLOWS])
def test_workflow_is_a_list_of_jobs_with_steps(file):
    workflow = yaml.safe_load(file.read_text())
    assert workflow[True] and workflow["permissions"] == {"contents": "read"}  # YAML reads `on` as true
    for name, job in workflow["jobs"].items():
        assert job["runs-on"], name
        for step in job["steps"]:
            assert len({"uses", "run"} & set(step)) == 1, f"{name}: a step has one of uses and run"
            assert "uses" not in step or re.fullmatch(r"[\w-]+/[\w-]+@v[\d.]+", step["uses"])
            for target in re.findall(r"^make (\w[\w-]*)", step.get("run", ""), re.MULTILINE):
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), f"no target {target}"


def test_workflows_run_every_supported_python_with_both_mpis():
    supported = [c.rsplit(" ", 1)[1] for c in PROJECT["project"]["classifiers"] if re.search(r":: 3\.\d+$", c)]
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "test.yml").read_text())["jobs"]
    assert jobs["mpich"]["strategy"]["matrix"]["python"] == supported
    assert jobs["openmpi"]["strategy"]["matrix"]["python"] == supported
    assert {"lint", "docs"} <= set(jobs)
    wheels = PROJECT["tool"]["cibuildwheel"]["build"]
    assert wheels == [f"cp{python.replace('.', '')}-*" for python in supported]


def test_every_file_of_packaging_is_in_its_page():
    page = (PACKAGING / "README.md").read_text()
    files = [file for file in PACKAGING.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    left = {file.name for file in files if f"({file.relative_to(PACKAGING)})" not in page}
    assert left == {"README.md", "conda_build_config.yaml"}
