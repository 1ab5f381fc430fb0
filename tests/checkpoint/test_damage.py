"""Files that are damaged, missing or made to harm: an error that names array and file, and nothing else is touched."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest

from mpijax.checkpoint import CheckpointError, restore, save
from mpijax.checkpointing import chunks, metadata


@pytest.fixture
def saved(folder, monkeypatch):
    monkeypatch.setattr(chunks.chunk_shape, "__defaults__", (400,))
    save(folder, {"v": np.ones(3), "w": np.arange(300, dtype=np.float32)})
    return folder


def flip(file, at):
    data = bytearray(file.read_bytes())
    data[at] ^= 0x10
    file.write_bytes(data)


DAMAGES = {
    "bit": (lambda file: flip(file, 7), "Digest mismatch"),
    "bit of the sum": (lambda file: flip(file, -1), "Digest mismatch"),
    "missing": (lambda file: file.unlink(), "No such file"),
    "short": (lambda file: file.write_bytes(file.read_bytes()[:-9]), "has 395 bytes, expected 404"),
    "long": (lambda file: file.write_bytes(file.read_bytes() + b"x"), "has 405 bytes, expected 404"),
    "link": (lambda file: (file.rename(file.with_name("z")), file.symlink_to("z")), "is not a regular file"),
    "pipe": (lambda file: (file.unlink(), os.mkfifo(file)), "is not a regular file"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_chunk_is_named(saved, name):
    damage, said = DAMAGES[name]
    file = saved / "w" / "c.1"
    damage(file)
    with pytest.raises(CheckpointError, match="array w") as caught:
        restore(saved)
    assert str(file) in str(caught.value) and said in str(caught.value)
    np.testing.assert_array_equal(restore(saved, {"v": np.ones(3)})["v"], 1)


def test_a_folder_of_an_array_that_leads_elsewhere(saved):
    (saved / "w").rename(saved.parent / "elsewhere")
    (saved / "w").symlink_to(saved.parent / "elsewhere")
    with pytest.raises(CheckpointError, match="w is a link"):
        restore(saved)


def test_every_flipped_byte_of_the_metadata_is_seen_or_harmless(saved):
    file = saved / "zarr.json"
    whole = file.read_bytes()
    want = restore(saved)
    for at in np.random.default_rng(0).integers(0, len(whole), 60):
        flip(file, int(at))
        try:
            found = restore(saved)
        except CheckpointError as error:
            assert str(file) in str(error)
        else:  # a space, or a part of Zarr's that is not read
            assert all(np.array_equal(found[name], want[name]) for name in want)
        file.write_bytes(whole)


def rewritten(change):
    """Metadata with a change and a sum that fits."""

    def apply(file):
        group = json.loads(file.read_bytes())
        about, arrays = group["attributes"]["mpijax"], group["consolidated_metadata"]["metadata"]
        change(about, arrays)
        about["sha256"] = metadata._sum(about, arrays)
        file.write_text(json.dumps(group))

    return apply


def nested(depth):
    node = 0
    for _ in range(depth):
        node = {"list": [node]}
    return node


def renamed(name):
    def change(about, arrays):
        about["leaves"][1]["array"] = name
        arrays[name] = {**arrays["w"], "dimension_names": [f"{name}_0"]}

    return change


def huge(about, arrays):
    about["leaves"][1]["shape"] = arrays["w"]["shape"] = [1 << 47]


def coded(about, arrays):
    arrays["w"]["codecs"].insert(1, {"name": "gzip", "configuration": {"level": 1}})


ATTACKS = {
    "up": (rewritten(renamed("../v")), r"'\.\./v' is not a valid name of an array"),
    "root": (rewritten(renamed("/etc")), "'/etc' is not a valid name of an array"),
    "dot": (rewritten(renamed(".")), r"'\.' is not a valid name of an array"),
    "twice": (rewritten(renamed("v")), "array v does not have the format of mpijax"),
    "no text": (rewritten(renamed("w\n")), r"is not a valid name of an array"),
    "huge": (rewritten(huge), "array w is damaged: .*c.3"),
    "codec": (rewritten(coded), "does not have the format of mpijax"),
    "deep": (rewritten(lambda about, _: about.update(tree=nested(300))), "more than 200 levels of nested containers"),
    "very deep": (lambda file: file.write_text("[" * 100_000), "RecursionError|JSONDecodeError"),
    "leaf twice": (rewritten(lambda about, _: about.update(tree={"list": [0, 0]})), "the tree does not match the leaves"),
    "leaf beyond": (rewritten(lambda about, _: about.update(tree={"list": [0, 9]})), "the tree does not match the leaves"),
    "unhashable key": (rewritten(lambda about, _: about.update(tree={"dict": [[[], 0], ["w", 1]]})), "contains an invalid tree"),
    "dtype": (rewritten(lambda about, _: about["leaves"][1].update(dtype="object")), "contains an invalid leaf"),
    "negative": (rewritten(lambda about, _: about["leaves"][1].update(shape=[-1])), "contains an invalid leaf"),
    "words": (rewritten(lambda about, _: about["leaves"][1].update(words=[1 << 40])), "contains an invalid leaf"),
    "no object": (lambda file: file.write_text("[1]"), "TypeError"),
    "empty": (lambda file: file.write_text(""), "JSONDecodeError"),
    "binary": (lambda file: file.write_bytes(b"{\xff"), "UnicodeDecodeError"),
    "newer": (rewritten(lambda about, _: about.update(format=99)), "it has format 99"),
    "not the sum": (lambda file: file.write_text(file.read_text().replace('"v"', '"u"')), "SHA-256 does not match"),
}


@pytest.mark.parametrize("name", ATTACKS)
def test_metadata_made_to_harm(saved, name):
    change, said = ATTACKS[name]
    change(saved / "zarr.json")
    with pytest.raises(CheckpointError, match=said):
        restore(saved)


def test_metadata_that_is_too_large(saved, monkeypatch):
    monkeypatch.setattr(metadata, "LIMIT", 100)
    with pytest.raises(CheckpointError, match="larger than the limit of 100 bytes"):
        restore(saved)
    with pytest.raises(CheckpointError, match="more than the limit of 100 bytes"):
        save(saved, {"v": 1})


@pytest.mark.parametrize("what", ["nothing", "folder", "file"])
def test_what_is_no_checkpoint(folder, what):
    if what == "folder":
        folder.mkdir()
    elif what == "file":
        folder.write_text("text")
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        restore(folder)
