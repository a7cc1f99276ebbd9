"""The known algorithms (ring, direct, hierarchical, ...) as entries of the portfolio.

They are cheap, and some are optimal where matching is not: a search that starts from the best of
them is never behind any.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from nestopt.collective.baselines.play import NO_LIMIT
from nestopt.collective.baselines.solve import MOST_MESSAGES, count_messages, shortest_variant
from nestopt.collective.greedy.portfolio import Entry, Found, tuned
from nestopt.core.errors import InputError, UsageError

if TYPE_CHECKING:
    from nestopt.collective.greedy.portfolio import Job

__all__ = ["KNOWN_EARLY", "KNOWN_LATE"]

# messages that take about 0.1 s to play; beyond, what else is quick is played first and a known
# algorithm is broken off as soon as it takes longer than the best schedule
EARLY_MESSAGES = 100_000
# the same where switches forward one by one: there matching takes ten times as long as playing
EARLY_BY_SWITCH = 1_000_000
_NAMES = ("hierarchical", "direct", "ring", "rhd", "dbt", "shortest-path")
_WHY = {
    "ring": "optimal on rings and on large chunks where every step uses every link",
    "direct": "optimal for All-to-All behind one switch and on cliques",
    "rhd": "optimal on hypercubes; few rounds where latency counts",
    "dbt": "two trees that share their leaves: Broadcast and small All-Reduces",
    "hierarchical": "near the bound on nodes behind one NIC a device",
    "shortest-path": "first come, first served on shortest paths",
}


def _messages(name: str, job: Job) -> int:
    return count_messages(job.instance, name)


def _early(name: str, job: Job) -> bool:
    return tuned(job) and _messages(name, job) <= _most_early(job)


def _late(name: str, job: Job) -> bool:
    return tuned(job) and _most_early(job) < _messages(name, job) <= MOST_MESSAGES


def _most_early(job: Job) -> int:
    return EARLY_MESSAGES if job.topology.multicast.all() else EARLY_BY_SWITCH


def _known(name: str, job: Job) -> Found | None:
    """The algorithm's schedule, if it has one that is shorter than the best so far."""
    limit = NO_LIMIT if job.best is None else job.best.schedule.makespan_ps - 1
    try:
        schedule = shortest_variant(job.instance, name, limit=limit)
    except (InputError, UsageError):
        # it has no form for the pattern, or too many messages
        return None
    return None if schedule is None else Found(schedule, {"kernel": name, "tries": 1})


KNOWN_EARLY = tuple(
    Entry(name, partial(_known, name), partial(_early, name), _WHY[name]) for name in _NAMES
)
KNOWN_LATE = tuple(
    Entry(name, partial(_known, name), partial(_late, name), _WHY[name]) for name in _NAMES
)
