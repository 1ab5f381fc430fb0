"""The front page: a few rows of the recorded table, and a picture of them, both from docs/benchmarks.md."""

from bench.case import ROOT
from bench.report import between

START = "<!-- bench rows, written by python -m bench --front -->"
END = "<!-- end of bench rows -->"
PICTURE = "docs/images/speed.svg"
# Case: what a reader who does not know the cases understands by it. One that mpijax loses is among them.
ROWS = {
    "call/jit 8 floats": "call of a compiled function, 8 floats",
    "ranks/allreduce 4 B": "allreduce of 4 B, 2 ranks",
    "ranks/allreduce 16 MB": "allreduce of 16 MB, 2 ranks",
    "ranks/digits MLP step": "training step of a small network, 2 ranks",
    "f32 4M/chain of six": "chain of six elementwise operations, 4 M float32",
    "loops/heat stencil 2048x2048, 10 steps": "heat stencil 2048 × 2048, 10 steps",
    "start/first call, gradient of 12 transformer layers": "compilation, gradient of 12 transformer layers",
    "512/qr": "QR decomposition of a matrix 512 × 512",
}


def recorded(text: str) -> dict[str, list[str]]:
    """Case: its cells (JAX, mpijax, ratio), of the table in docs/benchmarks.md."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return {cells[0]: cells[1:4] for cells in rows}


def table(rows: dict[str, list[str]]) -> str:
    lines = ["| | JAX | mpijax | × |", "| --- | ---: | ---: | ---: |"]
    lines += [f"| {name} | {' | '.join(rows[case])} |" for case, name in ROWS.items()]
    return "\n".join(lines)


def draw(rows: dict[str, list[str]], path) -> None:
    """How many times faster than JAX, a bar for each row."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    # Text stays text, and the file is the same each time.
    style = {"svg.fonttype": "none", "svg.hashsalt": "mpijax", "font.family": "sans-serif"}
    with plt.rc_context(style):
        figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
        ratios = [float(rows[case][2]) for case in ROWS][::-1]
        names = list(ROWS.values())[::-1]
        colors = ["#2a9d8f" if r >= 1 else "#c8553d" for r in ratios]
        bars = axes.barh(names, [r - 1 for r in ratios], left=1, color=colors)
        for bar, ratio in zip(bars, ratios):
            axes.annotate(f"{ratio:.3g} ×", (max(ratio, 1), bar.get_y() + bar.get_height() / 2), (4, 0),
                          textcoords="offset points", va="center", fontsize=8)  # fmt: skip
        axes.set(xscale="log", xlim=(min(0.5, *ratios) / 1.2, 3 * max(ratios)), xlabel="time of JAX / time of mpijax")
        axes.axvline(1, color="black", linewidth=0.8)
        axes.tick_params(axis="y", labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)


def write() -> None:
    """Rows and picture of the front page, from the recorded table."""
    rows = recorded((ROOT / "docs" / "benchmarks.md").read_text())
    incomplete = [case for case in ROWS if case not in rows or not rows[case][2]]
    if incomplete:
        raise SystemExit(f"The front page needs a ratio for each of its rows, but there is none for {incomplete}")
    readme = ROOT / "README.md"
    readme.write_text(between(readme.read_text(), START, END, table(rows)))
    draw(rows, ROOT / PICTURE)
