"""The communication model against AxoNN's figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from facts import rows

from nestopt.core.errors import InputError, UsageError
from nestopt.core.registry import named
from nestopt.fourd.commmodel import collectives_of, memory, seconds, seconds_by_kind
from nestopt.fourd.decomposition import Collective, Grid
from nestopt.fourd.models import Machine, machine_of, measured, model_names, named_model
from nestopt.fourd.rank import rank

PINNED = [
    # machine, model, batch, (Gr, Gc, Gd, Gdata), published, corrected; both from Megatron-AxoNN's
    # communication model as published, and with the sizes of 4h -> h corrected
    ("perlmutter", "5b", 512, (1, 1, 16, 4), 0.40078125000000003, 0.40078125000000003),
    ("perlmutter", "5b", 512, (4, 1, 16, 1), 1.2764062500000002, 0.7964062500000001),
    ("perlmutter", "80b", 256, (4, 4, 64, 1), 3.29001708984375, 2.44345458984375),
    ("frontier", "40b", 2048, (2, 1, 256, 1), 6.383597972781159, 5.886504949525345),
]


def communication(
    machine: str, model: str, batch: int, sizes: tuple[int, int, int, int], mode: str
) -> float:
    """Seconds of a configuration named as AxoNN does: Gr is y, Gc is x, Gd is z."""
    gr, gc, gd, data = sizes
    grid = Grid(gc, gr, gd, data)
    found = collectives_of(named_model(f"axonn-{model}")[0], grid, batch, mode)
    return sum(seconds_by_kind(found, grid, measured(machine), mode).values())


@pytest.mark.parametrize(("machine", "model", "batch", "sizes", "published", "corrected"), PINNED)
def test_pinned_rows(
    machine: str, model: str, batch: int, sizes: Any, published: float, corrected: float
) -> None:
    assert communication(machine, model, batch, sizes, "published") == pytest.approx(
        published, rel=1e-9
    )
    assert communication(machine, model, batch, sizes, "corrected") == pytest.approx(
        corrected, rel=1e-9
    )


TABLES = [
    ("published", "axonn_commmodel_golden.csv", "global_batch", "comm_time_s"),
    ("corrected", "axonn_commmodel_corrected.csv", "batch", "comm_s"),
]


@pytest.mark.parametrize(("mode", "file", "batch", "time"), TABLES)
def test_whole_tables_to_nine_digits(mode: str, file: str, batch: str, time: str) -> None:
    for row in rows(file):
        sizes = tuple(int(row[k]) for k in ("Gr", "Gc", "Gd", "Gdata"))
        found = communication(row["machine"], row["model"].lower(), int(row[batch]), sizes, mode)
        assert found == pytest.approx(float(row[time]), rel=1e-9), row


@pytest.mark.parametrize(("mode", "file", "batch", "time"), TABLES)
def test_whole_tables_are_the_first_ranks(mode: str, file: str, batch: str, time: str) -> None:
    """The same eight configurations in the same order, out of all that AxoNN's launcher tries."""

    def job(row: dict[str, str]) -> tuple[str, str, int, int]:
        return row["machine"], row["model"].lower(), int(row["gpus"]), int(row[batch])

    for (machine, name, gpus, sequences), group in groupby(rows(file), key=job):
        model, least = named_model(f"axonn-{name}")
        ranked = rank(model, measured(machine), gpus, sequences, mode, min_tensor=least)
        for row, found in zip(group, ranked):
            grid = found.grid
            expected = tuple(int(row[k]) for k in ("Gr", "Gc", "Gd", "Gdata"))
            assert (grid.y, grid.x, grid.z, grid.data) == expected, row
            assert found.fits


def test_effective_bandwidths_follow_the_rule() -> None:
    """Inside a node the measured figure, beyond it beta_inter / min(node, preceding product)."""
    for row in rows("axonn_effective_bw_GBps.csv"):
        machine = measured(row["machine"])
        preceding = int(row["product_of_preceding_group_sizes"].removeprefix(">="))
        size = row["group_size"].removeprefix(">=")
        if size.startswith(">"):
            group = 2 * int(size[1:])
        else:
            group = 16 if size == "any" else int(size)
        assert machine.bandwidth(preceding, group) == float(row["GBps"]) * 1e9, row


def test_models_have_their_published_sizes() -> None:
    for row in rows("axonn_models.csv"):
        model, least = named_model(f"axonn-{row['model'].lower()}")
        assert (model.layers, model.hidden, model.heads) == tuple(
            int(row[k]) for k in ("layers", "hidden", "heads")
        )
        assert (model.vocabulary, model.sequence) == (int(row["vocab"]), int(row["seq"]))
        assert least == int(row["min_tensor_parallel(code)"])
        assert 12 * model.layers * model.hidden**2 == pytest.approx(
            float(row["model"][:-1]) * 1e9, rel=0.07
        )
    assert len(model_names()) == 10


NODE = Machine("test", 4, 100e9, {}, 200e9, 1e-6, 5e-6)


def collective(kind: str, size: float, group: int) -> Collective:
    return Collective("w", "forward", kind, "z", "W", size, 1, group)


@pytest.mark.parametrize("kind", ["all-gather", "reduce-scatter", "all-reduce"])
def test_full_mode_takes_the_cheapest_algorithm(kind: str) -> None:
    """By hand on 8 ranks of stride 1 over two nodes of 4."""
    passes = 2 if kind == "all-reduce" else 1
    for size in (1e3, 1e6, 1e9):
        ring = passes * (7 * 5e-6 + 7 / 8 * size / 100e9)
        hierarchical = passes * (
            3e-6 + 3 / 4 * size / 200e9 + 5e-6 + (1 - 1 / 2) * (size / 4) / (100e9 / 4)
        )
        choices = [ring, hierarchical]
        if kind == "all-reduce":
            choices.append(2 * 3 * 5e-6 + 2 * size / 100e9)
        found = seconds(collective(kind, size, 8), 1, NODE, "full")
        assert found == pytest.approx(min(choices), rel=1e-12)


def test_full_mode_inside_a_node_and_alone() -> None:
    found = seconds(collective("all-gather", 8e9, 4), 1, NODE, "full")
    assert found == pytest.approx(3e-6 + 3 / 4 * 8e9 / 200e9)
    assert seconds(collective("all-reduce", 8e9, 1), 1, NODE, "full") == 0.0


@pytest.mark.parametrize("kind", ["all-gather", "all-reduce"])
def test_a_slower_link_never_helps(kind: str) -> None:
    for preceding, group in ((1, 2), (1, 16), (2, 4), (4, 8), (8, 4)):
        base = seconds(collective(kind, 1e8, group), preceding, NODE, "full")
        for field in ("internode", "port"):
            slower = replace(NODE, **{field: getattr(NODE, field) / 2})
            assert seconds(collective(kind, 1e8, group), preceding, slower, "full") >= base


def test_an_unknown_mode_is_named() -> None:
    with pytest.raises(UsageError, match="unknown mode 'best'; known: published"):
        collectives_of(named_model("axonn-5b")[0], Grid(), 8, "best")


def test_unknown_names_are_corrected() -> None:
    with pytest.raises(UsageError, match="axonn-80b"):
        named_model("axonn-80")
    with pytest.raises(UsageError, match="perlmutter"):
        measured("perlmuter")


def test_machine_of_a_cluster() -> None:
    known = machine_of(named("cluster", "perlmutter-64"))
    assert known.bandwidth(1, 8) == 80e9
    assert known.internode_latency > 0
    other = machine_of(named("cluster", "dgx-a100-64"))
    assert other.devices_per_node == 8
    assert other.bandwidth(1, 8) == pytest.approx(300e9)
    assert other.bandwidth(8, 8) == pytest.approx(200e9 / 8)


def test_memory_by_hand() -> None:
    """80B on (1, 8, 32, 4): every part from its formula."""
    model, _ = named_model("axonn-80b")
    found = memory(model, Grid(1, 8, 32, 4), 1024)
    hidden, rows_here = 12288, 8 * 2048
    assert found.states == pytest.approx(18 * (12 * 42 * hidden**2 + 51200 * hidden) / 256)
    assert found.activations == pytest.approx(2 * 42 * rows_here * hidden)
    assert found.working == pytest.approx(rows_here * hidden * (10 + 24 / 8))
    assert found.gathered == pytest.approx(2 * 12 * hidden**2 * 3 / 8)
    assert found.logits == pytest.approx(8 * rows_here * 51200 / 8)
    assert found.total == pytest.approx(
        found.states + found.activations + found.working + found.gathered + found.logits
    )
    cached = memory(model, Grid(1, 8, 32, 4), 1024, cache_weights=True)
    assert cached.gathered == pytest.approx(2 * 12 * hidden**2 * 43 / 8)


def test_rank_needs_a_divisible_job_and_a_device() -> None:
    model, _ = named_model("axonn-5b")
    with pytest.raises(InputError, match="batch of 7"):
        rank(model, NODE, 11, 7, "corrected")
    with pytest.raises(InputError, match="device type"):
        rank(model, NODE, 64, 64, "layers")
