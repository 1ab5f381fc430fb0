"""``mpijax submit``: write a batch script for a program from the templates in ``launch/``, and submit it.

The script uses this Python's environment, gives each rank its cores, and starts the ranks with the launcher.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from mpijax.cli.launcher import NoLauncher, find_library
from mpijax.core.base.lazy_dataclass import dataclass

_TIME = re.compile(r"(?:(\d+):)?(\d+):(\d\d)")


@dataclass
class Request:
    """The requested job. minutes: of time. program: the script with its arguments."""

    nodes: int
    ranks_per_node: int
    cores_per_rank: int
    minutes: int
    program: list[str]
    queue: str | None = None
    account: str | None = None
    pmi: str = "pmi2"

    @property
    def ranks(self) -> int:
        return self.nodes * self.ranks_per_node

    @property
    def words(self) -> str:
        """The program as a shell command."""
        return shlex.join(self.program)

    @property
    def clock(self) -> str:
        return f"{self.minutes // 60:02d}:{self.minutes % 60:02d}"


def templates() -> Path:
    """The folder of the batch scripts: inside the installed package, or beside it in the sources."""
    installed = Path(__file__).parent / "launch"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "launch"


def render(scheduler: str, request: Request) -> str:
    """The batch script."""
    text = (templates() / f"{scheduler}.sh").read_text()
    for pattern, replacement in _SCHEDULERS[scheduler].replacements(request):
        text, times = re.subn(pattern, lambda _, r=replacement: r, text, flags=re.MULTILINE)  # type: ignore[misc]
        if not times:
            raise ValueError(f"launch/{scheduler}.sh has no {pattern}")
    text = re.sub(r'^source ".*/bin/activate"$', lambda _: _activation(), text, flags=re.MULTILINE)
    lines = text.splitlines()
    lines[1] = f"# Written by mpijax submit; to submit it: {_SCHEDULERS[scheduler].command(request, 'THIS_FILE')}"
    return "\n".join(lines) + "\n"


def _activation() -> str:
    """Shell lines that select this environment's ``python`` and ``mpirun``."""
    if sys.prefix != sys.base_prefix and (Path(sys.prefix) / "bin" / "activate").exists():
        return f"source {shlex.quote(sys.prefix + '/bin/activate')}"
    return f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"


def _slurm(r: Request) -> list[tuple[str, str]]:
    extra = [f"#SBATCH --{k}={v}" for k, v in (("partition", r.queue), ("account", r.account)) if v]
    return [
        (r"--nodes=2$", f"--nodes={r.nodes}"),
        (r"--ntasks-per-node=4$", f"--ntasks-per-node={r.ranks_per_node}"),
        (r"--cpus-per-task=2$", f"--cpus-per-task={r.cores_per_rank}"),
        (r"^#SBATCH --time=.*$", "\n".join([f"#SBATCH --time={r.clock}:00", *extra])),
        (r"MPIJAX_PMI:-pmi2", f"MPIJAX_PMI:-{r.pmi}"),
        (r'python "\$@"$', f"python {r.words}"),
    ]


def _pbs(r: Request) -> list[tuple[str, str]]:
    extra = [f"#PBS -{k} {v}" for k, v in (("q", r.queue), ("A", r.account)) if v]
    select = f"{r.nodes}:ncpus={r.ranks_per_node * r.cores_per_rank}:mpiprocs={r.ranks_per_node}"
    return [
        (r"select=\S+$", f"select={select}:ompthreads={r.cores_per_rank}"),
        (r"^#PBS -l walltime=.*$", "\n".join([f"#PBS -l walltime={r.clock}:00", *extra])),
        (r"NCPUS_PER_RANK:-2", f"NCPUS_PER_RANK:-{r.cores_per_rank}"),
        (r"^# shellcheck disable=SC2086.*\n", ""),
        (r'python "\$\{PROGRAM.*$', f"python {r.words}"),
    ]


def _lsf(r: Request) -> list[tuple[str, str]]:
    extra = [f"#BSUB -{k} {v}" for k, v in (("q", r.queue), ("P", r.account)) if v]
    return [
        (r"^#BSUB -n 8$", f"#BSUB -n {r.ranks}"),
        (r"ptile=4", f"ptile={r.ranks_per_node}"),
        (r"affinity\[core\(2\)\]", f"affinity[core({r.cores_per_rank})]"),
        (r"^#BSUB -W .*$", "\n".join([f"#BSUB -W {r.clock}", *extra])),
        (r"slot:PE=2", f"slot:PE={r.cores_per_rank}"),
        (r"-bind-to core:2", f"-bind-to core:{r.cores_per_rank}"),
        (r"^# shellcheck disable=SC2086.*\n", ""),
        (r'python "\$\{PROGRAM.*$', f"python {r.words}"),
    ]


def _flux(r: Request) -> list[tuple[str, str]]:
    pmix = " -o pmi=pmix" if r.pmi == "pmix" else ""
    return [
        (r"RANKS:-8", f"RANKS:-{r.ranks}"),
        (r"CORES:-2", f"CORES:-{r.cores_per_rank}"),
        (r"-o exit-timeout=10s", f"-o exit-timeout=10s{pmix}"),
        (r'python "\$@"$', f"python {r.words}"),
    ]


def _flux_command(r: Request, script: str) -> str:
    options = [f"--nodes={r.nodes}", f"--nslots={r.ranks}", f"--cores-per-slot={r.cores_per_rank}"]
    options += [f"--time-limit={r.minutes}m"]
    options += [f"--{k}={v}" for k, v in (("queue", r.queue), ("bank", r.account)) if v]
    return shlex.join(["flux", "batch", *options, script])


@dataclass(frozen=True)
class _Scheduler:
    replacements: Callable[[Request], list[tuple[str, str]]]
    command: Callable[[Request, str], str]  # the shell command that submits a file


_SCHEDULERS = {
    "slurm": _Scheduler(_slurm, lambda _, script: f"sbatch {script}"),
    "pbs": _Scheduler(_pbs, lambda _, script: f"qsub {script}"),
    "lsf": _Scheduler(_lsf, lambda _, script: f"bsub < {script}"),
    "flux": _Scheduler(_flux, _flux_command),
}
_NEEDED = {"slurm": "sbatch", "pbs": "qsub", "lsf": "bsub", "flux": "flux"}


def minutes(text: str) -> int:
    """Minutes of ``90``, ``30:00`` (minutes and seconds) or ``1:30:00``, rounded up."""
    if text.isdigit() and int(text):
        return int(text)
    parts = _TIME.fullmatch(text)
    found = -(-sum(int(p or 0) * s for p, s in zip(parts.groups(), (3600, 60, 1), strict=True)) // 60) if parts else 0
    if not found:
        raise argparse.ArgumentTypeError(f"expected a time such as 90 (minutes), 30:00 or 1:30:00, got {text!r}")
    return found


def positive(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number of at least 1, got {text!r}")
    return int(text)


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="mpijax submit", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    p.add_argument("--scheduler", choices=tuple(_SCHEDULERS), required=True, help="scheduler of the cluster")
    p.add_argument("--nodes", type=positive, required=True, help="number of nodes")
    p.add_argument("--ranks-per-node", type=positive, required=True, help="ranks on each node")
    p.add_argument("--cores-per-rank", type=positive, default=1, help="cores, and threads, per rank (default: 1)")
    p.add_argument("--time", type=minutes, default=30, help="time limit in minutes, or as H:MM:SS (default: 30)")
    p.add_argument("--queue", help="partition or queue")
    p.add_argument("--account", help="account, project or bank")
    p.add_argument("--dry-run", action="store_true", help="print the script instead of submitting it")
    p.add_argument("script", help="the program")
    p.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    return p


def main(arguments: list[str]) -> int:
    """Print or submit the script; 1 if the scheduler's command is missing, else its status."""
    p = parser()
    o = p.parse_args(arguments)
    if not Path(o.script).is_file():
        p.error(f"file {o.script!r} not found")
    request = Request(
        o.nodes, o.ranks_per_node, o.cores_per_rank, o.time, [o.script, *o.arguments], o.queue, o.account, _pmi()
    )
    script = render(o.scheduler, request)
    if o.dry_run:
        print(script, end="")
        return 0
    needed = _NEEDED[o.scheduler]
    if shutil.which(needed) is None:
        print(
            f"mpijax submit: command {needed} not found. Run this on a login node of the cluster, or write the script "
            "with --dry-run and submit it there",
            file=sys.stderr,
        )
        return 1
    with tempfile.NamedTemporaryFile("w", prefix="mpijax-", suffix=".sh") as file:
        file.write(script)
        file.flush()
        command = _SCHEDULERS[o.scheduler].command(request, shlex.quote(file.name))
        return subprocess.run(command, shell=True).returncode


def _pmi() -> str:
    """The PMI protocol that the library uses with srun."""
    try:
        return "pmix" if find_library().family == "openmpi" else "pmi2"
    except NoLauncher:
        return "pmi2"
