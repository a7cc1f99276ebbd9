"""Argument lines: which arguments Megatron knows that bear on a plan, and how to read them."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.interop.launch.shell import commands, split_words

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["FLAGS", "VALUES", "as_line", "changes", "number", "parse_line", "required", "share"]

_FLAGS = """
    swiglu disable-bias-linear group-query-attention untie-embeddings-and-output-weights bf16
    fp16 sequence-parallel use-distributed-optimizer use-megatron-fsdp use-custom-fsdp
    use-torch-fsdp2 recompute-activations recompute-all use-flash-attn moe-grouped-gemm
    overlap-grad-reduce
    overlap-param-gather tp-comm-overlap use-tp-pp-dp-mapping distribute-saved-activations
    account-for-embedding-in-pipeline-split account-for-loss-in-pipeline-split use-mcore-models
    multi-latent-attention
"""
FLAGS = frozenset(_FLAGS.split())
"""Arguments without a value."""

_VALUES = """
    hidden-dropout attention-dropout
    num-layers hidden-size ffn-hidden-size num-attention-heads num-query-groups kv-channels
    seq-length max-position-embeddings vocab-size padded-vocab-size make-vocab-size-divisible-by
    normalization position-embedding-type attention-backend tokenizer-type num-experts
    moe-router-topk moe-ffn-hidden-size moe-shared-expert-intermediate-size moe-layer-freq
    moe-token-dispatcher-type tensor-model-parallel-size pipeline-model-parallel-size
    context-parallel-size expert-model-parallel-size expert-tensor-parallel-size
    micro-batch-size global-batch-size num-layers-per-virtual-pipeline-stage
    num-virtual-stages-per-pipeline-rank pipeline-model-parallel-layout
    decoder-first-pipeline-num-layers decoder-last-pipeline-num-layers recompute-granularity
    recompute-method recompute-num-layers data-parallel-sharding-strategy rampup-batch-size
    world-size nproc-per-node nnodes zero-stage num-key-value-heads
"""
VALUES = frozenset(_VALUES.split())
"""Arguments with one value."""

_MANY = {"recompute-modules", "rampup-batch-size"}


_ALIASES = {
    "num-nodes": "nnodes",
    "num-gpus": "nproc-per-node",
    "topk": "moe-router-topk",
    "moe-expert-parallel-size": "expert-model-parallel-size",
    **dict.fromkeys(
        (f"use-flash-attn-{kind}" for kind in ("v1", "v2", "triton")), "use-flash-attn"
    ),
    "checkpoint-activations": "recompute-all",
    "deepspeed-activation-checkpointing": "recompute-all",
    "activations-checkpoint-method": "recompute-method",
    "activations-checkpoint-num-layers": "recompute-num-layers",
    "activations-checkpoint-granularity": "recompute-granularity",
}
"""Older names, and other launchers' names, of arguments."""

_LIST = re.compile(r"\[[@*]\]|arg|opt|param", re.IGNORECASE)


def parse_line(
    text: str, file: str, given: Mapping[str, str] | None = None
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The arguments of a command line or a script, and those that do not bear on a plan.

    A script is read as the shell would read it (`nestopt.interop.launch.shell`), but nothing is
    run and no environment is read.

    Parameters
    ----------
    given : dict of str to str, optional
        Shell variables that the user states; they hold whatever the script assigns.

    Returns
    -------
    dict
        Known arguments by name without dashes: True for a flag, else the value's text.
    tuple of str
        Names of the other arguments, and variables (``$NAME``) that may hold some.

    Raises
    ------
    InputError
        If a value is missing, is an unknown variable, or an argument comes twice with two values.
    """
    words = _launch_words(text, file, dict(given or {}))
    args: dict[str, Any] = {}
    others: list[str] = []
    position = 0
    while position < len(words):
        word = words[position]
        position += 1
        if not word.startswith("--"):
            if word.startswith("$"):
                others.append(word)
            continue
        key, equals, value = word[2:].partition("=")
        key = key.replace("_", "-")
        key = _ALIASES.get(key, key)
        values: Any = True
        if key in VALUES or key in _MANY:
            found = [value] if equals else []
            most = 8 if key in _MANY else 1
            while len(found) < most and position < len(words):
                if words[position].startswith("--"):
                    break
                found.append(words[position])
                position += 1
            values = _known(key, " ".join(found), file)
        elif key not in FLAGS:
            others.append(key)
            # its value, if it has one, is no argument; a list of arguments is named as one
            following = words[position] if position < len(words) else ""
            if following.startswith("$") and not _LIST.search(following):
                position += 1
            continue
        if key in args and args[key] != values:
            raise InputError(
                f"{args[key]!r} and {values!r}; expected it once", file=file, field=f"--{key}"
            )
        args[key] = values
    return args, tuple(dict.fromkeys(others))


def _launch_words(text: str, file: str, given: dict[str, str]) -> list[str]:
    """The words of the command that trains; without one, those of the lists that are assigned."""
    try:
        run, assigned = commands(text, given)
    except ValueError as error:
        raise InputError(f"not an argument line: {error}", file=file) from error
    training = [line for line in run if any(re.match("--num[-_]layers(=|$)", w) for w in line)]
    if training:
        return [word for line in training for word in line]
    return [word for value in assigned for word in split_words(value)]


def _known(key: str, text: str, file: str) -> str:
    """A value that is there and holds no variable."""
    if not text:
        raise InputError("has no value", file=file, field=f"--{key}")
    if "$" in text or "`" in text:
        raise InputError(
            f"{text!r} is a shell variable that only the shell knows; write its value, or give it "
            "with --set NAME=VALUE",
            file=file,
            field=f"--{key}",
        )
    return text


def number(args: Mapping[str, Any], key: str, default: int) -> int:
    """A whole number of an argument; ``None`` and absence are the default.

    Raises
    ------
    InputError
        If it is none, or less than zero.
    """
    text = args.get(key)
    if text is None or text == "None":
        return default
    try:
        value = int(str(text))
    except ValueError:
        raise InputError(f"{text!r}; expected a whole number", field=f"--{key}") from None
    if value < 0:
        raise InputError(f"{value}; expected at least 0", field=f"--{key}")
    return value


def share(args: Mapping[str, Any], key: str, default: float) -> float:
    """A number from 0 to 1 of an argument.

    Raises
    ------
    InputError
        If it is none.
    """
    text = args.get(key)
    try:
        value = default if text is None else float(str(text))
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise InputError(f"{text!r}; expected a number from 0 to 1", field=f"--{key}")
    return value


def required(args: Mapping[str, Any], key: str) -> int:
    """A whole number that must be given and be above zero."""
    if key not in args:
        raise InputError("is missing", field=f"--{key}")
    value = number(args, key, 0)
    if value < 1:
        raise InputError(f"{value}; expected at least 1", field=f"--{key}")
    return value


def as_line(args: Mapping[str, Any]) -> list[str]:
    """The arguments as words of a command line, one argument a word list entry."""
    return [
        f"--{key}" if value is True else f"--{key} {shlex.quote(str(value))}"
        for key, value in args.items()
        if value is not None and value is not False
    ]


def changes(old: Mapping[str, Any], new: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    """What to change of `old` to get `new`, among `keys`: ``--key 2 -> 4``."""
    found = []
    for key in keys:
        before, after = old.get(key), new.get(key)
        if str(before) == str(after):
            continue
        if after is None:
            found.append(f"drop --{key}" + ("" if before is True else f" {before}"))
        elif before is None:
            found.append(f"add --{key}" + ("" if after is True else f" {after}"))
        else:
            found.append(f"--{key} {before} -> {after}")
    return found
