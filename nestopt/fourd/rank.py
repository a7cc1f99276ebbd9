"""AxoNN's ranking of all 4D decompositions of a job on a machine.

Four models rank. ``full`` is the placement model: each decomposition is the one-stage plan that
`nestopt.fourd.plans` makes of it, with the price that ``nestopt solve`` gives it. ``layers``
follows AxoNN's overlaps product by product on its measured bandwidths, with weight caching and
over-decomposition, and has a waterfall; ``published`` and ``corrected`` are AxoNN's communication
models (`nestopt.fourd.commmodel`).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.core.registry import named
from nestopt.fourd.commmodel import collectives_of, memory, seconds
from nestopt.fourd.decomposition import factorizations
from nestopt.fourd.layertimes import block_times
from nestopt.fourd.models import machine_of, named_model
from nestopt.fourd.network import iteration_flops
from nestopt.fourd.overlap import Overlap, exposed
from nestopt.fourd.plans import price_grids, workload_of_model
from nestopt.fourd.simulate import simulate
from nestopt.fourd.waterfall import STEPS, step_table, waterfall

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import Console

    from nestopt.fourd.decomposition import Grid
    from nestopt.fourd.models import Machine
    from nestopt.fourd.waterfall import Step
    from nestopt.placement.model.cluster import Cluster, DeviceType
    from nestopt.placement.model.transformer import Transformer

__all__ = [
    "AXONN_OVERLAP",
    "RankTable",
    "Ranked",
    "describe",
    "grids_of",
    "rank",
    "rank_plans",
    "rank_table",
    "waterfall_of",
]

AXONN_OVERLAP = Overlap(all_reduce=True, reduce_scatter=True, all_gather=True, data=True)
"""AxoNN's three overlaps, and the data-parallel all-reduce behind the backward pass."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """One decomposition and its prices.

    Attributes
    ----------
    grid : Grid
    volume : float
        Bytes that a device sends in an iteration.
    communication : float
        Seconds of all collectives, one after the other.
    exposed, iteration : float
        Seconds of communication that is not hidden, and of the whole iteration; in the modes
        without a compute model `exposed` is `communication` and `iteration` is not a number.
    memory : float
        Bytes on a device.
    fits : bool
        Whether the memory suffices (``full``), or Gx Gy Gz is large enough (other modes).
    """

    grid: Grid
    volume: float
    communication: float
    exposed: float
    iteration: float
    memory: float
    fits: bool

    def to_json(self) -> dict[str, Any]:
        """The row as JSON."""
        grid = self.grid
        timed = self.iteration == self.iteration
        return {
            "Gx": grid.x,
            "Gy": grid.y,
            "Gz": grid.z,
            "Gdata": grid.data,
            "volume_bytes": self.volume,
            "communication_seconds": self.communication,
            "exposed_seconds": self.exposed,
            "iteration_seconds": self.iteration if timed else None,
            "memory_bytes": self.memory,
            "fits": self.fits,
        }


def grids_of(model: Transformer, gpus: int, batch: int) -> Iterator[Grid]:
    """Decompositions into which the job divides evenly.

    The batch divides over z and data, heads and inner width over y, the hidden size over both.
    """
    for grid in factorizations(gpus):
        if (
            batch % (grid.z * grid.data) == 0
            and model.key_heads % grid.y == 0
            and model.inner % grid.y == 0
            and model.hidden % grid.x == 0
            and model.hidden % grid.y == 0
        ):
            yield grid


def rank(
    model: Transformer,
    machine: Machine,
    gpus: int,
    batch: int,
    mode: str = "layers",
    *,
    device: DeviceType | None = None,
    overlap: Overlap = AXONN_OVERLAP,
    min_tensor: int = 1,
) -> list[Ranked]:
    """All decompositions of `gpus` devices, those that fit first, the fastest first.

    Parameters
    ----------
    model : Transformer
    machine : Machine
    gpus : int
    batch : int
        Global batch in sequences.
    mode : str
        ``published`` or ``corrected`` rank by communication time among Gx Gy Gz >= `min_tensor`;
        ``layers`` ranks by iteration time (formulas of `nestopt.fourd.overlap`).
    device : DeviceType
        Needed in the mode ``layers``.

    Raises
    ------
    InputError
        If the job divides into no decomposition, or the mode ``layers`` lacks a device.
    """
    if mode == "layers" and device is None:
        raise InputError("the mode layers needs a device type", field="device")
    communication = "full" if mode == "layers" else mode
    rows = []
    for grid in grids_of(model, gpus, batch):
        volume, spent = _communication(
            model, grid, batch, machine, communication, cache_weights=overlap.cache_weights
        )
        need = memory(model, grid, batch, cache_weights=overlap.cache_weights).total
        if mode == "layers" and device is not None:
            blocks = block_times(model, grid, batch, machine, device)
            hidden = exposed(blocks, overlap)
            fits = need <= device.usable
            rows.append(Ranked(grid, volume, spent, hidden.communication, hidden.total, need, fits))
        else:
            fits = grid.tensor >= min_tensor
            rows.append(Ranked(grid, volume, spent, spent, float("nan"), need, fits))
    return _sorted(rows, model, gpus, batch, timed=mode == "layers")


def _sorted(
    rows: list[Ranked], model: Transformer, gpus: int, batch: int, *, timed: bool
) -> list[Ranked]:
    """The rows that fit first, by iteration or communication time."""
    if not rows:
        raise InputError(
            f"a batch of {batch}, {model.heads} heads and a hidden size of {model.hidden} divide "
            f"over no (Gx, Gy, Gz, Gdata) of {gpus} devices"
        )

    def key(row: Ranked) -> tuple[Any, ...]:
        time = row.iteration if timed else row.communication
        return not row.fits, time, row.grid.x, row.grid.y, row.grid.z

    return sorted(rows, key=key)


def rank_plans(
    name: str,
    model: Transformer,
    cluster: Cluster,
    batch: int,
    overlap: Overlap = AXONN_OVERLAP,
) -> list[Ranked]:
    """All decompositions of a cluster's alive devices by the price of their one-stage plans.

    Raises
    ------
    InputError
        If the job divides into no decomposition, or the placement model lacks the overlap.
    """
    gpus = len(cluster.alive)
    workload = workload_of_model(name, model, batch)
    machine = machine_of(cluster)
    rows = []
    for row in price_grids(workload, cluster, list(grids_of(model, gpus, batch)), overlap):
        volume, _ = _communication(model, row.grid, batch, machine, "full", cache_weights=False)
        rows.append(
            Ranked(
                row.grid,
                volume,
                row.communication,
                row.exposed,
                row.iteration,
                row.memory,
                row.fits,
            )
        )
    return _sorted(rows, model, gpus, batch, timed=True)


def _communication(
    model: Transformer, grid: Grid, batch: int, machine: Machine, mode: str, *, cache_weights: bool
) -> tuple[float, float]:
    """Bytes sent and seconds, from one block's collectives: all blocks are alike."""
    volume = spent = 0.0
    single = replace(model, layers=1)
    for c in collectives_of(single, grid, batch, mode, cache_weights=cache_weights):
        # Only the full mode has layers outside the blocks, whose own are named "0.".
        times = model.layers if mode != "full" or c.layer.startswith("0.") else 1
        volume += times * c.wire_bytes
        spent += times * seconds(c, grid.preceding(c.axis), machine, mode)
    return volume, spent


@dataclass(frozen=True, slots=True)
class RankTable:
    """A ranking with what it is of.

    Attributes
    ----------
    rows : list of Ranked
    simulated : list of float
        Iteration time of the first rows by event simulation (mode ``layers`` only).
    steps : tuple of Step
        The first row's time as the overlaps are switched on (mode ``layers`` only).
    flops : float
        FLOPs of an iteration, recomputation counted.
    peak : float
        FLOP/s of all devices.
    """

    workload: str
    cluster: str
    mode: str
    gpus: int
    batch: int
    rows: list[Ranked]
    simulated: list[float]
    steps: tuple[Step, ...]
    flops: float
    peak: float

    def to_json(self) -> dict[str, Any]:
        """The ranking as JSON."""
        rows = [row.to_json() for row in self.rows]
        for row, time in zip(rows, self.simulated):
            row["simulated_seconds"] = time
        return {
            "schema": "nestopt.rank4d/1",
            "workload": self.workload,
            "cluster": self.cluster,
            "mode": self.mode,
            "gpus": self.gpus,
            "batch": self.batch,
            "flops_with_recompute": self.flops,
            "peak_flops": self.peak,
            "rows": rows,
            "waterfall": [asdict(step) for step in self.steps],
        }


def rank_table(
    workload: str | tuple[str, Transformer],
    cluster: str,
    *,
    batch: int | None = None,
    mode: str = "full",
    overlap: Overlap = AXONN_OVERLAP,
    simulate_rows: int = 10,
) -> RankTable:
    """The ranking of named things: ``axonn-80b`` on ``perlmutter-1024``.

    Parameters
    ----------
    workload : str or (str, Transformer)
        A model of AxoNN's (``axonn-5b`` to ``axonn-175b``), or any transformer with its name.
    cluster : str
        Name of a cluster; the alive devices are used.
    batch : int, optional
        Global batch in sequences; default one a device (2M tokens on 1,024 devices).
    simulate_rows : int
        Rows to play by event simulation.

    Raises
    ------
    UsageError
        If a name is unknown.
    InputError
        If the job divides into no decomposition.
    """
    min_tensor = 1
    if isinstance(workload, str):
        name = workload
        model, min_tensor = named_model(name)
    else:
        name, model = workload
    tree = named("cluster", cluster)
    gpus = len(tree.alive)
    kinds = {int(kind) for kind in tree.type_of[tree.alive]}
    if len(kinds) != 1:
        raise InputError(
            f"{len(kinds)} device types alive; a 4D decomposition needs exactly one", field=cluster
        )
    machine, device = machine_of(tree), tree.types[kinds.pop()]
    sequences = gpus if batch is None else batch
    if mode == "full":
        rows = rank_plans(name, model, tree, sequences, overlap)
    else:
        rows = rank(
            model,
            machine,
            gpus,
            sequences,
            mode,
            device=device,
            overlap=overlap,
            min_tensor=min_tensor,
        )
    simulated: list[float] = []
    steps: tuple[Step, ...] = ()
    if mode == "layers":
        for row in rows[:simulate_rows]:
            blocks = block_times(model, row.grid, sequences, machine, device)
            simulated.append(simulate(blocks, overlap).end)
        steps = waterfall_of(model, rows[0].grid, sequences, machine, device)
    flops = iteration_flops(model, sequences, recompute=True)
    return RankTable(
        name, cluster, mode, gpus, sequences, rows, simulated, steps, flops, gpus * device.peak
    )


def waterfall_of(
    model: Transformer, grid: Grid, batch: int, machine: Machine, device: DeviceType
) -> tuple[Step, ...]:
    """The overlaps of one decomposition, weight caching only where the memory allows it."""
    need = memory(model, grid, batch, cache_weights=True).total
    blocks = block_times(model, grid, batch, machine, device)
    return waterfall(blocks, cache_fits=need <= device.usable)


def describe(table: RankTable, console: Console, *, rows: int = 10) -> None:
    """Print the first rows of a ranking, then the first one's overlaps, in 80 columns."""
    from rich.table import Table

    full, layers = table.mode in ("full", "layers"), table.mode == "layers"
    console.print(
        f"{table.workload} on {table.cluster}: {table.gpus} devices, batch {table.batch}, "
        f"{table.mode} model"
    )
    grid = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    columns = ["", "Gx", "Gy", "Gz", "data", "sent\nGiB", "comm\ns"]
    columns += ["exposed\ns", "iter.\ns"] if full else []
    columns += ["simul.\ns"] if layers else []
    columns += ["peak\n%"] if full else []
    for column in [*columns, "memory\nGiB"]:
        grid.add_column(column, justify="right", no_wrap=True)
    for index, row in enumerate(table.rows[:rows]):
        cells = [str(index + 1), *map(str, (row.grid.x, row.grid.y, row.grid.z, row.grid.data))]
        cells += [f"{row.volume / 2**30:.1f}", f"{row.communication:.3f}"]
        if full:
            share = 100 * table.flops / (row.iteration * table.peak)
            played = f"{table.simulated[index]:.3f}" if index < len(table.simulated) else ""
            cells += [f"{row.exposed:.3f}", f"{row.iteration:.3f}"]
            cells += [*([played] if layers else []), f"{share:.1f}"]
        mark = " " if row.fits else "!"
        grid.add_row(*cells, f"{row.memory / 2**30:.1f}{mark}")
    console.print(grid)
    kept = sum(row.fits for row in table.rows)
    reason = "fit the memory" if full else "have Gx Gy Gz large enough"
    console.print(f"{kept} of {len(table.rows)} decompositions {reason}; '!': does not.")
    if table.steps:
        console.print("\nThe first, its overlaps switched on one after the other:")
        console.print(step_table(table.steps))
        if len(table.steps) <= len(STEPS):
            console.print("Cached weights do not fit the memory.")
