"""The one module that prices a stage: time, synchronisation and memory.

Implements ``MODEL.md``, sections 5 and 7. The dynamic program, the exact models, the evaluator and
the baselines call it; the checker does not.

Stages are priced in bulk. A *grid* is the degrees (x, y, z, c, e); a *mode* is (sequence_parallel,
zero, recompute, overlap, hides); a *block* is a set of operators, given by how many it has of each
kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nestopt.placement.model.grid import (
    FAMILIES,
    Grid,
    Mode,
    config_of,
    grid_of,
    hidden,
    mode_of,
)
from nestopt.placement.model.plan import RECOMPUTE, Hides
from nestopt.placement.pricing.comm import all_gather, all_reduce, all_to_all

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from nestopt.placement.model.cluster import DeviceType
    from nestopt.placement.model.workload import Workload

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int64]

__all__ = [
    "FAMILIES", "Blocks", "Grid", "Memory", "Mode", "Reduces", "StageCosts", "config_of", "grid_of",
    "mode_of",
]  # fmt: skip

_FIELDS = (
    "flops",
    "flops_attn",
    "bytes_full",
    "bytes_shard",
    "bytes_attn",
    "params",
    "params_expert",
    "act_full",
    "act_shard",
    "act_attn",
    "act_input",
    "tp_bytes",
    "tp_fwd",
    "tp_bwd",
    "cp_bytes",
    "ep_bytes",
    "logits_bytes",
    "flops_expert",
    "rows",
    "experts",
)
_TILE = 128  # rows of a tile of a grouped product  # fmt: skip


@dataclass(frozen=True, eq=False)
class Blocks:
    """Sets of operators to price.

    Attributes
    ----------
    counts : int array (R, K)
        How many operators of each kind.
    cut_in, cut_out : float array (R,)
        Bytes per sample of the cuts before and behind.
    shared : float array (R,)
        Parameters counted twice because both tied operators are inside.
    """

    counts: Ints
    cut_in: Floats
    cut_out: Floats
    shared: Floats

    def row(self, index: int) -> Blocks:
        """One of them alone."""
        at = slice(index, index + 1)
        return Blocks(self.counts[at], self.cut_in[at], self.cut_out[at], self.shared[at])


class _Compute(NamedTuple):
    """Seconds per micro-batch of one operator of each kind on a device type, each (K,).

    `total` is forward, backward and what is repeated; `behind`, backward and what is repeated;
    `product`, the products with weights of the forward pass.
    """

    total: Floats
    forward: Floats
    product: Floats
    behind: Floats


class Reduces(NamedTuple):
    """Seconds of the decomposition's collectives of one operator of each kind, each (K,).

    The reduces of a forward and of a backward pass, the part of the latter that overlaps, a gather
    and a reduce-scatter of weights over Z.
    """

    forward: Floats
    backward: Floats
    hidden: Floats
    gather: Floats
    scatter: Floats


class _Traffic(NamedTuple):
    """Seconds that ZeRO sends in the two passes of one operator of each kind, each (..., K)."""

    forward: Floats
    backward: Floats

    def exposed(self, work: _Compute) -> Floats:
        """What the two passes of an operator alike do not hide."""
        return np.maximum(0.0, self.forward - work.forward) + np.maximum(
            0.0, self.backward - work.behind
        )


class Memory(NamedTuple):
    """Bytes per device: all but the activations in flight, and those of one micro-batch; (R, M)."""

    fixed: Floats
    stored: Floats


class StageCosts:
    """Prices of a workload's stages.

    Parameters
    ----------
    workload : Workload

    Attributes
    ----------
    kind_of : int array (operators,)
        Kind index of every operator.
    """

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        names: dict[str, int] = {}
        first = []
        for operator in workload.operators:
            if operator.kind not in names:
                names[operator.kind] = len(names)
                first.append(operator)
        self.kinds = tuple(first)
        self.kind_of = np.array([names[o.kind] for o in workload.operators], dtype=np.int64)
        self._compute_cache: dict[tuple[Grid, bool, str, int, DeviceType], _Compute] = {}
        self._f = {f: np.array([getattr(o, f) for o in first], dtype=np.float64) for f in _FIELDS}
        self._x_fwd = _padded([o.x_fwd for o in first])
        self._x_bwd = _padded([o.x_bwd for o in first])

    def allowed(self, grid: Grid) -> NDArray[np.bool_]:
        """Which kinds can be split by a grid, (K,)."""
        return np.array([o.allows(*grid) for o in self.kinds], dtype=bool)

    def expert_kinds(self) -> NDArray[np.bool_]:
        """Which kinds hold experts, (K,)."""
        return np.array([o.experts > 0 for o in self.kinds], dtype=bool)

    def blocks(self, sets: Sequence[Sequence[int]]) -> Blocks:
        """Blocks of explicit operator sets, each a difference of nested ideals.

        A set's cuts are those of the ideal before it and of the two together; the ideal before it
        is taken to be all smaller sets in the list, so this suits the stages of one plan, in order.
        """
        kinds = len(self.kinds)
        counts = np.zeros((len(sets), kinds), dtype=np.int64)
        cuts = [0.0]
        done: set[int] = set()
        shared = np.zeros(len(sets))
        tied = self.workload.tied
        for row, operators in enumerate(sets):
            for operator in operators:
                counts[row, self.kind_of[operator]] += 1
            done.update(operators)
            cuts.append(self.workload.cut_bytes(done))
            if tied is not None and tied.first in operators and tied.second in operators:
                shared[row] = tied.params
        cut = np.array(cuts)
        return Blocks(counts, cut[:-1], cut[1:], shared)

    def rates(
        self,
        grid: Grid,
        modes: Sequence[Mode],
        microbatch: int,
        replicas: int,
        profiles: Floats,
        types: Sequence[DeviceType],
    ) -> Floats:
        """Seconds per micro-batch of one operator of each kind, without boundaries; (..., K, M).

        Parameters
        ----------
        profiles : float array (..., 7, entries)
            Profiles of the stage's families, in the order of `FAMILIES`.
        types : device types present in the stage
        """
        f, w = self._f, self.workload
        _, y, z, c, e = grid
        t = grid.t
        u = microbatch / (c * e * z)
        *_, context, expert, dense, sparse = grid.family_sizes(replicas)
        params, params_expert = f["params"] / t, f["params_expert"] / (t * e)
        kv = f["cp_bytes"] * microbatch / (e * z * y)
        gather_kv = all_gather(context, profiles[..., 3, :], kv)

        def over_replicas(size: float) -> Floats:
            """A gather or a reduce-scatter of everything, `size` bytes a parameter."""
            return all_gather(dense, profiles[..., 5, :], size * params) + all_gather(
                sparse, profiles[..., 6, :], size * params_expert
            )

        scattered = gathered = np.zeros(len(self.kinds))
        if any(mode.zero >= 2 for mode in modes):
            scattered = over_replicas(w.bytes_gradient)
        if any(mode.zero == 3 for mode in modes):
            gathered = over_replicas(w.bytes_weight)
        by_zero = {2: _Traffic(0.0 * scattered, scattered)}
        by_zero[3] = _Traffic(gathered, gathered + scattered)
        reduces = {
            split: self.reduces(grid, microbatch, profiles, split)
            for split in {mode.sequence_parallel for mode in modes}
        }
        alike: dict[tuple[Any, ...], Floats] = {}
        out = np.empty((*profiles.shape[:-2], len(self.kinds), len(modes)))
        for column, mode in enumerate(modes):
            traffic = by_zero.get(mode.zero)
            behind = traffic if mode.hides & Hides.GATHERS else None
            ring = mode.hides & Hides.TENSOR
            zero = mode.zero if behind is not None else 0
            plain = mode.sequence_parallel, mode.recompute, mode.overlap, ring, zero
            if plain not in alike:
                again = 1 if mode.recompute == "full" else 0
                seconds = np.zeros(len(self.kinds))
                moved = reduces[mode.sequence_parallel]
                for device in types:
                    work = self._compute(grid, mode, microbatch, device)
                    each = work.total + _behind(moved, work) if mode.overlap else work.total
                    if ring:
                        each = each + _behind_products(moved, work, again)
                    if behind is not None:
                        each = each + behind.exposed(work)
                    seconds = np.maximum(seconds, each)
                forward, rest = (1 + again) * moved.forward, moved.backward
                if ring:
                    forward = rest = 0.0 * moved.forward
                if mode.overlap:
                    rest = rest - moved.hidden
                else:
                    rest = rest + (2 * moved.gather + moved.scatter)
                seconds = seconds + (forward + rest)
                seconds = seconds + (3 + again) * gather_kv
                size = f["ep_bytes"] * u / grid.outer_parts(mode.sequence_parallel)
                swap = all_to_all(expert, profiles[..., 4, :], size)
                alike[plain] = seconds + (4 + 2 * again) * swap
            out[..., column] = alike[plain]
            if traffic is not None and behind is None:
                out[..., column] += traffic.forward + traffic.backward
        return out

    def reduces(self, grid: Grid, microbatch: int, profiles: Floats, split: bool) -> Reduces:
        """The collectives over X, Y and Z, whatever the mode leaves exposed of them.

        `split` says whether sequences are split over Y (sequence parallelism).
        """
        f, w = self._f, self.workload
        x, y, z, c, e = grid
        u = microbatch / (c * e * z)
        size = f["tp_bytes"] * u / x
        over_x, over_y, over_z = (profiles[..., axis, :] for axis in range(3))
        each = 2 * all_gather(y, over_y, size) if split else all_reduce(y, over_y, size)
        forward, backward = f["tp_fwd"] * each, f["tp_bwd"] * each
        if x > 1:
            forward = forward + _reduce_each(x, over_x, self._x_fwd * u / y)
            backward = backward + _reduce_each(x, over_x, self._x_bwd * u / y)
        weights = f["params"] / (x * y) + f["params_expert"] / (x * y * e)
        return Reduces(
            forward,
            backward,
            backward / 2 if split else backward,
            all_gather(z, over_z, w.bytes_weight * weights),
            all_gather(z, over_z, w.bytes_gradient * weights),
        )

    def _compute(self, grid: Grid, mode: Mode, microbatch: int, device: DeviceType) -> _Compute:
        key = (grid, mode.sequence_parallel, mode.recompute, microbatch, device)
        if key not in self._compute_cache:
            self._compute_cache[key] = self._compute_afresh(grid, mode, microbatch, device)
        return self._compute_cache[key]

    def _compute_afresh(
        self, grid: Grid, mode: Mode, microbatch: int, device: DeviceType
    ) -> _Compute:
        f, w = self._f, self.workload
        x, y, z, c, e = grid
        u = microbatch / (c * e * z)
        split = grid.outer_parts(mode.sequence_parallel)
        speed = device.peak * device.efficiency

        def product(work: Floats) -> Floats:
            return np.where(work > 0, (work + device.half_flops) / speed, 0.0)

        own, routed = f["params"] / (x * y), f["params_expert"] / (x * y * e)
        apart = f["flops_expert"] > 0
        weights = w.bytes_weight * np.where(apart, own, own + routed)
        work = (f["flops"] - f["flops_expert"]) * u / (x * y)
        gemm = np.maximum(product(work), weights / device.memory_bandwidth)
        gemm = np.where(work > 0, gemm, 0.0)
        if apart.any():
            read = w.bytes_weight * routed / device.memory_bandwidth
            grouped = np.maximum(product(self._grouped(u, e) / (x * y)), read)
            gemm = gemm + np.where(apart, grouped, 0.0)
        attention = (
            product(f["flops_attn"] * u / y) + f["bytes_attn"] * u / y / device.memory_bandwidth
        )
        moved = u * (f["bytes_full"] / split + f["bytes_shard"] / y)
        forward = gemm + attention + moved / device.memory_bandwidth
        backward = 2 * forward
        for index, operator in enumerate(self.kinds):
            if device.name in operator.time_fwd:
                each = microbatch / grid.width
                forward[index] = operator.time_fwd[device.name] * each
                backward[index] = operator.time_bwd[device.name] * each
                attention[index] = 0.0
                gemm[index] = backward[index] / 2
        if mode.recompute == "full":
            return _Compute(2 * forward + backward, forward, gemm, backward + forward)
        if mode.recompute == "selective":
            total = forward + backward + attention
            return _Compute(total, forward, gemm, backward + attention)
        return _Compute(forward + backward, forward, gemm, backward)

    def _grouped(self, u: float, expert: int) -> Floats:
        """FLOPs of the experts' products on a device, rows filled up to whole tiles; (K,)."""
        f = self._f
        experts, rows = f["experts"] / expert, f["rows"]
        each = np.divide(rows * u, experts, out=np.zeros_like(rows), where=experts > 0)
        filled = experts * np.maximum(_TILE, each + _TILE / 2)
        return np.divide(
            f["flops_expert"] * filled, rows, out=np.zeros_like(rows), where=f["flops_expert"] > 0
        )

    def _sums(self, blocks: Blocks, field: str) -> Floats:
        return blocks.counts @ self._f[field]

    def _largest(self, blocks: Blocks, values: Floats) -> Floats:
        return np.where(blocks.counts > 0, values, 0.0).max(axis=1, initial=0.0)

    def _parameters(self, blocks: Blocks, grid: Grid) -> tuple[Floats, Floats]:
        dense = (self._sums(blocks, "params") - blocks.shared) / grid.t
        return dense, self._sums(blocks, "params_expert") / (grid.t * grid.e)

    def sync(
        self,
        blocks: Blocks,
        grid: Grid,
        modes: Sequence[Mode],
        microbatch: int,
        replicas: int,
        profiles: Floats,
        types: Sequence[DeviceType],
    ) -> Floats:
        """Seconds of gradient synchronisation, as far as exposed, and optimizer step; (..., R, M).

        Parameters
        ----------
        profiles : float array (..., 7, entries)
        """
        w = self.workload
        dense, sparse = self._parameters(blocks, grid)
        *_, size, size_expert = grid.family_sizes(replicas)
        rows = ((dense, size, profiles[..., 5, :]), (sparse, size_expert, profiles[..., 6, :]))
        slowest = min(device.memory_bandwidth for device in types)
        per_parameter = 2 * w.bytes_optimizer + w.bytes_gradient + w.bytes_weight
        by_zero: dict[int, tuple[Floats, Floats, Floats]] = {}
        for zero in sorted({mode.zero for mode in modes}):
            reduced, gathered, step = (np.zeros((*profiles.shape[:-2], len(dense))) for _ in "123")
            for count, members, profile in rows:
                if not count.any():
                    continue
                gradients, weights = w.bytes_gradient * count, w.bytes_weight * count
                if zero == 0:
                    reduced += all_reduce(members, profile, gradients)
                elif zero == 1:
                    reduced += all_gather(members, profile, gradients)
                if zero in (1, 2):
                    gathered += all_gather(members, profile, weights)
                shards = members if zero >= 1 else 1
                step += per_parameter * count / shards / slowest
            by_zero[zero] = reduced, gathered, step
        columns = []
        for mode in modes:
            reduced, gathered, step = by_zero[mode.zero]
            exposed = reduced + gathered
            if mode.hides & Hides.SYNC:
                exposed = np.zeros_like(exposed)
                for device in types:
                    work = self._compute(grid, mode, microbatch, device)
                    late = np.maximum(0.0, reduced - blocks.counts @ work.behind)
                    late = late + np.maximum(0.0, gathered - blocks.counts @ work.forward)
                    exposed = np.maximum(exposed, late)
            columns.append(exposed + step)
        return np.stack(columns, axis=-1)

    def memory(
        self, blocks: Blocks, grid: Grid, modes: Sequence[Mode], microbatch: int, replicas: int
    ) -> Memory:
        """Bytes that a device of each block needs, by mode."""
        f, w = self._f, self.workload
        x, y, z, c, e = grid
        u = microbatch / (c * e * z)
        dense, sparse = self._parameters(blocks, grid)
        *_, size, size_expert = grid.family_sizes(replicas)
        fixed = np.zeros((len(dense), len(modes)))
        stored = np.zeros_like(fixed)
        full, shard, attn, kept, logits = (
            self._sums(blocks, name)
            for name in ("act_full", "act_shard", "act_attn", "act_input", "logits_bytes")
        )
        weights = f["params"] / (x * y) + f["params_expert"] / (x * y * e)
        gathered = self._largest(blocks, weights)
        states: dict[int, Floats] = {}
        kinds: dict[tuple[int, str], tuple[Floats, Floats, Floats]] = {}
        for column, mode in enumerate(modes):
            split = grid.outer_parts(mode.sequence_parallel)
            if mode.zero not in states:
                states[mode.zero] = np.zeros(len(dense))
                for size_each, from_stage in (
                    (w.bytes_weight, 3), (w.bytes_gradient, 2), (w.bytes_optimizer, 1),
                ):  # fmt: skip
                    over = mode.zero >= from_stage
                    states[mode.zero] += size_each * (
                        dense / (size if over else 1) + sparse / (size_expert if over else 1)
                    )
            if (split, mode.recompute) not in kinds:
                working = np.zeros(len(dense))
                if mode.recompute == "none":
                    held = u * (full / split + shard / y + attn / y)
                elif mode.recompute == "selective":
                    held = u * (full / split + shard / y)
                    working = u * self._largest(blocks, f["act_attn"] / y)
                else:
                    held = u * kept / split
                    each = f["act_full"] / split + f["act_shard"] / y + f["act_attn"] / y
                    working = u * self._largest(blocks, each)
                buffers = 2 * u * (blocks.cut_in + blocks.cut_out) / split + 2 * u * logits / y
                kinds[split, mode.recompute] = held, working, buffers
            held, working, buffers = kinds[split, mode.recompute]
            stored[:, column] = held
            if mode.zero == 3 or z > 1:
                buffers = buffers + 2 * w.bytes_weight * gathered
            if z > 1:
                buffers = buffers + w.bytes_gradient * gathered
            fixed[:, column] = states[mode.zero] + working + buffers
        return Memory(fixed, stored)

    def modes(
        self,
        grid: Grid,
        zero: Sequence[int],
        recompute: Sequence[str],
        sequence: Sequence[bool],
        overlap: Sequence[bool] = (False,),
        hides: Sequence[Hides] = (Hides.NONE,),
    ) -> tuple[Mode, ...]:
        """The modes offered to a grid.

        Sequence parallelism needs Gy > 1 and Gx = 1, overlap a tensor degree above 1; grids without
        are always off. Of each of `hides` a mode has what it can hide
        (`nestopt.placement.model.grid.hidden`).
        """
        unknown = [r for r in recompute if r not in RECOMPUTE]
        if unknown:
            raise ValueError(f"unknown recompute mode {unknown[0]!r}")
        splits = [s for s in sequence if (grid.y > 1 and grid.x == 1) or not s] or [False]
        overlaps = [o for o in overlap if grid.t > 1 or not o] or [False]
        offered = (
            Mode(s, z, r, o, hidden(grid, z, o, h))
            for s in splits
            for z in zero
            for r in recompute
            for o in overlaps
            for h in hides
        )
        return tuple(dict.fromkeys(offered))


def _padded(rows: Sequence[tuple[float, ...]]) -> Floats:
    """Rows of unequal length, filled with zeros."""
    out = np.zeros((len(rows), max(map(len, rows))))
    for index, row in enumerate(rows):
        out[index, : len(row)] = row
    return out


def _reduce_each(n: int, profile: Floats, sizes: Floats) -> Floats:
    """Seconds of all-reducing each of the sizes (K, J) by itself, (..., K)."""
    seconds = all_reduce(n, profile, sizes.ravel())
    return seconds.reshape(*profile.shape[:-1], *sizes.shape).sum(axis=-1)


def _behind(moved: Reduces, work: _Compute) -> Floats:
    """What of the communication that overlaps still shows."""
    ahead = np.maximum(0.0, moved.gather - work.forward)
    stream = moved.gather + moved.scatter + moved.hidden - work.behind
    return ahead + np.maximum(np.maximum(0.0, moved.hidden - work.product), stream)


def _behind_products(moved: Reduces, work: _Compute, again: int) -> Floats:
    """What of the reduces the products of their operator do not hide."""
    return (1 + again) * np.maximum(0.0, moved.forward - work.product) + np.maximum(
        0.0, moved.backward - 2 * work.product
    )
