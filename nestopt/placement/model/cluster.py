"""Clusters: devices in a tree of levels, with bandwidths, latencies, types and failures.

The meaning of every symbol is in ``MODEL.md``, section 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError, naming
from nestopt.core.io import validate_model
from nestopt.core.units import LARGEST, parse_bandwidth, parse_bytes, parse_flops, parse_time
from nestopt.placement.model.collective_table import CollectiveTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["CLUSTER_SCHEMA", "Cluster", "DeviceType", "Level", "Override"]

CLUSTER_SCHEMA = "nestopt.cluster/1"


def _positive(value: float, what: str, *, zero: bool = False, infinite: bool = False) -> None:
    good = value >= 0 if zero else value > 0
    if not good or (math.isinf(value) and not infinite) or math.isnan(value):
        expected = "at least zero" if zero else "above zero"
        raise InputError(f"{value!r}; expected a number {expected}", field=what)
    if value and math.isfinite(value) and not 1 / LARGEST <= value <= LARGEST:
        raise InputError(f"{value!r}; expected {1 / LARGEST:g} to {LARGEST:g}", field=what)


@dataclass(frozen=True, slots=True)
class DeviceType:
    """A kind of accelerator.

    Attributes
    ----------
    name : str
    peak : float
        FLOP/s at the training precision.
    memory, reserve : float
        Bytes on the device, and how many of them a plan must leave alone.
    memory_bandwidth : float
        Bytes/s.
    efficiency : float
        Fraction of `peak` that a very large matrix product reaches.
    half_flops : float
        FLOPs of a kernel that reaches half of `efficiency`; the efficiency curve is
        ``efficiency * F / (F + half_flops)``.
    """

    name: str
    peak: float
    memory: float
    memory_bandwidth: float
    efficiency: float = 1.0
    half_flops: float = 0.0
    reserve: float = 0.0

    if TYPE_CHECKING:  # texts are read when the type is made

        def __init__(
            self,
            name: str,
            peak: float | str,
            memory: float | str,
            memory_bandwidth: float | str,
            efficiency: float = 1.0,
            half_flops: float = 0.0,
            reserve: float | str = 0.0,
        ) -> None: ...

    def __post_init__(self) -> None:
        where = f"device_types.{self.name}"
        parse = {
            "peak": parse_flops,
            "memory": parse_bytes,
            "memory_bandwidth": parse_bandwidth,
            "reserve": parse_bytes,
        }
        for key, read in parse.items():
            object.__setattr__(self, key, _stated(read, getattr(self, key), f"{where}.{key}"))
        for key in ("efficiency", "half_flops"):
            object.__setattr__(self, key, float(getattr(self, key)))
        _positive(self.peak, f"{where}.peak")
        _positive(self.memory, f"{where}.memory", zero=True)
        _positive(self.memory_bandwidth, f"{where}.memory_bandwidth")
        _positive(self.half_flops, f"{where}.half_flops", zero=True)
        _positive(self.reserve, f"{where}.reserve", zero=True)
        if not 1 / LARGEST < self.efficiency <= 1:
            raise InputError(
                f"{self.efficiency!r}; expected a fraction in (0, 1]", field=f"{where}.efficiency"
            )

    @property
    def usable(self) -> float:
        """Bytes that a plan may use."""
        return self.memory - self.reserve

    def to_json(self) -> dict[str, Any]:
        """The type as JSON, in SI units."""
        return {
            "peak": self.peak,
            "memory": self.memory,
            "memory_bandwidth": self.memory_bandwidth,
            "efficiency": self.efficiency,
            "half_flops": self.half_flops,
            "reserve": self.reserve,
        }


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the tree, innermost first; texts with units are taken too ("450 GB/s").

    Attributes
    ----------
    name : str
    latency : float
        Seconds for a message that crosses a switch of this level.
    port : float
        Bytes/s at which one device can send traffic that reaches this level.
    uplink : float
        Bytes/s of a group's uplink into the next level, shared by its devices; ``inf`` at the top.
    """

    name: str
    latency: float
    port: float
    uplink: float = math.inf

    if TYPE_CHECKING:  # texts are read when the level is made

        def __init__(
            self,
            name: str,
            latency: float | str,
            port: float | str,
            uplink: float | str = math.inf,
        ) -> None: ...

    def __post_init__(self) -> None:
        _read_units(self)


@dataclass(frozen=True, slots=True)
class Override:
    """Other figures for one group of a level; None keeps the level's."""

    level: int
    group: int
    latency: float | None = None
    port: float | None = None
    uplink: float | None = None

    def __post_init__(self) -> None:
        _read_units(self)


def _stated(read: Callable[[str | float, str | None], float], value: Any, where: str) -> float:
    """A quantity as a float, whatever its form; infinities and NaN are left to who checks them."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    return read(value, where)


def _read_units(figures: Level | Override) -> None:
    """Latency, port and uplink of a level or an override as floats."""
    for key, read in (
        ("latency", parse_time),
        ("port", parse_bandwidth),
        ("uplink", parse_bandwidth),
    ):
        value = getattr(figures, key)
        if value is not None:
            object.__setattr__(figures, key, _stated(read, value, key))


def _as_int_array(values: Iterable[int]) -> NDArray[np.int64]:
    return np.fromiter(values, dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Cluster:
    """A hierarchical, possibly uneven, mixed and partly failed cluster.

    Attributes
    ----------
    name : str
    levels : tuple of Level
        Innermost first; the last one has a single group.
    types : tuple of DeviceType
    type_of : int array (N,)
        Index into `types` of every device, in hierarchy order.
    sizes : tuple of tuples of int
        ``sizes[l][g]``: devices in group ``g`` of level ``l``; every level's sum to N.
    failed : tuple of int
        Devices that may not be used, ascending.
    overrides : tuple of Override
    collectives : CollectiveTable or None
        Synthesized algorithms beside the formulas; made for these levels.
    """

    name: str
    levels: tuple[Level, ...]
    types: tuple[DeviceType, ...]
    type_of: NDArray[np.int64]
    sizes: tuple[tuple[int, ...], ...]
    failed: tuple[int, ...] = ()
    overrides: tuple[Override, ...] = field(default=())
    collectives: CollectiveTable | None = None

    def __post_init__(self) -> None:
        if not self.levels:
            raise InputError("no level; expected at least one", field="levels")
        if len(self.sizes) != len(self.levels):
            raise InputError(
                f"{len(self.sizes)} levels of groups for {len(self.levels)} levels", field="tree"
            )
        self._check_tree()
        for index, level in enumerate(self.levels):
            last = index == len(self.levels) - 1
            where = f"levels[{index}]"
            _positive(level.latency, f"{where}.latency", zero=True)
            _positive(level.port, f"{where}.port")
            _positive(level.uplink, f"{where}.uplink", infinite=True)
            if last and not math.isinf(level.uplink):
                raise InputError("the outermost level has no uplink", field=f"{where}.uplink")
        for index, item in enumerate(self.overrides):
            self._check_override(index, item)
        count = len(self.type_of)
        for device in self.failed:
            if not 0 <= device < count:
                raise InputError(f"device {device}; expected 0 to {count - 1}", field="failed")
        if len(set(self.failed)) != len(self.failed):
            raise InputError("a device is listed twice", field="failed")
        object.__setattr__(self, "failed", tuple(sorted(self.failed)))
        if self.collectives is not None:
            self.collectives.check_levels(self.levels, "collectives.")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Cluster):
            return NotImplemented
        same = all(
            getattr(self, f.name) == getattr(other, f.name)
            for f in fields(self)
            if f.name != "type_of"
        )
        return same and np.array_equal(self.type_of, other.type_of)

    def __hash__(self) -> int:
        return hash((self.name, self.levels, self.types, self.failed, self.overrides))

    def _check_tree(self) -> None:
        count = len(self.type_of)
        bounds: NDArray[np.int64] | None = None
        for index in reversed(range(len(self.sizes))):
            sizes = self.sizes[index]
            if any(size <= 0 for size in sizes):
                raise InputError("a group is empty", field=f"tree level {index}")
            if sum(sizes) != count:
                raise InputError(
                    f"groups hold {sum(sizes)} devices; expected {count}",
                    field=f"tree level {index}",
                )
            ends = np.cumsum(_as_int_array(sizes))
            if bounds is not None and not np.isin(bounds, ends).all():
                raise InputError(
                    "groups do not refine those of the next level", field=f"tree level {index}"
                )
            bounds = ends
        if len(self.sizes[-1]) != 1:
            raise InputError(
                f"{len(self.sizes[-1])} groups; the outermost level has exactly one",
                field=f"tree level {len(self.sizes) - 1}",
            )
        if len(self.type_of) and not (
            int(self.type_of.min()) >= 0 and int(self.type_of.max()) < len(self.types)
        ):
            raise InputError("a device has an unknown type", field="devices")

    def _check_override(self, index: int, item: Override) -> None:
        where = f"overrides[{index}]"
        if not 0 <= item.level < len(self.levels):
            raise InputError(f"level {item.level} does not exist", field=f"{where}.level")
        if not 0 <= item.group < len(self.sizes[item.level]):
            raise InputError(f"group {item.group} does not exist", field=f"{where}.group")
        if item.latency is not None:
            _positive(item.latency, f"{where}.latency", zero=True)
        if item.port is not None:
            _positive(item.port, f"{where}.port")
        if item.uplink is not None:
            _positive(item.uplink, f"{where}.uplink")
            if item.level == len(self.levels) - 1:
                raise InputError("the outermost level has no uplink", field=f"{where}.uplink")

    @property
    def num_devices(self) -> int:
        """Devices in the tree, failed ones included."""
        return len(self.type_of)

    @cached_property
    def alive(self) -> NDArray[np.int64]:
        """Indices of the devices that may be used, in hierarchy order."""
        mask = np.ones(self.num_devices, dtype=bool)
        mask[list(self.failed)] = False
        return np.flatnonzero(mask)

    @cached_property
    def group_of(self) -> NDArray[np.int64]:
        """``group_of[l, i]``: the group of device ``i`` at level ``l``; shape (L, N)."""
        rows = [np.repeat(np.arange(len(s)), _as_int_array(s)) for s in self.sizes]
        return np.ascontiguousarray(np.stack(rows).astype(np.int64))

    def _table(self, attribute: str) -> NDArray[np.float64]:
        width = max(len(s) for s in self.sizes)
        table = np.full((len(self.levels), width), math.inf)
        for index, level in enumerate(self.levels):
            table[index, : len(self.sizes[index])] = getattr(level, attribute)
        for item in self.overrides:
            value = getattr(item, attribute)
            if value is not None:
                table[item.level, item.group] = value
        return table

    @cached_property
    def latency(self) -> NDArray[np.float64]:
        """``latency[l, g]`` in seconds; columns beyond a level's groups are unused."""
        return self._table("latency")

    @cached_property
    def port(self) -> NDArray[np.float64]:
        """``port[l, g]`` in bytes/s."""
        return self._table("port")

    @cached_property
    def uplink(self) -> NDArray[np.float64]:
        """``uplink[l, g]`` in bytes/s; infinite at the outermost level."""
        return self._table("uplink")

    def fail(self, devices: Iterable[int]) -> Cluster:
        """The same cluster with more devices failed."""
        return replace(self, failed=tuple(sorted({*self.failed, *map(int, devices)})))

    def with_types(self, types: Sequence[DeviceType]) -> Cluster:
        """The same cluster with the device types replaced, index by index."""
        return replace(self, types=tuple(types))

    def with_collectives(self, table: CollectiveTable | None) -> Cluster:
        """The same cluster with another table of collectives, or none."""
        return replace(self, collectives=table)

    def to_json(self) -> dict[str, Any]:
        """The cluster as JSON (schema ``nestopt.cluster/1``), in SI units."""
        levels = []
        for index, level in enumerate(self.levels):
            row: dict[str, Any] = {
                "name": level.name,
                "latency": level.latency,
                "port": level.port,
                "groups": _runs(self.sizes[index]),
            }
            if not math.isinf(level.uplink):
                row["uplink"] = level.uplink
            levels.append(row)
        names = [t.name for t in self.types]
        table = {} if self.collectives is None else {"collectives": self.collectives.to_json()}
        return {
            "schema": CLUSTER_SCHEMA,
            "name": self.name,
            "device_types": {t.name: t.to_json() for t in self.types},
            "levels": levels,
            "devices": [
                {"type": names[value], "count": count}
                for value, count in _run_lengths(self.type_of.tolist())
            ],
            "failed": list(self.failed),
            "overrides": [
                {
                    key: value
                    for key in ("level", "group", "latency", "port", "uplink")
                    if (value := getattr(item, key)) is not None
                }
                for item in self.overrides
            ],
            **table,
        }

    @classmethod
    def from_json(cls, data: Any, *, file: str | None = None) -> Cluster:
        """A cluster from its JSON form; text values carry units ("450 GB/s", "80 GiB").

        Raises
        ------
        InputError
            Naming file, field, value and expectation.
        """
        from nestopt.placement.model.files import ClusterFile, device_type_from_file

        model = validate_model(ClusterFile, data, file=file)
        with naming(file):
            types = tuple(
                device_type_from_file(name, entry) for name, entry in model.device_types.items()
            )
            index = {t.name: i for i, t in enumerate(types)}
            type_of: list[int] = []
            for position, run in enumerate(model.devices):
                if run.type not in index:
                    raise InputError(
                        f"unknown device type {run.type!r}; known: {', '.join(index)}",
                        field=f"devices[{position}].type",
                    )
                type_of += [index[run.type]] * run.count
            levels, sizes = [], []
            for position, entry in enumerate(model.levels):
                where = f"levels[{position}]"
                levels.append(
                    Level(
                        entry.name,
                        parse_time(entry.latency, f"{where}.latency"),
                        parse_bandwidth(entry.port, f"{where}.port"),
                        math.inf
                        if entry.uplink is None
                        else parse_bandwidth(entry.uplink, f"{where}.uplink"),
                    )
                )
                sizes.append(tuple(g.size for g in entry.groups for _ in range(g.count)))
            overrides = tuple(
                Override(
                    o.level,
                    o.group,
                    None if o.latency is None else parse_time(o.latency, "overrides.latency"),
                    None if o.port is None else parse_bandwidth(o.port, "overrides.port"),
                    None if o.uplink is None else parse_bandwidth(o.uplink, "overrides.uplink"),
                )
                for o in model.overrides
            )
            table = model.collectives
            return cls(
                model.name,
                tuple(levels),
                types,
                _as_int_array(type_of),
                tuple(sizes),
                tuple(model.failed),
                overrides,
                None if table is None else CollectiveTable.from_model(table),
            )

    @classmethod
    def regular(
        cls,
        name: str,
        shape: Sequence[int],
        levels: Sequence[Level],
        types: Sequence[DeviceType],
        *,
        type_of: Sequence[int] | None = None,
        failed: Iterable[int] = (),
        overrides: Sequence[Override] = (),
    ) -> Cluster:
        """A tree with even groups: ``shape[l]`` children in every group of level ``l``."""
        total = math.prod(shape)
        sizes = []
        size = 1
        for children in shape:
            size *= children
            sizes.append((size,) * (total // size))
        chosen = [0] * total if type_of is None else list(type_of)
        return cls(
            name,
            tuple(levels),
            tuple(types),
            _as_int_array(chosen),
            tuple(sizes),
            tuple(failed),
            tuple(overrides),
        )


def _run_lengths(values: Sequence[int]) -> list[tuple[int, int]]:
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and runs[-1][0] == value:
            runs[-1] = (value, runs[-1][1] + 1)
        else:
            runs.append((value, 1))
    return runs


def _runs(sizes: Sequence[int]) -> list[dict[str, int]]:
    return [{"size": size, "count": count} for size, count in _run_lengths(sizes)]


def parse_device_type(name: str, entry: dict[str, Any]) -> DeviceType:
    """A device type from JSON fields, text values with units."""
    where = f"device_types.{name}"
    return DeviceType(
        name,
        parse_flops(entry["peak"], f"{where}.peak"),
        parse_bytes(entry["memory"], f"{where}.memory"),
        parse_bandwidth(entry["memory_bandwidth"], f"{where}.memory_bandwidth"),
        float(entry.get("efficiency", 1.0)),
        float(entry.get("half_flops", 0.0)),
        parse_bytes(entry.get("reserve", 0.0), f"{where}.reserve"),
    )
