"""Switches with hosts below them, and the network that they make with what is in a host."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nestopt.core.units import parse_time_ps
from nestopt.instances.network import NetworkBuilder
from nestopt.instances.spec import LinkSpec

if TYPE_CHECKING:
    from nestopt.instances.readers.base import Reading, Source

__all__ = ["Fabric", "Switch", "expand_hostlist", "reading_of"]


@dataclass(slots=True)
class Switch:
    """A switch: the line that states it, and the switches and hosts below it."""

    line: int | None
    switches: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Fabric:
    """Switches by name, and the NVLink domain of every host that is in one."""

    switches: dict[str, Switch] = field(default_factory=dict)
    domain: dict[str, str] = field(default_factory=dict)


def expand_hostlist(source: Source, text: str, line: int | None, where: str) -> list[str]:
    """The names of a hostlist, ``tux[0-3,12],gpu7``; zero padding is kept."""
    names: list[str] = []
    for part in re.findall(r"[^,\[]*(?:\[[^\]]*\][^,\[]*)*", text):
        if part:
            names += _expand(source, part, line, where)
    if text.count("[") != text.count("]") or not names:
        raise source.error(f"{text!r} is no hostlist", line, where)
    return names


def _expand(source: Source, part: str, line: int | None, where: str) -> list[str]:
    match = re.search(r"\[([^\]]*)\]", part)
    if match is None:
        return [part]
    result = []
    for piece in match[1].split(","):
        low, dash, high = piece.partition("-")
        if not low.isdigit() or (dash and not high.isdigit()):
            raise source.error(f"{piece!r} in {part!r} is no range", line, where)
        last = int(high) if dash else int(low)
        if last < int(low) or last - int(low) > 10**6:
            raise source.error(f"{piece!r} in {part!r} is no range", line, where)
        for number in range(int(low), last + 1):
            name = f"{part[: match.start()]}{number:0{len(low)}d}{part[match.end() :]}"
            result += _expand(source, name, line, where)
    return result


def reading_of(source: Source, fabric: Fabric) -> Reading:
    """The network of switches and hosts, with the settings that say what is in a host."""
    settings = source.settings
    source.needed("gpus", "how many GPUs a host has")
    gpus = settings.option_integer("gpus", 1)
    texts = (settings.option("alpha") or "0us").split(":")
    alphas = [parse_time_ps(text, "alpha") for text in (texts * 3 if len(texts) == 1 else texts)]
    if len(alphas) != 3 or min(alphas) < 0:
        raise source.error("expected three latencies, not negative", None, "setting alpha")

    def link(key: str, meaning: str, tier: int) -> LinkSpec:
        return LinkSpec(source.rate(key, meaning), alphas[tier])

    nic = link("nic", "how fast a GPU's NIC is", 1)
    builder = NetworkBuilder()
    above = {host: name for name, switch in fabric.switches.items() for host in switch.hosts}
    members = {host: [builder.npu(f"{host}.gpu{i}") for i in range(gpus)] for host in above}
    domains: dict[str, list[int]] = {}
    for host, npus in members.items():
        builder.group("node", npus)
        domains.setdefault(fabric.domain.get(host, f"host {host}"), []).extend(npus)
    if any(len(npus) > 1 for npus in domains.values()):
        nvlink = link("nvlink", "how fast GPUs of a host reach each other", 0)
        for name, npus in domains.items():
            switch = builder.switch(f"nvlink {name}")
            for npu in npus:
                builder.cable(npu, switch, nvlink, "nvlink")
    else:
        settings.option("nvlink")
    index = {name: builder.switch(name) for name in fabric.switches}
    uplink = None
    placed: dict[str, str] = {}
    for name, row in fabric.switches.items():
        for host in row.hosts:
            if host in placed:
                raise source.error(
                    f"host {host} is already under {placed[host]}", row.line, f"switch {name}"
                )
            placed[host] = name
            for npu in members[host]:
                builder.cable(npu, index[name], nic, "nic")
        builder.group("rack", [index[name], *(n for host in row.hosts for n in members[host])])
        for child in row.switches:
            if child not in index:
                raise source.error(f"unknown switch {child!r}", row.line, f"switch {name}")
            if row.switches.count(child) > 1 or child == name:
                raise source.error(f"duplicate edge to {child!r}", row.line, f"switch {name}")
            uplink = uplink or link("uplink", "how fast links between switches are", 2)
            builder.cable(index[name], index[child], uplink, "uplink")
    if uplink is None:
        settings.option("uplink")
    for host in fabric.domain:
        if host not in placed:
            raise source.error(f"host {host} is under no switch", None, "blocks")
    return source.reading(builder.build(source.name))
