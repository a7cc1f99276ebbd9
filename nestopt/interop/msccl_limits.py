"""What MSCCL's and RCCL's parsers demand of an XML algorithm before they run it.

Figures of Microsoft's runtime (``MSCCL_MAX_*``); RCCL's are the same or wider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nestopt.core.errors import CheckError

if TYPE_CHECKING:
    from nestopt.interop.msccl_file import Algorithm, Gpu, Step, Threadblock

__all__ = [
    "COLLECTIVES",
    "MOST_BLOCKS",
    "MOST_CHANNELS",
    "MOST_COUNT",
    "MOST_PER_CHANNEL",
    "MOST_STEPS_OF_BLOCK",
    "PROTOCOLS",
    "READS",
    "RECEIVES",
    "SENDS",
    "WRITES",
    "check_limits",
]

COLLECTIVES = {
    "allgather": "all-gather",
    "allreduce": "all-reduce",
    "reduce_scatter": "reduce-scatter",
    "reducescatter": "reduce-scatter",
    "alltoall": "all-to-all",
    "broadcast": "broadcast",
    "reduce": "reduce",
    "custom": "custom",
}
PROTOCOLS = ("LL", "LL128", "Simple")
MOST_STEPS_OF_BLOCK, MOST_BLOCKS, MOST_PER_CHANNEL = 256, 216, 32
MOST_CHANNELS, MOST_COUNT = 32, 71
# which steps send, receive, read their source and write their destination
SENDS = frozenset(("s", "rcs", "rrs", "rrcs"))
RECEIVES = frozenset(("r", "rcs", "rrs", "rrc", "rrcs"))
READS = frozenset(("s", "rrs", "rrc", "rrcs", "cpy", "re"))
WRITES = frozenset(("r", "rcs", "rrc", "rrcs", "cpy", "re"))


def check_limits(algorithm: Algorithm) -> list[str]:
    """Hold an algorithm to the parsers' rules; one line for each thing verified.

    Raises
    ------
    CheckError
        At the first rule that is broken, naming gpu, threadblock and step.
    """
    a = algorithm
    for name, value, known in (("proto", a.proto, PROTOCOLS), ("coll", a.coll, COLLECTIVES)):
        if value not in known:
            raise CheckError(f"algo: {name} {value!r}; the runtimes know {', '.join(known)}")
    if a.min_bytes < 0 or a.max_bytes < a.min_bytes:
        raise CheckError(f"algo: bytes from {a.min_bytes} to {a.max_bytes}")
    if not 1 <= a.nchannels <= MOST_CHANNELS:
        raise CheckError(f"algo: nchannels {a.nchannels}; expected 1 to {MOST_CHANNELS}")
    if [gpu.id for gpu in a.gpus] != list(range(a.ngpus)):
        ids = [gpu.id for gpu in a.gpus][:8]
        raise CheckError(f"algo: ngpus {a.ngpus}, but the gpus are {ids}; expected 0, 1, ...")
    for gpu in a.gpus:
        _check_gpu(a, gpu)
    blocks = sum(len(gpu.blocks) for gpu in a.gpus)
    steps = sum(len(block.steps) for gpu in a.gpus for block in gpu.blocks)
    return [f"{a.ngpus} gpus, {blocks} threadblocks, {steps} steps: within the parsers' limits"]


def _check_gpu(a: Algorithm, gpu: Gpu) -> None:
    kind = COLLECTIVES[a.coll]
    for name, count, factor in (
        ("i_chunks", gpu.i_chunks, a.ngpus if kind == "all-gather" else 1),
        ("o_chunks", gpu.o_chunks, a.ngpus if kind == "reduce-scatter" else 1),
    ):
        if count < 0 or (count and count * factor != a.nchunksperloop):
            raise CheckError(
                f"gpu {gpu.id}: {name} {count} does not fit nchunksperloop {a.nchunksperloop}"
            )
    if gpu.s_chunks < 0:
        raise CheckError(f"gpu {gpu.id}: s_chunks {gpu.s_chunks} is negative")
    if len(gpu.blocks) > MOST_BLOCKS:
        raise CheckError(f"gpu {gpu.id}: {len(gpu.blocks)} threadblocks; at most {MOST_BLOCKS}")
    if [block.id for block in gpu.blocks] != list(range(len(gpu.blocks))):
        ids = [block.id for block in gpu.blocks][:8]
        raise CheckError(f"gpu {gpu.id}: threadblocks {ids}; expected 0, 1, ...")
    taken: dict[tuple[str, int, int], int] = {}
    ends: dict[tuple[str, int], int] = {}
    for block in gpu.blocks:
        where = f"gpu {gpu.id}, tb {block.id}"
        if not 0 <= block.chan < a.nchannels:
            raise CheckError(f"{where}: chan {block.chan}; nchannels is {a.nchannels}")
        for end, peer in (("send", block.send), ("recv", block.recv)):
            if not -1 <= peer < a.ngpus or peer == gpu.id:
                raise CheckError(f"{where}: {end} {peer} is no other gpu")
            if peer < 0:
                continue
            other = taken.setdefault((end, peer, block.chan), block.id)
            if other != block.id:
                raise CheckError(
                    f"{where}: {end} {peer} on channel {block.chan} belongs to tb {other} already"
                )
            ends[end, block.chan] = ends.get((end, block.chan), 0) + 1
            if ends[end, block.chan] > MOST_PER_CHANNEL:
                raise CheckError(
                    f"{where}: more than {MOST_PER_CHANNEL} {end} peers on channel {block.chan}"
                )
        _check_steps(gpu, block, where)


def _check_steps(gpu: Gpu, block: Threadblock, where: str) -> None:
    if len(block.steps) > MOST_STEPS_OF_BLOCK:
        raise CheckError(f"{where}: {len(block.steps)} steps; at most {MOST_STEPS_OF_BLOCK}")
    pending = False
    for position, step in enumerate(block.steps):
        name = f"{where}, step {step.s} ({step.type})"
        if step.s != position:
            raise CheckError(f"{name}: stands at place {position}")
        if step.hasdep not in (0, 1):
            raise CheckError(f"{name}: hasdep {step.hasdep}; expected 0 or 1")
        _check_dependency(gpu, block, step, name)
        if step.type == "nop":
            if step.depid < 0:
                raise CheckError(f"{name}: waits for nothing, so the steps are misnumbered")
            if step.hasdep:
                raise CheckError(f"{name}: hasdep 1, but a nop signals nothing")
            pending = True
            continue
        if pending and step.depid < 0:
            raise CheckError(f"{name}: follows nops and waits for nothing; the parsers refuse that")
        pending = False
        _check_operation(gpu, block, step, name)


def _check_dependency(gpu: Gpu, block: Threadblock, step: Step, name: str) -> None:
    if step.depid < 0:
        return
    if step.depid >= len(gpu.blocks) or step.depid == block.id:
        raise CheckError(f"{name}: depid {step.depid} is no other threadblock")
    others = gpu.blocks[step.depid].steps
    if not 0 <= step.deps < len(others):
        raise CheckError(f"{name}: deps {step.deps}; tb {step.depid} has {len(others)} steps")
    if others[step.deps].type == "nop" or not others[step.deps].hasdep:
        raise CheckError(
            f"{name}: waits for step {step.deps} of tb {step.depid}, which signals nothing "
            "(hasdep 0)"
        )


def _check_operation(gpu: Gpu, block: Threadblock, step: Step, name: str) -> None:
    if step.type not in SENDS | RECEIVES | {"cpy", "re"}:
        raise CheckError(f"{name}: unknown or no part of a collective")
    if not 1 <= step.cnt <= MOST_COUNT:
        raise CheckError(f"{name}: cnt {step.cnt}; expected 1 to {MOST_COUNT}")
    if step.type in SENDS and block.send < 0:
        raise CheckError(f"{name}: its threadblock has no send peer")
    if step.type in RECEIVES and block.recv < 0:
        raise CheckError(f"{name}: its threadblock has no recv peer")
    sizes = {"i": gpu.i_chunks, "o": gpu.o_chunks, "s": gpu.s_chunks}
    for used, buffer, offset in (
        (step.type in READS, step.srcbuf, step.srcoff),
        (step.type in WRITES, step.dstbuf, step.dstoff),
    ):
        if used and not 0 <= offset <= sizes[buffer] - step.cnt:
            raise CheckError(
                f"{name}: {buffer}[{offset}] to {buffer}[{offset + step.cnt - 1}]; the buffer has "
                f"{sizes[buffer]} chunks"
            )
