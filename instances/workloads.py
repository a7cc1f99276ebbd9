"""Named workloads: BERT-Large, GPT-3 (all sizes of Narayanan et al.), Llama, MoE models.

Sources: GPT sizes from Narayanan et al. 2021 (arXiv 2104.04473), Table 1; GPT-3 175B from Brown
et al. 2020 (96 layers, 12288, 96 heads); BERT-Large from Devlin et al. 2018; Llama-2 7B from
Touvron et al. 2023; Llama-3 from arXiv 2407.21783; Mixtral 8x7B from arXiv 2401.04088; the
DeepSeek-V3-like model from arXiv 2412.19437, with plain multi-head attention in place of its
latent attention. AxoNN's models (``axonn-5b`` to ``axonn-175b``, arXiv 2305.13525) come with a
batch of 1,024 sequences.

A name may carry settings: ``gpt3-175b,batch=3072,seq=4096,flash=1``.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, unknown_name
from nestopt.core.io import read_json
from nestopt.fourd.models import model_names, named_model
from nestopt.instances.readers.huggingface import is_huggingface, transformer_of
from nestopt.placement.model.transformer import Transformer, expand
from nestopt.placement.pricing.parameters import current_set

if TYPE_CHECKING:
    from nestopt.placement.model.workload import Workload

__all__ = ["MODELS", "by_name", "configuration", "names"]


def _gpt(layers: int, hidden: int, heads: int) -> Transformer:
    return Transformer(layers, hidden, heads, sequence=2048, vocabulary=51200)


def _llama(
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, sequence: int, vocabulary: int
) -> Transformer:
    return Transformer(
        layers, hidden, heads, sequence, vocabulary, kv_heads=kv_heads, ffn=ffn, gated=True,
        tied=False, flash=True, biases=False, dropout=False, lean=True,
    )  # fmt: skip


MODELS: dict[str, tuple[Transformer, int]] = {
    "bert-large": (Transformer(24, 1024, 16, sequence=512, vocabulary=30592), 1024),
    "gpt3-1.7b": (_gpt(24, 2304, 24), 512),
    "gpt3-3.6b": (_gpt(30, 3072, 32), 512),
    "gpt3-7.5b": (_gpt(36, 4096, 32), 512),
    "gpt3-18.4b": (_gpt(40, 6144, 48), 1024),
    "gpt3-39.1b": (_gpt(48, 8192, 64), 1536),
    "gpt3-76.1b": (_gpt(60, 10240, 80), 1792),
    "gpt3-145.6b": (_gpt(80, 12288, 96), 2304),
    "gpt3-175b": (_gpt(96, 12288, 96), 1536),
    "gpt3-310.1b": (_gpt(96, 16384, 128), 2160),
    "gpt3-529.6b": (_gpt(105, 20480, 128), 2520),
    "gpt3-1t": (_gpt(128, 25600, 160), 3072),
    "llama2-7b": (_llama(32, 4096, 32, 32, 11008, 4096, 32000), 1024),
    "llama3-8b": (_llama(32, 4096, 32, 8, 14336, 8192, 128256), 1024),
    "llama3-70b": (_llama(80, 8192, 64, 8, 28672, 8192, 128256), 1024),
    "llama3-405b": (_llama(126, 16384, 128, 8, 53248, 8192, 128256), 2048),
    "mixtral-8x7b": (
        replace(_llama(32, 4096, 32, 8, 14336, 4096, 32000), experts=8, top_k=2, expert_ffn=14336),
        1024,
    ),
    "deepseek-v3-like": (
        replace(
            _llama(61, 7168, 128, 128, 18432, 4096, 129280),
            head_size=128,
            experts=256,
            top_k=8,
            shared_experts=1,
            expert_ffn=2048,
            dense_layers=3,
        ),
        15360,
    ),
}
"""Configuration and default global batch (sequences) of every named model."""


def names() -> list[str]:
    """Names of the workloads."""
    return sorted([*MODELS, *model_names()])


def by_name(name: str) -> Workload:
    """The workload of a name, with settings after commas.

    See `configuration` for what a name may be.
    """
    model, batch = configuration(name)
    return expand(name, model, batch)


def configuration(name: str) -> tuple[Transformer, int]:
    """The transformer and the global batch of a name.

    A name is one of `names` or the path of a Hugging Face ``config.json``, with settings after
    commas: ``batch`` (global batch, sequences), ``seq`` (sequence length), and any field of
    `nestopt.placement.model.transformer.Transformer`. A configuration file needs ``seq`` and
    ``batch``, since it states neither.

    Raises
    ------
    UsageError
        If the name is unknown (with a suggestion).
    InputError
        If a setting is unknown, missing, or its value is not an integer.
    """
    head, *pairs = name.split(",")
    settings = {_key(pair): _value(name, pair) for pair in pairs}
    batch = settings.pop("batch", 0)
    if batch < 1 and "batch" in name.replace("=", ",").split(","):
        raise InputError(f"{batch}; expected at least 1", field=f"{name}: batch")
    if head.endswith(".json"):
        for key, value in (("seq", settings.get("sequence", 0)), ("batch", batch)):
            if not value:
                raise InputError(
                    f"the file does not say what it is trained with; add {key}=, as in "
                    f"{head},seq=4096,batch=512",
                    file=head,
                )
        model = _of_file(head, settings.pop("sequence"))
    elif head in MODELS:
        model, usual = MODELS[head]
        batch = batch or usual
    elif head in model_names():
        model, batch = named_model(head)[0], batch or 1024
    else:
        raise unknown_name("workload", head, names())
    known = {f.name: f for f in fields(Transformer)}
    model = current_set().transformer(model)
    for key, value in settings.items():
        if key not in known:
            raise unknown_name("workload setting", key, [*known, "batch", "seq"])
        changed: dict[str, Any] = {key: bool(value) if known[key].type == "bool" else value}
        model = replace(model, **changed)
    return model, batch


def _key(pair: str) -> str:
    key = pair.partition("=")[0]
    return {"seq": "sequence"}.get(key, key)


def _value(name: str, pair: str) -> int:
    key, _, text = pair.partition("=")
    try:
        return int(text)
    except ValueError as error:
        raise InputError(f"{text!r}; expected an integer", field=f"{name}: {key}") from error


def _of_file(path: str, sequence: int) -> Transformer:
    data = read_json(path)
    if not is_huggingface(data):
        raise InputError(
            "has no model_type; expected a Hugging Face config.json (a workload file takes no "
            "settings)",
            file=path,
        )
    return transformer_of(data, sequence, path)
