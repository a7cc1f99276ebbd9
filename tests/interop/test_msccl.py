"""MSCCL XML: what is written is verified from the file; what is broken is refused."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import numpy as np
import pytest
from interop_cases import problem, solved, without_send

from nestopt.core.errors import CheckError, InputError
from nestopt.interop.msccl_check import check_algorithm
from nestopt.interop.msccl_file import parse_algorithm
from nestopt.interop.msccl_xml import XmlOptions, msccl_xml

if TYPE_CHECKING:
    from collections.abc import Callable

CASES = [
    ("all-gather", "torus2d:3x3", "greedy"),
    ("all-gather:chunks=3", "dgx1v", "greedy"),
    ("reduce-scatter", "mesh2d:3x3+fail-npus:1+seed:1", "greedy"),
    ("all-reduce", "switch:6", "greedy"),
    ("all-reduce", "switch:6,multicast=yes,reduce=yes", "greedy"),
    ("all-reduce", "ring:7", "dbt"),
    ("all-reduce", "ring:8", "rhd"),
    ("all-to-all", "mesh2d:2x3", "greedy"),
    ("all-to-all:chunks=2", "dgx-a100:2x4", "greedy"),
    ("all-gather", "dgx-h100:2x4", "greedy"),
]


def _xml(job: str, network: str, method: str = "greedy", **options: Any) -> str:
    instance = problem(job, network)
    return msccl_xml(instance, solved(instance, method)[1], XmlOptions(**options))


@pytest.mark.parametrize(("job", "network", "method"), CASES)
def test_what_is_written_passes_the_verifier_with_one_message_in_flight(
    job: str, network: str, method: str
) -> None:
    lines = check_algorithm(parse_algorithm(_xml(job, network, method)), in_flight=1)
    assert len(lines) == 4 and "exactly once" in lines[-1]


@pytest.mark.parametrize("job", ["all-gather", "reduce-scatter", "all-reduce"])
def test_in_place_and_out_of_place(job: str) -> None:
    for inplace in ("yes", "no", "both"):
        text = _xml(job, "torus2d:2x3", inplace=inplace, runtime="rccl")
        lines = check_algorithm(parse_algorithm(text))
        assert len(lines) == (7 if inplace == "both" else 4)
    assert 'coll="reducescatter"' in _xml("reduce-scatter", "ring:4", runtime="rccl")
    with pytest.raises(InputError, match="in place would overwrite"):
        _xml("all-to-all", "ring:4", inplace="yes")


def test_many_messages_of_a_pair_are_spread_over_channels() -> None:
    text = _xml("all-gather:chunks=400", "ring:2")
    algorithm = parse_algorithm(text)
    assert algorithm.nchannels == 2
    assert max(len(b.steps) for gpu in algorithm.gpus for b in gpu.blocks) <= 256
    with pytest.raises(InputError, match="more than 32 channels"):
        _xml("all-gather:chunks=9000", "ring:2")


@pytest.mark.parametrize(
    ("job", "network", "said"),
    [
        ("broadcast", "ring:4", "root"),
        ("all-gather:npus=0-3;all-gather:npus=4-7", "dgx1v", "2 collectives at once"),
        ("all-reduce:npus=half", "mesh2d:4x4", "relays"),
    ],
)
def test_what_the_format_cannot_say_is_refused(job: str, network: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        _xml(job, network)


def test_a_wrong_schedule_is_not_written() -> None:
    instance = problem("all-reduce", "torus2d:2x3")
    schedule = solved(instance)[1]
    refused = 0
    for index in range(schedule.num_sends):
        with pytest.raises(CheckError):
            msccl_xml(instance, without_send(schedule, index))
        refused += 1
    assert refused == schedule.num_sends > 10


def _remove_dependency(step: ElementTree.Element) -> bool:
    if step.get("depid") == "-1" or step.get("type") == "nop":
        return False
    step.set("depid", "-1")
    step.set("deps", "-1")
    return True


def _shift(name: str) -> Callable[[ElementTree.Element], bool]:
    def shift(step: ElementTree.Element) -> bool:
        used = {"srcoff": ("s", "rrc", "cpy"), "dstoff": ("r", "rrc", "cpy")}[name]
        if step.get("type") not in used:
            return False
        step.set(name, str(int(step.get(name, "0")) + (-1 if int(step.get(name, "0")) else 1)))
        return True

    return shift


def _retype(step: ElementTree.Element) -> bool:
    if step.get("type") != "rrc":
        return False
    step.set("type", "r")
    return True


def _again(step: ElementTree.Element) -> bool:
    """A plain receive adds what is there, too: counted twice, or added to nothing."""
    if step.get("type") != "r":
        return False
    step.set("type", "rrc")
    step.set("srcbuf", step.get("dstbuf", ""))
    step.set("srcoff", step.get("dstoff", ""))
    return True


@pytest.mark.parametrize(
    "mutate", [_remove_dependency, _shift("srcoff"), _shift("dstoff"), _retype, _again]
)
def test_every_mutation_of_a_step_is_refused(mutate: Callable[..., bool]) -> None:
    text = _xml("all-reduce", "torus2d:2x3")
    count = refused = harmless = 0
    steps = len(ElementTree.fromstring(text).findall(".//step"))
    for index in range(steps):
        root = ElementTree.fromstring(text)
        if not mutate(root.findall(".//step")[index]):
            continue
        count += 1
        try:
            check_algorithm(parse_algorithm(ElementTree.tostring(root, encoding="unicode")))
            harmless += 1
        except CheckError:
            refused += 1
    assert count > 5
    # the order of a link is kept by dependencies that the data do not need
    assert harmless == 0 or mutate is _remove_dependency
    assert refused > count / 2


def test_a_deleted_step_is_refused() -> None:
    text = _xml("all-gather", "torus2d:2x3")
    blocks = len(ElementTree.fromstring(text).findall(".//tb"))
    for index in range(blocks):
        root = ElementTree.fromstring(text)
        block = root.findall(".//tb")[index]
        block.remove(block[-1])
        with pytest.raises(CheckError):
            check_algorithm(parse_algorithm(ElementTree.tostring(root, encoding="unicode")))


def _algorithm(coll: str, chunks: tuple[int, int], gpus: list[list[str]], **algo: Any) -> str:
    """A small algorithm: each threadblock as ``"send recv chan | step | step"``.

    A step is ``type src dst [depid deps] [!]``, with places such as ``i0`` and ``!`` for hasdep.
    """
    head = {"name": "t", "proto": "Simple", "nchannels": 1, "nchunksperloop": 2, "inplace": 0}
    head |= {"coll": coll, "ngpus": len(gpus)} | algo
    lines = ["<algo " + " ".join(f'{k}="{v}"' for k, v in head.items()) + ">"]
    for number, blocks in enumerate(gpus):
        lines.append(
            f'<gpu id="{number}" i_chunks="{chunks[0]}" o_chunks="{chunks[1]}" s_chunks="4">'
        )
        for tb, block in enumerate(blocks):
            ends, *steps = (part.split() for part in block.split("|"))
            lines.append(f'<tb id="{tb}" send="{ends[0]}" recv="{ends[1]}" chan="{ends[2]}">')
            for s, words in enumerate(steps):
                signals = "!" in words
                words = [word for word in words if word != "!"]
                depid, deps = words[3:5] if len(words) > 3 else ("-1", "-1")
                lines.append(
                    f'<step s="{s}" type="{words[0]}" srcbuf="{words[1][0]}" '
                    f'srcoff="{words[1][1:]}" dstbuf="{words[2][0]}" dstoff="{words[2][1:]}" '
                    f'cnt="{0 if words[0] == "nop" else 1}" depid="{depid}" deps="{deps}" '
                    f'hasdep="{int(signals)}"/>'
                )
            lines.append("</tb>")
        lines.append("</gpu>")
    return "\n".join([*lines, "</algo>"])


def _check(*args: Any, in_flight: int = 2, **algo: Any) -> list[str]:
    return check_algorithm(parse_algorithm(_algorithm(*args, **algo)), in_flight=in_flight)


# two gpus exchange their halves and add: each output chunk is the sum of both inputs
EXCHANGE = [
    ["1 -1 0 | s i0 i0 | s i1 i1", "-1 1 0 | rrc i0 o0 | rrc i1 o1"],
    ["0 -1 0 | s i0 i0 | s i1 i1", "-1 0 0 | rrc i0 o0 | rrc i1 o1"],
]


def test_small_algorithms_by_hand() -> None:
    assert "exactly once" in _check("allreduce", (2, 2), EXCHANGE)[-1]
    gather = [["-1 -1 0 | cpy i0 o0", "1 1 0 | s i0 o0 | r o1 o1"]]
    gather += [["-1 -1 0 | cpy i0 o1", "0 0 0 | s i0 o1 | r o0 o0"]]
    assert "all 4 output chunks" in _check("allgather", (1, 2), gather)[-1]
    spread = [["-1 -1 0 | cpy i0 o0 | cpy i1 o1", "1 -1 0 | s i0 o0 | s i1 o1"]]
    spread += [["-1 0 0 | r i0 o0 | r i1 o1"]]
    assert "broadcast with root 0" in _check("broadcast", (2, 2), spread)[-1]
    through = [["1 -1 0 | s i0 o0 | s i1 o1", "-1 2 0 | rrc i0 o0 | rrc i1 o1"]]
    through += [["2 0 0 | rrs i0 o0 | rrs i1 o1"], ["0 1 0 | rrs i0 o0 | rrs i1 o1"]]
    with pytest.raises(CheckError, match="counts more than once chunk 0 of gpu 0"):
        _check("reduce", (2, 2), through)  # gpu 0's own part came round the ring


def test_counting_twice_is_found() -> None:
    """The known bad kind: an All-Reduce whose export adds a contribution twice."""
    twice = [list(gpu) for gpu in EXCHANGE]
    twice[0][1] = "-1 1 0 | rrc i0 o0 | rrc i1 o1 | re i0 o0"
    with pytest.raises(CheckError, match="output chunk 0 of gpu 0 counts more than once chunk 0"):
        _check("allreduce", (2, 2), twice)


def test_unordered_accesses_are_found() -> None:
    """The known bad kind: a relay's threadblock sends without waiting for what it relays."""
    relay = [
        ["-1 -1 0 | cpy i0 o0 | cpy i1 o1", "1 -1 0 | s i0 o0 | s i1 o1"],
        ["-1 0 0 | r i0 o0 | r i1 o1 {hasdep}", "2 -1 0 | s o0 o0 {wait0} | s o1 o1 {wait1}"],
        ["-1 1 0 | r o0 o0 | r o1 o1"],
    ]
    racing = [[b.format(hasdep="", wait0="", wait1="") for b in gpu] for gpu in relay]
    with pytest.raises(CheckError, match=r"nothing was written|2 unordered pairs of accesses"):
        _check("broadcast", (2, 2), racing)
    ordered = [[b.format(hasdep="!", wait0="0 1", wait1="") for b in gpu] for gpu in relay]
    assert "broadcast with root 0" in _check("broadcast", (2, 2), ordered)[-1]
    # a write that may overtake a read of the same cell
    late = [list(gpu) for gpu in EXCHANGE]
    late[0].append("-1 -1 0 | cpy i1 i0")
    with pytest.raises(CheckError, match="unordered pairs of accesses"):
        _check("allreduce", (2, 2), late)


def test_deadlocks_are_found() -> None:
    both = [["1 1 0 | r i0 o0 | s i0 o0"], ["0 0 0 | r i0 o0 | s i0 o0"]]
    with pytest.raises(CheckError, match="deadlock of 2 threadblocks: gpu 0, tb 0, step 0"):
        _check("allreduce", (2, 2), both)
    # fine with two messages in flight, not with one
    pair = [["1 1 0 | s i0 o0 | s i1 o1 | rrc i0 o0 | rrc i1 o1"]]
    pair += [["0 0 0 | s i0 o0 | s i1 o1 | rrc i0 o0 | rrc i1 o1"]]
    assert "exactly once" in _check("allreduce", (2, 2), pair)[-1]
    with pytest.raises(CheckError, match="1 messages are in flight"):
        _check("allreduce", (2, 2), pair, in_flight=1)
    unmatched = [list(gpu) for gpu in EXCHANGE]
    unmatched[0][0] += " | s i0 o0"
    with pytest.raises(CheckError, match="1 messages of gpu 0 to gpu 1 on channel 0 are never"):
        _check("allreduce", (2, 2), unmatched)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("nchannels", "0"), "nchannels 0"),
        (("proto", "simple"), "proto 'simple'"),
        (("coll", "allgatherv"), "coll 'allgatherv'"),
        (("ngpus", "3"), "ngpus 3"),
        (("nchunksperloop", "3"), "nchunksperloop 3"),
        (("minBytes", "9000000000"), "bytes from"),
    ],
)
def test_limits_of_the_head(change: tuple[str, str], said: str) -> None:
    with pytest.raises(CheckError, match=said):
        head = {"coll": "allreduce"} | dict([change])
        _check(head.pop("coll"), (2, 2), EXCHANGE, **head)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ("0 -1 0 | s i0 o0", "send 0 is no other gpu"),
        ("1 -1 7 | s i0 o0", "chan 7"),
        ("1 -1 0 | s i2 o0", r"i\[2\]"),
        ("-1 1 0 | s i0 o0", "no send peer"),
        ("1 -1 0 | q i0 o0", "unknown"),
        ("1 -1 0 | s i0 o0 5 0", "depid 5"),
        ("1 -1 0 | s i0 o0 1 0", "signals nothing"),
        ("1 -1 0 | s i0 o0 1 9", "deps 9"),
        ("1 -1 0 | nop i0 o0 | s i0 o0", "waits for nothing"),
        ("1 -1 0 | nop i0 o0 1 0 | s i0 o0", "signals nothing"),
        ("1 -1 0 |" + "|".join([" s i0 o0 "] * 257), "257 steps"),
        ("1 -1 0 | ra i0 o0", "no part of a collective"),
    ],
)
def test_limits_of_threadblocks_and_steps(block: str, said: str) -> None:
    changed = [[block, EXCHANGE[0][1]], EXCHANGE[1]]
    with pytest.raises(CheckError, match=said):
        _check("allreduce", (2, 2), changed)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("<algo", "no XML"),
        ("<x/>", "expected 'algo'"),
        ("<!DOCTYPE a><algo/>", "document type"),
        ('<algo inplace="x"/>', "algo.inplace: 'x' is no whole number"),
        ('<algo inplace="0" name="a"/>', "algo.proto: is missing"),
    ],
)
def test_malformed_files_name_the_place(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse_algorithm(text, file="a.xml")


def test_a_neutral_change_of_the_limits_passes() -> None:
    algorithm = parse_algorithm(_algorithm("allreduce", (2, 2), EXCHANGE))
    assert check_algorithm(replace(algorithm, min_bytes=1024, max_bytes=2**30))


@pytest.mark.slow
@pytest.mark.skipif(
    "MSCCL_XML_VERIFIER" not in os.environ,
    reason="needs the folder of MSCCL-XML-Verifier's programs in MSCCL_XML_VERIFIER",
)
@pytest.mark.parametrize(
    ("job", "network"),
    [
        ("all-gather", "torus2d:3x3"),
        ("all-gather:chunks=2", "dgx1v"),
        ("all-gather", "dgx-h100:2x8"),
        ("all-gather", "mesh2d:3x3+fail-npus:1+seed:1"),
        ("all-to-all", "switch:8"),
        ("all-to-all", "torus2d:4x4"),
    ],
)
def test_a_foreign_simulator_accepts_what_is_written(
    tmp_path: Path, job: str, network: str
) -> None:
    program = "allgather" if "gather" in job else "alltoall"
    # its All-to-All program asks for files that call themselves an All-Reduce
    text = _xml(job, network).replace('coll="alltoall"', 'coll="allreduce"')
    file = tmp_path / "a.xml"
    file.write_text(text)
    folder = Path(os.environ["MSCCL_XML_VERIFIER"])
    run = subprocess.run(
        [str(folder / f"{program}-verifier"), str(file), "3"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert run.returncode == 0 and "All tests passed" in run.stdout, run.stdout + run.stderr
    assert np.array(len(text)) > 0
