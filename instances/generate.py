"""What ``nestopt generate`` makes: topologies, clusters, workloads and whole instances as JSON.

Each function takes a name, options and a seed, and returns the JSON-ready object with notes for
people. The object is a function of the name and the options alone: the same bytes in every process
and on every machine. The name in the object reproduces it (``nestopt solve --topology NAME``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nestopt.collective.model.collective import PATTERNS
from nestopt.collective.model.instance import CollectiveInstance
from nestopt.core.errors import UsageError, unknown_name
from nestopt.instances import heterogeneity, trees
from nestopt.instances.jobs import FAMILIES, random_workload
from nestopt.instances.network import strongly_connected
from nestopt.instances.options import Options, split_name
from nestopt.instances.spec import parse_spec
from nestopt.instances.streams import stream
from nestopt.instances.tenants import tenant_groups
from nestopt.instances.topologies import family_network, perturbed
from nestopt.placement.model.instance import PlacementInstance
from nestopt.placement.pricing.parameters import current_set

if TYPE_CHECKING:
    from collections.abc import Collection

    from nestopt.instances.network import Network
    from nestopt.placement.model.cluster import Cluster
    from nestopt.placement.model.workload import Workload

__all__ = [
    "KINDS",
    "Generated",
    "generate",
    "generate_cluster",
    "generate_instance",
    "generate_topology",
    "generate_workload",
]

KINDS = ("topology", "cluster", "workload", "instance")


@dataclass(frozen=True, slots=True)
class Generated:
    """A generated object.

    Attributes
    ----------
    data : dict
        JSON of schema ``nestopt.topology/1``, ``cluster/1``, ``workload/1`` or ``instance/1``.
    notes : dict
        What was drawn: counts, failed parts by name, how often failures were drawn.
    """

    data: dict[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)


def generate(
    kind: str, spec: str, options: Options | None = None, *, tenants: str | None = None
) -> Generated:
    """The object of one of `KINDS`; `tenants` is for instances of collectives only.

    Raises
    ------
    UsageError
        If the kind or a name is unknown, or an option does not go with the kind.
    InputError
        If a parameter is wrong.
    """
    if kind not in KINDS:
        raise unknown_name("kind", kind, KINDS)
    if tenants is not None and kind != "instance":
        raise UsageError(f"--tenants goes with an instance, not with a {kind}")
    chosen = options or Options()
    if kind == "instance":
        return generate_instance(spec, chosen, tenants=tenants)
    made = {
        "topology": generate_topology,
        "cluster": generate_cluster,
        "workload": generate_workload,
    }
    return made[kind](spec, chosen)


def _merged(spec: str, options: Options, recipes: Collection[str]) -> tuple[str, Options]:
    """The base of a name, and the options of its suffix and of the command line together."""
    base, own = split_name(spec, recipes)
    if options.fail_rates and own.fail_rates:
        raise UsageError("failure rates are given twice, in the name and as an option")
    rates = options if options.fail_rates else own
    return base, Options(
        seed=options.seed or own.seed,
        heterogeneity=(*own.heterogeneity, *options.heterogeneity),
        fail_npus=options.fail_npus or own.fail_npus,
        fail_links=options.fail_links or own.fail_links,
        fail_groups=(*own.fail_groups, *options.fail_groups),
        fail_rates=rates.fail_rates,
        days=rates.days,
        connected=options.connected or own.connected,
    )


def _network(spec: str, options: Options) -> tuple[Network, dict[str, Any]]:
    base, merged = _merged(spec, options, heterogeneity.RECIPES)
    whole = family_network(base)
    network, failures, draws = perturbed(whole, merged)
    cables = whole.cables()
    notes = {
        "npus": len(network.npus),
        "switches": int(network.is_switch.sum()),
        "links": network.num_links,
        "failed_nodes": [whole.node_names[node] for node in failures.nodes],
        "failed_cables": len({int(cables[link]) for link in failures.links}),
        "draws": draws,
        "connected": strongly_connected(network),
    }
    return network, notes


def generate_topology(spec: str, options: Options | None = None) -> Generated:
    """A network (``nestopt.topology/1``) of a name such as ``torus2d:8x8``."""
    network, notes = _network(spec, options or Options())
    return Generated(network.topology().to_json(), notes)


def _cluster(spec: str, options: Options) -> tuple[Cluster, dict[str, Any]]:
    base, merged = _merged(spec, options, trees.RECIPES)
    cluster = trees.perturbed_cluster(trees.base_cluster(base), merged)
    notes = {
        "devices": cluster.num_devices,
        "failed": list(cluster.failed),
        "types": [t.name for t in cluster.types],
        "groups": [len(sizes) for sizes in cluster.sizes],
    }
    return cluster, notes


def generate_cluster(spec: str, options: Options | None = None) -> Generated:
    """A cluster (``nestopt.cluster/1``) of a name such as ``tree:8x4x2`` or ``dgx-h100-512``."""
    cluster, notes = _cluster(spec, options or Options())
    return Generated(cluster.to_json(), notes)


def _workload(spec: str, options: Options) -> Workload:
    from nestopt.instances.workloads import by_name

    if replace(options, seed=0) != Options():
        raise UsageError("a workload takes no option but the seed")
    if parse_spec(spec).family in FAMILIES:
        if options.seed and "seed=" not in spec:
            separator = "," if ":" in spec else ":"
            spec = f"{spec}{separator}seed={options.seed}"
        return random_workload(spec)
    return by_name(spec)


def generate_workload(spec: str, options: Options | None = None) -> Generated:
    """A workload (``nestopt.workload/1``) of a name such as ``random-dag:12`` or ``gpt3-175b``."""
    workload = _workload(spec, options or Options())
    notes = {
        "operators": workload.num_operators,
        "edges": len(workload.edges),
        "parameters": workload.total_params,
    }
    return Generated(workload.to_json(), notes)


def generate_instance(
    spec: str,
    options: Options | None = None,
    *,
    tenants: str | None = None,
    latency: str = "blocking",
) -> Generated:
    """A whole instance, ``WORKLOAD@CLUSTER`` or ``COLLECTIVE@TOPOLOGY``.

    The options apply to the cluster or the topology, the seed also to a random workload.

    Parameters
    ----------
    tenants : str, optional
        Groups of NPUs (`nestopt.instances.tenants`) that run the collective at the same time.
    latency : str
        Of collectives: ``"blocking"`` or ``"pipelined"``.

    Raises
    ------
    UsageError
        If a name is unknown or there is no ``@``.
    InputError
        If a parameter is wrong.
    """
    chosen = options or Options()
    job, at, place = spec.partition("@")
    if not at or not job or not place:
        raise UsageError(f"{spec!r}; expected WORKLOAD@CLUSTER or COLLECTIVE@TOPOLOGY")
    if parse_spec(job.partition(";")[0]).family in PATTERNS:
        return _collective(job, place, chosen, tenants, latency)
    if tenants is not None:
        raise UsageError("--tenants goes with a collective")

    workload = _workload(job, Options(seed=chosen.seed))
    cluster, notes = _cluster(place, chosen)
    notes["operators"] = workload.num_operators
    instance = PlacementInstance(workload, cluster, pricing=current_set().name)
    return Generated(instance.to_json(), notes)


def _collective(
    job: str, place: str, options: Options, tenants: str | None, latency: str
) -> Generated:
    from nestopt.instances.collectives import by_name

    network, notes = _network(place, options)
    spec = by_name(job)
    if tenants is not None:
        if any(part.npus is not None for part in spec.jobs):
            raise UsageError(f"{job} names its NPUs; --tenants cannot share them out")
        positions = range(len(network.npus))
        groups = tenant_groups(positions, tenants, stream(options.seed, "tenants"))
        notes["tenants"] = [[int(network.npus[i]) for i in group] for group in groups]
        parts = tuple(
            replace(part, npus="+".join(map(str, group))) for group in groups for part in spec.jobs
        )
        spec = replace(spec, name=f"{job} ({tenants})", jobs=parts)
    topology = network.topology()
    instance = CollectiveInstance(topology, spec.on(topology), latency)
    return Generated(instance.to_json(), notes)
