"""How much of the time a job makes progress: interruptions, checkpoints, repairs and spares.

Interruptions are a Poisson process. A job writes a checkpoint after every ``interval`` of work; an
interruption loses what was done since the last one, and costs a restart. With ``M`` the mean time
between interruptions, ``d`` the seconds that a checkpoint stops the job and ``R`` those of a
restart (during which the job may be interrupted again), an interval ``w`` of work takes

    M exp(R/M) (exp((w + d)/M) - 1)

on average (Daly 2006, equation 20). The best interval is exact here: the derivative vanishes at
``w = M (1 + W(-exp(-1 - d/M)))`` with Lambert's W. Young's ``sqrt(2 d M)`` is its first term.

A device that is broken is out until it is repaired, with its whole node. With ``k`` spare nodes the
job stands still while ``k + 1`` are out. What is out is then a loss system of ``k + 1`` servers:
the share of time in which all are busy is Erlang's formula B, whatever the distribution of repairs.

References
----------
J. W. Young, A first order approximation to the optimum checkpoint interval, CACM 17(9), 1974.
J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS
22(3), 2006.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from nestopt.core.errors import InputError, unknown_name

__all__ = [
    "DAY",
    "RATES",
    "FailureRates",
    "Reliability",
    "best_interval",
    "erlang_b",
    "reliability",
]

DAY = 86400.0


@dataclass(frozen=True, slots=True)
class FailureRates:
    """How often a job is interrupted, and how often something has to be repaired.

    Attributes
    ----------
    device, node : float
        Interruptions a day of each device and of each node.
    device_out, node_out : float
        Those of them after which a node is out until it is repaired.
    source : str
    """

    device: float = 0.0
    node: float = 0.0
    device_out: float = 0.0
    node_out: float = 0.0
    source: str = ""

    @classmethod
    def of(cls, text: str | float) -> FailureRates:
        """The rates of a name of `RATES`, or interruptions a device and day, all with a repair.

        Raises
        ------
        InputError
            If the number is negative or not finite.
        UsageError
            If the name is unknown (with a suggestion).
        """
        try:
            rate = float(text)
        except ValueError:
            if text not in RATES:
                raise unknown_name("failure rates", str(text), RATES) from None
            return RATES[str(text)]
        if not 0 <= rate < math.inf:
            raise InputError(
                f"{text!r}; expected interruptions a device and day, such as 5e-4, or one of "
                f"{', '.join(RATES)}",
                field="failures",
            )
        return cls(device=rate, device_out=rate, source="given, a device and day")


RATES: dict[str, FailureRates] = {
    "llama3": FailureRates(
        device=419 / (16384 * 54),
        device_out=3.03e-4 + 3.96e-5 + 7.9e-6,
        source="Llama 3 herd of models (2024), section 3.3.4: 419 unexpected interruptions of "
        "16,384 H100 in 54 days; out: GPU hardware, switches and cables, NICs",
    ),
    "rsc1": FailureRates(
        node=6.50e-3, node_out=6.50e-3, source="Kokolis et al. (2024), Meta RSC-1, per node-day"
    ),
    "rsc2": FailureRates(
        node=2.34e-3, node_out=2.34e-3, source="Kokolis et al. (2024), Meta RSC-2, per node-day"
    ),
    "tpuv4": FailureRates(
        node=8e-4,
        node_out=8e-4,
        source="Zu et al., Resiliency at Scale, NSDI 2024: machines a day, cables apart",
    ),
}
"""Published rates by name."""


@dataclass(frozen=True, slots=True)
class Reliability:
    """How much of the wall-clock time is progress.

    Attributes
    ----------
    mean_time : float
        Seconds between interruptions; infinite without any.
    interval : float
        Seconds of work between checkpoints, the best; infinite without interruptions.
    interval_young : float
        Young's estimate of it.
    running : float
        Share of the time in which enough nodes are in order.
    progress : float
        Share of the running time that is work which was kept.
    """

    mean_time: float
    interval: float
    interval_young: float
    running: float
    progress: float

    @property
    def goodput(self) -> float:
        """Share of the wall-clock time that is work which was kept."""
        return self.running * self.progress


def best_interval(mean_time: float, checkpoint: float) -> float:
    """The work between two checkpoints that makes a job end soonest (seconds).

    Parameters
    ----------
    mean_time : float
        Mean seconds between interruptions, positive.
    checkpoint : float
        Seconds that a checkpoint stops the job, at least 0.
    """
    if math.isinf(mean_time):
        return math.inf
    # v = w/M solves 1 - (1 - v) exp(v) = 1 - exp(-d/M), whose left side rises from 0 to 1
    target = -math.expm1(-checkpoint / mean_time)
    low, high = 0.0, 1.0
    for _ in range(200):
        middle = (low + high) / 2
        if middle * math.exp(middle) - math.expm1(middle) < target:
            low = middle
        else:
            high = middle
    return mean_time * (low + high) / 2


def erlang_b(servers: int, load: float) -> float:
    """Erlang's formula B: the share of time in which all of `servers` are busy."""
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    return blocked


def reliability(
    rates: FailureRates,
    *,
    devices: int,
    nodes: int,
    checkpoint: float,
    restart: float,
    repair: float,
    spares: int,
) -> Reliability:
    """How much of the time a job on `devices` devices in `nodes` nodes makes progress.

    Parameters
    ----------
    checkpoint, restart, repair : float
        Seconds: of a checkpoint, of a restart, of the repair of a node.
    spares : int
        Spare nodes.
    """
    each_day = rates.device * devices + rates.node * nodes
    out = (rates.device_out * devices + rates.node_out * nodes) / DAY
    running = 1.0 - (erlang_b(spares + 1, out * repair) if out * repair > 0 else 0.0)
    if each_day == 0:
        return Reliability(math.inf, math.inf, math.inf, running, 1.0)
    mean = DAY / each_day
    interval = best_interval(mean, checkpoint)
    young = math.sqrt(2 * checkpoint * mean)
    share = interval / mean
    slow = math.exp(-restart / mean) if restart < 700 * mean else 0.0
    grown = math.expm1((interval + checkpoint) / mean) if checkpoint < 700 * mean else math.inf
    progress = slow * (share / grown if grown > 0 else 1.0)
    return Reliability(mean, interval, young, running, progress)
