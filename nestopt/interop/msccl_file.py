"""MSCCL XML algorithms as they stand in a file: gpus, threadblocks, steps.

Reading only asks that the file is well formed; what the runtimes' parsers demand beyond that is
checked by `msccl_check`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Algorithm", "Gpu", "Step", "Threadblock", "parse_algorithm", "read_algorithm"]

BUFFERS = ("i", "o", "s")
LARGEST_FILE = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a threadblock; the fields are the file's."""

    s: int
    type: str
    srcbuf: str
    srcoff: int
    dstbuf: str
    dstoff: int
    cnt: int
    depid: int
    deps: int
    hasdep: int


@dataclass(frozen=True, slots=True)
class Threadblock:
    """One threadblock: its connections (-1: none), its channel, its steps in order."""

    id: int
    send: int
    recv: int
    chan: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Gpu:
    """One rank: how many chunks its buffers hold, and its threadblocks."""

    id: int
    i_chunks: int
    o_chunks: int
    s_chunks: int
    blocks: tuple[Threadblock, ...]


@dataclass(frozen=True, slots=True)
class Algorithm:
    """A whole file.

    Attributes
    ----------
    inplace, outofplace : bool
        For which calls the algorithm is meant; without the second attribute (MSCCL's own runtime
        knows only the first) it is the opposite of the first.
    """

    name: str
    proto: str
    coll: str
    ngpus: int
    nchannels: int
    nchunksperloop: int
    inplace: bool
    outofplace: bool
    min_bytes: int
    max_bytes: int
    gpus: tuple[Gpu, ...] = field(default=())


def read_algorithm(file: str | Path) -> Algorithm:
    """The algorithm in a file.

    Raises
    ------
    InputError
        Naming the file, the element, the attribute and what is wrong with it.
    """
    path = Path(file)
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise InputError(f"larger than {LARGEST_FILE} bytes", file=str(path))
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"cannot be read: {reason}", file=str(path)) from error
    return parse_algorithm(text, file=str(path))


def parse_algorithm(text: str, *, file: str | None = None) -> Algorithm:
    """The algorithm in a text; see `read_algorithm`."""
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise InputError("declares a document type; expected elements alone", file=file)
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError as error:
        raise InputError(f"no XML: {error}", file=file) from error
    if root.tag != "algo":
        raise InputError(f"root element {root.tag!r}; expected 'algo'", file=file)
    return _Reader(file).algorithm(root)


class _Reader:
    """Turns elements into data; every error names the element."""

    def __init__(self, file: str | None) -> None:
        self.file = file

    def algorithm(self, root: ElementTree.Element) -> Algorithm:
        get = root.attrib
        inplace = bool(self.integer(get, "inplace", "algo"))
        outofplace = bool(self.integer(get, "outofplace", "algo", int(not inplace)))
        return Algorithm(
            name=self.text(get, "name", "algo"),
            proto=self.text(get, "proto", "algo"),
            coll=self.text(get, "coll", "algo"),
            ngpus=self.integer(get, "ngpus", "algo"),
            nchannels=self.integer(get, "nchannels", "algo"),
            nchunksperloop=self.integer(get, "nchunksperloop", "algo"),
            inplace=inplace,
            outofplace=outofplace,
            min_bytes=self.integer(get, "minBytes", "algo", 0),
            max_bytes=self.integer(get, "maxBytes", "algo", 2**27),
            gpus=tuple(self.gpu(e, f"gpu[{k}]") for k, e in enumerate(self.inner(root, "gpu"))),
        )

    def gpu(self, element: ElementTree.Element, where: str) -> Gpu:
        get = element.attrib
        return Gpu(
            id=self.integer(get, "id", where),
            i_chunks=self.integer(get, "i_chunks", where),
            o_chunks=self.integer(get, "o_chunks", where),
            s_chunks=self.integer(get, "s_chunks", where),
            blocks=tuple(
                self.block(e, f"{where}.tb[{k}]") for k, e in enumerate(self.inner(element, "tb"))
            ),
        )

    def block(self, element: ElementTree.Element, where: str) -> Threadblock:
        get = element.attrib
        return Threadblock(
            id=self.integer(get, "id", where),
            send=self.integer(get, "send", where),
            recv=self.integer(get, "recv", where),
            chan=self.integer(get, "chan", where),
            steps=tuple(
                self.step(e, f"{where}.step[{k}]")
                for k, e in enumerate(self.inner(element, "step"))
            ),
        )

    def step(self, element: ElementTree.Element, where: str) -> Step:
        get = element.attrib
        for name in ("srcbuf", "dstbuf"):
            if self.text(get, name, where) not in BUFFERS:
                self.refuse(f"{get[name]!r}; expected i, o or s", f"{where}.{name}")
        return Step(
            s=self.integer(get, "s", where),
            type=self.text(get, "type", where),
            srcbuf=get["srcbuf"],
            srcoff=self.integer(get, "srcoff", where),
            dstbuf=get["dstbuf"],
            dstoff=self.integer(get, "dstoff", where),
            cnt=self.integer(get, "cnt", where),
            depid=self.integer(get, "depid", where),
            deps=self.integer(get, "deps", where),
            hasdep=self.integer(get, "hasdep", where),
        )

    def inner(self, element: ElementTree.Element, tag: str) -> list[ElementTree.Element]:
        for each in element:
            if each.tag != tag:
                self.refuse(f"element {each.tag!r}; expected {tag!r}", element.tag)
        return list(element)

    def text(self, attributes: Mapping[str, str], name: str, where: str) -> str:
        if name not in attributes:
            self.refuse("is missing", f"{where}.{name}")
        return attributes[name]

    def integer(
        self, attributes: Mapping[str, str], name: str, where: str, default: int | None = None
    ) -> int:
        if default is not None and name not in attributes:
            return default
        text = self.text(attributes, name, where)
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
            self.refuse(f"{text!r} is no whole number", f"{where}.{name}")
        return int(text)

    def refuse(self, message: str, field_: str) -> None:
        raise InputError(message, file=self.file, field=field_)
