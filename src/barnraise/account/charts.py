"""The report's pictures: the loss curve, and a timeline of work.

Colours are Okabe and Ito's, distinct for all readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from barnraise.account.chronicle import Happening
from barnraise.core.text import printable
from barnraise.core.units import loss_text
from barnraise.ledger.disk import storage_errors
from barnraise.ledger.outcomes import AssignmentRow, LossPoint

BLUE, ORANGE, GREEN, VERMILION, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
GREY, INK, SKY = "#B8B8B8", "#333333", "#56B4E9"

OUTCOMES = {"accepted": BLUE, "found": SKY, "refused": VERMILION, "discarded": PURPLE, "lost": ORANGE, "open": GREY}
LABELS = {
    "found": "measured the loss, or repeated another node's work",
    "discarded": "left over at the end",
    "lost": "lost with the worker",
    "open": "unfinished",
}

MOMENTS: dict[tuple[str, ...], tuple[str, str, str]] = {
    ("joined",): ("joined", ">", GREEN),
    ("restarted", "back"): ("came back", "D", GREEN),
    ("left", "revoked"): ("left", "s", INK),
    ("killed",): ("killed", "X", VERMILION),
}
"""Kinds of happenings -> their name in the legend, marker and colour."""

MOST_LETTERS = 24
"""Letters below a column, at most."""

LOG_SHARE = 0.1
"""Share of the largest loss: where the smallest is below that, a linear axis would show a flat line."""

MOST_LANES = 40
MOST_BARS = 4000
"""Above it, neighbouring bars of one kind are drawn as one."""

STYLE = {
    "font.size": 9.5,
    "font.family": "DejaVu Sans",
    "axes.edgecolor": "#999999",
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10.5,
    "axes.titlelocation": "left",
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def loss_chart(path: Path, losses: Sequence[LossPoint], happenings: Sequence[Happening]) -> None:
    """Draw held-out loss against tokens and against seconds, as a PNG.

    The axis is logarithmic once the loss fell to a LOG_SHARE of its start. Raises StorageError.
    """
    plt = _pyplot()
    per_count, count = _count_unit(max((point.tokens for point in losses), default=0))
    per_time, time = _time_unit(max((point.seconds for point in losses), default=0.0))
    values = [point.loss for point in losses]
    with plt.rc_context(STYLE):
        figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.9), sharey=True, layout="constrained")
        _curve(left, [point.tokens / per_count for point in losses], values)
        _curve(right, [point.seconds / per_time for point in losses], values)
        left.set(xlabel=f"{count}tokens trained on", ylabel="held-out loss, nats a token", title="by tokens")
        right.set(xlabel=time, title="by time")
        right.tick_params(labelleft=False)
        if values and 0.0 < min(values) < LOG_SHARE * max(values):
            left.set_yscale("log")
        _mark_controller(right, happenings, per_time)
        _save(figure, path)


def _curve(axes: Any, places: Sequence[float], values: Sequence[float]) -> None:
    axes.plot(places, values, color=BLUE, linewidth=1.8, marker="o" if len(values) <= 60 else "", markersize=4)
    axes.grid(True)
    axes.margins(x=0.04, y=0.1)
    if not values:
        axes.text(0.5, 0.5, "never measured", transform=axes.transAxes, ha="center", color=INK)
        return
    where = {"xytext": (0, 8), "textcoords": "offset points", "ha": "right"}
    axes.annotate(loss_text(values[-1]), (places[-1], values[-1]), color=BLUE, fontweight="bold", **where)


def timeline_chart(
    path: Path, assignments: Sequence[AssignmentRow], happenings: Sequence[Happening], end: float
) -> None:
    """Draw a lane for each worker with its assignments as bars, coloured by their outcomes.

    Raises StorageError.
    """
    plt = _pyplot()
    lanes = _lanes(assignments, happenings)
    pace, time = _time_unit(end)
    with plt.rc_context(STYLE):
        height = 1.5 + 0.34 * max(2, len(lanes))
        figure, axes = plt.subplots(figsize=(10, height), layout="constrained")
        place = {node: len(lanes) - 1 - index for index, node in enumerate(lanes)}
        drawn = _draw_presence(axes, place, happenings, end, pace)
        drawn += _draw_bars(axes, place, assignments, end, pace)
        drawn += _draw_moments(axes, place, happenings, pace)
        drawn += _mark_controller(axes, happenings, pace)
        axes.set_yticks(list(place.values()), list(map(_label, place)), parse_math=False)
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-0.7, max(1, len(lanes)) - 0.3)
        axes.set_xlim(-0.01 * end / pace, max(end, 1e-3) * 1.01 / pace)
        axes.set_xlabel(time)
        axes.spines["left"].set_visible(False)
        axes.grid(True, axis="x")
        if drawn:
            figure.legend(handles=drawn, loc="outside upper left", ncols=8, handlelength=1.2, columnspacing=1.4)
        _save(figure, path)


def _lanes(assignments: Sequence[AssignmentRow], happenings: Sequence[Happening]) -> list[str]:
    """Return the nodes to draw, in order of arrival: those with the most tokens when there are too many."""
    tokens: dict[str, int] = {happening.node: 0 for happening in happenings if happening.kind == "joined"}
    for row in assignments:
        tokens[row.node] = tokens.get(row.node, 0) + (row.tokens if row.outcome == "accepted" else 0)
    if len(tokens) <= MOST_LANES:
        return list(tokens)
    chosen = set(sorted(tokens, key=lambda node: -tokens[node])[:MOST_LANES])
    return [node for node in tokens if node in chosen]


def _draw_presence(
    axes: Any, place: dict[str, int], happenings: Sequence[Happening], end: float, pace: float
) -> list[Any]:
    """Draw a pale band while a node took part."""
    since: dict[str, float] = {}
    for happening in happenings:
        if happening.kind in ("joined", "restarted", "back"):
            since.setdefault(happening.node, happening.time)
        elif happening.kind in ("left", "killed", "revoked") and happening.node in since:
            _band(axes, place, happening.node, since.pop(happening.node), happening.time, pace)
    for node, start in since.items():
        _band(axes, place, node, start, end, pace)
    return []


def _band(axes: Any, place: dict[str, int], node: str, start: float, stop: float, pace: float) -> None:
    if node in place:
        axes.barh(place[node], (stop - start) / pace, 0.66, start / pace, color="#EFEFEF", linewidth=0)


def _draw_bars(
    axes: Any, place: dict[str, int], assignments: Sequence[AssignmentRow], end: float, pace: float
) -> list[Any]:
    from matplotlib.patches import Patch

    worked: dict[tuple[str, str], list[tuple[float, float]]] = {}
    busy: dict[str, float] = {}
    for row in assignments:
        if row.node not in place:
            continue
        stop = end if row.stop is None else row.stop
        start = min(stop, max(row.start, busy.get(row.node, 0.0)))  # its work waits while the one before is done
        busy[row.node] = max(stop, busy.get(row.node, 0.0))
        worked.setdefault((row.node, row.outcome), []).append((start, stop))
    many = sum(map(len, worked.values())) > MOST_BARS
    for (node, outcome), found in worked.items():
        bars = _merged(found, end / 2000) if many else found
        axes.broken_barh(
            [(start / pace, (stop - start) / pace) for start, stop in bars],
            (place[node] - 0.33, 0.66),
            facecolors=OUTCOMES[outcome],
            edgecolors="none" if many else "white",
            linewidth=0.6,
        )
    present = {outcome for _, outcome in worked}
    return [
        Patch(color=colour, label=LABELS.get(outcome, outcome))
        for outcome, colour in OUTCOMES.items()
        if outcome in present
    ]


def _merged(bars: Sequence[tuple[float, float]], gap: float) -> list[tuple[float, float]]:
    """Merge bars that are at most `gap` apart."""
    merged: list[tuple[float, float]] = []
    for start, stop in sorted(bars):
        if merged and start - merged[-1][1] <= gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return merged


def _draw_moments(axes: Any, place: dict[str, int], happenings: Sequence[Happening], pace: float) -> list[Any]:
    drawn = []
    for kinds, (label, marker, colour) in MOMENTS.items():
        found = [happening for happening in happenings if happening.kind in kinds and happening.node in place]
        if found:
            drawn.append(
                axes.scatter(
                    [happening.time / pace for happening in found],
                    [place[happening.node] for happening in found],
                    s=58,
                    marker=marker,
                    color=colour,
                    edgecolors="white",
                    linewidths=0.8,
                    label=label,
                    zorder=3,
                    clip_on=False,
                )
            )
    return drawn


def _mark_controller(axes: Any, happenings: Sequence[Happening], pace: float) -> list[Any]:
    """Draw a line at each restart of the controller."""
    lines = [
        axes.axvline(happening.time / pace, color=INK, linewidth=1.0, linestyle=(0, (4, 3)), label="controller resumed")
        for happening in happenings
        if happening.kind == "resumed"
    ]
    return lines[:1]


def heat_map(path: Path, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]]) -> None:
    """Draw by how many nats each rule is worse under each attack, as a PNG.

    None is a model that has learnt nothing. Colours end at 1 nat. Raises StorageError.
    """
    plt = _pyplot()
    with plt.rc_context(STYLE | {"axes.spines.left": False, "axes.spines.bottom": False}):
        size = 3.0 + 0.8 * len(columns), 1.8 + 0.34 * len(rows)
        figure, axes = plt.subplots(figsize=size, layout="constrained")
        shown = [[1.0 if value is None else value for value in row] for row in values]
        image = axes.imshow(shown, cmap="magma_r", vmin=0.0, vmax=1.0, aspect="auto")
        for down, row in enumerate(values):
            for across, value in enumerate(row):
                dark = value is None or value > 0.4
                text = "lost" if value is None else f"{value:.2f}"
                axes.text(across, down, text, ha="center", va="center", fontsize=8, color="white" if dark else INK)
        axes.set_xticks(range(len(columns)), list(map(_label, columns)), rotation=35, ha="right", parse_math=False)
        axes.set_yticks(range(len(rows)), [printable(row, 60) for row in rows], parse_math=False)
        axes.tick_params(length=0)
        figure.colorbar(image, label="nats above honest only", extend="max")
        _save(figure, path)


def _label(name: str) -> str:
    shown = printable(name)
    return shown if len(shown) <= MOST_LETTERS else f"{shown[: MOST_LETTERS - 1]}…"


def _count_unit(largest: int) -> tuple[float, str]:
    return (1e6, "million ") if largest >= 1e6 else (1e3, "thousand ") if largest >= 1e4 else (1.0, "")


def _time_unit(seconds: float) -> tuple[float, str]:
    return (3600.0, "hours") if seconds >= 5400 else (60.0, "minutes") if seconds >= 300 else (1.0, "seconds")


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    with storage_errors(path):
        path.parent.mkdir(exist_ok=True)
        figure.savefig(path, dpi=130)
    plt.close(figure)


def _pyplot() -> Any:
    import logging

    import matplotlib

    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot
