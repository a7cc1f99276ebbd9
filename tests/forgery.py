"""Forged result files: honest ones with one statement changed, and what is true of each."""

from __future__ import annotations

import contextlib
import copy
import functools
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from nestopt.core.errors import CheckError, InputError, NestoptError
from nestopt.core.io import sha256_of, write_json
from nestopt.core.options import SolveOptions
from nestopt.core.problem import get_problem
from nestopt.core.registry import get_method, named
from nestopt.core.result import Result
from nestopt.core.verify import verify_file

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from nestopt.core.verdict import Verdict

__all__ = ["Mutant", "forgeries", "honest_files", "judge"]

Json = Any
VALUES: list[Json] = [
    0, 1, -1, 2**31, 2**63 - 1, 2**63, 10**30, 1e308, -1e308, 0.5, "", "1", "abc", "inf", "-inf",
    True, False, None, [], {}, [0], {"a": 1},
]  # fmt: skip
UNVERIFIED = ("seconds", "seed", "threads", "versions", "stats", "method", "instance.name")
"""What a pass does not speak of."""
CLAIMS = (
    "witness.space", "witness.bound", "witness.relaxes", "witness.general_bound", "witness.open",
    "witness.name", "witness.arithmetic", "infeasible_because", "termination.limit",
)  # fmt: skip
"""What a pass repeats as a claim, if at all."""


class Mutant(NamedTuple):
    """A forged file: of which honest one, where it was changed, and its data."""

    seed: str
    place: str
    data: Json


# --- honest files --------------------------------------------------------------------------------


def _collective(topology: str, pattern: str, method: str, **given: Json) -> Json:
    from nestopt.collective.model.collective import Collective
    from nestopt.collective.model.instance import CollectiveInstance

    network = named("topology", topology)
    latency, sums = given.pop("latency", "blocking"), given.pop("sums", "copied")
    settings = given.pop("settings", {})
    npus = given.pop("npus", network.npus)
    instance = CollectiveInstance(
        network, Collective.of(pattern, npus, **given), latency=latency, sums=sums
    )
    return _solved("collective", instance, method, settings)


def _placement(name: str, method: str, **settings: str) -> Json:
    from nestopt.instances.library import load

    return _solved("placement", load(name), method, settings)


def _solved(problem: str, instance: Json, method: str, settings: dict[str, str]) -> Json:
    options = SolveOptions(seed=1, threads=1, set=settings)
    result = get_method(problem, method)(instance, options)
    result.settings = dict(settings) | result.settings
    return json.loads(json.dumps(result.to_json()))


def _maxload() -> Json:
    from nestopt.placement.partitioning.maxload import MaxLoadProblem, Operator, solve_dp

    operators = (
        Operator(0, 9.0, 1.0, 1.0, 0.5, colour=0, on_accelerator=False),
        Operator(1, 2.0, 50.0, 2.0, 0.5, colour=1),
        Operator(2, 3.0, 50.0, 3.0, 0.5, colour=3),
        Operator(3, 2.0, 50.0, 1.0, 0.5, backward=True, colour=3),
        Operator(4, 2.0, 50.0, 1.0, 0.5, backward=True, colour=1),
    )
    problem = MaxLoadProblem("training", 2, 1, 8.0, operators, ((0, 1), (1, 2), (2, 3), (3, 4)))
    return json.loads(json.dumps(solve_dp(problem, SolveOptions()).to_json()))


def _piper() -> Json:
    from nestopt.placement.partitioning.piper import Layer, PiperProblem, Variant, solve_dp

    layers = tuple(
        Layer(
            i,
            f"layer{i}",
            {1: (Variant("plain", 4.0 - 2 * (i == 0), 1.0, 1.0), Variant("slow", 5.0, 0.5, 1.0))},
            {1: 3.0},
            {1: {}},
            {1: {}},
        )
        for i in range(3)
    )
    problem = PiperProblem("chain", 3, 6.5, 64.0, 4, layers, ((0, 1, 2.0), (1, 2, 2.0)))
    return json.loads(json.dumps(solve_dp(problem, SolveOptions()).to_json()))


def _unsolved(data: Json) -> Json:
    """The same result without its solution: a bound alone."""
    data = copy.deepcopy(data)
    data["termination"] = {"reason": "no-solution", "limit": "time"}
    return data | {"solution": None, "objective": None, "gap": None}


_QUICK: dict[str, Callable[[], Json]] = {
    "ag-greedy": lambda: _collective("mesh2d:2x3", "all-gather", "greedy"),
    "ar-copied": lambda: _collective("ring:4", "all-reduce", "recursive-doubling"),
    "ar-moved": lambda: _collective("mesh2d:2x2", "all-reduce", "greedy", sums="moved"),
    "sc-piped": lambda: _collective("mesh2d:2x3", "scatter", "greedy", latency="pipelined", root=1),
    "a2a-direct": lambda: _collective("ring:4", "all-to-all", "direct"),
    "ag-cut-off": lambda: _collective("mesh2d:1x4+fail:1", "all-gather", "greedy"),
    "sccl-none": lambda: _collective(
        "ring:4", "all-gather", "sccl", settings={"steps": "1", "rounds": "1"}
    ),
    "chain": lambda: _placement("chain4-tree2x2", "dp"),
    "dag": lambda: _placement("dag6-tree2x2", "dp"),
    "bottleneck": lambda: _placement("chain4-bottleneck", "dp"),
    "grid": lambda: _placement("chain6-tree2x2", "grid"),
    "failed": lambda: _placement("chain6-failed", "dp"),
    "max-load": _maxload,
    "piper": _piper,
}
_MORE: dict[str, Callable[[], Json]] = {
    "ag-unicast": lambda: _collective(
        "ring:5", "all-gather", "direct", settings={"unicast": "yes"}
    ),
    "ag-cpsat": lambda: _collective("mesh2d:2x2+log-uniform:0.5,2+seed:1", "all-gather", "cpsat"),
    "ag-search": lambda: _collective(
        "ring:5", "all-gather", "cpsat", chunks_per_npu=2, settings={"bound": "none"}
    ),
    "ag-milp": lambda: _collective("ring:3", "all-gather", "milp"),
    "ag-lns": lambda: _collective("mesh2d:2x3", "all-gather", "lns", settings={"iterations": "3"}),
    "ag-switch": lambda: _collective("dgx-h100:1x4", "all-gather", "greedy"),
    "ag-failed": lambda: _collective("mesh2d:3x3+fail:4", "all-gather", "greedy"),
    "ag-trees": lambda: _collective("ring:4", "all-gather", "trees", chunks_per_npu=4),
    "ag-ring": lambda: _collective("torus2d:3x3", "all-gather", "ring", chunks_per_npu=2),
    "ar-one-shot": lambda: _collective("fully-connected:4", "all-reduce", "one-shot"),
    "ar-dbt": lambda: _collective("fully-connected:4", "all-reduce", "dbt"),
    "ar-blue": lambda: _collective("torus2d:2x2", "all-reduce", "hierarchical"),
    "rs-greedy": lambda: _collective("torus2d:2x3", "reduce-scatter", "greedy"),
    "red-greedy": lambda: _collective("mesh2d:2x3", "reduce", "greedy", root=1),
    "bc-greedy": lambda: _collective("mesh2d:2x3", "broadcast", "greedy", root=2, chunks_per_npu=3),
    "ga-group": lambda: _collective("mesh2d:2x3", "gather", "greedy", npus=[0, 1, 2, 4]),
    "a2a-short": lambda: _collective("star:4", "all-to-all", "shortest-path"),
    "sccl": lambda: _collective(
        "ring:4", "all-gather", "sccl", settings={"steps": "2", "rounds": "2"}
    ),
    "milp": lambda: _placement("chain4-tree2x2", "milp"),
    "cpsat-general": lambda: _placement("chain4-tree2x2-general", "cpsat"),
    "lns-general": lambda: _placement("chain4-tree2x2-general", "lns", iterations="50"),
    "megatron": lambda: _placement("chain6-failed", "megatron"),
    "mixed": lambda: _placement("chain6-mixed", "dp"),
    "degraded": lambda: _placement("chain8-degraded", "dp"),
    "random": lambda: _placement("chain4-tree2x2", "random", iterations="50"),
    "tight": lambda: _placement("chain6-tight", "dp"),
    "interleaved": lambda: _interleaved(),
    "no-plan": lambda: _no_plan(),
}


def _interleaved() -> Json:
    from dataclasses import replace

    from nestopt.instances.library import load
    from nestopt.placement.model.words import ScheduleName

    instance = load("chain4-tree2x2")
    space = replace(instance.space, schedules=(ScheduleName.INTERLEAVED,), tensor=(1,))
    return _solved("placement", replace(instance, space=space), "dp", {})


def _no_plan() -> Json:
    from dataclasses import replace

    from nestopt.instances.library import load

    instance = load("chain4-tree2x2")
    kinds = tuple(replace(kind, memory=5e9) for kind in instance.cluster.types)
    cluster = replace(instance.cluster, types=kinds)
    return _solved("placement", replace(instance, cluster=cluster), "dp", {})


def honest_files(*, more: bool) -> dict[str, Json]:
    """Results of many methods, patterns and ends, by name; with `more` three times as many."""
    files = {name: make() for name, make in (_QUICK | (_MORE if more else {})).items()}
    for name in ("ag-greedy", "chain", "a2a-direct", "grid"):
        files[f"{name}-bound"] = _unsolved(files[name])
    return files


# --- forgeries -----------------------------------------------------------------------------------


def forgeries(rng: random.Random, files: dict[str, Json]) -> Iterator[Mutant]:
    """Endlessly: a honest file with a leaf changed, deleted, added, swapped or exchanged.

    Rare places are tried as often as frequent ones: a place is drawn by its shape, where all
    indices are alike.
    """
    places = {name: _shapes(data) for name, data in files.items()}
    while True:
        name = rng.choice(list(files))
        data = copy.deepcopy(files[name])
        what = rng.random()
        if what < 0.08:
            place = _exchange(rng, data, files, name)
        elif what < 0.2:
            place = _concert(rng, data, places[name])
        else:
            place = ""
            for _ in range(rng.choice((1, 1, 1, 1, 2))):
                path = rng.choice(rng.choice(list(places[name].values())))
                with contextlib.suppress(KeyError, IndexError, TypeError):
                    place += ("; " if place else "") + _change(rng, data, path)
        if "instance" in place and rng.random() < 0.8:
            with contextlib.suppress(Exception):
                data["instance"]["sha256"] = sha256_of(data["instance"]["data"])
                place += " (rehashed)"
        yield Mutant(name, place, data)


def _shapes(value: Json) -> dict[tuple[str, ...], list[tuple[str | int, ...]]]:
    found: dict[tuple[str, ...], list[tuple[str | int, ...]]] = {}

    def visit(value: Json, path: tuple[str | int, ...]) -> None:
        if path:
            shape = tuple("*" if isinstance(key, int) else key for key in path)
            found.setdefault(shape, []).append(path)
        if isinstance(value, dict):
            for key, each in value.items():
                visit(each, (*path, key))
        elif isinstance(value, list):
            for index, each in enumerate(value):
                visit(each, (*path, index))

    visit(value, ())
    return found


def _change(rng: random.Random, data: Json, path: tuple[str | int, ...]) -> str:
    home = data
    for key in path[:-1]:
        home = home[key]
    key, where = path[-1], ".".join(map(str, path))
    old = home[key]
    action = rng.random()
    if action < 0.12:
        del home[key]
        return f"{where} deleted"
    if action < 0.2 and isinstance(old, dict):
        old["trust"] = "me"
        return f"{where}.trust added"
    if action < 0.35 and isinstance(old, list) and len(old) > 1:
        a, b = rng.sample(range(len(old)), 2)
        old[a], old[b] = old[b], old[a]
        return f"{where} swapped {a} and {b}"
    if action < 0.42 and isinstance(old, list) and old:
        old.append(copy.deepcopy(rng.choice(old)))
        return f"{where} one entry twice"
    values = list(VALUES)
    if isinstance(old, (int, float)):
        values += 2 * [old + 1, old - 1, old * 2, -old, old / 2, old * (1 + 1e-8), str(old)]
        values += [float(old)] if abs(old) < 1e300 else []
    home[key] = copy.deepcopy(rng.choice(values))
    return f"{where} = {home[key]!r:.40}"


def _exchange(rng: random.Random, data: Json, files: dict[str, Json], name: str) -> str:
    alike = [other for other in files if files[other]["problem"] == data["problem"]]
    other = rng.choice(alike)
    blocks = [
        ("instance",), ("solution",), ("witness",), ("termination",), ("settings",),
        ("solution", "objective"), ("bound", "witness"), ("bound",), ("objective",),
        ("solution", "objective", "bound", "witness", "termination", "gap"),
    ]  # fmt: skip
    chosen = rng.choice(blocks)
    for key in chosen:
        data[key] = copy.deepcopy(files[other][key])
    return f"{', '.join(chosen)} of {other}"


def _concert(rng: random.Random, data: Json, places: Json) -> str:
    """Several statements changed so that they agree with each other."""
    kind = rng.choice(("bound", "bound", "objective", "optimal", "infeasible", "setting"))
    bound, objective, witness = data["bound"], data["objective"], data["witness"]
    if kind == "bound" and isinstance(bound, (int, float)):
        raised = bound + 1 if isinstance(bound, int) else bound * 1.001
        data.update(_unsolved(data) | {"bound": raised})
        place = "bound raised, without a solution"
        if witness and "value" in witness:
            data["witness"]["value"] = raised
        inner = [shape for shape in places if shape[0] == "witness" and len(shape) > 1]
        if inner and rng.random() < 0.8:
            with contextlib.suppress(KeyError, IndexError, TypeError):
                place += "; " + _change(rng, data, rng.choice(places[rng.choice(inner)]))
        return place
    if kind == "objective" and objective is not None:
        lower = objective - rng.choice((1, 1000, 10**9)) if isinstance(objective, int) else 0
        data["objective"] = lower or objective * 0.999
        if isinstance(data["solution"], dict) and "makespan_ps" in data["solution"]:
            data["solution"]["makespan_ps"] = data["objective"]
        data["bound"], data["witness"], data["gap"] = 0, None, None
        data["termination"] = {"reason": "feasible", "limit": "time"}
        return "objective lowered, with all that depends on it"
    if kind == "optimal" and objective is not None:
        data["termination"] = {"reason": "optimal", "limit": "none"}
        data["bound"], data["gap"] = objective, 0.0
        if witness and "value" in witness:
            data["witness"]["value"] = objective
        return "said to be optimal"
    if kind == "infeasible":
        data.update(_unsolved(data))
        data["termination"] = {"reason": "infeasible", "limit": "none"}
        data |= {"bound": "inf", "infeasible_because": ["memory: it does not fit"]}
        return "said to be infeasible"
    settings = {
        "space": "full", "tensor": "1", "objective": "bottleneck", "latency": "pipelined",
        "sums": "moved", "schedule": "gpipe", "recompute": "none", "structure": "general",
    }  # fmt: skip
    key = rng.choice(list(settings))
    data["settings"][key] = settings[key]
    return f"settings.{key} = {settings[key]}"


# --- what is true --------------------------------------------------------------------------------


def judge(mutant: Mutant, honest: Json, path: Path) -> str:
    """How the checker takes a forged file, and whether it is right.

    Returns
    -------
    str
        ``refused``, ``true`` (it says the same, or it is so), ``unverified`` (the change is of what
        a pass does not speak of), ``claimed``; or ``FALSE: ...`` for a pass of what is not so and
        ``CRASH: ...`` for another exception than the checker's own.
    """
    write_json(path, mutant.data)
    try:
        verdict = verify_file(str(path))
    except (CheckError, InputError):
        return "refused"
    except Exception as error:
        return f"CRASH: {error!r:.200}"
    if _stripped(mutant.data) == _stripped(honest):
        return "unverified"
    other = _other_type(mutant.data, honest)
    if other:
        return f"FALSE: {other} passes"
    result = Result.from_json(mutant.data)
    try:
        wrong = _unknown_keys(mutant.data, result) or _contradicted(result, verdict)
    except NestoptError as error:
        wrong = f"the oracle refuses it: {error}"
    except Exception as error:
        return f"CRASH: of the method: {error!r:.200}"
    if wrong:
        return f"FALSE: {wrong}"
    return "claimed" if verdict.claimed else "true"


def _stripped(data: Json) -> str:
    data = copy.deepcopy(data)
    for where in UNVERIFIED:
        home, _, key = where.rpartition(".")
        (data[home] if home else data).pop(key, None)
    return json.dumps(data, sort_keys=True)


def _other_type(forged: Json, honest: Json, where: str = "") -> str | None:
    """Where a truth value or a text stands for a number, or the other way round."""
    if where in ("settings", "bound", "gap", *UNVERIFIED):
        return None
    if isinstance(forged, dict) and isinstance(honest, dict):
        pairs = [(f"{where}.{key}".strip("."), key) for key in forged.keys() & honest.keys()]
        found = (_other_type(forged[key], honest[key], path) for path, key in pairs)
        return next(filter(None, found), None)
    if isinstance(forged, list) and isinstance(honest, list):
        found = (_other_type(a, b, where) for a, b in zip(forged, honest))
        return next(filter(None, found), None)
    kinds = [
        "truth" if isinstance(v, bool) else "number" if isinstance(v, (int, float)) else "text"
        for v in (forged, honest)
        if v is not None and not isinstance(v, (dict, list))
    ]
    if len(kinds) == 2 and kinds[0] != kinds[1]:
        return f"{where}: {forged!r:.40} for {honest!r:.40}"
    return None


def _unknown_keys(data: Json, result: Result) -> str | None:
    """What is in the file and in nothing that was read from it."""
    text = json.dumps({k: v for k, v in data.items() if k not in ("stats", "settings", "versions")})
    return "an unknown key passes" if '"trust"' in text else None


def _contradicted(result: Result, verdict: Verdict) -> str | None:
    """What is not so of a result that passed."""
    data = result.instance["data"]
    instance = get_problem(result.problem).from_json(data)
    best = _best(result.problem, json.dumps(data))
    feasible = result.solution_json is not None
    if feasible and best == math.inf:
        return "the instance has no solution"
    proved = [line for line in verdict.verified if line.startswith("infeasible")]
    if result.termination.reason.value == "infeasible":
        if best < math.inf and proved:
            return f"not infeasible: {best}"
    elif result.bound > best * (1 + 1e-9) and not any("bound" in line for line in verdict.claimed):
        return f"bound {result.bound} above {best}"
    if not feasible:
        return None
    if result.problem == "collective":
        found = replayed(instance, result.solution_json)
    else:
        found = _priced(instance, result)
    if isinstance(found, str):
        return found
    if result.objective is None or not math.isclose(found, result.objective, rel_tol=1e-9):
        return f"objective {result.objective}, not {found}"
    if "makespan_ps" in (result.solution_json or {}) and found != result.objective:
        return f"objective {result.objective}, not {found}"
    return None


@functools.lru_cache(maxsize=4096)
def _best(problem: str, text: str) -> float:
    """The best objective that a method finds: of placement over the space, the least."""
    instance = get_problem(problem).from_json(json.loads(text))
    method = "greedy" if problem == "collective" else "dp"
    settings = {"effort": "0.2"} if problem == "collective" else {}
    options = SolveOptions(threads=1, set=settings, time_limit=20.0)
    result = get_method(problem, method)(instance, options)
    return math.inf if result.objective is None else float(result.objective)


def _priced(instance: Json, result: Result) -> float | str:
    """The price of a plan by what the methods price by, or of another model its own figure."""
    if result.instance["data"].get("schema", "").startswith(("nestopt.maxload", "nestopt.piper")):
        return float(result.objective or 0.0)
    from nestopt.placement.model.plan import Plan
    from nestopt.placement.pricing.evaluate import evaluate

    plan = Plan.from_json(result.solution_json or {})
    found = evaluate(instance.workload, instance.cluster, plan)
    return found.objective(instance.objective) if found.fits else "memory does not suffice"


def replayed(instance: Json, solution: Json) -> float | str:
    """The makespan of a schedule of few sends by sets of contributions; or what is wrong."""
    sends = solution["sends"]
    count = len(sends["chunk"])
    phase = sends.get("phase") or [0] * count
    topology, collective = instance.topology, instance.collective
    held: dict[tuple[int, int], list[tuple[int, frozenset[int]]]] = {}
    whole: dict[int, frozenset[int]] = {}
    first = 0
    for part in collective.parts:
        for chunk, source in enumerate(part.sources().tolist(), first):
            whole[chunk] = frozenset(part.npus.tolist() if part.reduction else [source])
            for node in whole[chunk]:
                own = frozenset([node])
                held[node, chunk] = [(-1, own)]
        first += part.num_chunks
    free = [0] * topology.num_links
    flights: list[tuple[int, int, int, frozenset[int]]] = []
    last = 0
    for i in sorted(range(count), key=lambda i: (sends["start_ps"][i], i)):
        chunk, link, now = sends["chunk"][i], sends["link"][i], sends["start_ps"][i]
        size = int(collective.chunk_sizes[chunk])
        for at, node, what, content in sorted(flights, key=lambda f: f[0]):
            if at <= now:
                held.setdefault((node, what), []).append((at, content))
        flights = [f for f in flights if f[0] > now]
        if now < free[link]:
            return f"send {i} overlaps"
        free[link] = now + int(instance.occupancy_ps(size)[link])
        tail, head = int(topology.src[link]), int(topology.dst[link])
        here = held.get((tail, chunk), [])
        if not here:
            return f"send {i}: nothing is there"
        content = _content(instance, solution, i, phase[i], here, whole[chunk])
        if content is None:
            return f"send {i}: what it carries is not there"
        if phase[i] == 1:
            keep = [] if topology.reduces[tail] else here[1:]
            held[tail, chunk] = keep
        arrival = now + int(instance.transfer_ps(size)[link])
        last = max(last, arrival)
        flights.append((arrival, head, chunk, content))
    for at, node, what, content in sorted(flights, key=lambda f: f[0]):
        held.setdefault((node, what), []).append((at, content))
    for chunk in range(collective.num_chunks):
        for node in collective.post(chunk).tolist():
            if not _makes(whole[chunk], [content for _, content in held.get((node, chunk), [])]):
                return f"chunk {chunk} is not whole at {node}"
    return last


def _content(
    instance: Json, solution: Json, send: int, phase: int, here: Json, whole: frozenset[int]
) -> frozenset[int] | None:
    contents = [content for _, content in here]
    if phase == 0:
        return whole if _makes(whole, contents) else None
    if phase == 1:
        link = solution["sends"]["link"][send]
        if not instance.topology.reduces[instance.topology.src[link]]:
            return contents[0]
        union = frozenset().union(*contents)
        return union if sum(map(len, contents)) == len(union) else None
    part, _ = instance.collective.locate(solution["sends"]["chunk"][send])
    npus = part.npus.tolist()
    index = solution["sends"]["content"][send]
    stated = frozenset(npus[a + j] for a, n in solution["sets"][index] for j in range(n))
    return stated if _makes(stated, contents) else None


def _makes(wanted: frozenset[int], contents: list[frozenset[int]]) -> bool:
    """Whether some of the sets are disjoint and make the wanted one."""
    if not wanted:
        return True
    low = min(wanted)
    return any(
        _makes(wanted - content, contents)
        for content in contents
        if low in content and content <= wanted
    )
