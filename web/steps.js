/* web/steps.js: turns, with their replies, cells and calls. */

const OPEN_TURNS = 40;          // turns that are open at first
const OPEN_TEXT = 1 << 20;      // as long as they have fewer characters than this

const show = { markdown: true, only_errors: false };

/* What is drawn, by its name: "turn RUN/N", "step ID", "run ID", "calls ID", "text ID FIELD". */
let drawn = new Map();
let lists = new Map();          // "turns RUN", "calls ID" → draws the list up to an index

function mark_drawn(name, e) {
  drawn.set(name, e);
  return e;
}

/* ---- texts ---- */

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

/* Adds Python, its tokens with their colors. */
function add_code(pre, text) {
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    const kind = token_class(found);
    if (!kind) continue;
    add_text(pre, text.slice(at, found.index));
    pre.append(element("span", kind, found[0]));
    at = found.index + found[0].length;
  }
  return add_text(pre, text.slice(at));
}

function code(text) {
  text = text.replace(/\n$/, "");
  const lines = text.split("\n").length;
  const numbers = element("pre", "numbers", Array.from({ length: lines }, (_, i) => i + 1).join("\n"));
  numbers.setAttribute("aria-hidden", "true");
  return element("div", "code", numbers, add_code(element("pre"), text));
}

/* Texts of models: JSON on lines, else Markdown, or as it is. */
function prose_block(text) {
  if (!show.markdown) return element("pre", "", text);
  const json = /^\s*[[{]/.test(text) && text.length <= MARKDOWN_MOST ? json_compact(text) : null;
  return json === null ? markdown(text) : json_block(json);
}

function json_value(value) {
  const text = as_text(value);
  const json = typeof value === "string" ? json_compact(text) : text;
  return json === null || json === text && typeof value !== "string" && !/^[[{"]/.test(text) ? element("pre", "", text) : json_block(json);
}

/* What a run or a cell submitted: a member with lines of text, such as a report, is drawn as a text. */
function submitted_block(value) {
  const lines = (v) => typeof v === "string" && v.trim().includes("\n");
  const object = value !== null && typeof value === "object" && !Array.isArray(value);
  if (!show.markdown || !object || !Object.values(value).some(lines)) return json_value(value);
  const list = element("dl", "members");
  for (const [name, member] of Object.entries(value))
    list.append(element("dt", "mono", name), element("dd", "", lines(member) ? prose_block(member) : json_value(member)));
  return list;
}

function cut_note(record, key) {
  const size = record.cut && record.cut[key];
  return size === undefined ? null
    : element("p", "note", "The beginning of " + bytes(size) + ". All of it: droste runs export " + record.run);
}

function permalink(address, what) {
  return attributes(element("a", "link", "#"), "href", "#" + address, "aria-label", "Link to " + what, "title", "Link to " + what);
}

/* ---- a cell ---- */

function part(card, classes, ...inside) {
  card.append(element("div", "part " + (classes || ""), ...inside));
}

function output(card, cell, key, name, classes) {
  if (!cell[key]) return;
  const pre = mark_drawn("text " + cell.id + " " + key, element("pre", "out " + classes, cell[key]));
  part(card, "", element("div", "label", name), pre, cut_note(cell, key));
}

/* What a cell printed, in the order in which a reader needs it. */
function cell_outputs(card, cell) {
  output(card, cell, "stdout", "output", "");
  output(card, cell, "stderr", "standard error", "stderr");
  cell_results(card, cell);
  const trouble = failure_text(cell);
  if (trouble) {
    part(card, "", element("div", "label", "error"),
      mark_drawn("text " + cell.id + " error", element("pre", "out failure", as_text(trouble))), cut_note(cell, "error"));
  }
  if (cell.submit !== null) {
    const block = mark_drawn("text " + cell.id + " submit", submitted_block(cell.submit));
    block.classList.add("out");
    part(card, "submit", element("div", "label", "submitted"), block, cut_note(cell, "submit"));
  }
}

function variables(card, cell) {
  const list = Array.isArray(cell.variables) ? cell.variables.filter((v) => v && typeof v === "object") : [];
  if (list.length === 0) return;
  part(card, "", folded("", element("summary", "soft", plural(list.length, "variable")), (d) => {
    const table = element("table", "", element("tr", "", ...["name", "type", "length", "value"].map((h) => attributes(element("th", "", h), "scope", "col"))));
    for (const v of list) {
      const words = [v.name, v.type, v.preview].map((text) => (text === undefined || text === null ? "" : as_text(text)));
      table.append(element("tr", "", element("td", "mono", words[0]), element("td", "mono", words[1]),
        element("td", "number", v.length === undefined || v.length === null ? "" : number(v.length)), element("td", "mono", words[2])));
    }
    d.append(element("div", "wide", table));
  }));
}

function exchange(d, call) {
  const text = (key, words) => mark_drawn("text " + call.id + " " + key, prose_block(words));
  const request = call.request === null ? "" : as_text(call.request);
  d.append(element("div", "exchange",
    element("div", "label", call.kind === "tool" ? "arguments" : "prompt"), text("request", request), cut_note(call, "request"),
    call.reply !== null ? element("div", "label", call.kind === "tool" ? "answer" : "reply") : null,
    call.reply !== null ? text("reply", call.reply) : null, cut_note(call, "reply"),
    call.error ? mark_drawn("text " + call.id + " error", element("p", "why", call.error)) : null,
    permalink("step-" + call.id, "this call")));
}

function call_facts(call) {
  return join(call.model, call.fork ? "fork " + call.fork : null, failed(call) ? call.status : call.status === "running" ? "running" : null, seconds(call.seconds), tokens(call), money(call.cost),
    call.attempts > 1 ? plural(call.attempts, "attempt") : null, call.finish && call.finish !== "stop" ? "finish: " + call.finish : null);
}

function sub_calls(card, cell) {
  if (cell.subs.length === 0) return;
  const wrong = cell.subs.filter(failed).length;
  const tools = cell.subs.filter((call) => call.kind === "tool").length;
  const models = cell.subs.length - tools;
  const words = join(models ? plural(models, "call") + " of a model" : null, tools ? plural(tools, "call") + " of a tool" : null,
    models ? number(sum(cell.subs, "input_tokens") || 0) + " + " + number(sum(cell.subs, "output_tokens") || 0) + " tokens" : null,
    money(sum(cell.subs, "cost")), wrong ? number(wrong) + " failed" : null);
  const list = folded("calls", element("summary", wrong ? "failure" : "", words), (d) => {
    lists.set("calls " + cell.id, portions(d, cell.subs, (call, i) => {
      const summary = element("summary", "", element("span", failed(call) ? "failure" : "soft", number(i + 1) + " · " + call_facts(call) + "  "),
        one_line(call.request === null ? "" : as_text(call.request)));
      const f = folded("call", summary, (inner) => exchange(inner, call));
      f.dataset.id = call.id;
      return mark_drawn("step " + call.id, f);
    }));
  });
  part(card, "", mark_drawn("calls " + cell.id, list));
}

function children(card, cell) {
  for (const run of cell.children) {
    const summary = element("summary", "", "run ", element("span", "mono", run.run), " ", pill(run), " ", question_of(run));
    const f = folded("", summary, (d) => d.append(run_inside(run)));
    f.dataset.run = run.run;
    part(card, "child-run", mark_drawn("run " + run.run, f));
  }
}

function pill(run) {
  const status = status_of(run);
  return element("span", "pill " + (/^[a-z]+$/.test(status) ? status : ""), status);
}

function cell_card(cell) {
  const card = element("div", "card");
  card.dataset.id = cell.id;
  card.tabIndex = -1;
  const lines = code(cell.code === null ? "" : cell.code);
  mark_drawn("text " + cell.id + " code", lines.lastChild);
  if (cell.candidate) part(card, "soft", "candidate " + number(cell.candidate));
  part(card, "code-part", lines, cut_note(cell, "code"));
  cell_outputs(card, cell);
  sub_calls(card, cell);
  children(card, cell);
  variables(card, cell);
  part(card, "status", element("span", failed(cell) ? "failure" : "", cell.status),
    (cell.killed ? " by " + cell.killed : "") + (seconds(cell.seconds) ? " in " + seconds(cell.seconds) : "") + " ",
    permalink("step-" + cell.id, "this cell"));
  return mark_drawn("step " + cell.id, card);
}

/* ---- a turn ---- */

function model_call(call, has_cells) {
  const box = element("div");
  box.dataset.id = call.id;
  box.tabIndex = -1;
  const reply = call.reply === null ? "" : call.reply;
  const words = prose(reply, has_cells);
  if (words) {
    const said = mark_drawn("text " + call.id + " reply", prose_block(words));
    said.classList.add("said");
    box.append(said);
  }
  if (call.error) box.append(mark_drawn("text " + call.id + " error", element("p", "why", call.error)));
  box.append(folded("soft", element("summary", "note", join(call.kind === "summary" ? "summary" : call.kind === "select" ? "choice" : "model",
    call.candidate ? "candidate " + number(call.candidate) : null, call_facts(call))), (d) => {
    const messages = Array.isArray(call.request) ? call.request : [{ role: "prompt", content: call.request }];
    const list = element("div", "exchange");
    for (const m of messages) {
      const known = m && typeof m === "object" && typeof m.content === "string";
      list.append(element("div", "label", known ? m.role : "message"), known ? prose_block(m.content) : json_value(m));
    }
    list.append(element("div", "label", "reply, whole"), element("pre", "", reply));
    for (const key of ["request", "reply"]) list.append(cut_note(call, key) || "");
    list.append(permalink("step-" + call.id, "this call"));
    d.append(list);
  }));
  return mark_drawn("step " + call.id, box);
}

function turn_facts(turn) {
  const all = steps_of(turn);
  const calls = turn.steps.reduce((n, step) => n + (step.subs ? step.subs.length : 0), 0);
  const runs_started = turn.steps.reduce((n, step) => n + (step.children ? step.children.length : 0), 0);
  return join(calls ? plural(calls, "call") : null, runs_started ? plural(runs_started, "run") : null,
    tokens({ input_tokens: sum(all, "input_tokens"), output_tokens: sum(all, "output_tokens") || 0, estimated: all.some((s) => s.estimated) }),
    money(sum(all, "cost")), seconds(sum(turn.steps, "seconds")));
}

function turn_summary(turn) {
  const wrong = errors_of(turn);
  const intent = intent_of(turn);
  const line = code_line_of(turn);
  const did = element("span", "did", element("span", intent.code ? "mono" : "", intent.text));
  if (line && !intent.code) did.append(" ", element("span", "mono soft", line));
  const summary = element("summary", "", element("h3", "", "Turn " + number(turn.turn)), did,
    element("span", "facts-line", wrong.length ? element("span", "failure", plural(wrong.length, "error") + ": " + one_line(error_name(wrong[0])).slice(0, 60)) : null,
      wrong.length ? " · " : null, turn_facts(turn)));
  if (turn.kept) summary.append(element("span", "facts-line", "kept candidate " + number(turn.kept) + ": " + turn.reason));
  summary.append(" ", permalink("turn-" + turn.run + "/" + turn.turn, "this turn"));
  return summary;
}

function turn_box(turn, open) {
  const cells_in = has_cells(turn);
  const box = folded("turn" + (errors_of(turn).length ? " bad" : ""), turn_summary(turn), (d) => {
    const body = element("div", "body");
    portions(body, turn.steps, (step) => (step.type === "call" ? model_call(step, cells_in) : cell_card(step)));
    d.append(body);
  }, open);
  box.dataset.turn = turn.run + " " + turn.turn;
  return mark_drawn("turn " + turn.run + "/" + turn.turn, box);
}

function draw_turns(box, run) {
  const list = element("div", "turns");
  const turns = show.only_errors ? run.turns.filter((turn) => errors_of(turn).length) : run.turns;
  const before = drawn_text;
  box.append(list);
  if (turns.length === 0) list.append(element("p", "note", show.only_errors ? "No turn has an error." : "No turn has begun."));
  lists.set("turns " + run.run, portions(list, turns, (turn, i) => turn_box(turn, i < OPEN_TURNS && drawn_text - before < OPEN_TEXT)));
}
