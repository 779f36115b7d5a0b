/* web/console/runs.js: runs of models: the list, errors first, and one run with its steps as they
 * happen. What a run has is asked for once and then followed. */

const RUNS_ASKED = 200;
const STEPS_SHOWN = 1000;
const FOLLOW_AGAIN_MS = 2000;

const run_path = (id, rest) => "/v1/runs/" + encodeURIComponent(id) + (rest || "");
const run_rows = new Map();             // by id: the row in the list
let run_list = [];
let runs_timer = null;
let followed = null;                    // the run that is shown, and what is known of it

/* ---- words of a run ---- */

const run_failed = (run) => !["running", "answered"].includes(run.status);
const step_failed = (step) => !["running", "ok", "submitted", "answered"].includes(step.status);
const run_pill = (status) => element("span", "pill " + (/^[a-z]+$/.test(status) ? status : ""), status);
const run_question = (run) => one_line(run.question || "") || "(no question)";
const run_words = (run) => [run.run, run.status, run.model, run.question, run.error].filter(Boolean).join(" ").toLowerCase();

function run_facts(run) {
  const usage = run.usage || {};
  const tokens = typeof usage.input_tokens === "number" ? number(usage.input_tokens) + " + " + number(usage.output_tokens) + " tokens" : null;
  return join(run.model, typeof usage.calls === "number" ? plural(usage.calls, "call") : null, tokens, money(usage.cost), seconds(usage.seconds));
}

/* Those that need somebody to look come first, then those that run. */
const run_rank = (run) => (run_failed(run) ? 0 : run.status === "running" ? 1 : 2);

/* ---- what is done with one ---- */

async function change_run(words, method, id, rest) {
  if (!(await attempt("The run was not " + words, () => ask(method, run_path(id, rest))))) return false;
  say("The run was " + words + ".");
  refresh_runs();
  return true;
}

async function resume_run(id) {
  if ((await change_run("resumed", "POST", id, "/resume")) && followed && followed.id === id) show_run(id);
}

async function remove_run(id) {
  if (!(await confirmed("Remove run " + short_id(id) + " from the record, with its child runs?", "Remove it"))) return;
  if ((await change_run("removed", "DELETE", id)) && followed && followed.id === id) location.hash = "#runs";
}

function run_actions(run, label) {
  const act = (words, what) => attributes(button(words, () => what(run.run)), "aria-label", words + (label ? " " + short_id(run.run) : " the run"));
  if (run.status === "running") return [act("Cancel", (id) => change_run("cancelled", "POST", id, "/cancel"))];
  if (run.status === "interrupted") return [act("Resume", resume_run), act("Remove", remove_run)];
  return [act("Remove", remove_run)];
}

/* ---- the list ---- */

function run_row(run) {
  if (!run_rows.has(run.run)) {
    const link = attributes(element("a", "", run_question(run)), "href", "#runs/" + run.run);
    const row = element("tr", "", element("td", "about", link, element("span", "soft mono beside-name", " " + short_id(run.run))), element("td"), element("td", "soft"), element("td", "act"));
    attributes(row, "data-run", run.run);
    run_rows.set(run.run, row);
  }
  const row = run_rows.get(run.run);
  if (row.dataset.status !== run.status) {
    row.dataset.status = run.status;
    row.cells[1].replaceChildren(run_pill(run.status));
    row.cells[3].replaceChildren(element("div", "beside", ...run_actions(run, true)));
  }
  row.cells[2].replaceChildren();
  add_text(row.cells[2], join(new Date(run.started).toLocaleString(), run_facts(run), run.error ? one_line(run.error).slice(0, 120) : null));
  return row;
}

function draw_run_rows() {
  const body = at("run-rows");
  const wanted = at("run-search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = run_list.filter((run) => wanted.every((word) => run_words(run).includes(word)));
  const rows = found.sort((a, b) => run_rank(a) - run_rank(b)).map(run_row);
  const kept = new Set(rows);
  for (const row of Array.from(body.children)) if (!kept.has(row)) row.remove();
  rows.forEach((row, i) => { if (body.children[i] !== row) body.insertBefore(row, body.children[i] || null); });
  at("run-table").hidden = rows.length === 0;
  at("run-count").textContent = plural(run_list.length, "run") + (found.length < run_list.length ? ", " + number(found.length) + " found" : "") +
    (run_list.length === RUNS_ASKED ? "; older ones are not shown" : "");
}

/* While the list is shown. */
async function refresh_runs() {
  clearTimeout(runs_timer);
  if (document.hidden || !at("login").hidden || at("runs").hidden) return;
  const began = performance.now();
  let next = REFRESH_MS;
  try {
    run_list = (await ask_json("GET", "/v1/runs?limit=" + RUNS_ASKED)).runs;
    for (const id of run_rows.keys()) if (!run_list.some((run) => run.run === id)) run_rows.delete(id);
    next = Math.max(next, 10 * (performance.now() - began));
    if (at("run-rows")) draw_run_rows();
  } catch (error) {
    if (error.status === 401) return;
    say(error instanceof Refusal ? error.message : "The server does not answer.", true);
    next = 5 * REFRESH_MS;
  }
  clearTimeout(runs_timer);
  runs_timer = setTimeout(refresh_runs, next);
}

async function start_run(question, context) {
  const body = context === "" ? { question } : { question, context };
  const run = await attempt("The run did not start", () => ask_json("POST", "/v1/runs", body));
  if (!run) return false;
  say("");
  location.hash = "#runs/" + run.run;
  return true;
}

function draw_run_form() {
  const field = (id, words, rows) => {
    const entry = attributes(element("textarea"), "id", id, "rows", rows, "spellcheck", "false");
    return element("p", "", attributes(element("label", "", words), "for", id), entry);
  };
  const form = attributes(element("form", "new-run"), "aria-label", "New run");
  form.append(field("question-text", "Question", "2"), field("context-text", "Context, which the model's code reads", "4"));
  const start = element("button", "main", "Start");
  form.append(start);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if (!at("question-text").value.trim()) return;
    start.disabled = true;
    if (await start_run(at("question-text").value, at("context-text").value)) form.reset();
    start.disabled = false;
  });
  const box = element("details", "", element("summary", "", "New run"), form);
  box.id = "new-run";
  return box;
}

function draw_runs(place) {
  const search = attributes(element("input"), "id", "run-search", "type", "search", "aria-label", "Search runs", "placeholder", "Search (press /)",
    "autocomplete", "off", "spellcheck", "false");
  const head = element("tr", "", ...["question", "status", "about"].map((word) => attributes(element("th", "", word), "scope", "col")), element("td"));
  const table = attributes(element("table", "rows"), "id", "run-table", "hidden", "");
  search.addEventListener("input", draw_run_rows);
  table.append(element("thead", "", head), attributes(element("tbody"), "id", "run-rows"));
  place.replaceChildren(attributes(element("h1", "", "Runs"), "tabindex", "-1"), approvals_place(null), draw_run_form(), element("div", "filters", search),
    attributes(element("p", "count"), "id", "run-count"), table);
  refresh_approvals();
}

/* ---- a step ---- */

function step_part(box, label, text, classes) {
  if (text === null || text === undefined || text === "") return;
  box.append(element("div", "part", element("div", "label", label), element("pre", "out " + (classes || ""), as_text(text))));
}

const step_error = (step) => one_line((step.error && typeof step.error === "object" ? join(step.error.type, step.error.message) : step.error) || "").slice(0, 160);

function step_summary(step) {
  const tokens = typeof step.input_tokens === "number" && step.status !== "running" ? number(step.input_tokens) + " + " + number(step.output_tokens) + " tokens" : null;
  const what = step.type === "call" ? join("call", step.kind, step.model) : "cell";
  const text = step.type === "call" ? null : (step.code || "").split("\n").find((line) => line.trim()) || "";
  return element("summary", step_failed(step) ? "failure" : "", join("turn " + step.turn, what, step.status, tokens, money(step.cost), seconds(step.seconds), step_error(step)),
    text ? element("span", "mono soft", " " + one_line(text)) : null);
}

/* Its texts, when it is opened. */
function fill_step(box, step) {
  if (step.type === "call") {
    for (const message of Array.isArray(step.request) ? step.request : [{ role: "prompt", content: step.request }])
      step_part(box, String(message && message.role), message && typeof message.content === "string" ? message.content : message);
    step_part(box, "reply", step.reply);
  } else {
    step_part(box, "code", step.code, "typed");
    step_part(box, "output", step.stdout);
    step_part(box, "standard error", step.stderr, "stderr");
    for (const one of step.results || []) box.append(element("div", "part result", result_shown(one)));
    step_part(box, "submitted", step.submit);
  }
  const error = step.error && typeof step.error === "object" ? step.error.traceback || step.error.message : step.error;
  step_part(box, "error", error, "failure");
}

/* An opened step stays open when it ends. */
function draw_step(known, step) {
  const name = step.type + " " + step.id;
  const old = known.steps.get(name);
  const box = element("details", "card step" + (step_failed(step) ? " failed" : ""), step_summary(step));
  const fill = () => box.childElementCount === 1 && fill_step(box, step);
  box.addEventListener("toggle", () => box.open && fill());
  if (old && old.open) {
    box.open = true;
    fill();
  }
  known.steps.set(name, box);
  const list = known.lists.get(step.run);
  if (!list) return;
  if (old) old.replaceWith(box);
  else if (known.steps.size <= STEPS_SHOWN) list.append(box);
  known.note.hidden = known.steps.size <= STEPS_SHOWN;
  known.note.textContent = number(known.steps.size - STEPS_SHOWN) + " more steps are not shown.";
  if (step_failed(step)) known.errors.append(element("li", "", button(join("turn " + step.turn, step_error(step) || step.status), () => {
    box.open = true;
    box.scrollIntoView({ block: "center" });
    box.querySelector("summary").focus();
  })));
  known.trouble.hidden = known.errors.childElementCount === 0;
}

/* ---- one run ---- */

/* Child runs are below those that started them. */
function draw_run_of(known, run) {
  if (known.runs.has(run.run)) return;
  const list = element("div", "steps");
  const head = element("p", "note", element("span", "mono", short_id(run.run)), " ", run_pill("running"), " ", run_question(run));
  const box = element("section", "of-run", head, list);
  known.runs.set(run.run, { box, head, run });
  known.lists.set(run.run, list);
  const parent = known.runs.get(run.parent);
  (parent ? parent.box : known.tree).append(box);
}

function end_run_of(known, end) {
  const of = known.runs.get(end.run);
  if (!of) return;
  const run = { ...of.run, ...end };
  of.head.replaceChildren(element("span", "mono", short_id(end.run)), " ", run_pill(end.status), " ", run_question(of.run), " · ", run_facts(run));
  if (end.run === known.id) draw_run_head(known, run);
}

function draw_run_head(known, run) {
  known.status = run.status;
  known.head.replaceChildren(run_pill(run.status), " " + run_facts(run));
  known.actions.replaceChildren(...run_actions(run, false));
  known.answer.replaceChildren();
  if (run.error) step_part(known.answer, "error", run.error, "failure");
  if (run.answer !== null && run.answer !== undefined) step_part(known.answer, "answer", typeof run.answer === "string" ? run.answer : JSON.stringify(run.answer, null, 2));
}

function take_run_event(known, name, line) {
  if (name === "run") draw_run_of(known, line);
  else if (name === "call" || name === "cell") draw_step(known, line);
  else if (name === "end") end_run_of(known, line);
  else if (name === "interrupted") draw_run_head(known, { ...known.run, status: "interrupted" });
}

/* Events of a run, until it ends, or another place is shown. After a lost connection all of them
 * come again, so what is shown begins anew. */
async function follow_run(known) {
  try {
    const headers = key ? { Authorization: "Bearer " + key } : {};
    const answer = await fetch(run_path(known.id, "/events"), { headers, signal: known.leaves.signal, credentials: "omit", cache: "no-store" });
    if (!answer.ok) throw await refusal_of(answer);
    await follow(answer, (name, line) => known === followed && take_run_event(known, name, line));
  } catch (error) {
    if (known !== followed || error.status === 401) return;
    if (error instanceof Refusal) {
      say(error.message, true);
      return;
    }
  }
  if (known === followed && known.status === "running") known.timer = setTimeout(() => show_run(known.id), FOLLOW_AGAIN_MS);
}

function leave_run() {
  if (!followed) return;
  clearTimeout(followed.timer);
  followed.leaves.abort();
  followed = null;
}

async function show_run(id) {
  leave_run();
  const place = at("run");
  const known = followed = { id, runs: new Map(), lists: new Map(), steps: new Map(), leaves: new AbortController(), timer: null, status: "running",
    run: { run: id }, head: element("p", "note facts-of"), actions: element("div", "beside"), answer: element("div", "answer"), tree: element("div", "tree-of-runs"),
    errors: element("ul", "errors"), note: element("p", "note") };
  known.trouble = element("section", "trouble", element("h2", "", "Errors"), known.errors);
  known.trouble.hidden = known.note.hidden = true;
  const title = attributes(element("h1", "", short_id(id)), "tabindex", "-1");
  place.replaceChildren(element("div", "bar-row", title, known.actions), known.head, approvals_place(id), known.answer, known.trouble,
    element("section", "", element("h2", "", "Steps"), known.note, known.tree));
  title.focus({ preventScroll: true });
  refresh_approvals();
  const run = await attempt("There is no such run", () => ask_json("GET", run_path(id)));
  if (!run || known !== followed) return;
  known.run = run;
  title.replaceChildren();
  add_text(title, run_question(run));
  draw_run_head(known, run);
  follow_run(known);
}
