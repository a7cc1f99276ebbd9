"""``nestopt sweep``, latencies of machines, and what wrong names are told."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest

from nestopt.cli import main
from nestopt.collective.sweep import bus_factor, sizes_between
from nestopt.core.errors import InputError
from nestopt.core.registry import named
from nestopt.instances.machines import HARDWARE_ALPHA


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    shown = capsys.readouterr()
    return int(ended.value.code or 0), shown.out, shown.err


ASKED = ("sweep", "--collective", "all-reduce", "--topology")


def test_a_sweep_finds_latency_and_bandwidth(capsys: pytest.CaptureFixture[str]) -> None:
    network = "fully-connected:4,bw=25GB/s,alpha=5us"
    sizes = ("--sizes", "4kB,64MB", "--chunks", "1", "--methods", "ring,direct,one-shot")
    status, out, _ = run(capsys, *ASKED, network, *sizes, "--json")
    assert status == 0
    data = json.loads(out)
    assert (data["schema"], data["sums"], data["npus"]) == ("nestopt.sweep/1", "copied", 4)
    small, large = data["rows"]
    # four chunks of 1,000 bytes, 40 ns each, behind one latency
    assert (small["method"], small["time_ps"]) == ("one-shot", 5_160_000)
    assert small["bound_ps"] == small["time_ps"]
    assert large["method"] != "one-shot"
    assert large["bus_bandwidth"] == pytest.approx(1.5 * large["algorithm_bandwidth"])
    assert large["time_ps"] < large["times_ps"]["one-shot"]
    status, out, _ = run(capsys, *ASKED, network, *sizes)
    assert status == 0
    assert all(len(line) <= 80 for line in out.splitlines())
    assert len(out.splitlines()) == 5


def test_a_sweep_says_when_latencies_are_zero(capsys: pytest.CaptureFixture[str]) -> None:
    asked = (*ASKED, "ring:3", "--sizes", "1KiB", "--methods", "ring")
    status, _, told = run(capsys, *asked)
    assert status == 0
    assert "all latencies of ring:3 are 0" in told


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sizes", "2KiB..1KiB"), "two sizes that grow"),
        (("--sizes", "0.5B"), "positive whole number of bytes"),
        (("--factor", "1"), "at least 2"),
        (("--chunks", "0"), "positive whole numbers"),
        (("--methods", "rings"), "--methods rings: expected some of"),
        (("--set", "sums=both"), "--set sums=both: expected"),
    ],
)
def test_wrong_sweeps_are_told_what_is_wrong(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, str], words: str
) -> None:
    status, _, told = run(capsys, *ASKED, "ring:3", *arguments)
    assert status in (1, 2)
    assert words in told


def test_sizes_and_bus_factors() -> None:
    assert sizes_between(1024, 5000) == [1024, 2048, 4096]
    with pytest.raises(InputError):
        sizes_between(2, 1)
    assert bus_factor("all-reduce", 8) == Fraction(7, 4)
    assert bus_factor("all-gather", 8) == Fraction(7, 8)
    assert bus_factor("broadcast", 8) == 1


MACHINES = (
    "dgx1v",
    "ndv2:2",
    "dgx-a100:2x8",
    "dgx-h100:2x8,fabric=rail",
    "mi250:1x16",
    "perlmutter:2",
    "frontier:2",
    "alps:2",
    "tpuv4:4x4x4",
)


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_has_latencies(name: str) -> None:
    joint = "," if ":" in name else ":"
    assert not named("topology", name).alpha_ps.any()
    assert (named("topology", f"{name}{joint}alpha=hardware").alpha_ps > 0).all()


def test_latencies_of_dgx1v_are_those_published() -> None:
    assert HARDWARE_ALPHA["nvlink"] == "0.7us"
    alphas = set(named("topology", "ndv2:2,alpha=hardware").alpha_ps.tolist())
    assert alphas == {700_000, 1_300_000}
    with pytest.raises(InputError, match="no machine"):
        named("topology", "ring:4,alpha=hardware")


def test_a_missing_colon_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ("bound", "--collective", "all-gather", "--topology", "dgx1v,bw=1GB/s")
    status, _, told = run(capsys, *asked)
    assert status == 1
    assert "use a colon before the options: dgx1v:bw=1GB/s" in told


def test_a_question_proved_infeasible_is_exit_3(capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run(
        capsys,
        *("solve", "--collective", "all-gather", "--topology", "ring:6", "--method", "sccl"),
        *("--set", "steps=2", "--set", "rounds=9"),
    )
    assert status == 3
    assert "no algorithm has 2 steps and 9 rounds" in out
