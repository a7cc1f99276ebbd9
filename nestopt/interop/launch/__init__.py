"""Plans as launch files of training frameworks, and launch files as plans.

`write` makes the files of a framework from a plan; `nestopt.interop.launch.reading` reads what a
user runs today. What a framework has no words for is an error that names it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from nestopt.core.errors import unknown_name

if TYPE_CHECKING:
    from nestopt.interop.launch.job import Job

__all__ = ["FRAMEWORKS", "write"]

FRAMEWORKS = {
    "megatron": "megatron:write_megatron",
    "megatron-bridge": "megatron:write_bridge",
    "torchtitan": "torchtitan:write_torchtitan",
    "deepspeed": "deepspeed:write_deepspeed",
    "nanotron": "nanotron:write_nanotron",
    "jax-mesh": "jax_mesh:write_jax_mesh",
}
"""Writers of launch files by framework."""


def write(framework: str, job: Job) -> dict[str, str]:
    """The launch files of a job: text by file name.

    Raises
    ------
    UsageError
        If the framework is unknown (with a suggestion).
    CannotExpress
        If it has no words for the job, naming what.
    """
    if framework not in FRAMEWORKS:
        raise unknown_name("framework", framework, FRAMEWORKS)
    module, _, function = FRAMEWORKS[framework].partition(":")
    files: dict[str, str] = getattr(import_module(f"{__name__}.{module}"), function)(job)
    return files
