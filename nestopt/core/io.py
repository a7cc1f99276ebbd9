"""Reading and writing of JSON: canonical hashes, atomic writes, errors that name the file."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from nestopt.core.errors import InputError

if TYPE_CHECKING:
    from pydantic import BaseModel

    Model = TypeVar("Model", bound=BaseModel)

MOST_BYTES = 2 * 10**9
"""A text file may not be larger."""
LONGEST_INTEGER = 400
"""Digits of an integer in a JSON file, at most."""

__all__ = [
    "canonical_json", "names_file", "read_json", "read_text", "remove_unfinished", "sha256_of",
    "validate_model", "write_bytes", "write_json", "write_text",
]  # fmt: skip

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_UNFINISHED: set[str] = set()


def canonical_json(data: Any) -> str:
    """The one text of a JSON value: sorted keys, no blanks, shortest floats, no NaN."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def sha256_of(data: Any) -> str:
    """Hex digest of the canonical JSON of `data`."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that a file may hold")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _whole(text: str) -> int:
    if len(text) > LONGEST_INTEGER:
        raise ValueError(f"an integer of {len(text)} digits is too large a number")
    return int(text)


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"key {twice!r} stands twice in one object")
    return found


def names_file(value: str) -> bool:
    """Whether what stands for an object is a file's path rather than a name of the library."""
    # a name may be longer than a path may be, which pathlib takes for an error
    return value.endswith(".json") or os.path.isfile(value)


def read_text(path: str | Path, *, encoding: str = "utf-8") -> str:
    """The text of a regular file of at most `MOST_BYTES`.

    Raises
    ------
    InputError
        If it is missing, no regular file (a device or a pipe may never end), too large, or not
        UTF-8 text.
    """
    file = str(path)
    if "\0" in file:
        raise InputError("holds a zero byte; expected a path", file=repr(file))
    try:
        mode, size = os.stat(path).st_mode, os.stat(path).st_size
        if not stat.S_ISREG(mode):
            what = "a directory" if stat.S_ISDIR(mode) else "no regular file"
            raise InputError(f"cannot be read: it is {what}", file=file)
        if size > MOST_BYTES:
            raise InputError(
                f"cannot be read: it has {size} bytes, more than {MOST_BYTES}", file=file
            )
        return Path(path).read_text(encoding=encoding)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"cannot be read: {reason}", file=file) from error


def read_json(path: str | Path) -> Any:
    """The JSON value in a file.

    Raises
    ------
    InputError
        If the file is missing or unreadable, or is not JSON (with line and column), or holds NaN,
        an infinity, a key twice in one object, or half of a character (a lone surrogate).
    """
    text = read_text(path)
    try:
        data = json.loads(
            text,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_no_duplicates,
        )
        if _SURROGATE.search(text) is not None:
            # half a character can be neither printed nor written
            json.dumps(data, ensure_ascii=False).encode()
        return data
    except json.JSONDecodeError as error:
        raise InputError(
            f"not JSON: {error.msg} (line {error.lineno}, column {error.colno})", file=str(path)
        ) from error
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        raise InputError(f"{half!r} is half of a character, no text", file=str(path)) from error
    except ValueError as error:
        raise InputError(str(error), file=str(path)) from error
    except RecursionError as error:
        raise InputError("nested too deeply", file=str(path)) from error


def write_text(path: str | Path, text: str) -> None:
    """Write a file whole or not at all: to a temporary file beside it, then rename.

    Raises
    ------
    InputError
        Naming the file and why it cannot be written.
    """
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """As `write_text`, of bytes."""
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from error
    _UNFINISHED.add(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, target)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from error
        raise
    finally:
        _UNFINISHED.discard(name)


def remove_unfinished() -> None:
    """Remove the temporary files that `write_text` is writing: for a process that ends now."""
    for name in list(_UNFINISHED):
        Path(name).unlink(missing_ok=True)


def write_json(path: str | Path, data: Any, *, indent: int | None = 1) -> None:
    """Write `data` as JSON, atomically; NaN and infinities are refused."""
    write_text(path, json.dumps(data, indent=indent, allow_nan=False) + "\n")


def keep_elsewhere(data: dict[str, Any], stem: str) -> str:
    """Write JSON to the directory for temporary files; says in words where it is, or why not."""
    try:
        folder = tempfile.mkdtemp(prefix="nestopt-")
        target = Path(folder) / f"{stem}.json"
        write_json(target, data)
    except (OSError, InputError) as error:
        return f"nor in the directory for temporary files: {error}"
    return f"the result is in {target}"


def validate_model(model: type[Model], data: Any, *, file: str | None = None) -> Model:
    """`data` as a pydantic model, its first error as one `InputError` with file, field and value.

    Raises
    ------
    InputError
        Naming the file, the field, the value found and what was expected.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
        first = details[0]
        field = ""
        for part in first["loc"]:
            field += f"[{part}]" if isinstance(part, int) else f".{part}" if field else str(part)
        shown = repr(first.get("input"))
        if len(shown) > 80:
            shown = shown[:77] + "..."
        message = f"{first['msg'].removeprefix('Value error, ')} (got {shown})"
        if len(details) > 1:
            message += f"; and {len(details) - 1} more"
        raise InputError(message, file=file, field=field or None) from error
