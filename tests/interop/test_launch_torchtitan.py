"""torchtitan's own configuration accepts what is exported."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

import pytest

from nestopt.core.registry import named
from nestopt.interop.launch import write
from nestopt.interop.launch.job import job_of
from nestopt.interop.launch.reading import plan_of, read_launch, workload_of

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("torchtitan", reason="torchtitan is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

LINE = """--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
--group-query-attention --num-query-groups 8 --seq-length 8192 --swiglu --disable-bias-linear
--untie-embeddings-and-output-weights --vocab-size 128256 --micro-batch-size 1
--global-batch-size 64 --world-size 32 """
CASES = [
    "--tensor-model-parallel-size 4 --sequence-parallel",
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --sequence-parallel "
    "--pipeline-model-parallel-layout Et*7|t*9|t*9|t*7L",
    "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params "
    "--recompute-granularity full",
    "--context-parallel-size 2 --pipeline-model-parallel-size 2 "
    "--num-layers-per-virtual-pipeline-stage 4",
]


@pytest.mark.parametrize("parallel", CASES)
def test_the_configuration_is_accepted(parallel: str, tmp_path: Path, monkeypatch) -> None:
    from torchtitan.config import ConfigManager
    from torchtitan.distributed.parallel_dims import ParallelDims

    launched = read_launch(LINE + parallel, "run.sh")
    cluster = named("cluster", "dgx-h100-32")
    job = job_of(plan_of(launched, cluster), workload_of(launched), cluster, launched.model)
    (tmp_path / "job_config.py").write_text(write("torchtitan", job)["job_config.py"])
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("job_config", None)
    importlib.invalidate_caches()
    config = ConfigManager().parse_args(["--module", "job_config", "--config", "job"])
    dims = ParallelDims.from_config(config.parallelism, world_size=32)
    assert (dims.tp, dims.pp, dims.cp) == (job.tensor, job.pipeline, job.context)
    assert dims.dp_replicate * dims.dp_shard == job.data
    assert config.training.global_batch_size == 64
    parts = config.parallelism.module_fqns_per_model_part
    assert parts is None or len(parts) == job.pipeline * job.virtual
    with pytest.raises(AssertionError, match="Invalid parallel dims"):
        ParallelDims.from_config(config.parallelism, world_size=24)
