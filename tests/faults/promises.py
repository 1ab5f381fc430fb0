"""What mpijax promises for a job with a fault: the table of docs/stalls.md, and how a test checks it.

python tests/faults/promises.py --renew     write the table into the page
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "stalls.md"
HEAD = ["| what happens | what you get | when |", "|---|---|---|"]


@dataclass(frozen=True)
class Promise:
    """happens, get, when: a row of the page.

    status: exit status of the job; None: any but 0. words: patterns that its output must match; `{rank}` stands for each
    rank in turn. within: the most seconds from the fault to the end of the job.
    """

    happens: str
    get: str
    when: str
    status: int | None
    words: tuple[str, ...]
    within: float


PLACE = r"at <string>:\d+"
BOTH = rf"rank 0 ran .* {PLACE}.* rank 1 ran .* {PLACE}"

DIFFERENT = Promise(
    "ranks run different collectives, or the same collectives with different shapes, dtypes, roots or order",
    "`MismatchError`, a `JaxRuntimeError`, on every rank, with each schedule, its ranks and the lines",
    "at once",
    0, (r"told {rank}: .*ranks run different collectives.*rank.* 0.*: .*rank.* 1", r"went on {rank}"), 5,
)  # fmt: skip
MEANT = Promise(
    "ranks use different communicators of a mesh: other devices, axes or groups",
    "`MismatchError` on every rank, with each communicator, its ranks and the lines",
    "at once",
    0, (r"told {rank}: .*ranks run different collectives", r"went on {rank}"), 10,
)  # fmt: skip
MESSAGE = Promise(
    "a rank receives a message with another dtype than the sender's, or counts of `alltoallv` do not match",
    "`JaxRuntimeError` on the receiving rank, with both lines",
    "at once, or after 1 s",
    0, (rf"told 1: .*{PLACE}", r"went on {rank}"), 10,
)  # fmt: skip
SHORT = Promise(
    "a message has another length than the array that receives it",
    "`RuntimeError` on the receiving rank, with the line",
    "at once",
    0, (rf"told 1: .*(truncate|shorter).*{PLACE}", r"went on {rank}"), 10,
)  # fmt: skip
EARLIER = Promise(
    "rank A starts a new program while rank B waits in an earlier one",
    "`MismatchError` on rank A",
    "2 s",
    None, (rf"MismatchError: .*rank 0 is about to run .*but rank 1 waits in .*{PLACE}",), 12,
)  # fmt: skip
KNOWN = Promise(
    "ranks of a node run known programs in different orders",
    "`MismatchError` with both operations and lines: on every rank if the data goes through shared memory, and on the later "
    "rank, before it sends, if the data goes through MPI",
    "at once",
    None, (BOTH,), 10,
)  # fmt: skip
KNOWN_APART = Promise(
    "ranks of different nodes run known programs in different orders",
    "if MPI finds sizes that do not match, MPI's error and a message on each rank with the operation and line; otherwise a "
    "message that the ranks ran different collectives",
    "when MPI finds it, or at the end",
    None, (rf"has ended this rank in .* {PLACE}|ranks (\d and \d )?ran different collectives|{PLACE}[\s\S]*ranks are on other nodes",), 10,
)  # fmt: skip
COMMUNICATORS = Promise(
    "ranks use several communicators of the same ranks in different orders",
    "a message with the operation and line, and the end of the job",
    "5 s",
    None, (rf"(do not use the same communicator|use the communicators) of .*[\s\S]*{PLACE}",), 15,
)  # fmt: skip
RING = Promise(
    "ranks of a node wait for each other in a ring, as in two receives",
    "a message with all operations and lines, and the end of the job",
    "10 s, or at once if messages do not match",
    None, (rf"(deadlock|rank \d waits for .*|run different).*{PLACE}|{PLACE}.*deadlock",), 30,
)  # fmt: skip
UNSTARTED = Promise(
    "a rank does not start mpijax, or `MPI_Init` does not return because a process of another node is missing",
    "each waiting rank logs a warning with its line",
    "60 s, then 120 s, ...",
    None, (r"rank 0 has waited \d+ s for (MPI|all 2 ranks) to start at <string>:\d+",), 45,
)  # fmt: skip
UNSTARTED_ENDED = Promise(
    "a rank ends before it starts MPI, and ranks of the same node wait for it in `MPI_Init`",
    "a message with the line (under Open MPI, at times its launcher's own message), and the end of the job",
    "1 s",
    None, (
        r"rank 0 waits for MPI to start at <string>:\d+ .*, but 1 of the 2 processes on this node ended before: ending|"
        r'did not call "init" before exiting',
    ), 10,
)  # fmt: skip
LATE = Promise(
    "a rank does not reach a collective, because it computes, is stopped, or waits elsewhere",
    "a warning with the operation, the line, the missing ranks and where they are; each rank writes its record to a file",
    "60 s, then 120 s, ...",
    0, (rf"rank 0 has waited 1 s in .* {PLACE}", r"rank 1 (has not arrived|is needed)", r"went on {rank}"), 15,
)  # fmt: skip
ABORTED = Promise(
    "a rank does not reach a collective, and `MPIJAX_STALL_ABORT=1` is set",
    "the same warning, and the end of the job",
    "60 s",
    1, (rf"ended after \d+ s in .*{PLACE}.*, because MPIJAX_STALL_ABORT is set: ending the job",), 12,
)  # fmt: skip
ENDED = Promise(
    "a rank has ended or was killed, and another waits for it",
    "a message, and the end of the job",
    "0.5 s if its process is gone, else 3 s",
    None, (rf"rank 1 has ended, but rank 0 waits for it in .*{PLACE}.*: ending the job|rank 1 has ended, but rank 0 waits",), 10,
)  # fmt: skip
GONE = Promise(
    "the process of a rank ends while MPI runs: by a signal, or by `os._exit`",
    "`mpirun` ends the job, often before mpijax can report it; under `mpijax run`, the message above and the rank that failed "
    "first",
    "at once; if the launcher lets the others run, after 5 s",
    None, (), 10,
)  # fmt: skip
RAISED = Promise(
    "an exception on a rank, also in a callback of a compiled program",
    "its traceback with the rank, and the end of the job",
    "at once",
    1, (r"\[rank 1\].*unwell",), 10,
)  # fmt: skip
EXITED = Promise(
    "`sys.exit(3)` on one rank",
    "the job ends with status 3",
    "at once if all exit, else 3 to 5 s",
    3, (r"rank 1\b.*ending the job|rank 1 has ended",), 15,
)  # fmt: skip
INTERRUPTED = Promise(
    "Ctrl-C while a rank waits inside MPI",
    "a message with the line, status 130",
    "1 s",
    130, (rf"interrupted by Ctrl-C in .*{PLACE}",), 12,
)  # fmt: skip
THREADS = Promise(
    "two threads of a rank communicate at once",
    "`RuntimeError` with the line",
    "at once",
    0, (rf"told 0: another thread of this rank communicates.*{PLACE}",), 12,
)  # fmt: skip
THREAD_AT_END = Promise(
    "the program ends while another of its threads communicates",
    "a message, and the end of the job",
    "at once",
    1, (r"the program has ended while another of its threads communicates: ending the job",), 10,
)  # fmt: skip
NOT_A_RANK = Promise(
    "a forked process communicates, or a rank does after `MPI.Finalize()`",
    "`RuntimeError` with the line",
    "at once",
    0, (rf"told 1: .*(a fork of rank|MPI.Finalize).*{PLACE}",), 10,
)  # fmt: skip
UNRECEIVED = Promise(
    "a message is never received",
    "a warning on the rank that should have received it",
    "at the end of the program",
    0, (r"rank 1\] mpijax: the program .*a message of rank 0 .*has not been received",), 10,
)  # fmt: skip
FREED = Promise(
    "a program uses a communicator that has been freed",
    "`RuntimeError` with the line",
    "at once",
    0, (rf"told {{rank}}: .*invalid communicator: it was freed.*{PLACE}",), 10,
)  # fmt: skip

PROMISES = [
    DIFFERENT, MEANT, MESSAGE, SHORT, EARLIER, KNOWN, KNOWN_APART, COMMUNICATORS, RING, UNSTARTED, UNSTARTED_ENDED, LATE, ABORTED, ENDED, GONE,
    RAISED, EXITED, INTERRUPTED, THREADS, THREAD_AT_END, NOT_A_RANK, UNRECEIVED, FREED,
]  # fmt: skip


def table() -> str:
    return "\n".join(HEAD + [f"| {p.happens} | {p.get} | {p.when} |" for p in PROMISES])


def page() -> str:
    """The page with this table."""
    lines = PAGE.read_text().split("\n")
    begin = lines.index(HEAD[0])
    end = next(i for i in range(begin, len(lines)) if not lines[i].startswith("|"))
    return "\n".join([*lines[:begin], table(), *lines[end:]])


if __name__ == "__main__":
    if sys.argv[1:] == ["--renew"]:
        PAGE.write_text(page())
    else:
        sys.exit(__doc__)
