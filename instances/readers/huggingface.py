"""Hugging Face's ``config.json`` as a transformer.

What a field means follows its ``model_type``. A field that bears on work, sizes or structure and
that the workload has no words for is an error; fields that do not (tokens, dropouts, initial
values, position encodings) are passed over by name; any other field is an error too, so that
nothing is approximated in silence. The file says what the model can read, not what it is trained
with, so the sequence length is the user's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError, unknown_name
from nestopt.placement.model.transformer import Transformer

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MODEL_TYPES", "is_huggingface", "transformer_of"]

_IGNORED_TEXT = """
    _name_or_path adapter architectures attention_dropout attn_pdrop attn_implementation
    _attn_implementation attention_probs_dropout_prob auto_map begin_suppress_tokens
    bos_token_id chunk_size_feed_forward classifier_dropout cls_token_id decoder_start_token_id
    dtype embd_pdrop eos_token_id finetuning_task gradient_checkpointing hidden_act
    activation_function hidden_activation hidden_dropout hidden_dropout_prob id2label
    initializer_range initializer_factor is_decoder is_encoder_decoder label2id layer_norm_eps
    layer_norm_epsilon max_position_embeddings max_window_layers model_type n_ctx n_positions
    norm_epsilon output_attentions output_hidden_states output_router_logits pad_token_id
    partial_rotary_factor position_embedding_type pretraining_tp problem_type
    quantization_config reorder_and_upcast_attn resid_pdrop return_dict rms_norm_eps
    rope_interleave rope_parameters rope_scaling rope_theta rotary_emb_base rotary_pct
    router_aux_loss_coef aux_loss_alpha router_jitter_noise scale_attn_by_inverse_layer_idx
    scale_attn_weights seq_aux sep_token_id summary_activation summary_first_dropout
    summary_proj_to_labels summary_type summary_use_proj task_specific_params torch_dtype
    torchscript transformers_version type_vocab_size unk_token_id use_cache use_return_dict
    use_bfloat16 norm_topk_prob routed_scaling_factor scoring_func topk_method n_group
    topk_group ep_size embedding_dropout model_max_length
"""
_IGNORED = frozenset(_IGNORED_TEXT.split())
"""Fields with no bearing on work, sizes or structure."""


class _Fields:
    """The fields of a configuration, each asked for once; what is left over is refused."""

    def __init__(self, data: dict[str, Any], file: str) -> None:
        self.data, self.file = data, file
        self.seen: set[str] = set()

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1) -> int:
        """A whole number; `default` where it is absent or null."""
        self.seen.add(key)
        value = self.data.get(key)
        if value is None:
            if default is None:
                raise InputError("is missing", file=self.file, field=key)
            return default
        if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
            raise InputError(
                f"{value!r}; expected a whole number of at least {minimum}",
                file=self.file,
                field=key,
            )
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A truth value; `default` where it is absent or null."""
        self.seen.add(key)
        value = self.data.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise InputError(f"{value!r}; expected true or false", file=self.file, field=key)
        return value

    def must_be(self, key: str, *allowed: Any, why: str) -> None:
        """Refuse a value that the workload has no words for."""
        self.seen.add(key)
        if key in self.data and self.data[key] not in allowed:
            raise InputError(f"{self.data[key]!r}: {why}", file=self.file, field=key)

    def finish(self) -> None:
        """Refuse fields that nothing asked for."""
        for key, value in self.data.items():
            if key not in self.seen and key not in _IGNORED and value is not None:
                raise InputError(
                    f"{value!r}: the field is not understood, so the model is not read",
                    file=self.file,
                    field=key,
                )


def _shape(fields: _Fields) -> dict[str, int]:
    """Heads, width, layers and words, by the names that most configurations give them."""
    return {
        "heads": fields.integer("num_attention_heads"),
        "hidden": fields.integer("hidden_size"),
        "layers": fields.integer("num_hidden_layers"),
        "vocabulary": fields.integer("vocab_size"),
    }


def _llama(fields: _Fields, sequence: int) -> dict[str, Any]:
    """Gated, grouped queries, root-mean-square norms: Llama, Mistral, Qwen2 and their kin."""
    shape = _shape(fields)
    heads, hidden = shape["heads"], shape["hidden"]
    size = fields.integer("head_dim", 0, minimum=0)
    fields.must_be("mlp_bias", False, None, why="biases of one kind of matrix alone")
    # queries, keys and values may have biases (Qwen2); they are a ten-thousandth of the matrices
    fields.flag("attention_bias", False)
    fields.flag("qkv_bias", False)
    _no_window(fields, sequence)
    return {
        **shape,
        "kv_heads": fields.integer("num_key_value_heads", heads),
        "head_size": 0 if size * heads == hidden else size,
        "ffn": fields.integer("intermediate_size"),
        "gated": True,
        "tied": fields.flag("tie_word_embeddings", False),
        "flash": True,
        "biases": False,
        "dropout": False,
        "lean": True,
    }


def _no_window(fields: _Fields, sequence: int) -> None:
    """Attention over a window is refused where the sequence is longer than the window."""
    used = fields.flag("use_sliding_window", True)
    window = fields.data.get("sliding_window")
    fields.seen.add("sliding_window")
    if window is not None and used and (not isinstance(window, int) or window < sequence):
        raise InputError(
            f"{window!r}: attention over a window shorter than the sequence ({sequence}) is not in "
            "the workload",
            file=fields.file,
            field="sliding_window",
        )
    kinds = fields.data.get("layer_types")
    fields.seen.add("layer_types")
    if kinds is not None and set(kinds) != {"full_attention"}:
        raise InputError(
            f"{sorted(set(kinds))}: layers of several kinds of attention are not in the workload",
            file=fields.file,
            field="layer_types",
        )


def _mixtral(fields: _Fields, sequence: int) -> dict[str, Any]:
    row = _llama(fields, sequence)
    return row | {
        "experts": fields.integer("num_local_experts", 8),
        "top_k": fields.integer("num_experts_per_tok", 2),
        "expert_ffn": row["ffn"],
    }


def _qwen_moe(fields: _Fields, sequence: int) -> dict[str, Any]:
    row = _llama(fields, sequence)
    fields.must_be("decoder_sparse_step", 1, why="sparse and dense layers in turn")
    fields.must_be("mlp_only_layers", [], why="single dense layers between sparse ones")
    width = fields.integer("moe_intermediate_size")
    shared = fields.integer("shared_expert_intermediate_size", 0, minimum=0)
    if shared % width:
        raise InputError(
            f"{shared}: a shared expert as wide as a whole number of experts ({width}) is expected",
            file=fields.file,
            field="shared_expert_intermediate_size",
        )
    return row | {
        "experts": fields.integer("num_experts", 128),
        "top_k": fields.integer("num_experts_per_tok", 8),
        "expert_ffn": width,
        "shared_experts": shared // width,
    }


def _deepseek(fields: _Fields, sequence: int) -> dict[str, Any]:
    if any(fields.data.get(key) for key in ("kv_lora_rank", "q_lora_rank")):
        raise InputError(
            f"{fields.data.get('kv_lora_rank')!r}: multi-head latent attention is not in the "
            "workload; the library's deepseek-v3-like has plain attention in its place and says so",
            file=fields.file,
            field="kv_lora_rank",
        )
    fields.must_be("moe_layer_freq", 1, why="sparse and dense layers in turn")
    row = _llama(fields, sequence)
    return row | {
        "experts": fields.integer("n_routed_experts", 0, minimum=0),
        "top_k": fields.integer("num_experts_per_tok", 0, minimum=0),
        "shared_experts": fields.integer("n_shared_experts", 0, minimum=0),
        "expert_ffn": fields.integer("moe_intermediate_size", 0, minimum=0),
        "dense_layers": fields.integer("first_k_dense_replace", 0, minimum=0),
    }


def _gpt2(fields: _Fields, _: int) -> dict[str, Any]:
    hidden = fields.integer("n_embd")
    fields.must_be("add_cross_attention", False, why="cross attention is not in the workload")
    return {
        "layers": fields.integer("n_layer"),
        "hidden": hidden,
        "heads": fields.integer("n_head"),
        "vocabulary": fields.integer("vocab_size"),
        "ffn": fields.integer("n_inner", 4 * hidden),
        "tied": fields.flag("tie_word_embeddings", True),
        "flash": True,
    }


def _gpt_neox(fields: _Fields, _: int) -> dict[str, Any]:
    fields.flag("attention_bias", True)
    fields.flag("use_parallel_residual", True)
    return {
        **_shape(fields),
        "ffn": fields.integer("intermediate_size"),
        "tied": fields.flag("tie_word_embeddings", False),
        "flash": True,
    }


def _bert(fields: _Fields, _: int) -> dict[str, Any]:
    return {
        **_shape(fields),
        "ffn": fields.integer("intermediate_size"),
        "tied": fields.flag("tie_word_embeddings", True),
        "flash": True,
    }


def _gemma(fields: _Fields, sequence: int) -> dict[str, Any]:
    # soft caps and scales of scores and logits cost no product
    for key in ("attn_logit_softcapping", "final_logit_softcapping", "query_pre_attn_scalar"):
        fields.seen.add(key)
    fields.must_be("use_bidirectional_attention", False, None, why="attention is causal")
    tied = fields.flag("tie_word_embeddings", True)
    row = _llama(fields, sequence)
    # a head's width is 256 unless the file says otherwise
    size = fields.integer("head_dim", 256)
    return row | {"tied": tied, "head_size": 0 if size * row["heads"] == row["hidden"] else size}


def _phi(fields: _Fields, _: int) -> dict[str, Any]:
    shape = _shape(fields)
    heads, hidden = shape["heads"], shape["hidden"]
    fields.must_be("qk_layernorm", False, None, why="norms of queries and keys with biases")
    return {
        **shape,
        "kv_heads": fields.integer("num_key_value_heads", heads),
        "ffn": fields.integer("intermediate_size", 4 * hidden),
        "tied": fields.flag("tie_word_embeddings", False),
        "flash": True,
    }


def _phi3(fields: _Fields, sequence: int) -> dict[str, Any]:
    # the sequence above which the long rotation factors hold
    fields.integer("original_max_position_embeddings", sequence)
    return _llama(fields, sequence)


def _falcon(fields: _Fields, _: int) -> dict[str, Any]:
    shape = _shape(fields)
    heads, hidden = shape["heads"], shape["hidden"]
    groups = fields.integer("num_kv_heads", heads)
    newer = fields.flag("new_decoder_architecture", False)
    if fields.flag("multi_query", True) and not newer:
        groups = 1
    for key in ("alibi", "parallel_attn"):
        fields.flag(key, False)
    fields.integer("num_ln_in_parallel_attn", 1)
    return {
        **shape,
        "kv_heads": groups if newer or groups == 1 else heads,
        "ffn": fields.integer("ffn_hidden_size", 4 * hidden),
        "tied": fields.flag("tie_word_embeddings", True),
        "flash": True,
        "biases": fields.flag("bias", False),
        "dropout": False,
    }


def _bloom(fields: _Fields, sequence: int) -> dict[str, Any]:
    for key in (
        "apply_residual_connection_post_layernorm", "masked_softmax_fusion", "skip_bias_add",
        "attention_softmax_in_fp32", "bias_dropout_fusion", "skip_bias_add_qkv", "slow_but_exact",
    ):  # fmt: skip
        fields.flag(key, False)
    # the sequence of its training, and leftovers of its encoding of positions (ALiBi: no weights)
    fields.integer("seq_length", sequence)
    fields.seen |= {"offset_alibi", "n_inner"}
    width = "n_embed" if "n_embed" in fields.data else "hidden_size"
    hidden = fields.integer(width)
    heads = "num_attention_heads" if "num_attention_heads" in fields.data else "n_head"
    return {
        "layers": fields.integer("n_layer"),
        "hidden": hidden,
        "heads": fields.integer(heads),
        "vocabulary": fields.integer("vocab_size"),
        "ffn": 4 * hidden,
        "tied": fields.flag("tie_word_embeddings", True),
        "flash": True,
    }


def _opt(fields: _Fields, _: int) -> dict[str, Any]:
    shape = _shape(fields)
    hidden = shape["hidden"]
    fields.must_be("word_embed_proj_dim", hidden, None, why="embeddings of another width")
    fields.must_be("do_layer_norm_before", True, None, why="norms behind the blocks")
    fields.must_be("enable_bias", True, None, why="a decoder without biases but with plain norms")
    fields.flag("layer_norm_elementwise_affine", True)
    fields.flag("_remove_final_layer_norm", False)
    fields.seen |= {"layerdrop", "dropout", "init_std", "activation_dropout", "prefix"}
    return {
        **shape,
        "ffn": fields.integer("ffn_dim", 4 * hidden),
        "tied": fields.flag("tie_word_embeddings", True),
        "flash": True,
    }


MODEL_TYPES: dict[str, Callable[[_Fields, int], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _llama,
    "qwen3": _llama,
    "mixtral": _mixtral,
    "qwen2_moe": _qwen_moe,
    "qwen3_moe": _qwen_moe,
    "deepseek": _deepseek,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "bert": _bert,
    "gemma": _gemma,
    "gemma2": _gemma,
    "phi": _phi,
    "phi3": _phi3,
    "falcon": _falcon,
    "bloom": _bloom,
    "opt": _opt,
}
"""What is read, by ``model_type``."""


def is_huggingface(data: Any) -> bool:
    """Whether JSON looks like a Hugging Face configuration."""
    return isinstance(data, dict) and "model_type" in data and "schema" not in data


def transformer_of(data: dict[str, Any], sequence: int, file: str) -> Transformer:
    """The transformer of a configuration.

    Parameters
    ----------
    data : dict
        The JSON of ``config.json``.
    sequence : int
        Tokens of a training sequence.
    file : str
        The file's path, for errors.

    Raises
    ------
    UsageError
        If the model type is unknown (with a suggestion).
    InputError
        Naming the field that is missing, wrong, or not understood.
    """
    kind = data["model_type"]
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise unknown_name("model_type", str(kind), MODEL_TYPES)
    fields = _Fields(data, file)
    row = MODEL_TYPES[kind](fields, sequence)
    fields.finish()
    longest = data.get("max_position_embeddings", data.get("n_positions"))
    if isinstance(longest, int) and sequence > longest:
        raise InputError(
            f"{longest}; the model reads no sequence of {sequence}",
            file=file,
            field="max_position_embeddings",
        )
    try:
        return Transformer(sequence=sequence, **row)
    except InputError as error:
        raise InputError(str(error), file=file) from error
