"""Which instances of the greedy study are the same network under other names of its NPUs.

Two networks are the same if a renaming of nodes maps links onto links with their latency and
bandwidth (networkx, VF2). All-Gather, All-to-All and All-Reduce over all NPUs look the same under
every renaming, so that their optimum is the same too. The result goes into
``records/greedy-gap-classes.json``: for each instance the first one that it equals, by name.

    python paper_figs/classes.py
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from figure_tools import Paths

from nestopt.core.errors import InputError
from nestopt.core.io import read_json, write_json
from nestopt.study.recipes import Recipe

if TYPE_CHECKING:
    from collections.abc import Iterable

STUDY = "greedy-gap"
CLASSES = "greedy-gap-classes.json"
PATTERNS = {"all-gather", "all-to-all", "all-reduce"}


def classes(names: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The first equal instance of each, both by name.

    Parameters
    ----------
    names : iterable of (str, str)
        Collective and topology.

    Raises
    ------
    InputError
        If a collective is not the same under every renaming.
    """
    from networkx import MultiDiGraph, is_isomorphic
    from networkx.algorithms.isomorphism import numerical_multiedge_match

    match = numerical_multiedge_match(["alpha", "bandwidth"], [0, 0])
    buckets: dict[Any, list[tuple[str, Any]]] = {}
    found = {}
    for collective, topology in names:
        pattern = collective.partition(":")[0]
        if pattern not in PATTERNS:
            raise InputError(f"{collective!r}; expected one of {', '.join(sorted(PATTERNS))}")
        recipe = Recipe("collective", {"collective": collective, "topology": topology}, {}, {})
        instance: Any = recipe.build(Path())
        network, graph = instance.topology, MultiDiGraph()
        graph.add_nodes_from(range(network.num_nodes))
        for link in range(network.num_links):
            graph.add_edge(
                int(network.src[link]),
                int(network.dst[link]),
                alpha=int(network.alpha_ps[link]),
                bandwidth=float(network.bandwidth[link]),
            )
        key = (
            collective,
            tuple(sorted(network.bandwidth)),
            tuple(sorted(dict(graph.degree).values())),
        )
        name = f"{collective} on {topology}"
        for first, other in buckets.setdefault(key, []):
            if is_isomorphic(graph, other, edge_match=match):
                found[name] = first
                break
        else:
            buckets[key].append((name, graph))
            found[name] = name
    return found


def read_classes(records: Path) -> dict[str, str]:
    """The classes that were written beside the records; empty where they were not."""
    path = records / CLASSES
    return read_json(path) if path.exists() else {}


def main() -> None:
    """Write the classes of the recorded study."""
    paths = Paths()
    names = sorted({str(row["instance"]["name"]) for row in paths.read(STUDY)})
    found = classes(tuple(name.split(" on ")) for name in names)  # type: ignore[misc]
    write_json(paths.records / CLASSES, dict(sorted(found.items())))
    print(f"{len(found)} instances, {len(set(found.values()))} distinct")


if __name__ == "__main__":
    main()
