"""Plans in frameworks' words and back: the same degrees, the same price, what cannot be said is."""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from sampling import slow

from nestopt.core.errors import InputError, UsageError
from nestopt.core.registry import architecture, named
from nestopt.interop.launch import FRAMEWORKS, write
from nestopt.interop.launch.arguments import as_line, changes, parse_line
from nestopt.interop.launch.compare import nearest, price_plan
from nestopt.interop.launch.job import CannotExpress, job_of
from nestopt.interop.launch.megatron import PARALLEL, megatron_arguments
from nestopt.interop.launch.reading import plan_of, read_launch, workload_of
from nestopt.placement.judge.check import check_plan
from nestopt.placement.model.grid import grid_of
from nestopt.placement.model.orders import orders_of, role_offsets

GPT = """--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads}
--seq-length 2048 --max-position-embeddings 2048 --vocab-size 51200 --bf16"""
LLAMA_70B = """\
torchrun --nproc_per_node 8 --nnodes 8 pretrain_gpt.py \\
  --num-layers 80 --hidden-size 8192 --ffn-hidden-size 28672 --num-attention-heads 64 \\
  --group-query-attention --num-query-groups 8 --seq-length 8192 --swiglu \\
  --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 128256 \\
  --hidden-dropout 0 --attention-dropout 0 \\
  --attention-backend flash --bf16 --lr 1.0e-4  # and so on
"""
MIXTRAL = """\
--num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32
--group-query-attention --num-query-groups 8 --seq-length 4096 --swiglu --disable-bias-linear
--untie-embeddings-and-output-weights --vocab-size 32000 --use-flash-attn --num-experts 8
--moe-router-topk 2 --moe-ffn-hidden-size 14336 --world-size 64
"""


def _text(**changed: object) -> str:
    """A Megatron line of Llama-3 70B on 64 ranks; `changed` by argument, None drops one."""
    rows: dict[str, object] = {
        "tensor-model-parallel-size": 4,
        "pipeline-model-parallel-size": 4,
        "micro-batch-size": 1,
        "global-batch-size": 256,
        "sequence-parallel": True,
        "use-distributed-optimizer": True,
    }
    rows |= {key.replace("_", "-"): value for key, value in changed.items()}
    return LLAMA_70B + " ".join(as_line(rows)) + "\n"


@pytest.fixture(scope="module")
def h100():
    """64 H100 with room for every plan of these tests."""
    cluster = named("cluster", "dgx-h100-64")
    return cluster.with_types([replace(kind, memory=2**39) for kind in cluster.types])


# --- Megatron: there and back --------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {},
        {"tensor_model_parallel_size": 8, "pipeline_model_parallel_size": 2},
        {"context_parallel_size": 2},
        {"num_layers_per_virtual_pipeline_stage": 5},
        {"pipeline_model_parallel_layout": "Et*18|t*21|t*21|t*20L"},
        {"pipeline_model_parallel_layout": "Et*9|t*10|t*11|t*10|t*9|t*10|t*11|t*10L"},
        {"recompute_granularity": "selective"},
        {
            "recompute_granularity": "full",
            "recompute_method": "uniform",
            "recompute_num_layers": 1,
        },
        {"use_distributed_optimizer": None, "sequence_parallel": None},
    ],
)
def test_arguments_of_a_plan_are_those_that_it_was_read_from(h100, changed) -> None:
    text = _text(**changed)
    job = read_launch(text, "run.sh")
    plan = plan_of(job, h100)
    workload = workload_of(job)
    assert check_plan(workload, h100, plan)
    written = megatron_arguments(job_of(plan, workload, h100, job.model))
    given, others = parse_line(text, "run.sh")
    assert others == ("lr",)
    for key in PARALLEL:
        usual = "1" if key.endswith("-size") else None
        assert str(written.get(key, usual)) == str(given.get(key, usual)), key
    for key in ("num-layers", "hidden-size", "ffn-hidden-size", "num-query-groups", "swiglu"):
        assert str(written[key]) == str(given[key])
    again = read_launch(" ".join([*as_line(written), "--world-size 64"]), "again")
    assert price_plan(plan_of(again, h100), workload, h100).seconds == pytest.approx(
        price_plan(plan, workload, h100).seconds, rel=1e-12
    )


def test_ranks_go_tensor_context_data_pipeline(h100) -> None:
    job = read_launch(_text(context_parallel_size=2), "run.sh")
    plan = plan_of(job, h100)
    assert plan.replicas == 2
    assert [stage.devices[0].tolist() for stage in plan.stages][1] == list(range(16, 24))
    ranks = job_of(plan, workload_of(job), h100, job.model).ranks
    assert [rank.device for rank in ranks] == list(range(64))
    one = ranks[13]
    assert (one.stage, one.replica, one.context, one.tensor) == (0, 1, 1, 1)
    other = plan_of(read_launch(_text(use_tp_pp_dp_mapping=True), "run.sh"), h100)
    assert other.stages[1].devices[0].tolist() == [4, 5, 6, 7]
    assert other.stages[0].devices[1].tolist() == [16, 17, 18, 19]


def test_expert_ranks_are_data_parallel_ranks(h100) -> None:
    text = MIXTRAL + (
        "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
        "--expert-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 256"
    )
    job = read_launch(text, "moe")
    assert (job.data, job.expert) == (16, 4)
    plan = plan_of(job, h100)
    assert (plan.replicas, plan.microbatch) == (4, 4)
    assert plan.stages[0].config.expert == 4
    workload = workload_of(job)
    assert check_plan(workload, h100, plan)
    written = megatron_arguments(job_of(plan, workload, h100, job.model))
    assert written["expert-model-parallel-size"] == 4
    assert written["micro-batch-size"] == 1
    assert written["moe-ffn-hidden-size"] == 14336


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tensor_model_parallel_size": 3}, "do not divide 64 ranks"),
        ({"tensor_model_parallel_size": 16}, "16 does not divide 8 query groups"),
        ({"pipeline_model_parallel_size": 16, "tensor_model_parallel_size": 3}, "do not divide"),
        ({"context_parallel_size": 3, "tensor_model_parallel_size": 1}, "do not divide 64"),
        ({"expert_model_parallel_size": 2}, "the model has no experts"),
        ({"global_batch_size": 255}, "255 is no multiple of --micro-batch-size 1 times 4"),
        ({"micro_batch_size": None}, "--micro-batch-size: is missing"),
        ({"micro_batch_size": "$MBS"}, "is a shell variable"),
        ({"num_layers_per_virtual_pipeline_stage": 3}, "3 does not divide 20 layers"),
        ({"pipeline_model_parallel_layout": "Et*18|t*21|t*21|t*21L"}, "holds 81 layers"),
        ({"pipeline_model_parallel_layout": "Et*40|t*40L"}, "2 stages on 4 pipeline ranks"),
        ({"pipeline_model_parallel_layout": "Et*20|x|t*30|t*30L"}, "expected E, t"),
        ({"recompute_granularity": "all"}, "expected selective or full"),
        ({"micro_batch_size": "one"}, "expected a whole number"),
        ({"hidden_dropout": "much"}, "expected it once|number from 0 to 1"),
    ],
)
def test_a_rule_of_megatron_that_is_broken_is_named(changed, said) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_launch(_text(**changed), "run.sh")
    assert "run.sh" in str(caught.value)


def test_processes_are_asked_for_where_the_line_is_silent(h100) -> None:
    text = _text().replace("--nproc_per_node 8 --nnodes 8", "")
    with pytest.raises(InputError, match="give --world"):
        read_launch(text, "run.sh")
    assert read_launch(text, "run.sh", 32).data == 2
    with pytest.raises(InputError, match="32 processes asked for, but the line starts 64"):
        read_launch(_text(), "run.sh", 32)
    with pytest.raises(InputError, match="64 ranks, but dgx-h100-8 has 8 alive devices"):
        plan_of(read_launch(_text(), "run.sh"), named("cluster", "dgx-h100-8"))


def test_memory_that_does_not_suffice_is_a_verdict() -> None:
    cluster = named("cluster", "dgx-h100-64")
    job = read_launch(_text(micro_batch_size=4), "run.sh")
    priced = price_plan(plan_of(job, cluster), workload_of(job), cluster)
    assert not priced.fits
    assert priced.tightest == 0
    need, room = priced.memory[0]
    assert need > room
    assert price_plan(
        plan_of(
            read_launch(_text(micro_batch_size=4, recompute_granularity="full"), "run.sh"), cluster
        ),
        workload_of(job),
        cluster,
    ).fits


def test_what_is_not_priced_is_told() -> None:
    text = _text(
        recompute_granularity="full", recompute_method="block", recompute_num_layers=4
    ).replace("--lr", "--optimizer-cpu-offload --lr")
    remarks = read_launch(text, "run.sh").remarks
    assert remarks[0] == "--optimizer-cpu-offload is not priced"
    assert "block of 4 layers is priced as recomputation of every layer" in remarks[1]


# Rows of Narayanan et al. 2021 (arXiv 2104.04473), Table 1: layers, hidden, heads, tensor,
# pipeline, GPUs, batch; measured TFLOP/s a GPU
PUBLISHED = [
    (24, 2304, 24, 1, 1, 32, 512, 137),
    (30, 3072, 32, 2, 1, 64, 512, 138),
    (36, 4096, 32, 4, 1, 128, 512, 142),
    (40, 6144, 48, 8, 1, 256, 1024, 135),
    (48, 8192, 64, 8, 2, 512, 1536, 138),
    (60, 10240, 80, 8, 4, 1024, 1792, 140),
    (80, 12288, 96, 8, 8, 1536, 2304, 148),
    (96, 16384, 128, 8, 16, 1920, 2160, 155),
    (105, 20480, 128, 8, 35, 2520, 2520, 163),
    (128, 25600, 160, 8, 64, 3072, 3072, 163),
]


@pytest.mark.parametrize("row", PUBLISHED, ids=[f"{row[5]} GPUs" for row in PUBLISHED])
def test_published_lines_are_read_and_priced(row) -> None:
    layers, hidden, heads, tensor, pipeline, gpus, batch, measured = row
    micro = {32: 16, 64: 16, 128: 16, 256: 4, 512: 4, 1024: 2, 1536: 2}.get(gpus, 1)
    data = gpus // (tensor * pipeline)
    micro = next(m for m in (micro, 2, 1) if batch % (m * data) == 0)
    text = (
        GPT.format(layers=layers, hidden=hidden, heads=heads)
        + f" --tensor-model-parallel-size {tensor} --pipeline-model-parallel-size {pipeline}"
        + f" --micro-batch-size {micro} --global-batch-size {batch} --recompute-granularity full"
    )
    job = read_launch(text, "row", gpus)
    cluster = named("cluster", f"dgx-a100-{gpus}")
    workload = workload_of(job)
    plan = plan_of(job, cluster)
    assert check_plan(workload, cluster, plan)
    priced = price_plan(plan, workload, cluster)
    assert priced.fits
    # the table's FLOPs count the recomputation
    flops = 96 * batch * 2048 * layers * hidden**2
    flops *= 1 + 2048 / (6 * hidden) + 51200 / (16 * layers * hidden)
    assert flops / priced.seconds / gpus / 1e12 == pytest.approx(measured, rel=0.25)


# --- from plans to files -------------------------------------------------------------------------


def _plan(text: str, cluster) -> tuple:
    job = read_launch(text, "run.sh")
    return plan_of(job, cluster), workload_of(job), job.model


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_failed_devices_are_in_no_file(framework) -> None:
    cluster = named("cluster", "dgx-h100-72").fail([5, 17])
    zero = {"use_distributed_optimizer": None} if framework == "torchtitan" else {}
    plan, workload, model = _plan(_text(**zero), cluster)
    files = write(framework, job_of(plan, workload, cluster, model))
    rows = [line.split(",") for line in files["ranks.csv"].splitlines()[1:]]
    devices = [int(row[1]) for row in rows]
    assert len(set(devices)) == 64
    assert not {5, 17} & set(devices)
    assert [(row[2], int(row[3])) for row in rows] == [
        (f"node{device // 8}", device % 8) for device in devices
    ]
    assert files["hostfile"].splitlines()[0] == "node0 slots=7"
    if "launch.sh" in files:
        # nodes with 7 and with 8 ranks: no launcher that fills node after node
        assert "--rankfile" in files["launch.sh"]


def test_torchtitan_file_is_toml_that_is_read_back(h100) -> None:
    text = _text(use_distributed_optimizer=None, num_layers_per_virtual_pipeline_stage=5)
    plan, workload, model = _plan(text, h100)
    files = write("torchtitan", job_of(plan, workload, h100, model))
    data = tomllib.loads(files["job.toml"])
    assert data["parallelism"]["pipeline_parallel_schedule"] == "Interleaved1F1B"
    parts = data["parallelism"]["module_fqns_per_model_part"]
    assert len(parts) == 16
    assert [name for part in parts for name in part] == [
        "tok_embeddings",
        *(f"layers.{i}" for i in range(80)),
        "norm",
        "output",
    ]
    again = read_launch(files["job.toml"], "job.toml", 64)
    other = plan_of(again, h100)
    assert price_plan(other, workload, h100).seconds == pytest.approx(
        price_plan(plan, workload, h100).seconds, rel=1e-12
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tensor_parallel_degree = 4", "tensor_parallel_degree = 0", "expected a positive"),
        ("tensor_parallel_degree = 4", "tensor_parallel_degree = 8", "degrees make 128 ranks"),
        ('flavor = "70B"', 'flavor = "71B"', "llama3 71B is no model that is known"),
        ("global_batch_size = 256", "global_batch_size = 250", "250 is no multiple"),
        ('"layers.79", ', "", "79 layers; the model has 80"),
    ],
)
def test_a_torchtitan_file_that_is_wrong_is_named(h100, old, new, said) -> None:
    plan, workload, model = _plan(_text(use_distributed_optimizer=None), h100)
    text = write("torchtitan", job_of(plan, workload, h100, model))["job.toml"]
    assert old in text
    with pytest.raises(InputError, match=said):
        read_launch(text.replace(old, new), "job.toml", 64)


@pytest.mark.parametrize(
    ("framework", "changed", "reason"),
    [
        ("torchtitan", {}, "no ZeRO-1"),
        ("torchtitan", {"sequence_parallel": None}, "always sequence parallel"),
        ("deepspeed", {"pipeline_model_parallel_layout": "Et*18|t*21|t*21|t*20L"}, "cuts a pip"),
        ("deepspeed", {"context_parallel_size": 2}, "Ulysses"),
        ("nanotron", {"recompute_granularity": "selective"}, "no selective recomputation"),
        ("nanotron", {"num_layers_per_virtual_pipeline_stage": 5}, "no schedule interleaved"),
    ],
)
def test_what_a_framework_cannot_say_is_told(h100, framework, changed, reason) -> None:
    plan, workload, model = _plan(_text(**changed), h100)
    with pytest.raises(CannotExpress, match=reason):
        write(framework, job_of(plan, workload, h100, model))


@pytest.mark.parametrize("framework", ["torchtitan", "nanotron"])
def test_experts_are_never_dropped(h100, framework) -> None:
    # Mixtral has Llama-3 8B's layers, width and heads
    text = MIXTRAL + "--tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 64 "
    plan, workload, model = _plan(text + "--sequence-parallel", h100)
    with pytest.raises(CannotExpress, match=r"8 experts|have no experts"):
        write(framework, job_of(plan, workload, h100, model))


def test_deepspeed_lines_are_in_its_own_words(h100) -> None:
    text = MIXTRAL + "--tensor-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 64 "
    text += (
        "--expert-model-parallel-size 4 --use-distributed-optimizer --recompute-granularity full"
    )
    plan, workload, model = _plan(text, h100)
    line = write("deepspeed", job_of(plan, workload, h100, model))["arguments.txt"]
    for word in ("--num-key-value-heads 8", "--topk 2", "--use-rotary-position-embeddings",
                 "--normalization rmsnorm", "--use-flash-attn-v2", "--moe-expert-parallel-size 4",
                 "--enable-expert-tensor-parallelism", "--checkpoint-activations"):  # fmt: skip
        assert word in line
    for word in ("query", "backend", "--moe-router", "--moe-ffn", "--moe-grouped", "RMSNorm"):
        assert word not in line
    # and they are read back
    again = read_launch(line, "run.sh", 64)
    other = price_plan(plan_of(again, h100), workload_of(again), h100)
    assert other.seconds == price_plan(plan, workload, h100).seconds


def test_a_configuration_a_stage_has_no_words(h100) -> None:
    plan, workload, model = _plan(_text(), h100)
    stage = plan.stages[2]
    other = replace(stage, config=replace(stage.config, recompute="full"))
    mixed = replace(plan, stages=(*plan.stages[:2], other, plan.stages[3]))
    with pytest.raises(CannotExpress, match=r"stage 2 has t4 sp z1 full, stage 0 t4 sp z1"):
        job_of(mixed, workload, h100, model)


def test_deepspeed_and_nanotron_files(h100) -> None:
    plan, workload, model = _plan(_text(), h100)
    job = job_of(plan, workload, h100, model)
    config = json.loads(write("deepspeed", job)["ds_config.json"])
    assert config["zero_optimization"] == {"stage": 1}
    product = config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"]
    assert product * job.data == config["train_batch_size"] == 256
    yaml = pytest.importorskip("yaml")
    data = yaml.safe_load(write("nanotron", job)["config.yaml"])
    assert data["parallelism"] | {"dp": 4, "pp": 4, "tp": 4} == data["parallelism"]
    assert data["tokens"]["batch_accumulation_per_replica"] == 64
    assert data["model"]["model_config"]["is_llama_config"] is True
    bridge = yaml.safe_load(write("megatron-bridge", job)["overrides.yaml"])
    assert bridge["model"]["tensor_model_parallel_size"] == 4
    assert bridge["train"]["global_batch_size"] == 256
    assert bridge["ddp"]["use_distributed_optimizer"] is True


def _started(files: dict[str, str]) -> dict[int, tuple[int, int]]:
    """Node and GPU of every rank as the script or the rank file starts it."""
    script = files["launch.sh"]
    if "--rankfile" in script:
        lines = [re.split(r"[ =]", line) for line in files["rankfile"].splitlines()]
        return {int(row[1]): (int(row[2].removeprefix("node")), int(row[4])) for row in lines}
    nodes = [int(line.split()[0][4:]) for line in files["hostfile"].splitlines()]
    table = re.search(r"GPUS=\((.*)\)", script)
    one = re.search(r"CUDA_VISIBLE_DEVICES=([0-9,]+) torchrun", script)
    gpus = table[1].split() if table else [one[1]] * len(nodes)
    places = [(node, int(gpu)) for node, row in zip(nodes, gpus) for gpu in row.split(",")]
    return dict(enumerate(places))


@pytest.mark.parametrize("turned", ["none", "first", "all"])
@pytest.mark.parametrize("degrees", [(4, 4, 1), (4, 2, 2), (2, 2, 2), (8, 8, 1)])
def test_any_order_of_the_axes_is_launched_rank_by_rank(h100, degrees, turned) -> None:
    """Tensor groups of every other device, of one stage or of all: ranks go where the plan says."""
    tensor, pipeline, context = degrees
    text = _text(tensor_model_parallel_size=tensor, pipeline_model_parallel_size=pipeline,
                 context_parallel_size=context)  # fmt: skip
    plan, workload, model = _plan(text, h100)
    grid = grid_of(plan.stages[0].config)
    hidden = 0
    for order in orders_of(grid, plan.replicas, windows=False, free=True):
        stages = tuple(
            replace(s, devices=s.devices.min() + role_offsets(order, grid, plan.replicas))
            if turned == "all" or (turned == "first" and q == 0) else s
            for q, s in enumerate(plan.stages)
        )  # fmt: skip
        chosen = replace(plan, stages=stages)
        job = job_of(chosen, workload, h100, model)
        files = write("megatron", job)
        started = _started(files)
        for rank in job.ranks:
            place = rank.context * grid.t + rank.tensor
            device = int(chosen.stages[rank.stage].devices[rank.replica][place])
            assert started[rank.rank] == (device // 8, device % 8)
        hidden += "--rankfile" in files["launch.sh"] or "GPUS=" in files["launch.sh"]
    assert (hidden > 0) == (turned != "none" and degrees != (8, 8, 1))


def test_jax_mesh_has_every_device_at_its_coordinates(h100) -> None:
    plan, workload, model = _plan(_text(context_parallel_size=2), h100)
    spec = json.loads(write("jax-mesh", job_of(plan, workload, h100, model))["mesh.json"])
    mesh = np.array(spec["devices"]).reshape(spec["shape"])
    for q, stage in enumerate(plan.stages):
        for r in range(plan.replicas):
            assert mesh[q, r].reshape(-1).tolist() == stage.devices[r].tolist()


# --- the nearest plan, and what to change --------------------------------------------------------

SMALL = "gpt3-1.7b,layers=8,batch=64"


@pytest.mark.parametrize("framework", ["megatron", "deepspeed", *slow(["torchtitan", "jax-mesh"])])
def test_the_nearest_plan_can_be_launched(framework) -> None:
    name = "llama3-8b,batch=64" if framework == "torchtitan" else SMALL
    workload, cluster = named("workload", name), named("cluster", "dgx-h100-8")
    model = architecture(name)
    plan = nearest(framework, workload, cluster, model, time_limit=6.0)
    assert plan is not None
    assert check_plan(workload, cluster, plan)
    assert write(framework, job_of(plan, workload, cluster, model))


def test_even_plans_are_the_best_of_all_even_ones() -> None:
    from nestopt.interop.launch.even import best_even_plan

    workload, cluster = (
        named("workload", "gpt3-1.7b,layers=4,batch=8"),
        named("cluster", "dgx-h100-4"),
    )
    found = best_even_plan(workload, cluster, architecture("gpt3-1.7b,layers=4,batch=8"))
    assert found is not None
    plan, seconds = found
    assert {len(stage.operators) for stage in plan.stages[1:-1]} <= {4 // len(plan.stages)}
    for tensor, stages in ((1, 1), (2, 1), (1, 2), (2, 2), (4, 1), (1, 4)):
        data = 4 // (tensor * stages)
        text = (
            GPT.format(layers=4, hidden=2304, heads=24)
            + f" --tensor-model-parallel-size {tensor} --pipeline-model-parallel-size {stages}"
            + " --micro-batch-size 1 --global-batch-size 8 --use-distributed-optimizer"
        )
        other = price_plan(plan_of(read_launch(text, "x", 4), cluster), workload, cluster)
        assert data >= 1
        assert not other.fits or other.seconds >= seconds * (1 - 1e-12)


def test_changes_name_the_arguments() -> None:
    old = {"tensor-model-parallel-size": "8", "sequence-parallel": True, "micro-batch-size": "1"}
    new = {"tensor-model-parallel-size": 4, "micro-batch-size": 1, "recompute-granularity": "full"}
    assert changes(old, new, PARALLEL) == [
        "--tensor-model-parallel-size 8 -> 4",
        "drop --sequence-parallel",
        "add --recompute-granularity full",
    ]


def test_unknown_frameworks_get_a_suggestion(h100) -> None:
    plan, workload, model = _plan(_text(), h100)
    with pytest.raises(UsageError, match="megatron"):
        write("megatorn", job_of(plan, workload, h100, model))
