/* web/page.js: draws a run from the record's lines (docs/record.md) that stand in the page.
 *
 * All of it is the text of strangers: it becomes text nodes and nothing else, with control and
 * direction characters made visible. What can be long is drawn when it is opened, and lists in
 * portions, so that a run of ten thousand calls opens at once. No function calls itself over what a
 * record holds.
 */
"use strict";
(() => {
  const OPEN_TURNS = 40;        // turns that are open at first
  const PORTION = 100;          // items of a list that are drawn at once
  const LANES = 12;             // of calls at the same time; more share the last
  const SHORT_JSON = 90;        // characters that stay on one line
  const MERGE = 0.0015;         // bars of a lane closer than this part of the width are one

  /* ---- the record ---- */

  const runs = new Map();
  const cells = new Map();
  const broken = { lines: 0 };

  const take = {
    run(r) {
      const run = { ...r, turns: [], children: [], end: null };
      runs.set(r.run, run);
      const parent = runs.get(r.parent);
      const cell = cells.get(r.parent_cell);
      if (parent) parent.children.push(run);
      if (cell) cell.children.push(run);
    },
    turn(t) { runs.get(t.run).turns.push({ ...t, steps: [] }); },
    call(c) {
      const cell = c.cell === null ? null : cells.get(c.cell);
      if (cell) cell.subs.push(c);
      else last_turn(c).steps.push(c);
    },
    cell(c) {
      const cell = { ...c, subs: [], children: [] };
      cells.set(c.id, cell);
      last_turn(c).steps.push(cell);
    },
    end(e) { runs.get(e.run).end = e; },
  };

  function last_turn(step) {
    const turns = runs.get(step.run).turns;
    return turns[turns.length - 1];
  }

  function read() {
    for (const line of document.getElementById("record").textContent.split("\n")) {
      if (line.trim() === "") continue;
      try {
        const record = JSON.parse(line);
        take[record.type](record);
      } catch (_) {
        broken.lines++;
      }
    }
  }

  /* ---- elements ---- */

  /* Control characters (but newline and tab), and those that are invisible or change directions. */
  const STRANGE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]+/gu;

  function show_strange(found) {
    return Array.from(found, (c) => {
      const code = c.codePointAt(0);
      return code < 256 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
    }).join("");
  }

  function add_text(parent, text) {
    text = String(text).replace(/\r\n/g, "\n");
    let at = 0;
    for (const found of text.matchAll(STRANGE)) {
      parent.append(text.slice(at, found.index));
      const mark = document.createElement("span");
      mark.className = "ctl";
      mark.textContent = show_strange(found[0]);
      parent.append(mark);
      at = found.index + found[0].length;
    }
    parent.append(text.slice(at));
    return parent;
  }

  /* element("p", "soft", "words", another) */
  function element(name, classes, ...inside) {
    const e = document.createElement(name);
    if (classes) e.className = classes;
    for (const part of inside) {
      if (part instanceof Node) e.append(part);
      else if (part !== null && part !== undefined) add_text(e, part);
    }
    return e;
  }

  /* What is inside is made when it is opened for the first time. */
  function folded(classes, summary, fill, open) {
    const d = element("details", classes, summary);
    let filled = false;
    const draw = () => {
      if (!filled && d.open) {
        filled = true;
        fill(d);
      }
    };
    d.draw = draw;
    d.addEventListener("toggle", draw);
    d.open = Boolean(open);
    draw();
    return d;
  }

  function open_fully(d) {
    d.open = true;
    d.draw();
  }

  /* A list in portions. */
  function portions(parent, items, draw) {
    let at = 0;
    const more = element("button", "more");
    const next = () => {
      more.remove();
      for (const end = Math.min(at + PORTION, items.length); at < end; at++) parent.append(draw(items[at], at));
      if (at < items.length) {
        more.textContent = "show " + Math.min(PORTION, items.length - at) + " more of " + (items.length - at);
        parent.append(more);
      }
    };
    more.addEventListener("click", next);
    next();
  }

  /* ---- words ---- */

  const number = (n) => Number(n).toLocaleString("en-US");
  const plural = (n, what) => number(n) + " " + what + (n === 1 ? "" : "s");
  const time = (text) => (text ? Date.parse(text) : NaN);
  const failed = (step) => !["ok", "submitted", "answered", "running"].includes(step.status);

  function seconds(s) {
    if (s === null || s === undefined) return null;
    if (s >= 100) return Math.floor(s / 60) + " min " + Math.round(s % 60) + " s";
    return (s >= 10 ? s.toFixed(1) : s >= 0.1 ? s.toFixed(2) : s.toFixed(3)) + " s";
  }

  function bytes(n) {
    for (const unit of ["bytes", "KiB", "MiB"]) {
      if (n < 1024 || unit === "MiB") return (unit === "bytes" ? n : n.toFixed(1)) + " " + unit;
      n /= 1024;
    }
  }

  function tokens(step) {
    if (step.input_tokens === null) return null;
    return (step.estimated ? "about " : "") + number(step.input_tokens) + " + " + number(step.output_tokens) + " tokens";
  }

  const join = (...parts) => parts.filter((part) => part !== null && part !== undefined && part !== "").join(" · ");
  const one_line = (text) => String(text).slice(0, 400).replace(/\s+/g, " ").trim();

  function as_text(value) {
    if (typeof value === "string") return value;
    const short = JSON.stringify(value);
    return short.length <= SHORT_JSON ? short : JSON.stringify(value, null, 2);
  }

  function question_of(run) {
    return one_line(run.question === null ? "" : run.question) || "(no question)";
  }

  function cut_note(record, key) {
    const size = record.cut && record.cut[key];
    return size === undefined ? null
      : element("p", "note", "The beginning of " + bytes(size) + ". All of it: droste runs export " + record.run);
  }

  /* ---- code ---- */

  const KEYWORDS = new Set(("and as assert async await break class continue def del elif else except finally for from global if " +
    "import in is lambda nonlocal not or pass raise return try while with yield None True False").split(" "));
  const OURS = new Set(("context history answer SUBMIT FINAL FINAL_VAR SHOW_VARS llm_query llm_query_batched rlm_query " +
    "rlm_query_batched sub_rlm sub_rlm_batched add_buffer get_buffer clear_buffer").split(" "));
  const TOKEN = /(#[^\n]*)|((?:\b[rRbBfFuU]{1,2})?(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?))|(\b\d[\w.]*)|([A-Za-z_]\w*)/g;

  function token_class(found) {
    if (found[1]) return "c";
    if (found[2]) return "s";
    if (found[3]) return "n";
    return KEYWORDS.has(found[4]) ? "k" : OURS.has(found[4]) ? "o" : "";
  }

  function code(text) {
    text = text.replace(/\n$/, "");
    const pre = element("pre");
    let at = 0;
    for (const found of text.matchAll(TOKEN)) {
      const kind = token_class(found);
      if (!kind) continue;
      add_text(pre, text.slice(at, found.index));
      pre.append(element("span", kind, found[0]));
      at = found.index + found[0].length;
    }
    add_text(pre, text.slice(at));
    const lines = text.split("\n").length;
    const numbers = element("pre", "numbers", Array.from({ length: lines }, (_, i) => i + 1).join("\n"));
    numbers.setAttribute("aria-hidden", "true");
    return element("div", "code", numbers, pre);
  }

  /* ---- timeline ---- */

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
    box.append(lane("model", bars.model, start, span, "model", reveal, "first"));
    if (bars.cell.length) box.append(lane("code", bars.cell, start, span, "cell", reveal, "first"));
    pack(bars.call).forEach((items, i) => box.append(lane(i ? "" : "calls", items, start, span, "call", reveal, i ? "thin" : "thin first")));
    pack(bars.child).forEach((items, i) => box.append(lane(i ? "" : "runs", items, start, span, "child", reveal, i ? "thin" : "thin first")));
    box.append(ticks(span));
    return box;
  }

  /* ---- steps ---- */

  function part(card, classes, ...inside) {
    card.append(element("div", "part " + (classes || ""), ...inside));
  }

  function output(card, cell, key, name, classes) {
    if (!cell[key]) return;
    part(card, "", element("div", "label", name), element("pre", "out " + classes, cell[key]), cut_note(cell, key));
  }

  function failure_text(cell) {
    const error = cell.error;
    if (!error || typeof error !== "object") return error;
    const last = [error.type, error.message].filter(Boolean).join(": ");
    return error.traceback || last || null;
  }

  function variables(card, cell) {
    const list = Array.isArray(cell.variables) ? cell.variables.filter((v) => v && typeof v === "object") : [];
    if (list.length === 0) return;
    part(card, "", folded("", element("summary", "soft", plural(list.length, "variable")), (d) => {
      const table = element("table", "", element("tr", "", ...["name", "type", "length", "value"].map((h) => element("th", "", h))));
      for (const v of list)
        table.append(element("tr", "", element("td", "mono", v.name), element("td", "mono", v.type),
          element("td", "number", v.length === undefined ? "" : number(v.length)), element("td", "mono", v.preview || "")));
      d.append(table);
    }));
  }

  function exchange(d, call) {
    d.append(element("div", "exchange",
      element("div", "label", "prompt"), element("pre", "", call.request === null ? "" : as_text(call.request)), cut_note(call, "request"),
      call.reply !== null ? element("div", "label", "reply") : null,
      call.reply !== null ? element("pre", "", call.reply) : null, cut_note(call, "reply"),
      call.error ? element("p", "why", call.error) : null));
  }

  function call_facts(call) {
    return join(call.model, failed(call) ? call.status : call.status === "running" ? "running" : null, seconds(call.seconds), tokens(call),
      call.attempts > 1 ? plural(call.attempts, "attempt") : null, call.finish && call.finish !== "stop" ? "finish: " + call.finish : null);
  }

  function sub_calls(card, cell) {
    if (cell.subs.length === 0) return;
    const wrong = cell.subs.filter(failed).length;
    const sum = (key) => cell.subs.reduce((n, c) => n + (c[key] || 0), 0);
    const words = join(plural(cell.subs.length, "call") + " of a model", number(sum("input_tokens")) + " + " + number(sum("output_tokens")) + " tokens",
      wrong ? wrong + " failed" : null);
    part(card, "", folded("calls", element("summary", wrong ? "failure" : "", words), (d) => {
      portions(d, cell.subs, (call, i) => {
        const summary = element("summary", "", element("span", failed(call) ? "failure" : "soft", i + 1 + " · " + call_facts(call) + "  "),
          one_line(call.request === null ? "" : as_text(call.request)));
        const f = folded("call", summary, (inner) => exchange(inner, call));
        f.dataset.id = call.id;
        return f;
      });
    }));
  }

  function children(card, cell) {
    for (const run of cell.children) {
      const summary = element("summary", "", "run ", element("span", "mono", run.run), " ", pill(run), " ", question_of(run));
      const f = folded("", summary, (d) => d.append(run_inside(run)));
      f.dataset.run = run.run;
      part(card, "child-run", f);
    }
  }

  function pill(run) {
    const status = run.end ? run.end.status : "running";
    return element("span", "pill " + (/^[a-z]+$/.test(status) ? status : ""), status);
  }

  function cell_card(cell) {
    const card = element("div", "card");
    card.dataset.id = cell.id;
    const trouble = failure_text(cell);
    part(card, "code-part", code(cell.code === null ? "" : cell.code), cut_note(cell, "code"));
    output(card, cell, "stdout", "output", "");
    output(card, cell, "stderr", "standard error", "stderr");
    if (trouble) part(card, "", element("pre", "out failure", as_text(trouble)), cut_note(cell, "error"));
    if (cell.submit !== null)
      part(card, "submit", element("div", "label", "submitted"), element("pre", "out", as_text(cell.submit)), cut_note(cell, "submit"));
    sub_calls(card, cell);
    children(card, cell);
    variables(card, cell);
    part(card, "status", element("span", failed(cell) ? "failure" : "", cell.status),
      (cell.killed ? " by " + cell.killed : "") + (cell.seconds !== null ? " in " + seconds(cell.seconds) : ""));
    return card;
  }

  /* The reply without the blocks of code, which come as cells. */
  function prose(reply, has_cells) {
    return has_cells ? reply.replace(/^```(?:repl|python)[^\n]*\n[^]*?(?:^```[^\n]*$|$(?![^]))/gm, "").trim() : reply.trim();
  }

  function model_call(call, has_cells) {
    const box = element("div");
    box.dataset.id = call.id;
    const reply = call.reply === null ? "" : call.reply;
    const words = prose(reply, has_cells);
    if (words) box.append(element("p", "said", words));
    if (call.error) box.append(element("p", "why", call.error));
    box.append(folded("soft", element("summary", "note", join("model", call_facts(call))), (d) => {
      const messages = Array.isArray(call.request) ? call.request : [{ role: "prompt", content: call.request }];
      const list = element("div", "exchange");
      for (const m of messages) {
        const known = m && typeof m === "object" && typeof m.content === "string";
        list.append(element("div", "label", known ? m.role : "message"), element("pre", "", known ? m.content : as_text(m)));
      }
      list.append(element("div", "label", "reply, whole"), element("pre", "", reply));
      for (const key of ["request", "reply"]) list.append(cut_note(call, key) || "");
      d.append(list);
    }));
    return box;
  }

  function turn_facts(turn) {
    const subs = turn.steps.reduce((n, s) => n + (s.subs ? s.subs.length : 0), 0);
    const taken = turn.steps.reduce((n, s) => n + (s.seconds || 0), 0);
    return join(seconds(taken), subs ? plural(subs, "call") : null, turn.steps.some((s) => s.type === "cell" && failed(s)) ? "trouble" : null);
  }

  function turn_box(turn, open) {
    const has_cells = turn.steps.some((s) => s.type === "cell");
    const summary = element("summary", "", element("h2", "", "Turn " + turn.turn), element("span", "soft", turn_facts(turn)));
    const box = folded("turn", summary, (d) => {
      const body = element("div", "body");
      portions(body, turn.steps, (step) => (step.type === "call" ? model_call(step, has_cells) : cell_card(step)));
      d.append(body);
    }, open);
    box.dataset.turn = turn.run + " " + turn.turn;
    return box;
  }

  /* ---- a run ---- */

  function run_inside(run) {
    const box = element("div", "body");
    const end = run.end;
    box.append(element("p", "said", run.question === null ? "" : run.question));
    if (end && end.answer !== null) box.append(element("div", "answer", element("pre", "", as_text(end.answer))));
    if (end && end.error) box.append(element("p", "why", end.error));
    box.append(element("p", "note", run_facts(run)), timeline(run, reveal_step));
    draw_turns(box, run);
    return box;
  }

  function run_facts(run) {
    const usage = run.end && run.end.usage;
    return join(run.model, run.end && run.end.iterations !== null ? plural(run.end.iterations, "turn") : null,
      usage && usage.calls !== null ? plural(usage.calls, "call") : null, usage ? seconds(usage.seconds) : null);
  }

  function draw_turns(box, run) {
    const list = element("div");
    box.append(list);
    portions(list, run.turns, (turn, i) => turn_box(turn, i < OPEN_TURNS));
  }

  /* ---- finding a step ---- */

  /* The cells, from the outside in, in which a run was asked for. */
  function way_to(run) {
    const way = [];
    const seen = new Set();
    for (let r = run; r && !seen.has(r); r = runs.get(r.parent)) {
      seen.add(r);
      if (r.parent !== null) way.unshift(r);
    }
    return way;
  }

  function find(selector, value) {
    for (const e of document.querySelectorAll(selector))
      if (e.dataset[selector.slice(6, -1)] === String(value)) return e;
    return null;
  }

  function open_around(e) {
    for (let p = e; p; p = p.parentElement) if (p.tagName === "DETAILS") open_fully(p);
  }

  function turn_of(run, id) {
    return run.turns.find((t) => t.steps.some((s) => s.id === id || (s.subs || []).some((c) => c.id === id)));
  }

  function reveal_step(id) {
    for (const run of runs.values()) {
      const turn = turn_of(run, id);
      if (!turn) continue;
      reveal_run(run);
      const box = find("[data-turn]", run.run + " " + turn.turn);
      if (box) open_fully(box);
      const cell = turn.steps.find((s) => (s.subs || []).some((c) => c.id === id));
      scroll_to(find("[data-id]", id) || (cell && find("[data-id]", cell.id)) || box);
      return;
    }
  }

  function reveal_run(run) {
    for (const step of way_to(run)) {
      for (const turn of runs.get(step.parent).turns) {
        const box = find("[data-turn]", turn.run + " " + turn.turn);
        if (box && turn.steps.some((s) => s.id === step.parent_cell)) open_fully(box);
      }
      const box = find("[data-run]", step.run);
      if (box) open_around(box);
    }
  }

  /* #all, #step-12 and #run-ID in the address. */
  function follow_address() {
    const found = location.hash.match(/^#(all|step-(\d+)|run-([\w.-]+))$/);
    if (!found) return;
    if (found[1] === "all") expand_all();
    else if (found[2]) reveal_step(Number(found[2]));
    else if (runs.has(found[3])) {
      reveal_run(runs.get(found[3]));
      scroll_to(find("[data-run]", found[3]));
    }
  }

  function scroll_to(e) {
    if (!e) return;
    open_around(e);
    e.scrollIntoView({ block: "center" });
  }

  /* ---- the page ---- */

  function tree_item(run) {
    const b = element("button", "", element("span", "mono", run.run), " ", pill(run), " ",
      element("span", "soft", run_facts(run)), " ", question_of(run));
    const li = element("li", "", b);
    li.style.paddingLeft = Math.min(12, run.depth) * 1.3 + "rem";
    b.addEventListener("click", () => {
      reveal_run(run);
      scroll_to(find("[data-run]", run.run) || document.getElementById("run"));
    });
    return li;
  }

  /* Parents before their children, in the order in which they began; without recursion. */
  function tree_order(root) {
    const order = [];
    const stack = [root];
    const seen = new Set();
    while (stack.length) {
      const run = stack.pop();
      if (seen.has(run)) continue;
      seen.add(run);
      order.push(run);
      for (let i = run.children.length - 1; i >= 0; i--) stack.push(run.children[i]);
    }
    return order;
  }

  function section(title, inside, beside) {
    return element("section", "", element("div", "bar-row", element("h2", "", title), beside), inside);
  }

  /* Opening draws more to open; what cannot be drawn in some rounds stays folded. */
  function expand_all() {
    for (let round = 0; round < 20; round++) {
      const closed = [...document.querySelectorAll("details:not([open])")];
      if (closed.length === 0) return;
      closed.forEach(open_fully);
    }
  }

  function draw() {
    read();
    const root = runs.values().next().value;
    const place = document.getElementById("run");
    if (!root) return;
    const all = element("button", "", "Open all");
    all.addEventListener("click", expand_all);
    if (root.children.length) {
      const list = element("ul", "tree");
      portions(list, tree_order(root), tree_item);
      place.append(section("Runs", list));
    }
    place.append(section("Timeline", timeline(root, reveal_step)));
    const turns = element("div");
    draw_turns(turns, root);
    place.append(section("Turns", turns, all));
    if (broken.lines) place.append(element("p", "note", plural(broken.lines, "line") + " of the record could not be read."));
    follow_address();
    addEventListener("hashchange", follow_address);
    document.documentElement.dataset.drawn = "yes";
  }

  draw();
})();
