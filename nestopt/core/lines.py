"""Files of JSON lines that grow while a program runs, and may have been cut off in mid-line."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LineFile", "Lines", "read_lines"]


@dataclass(frozen=True, slots=True)
class Lines:
    """What a file of JSON lines holds.

    Attributes
    ----------
    rows : list
        What each line says, in the order in which they were written.
    torn : bool
        Whether the last line was not written to its end; it is left out.
    whole_bytes : int
        Length of the file without a torn line.
    """

    rows: list[Any]
    torn: bool
    whole_bytes: int


def read_lines(path: str | Path, begins: bytes = b"") -> Lines:
    """The lines of a file; a missing file holds none.

    Parameters
    ----------
    begins : bytes
        How every line begins, without blanks. A last line that is not whole but does not begin so
        was not cut off: the file is another one.

    Raises
    ------
    InputError
        If a line is no JSON, unless it is a last one that was cut off.
    """
    try:
        with open(path, "rb") as stream:
            data = stream.read()
    except FileNotFoundError:
        return Lines([], False, 0)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", file=str(path)) from error
    rows: list[Any] = []
    offset = 0
    for number, line in enumerate(data.splitlines(keepends=True), start=1):
        try:
            if not line.endswith(b"\n"):
                raise ValueError("has no end")
            rows.append(json.loads(line))
        except ValueError as error:
            head = line.replace(b" ", b"")[: len(begins)]
            if offset + len(line) == len(data) and begins.startswith(head):
                return Lines(rows, True, offset)
            raise InputError(f"not JSON: {error}", file=str(path), field=f"line {number}") from None
        offset += len(line)
    return Lines(rows, False, offset)


class LineFile:
    """Appends lines to a file; each is on the disk when `append` returns.

    Parameters
    ----------
    path : str or Path
        Made if it is missing.
    whole_bytes : int
        Length up to which it holds whole lines; what is behind is dropped.
    """

    def __init__(self, path: str | Path, whole_bytes: int) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
        os.ftruncate(self._file, whole_bytes)
        os.lseek(self._file, 0, os.SEEK_END)

    def append(self, row: Any) -> None:
        """Write a line."""
        line = json.dumps(row, allow_nan=False, separators=(",", ":")).encode() + b"\n"
        while line:
            line = line[os.write(self._file, line) :]
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
