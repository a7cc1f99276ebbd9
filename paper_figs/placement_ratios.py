"""Table: iteration time of each baseline over that of dp, on NEST's models and clusters.

    python paper_figs/placement_ratios.py run     # hours; appends to records/placement_ratios.csv
    python paper_figs/placement_ratios.py         # prints the table from the records

Every cell is solved through the library as the command line would, checked by the independent
checker, and written as one row; cells already in the file are not run again.
"""

from __future__ import annotations

import csv
import math
import sys
import time
from pathlib import Path
from statistics import geometric_mean

RECORDS = Path(__file__).parent / "records" / "placement_ratios.csv"
MODELS = ("bert-large", "gpt3-175b", "llama2-7b", "llama3-70b", "mixtral-8x7b")
CLUSTERS = ("fattree-tpuv4", "h100-spineleaf")
SIZES = (64, 256, 1024)
BASELINES = ("megatron", "grid", "flat-dp", "mcmc", "random")
FIELDS = ("workload", "cluster", "method", "objective", "bound", "general_bound", "reason",
          "limit", "cpu_seconds", "seed")  # fmt: skip


def done() -> dict[tuple[str, str, str], dict[str, str]]:
    """Rows already recorded, by workload, cluster and method."""
    if not RECORDS.exists():
        return {}
    with RECORDS.open() as stream:
        return {(r["workload"], r["cluster"], r["method"]): r for r in csv.DictReader(stream)}


def run() -> None:
    """Solve what is missing."""
    from nestopt.options import SolveOptions
    from nestopt.problem import get_problem
    from nestopt.registry import get_method

    problem = get_problem("placement")
    have = done()
    if not RECORDS.exists():
        RECORDS.write_text(",".join(FIELDS) + "\n")
    for size in SIZES:
        for family in CLUSTERS:
            for model in MODELS:
                cluster = f"{family}-{size}"
                instance = problem.from_names({"workload": model, "cluster": cluster}, {})
                for method in ("dp", *BASELINES):
                    if (model, cluster, method) in have:
                        continue
                    chosen = {"iterations": "1500"} if method in ("mcmc", "random") else {}
                    begin = time.process_time()
                    options = SolveOptions(seed=1, time_limit=900.0, set=chosen)
                    result = get_method("placement", method)(instance, options)
                    spent = time.process_time() - begin
                    problem.check(result)
                    row = {
                        "workload": model,
                        "cluster": cluster,
                        "method": method,
                        "objective": result.objective,
                        "bound": result.bound,
                        "general_bound": result.stats.get("general_bound"),
                        "reason": result.termination.reason.value,
                        "limit": result.termination.limit.value,
                        "cpu_seconds": round(spent, 2),
                        "seed": 1,
                    }
                    with RECORDS.open("a", newline="") as stream:
                        csv.DictWriter(stream, FIELDS).writerow(row)
                    print(row, file=sys.stderr, flush=True)


def table() -> None:
    """Print ratios and their geometric means; a baseline without a plan shows as a dash."""
    rows = done()
    ratios: dict[str, list[float]] = {m: [] for m in BASELINES}
    print(f"{'workload':<13}{'cluster':<21}{'dp, s':>9}" + "".join(f"{m:>9}" for m in BASELINES))
    for size in SIZES:
        for family in CLUSTERS:
            for model in MODELS:
                cluster = f"{family}-{size}"
                best = rows.get((model, cluster, "dp"))
                if best is None or not best["objective"]:
                    continue
                line = f"{model:<13}{cluster:<21}{float(best['objective']):>9.4g}"
                for method in BASELINES:
                    row = rows.get((model, cluster, method))
                    if row is None or not row["objective"]:
                        line += f"{'-':>9}"
                        continue
                    ratio = float(row["objective"]) / float(best["objective"])
                    ratios[method].append(ratio)
                    line += f"{ratio:>9.3f}"
                print(line)
    means = "".join(f"{geometric_mean(r) if r else math.nan:>9.3f}" for r in ratios.values())
    print(f"{'geometric mean':<43}{means}")
    found = "".join(f"{len(r):>9}" for r in ratios.values())
    print(f"{'cells with a plan':<43}{found}")


if __name__ == "__main__":
    if sys.argv[1:] == ["run"]:
        run()
    table()
