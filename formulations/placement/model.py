"""What the two placement models share: the families without prices, and reading solutions back.

Sets and parameters of a scenario (replicas d, micro-batch of s samples, schedule and, in the
structured space, layout are fixed in it):

| symbol | code | meaning | unit |
| --- | --- | --- | --- |
| p | `positions` | stages, numbered from the end: 0 is the last | |
| o, E | `operators`, `data.workload.edges` | operators; edges (u, v) | |
| k, O_k | `scenario.members_of_kind` | kinds of alike operators | |
| g, I_g | `scenario.grids`, `roles` | grids (x, y, z, c, e); roles r w + j: rank j of replica r | |
| c, O_c | `scenario.configs`, `allowed` | configurations: grid and mode; operators they suit | |
| a | `data.cells` | cells: alike devices of one innermost group | |
| h | `data.groups` | groups of the cluster's tree, of level l(h) | |
| f, n | `grid.families`, `groups` | families of communication; their groups | |
| y | `data.type_sets` | sets of device types; C_y usable memory | bytes |
| tau, epsilon | `compute`, `excess` | time of an operator; what a class or type set adds | s |
| sigma, alpha, beta | `step`, `sync` | optimizer step; synchronisation | s, s/parameter |
| M, W | `states`, `stored`, `working` | bytes that add up; of which the largest counts | bytes |
| U, L | `cutoff`, `longest` | objective of the best plan known; its longest stage | s |

Variables that both models have (binary unless said otherwise):

| name | meaning |
| --- | --- |
| `use[p]` | there is a stage at the position |
| `late[o, p]` | operator o lies in one of the stages 0 to p; `inside(o, p)` is in(o, p) |
| `config[p, c]` | the stage has configuration c; summed over those of a grid: `has_grid` |
| `role[p, g, i, a]` | the stage has grid g, and its role i a device of cell a |
| `place[p, g, k]`, `window[n]` | the stage's run of the line; the common window (structured) |
| `member[p, g, f, n, h, v]` | group n of family f has v devices in group h |
| `comm[p, g, f, k]` | the family costs no more than class k says |
| `types[p, y]` | the stage has type set y |
| `boundary[p, k]` | the boundary behind stage p + 1 has class k |
| `line[p, c, f, k, i]` | the algorithm that synchronises parameters |
| `stage_time[p]`, `boundary_time[p]` | times, at least what the families say (`unit` seconds) |
| `largest_stage_time`, `largest_sync` | their maxima: `largest`, `sync` in the code |

Times are bounded from below only: a constraint of one's own may ask for at most, not for at least.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.formulations.placement.communication import PlacementCommunication
from nestopt.formulations.placement.layout import PlacementLayout
from nestopt.placement.model.plan import Plan, Stage
from nestopt.placement.pricing.cost import config_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.formulations.solvers.adapters import Outcome

__all__ = ["PlacementModel", "StageChoice"]


@dataclass(frozen=True, slots=True)
class StageChoice:
    """A stage as a model's solution has it.

    Attributes
    ----------
    position : int
        0 for the last stage.
    operators : tuple of int
    config, types : int
        Numbers of the configuration and of the type set.
    cells : tuple of int
        Cell of every role.
    devices : tuple of int
        Device of every role in the structured space, else empty.
    """

    position: int
    operators: tuple[int, ...]
    config: int
    types: int
    cells: tuple[int, ...]
    devices: tuple[int, ...]


class PlacementModel(PlacementLayout, PlacementCommunication):
    """Base of the two models.

    A subclass makes variables (`_binary`, `_whole`), sums (`sum`) and named constraints (`_add`).
    """

    def forbid_stage(self, stage: StageChoice) -> None:
        """No stage at the position with these operators, this configuration and this type set."""
        p = stage.position
        outside = [o for o in self.operators if o not in stage.operators]
        matches = self._sum(self.inside(o, p) for o in stage.operators)
        matches += self.config[p, stage.config] + self.types[p, stage.types]
        matches -= self._sum(self.inside(o, p) for o in outside)
        self.forbidden += 1
        self._add(matches <= len(stage.operators) + 1, "forbidden", self.forbidden)

    def stages(self, outcome: Outcome) -> list[StageChoice]:
        """The stages of the incumbent, first to last."""

        def chosen(table: dict[Any, Any], *start: int) -> tuple[int, ...]:
            return next(k for k, x in table.items() if k[: len(start)] == start and value(x))

        def value(variable: Any) -> bool:
            return int(outcome.value(variable)) == 1

        position_of = {
            o: sum(not value(x) for (v, _), x in self.late.items() if v == o)
            for o in range(self.data.workload.num_operators)
        }
        found = []
        for p in sorted((p for p, x in self.use.items() if value(x)), reverse=True):
            (_, c), (_, types) = chosen(self.config, p), chosen(self.types, p)
            grid = self.scenario.configs[c].grid
            devices: tuple[int, ...] = ()
            if self.place:
                place = chosen(self.place, p, grid.index)[-1]
                devices = self.scenario.places[grid.index][place].devices
            found.append(
                StageChoice(
                    p,
                    tuple(o for o, q in position_of.items() if q == p),
                    c,
                    types,
                    tuple(chosen(self.role, p, grid.index, i)[-1] for i in range(grid.roles)),
                    devices,
                )
            )
        return found

    def plan(self, stages: Sequence[StageChoice]) -> Plan:
        """The plan of stages; which of a cell's devices a role gets does not matter."""
        free = {cell.index: list(cell.devices) for cell in self.data.cells}
        scenario = self.scenario.scenario
        done = []
        for stage in stages:
            config = self.scenario.configs[stage.config]
            devices = stage.devices or [free[cell].pop(0) for cell in stage.cells]
            done.append(
                Stage(
                    stage.operators,
                    config_of(config.grid.grid, config.mode),
                    np.array(devices, dtype=np.int64).reshape(self.scenario.replicas, -1),
                )
            )
        return Plan(
            tuple(done),
            scenario.replicas,
            scenario.microbatch,
            scenario.schedule.name,
            scenario.schedule.chunks,
        )
