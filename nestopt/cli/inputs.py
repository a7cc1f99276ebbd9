"""From the words of a command line to instances, results and settings."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nestopt import api
from nestopt.core.errors import InputError, UsageError
from nestopt.core.io import names_file, read_json
from nestopt.core.result import Result
from nestopt.core.units import parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nestopt.core.result import Result

__all__ = [
    "Source",
    "parse_limit",
    "parse_settings",
    "read_result",
    "thread_count",
    "writable",
]

_PARTS = {"placement": ("workload", "cluster"), "collective": ("collective", "topology")}


@dataclass(frozen=True, slots=True)
class Source:
    """Where an instance comes from: a file, the library, or the names of its two parts.

    Use `of`, which refuses every other combination.

    Attributes
    ----------
    problem : str
    names : dict
        Names of the two parts; empty for a file and for the library.
    file : str or None
        File or library name.
    data : Any
        The instance as JSON, of a file.
    entry : Any
        The library's entry.
    """

    problem: str
    names: dict[str, str]
    file: str | None = None
    data: Any = None
    entry: Any = None

    @classmethod
    def of(
        cls,
        file: str | None,
        *,
        workload: str | None = None,
        cluster: str | None = None,
        collective: str | None = None,
        topology: str | None = None,
    ) -> Source:
        """The source that the command line names.

        Raises
        ------
        UsageError
            If nothing is named, a part is missing, or parts exclude each other.
        InputError
            If the file cannot be read or does not say which problem it states.
        """
        given = {
            "workload": workload,
            "cluster": cluster,
            "collective": collective,
            "topology": topology,
        }
        names = {part: name for part, name in given.items() if name is not None}
        flags = " and ".join(f"--{part}" for part in names)
        if file is not None:
            if names:
                raise UsageError(f"INSTANCE.json and {flags} exclude each other; give one")
            if _names_an_entry(file):
                from nestopt.instances.library import entry

                found = entry(file)
                return cls(found.problem, {}, file, entry=found)
            data = _read(file)
            return cls(_problem_of(data, file), {}, file, data)
        for problem, parts in _PARTS.items():
            if set(names) == set(parts):
                return cls(problem, names)
        for parts in _PARTS.values():
            if len(names) == 1 and next(iter(names)) in parts:
                other = parts[1 - parts.index(next(iter(names)))]
                raise UsageError(f"{flags} needs --{other} too")
        ways = "INSTANCE.json, or --workload and --cluster, or --collective and --topology"
        raise UsageError(f"{flags} do not go together; give {ways}" if names else f"give {ways}")

    def parts(self, fail: str | None = None) -> tuple[Any, Any]:
        """What `nestopt.api` is asked: a job and what it runs on, or a whole instance and None.

        Parameters
        ----------
        fail : str, optional
            Numbers of devices that have failed (`--fail`).

        Raises
        ------
        UsageError
            If the words are no numbers, or nothing can fail.
        """
        if self.file is not None:
            if fail is not None:
                raise UsageError(f"--fail: {self.file} states this already; name the two parts")
            return self.file, None
        job, on = _PARTS[self.problem]
        if fail is None:
            return self.names[job], self.names[on]

        numbers = fail.replace(" ", "")
        if not names_file(self.names[on]):
            return self.names[job], f"{self.names[on]}+fail:{numbers}"
        from nestopt.instances.failures import failed_by_number

        return self.names[job], failed_by_number(api.load(self.names[on], on), numbers)


def _names_an_entry(text: str) -> bool:
    """Whether a word is the name of a library instance rather than a file."""
    return Path(text).suffix == "" and Path(text).name == text and not os.path.exists(text)


def _read(file: str) -> Any:
    return read_json(file)


def _problem_of(data: Any, file: str) -> str:
    if not isinstance(data, dict):
        raise InputError("holds no JSON object; expected an instance", file=file)
    found = data.get("problem")
    if found not in _PARTS:
        if str(data.get("schema", "")).startswith("nestopt.result/"):
            raise InputError("is a result; expected an instance", file=file)
        raise InputError(
            f"{found!r}; expected 'placement' or 'collective'", file=file, field="problem"
        )
    return str(found)


def read_result(file: str) -> Result:
    """The result in a file.

    Raises
    ------
    InputError
        If the file cannot be read or is no result.
    """
    return Result.from_json(_read(file), file=file)


def parse_settings(pairs: Sequence[str] | None) -> dict[str, str]:
    """``KEY=VALUE`` words as a dictionary; order kept.

    Raises
    ------
    UsageError
        If a word is no pair or a key comes twice.
    """
    settings: dict[str, str] = {}
    for pair in pairs or ():
        key, equals, value = pair.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not key or not value:
            raise UsageError(f"--set {pair!r}: expected KEY=VALUE")
        if key in settings:
            raise UsageError(f"--set {key} is given twice")
        settings[key] = value
    return settings


def parse_limit(text: str | None) -> float:
    """Seconds of a ``--time-limit``; infinite if there is none.

    Raises
    ------
    UsageError
        If it is no positive time.
    """
    if text is None:
        return math.inf
    try:
        seconds = float(text)
    except ValueError:
        try:
            seconds = parse_time(text)
        except InputError as error:
            raise UsageError(f"--time-limit: {error}") from error
    if not 0 < seconds < math.inf:
        raise UsageError(f"--time-limit {text}: expected a positive time")
    return seconds


def thread_count(threads: int | None) -> int:
    """The number of threads asked for, or all that this process may use."""
    if threads is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    if threads < 1:
        raise UsageError(f"--threads {threads}: expected at least 1")
    return threads


def writable(option: str, file: str, endings: Sequence[str] = ()) -> Path:
    """The path of a file to be written, refused before the work that would be lost.

    Raises
    ------
    UsageError
        If it has none of `endings`.
    InputError
        If its directory does not exist or does not let itself be written, or it is a directory.
    """
    path = Path(file)
    if endings and path.suffix.lower() not in endings:
        raise UsageError(f"{option} {file}: expected a name that ends in {' or '.join(endings)}")
    if path.is_dir():
        raise InputError("is a directory; expected a file name", file=file, field=option)
    if not path.parent.is_dir():
        raise InputError(f"no directory {str(path.parent)!r}", file=file, field=option)
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"no write access to {str(path.parent)!r}", file=file, field=option)
    return path
