"""Table: how the time of `dp` grows with devices and with layers, in CPU seconds after warm-up.

python paper_figs/placement_growth.py
"""

from __future__ import annotations

import math
import time

from instances.clusters import by_name as cluster_of
from instances.workloads import by_name as workload_of
from nestopt.options import SolveOptions
from nestopt.placement.dp.solve import Outcome, search_structured
from nestopt.placement.space import SpaceSettings


def measure(workload: str, cluster: str) -> tuple[float, Outcome]:
    """CPU seconds and outcome of one run."""
    job, machine = workload_of(workload), cluster_of(cluster)
    begin = time.process_time()
    found = search_structured(job, machine, SpaceSettings(), SolveOptions())
    return time.process_time() - begin, found


def exponent(sizes: list[int], seconds: list[float]) -> float:
    """Slope of log seconds over log size, least squares."""
    x = [math.log(s) for s in sizes]
    y = [math.log(s) for s in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    top = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return top / sum((a - mean_x) ** 2 for a in x)


def main() -> None:
    """Print both tables."""
    measure("gpt3-1.7b", "fattree-tpuv4-16")
    for family in ("fattree-tpuv4", "h100-spineleaf"):
        print(f"\ngpt3-175b on {family}-N")
        print(f"{'devices':>8}{'CPU s':>9}{'T, s':>10}{'gap to general bound':>22}")
        sizes, seconds = [64, 128, 256, 512, 1024, 2048, 4096], []
        for size in sizes:
            spent, found = measure("gpt3-175b", f"{family}-{size}")
            seconds.append(spent)
            gap = 1 - found.general_bound / found.objective
            print(f"{size:>8}{spent:>9.2f}{found.objective:>10.4g}{gap:>22.1%}", flush=True)
        print(f"growth exponent {exponent(sizes, seconds):.2f}")
    print(
        f"\ngpt3-175b with other depths on fattree-tpuv4-256\n{'layers':>8}{'CPU s':>9}{'T, s':>10}"
    )
    depths, seconds = [24, 48, 96, 192, 384], []
    for depth in depths:
        spent, found = measure(f"gpt3-175b,layers={depth}", "fattree-tpuv4-256")
        seconds.append(spent)
        print(f"{depth:>8}{spent:>9.2f}{found.objective:>10.4g}", flush=True)
    print(f"growth exponent {exponent(depths, seconds):.2f}")


if __name__ == "__main__":
    main()
