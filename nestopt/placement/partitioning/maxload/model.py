"""The max-load partitioning problem: its data, its splits, and the load of a split.

Operators of a DAG are divided among identical accelerators and CPUs so that the largest load of
a device is smallest. An accelerator's load is its compute time plus the transfers, through host
memory, of every output that it hands over or takes in: an output is paid once by the accelerator
that makes it, however many places it goes to, and once by each accelerator that takes it. A CPU
pays compute time only. Operators of one colour stay together. The devices' sets form a chain of
nested ideals of the forward operators' order (a pipeline), and each backward operator goes where
its colour's forward operators go.

References
----------
Tarnawski, Phanishayee, Devanur, Mahajan, Nina Paravecino: Efficient Algorithms for Device
Placement of DNN Graph Operators, NeurIPS 2020, section 3 (computational model), section 5
(maximising throughput) and its appendix on training graphs.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SCHEMA", "MaxLoadProblem", "Operator", "Stage", "stage_load", "stage_memory"]

SCHEMA = "nestopt.maxload/1"


@dataclass(frozen=True, slots=True)
class Operator:
    """One vertex of the workload.

    Attributes
    ----------
    id : int
        Unique number.
    accelerator_time, cpu_time : float
        Compute time on an accelerator and on a CPU, seconds.
    memory : float
        Bytes it takes on an accelerator.
    output_time : float
        Seconds to move its output between an accelerator and host memory.
    backward : bool
        Whether it belongs to the backward pass, which is not ordered.
    colour : int or None
        Operators of one colour share a device; None for no such tie.
    on_accelerator : bool
        Whether an accelerator can run it.
    name : str
    """

    id: int
    accelerator_time: float
    cpu_time: float
    memory: float = 0.0
    output_time: float = 0.0
    backward: bool = False
    colour: int | None = None
    on_accelerator: bool = True
    name: str = ""


@dataclass(frozen=True, slots=True)
class MaxLoadProblem:
    """An instance of the max-load partitioning problem.

    Attributes
    ----------
    name : str
    accelerators, cpus : int
        How many devices of each kind there are; some may stay empty.
    accelerator_memory : float
        Bytes of one accelerator. A CPU has no limit.
    operators : tuple of Operator
    edges : tuple of (int, int)
        (id of the producer, id of the consumer).
    schema, objectives, spaces : str, tuple of str, tuple of str
        Of the class: the schema of its JSON, and what can be asked for.
    """

    schema: ClassVar[str] = SCHEMA
    objectives: ClassVar[tuple[str, ...]] = ("bottleneck",)
    spaces: ClassVar[tuple[str, ...]] = ("structured",)

    name: str
    accelerators: int
    cpus: int
    accelerator_memory: float
    operators: tuple[Operator, ...]
    edges: tuple[tuple[int, int], ...]

    def to_json(self) -> dict[str, Any]:
        """The whole instance as JSON."""
        return {
            "schema": SCHEMA,
            "problem": "placement",
            "name": self.name,
            "accelerators": self.accelerators,
            "cpus": self.cpus,
            "accelerator_memory": self.accelerator_memory,
            "operators": [
                {
                    "id": o.id,
                    "name": o.name,
                    "accelerator_time": o.accelerator_time,
                    "cpu_time": o.cpu_time,
                    "memory": o.memory,
                    "output_time": o.output_time,
                    "backward": o.backward,
                    "colour": o.colour,
                    "on_accelerator": o.on_accelerator,
                }
                for o in self.operators
            ],
            "edges": [list(edge) for edge in self.edges],
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> MaxLoadProblem:
        """Inverse of `to_json`.

        Raises
        ------
        InputError
            Naming file, field and value: an unknown field, a negative or infinite number, a
            repeated id, an edge to nowhere, a cycle, no device at all.
        """
        from nestopt.placement.partitioning.maxload.schema import read_problem

        return read_problem(data, file=file)

    @property
    def one_accelerator_load(self) -> float:
        """Load of a single accelerator that holds every operator, its memory left aside."""
        return fsum(o.accelerator_time for o in self.operators)


@dataclass(frozen=True, slots=True)
class Stage:
    """A device that is used, and the ids of its operators."""

    device: Literal["accelerator", "cpu"]
    operators: tuple[int, ...]


def stage_load(problem: MaxLoadProblem, stage: Stage) -> float:
    """Seconds that the device of a stage is busy per sample."""
    inside = set(stage.operators)
    by_id = {o.id: o for o in problem.operators}
    if stage.device == "cpu":
        return fsum(by_id[i].cpu_time for i in stage.operators)
    leaving = {u for u, v in problem.edges if u in inside and v not in inside}
    entering = {u for u, v in problem.edges if u not in inside and v in inside}
    return fsum(by_id[i].accelerator_time for i in stage.operators) + fsum(
        by_id[u].output_time for u in sorted(leaving) + sorted(entering)
    )


def stage_memory(problem: MaxLoadProblem, operators: Sequence[int]) -> float:
    """Bytes that these operators take on an accelerator."""
    inside = set(operators)
    return fsum(o.memory for o in problem.operators if o.id in inside)
