"""Default schedules whose partial sums are copied: run, exported, timed; broken ones caught.

With a latency, `greedy` answers an All-Reduce of small chunks by schedules in which a sender keeps
what it sends. Every network here is one where it does.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from interop_cases import PATTERNS, problem, solved
from test_run import needs_mpi, needs_torch, ranks_answer, write_result
from test_simgrid import needs_simgrid

from nestopt.collective.model.schedule import SHARE
from nestopt.core.errors import CheckError, InputError

if TYPE_CHECKING:
    from pathlib import Path

    from nestopt.collective.model.instance import CollectiveInstance
    from nestopt.collective.model.schedule import Schedule

LINK = "bw=25GB/s,alpha=5us"
Networks = tuple[tuple[str, str], ...]
GROUP = "npus=0+2-3+5-7,"
# eight ranks each: the third has 8 survivors of 9, the last is a subgroup that others relay for
NETWORKS = (
    ("", f"fully-connected:8,{LINK}"),
    ("", f"switch:8,{LINK}"),
    ("", f"fully-connected:9,{LINK}+fail-npus:1+seed:1"),
    ("", "dgx1v:alpha=hardware"),
    ("", "dgx-a100:2x4,alpha=hardware"),
    ("", f"hypercube:3,{LINK}"),
    (GROUP, f"mesh2d:2x4,{LINK}"),
)
# four ranks, for the default suite
SMALL = (
    ("", f"fully-connected:4,{LINK}"),
    ("", f"switch:4,{LINK}"),
    ("", f"fully-connected:5,{LINK}+fail-npus:1+seed:1"),
    ("npus=0+2-3,", f"mesh2d:2x2,{LINK}"),
)
EIGHT = [pytest.param(*each, marks=pytest.mark.slow) for each in NETWORKS]


@cache
def _default(pattern: str, group: str, network: str) -> tuple[CollectiveInstance, Schedule]:
    """The default schedule of 1 KB chunks; that of an All-Reduce copies partial sums."""
    instance = problem(f"{pattern}:{group}size=1KB", network, "pipelined")
    schedule = solved(instance)[1]
    assert (pattern == "all-reduce") == bool((schedule.phase == SHARE).any())
    return instance, schedule


def _changed(schedule: Schedule, send: int, what: str) -> Schedule:
    """One fault in a send of a copied sum: the set that it names, its chunk, or all of it."""
    from nestopt.collective.model.schedule import Schedule

    assert schedule.content is not None
    keep = np.ones(schedule.num_sends, dtype=np.bool_)
    content, chunk = schedule.content.copy(), schedule.chunk.copy()
    if what == "set":
        content[send] = (content[send] + 1) % len(schedule.sets)
    elif what == "chunk":
        chunk[send] = (chunk[send] + 1) % (int(chunk.max()) + 1)
    else:
        keep[send] = False
    return Schedule.of(
        chunk[keep],
        schedule.link[keep],
        schedule.start_ps[keep],
        schedule.makespan_ps,
        schedule.phase[keep],
        content[keep],
        schedule.sets,
    )


@needs_mpi
@pytest.mark.parametrize(
    ("networks", "patterns", "ranks"),
    [
        (SMALL, ("all-reduce",), 4),
        *(pytest.param((each,), PATTERNS, 8, marks=pytest.mark.slow) for each in NETWORKS),
    ],
)
def test_the_data_are_right_and_faults_are_caught(
    tmp_path: Path, networks: Networks, patterns: tuple[str, ...], ranks: int
) -> None:
    cases, wrong = [], []
    for number, (group, network) in enumerate(networks):
        for pattern in patterns:
            instance, schedule = _default(pattern, group, network)
            file = tmp_path / f"{number}-{pattern}.json"
            cases.append([str(write_result(file, instance, schedule)), "int64", 1])
            if pattern != "all-reduce":
                continue
            cases.append([str(file), "float32", 1])
            for what in ("chunk", "send"):
                fault = _changed(schedule, schedule.num_sends - 1, what)
                file = tmp_path / f"{number}-{what}.json"
                wrong.append([str(write_result(file, instance, fault)), "int64", 1])
    answers = ranks_answer(tmp_path, ranks, [*cases, *wrong])
    for file, dtype, _ in cases:
        answer = answers[f"{file} {dtype}"]
        assert "check" not in answer, f"{file}: {answer}"
        assert answer["elements"] > 0
        assert answer["worst_error"] <= answer["allowed_error"]
    for file, dtype, _ in wrong:
        assert "check" in answers[f"{file} {dtype}"], file


@needs_torch
@pytest.mark.slow
@pytest.mark.parametrize(("group", "network"), [*SMALL, *NETWORKS])
def test_gloo_has_the_right_data(tmp_path: Path, group: str, network: str) -> None:
    from nestopt.interop.run import launch

    instance, schedule = _default("all-reduce", group, network)
    file = write_result(tmp_path / "s.json", instance, schedule)
    report = launch.run_locally(launch.Job(str(file), "gloo", (1024,), ("int64",), 1), timeout=300)
    assert len(report.rows) == 1


@pytest.mark.parametrize(("group", "network"), [*SMALL, *EIGHT])
def test_what_is_exported_is_right_when_read_back(group: str, network: str) -> None:
    """The verifiers follow the sets with multiplicity; only relays outside the group cannot be."""
    from nestopt.interop.msccl_check import check_algorithm
    from nestopt.interop.msccl_file import parse_algorithm
    from nestopt.interop.msccl_xml import msccl_xml
    from nestopt.interop.mscclpp_check import check_plan
    from nestopt.interop.mscclpp_plan import mscclpp_plan

    instance, schedule = _default("all-reduce", group, network)
    if group:
        for export in (msccl_xml, mscclpp_plan):
            with pytest.raises(InputError, match="relays and is not in the group"):
                export(instance, schedule)
        return
    text = msccl_xml(instance, schedule)
    assert "exactly once" in check_algorithm(parse_algorithm(text))[-1]
    check_plan(json.loads(json.dumps(mscclpp_plan(instance, schedule))))
    refused = 0
    for send in range(0, schedule.num_sends, max(1, schedule.num_sends // 6)):
        for what in ("set", "chunk", "send"):
            fault = _changed(schedule, send, what)
            try:
                msccl_xml(instance, fault)
            except CheckError:
                refused += 1
    assert refused >= 12


def test_a_set_that_is_added_twice_is_no_algorithm() -> None:
    """Doubling on a square: the second exchange sends the first one's set again."""
    import re

    from nestopt.interop.msccl_check import check_algorithm
    from nestopt.interop.msccl_file import parse_algorithm
    from nestopt.interop.msccl_xml import msccl_xml

    instance, schedule = _default("all-reduce", "", f"hypercube:2,{LINK}")
    text = msccl_xml(instance, schedule)
    adds = [found.start() for found in re.finditer('type="re"', text)]
    assert adds
    for at in adds:
        lines = text[at:].split("\n", 1)
        doubled: list[Any] = [text[:at], lines[0].replace('type="re"', 'type="nop"', 1), lines[1]]
        with pytest.raises((CheckError, InputError)):
            check_algorithm(parse_algorithm(doubled[0] + doubled[1] + "\n" + doubled[2]))


@needs_simgrid
@pytest.mark.parametrize(("group", "network"), [*SMALL, *EIGHT])
def test_simgrid_takes_as_long(group: str, network: str) -> None:
    from nestopt.interop.simgrid_clock import play_schedule

    instance, schedule = _default("all-reduce", group, network)
    answer = play_schedule(instance, schedule)
    assert answer["foreign"] == pytest.approx(
        schedule.makespan_ps, rel=1e-9, abs=schedule.num_sends
    )
