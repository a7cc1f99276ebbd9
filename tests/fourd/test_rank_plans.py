"""The full ranking is the placement model's price of the same plans, by the checker too."""

from __future__ import annotations

import numpy as np
import pytest

from nestopt.core.errors import InputError
from nestopt.core.registry import named, transformers
from nestopt.fourd.models import named_model
from nestopt.fourd.overlap import Overlap
from nestopt.fourd.rank import AXONN_OVERLAP, grids_of, rank_table
from nestopt.placement.judge.check import price
from nestopt.placement.model.plan import Hides, Plan, Stage, StageConfig
from nestopt.placement.model.transformer import Transformer, expand

NOTHING = Overlap()
CASES = [
    ("gpt3-7.5b", "perlmutter-64", AXONN_OVERLAP, 83),
    ("gpt3-7.5b", "perlmutter-64", NOTHING, 83),
    ("axonn-5b", "frontier-32", AXONN_OVERLAP, 56),
    ("llama3-8b", "dgx-h100-16", Overlap(data=True), None),
]


def _model(name: str) -> Transformer:
    return named_model(name)[0] if name.startswith("axonn") else transformers()[name]


@pytest.mark.parametrize(("workload", "cluster", "overlap", "count"), CASES)
def test_every_row_is_the_checkers_price_of_its_plan(
    workload: str, cluster: str, overlap: Overlap, count: int | None
) -> None:
    model = _model(workload)
    place = named("cluster", cluster)
    devices = place.num_devices
    table = rank_table((workload, model), cluster, overlap=overlap)
    assert count is None or len(table.rows) == count
    assert len(table.rows) == len(list(grids_of(model, devices, devices)))
    job = expand(workload, model, devices)
    everything = tuple(range(job.num_operators))
    for row in table.rows:
        x, y, z, data = row.grid.x, row.grid.y, row.grid.z, row.grid.data
        config = StageConfig(
            (x, y, z),
            recompute="full",
            overlap=overlap.all_gather and x * y * z > 1,
            hides=Hides.SYNC if overlap.data else Hides.NONE,
        )
        ranks = np.arange(devices, dtype=np.int64).reshape(data, x * y * z)
        plan = Plan((Stage(everything, config, ranks),), data, devices // data)
        judged = price(job, place, plan)
        assert row.iteration == pytest.approx(judged.iteration_time, rel=1e-12)
        assert row.memory == pytest.approx(judged.stages[0].memory, rel=1e-12)
        assert row.fits == (judged.stages[0].memory <= judged.stages[0].usable)
        assert 0 <= row.exposed <= row.communication * (1 + 1e-12)
        if overlap == NOTHING:
            assert row.exposed == pytest.approx(row.communication, rel=1e-9)


def test_overlaps_that_the_placement_model_lacks_are_refused() -> None:
    for overlap in (Overlap(all_reduce=True), Overlap(cache_weights=True), Overlap(two_way=True)):
        with pytest.raises(InputError, match="the mode layers has each"):
            rank_table("axonn-5b", "perlmutter-16", overlap=overlap)
        assert rank_table("axonn-5b", "perlmutter-16", overlap=overlap, mode="layers").rows
