"""The settings of collectives: of their instances and of the methods."""

from __future__ import annotations

from nestopt.core.settings import Setting

__all__ = ["SETTINGS"]

_YES_NO = ("yes", "no")

_ROWS: dict[str, Setting] = {
    "latency": Setting("latency", "word", "blocking", "Whether a send occupies its link for "
                       "latency and transfer (blocking), or for the transfer alone (pipelined).",
                       "latency=pipelined", ("blocking", "pipelined")),
    "sums": Setting("sums", "word", "copied", "Whether a partial sum that is sent stays "
                    "where it was (copied) or is gone from there (moved).", "sums=moved",
                    ("copied", "moved")),
    # greedy
    "policy": Setting("policy", "word", "all, in turn", "How chunks are matched to links.",
                      "policy=rarest",
                      ("rarest", "critical-path", "random", "fifo", "patient")),
    "restarts": Setting("restarts", "whole number", "by effort", "Restarts of the matcher.",
                        "restarts=8", low=0),
    "effort": Setting("effort", "number", "1", "Time that improving may take, as a factor.",
                      "effort=3", low=1e-9, whole=False),
    "store": Setting("store", "directory", "beside --output", "Where a schedule too large for JSON "
                     "goes.", "store=ag.schedule"),
    # exact models
    "model": Setting("model", "word", "auto", "Which CP-SAT model: a time grid, or intervals.",
                     "model=interval", ("auto", "grid", "interval")),
    "symmetry": Setting("symmetry", "word", "yes", "Whether symmetry of the network is broken.",
                        "symmetry=no", _YES_NO),
    "incumbent": Setting("incumbent", "word", "greedy", "The schedule to start from.",
                         "incumbent=none", ("greedy", "none")),
    "bound": Setting("bound", "word", "best", "The lower bound to start from: the best known, or "
                     "that of distances alone.", "bound=none", ("best", "none")),
    "tick": Setting("tick", "whole number", "divides every duration", "Picoseconds of the time "
                    "grid; a coarser one gives a bound and a schedule.", "tick=1000000", low=1),
    "deterministic-time": Setting("deterministic-time", "number", "none", "Limit in CP-SAT's own "
                                  "repeatable unit.", "deterministic-time=10", low=0, whole=False),
    "steps": Setting("steps", "whole number", "", "Steps of an SCCL algorithm.", "steps=2", low=1),
    "rounds": Setting("rounds", "whole number", "", "Rounds of an SCCL algorithm.", "rounds=3",
                      low=1),
    "iterations": Setting("iterations", "whole number", "1000", "Neighbourhoods at most.",
                          "iterations=200", low=1),
    "lns.effort": Setting("effort", "whole number", "2", "Work of a neighbourhood, as a factor.",
                          "effort=4", low=1),
    "trees.chunks": Setting(
        "chunks",
        "whole number or auto",
        "the collective's",
        "Pieces into which the data is cut along the trees.",
        "chunks=auto",
    ),
    # baselines
    "order": Setting("order", "word", "short", "Order of the ring: a short tour, or by number.",
                     "order=natural", ("short", "natural")),
    "unicast": Setting("unicast", "word", "no", "Whether every message goes by itself, copies of "
                       "one chunk too.", "unicast=yes", _YES_NO),
    "dims": Setting("dims", "sizes joined by x", "the topology's", "Sizes of the dimensions.",
                    "dims=4x4"),
}  # fmt: skip

SETTINGS = _ROWS
"""By key, or by ``METHOD.KEY`` where a method gives a key a meaning of its own."""
