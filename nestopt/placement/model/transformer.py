"""Transformers as workloads: dense, grouped-query, gated, mixture-of-experts with shared experts.

Activation sizes follow Korthikanti et al. 2022 (arXiv 2205.05198): a block without recomputation
stores ``s b h (10 + 24/t + 5 a s/(h t))`` bytes, 34 s b h/t + ... with sequence parallelism, and
``2 s b h`` with full recomputation. FLOPs follow Narayanan et al. 2021 (arXiv 2104.04473), one
multiply-add counted as two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError
from nestopt.placement.model.workload import Edge, Operator, Tied, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Transformer", "expand"]

_HALF = 2  # bytes of a half-precision number
_SINGLE = 4


@dataclass(frozen=True, slots=True)
class Transformer:
    """The configuration of a transformer.

    Attributes
    ----------
    layers, hidden, heads, sequence, vocabulary : int
    kv_heads : int
        Key/value heads (0: as many as `heads`).
    head_size : int
        0: hidden / heads.
    ffn : int
        Inner width of the (dense) feed-forward network; 0: 4 * hidden.
    gated : bool
        Three matrices (SwiGLU) instead of two.
    experts, top_k, shared_experts, expert_ffn : int
        Mixture of experts: routed experts, experts a token visits, experts that every token visits,
        inner width of one expert. 0 experts: dense.
    dense_layers : int
        Leading layers that stay dense in a mixture-of-experts model.
    tied : bool
        Whether the head shares the embedding's matrix.
    flash : bool
        Whether attention keeps no s x s matrix (it then stores only what selective recomputation
        would, and moves no s x s matrix through memory).
    biases : bool
        Whether matrices and norms have biases.
    head : bool
        Whether the model ends in a language-modelling head.
    causal : bool
        Whether a flash attention kernel skips what the causal mask hides, half of the work;
        without `flash` all scores are computed.
    dropout : bool
        Whether blocks have dropout, whose masks are kept.
    grouped : bool
        Whether routed tokens are priced as they run: experts as one grouped product, whose rows an
        expert fills up to whole tiles, and the passes through memory that sort tokens by expert.
        Otherwise all products of a block count as one.
    lean : bool
        Whether the backward pass recomputes what is cheap, the outputs of norms and of activation
        functions, instead of keeping it.
    """

    layers: int
    hidden: int
    heads: int
    sequence: int
    vocabulary: int
    kv_heads: int = 0
    head_size: int = 0
    ffn: int = 0
    gated: bool = False
    experts: int = 0
    top_k: int = 0
    shared_experts: int = 0
    expert_ffn: int = 0
    dense_layers: int = 0
    tied: bool = True
    flash: bool = False
    biases: bool = True
    head: bool = True
    causal: bool = True
    dropout: bool = True
    lean: bool = False
    grouped: bool = True

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "sequence", "vocabulary"):
            if getattr(self, name) < 1:
                raise InputError(f"{getattr(self, name)}; expected at least 1", field=name)
        if self.head_size == 0 and self.hidden % self.heads:
            raise InputError(f"{self.heads} does not divide hidden {self.hidden}", field="heads")
        if self.kv_heads and self.heads % self.kv_heads:
            raise InputError(
                f"{self.kv_heads} does not divide {self.heads} heads", field="kv_heads"
            )
        if bool(self.experts) != bool(self.top_k):
            raise InputError("experts and top_k come together", field="top_k")

    @property
    def key_heads(self) -> int:
        """Key/value heads."""
        return self.kv_heads or self.heads

    @property
    def query_width(self) -> int:
        """Width of all query heads together."""
        return (self.head_size or self.hidden // self.heads) * self.heads

    @property
    def key_width(self) -> int:
        """Width of all key heads together."""
        return self.query_width // self.heads * self.key_heads

    @property
    def inner(self) -> int:
        """Inner width of the dense feed-forward network."""
        return self.ffn or 4 * self.hidden


def _block(model: Transformer, *, sparse: bool) -> Operator:
    s, h = model.sequence, model.hidden
    q, kv = model.query_width, model.key_width
    matrices = 3 if model.gated else 2
    attention_params = h * (q + 2 * kv) + q * h
    norms = 2 * (2 if model.biases else 1) * h
    biases = (q + 2 * kv + h) if model.biases else 0
    tensor = [model.heads, model.key_heads]
    if sparse:
        width = model.expert_ffn or model.inner
        each = matrices * h * width
        dense_mlp = model.shared_experts * each + h * model.experts
        expert_params = model.experts * each
        visited = model.top_k + model.shared_experts
        mlp_flops = 2 * s * (visited * each + h * model.experts)
        inner = visited * width
        tensor.append(width)
        # Routed tokens, the tokens of shared experts, and the router's scores.
        widths = [model.top_k * width, model.shared_experts * width]
        scored = model.experts
        routed_flops = 2 * s * model.top_k * each if model.grouped else 0
    else:
        routed_flops = 0
        dense_mlp = matrices * h * model.inner
        expert_params = 0
        mlp_flops = 2 * s * dense_mlp
        inner = model.inner
        tensor.append(model.inner)
        widths, scored = [model.inner], 0
        if model.biases:
            biases += model.inner + h
    inner_act = inner * (matrices - 1)
    # Attention core: Q K^T and its product with V, forward, s x s per head, not halved for the
    # causal mask (as in the published FLOP formulas).
    attention = 4 * s * s * q
    # Stored outside the tensor-parallel region (10 s b h): two norms' inputs (4), their outputs,
    # which enter the region (4), two dropout masks (2).
    act_full = (4 + (0 if model.lean else 4) + (2 if model.dropout else 0)) * s * h
    # Inside (24 s b h for q = kv = h, ffn = 4h): Q, K, V and attention's output (2 bytes each), the
    # outputs of the first feed-forward matrices and the input of the last one.
    act_shard = _HALF * s * (2 * q + 2 * kv + inner_act + (0 if model.lean else inner))
    scores = 0 if model.flash else model.heads * s * s
    return Operator(
        name="block",
        flops=2 * s * attention_params + mlp_flops,
        flops_attn=attention / 2 if model.flash and model.causal else attention,
        bytes_full=_traffic_full(model) + (_traffic_routed(model) if routed_flops else 0),
        bytes_shard=_HALF * s * (inner_act + inner),
        # softmax reads and writes, dropout reads and writes, masks: the s x s matrices pass about
        # eleven bytes per element through memory.
        bytes_attn=11 * scores,
        params=attention_params + dense_mlp + norms + biases,
        params_expert=expert_params,
        act_full=act_full,
        act_shard=act_shard,
        act_attn=5 * scores,
        act_input=_HALF * s * h,
        tp_bytes=_HALF * s * h,
        tp_fwd=2,
        tp_bwd=2,
        cp_bytes=_HALF * s * 2 * kv,
        ep_bytes=_HALF * s * h * model.top_k if sparse else 0,
        # Ordinary products: queries, keys and values together; gate and up (or the only first
        # feed-forward matrix). Transposed: attention's output and the last feed-forward matrix.
        x_fwd=tuple(
            _HALF * s * n for n in (q + 2 * kv, *((matrices - 1) * n for n in widths), scored) if n
        ),
        x_bwd=tuple(_HALF * s * n for n in (q, *widths) if n),
        tensor_divides=tuple(sorted(set(tensor))),
        x_divides=(h,),
        context_divides=s,
        experts=model.experts if sparse else 0,
        flops_expert=routed_flops,
        rows=s * model.top_k if routed_flops else 0,
    )


def _traffic_full(model: Transformer) -> float:
    # Two norms (read and write), two residual additions (read two, write one; a mask with dropout).
    addition = 3.5 if model.dropout else 3
    return _HALF * model.sequence * model.hidden * (2 * 2 + 2 * addition)


def _traffic_routed(model: Transformer) -> float:
    # Sorting tokens by expert reads each once and writes it top_k times; adding up the experts'
    # outputs reads top_k and writes one.
    return _HALF * model.sequence * model.hidden * 2 * (1 + model.top_k)


def _renamed(operator: Operator, name: str, kind: str) -> Operator:
    from dataclasses import replace

    return replace(operator, name=name, kind=kind)


def expand(
    name: str, model: Transformer, global_batch: int, settings: Mapping[str, Any] | None = None
) -> Workload:
    """The workload of a transformer: embedding, blocks, head.

    Parameters
    ----------
    settings : mapping, optional
        ``bytes_weight``, ``bytes_gradient``, ``bytes_optimizer`` of the `Workload`.
    """
    s, h, vocabulary = model.sequence, model.hidden, model.vocabulary
    embedding = Operator(
        name="embedding",
        bytes_shard=_HALF * s * h,
        params=vocabulary * h,
        act_full=s * h,
        act_input=_SINGLE * s,
        tp_bytes=_HALF * s * h,
        tp_fwd=1,
        tensor_divides=(vocabulary,),
        x_divides=(h,),
        context_divides=s,
    )
    head = Operator(
        name="head",
        flops=2 * s * h * vocabulary,
        # The loss reads and writes the fp32 logits about three times.
        bytes_shard=3 * _SINGLE * s * vocabulary,
        params=vocabulary * h + (2 if model.biases else 1) * h,
        act_full=2 * _HALF * s * h,
        act_input=_HALF * s * h,
        tp_bytes=_HALF * s * h,
        tp_bwd=1,
        logits_bytes=_SINGLE * s * vocabulary,
        x_fwd=(_HALF * s * vocabulary,),
        tensor_divides=(vocabulary,),
        x_divides=(h,),
        context_divides=s,
    )
    dense = _block(model, sparse=False)
    sparse = _block(model, sparse=True) if model.experts else dense
    blocks = []
    for index in range(model.layers):
        is_sparse = bool(model.experts) and index >= model.dense_layers
        kind = "moe block" if is_sparse else "block"
        blocks.append(_renamed(sparse if is_sparse else dense, f"block {index}", kind))
    operators = [embedding, *blocks, *([head] if model.head else [])]
    edge = _HALF * s * h
    edges = tuple(Edge(i, i + 1, edge) for i in range(len(operators) - 1))
    tied = Tied(0, len(operators) - 1, vocabulary * h) if model.tied and model.head else None
    # The customary count of a model's FLOPs has the whole attention, masked or not.
    whole = 4 * s * s * model.query_width
    forward = sum(o.flops for o in operators) + model.layers * whole
    return Workload(
        name,
        tuple(operators),
        edges,
        global_batch,
        tied=tied,
        model_flops=3.0 * global_batch * forward,
        **dict(settings or {}),
    )
