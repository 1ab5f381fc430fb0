"""The ratios as a bar chart, one bar a case, with a mark at each target."""

import re
from pathlib import Path


def save_plot(rows: list[dict], path: Path) -> str | None:
    """Draws the cases that both systems ran; returns why not, if not."""
    rows = [row for row in rows if row["ratio"]]
    if not rows:
        return "no plot: no case was run by both systems"
    try:
        import matplotlib
    except ImportError:
        return "no plot: matplotlib is not installed"
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows = rows[::-1]
    figure, axes = plt.subplots(figsize=(8, 1 + 0.24 * len(rows)), layout="constrained")
    colors = [{True: "tab:green", False: "tab:red", None: "tab:gray"}[row["met"]] for row in rows]
    axes.barh([row["case"] for row in rows], [row["ratio"] for row in rows], color=colors)
    for y, row in enumerate(rows):
        target = re.match(r"× ([0-9.]+)", row["target"])
        if target:
            axes.plot([float(target[1])] * 2, [y - 0.4, y + 0.4], color="black", linewidth=2)
    axes.axvline(1, color="black", linewidth=0.5)
    axes.set(xscale="log", xlabel="time of JAX / time of mpijax (line: target)", ylim=(-0.6, len(rows) - 0.4))
    axes.tick_params(axis="y", labelsize=7)
    figure.savefig(path, dpi=120)
    return None
