"""The keys of names: of ``llama3-70b,seq=8192,batch=1024``, of ``dgx-h100-64+fail:13``.

`nestopt methods` and ``nestopt solve --help`` print them; tests hold them against the readers.
"""

from __future__ import annotations

from nestopt.core.settings import Setting

__all__ = ["RECIPE_KEYS"]

_MODEL = "the model's"


def _size(key: str, meaning: str, example: int, low: int = 1) -> Setting:
    return Setting(key, "whole number", _MODEL, meaning, f"{key}={example}", low=low)


def _switch(key: str, meaning: str) -> Setting:
    return Setting(key, "0 or 1", _MODEL, meaning, f"{key}=1", ("0", "1"))


_WORKLOAD = (
    _size("batch", "Global batch, in sequences.", 1024),
    _size("seq", "Tokens of a sequence (also sequence=).", 8192),
    _size("layers", "Transformer blocks.", 80),
    _size("hidden", "Width of the residual stream.", 8192),
    _size("heads", "Attention heads.", 64),
    _size("vocabulary", "Entries of the vocabulary.", 128256),
    _size("kv_heads", "Key and value heads; 0: as many as heads.", 8, 0),
    _size("head_size", "Width of a head; 0: hidden / heads.", 128, 0),
    _size("ffn", "Inner width of the dense feed-forward network; 0: 4 x hidden.", 28672, 0),
    _switch("gated", "Three feed-forward matrices (SwiGLU) in place of two."),
    _size("experts", "Routed experts of a block; 0: dense.", 8, 0),
    _size("top_k", "Experts that a token visits.", 2, 0),
    _size("shared_experts", "Experts that every token visits.", 1, 0),
    _size("expert_ffn", "Inner width of one expert.", 2048, 0),
    _size("dense_layers", "Leading blocks that stay dense.", 3, 0),
    _switch("tied", "The head shares the embedding's matrix."),
    _switch("flash", "Attention keeps no matrix of scores."),
    _switch("causal", "Flash attention skips what the causal mask hides."),
    _switch("dropout", "Blocks have dropout, whose masks are kept."),
    _switch("grouped", "Experts run as one grouped product, filled up to whole tiles."),
    _switch("lean", "The backward pass recomputes outputs of norms and activations."),
    _switch("biases", "Matrices and norms have biases."),
    _switch("head", "The model ends in a language-modelling head."),
)
_FAILURES = (
    Setting("+fail:", "numbers", "none", "These devices have failed (as --fail).", "+fail:13,200"),
    Setting("+fail-npus:", "whole number", "0", "So many random devices have failed.",
            "+fail-npus:2", low=0),
    Setting("+fail-group:", "KIND,K", "none", "K whole groups have failed (node, rack, ...).",
            "+fail-group:node,1"),
    Setting("+fail-rates:", "NAME,days=D", "none", "What fails in D days at published rates.",
            "+fail-rates:llama3,days=10"),
    Setting("+seed:", "whole number", "0", "Seed of all random choices of the name.", "+seed:1",
            low=0),
)  # fmt: skip
_CLUSTER = (
    *_FAILURES,
    Setting("+mix:", "TYPE,TYPE,...", "none", "Every group takes one of these device types.",
            "+mix:h100,a100"),
    Setting("+memory:", "fractions", "1", "Every group's devices have one of these fractions of "
            "their memory.", "+memory:1,1/2"),
    Setting("+uneven:", "fraction", "0", "Every group loses up to this fraction of its devices.",
            "+uneven:0.25"),
    Setting("+uplink:", "LOW,HIGH", "1", "Factors on the groups' uplinks; +port: and +latency: "
            "alike.", "+uplink:1/2,2"),
    Setting("+degraded-links:", "COUNT,FACTOR", "none", "So many groups keep this fraction of "
            "their uplink.", "+degraded-links:2,1/2"),
    Setting("+degraded-devices:", "COUNT,FACTOR", "none", "So many devices keep this fraction of "
            "their FLOP/s.", "+degraded-devices:2,1/2"),
)  # fmt: skip
_TOPOLOGY = (
    Setting("bw", "bandwidth, one a tier apart by colons", "the family's", "Bandwidth of a link.",
            "bw=50GB/s"),
    Setting("alpha", "time, one a tier apart by colons", "the family's", "Latency of a link.",
            "alpha=0.7us"),
    Setting("multicast", "yes or no", "no", "Switches copy chunks.", "multicast=yes"),
    Setting("reduce", "yes or no", "no", "Switches add partial sums.", "reduce=yes"),
    *_FAILURES,
    Setting("+fail-links:", "whole number", "0", "So many random links have failed.",
            "+fail-links:3", low=0),
    Setting("+connected", "no value", "off", "Failures are drawn until the rest is connected.",
            "+connected"),
    Setting("+log-uniform:, +lognormal:, +choice:, +tier:, +group:, +degraded:", "recipe", "none",
            "Links of different speeds.", "+log-uniform:0.5,2"),
)  # fmt: skip
_COLLECTIVE = (
    Setting("buffer", "bytes", "none", "Bytes that an NPU ends with (reductions, All-to-All: "
            "begins with), as benchmarks call the size.", "buffer=64MiB"),
    Setting("size", "bytes", "1MB", "Bytes of one chunk (also chunk=).", "size=16MiB"),
    Setting("total", "bytes", "none", "As buffer; refused where it does not divide.",
            "total=64MiB"),
    Setting("chunks", "whole number", "1", "Chunks an NPU (of All-to-All: a pair).", "chunks=4",
            low=1),
    Setting("npus", "positions", "all", "The NPUs that take part.", "npus=0-7"),
    Setting("root", "position", "0", "Root of a rooted pattern.", "root=3", low=0),
)  # fmt: skip

RECIPE_KEYS: dict[str, tuple[Setting, ...]] = {
    "workload": _WORKLOAD,
    "cluster": _CLUSTER,
    "collective": _COLLECTIVE,
    "topology": _TOPOLOGY,
}
"""By option of the command line."""
