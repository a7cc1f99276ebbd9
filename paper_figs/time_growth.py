"""Figure: the time of every method against size, a panel a family.

python paper_figs/time_growth.py
"""

from __future__ import annotations

from typing import Any

import growth
from figure_tools import Paths, by_name, count_of, wrapped
from scale import by_family

from nestopt.study.comparison import gap_to_bound, timed_out
from nestopt.study.drawing import PAGE, line_styles, log_scale, style

STUDIES = ("time-collective", "time-placement", "time-layers")
UNITS = {"collective": "NPUs", "placement": "devices"}
Families = dict[str, list[dict[str, Any]]]


def build(paths: Paths) -> None:
    """Draw the figure and write its table."""
    rows, missing = paths.read_some(STUDIES)
    sides = {
        problem: by_family([row for row in rows if row["instance"]["problem"] == problem])
        for problem in UNITS
    }
    sides = {problem: families for problem, families in sides.items() if families}
    with style():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(PAGE, 2.9 * len(sides)))
        parts = figure.subfigures(len(sides), 1, squeeze=False)[:, 0]
        for part, (problem, families) in zip(parts, sides.items()):
            _side(part, problem, families)
        late, errors = sum(map(timed_out, rows)), sum(map(growth.cut, rows))
        threads = ", ".join(str(count) for count in sorted({row["threads"] for row in rows}))
        limits = ", ".join(f"{x:g} s" for x in sorted({row["time_limit"] or 0 for row in rows}))
        paths.figure(
            "time_growth",
            figure,
            f"""CPU time of {count_of(len(rows), "run")} of every method against size, threads
            {threads}, time limit {limits}. Open marks: the {late} runs that the time limit ended
            and the {errors - late} that ran out of memory or ended in an error; they stand at
            the CPU seconds that they had used: their limit was by the wall clock. Latencies of
            networks
            are 0; plan space default-1. Times below a tick of the clock, 0.01 s, stand there.
            Lines join medians; the
            table has the exponents. Missing:
            {", ".join(missing) or "nothing"}.""",
        )
    lines = [
        [problem, family, name, *growth.line(chosen, gap_to_bound, _size_parameter(runs))]
        for problem, families in sides.items()
        for family, runs in families.items()
        for name, chosen in _by_method(runs).items()
    ]
    growth.table(
        paths,
        "time_growth",
        ("problem", "family", "method"),
        lines,
        "(objective - own lower bound) / objective",
    )


def _method(row: dict[str, Any]) -> str:
    return str(row["method"])


def _by_method(rows: list[dict[str, Any]]) -> Families:
    return {
        name: [row for row in rows if _method(row) == name] for name in by_name(map(_method, rows))
    }


def _size_parameter(rows: list[dict[str, Any]]) -> str:
    """``layers`` where these alone differ, else ``size``."""
    sizes = {row["parameters"].get("size") for row in rows}
    layers = {row["parameters"].get("layers") for row in rows}
    return "layers" if len(sizes) == 1 and len(layers) > 1 else "size"


def _side(part: Any, problem: str, families: Families) -> None:
    looks = line_styles(by_name(_method(row) for runs in families.values() for row in runs))
    panels = part.subplots(1, len(families), squeeze=False, sharey=True)[0]
    handles: dict[str, Any] = {}
    for axes, (family, runs) in zip(panels, families.items()):
        parameter = _size_parameter(runs)
        growth.draw(axes, _by_method(runs), looks, parameter, exponents=False)
        title = f"{problem}: {family}" if family != problem else problem
        axes.set_title(wrapped(title, 84 // len(families)), loc="left")
        fixed = {row["parameters"].get("size") for row in runs}
        unit = UNITS[problem]
        axes.set_xlabel(unit if parameter == "size" else f"layers, on {fixed.pop()} {unit}")
        handles |= {name: handle for handle, name in zip(*axes.get_legend_handles_labels())}
    log_scale(panels[0], "y")
    panels[0].set_ylabel("CPU time, s")
    part.legend(handles.values(), handles, loc="outside lower center", ncols=6, fontsize=6.5)


if __name__ == "__main__":
    build(Paths())
