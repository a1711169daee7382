"""Latency and bandwidth over the size of a message, from results of compare.py, as SVG files."""

import statistics


def _lines(rows):
    """{name: [(bytes, median)]}, the limits first."""
    lines = {}
    for row in rows:
        limit = row["limit"]
        if limit["figures"]:
            lines.setdefault(limit["name"], []).append(
                (row["bytes"], statistics.median(limit["figures"])))
    for row in rows:
        for one in row["contenders"]:
            if "median" in one:
                lines.setdefault(one["name"], []).append((row["bytes"], one["median"]))
    return lines


def require():
    """Returns matplotlib's pyplot, or ends the program with what is missing."""
    try:
        import matplotlib
    except ImportError as missing:
        raise SystemExit("compare.py: --plots needs matplotlib, Debian's python3-matplotlib, for "
                         "the Python that runs this program") from missing
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "weft"  # the same results give the same file
    from matplotlib import pyplot
    return pyplot


def write(stored, folder):
    """Writes latency.svg and bandwidth.svg. Returns the paths."""
    pyplot = require()
    written = []
    folder.mkdir(parents=True, exist_ok=True)
    for group, title in (("latency", "Half round trip, us"), ("bandwidth", "Bandwidth, GB/s")):
        rows = [row for row in stored["rows"] if row.get("group") == group]
        if not rows:
            continue
        limits = {row["limit"]["name"] for row in rows}
        figure, axes = pyplot.subplots(figsize=(8, 5))
        for name, points in _lines(rows).items():
            points.sort()
            axes.plot([size for size, _ in points], [value for _, value in points], label=name,
                      marker=".", linestyle="--" if name in limits else "-")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("bytes of a message")
        axes.set_title(title)
        axes.grid(True, which="both", alpha=0.3)
        axes.legend(fontsize="small")
        path = folder / f"{group}.svg"
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
        written.append(path)
    return written
