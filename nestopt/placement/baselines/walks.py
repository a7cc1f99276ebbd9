"""Random plans and simulated annealing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from nestopt.core.errors import InputError
from nestopt.core.stop import noticed, requested
from nestopt.placement.baselines.judge import Judge
from nestopt.placement.model.plan import Plan, Stage
from nestopt.placement.pricing.cost import Grid, Mode, config_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nestopt.core.options import SolveOptions
    from nestopt.core.result import Result
    from nestopt.placement.model.instance import PlacementInstance
    from nestopt.placement.model.schedules import PipelineSchedule

__all__ = ["solve_mcmc", "solve_random"]


class _Walk:
    """Random plans of the structured space and random small changes of them."""

    def __init__(self, judge: Judge, rng: np.random.Generator) -> None:
        self.judge, self.rng = judge, rng
        self.alive = len(judge.cluster.alive)
        self.batches = judge.space.batches(judge.workload, self.alive)
        self.grids = judge.space.grids(judge.workload, self.alive)

    def modes(self, grid: Grid) -> Sequence[Mode]:
        s = self.judge.space
        return self.judge.costs.modes(grid, s.zero, s.recompute, s.sequence, s.overlap, s.hides)

    def random_plan(self) -> _Sketch | None:
        rng = self.rng
        if not self.batches or not self.judge.pipelines:
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
        layouts = self.judge.space.layouts
        return _Sketch(
            d, b, layouts[int(rng.integers(len(layouts)))], [*map(int, cuts), operators],
            [(grid, mode)] * stages, self.schedule(),
        )  # fmt: skip

    def schedule(self) -> PipelineSchedule:
        """A schedule and its chunks, at random where there is a choice."""
        offered = self.judge.pipelines
        return offered[int(self.rng.integers(len(offered)))] if len(offered) > 1 else offered[0]

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
            whole = bool(rng.integers(2)) or self.judge.space.uniform
            configs = [chosen] * stages if whole else [*configs[:q], chosen, *configs[q + 1 :]]
        elif move == 2:
            modes = self.modes(configs[q][0])
            mode = modes[int(rng.integers(len(modes)))]
            if bool(rng.integers(2)) or self.judge.space.uniform:
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
            layouts = self.judge.space.layouts
            layout = layouts[int(rng.integers(len(layouts)))]
            return _Sketch(d, b, layout, ends, configs, self.schedule())
        return _Sketch(sketch.d, sketch.b, sketch.layout, ends, configs, sketch.schedule)

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
        schedule = sketch.schedule
        return Plan(tuple(stages), d, sketch.b, schedule.name, schedule.chunks)

    def _offered(self, operators: Sequence[int], grid: Grid) -> bool:
        ops = [self.judge.workload.operators[i] for i in operators]
        return all(o.allows(*grid) for o in ops) and (grid.e == 1 or any(o.experts for o in ops))


class _Sketch:
    """A plan in outline: replicas, micro-batch, layout, ends of stages, configurations."""

    __slots__ = ("b", "configs", "d", "ends", "layout", "schedule")

    def __init__(
        self,
        d: int,
        b: int,
        layout: str,
        ends: list[int],
        configs: list[tuple[Grid, Mode]],
        schedule: PipelineSchedule,
    ) -> None:
        self.d, self.b, self.layout, self.ends, self.configs = d, b, layout, ends, configs
        self.schedule = schedule


def _iterations(options: SolveOptions, default: int) -> int:
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
        noticed()
        judge.limit = "interrupted"
    return judge.result()


def _anneal(judge: Judge, walk: _Walk, rng: np.random.Generator, steps: int) -> None:
    current, value = None, math.inf
    for step in range(steps):
        if judge.seconds > judge.options.time_limit or requested():
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
