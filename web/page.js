/* web/page.js: what is shown, by the address: #run-ID, #turn-ID/N, #step-ID, #compare-A,B, #all;
 * the bar at the top, and keys. */

let view = null;                // the run that is shown, "table", or "A,B"

/* ---- views ---- */

function show_view(wanted) {
  const name = wanted.run || wanted;
  if (view === name) return;
  const place = document.getElementById("run");
  view = name;
  drawn = new Map();
  lists = new Map();
  waiting = [];
  drawn_text = 0;
  place.replaceChildren();
  delete document.documentElement.dataset.idle;
  for (const header of document.querySelectorAll("header.of-view")) header.classList.remove("of-view");
  const summary = document.getElementById("summary");    // of several runs
  if (summary) summary.hidden = name !== "table";
  document.getElementById("back").hidden = name === "table" || roots().length < 2;
  if (name === "table") draw_table(place);
  else if (wanted.run) draw_run(place, wanted);
  else draw_comparison(place, ...wanted.split(",").map((id) => runs.get(id)));
  if (broken.lines) place.append(element("p", "note", plural(broken.lines, "line") + " of the record could not be read."));
  draw_waiting();
}

const in_view = (root) => view.split(",").includes(root.run);

function redraw() {
  const shown = view;
  const place = scrollY;
  const errors_only = show.only_errors;
  view = null;
  document.getElementById("only-errors").setAttribute("aria-pressed", String(errors_only));
  document.getElementById("formatted").setAttribute("aria-pressed", String(show.markdown));
  show_view(runs.get(shown) || shown);
  if (search.at >= 0) mark_hits(search.hits[search.at]);
  scrollTo(0, place);
}

const home = () => (roots().length > 1 ? "table" : roots()[0]);

/* ---- finding a step ---- */

function open_around(e) {
  for (let p = e; p; p = p.parentElement) if (p.tagName === "DETAILS") open_fully(p);
}

function scroll_to(e) {
  open_around(e);
  e.scrollIntoView({ block: e.offsetHeight > innerHeight - 120 ? "start" : "center" });
}

/* Opens what is around a turn, and draws its list so far. */
function open_turn(turn) {
  const until = lists.get("turns " + turn.run);
  const shown = show.only_errors ? runs.get(turn.run).turns.filter((t) => errors_of(t).length) : runs.get(turn.run).turns;
  if (until) until(shown.indexOf(turn));
  const box = drawn.get("turn " + turn.run + "/" + turn.turn);
  if (box) open_around(box);
  return box;
}

function open_step(at) {
  if (at.cell) {
    const list = drawn.get("calls " + at.cell.id);
    if (list) open_fully(list);
    const until = lists.get("calls " + at.cell.id);
    if (until) until(at.cell.subs.indexOf(at.step));
  }
  const e = drawn.get("step " + at.step.id);
  if (e && e.tagName === "DETAILS") open_fully(e);
  return e;
}

/* The runs from the root to this one. */
function way_to(run) {
  const way = [];
  const seen = new Set();
  for (let r = run; r && !seen.has(r); r = runs.get(r.parent)) {
    seen.add(r);
    way.unshift(r);
  }
  return way;
}

/* Shows a run, a turn or a step, with all that is around it, and returns its element. */
function reveal({ run, turn, step, field }) {
  const way = way_to(run);
  if (show.only_errors && turn && !errors_of(turn).length) {
    show.only_errors = false;
    redraw();
  }
  if (view === null || !in_view(way[0])) show_view(way[0]);
  for (const child of way.slice(1)) {
    const at = steps.get(child.parent_cell);
    if (at) open_turn(at.turn);
    const box = drawn.get("run " + child.run);
    if (box) open_around(box);
  }
  if (!turn) return drawn.get("text " + run.run + " " + field) || drawn.get("run " + run.run) || document.querySelector("header.of-view") || document.getElementById("run");
  const box = open_turn(turn);
  return (step && open_step(steps.get(step.id))) || box;
}

function go_to(target) {
  const e = reveal(target);
  if (!e) return;
  scroll_to(e);
  const focus = e.tagName === "DETAILS" ? e.querySelector("summary") : e;
  focus.focus({ preventScroll: true });
}

const reveal_step = (id) => steps.has(id) && go_to(steps.get(id));
const reveal_run = (run) => go_to({ run });

/* Opening draws more to open; what cannot be drawn in some rounds stays folded. */
function expand_all() {
  for (let round = 0; round < 20; round++) {
    const closed = [...document.querySelectorAll("#run details:not([open])")];
    if (closed.length === 0) return;
    closed.forEach(open_fully);
  }
}

function close_all() {
  for (const d of document.querySelectorAll("#run details[open]")) d.open = false;
}

function follow_address() {
  let address = location.hash;
  try {
    address = decodeURIComponent(address);
  } catch (_) {
    /* no valid escapes: it is taken as it is */
  }
  const found = address.match(/^#(?:(all)|step-(\d+)|run-([\w.-]+)|turn-([\w.-]+)\/(\d+)|compare-([\w.-]+),([\w.-]+))$/);
  if (!found) return show_view(home());
  const [, all, step, run, turn_run, turn, left, right] = found;
  if (step && steps.has(Number(step))) return reveal_step(Number(step));
  if (run && runs.has(run)) return runs.has(runs.get(run).parent) ? reveal_run(runs.get(run)) : show_view(runs.get(run));
  const one = turn && runs.has(turn_run) && runs.get(turn_run).turns.find((t) => t.turn === Number(turn));
  if (one) return go_to({ run: runs.get(turn_run), turn: one });
  if (left && runs.has(left) && runs.has(right)) return show_view(left + "," + right);
  show_view(home());
  if (all) expand_all();
  return null;
}

/* ---- the bar ---- */

function toggle(id, words, title, key) {
  const b = button(words, () => {
    show[key] = !show[key];
    redraw();
  }, title);
  b.id = id;
  return attributes(b, "aria-pressed", String(show[key]));
}

function named(id, b) {
  b.id = id;
  return b;
}

function draw_bar() {
  const bar = attributes(document.getElementById("bar"), "role", "search");
  const input = attributes(element("input"), "type", "search", "id", "search", "placeholder", "Search", "aria-label", "Search questions, code, output, errors and answers",
    "aria-keyshortcuts", "/", "autocomplete", "off", "spellcheck", "false");
  input.addEventListener("input", () => start_search(input.value));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") input.blur();
    if (event.key !== "Enter" || event.isComposing) return;
    event.preventDefault();
    if (input.value.trim() !== search.words) start_search(input.value);
    else if (event.shiftKey) previous_hit();
    else next_hit();
  });
  const found = attributes(element("span", "count"), "id", "found", "role", "status");
  const count = attributes(element("span", "count"), "id", "errors", "role", "status");
  bar.append(named("back", attributes(element("a", "", "‹ All runs"), "href", "#")),
    element("span", "group", input, found, named("search-previous", button("‹", previous_hit, "Previous match (N)")), named("search-next", button("›", next_hit, "Next match (n)"))),
    element("span", "group", count, named("error-previous", button("‹", previous_error, "Previous error (E)")), named("error-next", button("›", next_error, "Next error (e)")),
      toggle("only-errors", "Errors only", "Show only turns with errors", "only_errors")),
    element("span", "group", toggle("formatted", "Formatted", "Show Markdown and JSON formatted", "markdown"), named("keys", button("Keys", show_keys, "Keys (?)"))));
  document.documentElement.dataset.runs = roots().length;
}

/* ---- keys ---- */

/* Moves the focus from turn to turn. */
function step_turn(by) {
  const list = [...document.querySelectorAll(".turn > summary")].filter((e) => e.offsetParent);
  if (list.length === 0) return;
  const inside = document.activeElement.closest(".turn");
  let at = inside ? list.indexOf(inside.firstElementChild) + by : list.findIndex((e) => e.getBoundingClientRect().top > 60);
  at = Math.max(0, Math.min(list.length - 1, at));
  list[at].focus({ preventScroll: true });
  list[at].scrollIntoView({ block: "start" });
}

const KEYS = [
  { key: "/", does: "search", act: () => document.getElementById("search").focus() },
  { key: "n", does: "next match", act: next_hit },
  { key: "N", does: "previous match", act: previous_hit },
  { key: "e", does: "next error", act: next_error },
  { key: "E", does: "previous error", act: previous_error },
  { key: "j", does: "next turn", act: () => step_turn(1) },
  { key: "k", does: "previous turn", act: () => step_turn(-1) },
  { key: "o", does: "open all", act: expand_all },
  { key: "c", does: "close all", act: close_all },
  { key: "?", does: "these keys", act: show_keys },
];

function show_keys() {
  const dialog = document.getElementById("help");
  if (dialog.open) return dialog.close();
  const list = element("dl", "keys", ...KEYS.map(({ key, does }) => element("div", "", element("dt", "", element("kbd", "", key)), element("dd", "", does))));
  dialog.replaceChildren(element("h2", "", "Keys"), list, element("p", "note", "In the search: Enter for the next match, Shift+Enter for the previous one."),
    button("Close", () => dialog.close()));
  return dialog.showModal();
}

function take_key(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.getElementById("help").open) return;
  if (/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox") return;
  const row = KEYS.find(({ key }) => key === event.key);
  if (!row) return;
  event.preventDefault();
  row.act();
}

function draw_page() {
  read_record();
  if (runs.size === 0) return;
  draw_bar();
  find_errors();
  search_says();
  follow_address();
  addEventListener("hashchange", follow_address);
  addEventListener("keydown", take_key);
  document.documentElement.dataset.drawn = "yes";
}

draw_page();
