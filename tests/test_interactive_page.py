"""Interactive pages: complete in one file, true to the solution, and alive in a real browser."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

import nestopt
from nestopt.core.errors import NestoptError

if TYPE_CHECKING:
    from pathlib import Path

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs a browser: chromium")

START = "<script>window.faults = []; onerror = (message) => faults.push(String(message));</script>"
HELP = """
const say = {}, box = () => line.getBoundingClientRect();
const at = (time, row) => ({
  bubbles: true, cancelable: true, pointerId: 1,
  clientX: box().left + toX(time, box().width),
  clientY: box().top + toY(row + 0.5, box().height),
});
"""
STOP = """
const out = document.createElement("pre");
out.id = "answer";
out.textContent = JSON.stringify({ ...say, faults });
document.body.append(out);
"""


def browse(page: str, script: str, folder: Path) -> dict[str, Any]:
    """What a script finds out that runs after the page's own, in a real browser."""
    page = page.replace("<head>", f"<head>{START}", 1)
    page = page.replace("</body>", f"<script>{{{HELP}{script}{STOP}}}</script></body>")
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    done = subprocess.run(
        [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,900",
         f"--user-data-dir={folder / 'profile'}", "--dump-dom", file.as_uri()],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-2000:]
    return dict(json.loads(html.unescape(found[1])))


@pytest.fixture(scope="module")
def schedule() -> Any:
    return nestopt.solve("all-gather", "mesh2d:3x3", seed=1).solution


@pytest.fixture(scope="module")
def plan() -> Any:
    return nestopt.solve("chain4-tree2x2", time_limit=20).solution


def test_a_page_is_whole_and_needs_nothing_else(schedule: Any, tmp_path: Path) -> None:
    text = schedule.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == text == schedule.to_html()
    assert "default-src 'none'" in text
    assert not re.search(r"https?:|src=|@import|url\(", text.replace("default-src", ""))
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])  # type: ignore[index]
    assert len(data["bars"]["row"]) == schedule.num_sends == 72
    assert len(data["rows"]) == 24 and len(data["map"]["links"]) == 24
    assert "<td>25.0 %</td>" in text  # idle share of the one kind of link


def test_names_cannot_break_a_page() -> None:
    from dataclasses import replace

    evil = "</script><script>alert(1)</script><b>"
    topology = nestopt.load("ring:3", "topology")
    named = replace(topology, name=evil, node_names=tuple(f"{evil}{i}" for i in range(3)))
    text = nestopt.solve("all-gather", named).solution.to_html()
    assert text.count("<script") == text.count("</script>") == 2
    assert "<b>" not in text


def test_a_solution_without_its_instance_has_no_page(schedule: Any) -> None:
    from dataclasses import replace

    for call in ("to_html", "chart"):
        with pytest.raises(NestoptError, match="does not know its instance"):
            getattr(replace(schedule, instance=None), call)()


@needs_browser
def test_a_schedule_in_a_browser(schedule: Any, tmp_path: Path) -> None:
    said = browse(
        schedule.to_html(),
        """
        say.start = one("moment").value;
        one("slider").value = 900; one("slider").dispatchEvent(new Event("input"));
        say.late = one("moment").value;
        const wide = view.to - view.from;
        line.dispatchEvent(new WheelEvent("wheel", { ...at(1, 0), deltaY: -1 }));
        say.zoomed = (view.to - view.from) / wide;
        say.fixed = toTime(at(1, 0).clientX - box().left, box().width);
        line.dispatchEvent(new PointerEvent("pointermove", at(0.5, 0)));
        say.tip = tip.textContent; say.seen = tip.style.display;
        one("all").click();
        line.dispatchEvent(new PointerEvent("pointerdown", at(2.5, 3)));
        line.dispatchEvent(new PointerEvent("pointerup", at(2.5, 3)));
        say.clicked = now;
        one("closer").click(); one("closer").click();
        say.closer = (view.to - view.from) / wide;
        line.dispatchEvent(new PointerEvent("pointerdown", at(2.5, 3)));
        line.dispatchEvent(new PointerEvent("pointermove", at(2, 3)));
        line.dispatchEvent(new PointerEvent("pointerup", at(2.5, 3)));
        say.dragged = view.from;
        const b = map.getBoundingClientRect(), s = mapScale(b.width, b.height);
        const n = page.map.nodes[4];
        map.dispatchEvent(new PointerEvent("pointermove",
          { clientX: b.left + s.x + n.x * s.scale, clientY: b.top + s.y + n.y * s.scale }));
        say.node = tip.textContent;
        say.paper = document.documentElement.scrollWidth - innerWidth;
        """,
        tmp_path,
    )
    assert said["faults"] == []
    busy = sum(s <= 3.6 * 10**9 < s + 10**9 for s in schedule.start_ps.tolist())
    assert 0 < busy < 24
    assert said["start"].endswith("ms: 24 of 24 links busy")
    assert said["late"].startswith("3.6") and f"{busy} of 24 links busy" in said["late"]
    assert said["zoomed"] == pytest.approx(0.8) and said["fixed"] == pytest.approx(1, abs=1e-6)
    topology = schedule.instance.topology
    first = "(npu0.0 -> npu0.1)"
    (chunk,) = [
        s.chunk for s in schedule if not s.start_ps and topology.link_name(s.link).endswith(first)
    ]
    assert said["tip"].splitlines()[:2] == ["npu0.0 → npu0.1", f"chunk {chunk}"]
    assert said["seen"] == "block"
    assert said["clicked"] == pytest.approx(2.5, abs=1e-6)
    assert said["closer"] == pytest.approx(0.25)
    assert said["dragged"] > 2
    assert said["node"].startswith("npu1.1, NPU 4")
    assert said["paper"] <= 0


@needs_browser
def test_a_plan_in_a_browser(plan: Any, tmp_path: Path) -> None:
    stages = len(plan)
    said = browse(
        plan.to_html(),
        """
        say.start = one("moment").value;
        one("slider").value = 1000; one("slider").dispatchEvent(new Event("input"));
        say.end = one("moment").value;
        setNow(0); say.tips = page.map.nodes.map((n) => n.tip);
        line.dispatchEvent(new PointerEvent("pointermove", at(bars.end[0] / 2, 0)));
        say.tip = tip.textContent;
        say.doing = doing(0);
        """,
        tmp_path,
    )
    assert said["faults"] == []
    assert said["start"].endswith(f"of {stages} stages work")
    assert f": 0 of {stages} stages work" in said["end"]
    assert said["tip"].splitlines()[0].startswith("stage 0: ")
    assert "forward of micro-batch 0" in said["tip"] and said["doing"] == "forward of micro-batch 0"
    told = [tip.splitlines()[1] for tip in said["tips"]]
    expected = {
        int(device): f"stage {q}, replica {r}, rank {w}"
        for q, stage in enumerate(plan)
        for r, row in enumerate(stage.devices)
        for w, device in enumerate(row)
    }
    assert told == [expected.get(device, "idle") for device in range(len(told))]


def test_many_sends_become_shares(schedule: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from nestopt.collective.show import page

    monkeypatch.setattr(page, "MOST_BARS", 10)
    made = page.schedule_page(schedule.instance, schedule)
    assert made.bars is None and made.heat is not None
    assert made.heat.rows * made.heat.bins == len(made.heat.values)
    assert sum(made.heat.values) / len(made.heat.values) == pytest.approx(75, abs=0.5)


def test_many_tasks_leave_the_middle_out(plan: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from nestopt.placement.show import page

    whole = page.plan_page(plan.workload, plan.cluster, plan)
    assert "not shown" not in dict(whole.facts)
    monkeypatch.setattr(page, "MOST_BARS", 8)
    part = page.plan_page(plan.workload, plan.cluster, plan)
    assert whole.bars is not None and part.bars is not None
    left_out = len(whole.bars.row) - len(part.bars.row)
    assert left_out > 0 and dict(part.facts)["not shown"].startswith(f"{left_out} tasks")


def test_a_plan_as_characters(plan: Any) -> None:
    lines = plan.chart(60).splitlines()
    assert max(map(len, lines)) <= 62
    marks = "".join(re.findall(r"\[([^\]]*)\](?! x)", plan.chart(60)))
    assert len(marks) == len(plan.cluster.type_of)
    for device, mark in enumerate(marks):
        held = [str(q) for q, s in enumerate(plan) if device in s.devices]
        assert mark == (held[0] if held else ".")
    rows = [line for line in lines if re.match(r" +\d+ \|", line)]
    assert len(rows) == len(plan) and all("F" in row and "B" in row for row in rows)
