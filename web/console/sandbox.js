/* web/console/sandbox.js: one sandbox: what may be done with it, and its cells. */

const OUTPUT_SHOWN = 256 << 10;         // characters of a cell's output
const CELLS_SHOWN = 200;

const opened = new Map();               // by id: what this tab knows of a sandbox
const path_of = (id, rest) => "/v1/sandboxes/" + encodeURIComponent(id) + (rest || "");

function knowledge(id) {
  if (!opened.has(id)) opened.set(id, { id, cells: element("div", "cells"), code: "", directory: "/tmp", running: false });
  return opened.get(id);
}

/* ---- a cell ---- */

function add_output(cell, stream, text) {
  const room = OUTPUT_SHOWN - cell.length;
  if (text.length > room) {
    cell.left_out += text.length - Math.max(room, 0);
    cell.note.hidden = false;
    cell.note.textContent = number(cell.left_out) + " more characters of output are not shown.";
  }
  if (room <= 0) return;
  cell.length += text.length;
  const last = cell.output.lastElementChild;
  const pre = last && last.dataset.stream === stream ? last : element("pre", "out " + stream);
  pre.dataset.stream = stream;
  if (pre !== last) cell.output.append(pre);
  const at_end = pre.scrollHeight - pre.scrollTop - pre.clientHeight < 40;
  add_text(pre, text.slice(0, room));
  if (at_end) pre.scrollTop = pre.scrollHeight;
}

function draw_result(cell, result) {
  if (result.echo && result.main_result === null) cell.output.append(element("pre", "out", as_text(result.echo)));
  for (const one of result.results || []) cell.output.append(element("div", "result", result_shown(one)));
  if (result.error) cell.output.append(element("pre", "failure", as_text(result.error.traceback || result.error.message)));
  if (result.submit !== null && result.submit !== undefined)
    cell.output.append(element("pre", "submit", JSON.stringify(result.submit, null, 2)));
  const is_good = result.status === "ok" || result.status === "submitted";
  cell.status.replaceChildren(element("span", is_good ? "" : "failure", join(result.status, result.killed, result.alive === false ? "the sandbox has ended" : null)), " · ", seconds((performance.now() - cell.began) / 1000));
  return is_good;
}

function new_cell(known, code) {
  const again = button("Edit again", () => {
    const entry = document.getElementById("code");
    if (!entry) return;
    entry.value = known.code = code;
    entry.focus();
  });
  const cell = { length: 0, left_out: 0, output: element("div", "part output"), status: element("span", "status", "running"),
    note: element("p", "part note"), box: element("article", "card cell"), began: performance.now() };
  cell.note.hidden = true;
  cell.box.append(element("pre", "part typed", code), cell.output, cell.note, element("div", "part bar-row", cell.status, again));
  known.cells.append(cell.box);
  if (known.cells.childElementCount > CELLS_SHOWN) known.cells.firstElementChild.remove();
  cell.box.scrollIntoView({ block: "nearest" });
  return cell;
}

async function run_cell(known, code) {
  const cell = new_cell(known, code);
  let is_good = null;
  set_running(known, true);
  try {
    const answer = await ask("POST", path_of(known.id, "/execute"), JSON.stringify({ code, stream: true }));
    await follow(answer, (name, data) => {
      if (name === "output") add_output(cell, data.stream === "stderr" ? "stderr" : "stdout", String(data.text));
      else if (name === "lost") add_output(cell, "stderr", "\n[" + number(data.bytes) + " bytes of output are lost: this page did not read in time]\n");
      else if (name === "result") is_good = draw_result(cell, data);
    });
    if (is_good === null) throw new Error("the sandbox or the server ended before the cell did");
  } catch (error) {
    is_good = false;
    cell.output.append(element("pre", "failure", error.message));
    cell.status.textContent = "not finished";
  }
  cell.box.classList.toggle("failed", !is_good);
  set_running(known, false);
  cell.box.scrollIntoView({ block: "nearest" });
  refresh();
}

function set_running(known, is_running) {
  known.running = is_running;
  if (known !== shown || !document.getElementById("code")) return;
  document.getElementById("run-cell").disabled = is_running;
  document.getElementById("interrupt").disabled = !is_running;
}

async function interrupt(known) {
  if (await attempt("The cell is not interrupted", () => ask("POST", path_of(known.id, "/interrupt")))) say("Interrupted.");
}

function draw_entry_of_code(known) {
  const code = attributes(element("textarea"), "rows", "4", "id", "code", "aria-label", "Code of a cell", "spellcheck", "false",
    "autocapitalize", "off", "autocomplete", "off", "placeholder", "Python; Ctrl+Enter runs it");
  const run = () => {
    if (!code.value.trim() || known.running) return;
    run_cell(known, code.value);
    code.value = known.code = "";
    code.focus();
  };
  const start = attributes(button("Run", run), "id", "run-cell");
  const stop = attributes(button("Interrupt", () => interrupt(known)), "id", "interrupt");
  code.value = known.code;
  code.addEventListener("input", () => (known.code = code.value));
  code.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run();
  });
  start.classList.add("main");
  return element("div", "entry", code, element("div", "beside", start, stop));
}

/* ---- the sandbox ---- */

async function fork_sandbox(id) {
  const copy = await attempt("There is no copy", () => ask_json("POST", path_of(id, "/fork")));
  if (!copy) return;
  say("This is the copy. It has all variables.");
  open_new(copy);
}

async function end_sandbox(id) {
  if (!(await confirmed("End sandbox " + short_id(id) + "? Its variables and files are lost.", "End it"))) return;
  if (await attempt("The sandbox has not ended", () => ask("DELETE", path_of(id)))) {
    say("Sandbox " + short_id(id) + " has ended.");
    if (shown && shown.id === id) location.hash = "";
  }
  refresh();
}

function draw_tabs(id, current) {
  const tabs = attributes(element("nav", "tabs"), "aria-label", "Parts of the sandbox");
  for (const [name, words] of [["cells", "Cells"], ["files", "Files"], ["terminal", "Terminal"]]) {
    const link = attributes(element("a", "", words), "href", "#" + id + "/" + name);
    if (name === current) link.setAttribute("aria-current", "page");
    tabs.append(link);
  }
  return tabs;
}

function draw_sandbox(place, known, tab) {
  const title = attributes(element("h1", "mono", short_id(known.id)), "tabindex", "-1", "title", plain(known.id));
  const actions = element("div", "beside", button("Fork", () => fork_sandbox(known.id)), button("End", () => end_sandbox(known.id)));
  place.replaceChildren(element("div", "bar-row", title, actions), attributes(element("p", "note facts-of"), "id", "facts"), draw_tabs(known.id, tab));
  if (tab === "files") place.append(draw_files(known));
  else if (tab === "terminal") place.append(draw_terminal(known));
  else place.append(known.cells, draw_entry_of_code(known));
  draw_facts(known);
  if (tab === "cells") set_running(known, known.running);
}

/* What changes while it is shown. */
function draw_facts(known) {
  const sandbox = sandboxes.get(known.id);
  const facts = document.getElementById("facts");
  facts.replaceChildren();
  if (!sandbox) add_text(facts, "There is no such sandbox; it may have ended.");
  else facts.append(state_of(sandbox), element("span", "", " " + join("age " + span(sandbox.age_seconds), "ends in " + span(ends_in(sandbox)), "isolation " + sandbox.isolation, note_of(sandbox))));
}
