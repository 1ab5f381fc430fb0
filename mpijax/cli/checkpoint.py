"""``mpijax checkpoint``: inspect checkpoints.

    mpijax checkpoint ls FOLDER      the checkpoints in a Checkpointer's folder, or the given one
    mpijax checkpoint show PATH      the arrays and values of one, with shapes, dtypes and bytes
    mpijax checkpoint diff A B       the differences between two; exit status 1 if there are any

A PATH may be a Checkpointer's folder; it then means the latest checkpoint. One process reads; no ranks are needed.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mpijax.checkpointing import chunks, folders, metadata, restoring, store, structure
from mpijax.checkpointing.errors import CheckpointError
from mpijax.checkpointing.leaves import ArrayLeaf, value_of
from mpijax.core.base.units import amount


def _open(path: Path) -> tuple[Path, metadata.Contents]:
    """A checkpoint, or the latest one in a folder of them."""
    steps = {} if folders.is_checkpoint(path) else folders.steps_in(path)
    folder = folders.found(steps[max(steps)] if steps else path)
    return folder, metadata.load(metadata.read(folder), folder)


def _ls(path: Path, as_json: bool) -> int:
    steps = folders.steps_in(path)
    found: list[dict[str, Any]] = []
    for folder in steps.values() or [folders.found(path)]:
        contents = metadata.load(metadata.read(folder), folder)
        written = datetime.datetime.fromtimestamp((folder / metadata.FILE).stat().st_mtime)
        leaves = len(contents.leaves)
        found.append({"name": folder.name, "written": written, "bytes": contents.nbytes, "leaves": leaves})
    if as_json:
        print(json.dumps([{**row, "written": row["written"].isoformat()} for row in found], indent=2))
        return 0
    for row in found:
        print(f"{row['name']}  {row['written']:%Y-%m-%d %H:%M:%S}  {amount(row['bytes']):>9}  {row['leaves']} leaves")
    return 0


def _text(leaf: ArrayLeaf | dict[str, Any]) -> str:
    """A leaf as text: float32[3,4], or the value."""
    if isinstance(leaf, ArrayLeaf):
        kind = f"key<{leaf.dtype}>" if leaf.words is not None else leaf.dtype
        return f"{kind}[{','.join(map(str, leaf.shape))}]"
    return repr(value_of(leaf))


def _show(path: Path, as_json: bool) -> int:
    folder, contents = _open(path)
    if as_json:
        leaves = [
            {"path": structure.show(p), "value": _text(leaf)}
            | ({"bytes": leaf.nbytes} if isinstance(leaf, ArrayLeaf) else {})
            for p, leaf in contents.by_path().items()
        ]
        print(json.dumps({"folder": str(folder), "bytes": contents.nbytes, "leaves": leaves}, indent=2))
        return 0
    rows = [(structure.show(p), _text(leaf), leaf) for p, leaf in contents.by_path().items()]
    columns = [path for path, _, _ in rows], [text for _, text, _ in rows]
    widths = [max(map(len, column), default=0) for column in columns]
    print(f"{folder}: {len(rows)} leaves, {amount(contents.nbytes)}")
    for name, text, leaf in rows:
        more = f"  {amount(leaf.nbytes):>9}" if isinstance(leaf, ArrayLeaf) else ""
        print(f"  {name:{widths[0]}}  {text:{widths[1]}}{more}".rstrip())
    return 0


def _pieces(folder: Path, contents: metadata.Contents, leaf: ArrayLeaf, like: tuple[int, ...]) -> Iterator[np.ndarray]:
    """The elements of an array in pieces of the shape `like`, so that the whole need not fit into memory."""
    for _, box in chunks.boxes((0,) * len(leaf.stored_shape), leaf.stored_shape, like):
        start = tuple(s.start for s in box)
        yield restoring.read_part(folder, contents, leaf, start, tuple(s.stop - s.start for s in box))


def _elements_differ(sides: list[tuple[Path, metadata.Contents, ArrayLeaf]]) -> str:
    """How the elements of two arrays of one shape and dtype differ; '' if they are bitwise equal."""
    leaf = sides[0][2]
    count, largest, number = 0, 0.0, leaf.numpy_dtype.kind in "fciu" or leaf.dtype == "bfloat16"
    piece = sides[0][1].chunks[leaf.array]
    for a, b in zip(*(_pieces(*side, piece) for side in sides), strict=True):
        bits = f"V{a.dtype.itemsize}"
        unequal = np.atleast_1d(a).view(bits) != np.atleast_1d(b).view(bits)
        count += int(np.count_nonzero(unequal))
        if number and unequal.any():
            wide = np.complex128 if a.dtype.kind == "c" else np.float64
            with np.errstate(all="ignore"):
                gap = np.abs(np.atleast_1d(a).astype(wide) - np.atleast_1d(b).astype(wide))[unequal]
            largest = max(largest, float(np.nanmax(gap, initial=0.0)))
    if not count:
        return ""
    difference = f", by at most {largest:.3g}" if largest and leaf.words is None else ""
    return f"{count} of {math.prod(leaf.stored_shape)} elements differ{difference}"


def _diff(first: Path, second: Path, as_json: bool) -> int:
    sides = [_open(first), _open(second)]
    tables = [{structure.key_of(p): (p, leaf) for p, leaf in contents.by_path().items()} for _, contents in sides]
    found = []
    for key in {**tables[0], **tables[1]}:
        old, new = (table.get(key) for table in tables)
        if old is None or new is None:
            path, leaf = tables[0 if new is None else 1][key]
            sign, said = "-" if new is None else "+", _text(leaf)
        else:
            path, sign = old[0], "!"
            said = _leaves_differ([(*side, leaf) for side, (_, leaf) in zip(sides, (old, new), strict=True)])
        if said:
            found.append({"path": structure.show(path), "sign": sign, "text": said})
            if not as_json:
                print(f"{sign} {structure.show(path)}  {said}")
    leaves = len({**tables[0], **tables[1]})
    if as_json:
        print(json.dumps({"leaves": leaves, "differences": found}, indent=2))
    else:
        print(f"{len(found)} of {leaves} leaves differ")
    return int(bool(found))


def _leaves_differ(sides: list[tuple]) -> str:
    a, b = (side[2] for side in sides)
    if _text(a) != _text(b):
        return f"{_text(a)} -> {_text(b)}"
    return _elements_differ(sides) if isinstance(a, ArrayLeaf) and isinstance(b, ArrayLeaf) else ""


def parser() -> argparse.ArgumentParser:
    """The parser of `mpijax checkpoint`."""
    p = argparse.ArgumentParser(
        prog="mpijax checkpoint", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = p.add_subparsers(dest="action", required=True, help="list, show or compare")
    for name, paths in (("ls", ["path"]), ("show", ["path"]), ("diff", ["first", "second"])):
        action = actions.add_parser(name)
        for path in paths:
            action.add_argument(path, type=Path)
        action.add_argument("--json", action="store_true", help="print JSON instead of text")
    return p


def main(arguments: list[str]) -> int:
    """Run ls, show or diff; 1 if `diff` finds differences, 2 for an unreadable checkpoint."""
    options = parser().parse_args(arguments)
    try:
        if options.action == "diff":
            store.tensorstore()
            return _diff(options.first, options.second, options.json)
        return (_ls if options.action == "ls" else _show)(options.path, options.json)
    except (CheckpointError, OSError, ImportError) as error:
        print(f"mpijax checkpoint: {error}", file=sys.stderr)
        return 2
