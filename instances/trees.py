"""Clusters for the placement problem: trees of any shape, made uneven, mixed, degraded and failed.

A name is a base and a suffix (`nestopt.instances.options`). Bases:

- ``tree:8x4x16[,device=h100][,port=...][,uplink=...][,latency=...]``: even groups, innermost first;
  values per level separated by colons (uplinks: one less);
- ``of:(TOPOLOGY)[,device=h100]``: a network turned into a tree by widest-path clustering;
- any other cluster name (``h100-spineleaf-64``).

Recipes of the suffix, with level 0 the innermost (``level=L`` where it applies, default 0):

==================================  ================================================================
``uneven:FRACTION``                 every group loses up to this fraction of its devices
``mix:TYPE,TYPE,...``               device generations: every group takes one of the types
``memory:1,1/2,...``                mixed memory: every group's devices have one of these fractions
``uplink:LOW,HIGH``                 log-uniform factor on every group's uplink; likewise ``port``
                                    and ``latency``
``degraded-links:COUNT,FACTOR``     COUNT groups keep this fraction of their uplink
``degraded-devices:COUNT,FACTOR``   COUNT devices keep this fraction of their FLOP/s
==================================  ================================================================
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.units import parse_bandwidth, parse_time
from nestopt.instances.clustering import cluster_of
from nestopt.instances.clusters import by_name
from nestopt.instances.failures import RATES
from nestopt.instances.heterogeneity import log_uniform, parse_factor
from nestopt.instances.options import split_name
from nestopt.instances.spec import parse_spec
from nestopt.instances.streams import stream
from nestopt.instances.topologies import network_by_name
from nestopt.placement.model.cluster import Cluster, DeviceType, Level, Override
from nestopt.placement.pricing.parameters import current_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from nestopt.instances.options import Options
    from nestopt.instances.spec import Spec

__all__ = ["RECIPES", "base_cluster", "cluster_by_name", "perturbed_cluster", "tree"]

RECIPES = (
    "uneven",
    "mix",
    "memory",
    "uplink",
    "port",
    "latency",
    "degraded-links",
    "degraded-devices",
)
_GRAIN = {"uplink": 1e6, "port": 1e6, "latency": 1e-9}


def device_type(name: str, where: str) -> DeviceType:
    """The named device type (``h100``, ``a100``, ...)."""
    known = current_set()
    if name not in known.devices:
        raise InputError(f"unknown device {name!r}; known: {', '.join(known.devices)}", field=where)
    return known.device_type(name)


def tree(spec: Spec) -> Cluster:
    """``tree:8x4x16``: 16 groups of 4 groups of 8 devices.

    Defaults: ports 400, 50, 50, ... GB/s, uplinks that carry all ports of the next level, latencies
    0.5, 2, 4, ... us.
    """
    shape = spec.shape("the tree's shape, innermost first")
    depth = len(shape)
    device = device_type(spec.option("device") or "h100", spec.text)
    ports = _values(spec, "port", [400e9] + [50e9] * (depth - 1), parse_bandwidth)
    sizes = np.cumprod(shape)
    default = [float(sizes[i]) * ports[i + 1] for i in range(depth - 1)]
    uplinks = _values(spec, "uplink", default, parse_bandwidth)
    times = [0.5e-6] + [2e-6 * 2**i for i in range(depth - 1)]
    latencies = _values(spec, "latency", times, parse_time)
    spec.finish()
    levels = tuple(
        Level(f"level{i}", latencies[i], ports[i], *(uplinks[i : i + 1])) for i in range(depth)
    )
    return Cluster.regular(spec.text, shape, levels, [device])


def _values(
    spec: Spec, key: str, default: Sequence[float], parse: Callable[[str, str], float]
) -> list[float]:
    text = spec.option(key)
    if text is None:
        return list(default)
    values = [parse(part, f"{spec.text}: {key}") for part in text.split(":")]
    if len(values) == 1:
        values *= len(default)
    if len(values) != len(default):
        raise spec.error(f"{key} lists {len(values)} values; expected 1 or {len(default)}")
    return values


def base_cluster(name: str) -> Cluster:
    """The cluster of a base name, without a suffix.

    Raises
    ------
    UsageError
        If the name is unknown (with a suggestion).
    InputError
        If its parameters are wrong.
    """
    if name.startswith("tree:"):
        return tree(parse_spec(name))
    if name.startswith("of:"):
        return _clustered(name)
    return by_name(name)


def _clustered(name: str) -> Cluster:
    _, opening, rest = name.partition("(")
    topology, _, tail = rest.rpartition(")")
    spec = parse_spec(f"of:{tail.removeprefix(',')}" if tail else "of")
    if not opening or not topology:
        raise InputError("expected of:(TOPOLOGY)", field=name)
    device = device_type(spec.option("device") or "h100", name)
    spec.finish()
    cluster, _ = cluster_of(network_by_name(topology), device)
    return replace(cluster, name=name)


def cluster_by_name(name: str) -> Cluster:
    """The cluster of a name with or without a suffix.

    Raises
    ------
    UsageError
        If the base or a part of the suffix is unknown (with a suggestion).
    InputError
        If parameters are wrong.
    """
    base, options = split_name(name, RECIPES)
    return replace(perturbed_cluster(base_cluster(base), options), name=name)


def perturbed_cluster(cluster: Cluster, options: Options) -> Cluster:
    """A cluster made uneven and then failed; named by its name and the options' suffix.

    Raises
    ------
    InputError
        If the options do not apply to clusters or to this one.
    """
    name = cluster.name + options.suffix()
    cluster = cluster.fail(options.failed)
    for position, recipe in enumerate(options.heterogeneity):
        rng = stream(options.seed, "cluster heterogeneity", position)
        cluster = _vary(cluster, recipe, rng)
    for field, given in (("fail-links", options.fail_links), ("connected", options.connected)):
        if given:
            raise InputError(
                "a cluster has no links of its own; degrade them with degraded-links", field=field
            )
    return replace(cluster.fail(_failed(cluster, options)), name=name)


def _failed(cluster: Cluster, options: Options) -> Iterable[int]:
    model = options.failure_model()
    alive = cluster.alive.tolist()
    if model.npus > len(alive):
        raise InputError(f"{model.npus} shall fail; there are {len(alive)}", field="fail npus")
    order = stream(options.seed, "fail npus").permutation(len(alive))
    failed = {alive[i] for i in order[: model.npus].tolist()}
    names = [level.name for level in cluster.levels]
    for kind, count in model.groups:
        if kind not in names:
            raise InputError(
                f"no level {kind!r}; there are: {', '.join(names)}", field=cluster.name
            )
        level = names.index(kind)
        total = len(cluster.sizes[level])
        if count > total:
            raise InputError(f"{count} shall fail; there are {total}", field=f"fail {kind}")
        picked = stream(options.seed, f"fail group {kind}").permutation(total)[:count]
        failed.update(np.flatnonzero(np.isin(cluster.group_of[level], picked)).tolist())
    if model.rates is not None and model.days:
        rates = RATES[model.rates]
        # a device that loses its NIC or cable is as lost to a job as a dead one
        each = rates.npu + rates.cable + rates.nic
        uniform = stream(options.seed, "rates npu").random(cluster.num_devices)
        failed.update(np.flatnonzero(uniform < -math.expm1(-each * model.days)).tolist())
        uniform = stream(options.seed, "rates node").random(len(cluster.sizes[0]))
        dead = np.flatnonzero(uniform < -math.expm1(-rates.node * model.days))
        failed.update(np.flatnonzero(np.isin(cluster.group_of[0], dead)).tolist())
    return failed


def _vary(cluster: Cluster, recipe: str, rng: np.random.Generator) -> Cluster:
    spec = parse_spec(recipe)
    if spec.family not in RECIPES:
        raise unknown_name("cluster recipe", spec.family, RECIPES)
    level = spec.option_integer("level", 0, minimum=0)
    if level >= len(cluster.levels):
        raise spec.error(f"level={level}; {cluster.name} has levels 0 to {len(cluster.levels) - 1}")
    if spec.family == "uneven":
        changed = _uneven(cluster, spec, level, rng)
    elif spec.family == "mix":
        names = [spec.argument(i, "a device type") for i in range(max(1, len(spec.positional)))]
        types = [device_type(name, recipe) for name in names]
        changed = _types_per_group(cluster, types, level, rng)
    elif spec.family == "memory":
        changed = _memory(cluster, spec, level, rng)
    elif spec.family == "degraded-devices":
        changed = _degraded_devices(cluster, spec, rng)
    else:
        changed = _overridden(cluster, spec, level, rng)
    spec.finish()
    return changed


def _uneven(cluster: Cluster, spec: Spec, level: int, rng: np.random.Generator) -> Cluster:
    fraction = float(parse_factor(spec.argument(0, "the fraction"), spec.text))
    if fraction >= 1:
        raise spec.error(f"the fraction is {fraction:g}; expected less than 1")
    keep = np.ones(cluster.num_devices, dtype=bool)
    end = 0
    for size, uniform in zip(cluster.sizes[level], rng.random(len(cluster.sizes[level])).tolist()):
        end += size
        lost = int(uniform * (int(size * fraction) + 1))
        keep[end - lost : end] = False
    return _restricted(cluster, keep)


def _restricted(cluster: Cluster, keep: np.ndarray) -> Cluster:
    """The cluster of some of its devices; groups without any vanish."""
    sizes, renumber = [], []
    for level in range(len(cluster.levels)):
        counts = np.bincount(cluster.group_of[level][keep], minlength=len(cluster.sizes[level]))
        sizes.append(tuple(int(c) for c in counts if c))
        renumber.append(np.where(counts > 0, np.cumsum(counts > 0) - 1, -1))
    device = np.cumsum(keep) - 1
    return replace(
        cluster,
        type_of=cluster.type_of[keep],
        sizes=tuple(sizes),
        failed=tuple(int(device[i]) for i in cluster.failed if keep[i]),
        overrides=tuple(
            replace(o, group=int(renumber[o.level][o.group]))
            for o in cluster.overrides
            if renumber[o.level][o.group] >= 0
        ),
    )


def _types_per_group(
    cluster: Cluster, types: Sequence[DeviceType], level: int, rng: np.random.Generator
) -> Cluster:
    distinct = list({t.name: t for t in types}.values())
    index = [distinct.index(t) for t in types]
    picks = rng.integers(0, len(types), size=len(cluster.sizes[level])).tolist()
    chosen = np.array([index[pick] for pick in picks], dtype=np.int64)
    return replace(cluster, types=tuple(distinct), type_of=chosen[cluster.group_of[level]])


def _memory(cluster: Cluster, spec: Spec, level: int, rng: np.random.Generator) -> Cluster:
    texts = [spec.argument(i, "a fraction") for i in range(max(1, len(spec.positional)))]
    factors = [parse_factor(text, spec.text) for text in texts]
    picks = rng.integers(0, len(factors), size=len(cluster.sizes[level]))[cluster.group_of[level]]

    def changed(old: DeviceType, pick: int) -> DeviceType:
        factor = factors[pick]
        if factor == 1:
            return old
        memory = float(round(old.memory * factor))
        reserve = float(round(old.reserve * factor))
        return replace(old, name=f"{old.name}-mem{texts[pick]}", memory=memory, reserve=reserve)

    return _retyped(cluster, [(int(p), changed) for p in picks])


def _degraded_devices(cluster: Cluster, spec: Spec, rng: np.random.Generator) -> Cluster:
    count = spec.integer(0, "the count", minimum=0)
    text = spec.argument(1, "the factor")
    factor = parse_factor(text, spec.text)
    if count > cluster.num_devices:
        raise spec.error(f"the count is {count}; {cluster.name} has {cluster.num_devices} devices")
    slow = set(rng.permutation(cluster.num_devices)[:count].tolist())

    def changed(old: DeviceType, pick: int) -> DeviceType:
        if not pick:
            return old
        return replace(old, name=f"{old.name}-slow{text}", peak=float(round(old.peak * factor)))

    return _retyped(cluster, [(int(i in slow), changed) for i in range(cluster.num_devices)])


def _retyped(
    cluster: Cluster, picks: Sequence[tuple[int, Callable[[DeviceType, int], DeviceType]]]
) -> Cluster:
    """Every device's type replaced by ``change(type, pick)`` of its row."""
    types: dict[str, int] = {}
    table: list[DeviceType] = []
    type_of = []
    for device, (pick, change) in enumerate(picks):
        new = change(cluster.types[int(cluster.type_of[device])], pick)
        if new.name not in types:
            types[new.name] = len(table)
            table.append(new)
        type_of.append(types[new.name])
    return replace(cluster, types=tuple(table), type_of=np.array(type_of, dtype=np.int64))


def _overridden(cluster: Cluster, spec: Spec, level: int, rng: np.random.Generator) -> Cluster:
    what = "uplink" if spec.family == "degraded-links" else spec.family
    groups = len(cluster.sizes[level])
    if what == "uplink" and level == len(cluster.levels) - 1:
        raise spec.error("the outermost level has no uplink")
    if spec.family == "degraded-links":
        count = spec.integer(0, "the count", minimum=0)
        factor = float(parse_factor(spec.argument(1, "the factor"), spec.text))
        if count > groups:
            raise spec.error(f"the count is {count}; level {level} has {groups} groups")
        hit = set(rng.permutation(groups)[:count].tolist())
        factors = [factor if group in hit else 1.0 for group in range(groups)]
    else:
        low, high = (float(parse_factor(spec.argument(i, "a factor"), spec.text)) for i in range(2))
        if low > high:
            raise spec.error(f"the lowest factor {low:g} is above the highest {high:g}")
        factors = [log_uniform(low, high, u) for u in rng.random(groups).tolist()]
    table = {"uplink": cluster.uplink, "port": cluster.port, "latency": cluster.latency}[what]
    grain = _GRAIN[what]
    merged = {(o.level, o.group): o for o in cluster.overrides}
    for group, factor in enumerate(factors):
        old = float(table[level, group])
        if factor != 1 and math.isfinite(old) and old > 0:
            value = max(1, round(old * factor / grain)) * grain
            base = merged.get((level, group), Override(level, group))
            changed: dict[str, Any] = {what: value}
            merged[level, group] = replace(base, **changed)
    return replace(cluster, overrides=tuple(merged[key] for key in sorted(merged)))
