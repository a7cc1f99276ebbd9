"""A transformer in Megatron's arguments, and back."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.interop.launch.arguments import number, required, share
from nestopt.placement.model.transformer import Transformer

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["megatron_architecture", "transformer_of_megatron"]

_FUSED = ("flash", "fused", "auto")
"""Attention backends that store no matrix of scores."""


def megatron_architecture(model: Transformer) -> dict[str, Any]:
    """Megatron's arguments of an architecture, without dashes; True for a flag."""
    args: dict[str, Any] = {
        "num-layers": model.layers,
        "hidden-size": model.hidden,
        "ffn-hidden-size": model.inner,
        "num-attention-heads": model.heads,
        "seq-length": model.sequence,
        "max-position-embeddings": model.sequence,
        "vocab-size": model.vocabulary,
        "tokenizer-type": "NullTokenizer",
        "bf16": True,
    }
    if model.key_heads != model.heads:
        args |= {"group-query-attention": True, "num-query-groups": model.key_heads}
    if model.head_size:
        args["kv-channels"] = model.head_size
    if model.gated:
        args |= {"swiglu": True, "position-embedding-type": "rope"}
    if not model.biases:
        args |= {"disable-bias-linear": True, "normalization": "RMSNorm"}
    if not model.dropout:
        args |= {"hidden-dropout": 0, "attention-dropout": 0}
    if not model.tied:
        args["untie-embeddings-and-output-weights"] = True
    if model.flash:
        args["attention-backend"] = "flash"
    if model.experts:
        args |= {
            "num-experts": model.experts,
            "moe-router-topk": model.top_k,
            "moe-ffn-hidden-size": model.expert_ffn or model.inner,
            "moe-grouped-gemm": True,
            "moe-token-dispatcher-type": "alltoall",
        }
        if model.shared_experts:
            width = model.shared_experts * (model.expert_ffn or model.inner)
            args["moe-shared-expert-intermediate-size"] = width
        if model.dense_layers:
            sparse = model.layers - model.dense_layers
            args["moe-layer-freq"] = f"([0]*{model.dense_layers}+[1]*{sparse})"
    return args


def transformer_of_megatron(args: Mapping[str, Any]) -> Transformer:
    """The architecture of Megatron's arguments, with Megatron's defaults.

    Raises
    ------
    InputError
        Naming the argument that is missing or that the workload has no words for.
    """
    if args.get("multi-latent-attention"):
        raise InputError(
            "multi-latent attention is not in the workload", field="--multi-latent-attention"
        )
    hidden = required(args, "hidden-size")
    heads = required(args, "num-attention-heads")
    gated = bool(args.get("swiglu"))
    experts = number(args, "num-experts", 0)
    width = number(args, "moe-ffn-hidden-size", 0)
    shared = number(args, "moe-shared-expert-intermediate-size", 0)
    # Megatron's default inner width: 4h, or two thirds of it, rounded to 64, with SwiGLU
    inner = (4 * hidden * 2 // 3 // 64 * 64) if gated else 4 * hidden
    inner = number(args, "ffn-hidden-size", inner)
    return Transformer(
        layers=required(args, "num-layers"),
        hidden=hidden,
        heads=heads,
        sequence=required(args, "seq-length"),
        vocabulary=_vocabulary(args),
        kv_heads=_groups(args),
        head_size=number(args, "kv-channels", 0),
        ffn=inner,
        gated=gated,
        experts=experts,
        top_k=number(args, "moe-router-topk", 2) if experts else 0,
        shared_experts=shared // (width or inner) if experts and shared else 0,
        expert_ffn=width if experts else 0,
        dense_layers=_dense_layers(args) if experts else 0,
        tied=not args.get("untie-embeddings-and-output-weights"),
        flash="use-flash-attn" in args or args.get("attention-backend") in _FUSED,
        biases=not args.get("disable-bias-linear"),
        # Megatron's default is a dropout of 0.1
        dropout=share(args, "hidden-dropout", 0.1) > 0,
        lean=gated,
    )


def _groups(args: Mapping[str, Any]) -> int:
    """Groups of queries; 0 for as many as heads. Megatron's default is one group."""
    if args.get("group-query-attention"):
        return number(args, "num-query-groups", 1)
    # Megatron-DeepSpeed's word
    return number(args, "num-key-value-heads", 0)


def _vocabulary(args: Mapping[str, Any]) -> int:
    """The vocabulary as Megatron pads it: to a multiple of 128 times the tensor degree."""
    size = number(args, "vocab-size", 0) or number(args, "padded-vocab-size", 0)
    if not size:
        # GPT-2's vocabulary, which Megatron's examples use without a word
        size = 50257
    step = number(args, "make-vocab-size-divisible-by", 128)
    step *= number(args, "tensor-model-parallel-size", 1)
    return -(-size // step) * step


def _dense_layers(args: Mapping[str, Any]) -> int:
    """Leading dense layers of ``--moe-layer-freq``: 1, or a list of zeros, then ones."""
    text = str(args.get("moe-layer-freq", "1")).replace(" ", "")
    if text == "1":
        return 0
    kinds = ""
    for term in text.removeprefix("(").removesuffix(")").split("+"):
        match = re.fullmatch(r"\(?\[([01](?:,[01])*)\]\)?(?:\*(\d{1,5}))?", term)
        if match is None:
            kinds = "no list"
            break
        kinds += match[1].replace(",", "") * int(match[2] or 1)
    layers = required(args, "num-layers")
    if not re.fullmatch("0*1+", kinds):
        raise InputError(
            f"{text!r}; a workload has dense layers first, then sparse ones: ([0]*A+[1]*B)",
            field="--moe-layer-freq",
        )
    if len(kinds) != layers:
        raise InputError(
            f"{text!r} is of {len(kinds)} layers; the model has {layers}", field="--moe-layer-freq"
        )
    return kinds.count("0")
