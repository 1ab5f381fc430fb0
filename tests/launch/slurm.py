"""A Slurm of one machine for a test: Debian's slurmctld and slurmd, in a folder, without rights beyond root's."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEEDED = ("slurmctld", "slurmd", "sbatch", "srun", "squeue", "sinfo", "scancel")
PLUGINS = ("/usr/lib/x86_64-linux-gnu/slurm-wlm", "/usr/lib/aarch64-linux-gnu/slurm-wlm")
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MpiDefault=none
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} Sockets=1 CoresPerSocket={cpus} ThreadsPerCore=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing() -> str:
    """Why there can be no Slurm here; '' if there can."""
    absent = [name for name in NEEDED if shutil.which(name, path=_path()) is None]
    if absent:
        return f"there is no {', '.join(absent)} (Debian: apt-get install slurmctld slurmd slurm-client)"
    if os.geteuid() != 0:
        return "slurmd starts jobs with root's rights"
    if not any((Path(folder) / "auth_none.so").exists() for folder in PLUGINS):
        return "this Slurm has no plugin auth/none, and munge is not for a test to start"
    return ""


def _path() -> str:
    return f"{os.environ['PATH']}:/usr/sbin:/sbin"


class Slurm:
    """A running one. `env`: what its commands need."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "PMI", "OMPI_", "MPIJAX_"))}
        self.env |= {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}

    def run(self, *words: str, limit: float = 60, **settings: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            words, env=self.env | settings, cwd=self.folder, capture_output=True, text=True, timeout=limit
        )

    def requeue(self, job: str, limit: float = 60) -> None:
        """Let a batch job that has ended run again; back when it no longer counts as ended.

        Slurm itself waits two minutes before it does. A job that starts in the second of its end is refused (its
        credential counts as revoked), and one that finds its last step's daemon alive talks to that.
        """
        end = time.monotonic() + limit
        while self._daemons_of(job):
            assert time.monotonic() < end, f"the daemons of job {job} did not end within {limit} s"
            time.sleep(0.1)
        for command in (["requeue", job], ["update", f"JobId={job}", "StartTime=now+2"]):
            done = self.run("scontrol", *command)
            assert done.returncode == 0, done.stderr
        while self.run("squeue", "-h", "-j", job, "-t", "PENDING,CONFIGURING,RUNNING").stdout == "":
            assert time.monotonic() < end, f"job {job} was not requeued within {limit} s"
            time.sleep(0.1)

    def _daemons_of(self, job: str) -> list[str]:
        """The titles of the slurmstepd that run steps of a job, on this machine."""
        found = []
        for file in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                title = file.read_bytes().rstrip(b"\0").decode(errors="replace")
            except OSError:  # it has ended meanwhile
                continue
            if title.startswith(f"slurmstepd: [{job}."):
                found.append(title)
        return found

    def output_of(self, job: str, limit: float = 120) -> tuple[str, str]:
        """(state at its end, output) of a batch job."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            told = self.run("scontrol", "show", "job", job).stdout
            state = told.partition("JobState=")[2].split()[0] if "JobState=" in told else ""
            if state not in ("", "PENDING", "RUNNING", "CONFIGURING", "COMPLETING"):
                return state, (self.folder / f"slurm-{job}.out").read_text()
            time.sleep(0.2)
        self.run("scancel", job)
        raise TimeoutError(f"job {job} did not end within {limit} s: {told}")


@contextmanager
def running(folder: Path) -> Iterator[Slurm]:
    """A Slurm with one node, this machine; TimeoutError if it does not get ready."""
    cpus = os.cpu_count() or 1
    text = CONFIGURATION.format(host=socket.gethostname(), folder=folder, cpus=cpus, ports=_free_ports(2))
    (folder / "slurm.conf").write_text(text)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    slurm, daemons = Slurm(folder), []
    try:
        for name in ("slurmctld", "slurmd"):
            file = (folder / f"{name}.txt").open("w")
            command = [shutil.which(name, path=_path()) or name, "-D", "-f", str(folder / "slurm.conf")]
            daemons.append(subprocess.Popen(command, env=slurm.env, stdout=file, stderr=file, start_new_session=True))
        _wait_until_idle(slurm)
        yield slurm
    finally:
        slurm.run("scancel", "--user", "root")
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(20)


def _wait_until_idle(slurm: Slurm, limit: float = 60) -> None:
    end = time.monotonic() + limit
    while slurm.run("sinfo", "-h", "-o", "%T").stdout.strip() != "idle":
        if time.monotonic() > end:
            logs = [(slurm.folder / f"{name}.txt").read_text()[-2000:] for name in ("slurmctld", "slurmd")]
            raise TimeoutError("Slurm did not get ready:\n" + "\n".join(logs))
        time.sleep(0.2)


def _free_ports(n: int) -> list[int]:
    servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports
