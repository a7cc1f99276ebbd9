"""Megatron's own checks accept what is exported, and put every rank where the plan has it."""

from __future__ import annotations

import pytest

from nestopt.core.registry import named
from nestopt.interop.launch.job import job_of
from nestopt.interop.launch.megatron import megatron_arguments
from nestopt.interop.launch.reading import plan_of, read_launch, workload_of

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("megatron.core", reason="megatron-core is not installed")
pytestmark = pytest.mark.filterwarnings("ignore")

DENSE = """--num-layers 24 --hidden-size 2048 --ffn-hidden-size 8192 --num-attention-heads 16
--group-query-attention --num-query-groups 8 --seq-length 2048 --vocab-size 51200 --swiglu
--disable-bias-linear --micro-batch-size 1 --global-batch-size 64 --world-size 16"""
MOE = DENSE + " --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 8192"
CASES = [
    (DENSE, "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel"),
    (DENSE, "--tensor-model-parallel-size 4 --context-parallel-size 2"),
    (
        DENSE,
        "--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage 3 "
        "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
    ),
    (
        DENSE,
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 "
        "--pipeline-model-parallel-layout Et*5|t*7|t*7|t*5L",
    ),
    (MOE, "--tensor-model-parallel-size 2 --expert-model-parallel-size 4"),
    (MOE, "--pipeline-model-parallel-size 2 --expert-model-parallel-size 8"),
]


def _job(model: str, parallel: str):
    launched = read_launch(f"{model} {parallel}", "run.sh")
    cluster = named("cluster", "dgx-h100-16")
    plan = plan_of(launched, cluster)
    return plan, job_of(plan, workload_of(launched), cluster, launched.model)


def _config(args: dict, **changed: object):
    """Megatron's configuration of a job's arguments."""
    from megatron.core.transformer.transformer_config import TransformerConfig

    names = {
        "num-layers", "hidden-size", "ffn-hidden-size", "num-attention-heads", "num-query-groups",
        "tensor-model-parallel-size", "pipeline-model-parallel-size", "context-parallel-size",
        "expert-model-parallel-size", "expert-tensor-parallel-size", "sequence-parallel",
        "recompute-granularity", "recompute-method", "recompute-num-layers", "bf16",
        "moe-router-topk", "moe-ffn-hidden-size", "moe-grouped-gemm",
        "moe-token-dispatcher-type", "pipeline-model-parallel-layout",
    }  # fmt: skip
    row = {key.replace("-", "_"): value for key, value in args.items() if key in names}
    if "num-experts" in args:
        row["num_moe_experts"] = args["num-experts"]
    each = args.get("num-layers-per-virtual-pipeline-stage")
    if each:
        stages = args["pipeline-model-parallel-size"]
        row["virtual_pipeline_model_parallel_size"] = args["num-layers"] // (stages * each)
    row |= {
        "pipeline_dtype": torch.bfloat16,
        "add_bias_linear": "disable-bias-linear" not in args,
        "gated_linear_unit": "swiglu" in args,
    }
    return TransformerConfig(**(row | changed))


@pytest.mark.parametrize(("model", "parallel"), CASES)
def test_the_configuration_is_accepted(model: str, parallel: str) -> None:
    _, job = _job(model, parallel)
    config = _config(megatron_arguments(job))
    assert config.tensor_model_parallel_size == job.tensor


@pytest.mark.parametrize(
    ("case", "changed"),
    [
        (0, {"tensor_model_parallel_size": 3}),
        (0, {"num_query_groups": 7}),
        (2, {"recompute_method": "every"}),
        (2, {"recompute_granularity": "all"}),
        (3, {"pipeline_model_parallel_layout": "Et*5|t*7|t*7|t*6L"}),
        (4, {"num_moe_experts": None}),
    ],
)
def test_one_flag_that_is_wrong_is_refused(case: int, changed: dict) -> None:
    _, job = _job(*CASES[case])
    with pytest.raises((ValueError, AssertionError, KeyError)):
        _config(megatron_arguments(job), **changed)


@pytest.mark.parametrize(("model", "parallel"), CASES)
def test_megatron_groups_are_the_plan_s(model: str, parallel: str) -> None:
    """On a process group without processes: the groups of some ranks, by Megatron's own code."""
    from megatron.core import parallel_state
    from torch.testing._internal.distributed.fake_pg import FakeStore

    plan, job = _job(model, parallel)
    device = {rank.rank: rank.device for rank in job.ranks}
    for rank in (0, 5, 10, 15):
        torch.distributed.init_process_group(
            backend="fake", store=FakeStore(), rank=rank, world_size=job.world
        )
        try:
            parallel_state.initialize_model_parallel(
                job.tensor,
                job.pipeline,
                context_parallel_size=job.context,
                create_gloo_process_groups=False,
                expert_model_parallel_size=job.expert,
                expert_tensor_parallel_size=job.tensor if job.model.experts else None,
            )
            groups = {
                "tensor": parallel_state.get_tensor_model_parallel_group(),
                "pipeline": parallel_state.get_pipeline_model_parallel_group(),
                "context": parallel_state.get_context_parallel_group(),
                "data": parallel_state.get_data_parallel_group(),
            }
            if job.expert > 1:
                groups["expert"] = parallel_state.get_expert_model_parallel_group()
            found = {
                name: {device[r] for r in torch.distributed.get_process_group_ranks(group)}
                for name, group in groups.items()
            }
        finally:
            parallel_state.destroy_model_parallel()
            torch.distributed.destroy_process_group()
        assert found == _expected(plan, job.ranks[rank], list(groups))


def _expected(plan, mine, names: list[str]) -> dict[str, set[int]]:
    """The devices of each group of a rank, from the plan alone."""
    config = plan.stages[mine.stage].config
    devices = plan.stages[mine.stage].devices.reshape(
        plan.replicas, config.expert, config.context, config.tensor[2], config.tensor[1]
    )
    at = (mine.replica, mine.expert, mine.context, mine.shard, mine.tensor)
    rows = {
        "tensor": devices[at[:4]],
        "context": devices[at[0], at[1], :, at[3], at[4]],
        "data": devices[:, :, at[2], :, at[4]],
        "expert": devices[at[0], :, at[2], at[3], at[4]],
        "pipeline": [stage.devices.reshape(devices.shape)[at] for stage in plan.stages],
    }
    return {name: {int(d) for d in rows[name].ravel()} if name != "pipeline"
            else {int(d) for d in rows[name]} for name in names}  # fmt: skip
