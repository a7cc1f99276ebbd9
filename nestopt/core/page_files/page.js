"use strict";
// One page: a timeline of bars in rows, a map of nodes and links, and a moment in time that both show.
const page = JSON.parse(document.getElementById("data").textContent);
const one = (id) => document.getElementById(id);
const rows = page.rows.length, bars = page.bars, heat = page.heat;
const view = { from: 0, to: page.end, top: 0, bottom: rows };
let now = 0, playing = null;

// Bars of each row in order of their start, so that the one under a moment is found by halving.
const byRow = Array.from({ length: rows }, () => []);
if (bars) {
  bars.row.forEach((row, index) => byRow[row].push(index));
  byRow.forEach((list) => list.sort((a, b) => bars.start[a] - bars.start[b]));
}
function barAt(row, time) {
  const list = byRow[row];
  let low = 0, high = list.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bars.start[list[middle]] <= time) low = middle + 1; else high = middle;
  }
  // a row may hold several bars at once; the latest that has begun and not ended counts
  for (let back = low - 1; back >= 0 && back >= low - 4; back--)
    if (bars.end[list[back]] > time) return list[back];
  return -1;
}
function heatAt(row, time) {
  const bin = Math.min(heat.bins - 1, Math.floor(time / page.end * heat.bins));
  return heat.values[Math.floor(row * heat.rows / rows) * heat.bins + bin] / 100;
}
function shown(time) {
  const digits = Math.max(0, Math.min(6, 2 - Math.floor(Math.log10((view.to - view.from) / 50))));
  return time.toFixed(Math.min(digits, 4)) + " " + page.unit;
}
function shade(share) { // white to dark blue: dark is busy
  const mix = (a, b) => Math.round(a + (b - a) * share);
  return `rgb(${mix(245, 24)},${mix(247, 44)},${mix(250, 99)})`;
}
function prepared(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.font = "12px system-ui, sans-serif";
  return { pen, width, height };
}

// The timeline
const line = one("timeline");
const left = () => (line.clientWidth < 600 ? 8 : 168), below = 24;
const lineHeight = () => Math.min(560, Math.max(160, rows * (rows <= 24 ? 24 : 7))) + below;
const toX = (time, width) => left() + (time - view.from) / (view.to - view.from) * (width - left() - 8);
const toTime = (x, width) => view.from + (x - left()) / (width - left() - 8) * (view.to - view.from);
const toY = (row, height) => (row - view.top) / (view.bottom - view.top) * (height - below);
const toRow = (y, height) => Math.floor(view.top + y / (height - below) * (view.bottom - view.top));

function drawTimeline() {
  const { pen, width, height } = prepared(line, lineHeight());
  const tall = toY(1, height) - toY(0, height);
  pen.save();
  pen.beginPath();
  pen.rect(left(), 0, width - left() - 8, height - below);
  pen.clip();
  if (heat) drawHeat(pen, width, height);
  else drawBars(pen, width, height, tall);
  pen.restore();
  pen.fillStyle = pen.strokeStyle = "#1b1f24";
  page.bands.forEach((band) => {
    const y = toY(band.first, height), end = toY(band.first + band.count, height);
    pen.strokeStyle = "#98a2ad";
    if (band.first) { pen.beginPath(); pen.moveTo(0, y); pen.lineTo(width, y); pen.stroke(); }
    const words = [band.name, ...band.detail.split("\n")].filter(Boolean);
    const middle = (Math.max(0, y) + Math.min(height - below, end)) / 2;
    if (left() > 100 && Math.min(end, height) - Math.max(0, y) > 9)
      words.slice(0, Math.max(1, Math.floor((end - y) / 14))).forEach((word, i, all) =>
        pen.fillText(word, 6, middle + 4 + 14 * (i - (all.length - 1) / 2), left() - 12));
  });
  const step = niceStep((view.to - view.from) / Math.max(3, width / 130));
  pen.textAlign = "center";
  for (let tick = Math.ceil(view.from / step) * step; tick <= view.to * (1 + 1e-9); tick += step) {
    const x = toX(tick, width);
    pen.fillRect(x, height - below, 1, 4);
    if (x >= left() && x < width - 34) pen.fillText(+tick.toPrecision(6), x, height - 7);
  }
  pen.textAlign = "right";
  pen.fillText(page.unit, width - 8, height - 7);
  const x = toX(now, width);
  if (x >= left()) { pen.fillStyle = "#c1121f"; pen.fillRect(x - 1, 0, 2, height - below); }
}
function drawBars(pen, width, height, tall) {
  const gap = tall > 5 ? 1 : 0;
  for (let row = Math.max(0, Math.floor(view.top)); row < Math.min(rows, view.bottom); row++) {
    const y = toY(row, height) + gap;
    for (const index of byRow[row]) {
      if (bars.end[index] < view.from || bars.start[index] > view.to) continue;
      const x = toX(bars.start[index], width), wide = toX(bars.end[index], width) - x;
      pen.fillStyle = page.colours[bars.colour[index]];
      pen.fillRect(x, y, Math.max(wide - (wide > 3 ? 1 : 0), 0.6), Math.max(tall - 2 * gap, 0.6));
      const text = String(bars.number[index]);
      if (bars.number[index] >= 0 && tall > 13 && wide > 9 + 7 * text.length) {
        pen.fillStyle = page.inks[bars.colour[index]];
        pen.textAlign = "center";
        pen.fillText(text, x + wide / 2, y + tall / 2 + 3);
        pen.textAlign = "left";
      }
    }
  }
}
function drawHeat(pen, width, height) {
  const each = page.end / heat.bins, count = rows / heat.rows;
  for (let row = 0; row < heat.rows; row++) for (let bin = 0; bin < heat.bins; bin++) {
    const x = toX(bin * each, width), y = toY(row * count, height);
    const right = toX((bin + 1) * each, width), end = toY((row + 1) * count, height);
    if (right < left() || x > width || end < 0 || y > height - below) continue;
    pen.fillStyle = shade(heat.values[row * heat.bins + bin] / 100);
    pen.fillRect(x, y, right - x + 0.5, end - y + 0.5);
  }
}
function niceStep(rough) {
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
}

// The map
const map = one("map");
const mapHeight = () => Math.max(170, Math.min(620, map.clientWidth * page.map.height / page.map.width));
function mapScale(width, height) {
  const scale = Math.min((width - 16) / page.map.width, (height - 16) / page.map.height);
  return { scale, x: (width - scale * page.map.width) / 2, y: (height - scale * page.map.height) / 2 };
}
function drawMap() {
  const { pen, width, height } = prepared(map, mapHeight());
  const { scale, x, y } = mapScale(width, height);
  for (const [bx, by, bw, bh, level] of page.map.boxes) {
    pen.strokeStyle = level ? "#5c6670" : "#b3bcc5";
    pen.strokeRect(x + bx * scale, y + by * scale, bw * scale, bh * scale);
  }
  page.map.links.forEach((link) => {
    const busy = heat ? heatAt(link.row, now) : barAt(link.row, now);
    const on = heat ? busy > 0.005 : busy >= 0;
    pen.strokeStyle = heat ? shade(busy) : on ? page.colours[bars.colour[busy]] : "#d5dbe1";
    pen.lineWidth = on ? 2.4 : 0.8;
    pen.beginPath();
    link.path.forEach(([px, py], i) => pen[i ? "lineTo" : "moveTo"](x + px * scale, y + py * scale));
    pen.stroke();
  });
  pen.lineWidth = 1;
  page.map.nodes.forEach((node) => drawNode(pen, node, x, y, scale));
}
function drawNode(pen, node, x, y, scale) {
  const size = Math.max(node.size * scale, 3), cx = x + node.x * scale, cy = y + node.y * scale;
  const busy = node.row >= 0 && bars ? barAt(node.row, now) : -1;
  pen.fillStyle = node.colour < 0 ? "#ffffff" : page.colours[node.colour];
  pen.strokeStyle = "#5c6670";
  pen.globalAlpha = node.row >= 0 && busy < 0 ? 0.3 : 1;
  pen.beginPath();
  if (node.shape === "circle") pen.arc(cx, cy, size / 2, 0, 7);
  else pen.rect(cx - size / 2, cy - size / 2, size, size);
  pen.fill();
  pen.globalAlpha = 1;
  if (node.colour < 0 || node.row < 0) pen.stroke();
  if (node.failed) {
    pen.beginPath();
    pen.moveTo(cx - size / 2, cy - size / 2); pen.lineTo(cx + size / 2, cy + size / 2);
    pen.moveTo(cx - size / 2, cy + size / 2); pen.lineTo(cx + size / 2, cy - size / 2);
    pen.stroke();
  }
  if (busy >= 0 && size > 5) {
    pen.fillStyle = page.colours[bars.colour[busy]];
    pen.fillRect(cx - size / 6, cy + size / 8, size / 3, size / 4);
    pen.strokeStyle = "#ffffff";
    pen.strokeRect(cx - size / 6, cy + size / 8, size / 3, size / 4);
  }
  const square = node.shape === "square";
  if (node.label && (square ? size > 9 + 6 * node.label.length : scale > 22)) {
    pen.fillStyle = "#1b1f24";
    pen.textAlign = "center";
    if (square && node.colour >= 0) pen.fillStyle = page.inks[node.colour];
    pen.fillText(node.label, cx, square ? cy : cy - size / 2 - 4);
    pen.textAlign = "left";
  }
}

// What is under the pointer
const tip = one("tip");
function tell(event, text) {
  tip.textContent = text;
  tip.style.display = text ? "block" : "none";
  const right = event.clientX + 330 > window.innerWidth;
  tip.style.left = right ? "" : event.clientX + 14 + "px";
  tip.style.right = right ? window.innerWidth - event.clientX + 14 + "px" : "";
  tip.style.top = event.clientY + 14 + "px";
}
function tipOfLine(event) {
  const box = line.getBoundingClientRect(), time = toTime(event.clientX - box.left, box.width);
  const row = toRow(event.clientY - box.top, box.height);
  if (row < 0 || row >= rows || time < view.from || time > view.to) return "";
  if (heat) return `${page.rows[row]}\n${Math.round(100 * heatAt(row, time))} % busy about ${shown(time)}`;
  const index = barAt(row, time);
  if (index < 0) return `${page.rows[row]}\nidle at ${shown(time)}`;
  const number = bars.number[index] >= 0 ? " " + bars.number[index] : "";
  return `${page.rows[row]}\n${page.words[bars.word[index]]}${number}\n` +
    `${shown(bars.start[index])} to ${shown(bars.end[index])}`;
}
function tipOfMap(event) {
  const box = map.getBoundingClientRect(), { scale, x, y } = mapScale(box.width, box.height);
  const px = (event.clientX - box.left - x) / scale, py = (event.clientY - box.top - y) / scale;
  let best = null, near = Math.max(0.35, 8 / scale);
  for (const node of page.map.nodes) {
    const far = Math.max(Math.abs(node.x - px), Math.abs(node.y - py)) - node.size / 2;
    if (far < near && far < 6 / scale) { near = far; best = node; }
  }
  if (best) return best.tip + (best.row >= 0 && bars ? "\n" + doing(best.row) : "");
  for (const link of page.map.links) {
    const [a, b] = [link.path[0], link.path[link.path.length - 1]];
    const length = Math.hypot(b[0] - a[0], b[1] - a[1]) || 1;
    const along = ((px - a[0]) * (b[0] - a[0]) + (py - a[1]) * (b[1] - a[1])) / length;
    const off = Math.abs((px - a[0]) * (b[1] - a[1]) - (py - a[1]) * (b[0] - a[0])) / length;
    if (along > 0 && along < length && off < 4 / scale) return page.rows[link.row] + "\n" + doing(link.row);
  }
  return "";
}
function doing(row) {
  if (heat) return `${Math.round(100 * heatAt(row, now))} % busy about ${shown(now)}`;
  const index = barAt(row, now);
  if (index < 0) return "idle at " + shown(now);
  return page.words[bars.word[index]] + (bars.number[index] >= 0 ? " " + bars.number[index] : "");
}

// A moment, and the part of the time that is shown
function readout() {
  let busy = 0;
  for (let row = 0; row < rows; row++) if (heat ? heatAt(row, now) > 0.005 : barAt(row, now) >= 0) busy++;
  one("moment").value = `${shown(now)}: ${busy} of ${rows} ${page.noun} ${page.verb}`;
}
function draw() { drawTimeline(); drawMap(); readout(); }
function setNow(time) { now = Math.min(page.end, Math.max(0, time)); one("slider").value = now / page.end * 1000; draw(); }
function zoom(factor, at) {
  const wide = Math.min(page.end, Math.max(page.end / 1e5, (view.to - view.from) * factor));
  const share = (at - view.from) / (view.to - view.from);
  show(at - share * wide, at + (1 - share) * wide);
}
function show(from, to) {
  const wide = to - from;
  view.from = Math.max(0, Math.min(from, page.end - wide));
  view.to = Math.min(page.end, view.from + wide);
  draw();
}
function zoomRows(factor, at) {
  const count = Math.min(rows, Math.max(4, (view.bottom - view.top) * factor));
  view.top = Math.max(0, Math.min(rows - count, at - (at - view.top) / (view.bottom - view.top) * count));
  view.bottom = view.top + count;
  draw();
}
line.addEventListener("wheel", (event) => {
  event.preventDefault();
  const box = line.getBoundingClientRect(), factor = (event.deltaY || event.deltaX) < 0 ? 0.8 : 1.25;
  if (event.shiftKey) zoomRows(factor, toRow(event.clientY - box.top, box.height) + 0.5);
  else zoom(factor, toTime(event.clientX - box.left, box.width));
}, { passive: false });
let drag = null;
line.addEventListener("pointerdown", (event) => {
  drag = { x: event.clientX, from: view.from, to: view.to, moved: false };
  try { line.setPointerCapture(event.pointerId); } catch { /* a pointer that is gone */ }
});
line.addEventListener("pointermove", (event) => {
  if (!drag) return tell(event, tipOfLine(event));
  const shift = (drag.x - event.clientX) / (line.clientWidth - left() - 8) * (drag.to - drag.from);
  if (Math.abs(drag.x - event.clientX) > 3) drag.moved = true;
  if (drag.moved) show(drag.from + shift, drag.to + shift);
});
line.addEventListener("pointerup", (event) => {
  const box = line.getBoundingClientRect();
  if (drag && !drag.moved) setNow(toTime(event.clientX - box.left, box.width));
  drag = null;
});
map.addEventListener("pointermove", (event) => tell(event, tipOfMap(event)));
for (const canvas of [line, map]) canvas.addEventListener("pointerleave", (event) => tell(event, ""));
const middle = () => (now >= view.from && now <= view.to ? now : (view.from + view.to) / 2);
one("closer").addEventListener("click", () => zoom(0.5, middle()));
one("wider").addEventListener("click", () => zoom(2, middle()));
one("all").addEventListener("click", () => { view.top = 0; view.bottom = rows; show(0, page.end); });
one("slider").addEventListener("input", (event) => setNow(event.target.value / 1000 * page.end));
one("play").addEventListener("click", () => {
  if (playing) { clearInterval(playing); playing = null; } else {
    if (now >= page.end) now = 0;
    playing = setInterval(() => {
      setNow(now + page.end / 240);
      if (now >= page.end) { clearInterval(playing); playing = null; one("play").textContent = "Play"; }
    }, 50);
  }
  one("play").textContent = playing ? "Pause" : "Play";
});
window.addEventListener("resize", draw);
setNow(page.start);
