"""The results as a table: text for the terminal, Markdown for files."""

from bench.case import ROOT

HEADINGS = ["case", "JAX", "mpijax", "×", "target", "", "C limit", "peak MB", "mpijax"]
START = "<!-- bench table, written by python -m bench --readme -->"
END = "<!-- end of bench table -->"
PEER_OVER = 1.02  # peak memory is compared with this tolerance: allocators round up


def amount(value: float | None, unit: str) -> str:
    """Three digits and a unit: 1.23 ms, 45.6 MB."""
    scales = {
        "seconds": ((1, "s"), (1e-3, "ms"), (1e-6, "µs")),
        "bytes": ((1e6, "MB"), (1e3, "kB"), (1, "B")),
    }[unit]
    if value is None:
        return ""
    scale, name = next((entry for entry in scales if value >= entry[0]), scales[-1])
    return f"{value / scale:.3g} {name}"


def cell(result: dict, unit: str) -> str:
    if "value" in result:
        return amount(result["value"], unit)
    return "skipped" if result["error"].startswith("skipped") else "failed"


def line(row: dict) -> list[str]:
    ratio = f"{row['ratio']:.2f}" if row["ratio"] else ""
    verdict = {True: "met", False: "missed", None: ""}[row["met"]]
    peaks = [f"{row[s]['peak'] / 1e6:.0f}" if "peak" in row[s] else "" for s in ("jax", "mpijax")]
    cells = [
        row["case"],
        cell(row["jax"], row["unit"]),
        cell(row["mpijax"], row["unit"]),
        ratio,
        row["target"],
        verdict,
    ]
    return [*cells, amount(row["c"], "seconds"), *peaks]


def summary(rows: list[dict]) -> list[str]:
    """Sentences under the table: targets met, memory, and why anything is missing."""
    judged = [row for row in rows if row["met"] is not None]
    lines = [f"{sum(row['met'] for row in judged)} of {len(judged)} targets met."]
    both = [row for row in rows if "peak" in row["jax"] and "peak" in row["mpijax"]]
    over = [row["case"] for row in both if row["mpijax"]["peak"] > PEER_OVER * row["jax"]["peak"]]
    if both:
        named = f": {', '.join(over)}" if over else ""
        lines.append(f"Peak memory above JAX's in {len(over)} of {len(both)} cases{named}.")
    reasons = {}
    for row in rows:
        for system in ("jax", "mpijax"):
            if "error" in row[system]:
                reasons.setdefault(f"{system}: {row[system]['error']}", []).append(row["case"])
    for reason, names in reasons.items():
        more = ", ..." if len(names) > 3 else ""
        lines.append(f"{reason} ({len(names)}: {', '.join(names[:3])}{more})")
    return lines


def text_table(rows: list[dict]) -> str:
    cells = [HEADINGS, *map(line, rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    aligned = [[row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])] for row in cells]
    return "\n".join(map("  ".join, aligned))


def markdown(results: dict) -> str:
    rows = [HEADINGS, ["---"] + ["---:"] * (len(HEADINGS) - 1), *map(line, results["rows"])]
    table = "\n".join("| " + " | ".join(row) + " |" for row in rows)
    sentences = "\n".join(f"- {sentence}" for sentence in summary(results["rows"]))
    return f"{results['machine']}\n\n{table}\n\n{sentences}\n"


def between(text: str, start: str, end: str, new: str) -> str:
    """`text`, in which `new` replaces everything between two markers."""
    before, rest = text.split(start, 1)
    return f"{before}{start}\n\n{new}\n\n{end}{rest.split(end, 1)[1]}"


def write_page(results: dict) -> None:
    """Write the table into docs/benchmarks.md, between START and END; without START, append a section "Results"."""
    path = ROOT / "docs" / "benchmarks.md"
    text = path.read_text()
    if START not in text:
        text = f"{text.rstrip()}\n\n## Results\n\n{START}\n{END}\n"
    path.write_text(between(text, START, END, markdown(results).strip()))
