"""The report of what a plan costs."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from nestopt.core.errors import InputError
from nestopt.core.units import format_seconds
from nestopt.placement.economics.reliability import DAY, Reliability, reliability

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nestopt.placement.economics.terms import Terms
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.model.workload import Workload

__all__ = ["CostReport", "Figures", "cost_of", "mfu"]

SCHEMA = "nestopt.cost/1"


@dataclass(frozen=True, slots=True)
class CostReport:
    """What training with a plan takes: time, money, energy.

    Paid are all devices of the cluster that are alive, and the spare nodes; energy is that of the
    devices used. Days, money and energy contain what failures take, `days_without_failures` does
    not.

    Attributes
    ----------
    terms : Terms
        What was asked.
    iteration_seconds : float
    tokens_per_iteration : int
        Tokens of a global batch.
    tokens_per_second, tokens_per_second_per_device : float
        Of the whole plan, and of each device that it uses; without failures.
    mfu_used, mfu_alive : float
        Model FLOPs of an iteration over what the devices used, and all alive ones, could do.
    devices_used, devices_alive, devices_paid : int
    iterations : int
        Global batches until all tokens are seen.
    days_without_failures, days : float
    failures : Reliability or None
        Mean time between interruptions, checkpoint interval, goodput; None if no rates were given.
    device_hours : float
        Hours that all paid devices are held, together.
    money, energy : float or None
        In the price's unit; in joules. None without a price, without a power.
    """

    terms: Terms
    iteration_seconds: float
    tokens_per_iteration: int
    tokens_per_second: float
    tokens_per_second_per_device: float
    mfu_used: float
    mfu_alive: float
    devices_used: int
    devices_alive: int
    devices_paid: int
    iterations: int
    days_without_failures: float
    days: float
    failures: Reliability | None
    device_hours: float
    money: float | None
    energy: float | None

    @property
    def goodput(self) -> float:
        """Share of the wall-clock time that is progress; 1 without failures."""
        return 1.0 if self.failures is None else self.failures.goodput

    def to_json(self) -> dict[str, Any]:
        """The report as JSON, schema ``nestopt.cost/1``; what is infinite is null."""
        data: dict[str, Any] = {"schema": SCHEMA}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if name == "terms":
                value = value.to_json()
            elif name == "failures" and value is not None:
                value = asdict(value) | {"goodput": value.goodput}
                value = {key: v if math.isfinite(v) else None for key, v in value.items()}
            elif isinstance(value, float) and not math.isfinite(value):
                value = None
            data[name] = value
        return data

    def rows(self) -> list[tuple[str, str]]:
        """The report for people: a term and its text."""
        idle = self.devices_alive - self.devices_used
        found = [
            ("tokens/s", f"{self.tokens_per_second:,.0f}, "
             f"{self.tokens_per_second_per_device:,.0f} a device used"),
            ("MFU", f"{100 * self.mfu_used:.1f} % of the {self.devices_used} devices used, "
             f"{100 * self.mfu_alive:.1f} % of the {self.devices_alive} alive"),
            ("days", f"{_days(self.days)} for {_tokens(self.terms.tokens)} tokens "
             f"({self.iterations:,} iterations)"),
        ]  # fmt: skip
        if self.money is not None:
            spare = self.devices_paid - self.devices_alive
            also = [f"{n} {word}" for n, word in ((idle, "idle"), (spare, "spare")) if n]
            beside = f", {' and '.join(also)} among them" if also else ""
            found.append(
                ("money", f"{_money(self.money)} at {self.terms.price:g} a device and hour, "
                 f"{self.devices_paid} devices{beside}")
            )  # fmt: skip
        if self.energy is not None:
            megawatt_hours = f"{self.energy / 3.6e9:,.4g} MWh"
            found.append(("energy", f"{megawatt_hours} at {self.terms.power:g} W a device used"))
        if self.failures is not None:
            found += self._failure_rows(self.failures)
        return found

    def _failure_rows(self, failures: Reliability) -> list[tuple[str, str]]:
        if math.isinf(failures.mean_time):
            return [("failures", "none at these rates")]
        terms = self.terms
        rows = [
            ("failures", f"one in {_duration(failures.mean_time)}; goodput "
             f"{100 * failures.goodput:.1f} % ({_days(self.days_without_failures)} days without)"),
            ("checkpoint", f"every {_duration(failures.interval)} (Young "
             f"{_duration(failures.interval_young)}), each {_duration(terms.checkpoint)}; "
             f"restart {_duration(terms.restart)}"),
        ]  # fmt: skip
        if terms.repair:
            rows.append(
                ("repair", f"{_duration(terms.repair)} a node, {terms.spares} spare; enough nodes "
                 f"{100 * failures.running:.2f} % of the time")
            )  # fmt: skip
        return rows

    def summary(self) -> str:
        """The report for people, a line a term."""
        rows = self.rows()
        width = max(len(key) for key, _ in rows)
        return "\n".join(f"{key:<{width}}  {text}" for key, text in rows)


@dataclass(frozen=True, slots=True)
class Figures:
    """What a report needs of a plan; it can be kept without the plan.

    Attributes
    ----------
    iteration_seconds : float
    tokens_per_iteration : int
    flops : float
        Model FLOPs of an iteration.
    peak_used, peak_alive : float
        FLOP/s of the devices used and of all alive ones.
    devices_used, devices_alive, nodes_used, node : int
        `node`: devices of the largest node (innermost group).
    """

    iteration_seconds: float
    tokens_per_iteration: int
    flops: float
    peak_used: float
    peak_alive: float
    devices_used: int
    devices_alive: int
    nodes_used: int
    node: int

    @classmethod
    def of(cls, workload: Workload, cluster: Cluster, plan: Plan) -> Figures:
        """The figures of a plan.

        Raises
        ------
        InputError
            If the workload does not say how many tokens a sample has.
        """
        from nestopt.placement.pricing.evaluate import evaluate

        sample = workload.tokens_per_sample
        if sample is None:
            raise InputError(
                "is missing: the workload does not say how many tokens a sample has",
                field="workload.sequence",
            )
        used, inner = _devices(plan), cluster.group_of[0]
        return cls(
            evaluate(workload, cluster, plan).iteration_time,
            workload.global_batch * sample,
            workload.iteration_flops,
            _peak(cluster, used),
            _peak(cluster, cluster.alive),
            len(used),
            len(cluster.alive),
            len(np.unique(inner[used])),
            int(np.bincount(inner[cluster.alive]).max()),
        )

    def report(self, terms: Terms) -> CostReport:
        """What training costs on terms."""
        seconds, used = self.iteration_seconds, self.devices_used
        paid = self.devices_alive + terms.spares * self.node
        iterations = math.ceil(terms.tokens / self.tokens_per_iteration)
        failures = None
        if terms.failures is not None:
            failures = reliability(
                terms.failures,
                devices=used,
                nodes=self.nodes_used,
                checkpoint=terms.checkpoint,
                restart=terms.restart,
                repair=terms.repair,
                spares=terms.spares,
            )
        share = 1.0 if failures is None else failures.goodput
        wall = iterations * seconds / share if share > 0 else math.inf
        rate = self.tokens_per_iteration / seconds
        hours = paid * wall / 3600
        return CostReport(
            terms,
            seconds,
            self.tokens_per_iteration,
            rate,
            rate / used,
            self.flops / (seconds * self.peak_used),
            self.flops / (seconds * self.peak_alive),
            used,
            self.devices_alive,
            paid,
            iterations,
            iterations * seconds / DAY,
            wall / DAY,
            failures,
            hours,
            None if terms.price is None else terms.price * hours,
            None if terms.power is None else terms.power * used * wall,
        )


def cost_of(workload: Workload, cluster: Cluster, plan: Plan, terms: Terms) -> CostReport:
    """What training with a plan costs.

    Raises
    ------
    InputError
        If the workload does not say how many tokens a sample has.
    """
    return Figures.of(workload, cluster, plan).report(terms)


def mfu(workload: Workload, cluster: Cluster, plan: Plan, seconds: float) -> float:
    """Model FLOPs utilization: model FLOPs of an iteration over what the devices used could do."""
    return workload.iteration_flops / (seconds * _peak(cluster, _devices(plan)))


def _devices(plan: Plan) -> NDArray[np.int64]:
    return np.concatenate([stage.devices.ravel() for stage in plan.stages])


def _peak(cluster: Cluster, devices: NDArray[np.int64]) -> float:
    counts = np.bincount(cluster.type_of[devices], minlength=len(cluster.types))
    return float(sum(n * kind.peak for n, kind in zip(counts.tolist(), cluster.types)))


def _days(days: float) -> str:
    return f"{days:,.1f}" if days >= 9.95 else f"{days:.3g}"


def _money(amount: float) -> str:
    for word, scale in (("billion", 1e9), ("million", 1e6)):
        if amount >= scale:
            return f"{amount / scale:.4g} {word}"
    return f"{amount:,.0f}" if amount >= 100 else f"{amount:.2f}"


def _tokens(count: float) -> str:
    for letter, scale in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if count >= scale:
            return f"{count / scale:.4g}{letter}"
    return f"{count:.4g}"


def _duration(seconds: float) -> str:
    for unit, scale in (("days", DAY), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * scale:
            return f"{seconds / scale:.3g} {unit}"
    return format_seconds(seconds)
