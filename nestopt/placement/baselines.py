"""Baselines: what people and other planners do, each with its best fair partition.

All of them are priced by the same evaluator as the exact methods and held to the same memory.

``megatron``
    The manual recipe: one configuration for all stages, tensor parallelism inside a node, sequence
    parallelism, the distributed optimizer, blocks split evenly; the best of all (data, pipeline,
    tensor, micro-batch) degrees that use as many devices as they can.
``grid``
    Every uniform (data, pipeline, tensor, micro-batch) plan with every ZeRO stage and recompute
    mode, both layouts, and the split of the layers that balances its stages best.
``flat-dp``
    The exact dynamic program on a network without levels, once as fast as a node's and once as slow
    as the slowest level's share; its plan, priced on the real network.
``mcmc``
    Simulated annealing over the structured space, restarted.
``random``
    The best of many random plans of the structured space.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numba import njit

from nestopt.placement.cluster import Cluster, Level
from nestopt.placement.comm import PROFILE
from nestopt.placement.cost import FAMILIES, Grid, Mode, StageCosts, config_of
from nestopt.placement.evaluate import evaluate, reported
from nestopt.placement.plan import Plan, Stage
from nestopt.placement.space import SpaceSettings
from nestopt.result import Limit, Reason, Result, Termination, instance_record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from nestopt.options import SolveOptions
    from nestopt.placement.problem import PlacementInstance
    from nestopt.placement.workload import Workload

    Floats = NDArray[np.float64]

__all__ = [
    "Judge", "even_split", "solve_flat_dp", "solve_grid", "solve_megatron", "solve_mcmc",
    "solve_random", "uniform_plan",
]  # fmt: skip


class Judge:
    """Prices plans with the evaluator and keeps the best that fits.

    Attributes
    ----------
    best : float
    plan : Plan or None
    limit : str
        What ended the method: ``iterations`` when it finished, else ``time`` or ``interrupted``.
    """

    def __init__(self, instance: PlacementInstance, options: SolveOptions, method: str) -> None:
        self.instance, self.options, self.method = instance, options, method
        self.workload, self.cluster = instance.workload, instance.cluster
        self.costs = StageCosts(self.workload)
        self.settings = SpaceSettings.parse(options.set)
        self.best = math.inf
        self.plan: Plan | None = None
        self.limit = "iterations"
        self.priced = 0
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self._began

    def price(self, plan: Plan) -> float:
        """The objective of a plan, ``inf`` if it does not fit; remembers the best."""
        self.priced += 1
        if plan.schedule == "interleaved" and not self._interleaves(plan):
            return math.inf
        found = evaluate(self.workload, self.cluster, plan, self.costs)
        value = found.objective(self.options.objective) if found.fits else math.inf
        if value < self.best:
            self.best, self.plan = value, plan
            if self.options.progress is not None:
                self.options.progress(self.seconds, value, -math.inf, self.method)
        return value

    def _interleaves(self, plan: Plan) -> bool:
        """Whether the stages divide the micro-batches, and the chunks the operators."""
        kinds = self.costs.kind_of
        repeated = np.bincount(kinds) > 1
        m = self.workload.global_batch // (plan.replicas * plan.microbatch)
        held = [np.bincount(kinds[list(s.operators)], minlength=len(repeated)) for s in plan.stages]
        return m % len(plan.stages) == 0 and not (np.stack(held)[:, repeated] % plan.chunks).any()

    def run(self, plans: Iterable[Plan]) -> Result:
        """Price plans until they or the time end; the best as a result."""
        try:
            for plan in plans:
                self.price(plan)
                if self.seconds > self.options.time_limit:
                    self.limit = "time"
                    break
        except KeyboardInterrupt:
            self.limit = "interrupted"
        return self.result()

    def result(self) -> Result:
        """The best plan as a result; a baseline proves nothing but the arithmetic bound."""
        from nestopt.placement.bound import compute_bound

        reason = Reason.NO_SOLUTION if self.plan is None else Reason.FEASIBLE
        solution, objective = None, None
        if self.plan is not None:
            plan, _ = reported(self.workload, self.cluster, self.plan, self.costs)
            solution, objective = plan.to_json(), self.best
        bound = compute_bound(self.workload, self.cluster, self.options.objective)
        return Result(
            problem="placement",
            instance=instance_record(self.instance),
            method=self.method,
            termination=Termination(reason, Limit(self.limit)),
            objective=objective,
            bound=bound["value"],
            seconds=self.seconds,
            seed=self.options.seed,
            solution=solution,
            witness={"name": bound["name"], **bound["witness"]},
            stats={"priced": self.priced},
            settings={
                "objective": self.options.objective,
                "space": "structured",
                **{k: v for k, v in self.options.set.items() if k not in ("batch", "model")},
            },
        )


def even_split(times: Floats, parts: int) -> list[int]:
    """Ends of the contiguous split with the least maximum, then the least sum of squares.

    No part is empty; among equals the earlier parts are the longer ones.

    Parameters
    ----------
    times : float array (L,)
        What each layer weighs.
    parts : int
        At most L.

    Returns
    -------
    list of int
        ``ends[q]`` is one behind the last layer of part q; the last is L.
    """
    count = len(times)
    if not 1 <= parts <= count:
        raise ValueError(f"{parts} parts of {count} layers")
    before = np.concatenate([[0.0], np.cumsum(times)])
    start = _split(before, parts)
    ends, end = [], count
    for part in range(parts, 0, -1):
        ends.append(end)
        end = int(start[part, end])
    return ends[::-1]


@njit(cache=True)
def _split(before: Floats, parts: int) -> NDArray[np.int64]:
    """First layer of the last of `part` parts that end at `end`, in the best split."""
    count = len(before) - 1
    least = np.full((parts + 1, count + 1), np.inf)
    least[0, 0] = 0.0
    for part in range(1, parts + 1):
        for end in range(part, count + 1):
            for begin in range(part - 1, end):
                worst = max(least[part - 1, begin], before[end] - before[begin])
                least[part, end] = min(least[part, end], worst)
    top = least[parts, count] * (1 + 1e-12)
    squares = np.full((parts + 1, count + 1), np.inf)
    start = np.zeros((parts + 1, count + 1), np.int64)
    squares[0, 0] = 0.0
    for part in range(1, parts + 1):
        for end in range(part, count + 1):
            for begin in range(part - 1, end):
                length = before[end] - before[begin]
                value = squares[part - 1, begin] + length * length
                # The last of equal ones leaves the longer parts in front.
                if length <= top and value <= squares[part, end] * (1 + 1e-12):
                    squares[part, end] = value
                    start[part, end] = begin
    return start


def uniform_plan(
    cluster: Cluster,
    ends: Sequence[int],
    grid: Grid,
    mode: Mode,
    replicas: int,
    microbatch: int,
    layout: str,
    settings: SpaceSettings,
) -> Plan:
    """One configuration for all stages, without gaps."""
    alive = cluster.alive
    w, stages = grid.width, len(ends)
    config = config_of(grid, mode)
    begin = [0, *ends[:-1]]
    rows = []
    for q in range(stages):
        first = q * replicas * w if layout == "inner" else q * w
        stride = w if layout == "inner" else stages * w
        places = first + np.arange(replicas)[:, None] * stride + np.arange(w)
        rows.append(Stage(tuple(range(begin[q], ends[q])), config, alive[places]))
    return Plan(tuple(rows), replicas, microbatch, settings.schedule, settings.chunks)


def _layer_times(judge: Judge, grid: Grid, mode: Mode, microbatch: int) -> Floats:
    """Seconds of each operator without communication, on the fastest device type."""
    profiles = np.zeros((len(FAMILIES), PROFILE))
    kinds = np.min(
        [
            judge.costs.rates(grid, [mode], microbatch, 1, profiles, [t])[:, 0]
            for t in judge.cluster.types
        ],
        axis=0,
    )
    return kinds[judge.costs.kind_of]


def _chain_only(workload: Workload) -> None:
    from nestopt.errors import NestoptError

    if not workload.is_chain:
        raise NestoptError(
            f"workload {workload.name!r} is not a chain; this baseline splits chains only "
            "(dp, milp, cpsat, mcmc and random take any graph)"
        )


def _uniform(
    judge: Judge,
    grids: Sequence[Grid],
    modes: Callable[[Grid], Sequence[Mode]],
    layouts: Sequence[str],
    *,
    full: bool,
) -> Iterator[Plan]:
    """Uniform plans, those of least compute first, until none can beat the best any more.

    `full` leaves out degrees that leave devices idle where more stages could use them.
    """
    _chain_only(judge.workload)
    alive = len(judge.cluster.alive)
    objective, chunks = judge.options.objective, judge.settings.chunks
    begins = _units(judge)
    splits: dict[tuple[bytes, int], list[int]] = {}
    for grid in grids:
        if not judge.costs.allowed(grid).all():
            continue
        for d, b in judge.settings.batches(judge.workload, alive // grid.width):
            if b % grid.sample_parts:
                continue
            most = min(len(begins), alive // (d * grid.width))
            m = judge.workload.global_batch // (d * b)
            for stages in range(1, most + 1):
                if full and stages < most and alive % (d * grid.width * stages):
                    continue
                if judge.settings.schedule == "interleaved" and m % stages:
                    continue
                for mode in modes(grid):
                    times = np.add.reduceat(_layer_times(judge, grid, mode, b), begins)
                    key = ((times / times.sum()).round(9).tobytes(), stages)
                    if key not in splits:
                        splits[key] = even_split(times, stages)
                    ends = splits[key]
                    slowest = np.add.reduceat(times, [0, *ends[:-1]]).max()
                    floor = slowest
                    if objective == "iteration-time":
                        floor = (m - 1 / chunks) * slowest + times.sum() / chunks
                    if floor >= judge.best:
                        continue
                    ends = [*(begins[end] for end in ends[:-1]), judge.workload.num_operators]
                    if grid.e > 1 and not _all_hold_experts(judge.workload, ends):
                        continue
                    for layout in layouts if d > 1 else layouts[:1]:
                        yield uniform_plan(
                            judge.cluster, ends, grid, mode, d, b, layout, judge.settings
                        )


def _units(judge: Judge) -> list[int]:
    """First operators of what a split keeps together: as many of a repeated kind as chunks."""
    kinds = judge.costs.kind_of.tolist()
    begins = [0]
    for index, kind in enumerate(kinds):
        begin = begins[-1]
        if kind != kinds[begin] or index - begin == judge.settings.chunks:
            begins.append(index)
    return begins


def _all_hold_experts(workload: Workload, ends: Sequence[int]) -> bool:
    return all(
        any(o.experts for o in workload.operators[begin:end])
        for begin, end in zip([0, *ends[:-1]], ends, strict=True)
    )


def solve_megatron(instance: PlacementInstance, options: SolveOptions) -> Result:
    """The best balanced manual recipe (Megatron-LM's degrees, chosen well).

    Where the space leaves out the recipe's ZeRO stage, sequence parallelism or layout, what it
    offers instead.
    """
    judge = Judge(instance, options, "megatron")
    node = int(np.bincount(instance.cluster.group_of[0][instance.cluster.alive]).max(initial=1))
    alive = len(instance.cluster.alive)
    s = judge.settings
    grids = [g for g in s.grids(instance.workload, alive) if g.t <= node and g.x == g.z == g.c == 1]

    def modes(grid: Grid) -> Sequence[Mode]:
        offered = judge.costs.modes(grid, s.zero, s.recompute, s.sequence, s.overlap)
        recipe = [
            m
            for m in offered
            if m.zero == 1 and m.sequence_parallel == (grid.t > 1) and not m.overlap
        ]
        return recipe or offered

    layouts = ["inner"] if "inner" in s.layouts else s.layouts
    return judge.run(_uniform(judge, grids, modes, layouts, full=True))


def solve_grid(instance: PlacementInstance, options: SolveOptions) -> Result:
    """The best uniform plan of an exhaustive grid of degrees."""
    judge = Judge(instance, options, "grid")
    s = judge.settings
    grids = s.grids(instance.workload, len(instance.cluster.alive))

    def modes(grid: Grid) -> Sequence[Mode]:
        return judge.costs.modes(grid, s.zero, s.recompute, s.sequence, s.overlap)

    return judge.run(_uniform(judge, grids, modes, s.layouts, full=False))


def flat_clusters(cluster: Cluster) -> list[Cluster]:
    """The cluster without its levels: as fast as a node, and as slow as its slowest share."""
    top = len(cluster.levels) - 1
    latency = max(level.latency for level in cluster.levels)
    shares = [level.port for level in cluster.levels]
    for index, level in enumerate(cluster.levels[:-1]):
        shares.append(level.uplink / max(cluster.sizes[index]))
    size = (cluster.num_devices,)
    return [
        Cluster(
            f"{cluster.name} (flat)",
            (Level("flat", latency if top else cluster.levels[0].latency, port),),
            cluster.types,
            cluster.type_of,
            (size,),
            cluster.failed,
        )
        for port in (cluster.levels[0].port, min(shares))
    ]


def solve_flat_dp(instance: PlacementInstance, options: SolveOptions) -> Result:
    """The dynamic program on a flat network, its plans priced on the real one."""
    from nestopt.placement.dp.solve import search_structured

    judge = Judge(instance, options, "flat-dp")

    def plans() -> Iterator[Plan]:
        for flat in flat_clusters(instance.cluster):
            left = options.time_limit - judge.seconds
            quiet = replace(options, time_limit=left, progress=None)
            found = search_structured(instance.workload, flat, judge.settings, quiet)
            judge.limit = found.limit or judge.limit
            if found.plan is not None:
                yield found.plan
            if found.limit == "interrupted":
                return

    return judge.run(plans())


class _Walk:
    """Random plans of the structured space and random small changes of them."""

    def __init__(self, judge: Judge, rng: np.random.Generator) -> None:
        self.judge, self.rng = judge, rng
        self.alive = len(judge.cluster.alive)
        self.batches = judge.settings.batches(judge.workload, self.alive)
        self.grids = judge.settings.grids(judge.workload, self.alive)

    def modes(self, grid: Grid) -> Sequence[Mode]:
        s = self.judge.settings
        return self.judge.costs.modes(grid, s.zero, s.recompute, s.sequence, s.overlap)

    def random_plan(self) -> _Sketch | None:
        rng = self.rng
        if not self.batches:
            return None
        d, b = self.batches[int(rng.integers(len(self.batches)))]
        operators = self.judge.workload.num_operators
        grids = [g for g in self.grids if g.width * d <= self.alive and b % g.sample_parts == 0]
        if not grids:
            return None
        grid = grids[int(rng.integers(len(grids)))]
        most = min(operators, self.alive // (d * grid.width))
        stages = int(rng.integers(1, most + 1))
        cuts = np.sort(rng.choice(operators - 1, size=stages - 1, replace=False) + 1)
        modes = self.modes(grid)
        mode = modes[int(rng.integers(len(modes)))]
        layouts = self.judge.settings.layouts
        return _Sketch(
            d, b, layouts[int(rng.integers(len(layouts)))], [*map(int, cuts), operators],
            [(grid, mode)] * stages,
        )  # fmt: skip

    def neighbour(self, sketch: _Sketch) -> _Sketch | None:
        rng = self.rng
        ends, configs = list(sketch.ends), list(sketch.configs)
        stages = len(ends)
        move = int(rng.integers(6))
        q = int(rng.integers(stages))
        if move == 0 and stages > 1:
            q = int(rng.integers(stages - 1))
            low = ends[q - 1] + 1 if q else 1
            if low > ends[q + 1] - 1:
                return None
            ends[q] = int(rng.integers(low, ends[q + 1]))
        elif move == 1:
            grid = self.grids[int(rng.integers(len(self.grids)))]
            modes = self.modes(grid)
            chosen = (grid, modes[int(rng.integers(len(modes)))])
            whole = bool(rng.integers(2)) or self.judge.settings.uniform
            configs = [chosen] * stages if whole else [*configs[:q], chosen, *configs[q + 1 :]]
        elif move == 2:
            modes = self.modes(configs[q][0])
            mode = modes[int(rng.integers(len(modes)))]
            if bool(rng.integers(2)) or self.judge.settings.uniform:
                configs = [(g, mode if mode in self.modes(g) else m) for g, m in configs]
            else:
                configs[q] = (configs[q][0], mode)
        elif move == 3:
            begin = ends[q - 1] if q else 0
            if ends[q] - begin < 2:
                return None
            ends.insert(q, int(rng.integers(begin + 1, ends[q])))
            configs.insert(q, configs[q])
        elif move == 4 and stages > 1:
            q = int(rng.integers(stages - 1))
            del ends[q]
            del configs[q]
        else:
            d, b = self.batches[int(rng.integers(len(self.batches)))]
            layouts = self.judge.settings.layouts
            layout = layouts[int(rng.integers(len(layouts)))]
            return _Sketch(d, b, layout, ends, configs)
        return _Sketch(sketch.d, sketch.b, sketch.layout, ends, configs)

    def plan(self, sketch: _Sketch) -> Plan | None:
        """The plan of a sketch, without gaps, or None if it is no plan of the space."""
        d = sketch.d
        total = sum(g.width for g, _ in sketch.configs)
        if d * total > self.alive or any(sketch.b % g.sample_parts for g, _ in sketch.configs):
            return None
        stages = []
        begin = place = 0
        alive = self.judge.cluster.alive
        for end, (grid, mode) in zip(sketch.ends, sketch.configs, strict=True):
            # The order in which operators are listed is topological, so its prefixes are ideals.
            operators = tuple(range(begin, end))
            if not self._offered(operators, grid):
                return None
            stride = grid.width if sketch.layout == "inner" else total
            first = d * place if sketch.layout == "inner" else place
            rows = first + np.arange(d)[:, None] * stride + np.arange(grid.width)
            stages.append(Stage(operators, config_of(grid, mode), alive[rows]))
            begin, place = end, place + grid.width
        s = self.judge.settings
        return Plan(tuple(stages), d, sketch.b, s.schedule, s.chunks)

    def _offered(self, operators: Sequence[int], grid: Grid) -> bool:
        ops = [self.judge.workload.operators[i] for i in operators]
        return all(o.allows(*grid) for o in ops) and (grid.e == 1 or any(o.experts for o in ops))


class _Sketch:
    """A plan in outline: replicas, micro-batch, layout, ends of stages, configurations."""

    __slots__ = ("b", "configs", "d", "ends", "layout")

    def __init__(
        self, d: int, b: int, layout: str, ends: list[int], configs: list[tuple[Grid, Mode]]
    ) -> None:
        self.d, self.b, self.layout, self.ends, self.configs = d, b, layout, ends, configs


def _iterations(options: SolveOptions, default: int) -> int:
    from nestopt.errors import InputError

    text = options.set.get("iterations", str(default))
    if not text.isdigit() or int(text) < 1:
        raise InputError(f"{text!r}; expected a positive integer", field="--set iterations")
    return int(text)


def solve_random(instance: PlacementInstance, options: SolveOptions) -> Result:
    """The best of ``--set iterations=N`` random plans (default 2000)."""
    judge = Judge(instance, options, "random")
    walk = _Walk(judge, np.random.default_rng(options.seed))

    def plans() -> Iterator[Plan]:
        for _ in range(_iterations(options, 2000)):
            sketch = walk.random_plan()
            plan = None if sketch is None else walk.plan(sketch)
            if plan is not None:
                yield plan

    return judge.run(plans())


def solve_mcmc(instance: PlacementInstance, options: SolveOptions) -> Result:
    """Simulated annealing: ``--set iterations=N`` steps (default 4000), four restarts.

    The temperature falls geometrically from 10 % to 0.01 % of the incumbent; a plan that does not
    fit is never accepted.
    """
    judge = Judge(instance, options, "mcmc")
    rng = np.random.default_rng(options.seed)
    walk = _Walk(judge, rng)
    steps = _iterations(options, 4000)
    restarts = 4
    try:
        for _ in range(restarts):
            _anneal(judge, walk, rng, max(1, steps // restarts))
            if judge.limit == "time":
                break
    except KeyboardInterrupt:
        judge.limit = "interrupted"
    return judge.result()


def _anneal(judge: Judge, walk: _Walk, rng: np.random.Generator, steps: int) -> None:
    current, value = None, math.inf
    for step in range(steps):
        if judge.seconds > judge.options.time_limit:
            judge.limit = "time"
            return
        sketch = walk.random_plan() if current is None else walk.neighbour(current)
        plan = None if sketch is None else walk.plan(sketch)
        if plan is None:
            continue
        new = judge.price(plan)
        if not math.isfinite(new):
            continue
        # From 10 % to 0.01 % of the current value.
        heat = 0.1 * (1e-3 ** (step / steps))
        if new <= value or rng.random() < math.exp((value - new) / (heat * value)):
            current, value = sketch, new
