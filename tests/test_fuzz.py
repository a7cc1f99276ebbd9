"""Mutated files of every kind: an error that is meant, in time, or an answer; never a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import signal
from pathlib import Path

import pytest

from nestopt.core.errors import InputError, NestoptError
from nestopt.core.io import read_json, read_text
from nestopt.core.problem import get_problem
from nestopt.core.result import Result
from nestopt.core.verify import verify_file
from nestopt.instances.readers import FORMATS, read

COUNT = int(os.environ.get("NESTOPT_FUZZ", "2000"))
SECONDS = 5
DATA = Path(__file__).parent
HUGE = [
    2**31, 2**63, 2**64, 2**70, 10**400, -1, -4, 0, 0.4, 72.9, 1e308, 7_000_000, "abc", "a\0b",
    "72", "", "inf", "-inf", None, True, [], {}, [[]], [2**70],
]  # fmt: skip
WORDS = ["9" * 4400, "1e999999999", "-4", "0", "nan", "*a", "&a [*a, *a]", "\0", "1e400", "{", "<"]


class Late(BaseException):
    """A call that did not end in time."""


def _alarm(*_: object) -> None:
    raise Late


@contextlib.contextmanager
def limited(seconds: int = SECONDS):
    old = signal.signal(signal.SIGALRM, _alarm)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)


def _places(value: object, path: tuple = ()) -> list[tuple]:
    """The paths of all values in a JSON tree, long lists by a few of their members."""
    found = [path] if path else []
    if isinstance(value, dict):
        for key, each in value.items():
            found += _places(each, (*path, key))
    elif isinstance(value, list):
        for index in {0, 1, len(value) - 1} & set(range(len(value))):
            found += _places(value[index], (*path, index))
    return found


def mutate_json(rng: random.Random, data: object) -> object:
    data = json.loads(json.dumps(data))
    for _ in range(rng.choice((1, 1, 1, 2))):
        path = rng.choice(_places(data))
        home = data
        for key in path[:-1]:
            home = home[key]
        action = rng.random()
        if action < 0.15:
            del home[path[-1]]
            break
        if action < 0.25 and isinstance(home, dict):
            home["trust"] = "me"
        else:
            home[path[-1]] = rng.choice(HUGE)
    return data


def mutate_text(rng: random.Random, text: str) -> str:
    tokens = text.split(" ")
    for _ in range(rng.choice((1, 2, 5))):
        at = rng.randrange(len(tokens))
        tokens[at] = rng.choice([*WORDS, "", tokens[at] + "9" * 30, tokens[at][::-1]])
    mutant = " ".join(tokens)
    if mutant and rng.random() < 0.2:
        at = rng.randrange(len(mutant))
        mutant = mutant[:at] + rng.choice(WORDS) + mutant[at + rng.randrange(20) :]
    return mutant


def _results() -> list[dict]:
    from nestopt.instances.library import load
    from nestopt.instances.library.entries import LIBRARY

    found = []
    for name in ("chain4-tree2x2", "dag6-tree2x2", "ag-mesh3x3"):
        kept = LIBRARY / "solutions" / f"{name}.json"
        data = json.loads(kept.read_text())
        data["instance"]["data"] = load(name).to_json()
        found.append(data)
    return found


def _rehashed(data: object) -> object:
    """A forger states the right hash."""
    from nestopt.core.io import sha256_of

    with contextlib.suppress(Exception):
        data["instance"]["sha256"] = sha256_of(data["instance"]["data"])
    return data


def check_and_simulate(path: Path) -> None:
    with contextlib.suppress(NestoptError):
        verify_file(str(path))
    result = Result.from_json(read_json(path), file=str(path))
    if result.solution_json is not None:
        get_problem(result.problem).simulate(result)


def read_instance(path: Path) -> None:
    data = read_json(path)
    if not isinstance(data, dict) or data.get("problem") not in ("placement", "collective"):
        raise InputError("no problem")
    get_problem(data["problem"]).from_json(data, file=str(path))


def read_study(path: Path) -> None:
    from nestopt.study.spec import read_spec

    read_spec(path)


STUDY = """
name = "s"
seeds = [0]
time_limit = "5 s"
methods = ["greedy"]
[[instances]]
collective = "all-gather"
topology = "ring:4"
"""
SETTINGS = {"gpu": "h100", "smp": "20GB/s", "gpus": "8", "nvlink": "450GB/s", "nic": "50GB/s"}
SETTINGS |= {"uplink": "400GB/s", "link": "25GB/s", "size": "1MB", "unit": "GB/s"}


def _reader(name: str, given: dict[str, str]):
    return lambda path: read(name, path, dict(given))


def _cases() -> list[tuple[str, object, object, dict[str, str]]]:
    """(kind, seed of the file, function that reads it, settings) of everything that is mutated."""
    cases: list[tuple[str, object, object, dict[str, str]]] = []
    for data in _results():
        cases += [("result", data, check_and_simulate, {})] * 3
        cases.append(("instance", data["instance"]["data"], read_instance, {}))
    cases.append(("study", STUDY, read_study, {}))
    words = {"smi": "nvidia-smi", "astra": "astra-sim", "conf": "slurm"}
    for file in sorted((DATA / "instances" / "data").iterdir()):
        word = file.suffixes[-2:][0].strip(".")
        name = words.get(word, word)
        if name in FORMATS:
            known = FORMATS[name].settings
            given = {key: text for key, text in SETTINGS.items() if key in known}
            cases.append((name, file.read_text(), _reader(name, given), given))
    return cases


def fuzz(count: int, folder: Path) -> dict[str, list[str]]:
    """Faults by kind: the exceptions that no reader meant, and what did not end in time."""
    rng = random.Random(12)
    cases = _cases()
    path = folder / "f.json"
    faults: dict[str, list[str]] = {"traceback": [], "hang": [], "answer": [], "refused": []}
    for number in range(count):
        kind, seed, function, _ = cases[number % len(cases)]
        if isinstance(seed, str):
            path.write_text(mutate_text(rng, seed))
        else:
            mutant = mutate_json(rng, seed)
            path.write_text(json.dumps(_rehashed(mutant) if kind == "result" else mutant))
        try:
            with limited(), contextlib.redirect_stdout(io.StringIO()):
                function(path)
            faults["answer"].append(kind)
        except NestoptError:
            faults["refused"].append(kind)
        except Late:
            faults["hang"].append(f"{number} {kind}: {path.read_text()[:200]}")
        except Exception as error:
            faults["traceback"].append(f"{number} {kind}: {error!r:.200}")
    return faults


def test_mutated_files_are_read_or_refused(tmp_path: Path) -> None:
    found = fuzz(COUNT, tmp_path)
    assert found["traceback"] == [] and found["hang"] == []
    assert len(found["refused"]) > COUNT / 2 and found["answer"]


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in ("/dev/zero", str(tmp_path / "pipe"), str(tmp_path), "a\0b"):
        with limited(), pytest.raises(InputError):
            read_json(path)
        with limited(), pytest.raises(InputError):
            read_text(path)
