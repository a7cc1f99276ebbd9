"""Launch scripts in the shell's words: variables, arrays, defaults, conditions, other launchers.

The ten jobs are published ones; the files are written here in the ways in which people write them.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from nestopt.core.errors import InputError
from nestopt.core.registry import named
from nestopt.interop.launch.arguments import parse_line
from nestopt.interop.launch.compare import compare, price_plan
from nestopt.interop.launch.reading import plan_of, read_launch, workload_of
from nestopt.interop.launch.shell import commands
from nestopt.interop.launch.shell_values import arithmetic, holds
from nestopt.placement.judge.check import check_plan

ARRAYS = """\
#!/bin/bash
# arrays, one argument a line, with comments between them
export CUDA_DEVICE_MAX_CONNECTIONS=1
GPUS_PER_NODE=8
NUM_NODES=${{SLURM_NNODES:-"1"}}
WORLD=$(($GPUS_PER_NODE*$NUM_NODES))
LOGS=$1 #<a path>
LAUNCH=(--nproc_per_node $GPUS_PER_NODE --nnodes $NUM_NODES
    --master_addr ${{MASTER_ADDR:-localhost}})
MODEL=(
    {model}
    --attention-backend auto # (flash/fused/unfused)
    # --num-layers 2
)
TRAIN=(
    --lr 6.0e-5 \\
    #--save-interval 10000 \\
    {batch}
)
if [ -n "${{WANDB_API_KEY}}" ]; then
    TRAIN+=(--global-batch-size 7)
fi
DTYPE="fp8"
EXTRA=()
if [[ "$DTYPE" == "fp8" ]]; then
    EXTRA+=("--fp8-format hybrid")
else
    EXTRA+=(--seq-length 3)
fi
torchrun ${{LAUNCH[@]}} pretrain_gpt.py "${{MODEL[@]}}" ${{TRAIN[@]}} ${{EXTRA[@]}} --save $LOGS
"""
QUOTED = """\
#!/bin/bash
GPUS=8; NNODES=2
GPT_ARGS="
    {model} \\
    {batch}"
OPTIONS=" --bf16 \\
   --use-flash-attn"
python -m torch.distributed.launch --nproc_per_node=$GPUS --nnodes=$NNODES \\
    pretrain_gpt.py $GPT_ARGS $OPTIONS --data-path "$(pwd)/my data" 2>&1 | tee run.log
"""
EQUALS = """\
srun -l --output=out.txt sh -c "torchrun --nnodes=${{N:-2}} --nproc-per-node=8 pretrain_gpt.py \\
    {model} {batch} --bf16 --use-flash-attn"
"""
SPEED = """\
cat <<EOT > ds.json
{{ "train_batch_size": 3, "note": "--num-layers 3" }}
EOT
ds_args=""
ds_args=" --deepspeed ${{ds_args}}"
ds_args=" --zero-stage=$ZERO --checkpoint-activations ${{ds_args}}"
deepspeed --num_nodes=2 --num_gpus 8 pretrain_gpt.py {model} {batch} --fp16 $ds_args
"""


def _gpt(layers: int, hidden: int, heads: int, sequence: int = 2048) -> str:
    return (
        f"--num-layers {layers} --hidden-size {hidden} --num-attention-heads {heads} "
        f"--seq-length {sequence} --max-position-embeddings {sequence} --vocab-size 50257"
    )


LLAMA = (
    "--num-layers {} --hidden-size {} --ffn-hidden-size {} --num-attention-heads {} "
    "--group-query-attention --num-query-groups 8 --seq-length {} --swiglu "
    "--disable-bias-linear --untie-embeddings-and-output-weights --vocab-size {} "
    "--hidden-dropout 0 --attention-dropout 0.0"
)
EXPERTS = " --num-experts 8 --moe-router-topk 2 --moe-ffn-hidden-size 14336"


def _split(tensor: int, pipeline: int, batch: int, more: str = "") -> str:
    return (
        f"--tensor-model-parallel-size {tensor} --pipeline-model-parallel-size {pipeline} "
        f"--micro-batch-size 1 --global-batch-size {batch} --bf16 {more}"
    )


# name, form, model, batch and degrees, variables, (tensor, pipeline, expert, data, zero), fits H100
TEN = [
    ("gpt3-175b", ARRAYS, _gpt(96, 12288, 96),
     _split(8, 16, 1536, "--rampup-batch-size 16 16 5859375"), {"SLURM_NNODES": "16"},
     (8, 16, 1, 1, 0), True),
    ("llama3-8b", ARRAYS, LLAMA.format(32, 4096, 14336, 32, 8192, 128256),
     _split(1, 1, 128, "--use-distributed-optimizer --sequence-parallel"), {},
     (1, 1, 1, 8, 1), False),
    ("mixtral-8x7b", ARRAYS, LLAMA.format(32, 4096, 14336, 32, 4096, 32000) + EXPERTS,
     _split(1, 4, 256, "--expert-model-parallel-size 8 --use-distributed-optimizer"),
     {"SLURM_NNODES": "8"}, (1, 4, 8, 16, 1), True),
    ("llama3-70b", ARRAYS, LLAMA.format(80, 8192, 28672, 64, 8192, 128256),
     _split(4, 4, 128, "--sequence-parallel --use-distributed-optimizer"), {"NUM_NODES": "8"},
     (4, 4, 1, 4, 1), True),
    ("gpt-1b", QUOTED, _gpt(24, 1920, 15), _split(1, 1, 512), {}, (1, 1, 1, 16, 0), True),
    ("gpt-18b", QUOTED, _gpt(40, 6144, 48), _split(8, 1, 1024), {"NNODES": "32"},
     (8, 1, 1, 32, 0), True),
    ("gpt-530b", EQUALS, _gpt(105, 20480, 128), _split(8, 35, 1920, "--sequence-parallel"),
     {"N": "280"}, (8, 35, 1, 8, 0), True),
    ("gpt-22b", EQUALS, _gpt(48, 6144, 64), _split(8, 1, 4, "--sequence-parallel"), {"N": "1"},
     (8, 1, 1, 1, 0), True),
    ("zero3-175b", SPEED, _gpt(96, 12288, 96, 1024), _split(1, 1, 64).replace("--bf16", ""),
     {"ZERO": "3"}, (1, 1, 1, 16, 3), False),
    ("llama2-7b", SPEED, LLAMA.format(32, 4096, 11008, 32, 4096, 32000).replace(
        "--num-query-groups 8", "--num-query-groups=32"),
     _split(1, 1, 64).replace("--bf16", ""), {"ZERO": "1"}, (1, 1, 1, 16, 1), True),
]  # fmt: skip


@pytest.mark.parametrize("row", TEN, ids=[row[0] for row in TEN])
def test_a_published_job_is_read_priced_and_checked(row) -> None:
    name, form, model, batch, given, degrees, fits = row
    job = read_launch(form.format(model=model, batch=batch), f"{name}.sh", None, given)
    assert (job.tensor, job.pipeline, job.expert, job.data, job.zero) == degrees
    assert f"--global-batch-size {job.batch}" in batch
    assert f"--num-layers {sum(job.layers)} " in model
    cluster = named("cluster", f"dgx-h100-{job.world}")
    plan, workload = plan_of(job, cluster), workload_of(job)
    if fits:
        assert check_plan(workload, cluster, plan)
    assert price_plan(plan, workload, cluster).fits == fits


def test_the_best_is_never_slower_than_what_can_be_launched() -> None:
    line = f"{_gpt(4, 2304, 24)} --world-size 4 --use-flash-attn {_split(4, 1, 16)}"
    cluster = named("cluster", "dgx-h100-4")
    found = compare(read_launch(line, "run.sh"), cluster, time_limit=20.0)
    assert found.today.fits
    assert found.uniform is not None
    best = found.best.objective
    assert best is not None
    assert best <= found.uniform.seconds * (1 + 1e-9)
    assert found.uniform.seconds < found.today.seconds
    assert "--tensor-model-parallel-size 4 -> " in " ".join(found.changes)


def test_what_was_read_past_is_named() -> None:
    job = read_launch(
        ARRAYS.format(model=_gpt(96, 12288, 96), batch=_split(8, 1, 64, "--hiden-size 3")), "r.sh"
    )
    assert "--fp8-format is not priced" in job.remarks
    past = next(text for text in job.remarks if text.startswith("read past"))
    assert "--hiden-size" in past
    assert "--lr" in past
    assert "--num-layers" not in past


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("--multi-latent-attention", "multi-latent attention is not in the workload"),
        ("--hybrid-override-pattern M-M*", "is no stack of equal"),
        ("--micro-batch-size $MBS", "--set NAME=VALUE"),
        ("--micro-batch-size $((TP*2))", "--set NAME=VALUE"),
        ("--micro-batch-size `nproc`", "--set NAME=VALUE"),
        ("--save 'open", "No closing quotation"),
        ("--zero-stage 4", "expected 0 to 3"),
        ("--num-experts 8 --moe-layer-freq [0,1]*12", "dense layers first"),
        ("--num-experts 8 --moe-layer-freq ([0]+[1]*24)", "is of 25 layers; the model has 24"),
    ],
)
def test_what_cannot_be_read_is_named(added: str, said: str) -> None:
    text = f"{_gpt(24, 1920, 15)} --micro-batch-size 1 --world-size 8".replace(
        "--micro-batch-size 1", "" if "--micro" in added else "--micro-batch-size 1"
    )
    added = added.replace("([0]", "'([0]").replace("*24)", "*24)'")
    with pytest.raises(InputError, match=said) as caught:
        read_launch(f"{text} {added}\n", "run.sh")
    assert "run.sh" in str(caught.value)


def test_remarks_say_what_a_silent_line_is_taken_for() -> None:
    line = f"{_gpt(24, 1920, 15)} --micro-batch-size 1 --world-size 8 $EXTRA_ARGS"
    remarks = " ".join(read_launch(line.replace("--vocab-size 50257", ""), "run.sh").remarks)
    assert "$EXTRA_ARGS may hold arguments" in remarks
    assert "neither --bf16 nor --fp16" in remarks
    assert "no --vocab-size" in remarks
    assert "no --attention-backend" in remarks


def test_query_groups_are_one_unless_stated() -> None:
    line = f"{_gpt(24, 2048, 16)} --micro-batch-size 1 --world-size 8 --group-query-attention"
    assert read_launch(line, "run.sh").model.key_heads == 1


@pytest.mark.parametrize(
    ("old", "mode"),
    [
        ("--checkpoint-activations", "full"),
        ("--activations-checkpoint-method uniform", "full"),
        ("--deepspeed-activation-checkpointing", "full"),
        ("--recompute-activations", "selective"),
        ("--recompute-granularity=full --recompute_method=uniform", "full"),
    ],
)
def test_recomputation_has_older_names(old: str, mode: str) -> None:
    line = f"{_gpt(24, 1920, 15)} --micro-batch-size 1 --world-size 8 {old}"
    assert read_launch(line, "run.sh").recompute == mode


def test_processes_of_other_launchers() -> None:
    line = f"{_gpt(24, 1920, 15)} --micro-batch-size 1"
    assert read_launch(f"deepspeed --num_nodes 2 --num_gpus 4 x.py {line}", "run.sh").world == 8
    auto = f"torchrun --nproc-per-node=gpu x.py {line}"
    assert read_launch(auto, "run.sh", 4).world == 4
    with pytest.raises(InputError, match="'gpu'; expected a whole number"):
        read_launch(auto, "run.sh")


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("A=1; B=${A}2\nrun $B", ["run", "12"]),
        ("A=(x 'y z')\nA+=(w)\nrun \"${A[@]}\"", ["run", "x", "y z", "w"]),
        ("A='--x 1'\nA+=' --y 2'\nrun $A", ["run", "--x", "1", "--y", "2"]),
        ("run ${A:-3} ${B-4} ${C:=5} $D", ["run", "3", "4", "5", "$D"]),
        ("T=8; P=2; run $((64/T/P)) $(( ($T+1) * 2 ))", ["run", "4", "18"]),
        ("run 'a # b' \"c # d\" e # f", ["run", "a # b", "c # d", "e"]),
        ("if [ $X -gt 1 ] || [ 2 -eq 2 ]; then A=1; else A=2; fi; run $A", ["run", "1"]),
        ("if [[ a == b ]]; then A=1\nelif [[ a != b ]]; then A=2\nelse A=3\nfi\nrun $A",
         ["run", "2"]),
        ("A=1\nif [ -f there ]; then A=2; fi\nrun $A", ["run", "$A"]),
        ("A=1\nfor i in 1 2; do A=$i; done\nrun $A", ["run", "$A"]),
        ("A=1 B=2 run x", ["run", "x"]),
        ("run \\\n a \\\n b", ["run", "a", "b"]),
        ("run --l Et*5|(tt|)*6|t*5L --m | tee x", ["tee", "x"]),
        ("run --l Et*5|(tt|)*6|t*5L --m", ["run", "--l", "Et*5|(tt|)*6|t*5L", "--m"]),
        ("f() {\nA=1\n}\n(run $A)", ["run", "1"]),
        ("cat <<END\nit's --x\nEND\nrun y", ["run", "y"]),
    ],
)  # fmt: skip
def test_scripts_are_read_as_by_the_shell(script: str, words: list[str]) -> None:
    run, _ = commands(script, {})
    assert run[-1] == words


def test_a_stated_variable_holds_whatever_the_script_assigns() -> None:
    assert commands("A=1\nrun $A ${B:-2}", {"A": "7", "B": "8"})[0] == [["run", "7", "8"]]


def test_tests_and_sums_without_a_machine() -> None:
    assert arithmetic("2*(3+4)-7/2") == 11
    assert arithmetic("-7/2") == -3
    assert [arithmetic(text) for text in ("x+1", "1/0", "2**64", "")] == [None] * 4
    assert holds(["[", "!", "-z", "", "]"]) is False
    assert holds(["[[", "a", "==", "a*", "]]"]) is None
    assert holds(["[", "-f", "x", "]"]) is None
    assert holds(["grep", "-q", "x"]) is None


def test_lists_are_read_where_no_command_uses_them() -> None:
    args, others = parse_line(
        'export PARAMS=" ${EXTRA} --num-layers 24 \\\n --micro-batch-size ${MBS} --lr 1"',
        "config.sh",
        {"MBS": "4"},
    )
    assert args == {"num-layers": "24", "micro-batch-size": "4"}
    assert others == ("${EXTRA}", "lr")


def test_the_same_price_in_every_form() -> None:
    prices = set()
    cluster = named("cluster", "dgx-h100-16")
    cluster = cluster.with_types([replace(kind, memory=2**39) for kind in cluster.types])
    for form in (ARRAYS, QUOTED, EQUALS):
        text = form.format(model=_gpt(24, 1920, 16), batch=_split(2, 1, 512))
        job = read_launch(text, "run.sh", None, {"NUM_NODES": "2"})
        prices.add(price_plan(plan_of(job, cluster), workload_of(job), cluster).seconds)
    assert len(prices) == 1
