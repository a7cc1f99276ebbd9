"""The workers of a Dask cluster make the same records as processes of this machine."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from nestopt.core.errors import UsageError
from nestopt.study.directory import create
from nestopt.study.records import canonical, read_records
from nestopt.study.runner import run_study

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def _canonical(directory: Path) -> dict[str, Any]:
    return {row["cell"]: canonical(row) for row in read_records(directory / "records.jsonl").rows}


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with two workers, in processes of their own."""
    pytest.importorskip("distributed", reason="distributed (extra cluster) is not installed")
    program = (
        "import sys\nfrom distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None,\n"
        "                      host='127.0.0.1', local_directory=sys.argv[1]) as cluster:\n"
        "        print(cluster.scheduler_address, flush=True)\n"
        "        sys.stdin.read()\n"
    )
    path = tmp_path / "cluster.py"
    path.write_text(program)
    with subprocess.Popen(
        [sys.executable, str(path), str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        address = process.stdout.readline().decode().strip()
        assert address.startswith("tcp://")
        yield address


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_same_records(tiny: Path, scheduler: str) -> None:
    here, there = tiny.parent / "here", tiny.parent / "there"
    plan = create(tiny, here)
    assert run_study(plan, here, jobs=2) == len(plan.cells)
    assert run_study(create(tiny, there), there, scheduler=scheduler) == len(plan.cells)
    assert _canonical(there) == _canonical(here)
    assert run_study(plan, there, scheduler=scheduler) == 0


def test_without_distributed(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    out = tiny.parent / "out"
    with pytest.raises(UsageError, match=r"pip install 'nestopt\[cluster\]'"):
        run_study(create(tiny, out), out, scheduler="tcp://127.0.0.1:1")
