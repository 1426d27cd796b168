"""Writes the table of README.md and its plot from what speed.py has measured: speed_table.py SPEED.json"""

from __future__ import annotations

import json
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parent.parent
PLOT = PACKAGE.parent / "docs" / "plots" / "python-speed.svg"
BEGIN, END = "<!-- speed_table.py writes this -->", "<!-- the end of it -->"


def spread(rounds: list[dict[str, float]], of: str) -> tuple[float, float, float]:
    """The median, the least and the most."""
    values = [one[of] for one in rounds]
    return statistics.median(values), min(values), max(values)


def title(speed: dict[str, Any]) -> str:
    return (
        f"`train` on {speed['images']:,} photographs, {speed['workers']} workers, batches of {speed['batch_size']}, "
        f"{speed['rounds']} rounds in turn"
    )


def table(speed: dict[str, Any]) -> list[str]:
    lines = ["| loader | images/s | least to most | CPU ms an image |", "| --- | ---: | --- | ---: |"]
    for name, rounds in speed["loaders"].items():
        middle, least, most = spread(rounds, "images_per_s")
        cpu = spread(rounds, "cpu_ms_per_image")[0]
        lines.append(f"| {name} | {middle:,.0f} | {least:,.0f} to {most:,.0f} | {cpu:.2f} |")
    return lines


def about(speed: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version[:12]}" for name, version in speed["versions"].items())
    text = f"{speed['cpu']}, {speed['date']}, medians; {versions}."
    if "FFCV" in speed["loaders"]:
        text += " FFCV reads a file of its own, in which the images are JPEG of quality 90."
    left_out = ", ".join(f"{name} ({why})" for name, why in speed["left_out"].items())
    return text + (f" Left out: {left_out}." if left_out else "")


def plot(speed: dict[str, Any]) -> None:
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "warpfeed"  # the same numbers give the same file
    rows = {name: spread(rounds, "images_per_s") for name, rounds in reversed(speed["loaders"].items())}
    figure = Figure(figsize=(7, 0.9 + 0.4 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    middles = [middle for middle, _, _ in rows.values()]
    ranges = [
        [middle - least for middle, least, _ in rows.values()],
        [most - middle for middle, _, most in rows.values()],
    ]
    axes.barh(list(rows), middles, xerr=ranges, color="#4878a8", height=0.6)
    axes.set_xlabel("images/s: median of the rounds, least and most")
    axes.set_title(title(speed).replace("`", ""), fontsize="medium")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(PLOT, metadata={"Date": None})


def main(measured: str) -> None:
    speed = json.loads(Path(measured).read_text())
    readme = PACKAGE / "README.md"
    before, begin, rest = readme.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"{readme} has no place for the table: {BEGIN} and {END}")
    shown = f"![{title(speed).replace('`', '')}](https://raw.githubusercontent.com/warpfeed/warpfeed/main/docs/plots/{PLOT.name})"
    lines = [
        BEGIN,
        "",
        "## Compared with other loaders",
        "",
        *textwrap.wrap(
            f"Images/s of {title(speed)}. Each loader has run two epochs before, except in the row of the first epoch; "
            "`warpfeed` then decodes from entry points. The command is `warpfeed run`, without Python:",
            120,
        ),
        "",
        *table(speed),
        "",
        *textwrap.wrap(about(speed), 120),
        "",
        shown,
        "",
        END,
    ]
    readme.write_text(before + "\n".join(lines) + after)
    plot(speed)


if __name__ == "__main__":
    main(*sys.argv[1:])
