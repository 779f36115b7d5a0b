/* web/console/console.js: the list of sandboxes, which place of the page is shown, signing in.
 *
 * An address names a sandbox and its part, #ID/files, or runs: #runs, #runs/ID, or #cluster. The list is asked for again and again; a
 * question about one sandbox would count as its use, and keep it alive.
 */

const REFRESH_MS = 2000;                // and at least ten times as long as an answer takes
const ROWS_SHOWN = 500;

const sandboxes = new Map();            // by id, newest first
const rows_of = new Map();              // by id: the row in the list
let shown = null;                       // what is known of the sandbox that is shown
let timer = null;
let refreshing = null;
const at = (id) => document.getElementById(id);

/* ---- words of a sandbox ---- */

const short_id = (id) => id.slice(0, 12);
const ends_in = (sandbox) => Math.max(0, Math.min(sandbox.life_seconds - sandbox.age_seconds, sandbox.idle_seconds - sandbox.unused_seconds));
const note_of = (sandbox) => Object.entries(sandbox.metadata || {}).map(([name, value]) => name + "=" + value).join(", ");
const state_of = (sandbox) => element("span", "pill " + (sandbox.state === "executing" ? "executing" : ""), sandbox.state);

function span(s) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]])
    if (s >= 2 * size) return Math.floor(s / size) + " " + unit;
  return Math.floor(s) + " s";
}

/* ---- the list ---- */

function row_of(sandbox) {
  if (!rows_of.has(sandbox.id)) {
    const link = attributes(element("a", "mono", short_id(sandbox.id)), "href", "#" + sandbox.id + "/cells");
    const act = (words, what) => attributes(button(words, () => what(sandbox.id)), "aria-label", words + " " + short_id(sandbox.id));
    const row = element("tr", "", element("td", "", link), element("td"), element("td", "number"), element("td", "number"), element("td", "about soft"),
      element("td", "act", element("div", "beside", act("Fork", fork_sandbox), act("End", end_sandbox))));
    attributes(row.cells[2], "data-name", "age");
    attributes(row.cells[3], "data-name", "ends in");
    rows_of.set(sandbox.id, row);
  }
  const row = rows_of.get(sandbox.id);
  row.cells[1].replaceChildren(state_of(sandbox));
  row.cells[2].textContent = span(sandbox.age_seconds);
  row.cells[3].textContent = span(ends_in(sandbox));
  row.cells[4].replaceChildren();
  add_text(row.cells[4], note_of(sandbox));
  return row;
}

/* Rows stay where they are, so that the focus does. */
function draw_rows() {
  const body = at("rows");
  const wanted = at("search").value.toLowerCase();
  const found = Array.from(sandboxes.values()).filter((sandbox) => [sandbox.id, sandbox.state, note_of(sandbox)].join(" ").toLowerCase().includes(wanted));
  const rows = found.slice(0, ROWS_SHOWN).map(row_of);
  const kept = new Set(rows);
  for (const row of Array.from(body.children)) if (!kept.has(row)) row.remove();
  for (const id of rows_of.keys()) if (!sandboxes.has(id)) rows_of.delete(id);
  let next = body.firstElementChild;
  for (const row of rows) {
    if (row === next) next = next.nextElementSibling;
    else body.insertBefore(row, next);
  }
  at("table").hidden = rows.length === 0;
  at("count").textContent = number(sandboxes.size) + (sandboxes.size === 1 ? " sandbox" : " sandboxes") + (found.length < sandboxes.size ? ", " + number(found.length) + " found" : "") +
    (found.length > ROWS_SHOWN ? ", the first " + number(ROWS_SHOWN) + " are shown" : "");
}

async function new_sandbox() {
  at("new").disabled = true;
  const sandbox = await attempt("There is no new sandbox", () => ask_json("POST", "/v1/sandboxes", {}));
  at("new").disabled = false;
  if (!sandbox) return;
  say("");
  open_new(sandbox);
}

function open_new(sandbox) {
  sandboxes.set(sandbox.id, sandbox);
  location.hash = "#" + sandbox.id + "/cells";
  refresh();
}

function draw_list() {
  const search = attributes(element("input"), "id", "search", "type", "search", "aria-label", "Search sandboxes", "placeholder", "Search (press /)",
    "autocomplete", "off", "spellcheck", "false");
  const create = attributes(button("New sandbox", new_sandbox), "id", "new");
  const table = attributes(element("table", "rows"), "id", "table", "hidden", "");
  create.classList.add("main");
  search.addEventListener("input", draw_rows);
  table.append(element("thead", "", element("tr", "", element("th", "", "id"), element("th", "", "state"), element("th", "number", "age"), element("th", "number", "ends in"), element("th", "", "metadata"), element("td"))),
    attributes(element("tbody"), "id", "rows"));
  at("list").append(attributes(element("h1", "", "Sandboxes"), "tabindex", "-1"), element("div", "filters", search, create), attributes(element("p", "count"), "id", "count"), table);
}

/* ---- what the server says ---- */

async function ask_for_list() {
  const began = performance.now();
  const was_silent = document.documentElement.dataset.reached === "no";
  let next = REFRESH_MS;
  try {
    const answer = await ask_json("GET", "/v1/sandboxes");
    sandboxes.clear();
    for (const sandbox of answer.sandboxes) sandboxes.set(sandbox.id, sandbox);
    next = Math.max(next, 10 * (performance.now() - began));
    document.documentElement.dataset.reached = "yes";
    if (was_silent) say("");
    draw_rows();
    if (shown && at("facts")) draw_facts(shown);
  } catch (error) {
    if (error instanceof Refusal && error.status === 401) return;
    document.documentElement.dataset.reached = "no";
    say(error instanceof Refusal ? error.message : "The server does not answer.", true);
  }
  timer = setTimeout(refresh, next);
}

/* Once more, if an answer is under way: it may be from before. */
async function refresh() {
  clearTimeout(timer);
  if (document.hidden || !at("login").hidden) return;
  while (refreshing) await refreshing;
  clearTimeout(timer);
  refreshing = ask_for_list();
  await refreshing;
  refreshing = null;
}

/* ---- places ---- */

function show_place() {
  const [id, tab] = location.hash.slice(1).split("/");
  const place = id === "runs" ? (tab ? "run" : "runs") : id === "cluster" ? "cluster" : id ? "detail" : "list";
  for (const name of ["list", "detail", "runs", "run", "cluster"]) at(name).hidden = name !== place;
  for (const name of ["detail", "runs", "run", "cluster"]) at(name).replaceChildren();
  const link_of = place.startsWith("run") ? "#runs" : place === "cluster" ? "#cluster" : "";
  for (const link of document.querySelectorAll("#top nav a"))
    if (link.hash === link_of) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  leave_run();
  run_rows.clear();
  shown = place === "detail" ? knowledge(id) : null;
  if (shown) draw_sandbox(at("detail"), shown, ["files", "terminal"].includes(tab) ? tab : "cells");
  if (place === "runs") draw_runs(at("runs"));
  if (place === "cluster") draw_cluster(at("cluster"));
  if (place === "run") show_run(tab);
  if (place === "runs") refresh_runs();
  if (place === "cluster") refresh_cluster();
  document.title = (place === "list" ? "" : place === "runs" ? "Runs · " : place === "cluster" ? "Cluster · " : short_id(place === "run" ? tab : id) + " · ") + "Droste";
  const first = (shown && at("code")) || at(place).querySelector("h1");
  first.focus({ preventScroll: true });
  document.documentElement.dataset.drawn = "yes";
}

async function enter() {
  at("login").hidden = true;
  at("leave").hidden = !key;
  await refresh();
  if (at("login").hidden) find_cluster();
  if (at("login").hidden) show_place();
}

/* ---- signing in ---- */

function show_login() {
  if (key) say("The server does not accept this key.", true);
  key = null;
  sessionStorage.removeItem(KEY);
  clearTimeout(timer);
  at("login").hidden = false;
  for (const id of ["list", "detail", "runs", "run", "cluster", "to-cluster", "leave"]) at(id).hidden = true;
  leave_run();
  at("key").value = "";
  at("key").focus();
  document.documentElement.dataset.drawn = "yes";
}

at("login").addEventListener("submit", async (event) => {
  event.preventDefault();
  key = at("key").value.trim();
  say("");
  if (!(await attempt("Signing in", () => ask("GET", "/v1/sandboxes")))) return;
  sessionStorage.setItem(KEY, key);
  enter();
});
at("leave").addEventListener("click", () => {
  sessionStorage.removeItem(KEY);
  location.hash = "";
  location.reload();
});
addEventListener("hashchange", () => at("login").hidden && show_place());
document.addEventListener("visibilitychange", () => {
  refresh();
  refresh_runs();
  refresh_cluster();
  refresh_approvals();
});
addEventListener("keydown", (event) => {
  const is_typing = event.target.closest("input, textarea, dialog[open], .screen");
  const search = at(at("list").hidden ? "run-search" : "search");
  if (event.key !== "/" || is_typing || event.ctrlKey || event.metaKey || event.altKey || !search) return;
  event.preventDefault();
  search.focus();
});
draw_list();
enter();
