"""Hugging Face configurations: published models by their fields, and fields that are refused."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from nestopt.core.errors import InputError, UsageError
from nestopt.core.registry import architecture, named
from nestopt.instances.readers.huggingface import MODEL_TYPES, transformer_of

if TYPE_CHECKING:
    from pathlib import Path

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {"factor": 8.0},
    "rope_theta": 500000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
    "vocab_size": 128256,
}
MIXTRAL = LLAMA | {
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "sliding_window": None,
    "router_aux_loss_coef": 0.02,
}
QWEN3_MOE = LLAMA | {
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "norm_topk_prob": True,
    "vocab_size": 151936,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 768,
    "n_head": 12,
    "n_layer": 12,
    "n_positions": 1024,
    "vocab_size": 50257,
    "activation_function": "gelu_new",
}

_QWEN = {"use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 28}
QWEN2 = LLAMA | _QWEN | {
    "model_type": "qwen2", "hidden_size": 3584, "intermediate_size": 18944, "vocab_size": 152064,
    "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
}  # fmt: skip
QWEN3 = LLAMA | {
    "model_type": "qwen3", "head_dim": 128, "hidden_size": 4096, "intermediate_size": 12288,
    "num_hidden_layers": 36, "vocab_size": 151936,
}  # fmt: skip
MISTRAL = LLAMA | {"model_type": "mistral", "sliding_window": 4096, "vocab_size": 32000}
GEMMA = {
    "model_type": "gemma", "head_dim": 256, "hidden_act": "gelu", "hidden_size": 3072,
    "intermediate_size": 24576, "num_attention_heads": 16, "num_hidden_layers": 28,
    "num_key_value_heads": 16, "vocab_size": 256000, "max_position_embeddings": 8192,
}  # fmt: skip
GEMMA2 = GEMMA | {
    "model_type": "gemma2", "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    "hidden_size": 3584, "intermediate_size": 14336, "num_hidden_layers": 42,
    "num_key_value_heads": 8, "query_pre_attn_scalar": 256, "sliding_window": 4096,
}  # fmt: skip
PHI2 = {
    "model_type": "phi", "hidden_size": 2560, "intermediate_size": 10240, "qk_layernorm": False,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
    "partial_rotary_factor": 0.4, "tie_word_embeddings": False, "vocab_size": 51200,
}  # fmt: skip
PHI3 = LLAMA | {
    "model_type": "phi3", "hidden_size": 3072, "intermediate_size": 8192, "vocab_size": 32064,
    "num_key_value_heads": 32, "original_max_position_embeddings": 4096, "sliding_window": 2047,
}  # fmt: skip
FALCON_7B = {
    "model_type": "falcon", "alibi": False, "bias": False, "hidden_size": 4544,
    "multi_query": True, "new_decoder_architecture": False, "num_attention_heads": 71,
    "num_hidden_layers": 32, "parallel_attn": True, "vocab_size": 65024,
}  # fmt: skip
FALCON_40B = FALCON_7B | {
    "hidden_size": 8192, "new_decoder_architecture": True, "num_attention_heads": 128,
    "num_hidden_layers": 60, "num_kv_heads": 8,
}  # fmt: skip
BLOOM = {
    "model_type": "bloom", "n_embed": 14336, "n_layer": 70, "num_attention_heads": 112,
    "vocab_size": 250880, "seq_length": 2048, "offset_alibi": 100, "n_inner": None,
    "apply_residual_connection_post_layernorm": False, "skip_bias_add": True,
}  # fmt: skip
OPT = {
    "model_type": "opt", "hidden_size": 9216, "ffn_dim": 36864, "num_attention_heads": 72,
    "num_hidden_layers": 64, "vocab_size": 50272, "word_embed_proj_dim": 9216, "dropout": 0.1,
    "do_layer_norm_before": True, "max_position_embeddings": 2048, "layerdrop": 0.0,
    "activation_function": "relu",
}  # fmt: skip
NEOX = {
    "model_type": "gpt_neox", "hidden_size": 6144, "intermediate_size": 24576,
    "num_attention_heads": 64, "num_hidden_layers": 44, "vocab_size": 50432,
    "rotary_pct": 0.25, "tie_word_embeddings": False, "max_position_embeddings": 2048,
}  # fmt: skip
DEEPSEEK_MOE = LLAMA | {
    "model_type": "deepseek", "hidden_size": 2048, "intermediate_size": 10944,
    "moe_intermediate_size": 1408, "n_routed_experts": 64, "n_shared_experts": 2,
    "num_experts_per_tok": 6, "first_k_dense_replace": 1, "moe_layer_freq": 1,
    "num_attention_heads": 16, "num_key_value_heads": 16, "num_hidden_layers": 28,
    "vocab_size": 102400, "scoring_func": "softmax",
}  # fmt: skip


def _parameters(data: dict[str, Any], sequence: int = 1024) -> float:
    from nestopt.placement.model.transformer import expand

    workload = expand("m", transformer_of(data, sequence, "config.json"), 8)
    total = sum(o.params + o.params_expert for o in workload.operators)
    return total - (workload.tied.params if workload.tied else 0)


@pytest.mark.parametrize(
    ("data", "billions"),
    [
        (LLAMA, 8.03), (MIXTRAL, 46.7), (QWEN3_MOE, 30.5), (GPT2, 0.124), (QWEN2, 7.616),
        (QWEN3, 8.19), (MISTRAL, 7.24), (GEMMA, 8.54), (GEMMA2, 9.24), (PHI2, 2.78), (PHI3, 3.82),
        (FALCON_7B, 6.92), (FALCON_40B, 41.3), (BLOOM, 176.2), (OPT, 65.7), (NEOX, 20.55),
        (DEEPSEEK_MOE, 16.4),
    ],
    ids=["llama3-8b", "mixtral", "qwen3-30b-a3b", "gpt2", "qwen2.5-7b", "qwen3-8b", "mistral-7b",
         "gemma-7b", "gemma2-9b", "phi-2", "phi3-mini", "falcon-7b", "falcon-40b", "bloom",
         "opt-66b", "gpt-neox-20b", "deepseek-moe-16b"],
)  # fmt: skip
def test_parameters_are_those_published(data: dict[str, Any], billions: float) -> None:
    assert _parameters(data) / 1e9 == pytest.approx(billions, rel=0.005)


def test_llama_3_is_the_library_s() -> None:
    assert transformer_of(LLAMA, 8192, "config.json") == architecture("llama3-8b")
    assert transformer_of(MIXTRAL, 4096, "c") == architecture("mixtral-8x7b")


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"hidden_size": None}, "hidden_size"),
        ({"hidden_size": 4096.5}, "hidden_size"),
        ({"num_attention_heads": True}, "num_attention_heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"vocab_size": "128256"}, "vocab_size"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"sliding_window": 512, "use_sliding_window": True}, "sliding_window"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"num_key_value_heads": 5}, "kv_heads"),
        ({"state_size": 16}, "state_size"),
        ({"model_type": "gemma2", "sliding_window": 512}, "sliding_window"),
        ({"model_type": "phi", "qk_layernorm": True}, "qk_layernorm"),
        ({"model_type": "opt", "word_embed_proj_dim": 512}, "word_embed_proj_dim"),
        ({"model_type": "opt", "do_layer_norm_before": False}, "do_layer_norm_before"),
        ({"model_type": "falcon", "multi_query": 1}, "multi_query"),
        ({"max_position_embeddings": 512}, "max_position_embeddings"),
    ],
)
def test_a_field_that_is_not_understood_is_an_error(changed: dict[str, Any], field: str) -> None:
    data = dict((LLAMA | changed).items())
    with pytest.raises(InputError, match=field) as caught:
        transformer_of(data, 1024, "config.json")
    assert "config.json" in str(caught.value)


def test_a_window_that_is_off_or_wide_enough_is_no_matter() -> None:
    wanted = transformer_of(LLAMA, 1024, "c")
    assert transformer_of(LLAMA | {"sliding_window": 4096}, 1024, "c") == wanted
    off = LLAMA | {"sliding_window": 64, "use_sliding_window": False}
    assert transformer_of(off, 1024, "c") == wanted


def test_latent_attention_is_said_not_approximated() -> None:
    data = LLAMA | {"model_type": "deepseek_v3", "kv_lora_rank": 512, "q_lora_rank": 1536}
    with pytest.raises(InputError, match="latent attention"):
        transformer_of(data, 1024, "config.json")


def test_an_unknown_model_type_gets_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'mistral'"):
        transformer_of(LLAMA | {"model_type": "mistrall"}, 1024, "c")
    assert "llama" in MODEL_TYPES


def test_a_configuration_is_a_workload_with_its_sequence_and_batch(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    workload = named("workload", f"{path},seq=8192,batch=64")
    expected = named("workload", "llama3-8b,batch=64")
    assert workload.operators == expected.operators
    assert workload.global_batch == 64
    assert architecture(f"{path},seq=2048,batch=8,layers=4").layers == 4
    for text, key in ((str(path), "seq"), (f"{path},seq=8192", "batch")):
        with pytest.raises(InputError, match=f"add {key}="):
            named("workload", text)
    path.write_text("{}")
    with pytest.raises(InputError, match="has no model_type"):
        named("workload", f"{path},seq=8192,batch=64")
