"""Plays a job in SimGrid: ``python simgrid_child.py < JOB.json``; prints one JSON object.

It imports nothing but SimGrid, so that any Python which has that can run it (Debian packages it
for the system's own). A job is a list of workers, each with its activities in their order:

- a link carries messages, one at a time: ``{"link": [bytes/s, latency s, delay s], "do": ...}``;
  what is sent counts as arrived `delay` seconds after the link is done with it;
- a processor computes: ``{"cpu": 1, "do": ...}``, a second's work a second.

An activity is ``[number, amount, needs]``: bytes or seconds, and the numbers of the activities that
must be over before it may start.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from simgrid import Actor, Engine, LinkInRoute, Mailbox, NetZone, Semaphore, this_actor

SPEED = 1e9


def _engine() -> Any:
    """SimGrid without corrections for TCP: latency, then the whole bandwidth."""
    words = [
        "nestopt",
        "--cfg=network/model:CM02",
        "--cfg=network/bandwidth-factor:1",
        "--cfg=network/latency-factor:1",
        "--cfg=network/weight-S:0",
        "--cfg=network/TCP-gamma:0",
        "--cfg=network/crosstraffic:0",
        "--cfg=contexts/factory:thread",
        "--log=root.thresh:critical",
    ]
    try:
        return Engine([*words, "--cfg=surf/precision:1e-12"])
    except IndexError:  # SimGrid 4 has another name for it
        return Engine([*words, "--cfg=precision/timing:1e-12"])


def main() -> None:
    job: list[dict[str, Any]] = json.load(sys.stdin)
    engine = _engine()
    zone = NetZone.create_full_zone("all")
    waits: dict[int, Any] = {}
    followers: dict[int, list[int]] = {}
    for worker in job:
        for number, _, needs in worker["do"]:
            waits[number] = Semaphore(0)
            for other in needs:
                followers.setdefault(other, []).append(number)
    ends: dict[int, float] = {}

    def over(number: int) -> None:
        ends[number] = Engine.clock
        for follower in followers.get(number, ()):
            waits[follower].release()

    def wait(number: int, needs: list[int]) -> None:
        for _ in needs:
            waits[number].acquire()

    def send(place: str, activities: list[Any]) -> None:
        mailbox = Mailbox.by_name(place)
        for number, amount, needs in activities:
            wait(number, needs)
            mailbox.put(number, max(round(amount), 1))

    def late(number: int, delay: float) -> None:
        this_actor.sleep_for(delay)
        over(number)

    def receive(place: str, count: int, delay: float, host: Any) -> None:
        mailbox = Mailbox.by_name(place)
        for _ in range(count):
            number = mailbox.get()
            if delay > 0:
                Actor.create("late", host, late, number, delay)
            else:
                over(number)

    def compute(activities: list[Any]) -> None:
        for number, amount, needs in activities:
            wait(number, needs)
            this_actor.execute(amount * SPEED)
            over(number)

    starts: list[tuple[Any, Any, tuple[Any, ...]]] = []
    for index, worker in enumerate(job):
        if "link" in worker:
            bandwidth, latency, delay = worker["link"]
            pair = [zone.create_host(f"{end}{index}", SPEED) for end in "ab"]
            link = zone.create_link(f"l{index}", bandwidth)
            link.set_latency(latency)
            link.seal()
            way = [LinkInRoute(link)]
            zone.add_route(pair[0].netpoint, pair[1].netpoint, None, None, way, True)
            starts.append((pair[0], send, (f"m{index}", worker["do"])))
            starts.append((pair[1], receive, (f"m{index}", len(worker["do"]), delay, pair[1])))
        else:
            host = zone.create_host(f"c{index}", SPEED)
            starts.append((host, compute, (worker["do"],)))
    zone.seal()
    for number, (host, function, arguments) in enumerate(starts):
        Actor.create(f"actor{number}", host, function, *arguments)
    engine.run()
    count = sum(len(worker["do"]) for worker in job)
    print(json.dumps({"seconds": max(ends.values(), default=0.0), "done": len(ends) == count}))


if __name__ == "__main__":
    main()
