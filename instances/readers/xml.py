"""XML with line numbers, without entities or document types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.parsers import expat

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nestopt.instances.readers.base import Source

__all__ = ["Element", "parse_xml"]


@dataclass(slots=True)
class Element:
    """An element: its tag (namespace removed), attributes, text, children and line."""

    tag: str
    attributes: dict[str, str]
    line: int
    text: str = ""
    children: list[Element] = field(default_factory=list)

    def iter(self, tag: str) -> Iterator[Element]:
        """All descendants (and itself) with a tag, in document order."""
        if self.tag == tag:
            yield self
        for child in self.children:
            yield from child.iter(tag)


def parse_xml(source: Source) -> Element:
    """The root element.

    Raises
    ------
    InputError
        If it is not well-formed (with line and column), nests deeper than 200, or has a document
        type: entities could name files or grow without bound, and no format here needs them.
    """
    root: list[Element] = []
    stack: list[Element] = []
    parser = expat.ParserCreate("utf-8")

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = Element(tag.rpartition(":")[2], dict(attributes), parser.CurrentLineNumber)
        if len(stack) > 200:
            raise source.error("nests deeper than 200 elements", element.line, tag)
        (stack[-1].children if stack else root).append(element)
        stack.append(element)

    def end(_: str) -> None:
        stack.pop()

    def text(data: str) -> None:
        if stack:
            stack[-1].text += data

    def doctype(name: str, *_: object) -> None:
        raise source.error(
            "has a document type; files with DTDs or entities are refused",
            parser.CurrentLineNumber,
            f"DOCTYPE {name}",
        )

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(source.text.encode(), True)
    except expat.ExpatError as error:
        raise source.error(
            f"not well-formed XML: {expat.errors.messages[error.code]}",
            error.lineno,
            f"column {error.offset + 1}",
        ) from error
    return root[0]
