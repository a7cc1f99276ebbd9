"""One collective over many buffer sizes: the best method, its time and bandwidths, and the bound.

Sizes and bandwidths are those of the usual benchmarks of collectives: the size is the buffer that
an NPU ends with (or begins with, where data is reduced or scattered); algorithm bandwidth is size
over time; bus bandwidth is that times the share of the buffer which every NPU must at least send,
so that it compares with the links' own whatever the number of NPUs is.

References
----------
NVIDIA nccl-tests, doc/PERFORMANCE.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from nestopt.collective.model.collective import Collective
from nestopt.collective.model.connectivity import find_separation
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.collective.model.of_result import in_columns
from nestopt.core.errors import InputError, NestoptError
from nestopt.core.options import SolveOptions

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from nestopt.collective.model.schedule import Schedule
    from nestopt.collective.model.topology import Topology

__all__ = ["SWEEP_METHODS", "SweepRow", "bus_factor", "sizes_between", "sweep"]

_BASELINES = ("ring", "direct", "rhd", "dbt", "hierarchical")
_EXCHANGES = ("one-shot", "recursive-doubling", "mixed")
SWEEP_METHODS = (*_BASELINES, *_EXCHANGES, "greedy")


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One size.

    Attributes
    ----------
    size : int
        Bytes of the buffer.
    method : str
    chunks : int
        Chunks an NPU (of a Broadcast or Reduce: chunks).
    time_ps, bound_ps : int
        Of the chunks as they are cut.
    bound : str
        Name of the bound.
    algorithm_bandwidth, bus_bandwidth : float
        Bytes/s.
    times_ps : dict of str to int
        Of every method that has a schedule, with its best number of chunks.
    """

    size: int
    method: str
    chunks: int
    time_ps: int
    bound_ps: int
    bound: str
    algorithm_bandwidth: float
    bus_bandwidth: float
    times_ps: dict[str, int]


def sizes_between(first: int, last: int, factor: int = 2) -> list[int]:
    """Sizes from `first` on, each `factor` times the one before, none beyond `last`.

    Raises
    ------
    InputError
        If there are none, or the factor is no growth.
    """
    if factor < 2:
        raise InputError(f"{factor}; expected at least 2", field="factor")
    if not 1 <= first <= last:
        raise InputError(f"{first} to {last} bytes; expected two sizes that grow", field="sizes")
    found = [first]
    while found[-1] * factor <= last:
        found.append(found[-1] * factor)
    return found


def bus_factor(pattern: str, npus: int) -> Fraction:
    """Bus bandwidth over algorithm bandwidth."""
    if pattern == "all-reduce":
        return Fraction(2 * (npus - 1), npus)
    if pattern in ("broadcast", "reduce"):
        return Fraction(1)
    return Fraction(npus - 1, npus)


def sweep(
    topology: Topology,
    pattern: str,
    sizes: Sequence[int],
    *,
    chunks: Sequence[int] = (1, 4),
    methods: Sequence[str] = SWEEP_METHODS,
    latency: str = "pipelined",
    sums: str = "copied",
    seed: int = 0,
) -> Iterator[SweepRow]:
    """A row a size, as each is done.

    Parameters
    ----------
    sizes : sequence of int
        Bytes of the buffer.
    chunks : sequence of int
        Numbers of chunks an NPU to try; a chunk is rounded up to whole bytes.
    methods : sequence of str
        Names in `SWEEP_METHODS`; those that have no form for the pattern are left out.

    Raises
    ------
    NestoptError
        If no method has a schedule.
    """
    from nestopt.collective.bounds import best_bound
    from nestopt.collective.judge.check import check_schedule

    group = topology.npus.tolist()
    for size in sizes:
        best: tuple[int, int, str, int, CollectiveInstance] | None = None
        times: dict[str, int] = {}
        for k in chunks:
            pieces = k * (1 if pattern in ("broadcast", "reduce") else len(group))
            collective = Collective.of(
                pattern, group, chunk_size=-(-size // pieces), chunks_per_npu=k
            )
            instance = CollectiveInstance(topology, collective, latency, sums)
            separation = find_separation(instance)
            if separation is not None:
                raise NestoptError(separation.message)
            for rank, name in enumerate(methods):
                schedule = _schedule(instance, name, seed)
                if schedule is None:
                    continue
                check_schedule(instance, schedule)
                times[name] = min(times.get(name, schedule.makespan_ps), schedule.makespan_ps)
                if best is None or (schedule.makespan_ps, rank) < best[:2]:
                    best = (schedule.makespan_ps, rank, name, k, instance)
        if best is None:
            raise NestoptError(f"none of {', '.join(methods)} has a schedule of {pattern}")
        time, _, name, k, instance = best
        bound = best_bound(instance, effort=2.0)
        rate = size / (time * 1e-12) if time else float("inf")
        factor = float(bus_factor(pattern, len(group)))
        yield SweepRow(
            size, name, k, time, int(bound["value"]), bound["name"], rate, rate * factor, times
        )


def _schedule(instance: CollectiveInstance, name: str, seed: int) -> Schedule | None:
    """A method's schedule; None where it has none."""
    if name in _EXCHANGES:
        from nestopt.collective.baselines.exchange import exchange_schedule

        return exchange_schedule(instance, name)
    if name in _BASELINES:
        from nestopt.collective.baselines.solve import baseline_schedule

        try:
            return baseline_schedule(instance, name)
        except NestoptError:
            # no form for the pattern, or too many messages
            return None
    from nestopt.collective.greedy.solve import synthesize

    made: Any = synthesize(instance, SolveOptions(seed=seed, threads=1)).schedule
    return in_columns(instance, made)
