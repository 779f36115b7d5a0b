/* web/record.js: the runs of the page, from the record's lines (docs/record.md). */

const runs = new Map();         // id → run, with its turns, children and end
const cells = new Map();        // id → cell
const steps = new Map();        // id → { run, turn, step, cell }: where a cell or a call is
const broken = { lines: 0 };

const take = {
  run(r) {
    const run = runs.get(r.run) || { ...r, turns: [], children: [], placed: false, end: null, grade: null };
    const parent = runs.get(r.parent);
    const cell = cells.get(r.parent_cell);
    runs.set(r.run, run);
    if (!parent || run.placed) return;
    run.placed = true;
    parent.children.push(run);
    if (cell) cell.children.push(run);
  },
  turn(t) { runs.get(t.run).turns.push({ ...t, steps: [] }); },
  call(c) {
    const cell = c.cell === null ? null : cells.get(c.cell);
    const turn = last_turn(c);
    (cell ? cell.subs : turn.steps).push(c);
    steps.set(c.id, { run: runs.get(c.run), turn, step: c, cell });
  },
  cell(c) {
    const cell = { ...c, subs: [], children: [] };
    const turn = last_turn(c);
    cells.set(c.id, cell);
    turn.steps.push(cell);
    steps.set(c.id, { run: runs.get(c.run), turn, step: cell, cell: null });
  },
  end(e) { runs.get(e.run).end = e; },
  grade(g) { runs.get(g.run).grade = g; },
};

function last_turn(step) {
  const turns = runs.get(step.run).turns;
  return turns[turns.length - 1];
}

/* Numbers that JavaScript would round stay as they were written. */
function keep_digits(key, value, source) {
  const exact = typeof value !== "number" || !source || Number.isSafeInteger(value) || !/^-?\d{16,}$/.test(source.source);
  return exact || !JSON.rawJSON ? value : JSON.rawJSON(source.source);
}

function read_record() {
  for (const line of document.getElementById("record").textContent.split("\n")) {
    if (line.trim() === "") continue;
    try {
      const record = JSON.parse(line, /[:[,]\s*-?\d{16}/.test(line) ? keep_digits : undefined);
      /* A run that was named, and is also the child of one that was named, is there twice. */
      if (record.type === "run" || record.type === "grade" || !runs.get(record.run).end) take[record.type](record);
    } catch (_) {
      broken.lines++;
    }
  }
}

/* ---- what there is to say of it ---- */

const failed = (step) => !["ok", "submitted", "answered", "running"].includes(step.status);
const roots = () => [...runs.values()].filter((run) => !runs.has(run.parent));
const status_of = (run) => (run.end ? run.end.status : "running");
const usage_of = (run) => (run.end && run.end.usage) || {};

/* Calls and cells of a turn, in their order, with the calls of its cells. */
const steps_of = (turn) => turn.steps.flatMap((step) => [step, ...(step.subs || [])]);

/* The sum of what is known; null: nothing is. */
function sum(items, key) {
  const known = items.map((item) => item[key]).filter((n) => typeof n === "number");
  return known.length ? known.reduce((a, b) => a + b, 0) : null;
}

function question_of(run) {
  return one_line(run.question === null ? "" : run.question) || "(no question)";
}

function tokens(step) {
  if (typeof step.input_tokens !== "number") return null;
  return (step.estimated ? "about " : "") + number(step.input_tokens) + " + " + number(step.output_tokens) + " tokens";
}

function run_facts(run) {
  const usage = usage_of(run);
  return join(run.model, run.parent_fork ? "of fork " + run.parent_fork : null, run.end && run.end.iterations !== null ? plural(run.end.iterations, "turn") : null,
    typeof usage.calls === "number" ? plural(usage.calls, "call") : null, seconds(usage.seconds), money(usage.cost));
}

function root_of(run) {
  const seen = new Set();
  while (runs.has(run.parent) && !seen.has(run)) {
    seen.add(run);
    run = runs.get(run.parent);
  }
  return run;
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

/* The reply without the blocks of code, which come as cells. */
function prose(reply, has_cells) {
  return has_cells ? reply.replace(/^```(?:repl|python)[^\n]*\n[^]*?(?:^```[^\n]*$|$(?![^]))/gm, "").trim() : reply.trim();
}

const has_cells = (turn) => turn.steps.some((step) => step.type === "cell");

function failure_text(cell) {
  const error = cell.error;
  if (!error || typeof error !== "object") return error;
  return error.traceback || error_name(cell) || null;
}

/* "ValueError: no such row", or what else there is to say of a step that failed. */
function error_name(step) {
  const error = step.error;
  if (error && typeof error === "object") return [error.type, error.message].filter(Boolean).map(as_text).join(": ");
  return error ? as_text(error) : step.status;
}

/* What a turn did, in a line: the reply's first sentence, else the first line of its code. */
function intent_of(turn) {
  for (const step of turn.steps) {
    const text = step.type === "call" ? prose((step.reply || "").slice(0, 4000), has_cells(turn)) : step.code || "";
    const line = text.split("\n").map((l) => l.replace(/^[\s#>*_-]+/, "").trim()).find((l) => l && !/^(import|from) /.test(l));
    if (line) return { code: step.type === "cell", text: one_line(step.type === "cell" ? line : line.replace(/\[([^[\]]{1,300})\]\([^\s()]{1,1000}\)/g, "$1").replace(/\*\*|__|`/g, "")) };
  }
  return { code: false, text: "" };
}

function code_line_of(turn) {
  const cell = turn.steps.find((step) => step.type === "cell");
  const lines = ((cell && cell.code) || "").slice(0, 4000).split("\n").map((l) => l.trim());
  return one_line(lines.find((l) => l && !/^(#|import |from )/.test(l)) || "");
}

const errors_of = (turn) => [...steps_of(turn).filter(failed),
  ...turn.steps.flatMap((step) => (step.children || []).map((run) => run.end).filter((end) => end && failed(end)))];
