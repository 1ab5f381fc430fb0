"""Finds the process that started this one, directly or through others: the part of a launcher on this node."""

from __future__ import annotations

import os
from pathlib import Path


def nearest(command: str) -> tuple[int, list[str]] | None:
    """The nearest ancestor whose command begins with `command`: its number, and its status after the command, as in
    proc_pid_stat(5). Raises OSError if the system hides processes of other users."""
    process = os.getppid()
    while process > 1:
        # After the command, which may contain any character, field 2 is the parent.
        name, _, rest = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rpartition(")")
        fields = rest.split()
        if name.startswith(command):
            return process, fields
        process = int(fields[1])
    return None
