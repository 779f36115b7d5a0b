/* web/timeline.js: where the time of a run went, as bars. */

const LANES = 12;               // of calls at the same time; more share the last
const MERGE = 0.0015;           // bars of a lane closer than this part of the width are one

/* Each gets a lane in which nothing else goes on; past the last, the one that is free first. */
function pack(items) {
  const lanes = [];
  for (const item of [...items].sort((a, b) => a.from - b.from)) {
    let lane = lanes.find((l) => l.until <= item.from);
    if (!lane && lanes.length < LANES) lanes.push(lane = { until: 0, items: [] });
    if (!lane) lane = lanes.reduce((a, b) => (a.until <= b.until ? a : b));
    lane.items.push(item);
    lane.until = Math.max(lane.until, item.to);
  }
  return lanes.map((lane) => lane.items);
}

/* Bars that overlap, or short ones that nearly touch, as one: a lane has some hundreds at most. */
function merge(items, span) {
  const merged = [];
  for (const item of items) {
    const before = merged[merged.length - 1];
    const gap = before ? item.from - before.to : Infinity;
    if (gap < 0 || (gap < span * MERGE && item.to - item.from < span * MERGE * 4)) {
      before.to = Math.max(before.to, item.to);
      before.failed = before.failed || item.failed;
      before.count++;
    } else {
      merged.push({ ...item, count: 1 });
    }
  }
  return merged;
}

function bar(item, start, span, kind, reveal) {
  const b = element("span", "bar " + kind + (item.failed ? " failed" : ""));
  const left = Math.min(100, (100 * (item.from - start)) / span);
  b.style.left = left + "%";
  b.style.width = Math.max(0, Math.min(100 - left, (100 * (item.to - item.from)) / span)) + "%";
  b.title = item.count > 1 ? plural(item.count, item.what) + ", " + seconds((item.to - item.from) / 1000) : item.title;
  if (item.step) {
    b.dataset.step = item.step;
    b.addEventListener("click", () => reveal(item.step));
  }
  return b;
}

function lane(name, items, start, span, kind, reveal, classes) {
  const track = element("div", "track");
  for (const item of merge(items, span)) track.append(bar(item, start, span, kind, reveal));
  return element("div", "lane " + classes, element("span", "name", name), track);
}

function item_of(step, what, title) {
  const from = time(step.started);
  const length = step.seconds !== null && step.seconds !== undefined ? 1000 * step.seconds : 0;
  return { from, to: from + length, failed: failed(step), step: step.id, what, title: title + ", " + (seconds(step.seconds) || "not ended") };
}

/* The bars of a run, by kind. */
function bars_of(run) {
  const bars = { model: [], cell: [], call: [], child: [] };
  for (const turn of run.turns) {
    for (const step of turn.steps) {
      if (step.type === "call") bars.model.push(item_of(step, "model call", "turn " + turn.turn + ", model"));
      else bars.cell.push(item_of(step, "cell", "turn " + turn.turn + ", code"));
      for (const sub of step.subs || []) bars.call.push(item_of(sub, "call", "turn " + turn.turn + ", call from the code"));
    }
  }
  for (const child of run.children) {
    const end = child.end || { status: "running", usage: { seconds: null } };
    bars.child.push(item_of({ started: child.started, seconds: end.usage.seconds, status: end.status }, "run", "run " + child.run));
  }
  return bars;
}

function ticks(span) {
  const row = element("div", "ticks");
  for (let i = 0; i <= 4; i++) {
    const tick = element("span", "", i === 0 ? "0" : seconds((span * i) / 4000));
    tick.style.left = 25 * i + "%";
    row.append(tick);
  }
  return element("div", "lane", element("span"), row);
}

function timeline(run, reveal) {
  const bars = bars_of(run);
  const all = Object.values(bars).flat();
  const start = all.reduce((least, item) => Math.min(least, item.from), time(run.started));
  const until = all.reduce((most, item) => Math.max(most, item.to), start);
  const span = Math.max(1, until - start, 1000 * ((run.end && run.end.usage.seconds) || 0));
  const box = element("div", "timeline");
  if (all.length === 0) return box;
  attributes(box, "role", "img", "aria-label", "Timeline: " + join(plural(bars.model.length, "model call"), plural(bars.cell.length, "cell"),
    plural(bars.call.length, "call") + " of code", plural(bars.child.length, "child run"), seconds(span / 1000)));
  box.append(lane("model", bars.model, start, span, "model", reveal, "first"));
  if (bars.cell.length) box.append(lane("code", bars.cell, start, span, "cell", reveal, "first"));
  pack(bars.call).forEach((items, i) => box.append(lane(i ? "" : "calls", items, start, span, "call", reveal, i ? "thin" : "thin first")));
  pack(bars.child).forEach((items, i) => box.append(lane(i ? "" : "runs", items, start, span, "child", reveal, i ? "thin" : "thin first")));
  box.append(ticks(span));
  return box;
}
