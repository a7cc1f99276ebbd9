"""Figure: the time of every method against size.

python paper_figs/time_growth.py
"""

from __future__ import annotations

from typing import Any

import growth
from figure_tools import NoRecordsError, Paths, by_name, count_of

from nestopt.study.comparison import gap_to_bound, timed_out
from nestopt.study.drawing import PAGE, log_scale, style

STUDIES = ("time-collective", "time-placement")
UNITS = {"collective": "NPUs", "placement": "devices"}


def build(paths: Paths) -> None:
    """Draw the figure and write its table."""
    rows, missing = paths.read_some(STUDIES)
    sized = [row for row in rows if isinstance(row["parameters"].get("size"), int)]
    if not sized:
        raise NoRecordsError("no run with a size", file=" or ".join(STUDIES))
    sides = {
        problem: [row for row in sized if row["instance"]["problem"] == problem]
        for problem in UNITS
    }
    sides = {problem: chosen for problem, chosen in sides.items() if chosen}
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE, 2.8 * len(sides)))
        panels = figure.subplots(len(sides), 1, squeeze=False)[:, 0]
        for axes, (problem, chosen) in zip(panels, sides.items()):
            growth.draw(axes, chosen, _method, beside=True)
            axes.set_xlabel(UNITS[problem])
            axes.set_ylabel("CPU time, s")
            axes.set_title(problem, loc="left")
            log_scale(axes, "x")
        late = sum(map(timed_out, sized))
        paths.figure(
            "time_growth",
            figure,
            f"""CPU time of {count_of(len(sized), "run")}, one thread; the {late} that a time limit
            ended stand at the limit with open marks. Lines join medians. Legend: exponent of
            time over size, least squares of logarithms over the runs that ended before a limit,
            with its 95 % interval. Without a size: {count_of(len(rows) - len(sized), "run")}.
            Missing: {"; ".join(missing) or "nothing"}.""",
        )
    growth.table(
        paths,
        "time_growth",
        [(problem, name, [r for r in chosen if _method(r) == name])
         for problem, chosen in sides.items() for name in by_name(map(_method, chosen))],
        gap_to_bound,
    )  # fmt: skip


def _method(row: dict[str, Any]) -> str:
    return str(row["method"])


if __name__ == "__main__":
    build(Paths())
