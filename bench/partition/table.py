"""The rows as a table, and what it says in a few sentences."""

HEADINGS = [
    "program", "sent JAX", "mpijax", "x", "least", "held JAX", "mpijax", "x", "ms JAX", "mpijax", "notes",
]  # fmt: skip
MORE = 1.05  # times JAX's is no more than JAX's
ABOVE_LEAST = 1.25


def ratio(record: dict, key: str) -> float | None:
    """mpijax's amount divided by JAX's; None where one is missing. What JAX does not send cannot be divided by."""
    theirs, ours = record["jax"].get(key), record["mpijax"].get(key)
    if theirs is None or ours is None:
        return None
    if theirs == 0:
        return 1.0 if ours == 0 else float("inf")
    return ours / theirs


def exceeds(record: dict, key: str) -> bool:
    """Whether mpijax sends or holds more than JAX, or sends more than the algorithm needs."""
    found = ratio(record, key)
    if found is not None and found > MORE:
        return True
    ours = record["mpijax"].get(key)
    return key == "sent" and ours is not None and record["least"] is not None and ours > ABOVE_LEAST * record["least"]


def gathers(record: dict, system: str) -> bool:
    """Whether an operand is made whole on every device: as much as the largest argument that was split."""
    return record[system].get("gathered", 0) >= record["largest"] > 0


def whole_result(record: dict) -> bool:
    """Whether a result is whole which JAX leaves split."""
    theirs, ours = record["jax"].get("whole"), record["mpijax"].get("whole")
    return bool(theirs and ours and any(b and not a for a, b in zip(theirs, ours, strict=True)))


def notes(record: dict) -> str:
    found = []
    for system, name in (("jax", "JAX"), ("mpijax", "mpijax")):
        row = record[system]
        if "error" in row:
            found.append(f"{name}: {row['error']}")
            continue
        if row.get("wrong"):
            found.append(f"{name} WRONG: {row['wrong']}")
        if not row.get("checked", True):
            found.append(f"{name} not checked")
        if gathers(record, system):
            found.append(f"{name} gathers")
        if not row.get("known", True):
            found.append(f"{name}: per iteration")
    if whole_result(record):
        found.append("whole result")
    return ", ".join(found)


def line(record: dict) -> list[str]:
    cells = [record["name"]]
    for key in ("sent", "held"):
        found = ratio(record, key)
        cells += [_bytes(record[system].get(key)) for system in ("jax", "mpijax")]
        cells.append("" if found is None else f"{found:.2f}" + ("!" if exceeds(record, key) else ""))
        if key == "sent":
            cells.append(_bytes(record["least"]))
    cells += [_milliseconds(record[system].get("seconds")) for system in ("jax", "mpijax")]
    return [*cells, notes(record)]


def _bytes(n: float | None) -> str:
    return "" if n is None else f"{round(n):,}"


def _milliseconds(seconds: float | None) -> str:
    return "" if seconds is None else f"{1e3 * seconds:.2f}"


def text_table(records: list[dict]) -> str:
    cells = [HEADINGS, *map(line, records)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:-1], widths[1:]), row[-1]]) for row in cells
    )


def summary(records: list[dict]) -> list[str]:
    """How many programs are right, send more, hold more, gather; and their names."""
    ours = [r for r in records if "error" not in r["mpijax"]]
    right = [r for r in ours if not r["mpijax"].get("wrong")]
    lines = [f"{len(right)} of {len(records)} right, {len(records) - len(ours)} with errors."]
    for what, chosen in (
        ("send more than JAX, or more than 1.25 x the least", [r for r in ours if exceeds(r, "sent")]),
        ("hold more than JAX", [r for r in ours if exceeds(r, "held")]),
        ("gather an operand", [r for r in ours if gathers(r, "mpijax")]),
        ("return a whole result that JAX leaves split", [r for r in ours if whole_result(r)]),
        ("gather an operand in JAX", [r for r in records if gathers(r, "jax")]),
    ):
        lines.append(f"{len(chosen)} {what}: {', '.join(r['name'] for r in chosen)}")
    return lines
