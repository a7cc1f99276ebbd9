"""Synthetic records of every study that a figure reads."""

from __future__ import annotations

import json
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from synthetic import record, write

if TYPE_CHECKING:
    from pathlib import Path

Rows = list[dict[str, Any]]


def price_of_structure() -> Rows:
    rng = np.random.default_rng(1)
    rows = []
    axes = product(("chains", "trees"), ("none", "uplink:0.25,1"), (0, 1, 2), range(10))
    for family, uneven, failed, seed in axes:
        parameters = {
            "family": family, "heterogeneity": uneven, "degraded": "none", "fail_npus": failed,
            "instance_seed": seed, "size": 8, "devices": 8 - failed,
        }  # fmt: skip
        best = float(rng.uniform(1, 2))
        loss = float(rng.exponential(0.1) * (rng.uniform() < 0.3 + 0.2 * failed))
        ours = best / (1 - min(loss, 0.5))
        rows.append(
            record(
                "price-of-structure",
                "structured",
                solver="dp",
                objective=ours,
                bound=ours,
                parameters=parameters,
            )
        )
        proof = seed != 3
        rows.append(
            record(
                "price-of-structure", "general", solver="cpsat", objective=best,
                bound=best if proof else best * 0.9, reason=None if proof else "feasible",
                limit=None if proof else "time", settings={"space": "general"},
                parameters=parameters,
            )
        )  # fmt: skip
    return rows


def greedy_gap() -> Rows:
    rng = np.random.default_rng(2)
    rows = []
    axes = product(
        ("all-gather on torus2d", "all-gather on random", "all-to-all on mesh2d"),
        ("none", "log-uniform:0.25,1", "degraded:2,1/4"),
        range(10),
    )
    for family, uneven, seed in axes:
        parameters = {
            "family": family, "heterogeneity": uneven, "degraded": "none", "fail_links": seed % 2,
            "instance_seed": seed, "size": 9, "npus": 9, "collective": family.split()[0],
        }  # fmt: skip
        best = int(rng.integers(10**6, 10**7))
        proof = not (family == "all-to-all on mesh2d" and seed > 6)
        common: dict[str, Any] = {"problem": "collective", "parameters": parameters}
        rows.append(
            record(
                "greedy-gap",
                "exact",
                solver="cpsat",
                objective=best,
                bound=best if proof else best // 2,
                **common,
            )
        )
        for method, scale in (("greedy", 0.02), ("greedy, 8 restarts", 0.01), ("ring", 0.5)):
            loss = float(rng.exponential(scale) * (uneven != "none" or method == "ring"))
            solved = not (method == "ring" and seed == 0)
            rows.append(
                record(
                    "greedy-gap", method, solver=method.partition(",")[0],
                    objective=int(best * (1 + loss)) if solved else None, bound=best // 2,
                    reason=None if solved else "infeasible", **common,
                )
            )  # fmt: skip
    return rows


def growth(
    study: str, problem: str, methods: dict[str, float], most: int, size_name: str = "size"
) -> Rows:
    rng = np.random.default_rng(3)
    rows = []
    sizes = [4**k for k in range(2, 8) if 4**k <= most]
    for method, size, seed in product(methods, sizes, range(3)):
        spent = 1e-3 * size ** methods[method] * float(rng.lognormal(sigma=0.2))
        late = spent > 60
        gap = float(rng.uniform(0, 0.05))
        family = ("fat-tree", "spine-leaf")[seed % 2] if problem == "placement" else "mesh2d"
        if size_name == "layers":
            family = "layers"
        rows.append(
            record(
                study, method, problem=problem, objective=None if late else 1.0,
                bound=1 - gap if problem == "collective" else 1.0 if not late else 0.0,
                reason=None if not late else "no-solution", seconds=min(spent, 60.0), seed=seed,
                stats={"general_bound": 1 - gap}, time_limit=60.0,
                parameters={"family": family, "size": 64, size_name: size, "instance_seed": seed},
            )
        )  # fmt: skip
    return rows


def exact_backends(problem: str) -> Rows:
    rng = np.random.default_rng(4)
    rows = []
    for size, layers, seed in product((4, 8, 16), (4, 8), range(5)):
        parameters = {"family": "x", "size": size, "instance_seed": seed}
        if problem == "placement":
            parameters["layers"] = layers
        elif layers == 8:
            continue
        for method, scale in (("highs", 0.02), ("cbc", 0.08), ("cpsat", 0.01)):
            spent = scale * (size * layers) ** 1.5 * float(rng.lognormal())
            late = spent > 60
            rows.append(
                record(
                    f"exact-backends-{problem}", method, problem=problem,
                    solver="cpsat" if method == "cpsat" else "milp",
                    objective=5, bound=4 if late else 5, reason=None if not late else "feasible",
                    limit="time" if late else None, seconds=min(spent, 60.0),
                    parameters=parameters,
                )
            )  # fmt: skip
    return rows


def nest_evaluation() -> Rows:
    rng = np.random.default_rng(5)
    rows = []
    models = ("bert-large", "gpt3-175b", "llama2-7b", "llama3-70b", "mixtral-8x7b")
    for model, family, size in product(models, ("fattree-tpuv4", "h100-spineleaf"), (64, 256)):
        parameters = {
            "family": family, "workload": model, "cluster": f"{family}-{size}", "size": size,
            "instance_seed": 0,
        }  # fmt: skip
        best = float(rng.uniform(1, 300))
        rows.append(
            record("nest-evaluation", "dp", objective=best, bound=best, parameters=parameters)
        )
        for method, seeds in (("megatron", 1), ("grid", 1), ("flat-dp", 1), ("mcmc", 10)):
            for seed in range(seeds):
                ratio = 1 + float(rng.exponential(0.3))
                none = method == "flat-dp" and model == "mixtral-8x7b"
                rows.append(
                    record(
                        "nest-evaluation", method, objective=None if none else best * ratio,
                        bound="-inf", seed=seed, parameters=parameters,
                    )
                )  # fmt: skip
    return rows


def axonn_ranking() -> Rows:
    rng = np.random.default_rng(6)
    rows = []
    for model, cluster in product(("axonn-20b", "axonn-80b"), ("perlmutter-256", "frontier-1024")):
        parameters = {"workload": model, "cluster": cluster, "instance_seed": 0, "family": "x"}
        ranking = {"name": f"{model} on {cluster}", "sha256": None, "problem": "ranking"}
        best = float(rng.uniform(5, 20))
        for mode, loss in (("published", 0.4), ("corrected", 0.1), ("full", 0.0)):
            stats = {"grid": "1x4x8x4", "best_grid": "1x2x16x4", "rank_correlation": 0.8}
            rows.append(
                record(
                    "axonn-ranking", mode, solver="rank4d", objective=best * (1 + loss), bound=best,
                    settings={"mode": mode}, parameters=parameters, instance=ranking, stats=stats,
                )
            )  # fmt: skip
        for method, settings, time in (
            ("dp, 4D", {"decomposition": "4d"}, best * 0.8),
            ("dp, Megatron", {}, best * 0.9),
        ):
            rows.append(
                record(
                    "axonn-ranking", method, solver="dp", objective=time, bound=time,
                    settings=settings, parameters=parameters,
                )
            )  # fmt: skip
    return rows


def validation() -> dict[str, Any]:
    rows = [
        {"row": str(i), "measured": m, "predicted": p, "error": p / m - 1, "fitted": i == 0,
         "assumed": []}
        for i, (m, p) in enumerate([(2.0, 2.1), (20.0, 19.0), (80.0, 90.0)])
    ]  # fmt: skip
    table = {
        "table": "narayanan2021_table1", "quantity": "seconds an iteration", "mape": 0.05,
        "mape_of_rows_not_fitted": 0.06, "spearman": 0.9, "regret": None, "rows": rows,
    }  # fmt: skip
    return {"schema": "nestopt.validation/1", "tables": [table]}


def write_all(folder: Path) -> None:
    """Write the records of all studies."""
    times = {"greedy": 1.2, "ring": 0.8, "cpsat": 3.0}
    studies = {
        "price-of-structure": price_of_structure(),
        "greedy-gap": greedy_gap(),
        "scale-collective": growth("scale-collective", "collective", {"greedy": 1.2}, 16384),
        "scale-placement": growth("scale-placement", "placement", {"dp": 1.3}, 16384),
        "exact-backends-placement": exact_backends("placement"),
        "exact-backends-collective": exact_backends("collective"),
        "nest-evaluation": nest_evaluation(),
        "axonn-ranking": axonn_ranking(),
        "time-collective": growth("time-collective", "collective", times, 1024),
        "time-placement": growth(
            "time-placement", "placement", {"dp": 1.3, "mcmc": 0.7, "milp": 2.5}, 1024
        ),
        "time-layers": growth("time-layers", "placement", {"dp": 1.3, "mcmc": 0.7}, 1024, "layers"),
    }
    for name, rows in studies.items():
        write(rows, folder / f"{name}.jsonl")
    (folder / "validation.json").write_text(json.dumps(validation()), encoding="utf-8")
