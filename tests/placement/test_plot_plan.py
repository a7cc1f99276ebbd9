"""Pictures of plans: their content, and that a rebuild is byte-identical."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from plan_cases import random_case, random_cluster, tiny_plan
from sampling import slow

from nestopt.core.errors import UsageError
from nestopt.placement.model.cluster import Cluster, DeviceType, Level
from nestopt.placement.model.plan import Plan, Stage, StageConfig
from nestopt.placement.model.workload import Operator, Workload
from nestopt.placement.show.plot import draw_plan, plot_plan
from nestopt.placement.show.plot_layout import lay_out

pytest.importorskip("matplotlib")


def overlap(a, b) -> bool:
    return (
        a.x < b.x + b.width
        and b.x < a.x + a.width
        and a.y < b.y + b.height
        and b.y < a.y + a.height
    )


@pytest.mark.parametrize("seed", range(25))
def test_layout_nests(seed):
    rng = np.random.default_rng(seed)
    cluster = random_cluster(rng, int(rng.integers(1, 60)))
    picture = lay_out(cluster)
    count = len(cluster.type_of)
    assert sorted(picture.x) == list(range(count))
    corners = {(round(picture.x[d], 6), round(picture.y[d], 6)) for d in range(count)}
    assert len(corners) == count
    for level, sizes in enumerate(cluster.sizes):
        boxes = [b for b in picture.boxes if b.level == level]
        assert sorted(b.group for b in boxes) == list(range(len(sizes)))
        assert not any(overlap(a, b) for i, a in enumerate(boxes) for b in boxes[:i])
        ends = np.cumsum(sizes)
        for box in boxes:
            assert box.x >= -1e-9 and box.x + box.width <= picture.width + 1e-9
            for device in range(int(ends[box.group]) - sizes[box.group], int(ends[box.group])):
                assert box.x < picture.x[device] and picture.x[device] + 1 < box.x + box.width
                assert box.y < picture.y[device] and picture.y[device] + 1 < box.y + box.height


def deep_plan(stages: int) -> tuple[Workload, Cluster, Plan]:
    cluster = Cluster.regular(
        "deep", (4, 8, 8), (
            Level("node", 1e-6, 1e9, 1e9), Level("rack", 1e-5, 1e9, 1e9), Level("top", 1e-5, 1e9)
        ),
        (DeviceType("gpu", 1e12, 1e9, 1e12),), failed=(255,),
    )  # fmt: skip
    operators = [Operator(f"b{i}", kind="b", flops=1e9, params=1e3) for i in range(stages)]
    workload = Workload.chain("deep", operators, 1e3, 256)
    devices = np.arange(4 * stages).reshape(stages, 1, 4)
    config = StageConfig(context=4)
    operators = [replace(o, context_divides=4) for o in operators]
    workload = replace(workload, operators=tuple(operators))
    return (
        workload,
        cluster,
        Plan(tuple(Stage((q,), config, devices[q]) for q in range(stages)), 1, 1),
    )


def texts(axes) -> list[str]:
    return [t.get_text() for t in axes.texts]


def collections(axes) -> dict[str, object]:
    return {c.get_label(): c for c in axes.collections}


def test_a_small_plan_shows_every_device():
    workload, cluster, plan = tiny_plan()
    figure = draw_plan(workload, replace(cluster, name="c"), plan)
    tree, line = figure.axes
    assert sorted(texts(tree)) == ["0\nr0", "0\nr1", "1\nr0", "1\nr1"]
    assert len(collections(tree)["stages"].get_paths()) == 4
    assert len(collections(tree)["node"].get_paths()) == 2
    assert len(collections(tree)["top"].get_paths()) == 1
    labels = [t.get_text() for t in tree.get_legend().get_texts()]
    assert labels == ["stage 0", "stage 1"]
    # 4 micro-batches, forward and backward, on 2 stages; 2 synchronisations
    assert [len(c.get_paths()) for c in line.collections[:2]] == [8, 8]
    assert len(line.patches) == 2
    assert line.get_xlabel() == "time (s)"
    assert line.get_ylabel() == "stage"


def test_failed_and_idle_devices_are_told_apart():
    workload, cluster, plan = deep_plan(8)
    tree = draw_plan(workload, cluster, plan).axes[0]
    found = collections(tree)
    assert len(found["stages"].get_paths()) == 32
    assert len(found["idle"].get_paths()) == 256 - 32 - 1
    assert len(found["failed"].get_paths()) == 2  # the strokes of one cross
    labels = [t.get_text() for t in tree.get_legend().get_texts()]
    assert labels == [f"stage {q}" for q in range(8)] + ["idle", "failed"]


def test_many_stages_and_micro_batches():
    workload, cluster, plan = deep_plan(40)
    figure = draw_plan(workload, cluster, plan)
    tree, start, end = [a for a in figure.axes if a.get_label() != "<colorbar>"]
    assert texts(tree) == [str(q) for q in range(40)]  # a node each
    bar = [a for a in figure.axes if a.get_label() == "<colorbar>"]
    assert [a.get_ylabel() for a in bar] == ["stage"]
    # beginning and end, not the 256 micro-batches between
    assert start.get_xlim()[0] == 0
    assert start.get_xlim()[1] < end.get_xlim()[0]
    shown = sum(len(c.get_paths()) for a in (start, end) for c in a.collections)
    assert 0 < shown < 2 * 256 * 40 / 2


@pytest.mark.parametrize("ending", ["pdf", "png", "svg"])
def test_files_are_byte_identical(tmp_path, ending):
    for name in ("a", "b"):
        plot_plan(*tiny_plan(), tmp_path / f"{name}.{ending}")
    first = (tmp_path / f"a.{ending}").read_bytes()
    assert len(first) > 5000
    assert first == (tmp_path / f"b.{ending}").read_bytes()


def test_another_ending_is_refused(tmp_path):
    with pytest.raises(UsageError, match="\\.pdf, \\.png or \\.svg"):
        plot_plan(*tiny_plan(), tmp_path / "plan.gif")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("seed", [0, 1, *slow(range(2, 6))])
def test_random_plans_can_be_drawn(tmp_path, seed):
    workload, cluster, plan = random_case(
        np.random.default_rng(seed), ("1f1b", "gpipe", "interleaved")
    )
    plot_plan(workload, cluster, plan, tmp_path / "plan.png")
    assert (tmp_path / "plan.png").stat().st_size > 5000
