"""Folders that are created, replaced and removed atomically, even if the process is killed.

A save writes a new folder under a hidden name, syncs it to disk, and renames it. If it replaces an older folder, that
one is first renamed to a hidden name. Between the two renames the older folder is the checkpoint, and `found` returns
it.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
from pathlib import Path

from mpijax.checkpointing.errors import CheckpointError
from mpijax.checkpointing.metadata import FILE

_STEP = re.compile(r"step-(\d{8,18})")


def of_step(folder: Path, step: int) -> Path:
    """The checkpoint of a step, in the folder of a run."""
    return folder / f"step-{step:08d}"


def steps_in(folder: Path) -> dict[int, Path]:
    """The complete checkpoints in the folder of a run by step, in order."""
    names = os.listdir(folder) if folder.is_dir() else []
    shown = {name.removesuffix(".replaced").removeprefix(".") for name in names}
    places = {int(m[1]): found(folder / name) for name in shown if (m := _STEP.fullmatch(name))}
    return {step: places[step] for step in sorted(places) if is_checkpoint(places[step])}


def _replaced(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")


def hidden(target: Path) -> Path:
    """The hidden folder into which the checkpoint `target` is written."""
    return target.with_name(f".{target.name}.writing")


def found(target: Path) -> Path:
    """The location of the checkpoint `target`: its own, or where a killed save left it."""
    old = _replaced(target)
    return old if not os.path.lexists(target) and (old / FILE).is_file() else target


def recover(parent: Path) -> None:
    """Clean up after killed saves into the folder of a run."""
    for entry in parent.glob(".*"):
        shown, _, state = entry.name[1:].rpartition(".")
        if _STEP.fullmatch(shown) and state in ("writing", "replaced"):
            target = parent / shown
            if found(target) == entry:
                entry.rename(target)
            else:
                remove(entry)


def is_checkpoint(folder: Path) -> bool:
    return (folder / FILE).is_file()


def begin(target: Path) -> None:
    """Make `hidden(target)`, an empty folder; removes a killed save's leftovers there.

    FileExistsError if `target` is anything but a checkpoint.
    """
    if os.path.lexists(target) and not is_checkpoint(target):
        raise FileExistsError(f"{target} exists and is not a checkpoint: it is not replaced")
    target.parent.mkdir(parents=True, exist_ok=True)
    remove(hidden(target))
    hidden(target).mkdir()


def write_file(file: Path, data: bytes) -> None:
    """Write a file and sync it to disk."""
    with file.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def sync(folder: Path) -> None:
    """Sync the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def commit(written: Path, target: Path) -> None:
    """Rename `written` to `target`, replacing an existing checkpoint."""
    for entry in os.scandir(written):
        if entry.is_dir(follow_symlinks=False):
            sync(Path(entry.path))
    sync(written)
    old = _replaced(target)
    if os.path.lexists(target):
        if not is_checkpoint(target):
            raise FileExistsError(f"{target} exists and is not a checkpoint: it is not replaced")
        remove(old)
        target.rename(old)
    written.rename(target)
    sync(target.parent)
    remove(old)


def remove(folder: Path) -> None:
    """Remove the folder of a checkpoint. The metadata goes first, so a partly removed folder is not a checkpoint."""
    try:
        mode = os.lstat(folder).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(mode):
        raise CheckpointError(f"{folder} is not a checkpoint folder")
    (folder / FILE).unlink(missing_ok=True)
    shutil.rmtree(folder)
