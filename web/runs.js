/* web/runs.js: a run; a table of several; two of them side by side. */

const chosen = new Set();       // ids of runs that are to be compared

function section(title, inside, ...beside) {
  return element("section", "", element("div", "bar-row", element("h2", "", title), element("span", "beside", ...beside)), inside);
}

/* ---- a run ---- */

function answer_box(run) {
  const box = element("div", "answer");
  const answer = run.end.answer;
  const block = typeof answer === "string" ? prose_block(answer) : submitted_block(answer);
  box.append(mark_drawn("text " + run.run + " answer", block), cut_note(run.end, "answer") || "");
  return box;
}

/* What the sandbox asked of the network; refusals are marked. */
function request_row(request) {
  const target = request.host + ":" + request.port + (request.path || "");
  const failed = request.refused || request.why;
  return element("tr", "", element("td", "", request.method), element("td", "mono", target),
    element("td", failed ? "failure" : "", request.refused ? "refused" : request.status === null ? "–" : String(request.status)),
    element("td", "", request.why || join(seconds(request.seconds), number(request.sent) + " bytes sent", number(request.received) + " received")),
    element("td", "", request.cell === null ? "" : "turn " + number(request.turn)));
}

function requests_of(run) {
  const list = (run.end && run.end.requests) || [];
  if (!list.length) return "";
  const rows = element("tbody");
  const box = element("div", "wide");
  portions(rows, list, request_row, box);
  const head = element("tr", "", ...["", "destination", "status", "", ""].map((name) => element("th", "", name)));
  box.prepend(element("table", "", element("thead", "", head), rows));
  return section("Network", box);
}

/* A child run, in the cell that started it. */
function run_inside(run) {
  const box = element("div", "body");
  const end = run.end;
  box.append(mark_drawn("text " + run.run + " question", element("p", "said", run.question === null ? "" : run.question)));
  if (end && end.answer !== null) box.append(answer_box(run));
  if (end && end.error) box.append(mark_drawn("text " + run.run + " error", element("p", "why", end.error)));
  box.append(element("p", "note", run_facts(run)), timeline(run, reveal_step));
  draw_turns(box, run);
  box.append(requests_of(run));
  return box;
}

/* The header stands in the file, for readers without JavaScript; here its answer is formatted. */
function complete_header(run) {
  const header = [...document.querySelectorAll("header[data-run]")].find((h) => h.dataset.run === run.run);
  if (!header) return;
  header.classList.add("of-view");
  const h1 = header.querySelector("h1");
  h1.replaceChildren();
  mark_drawn("text " + run.run + " question", add_text(h1, run.question === null ? "(no question)" : run.question));
  h1.classList.toggle("long", String(run.question).length > 240);
  const old = header.querySelector(".answer > pre, .answer > .text");
  if (old && run.end && run.end.answer !== null) {
    const answer = run.end.answer;
    const text = element("div", "text", typeof answer === "string" ? prose_block(answer) : submitted_block(answer), cut_note(run.end, "answer"));
    old.replaceWith(mark_drawn("text " + run.run + " answer", text));
  }
  const why = header.querySelector(".answer > .why");
  if (why) mark_drawn("text " + run.run + " error", why);
}

function tree_item(run) {
  const b = button("", () => reveal_run(run));
  b.append(element("span", "question", question_of(run)), " ",
    element("span", "row-facts", element("span", "mono", run.run), " ", pill(run), " ", element("span", "soft", run_facts(run))));
  const li = element("li", "", b);
  li.style.paddingLeft = Math.min(12, run.depth) * 1.3 + "rem";
  return li;
}

function draw_run(place, run) {
  complete_header(run);
  if (run.children.length) {
    const list = element("ul", "tree");
    portions(list, tree_order(run), tree_item);
    place.append(section("Runs", list));
  }
  place.append(section("Timeline", timeline(run, reveal_step)));
  const turns = element("div");
  draw_turns(turns, run);
  place.append(section("Turns", turns, button("Open all", expand_all), button("Close all", close_all)), requests_of(run));
}

/* ---- a table of runs ---- */

const grade_word = (run) => (!run.grade ? "" : run.grade.passed === null ? "not graded" : run.grade.passed ? "passed" : "failed");

/* Of each column its name, what is shown, and by what it is sorted. */
const COLUMNS = [
  { name: "question", value: (run) => question_of(run).toLowerCase() },
  { name: "grade", value: grade_word },
  { name: "status", value: status_of },
  { name: "turns", value: (run) => run.turns.length, text: (run) => number(run.turns.length) },
  { name: "calls", value: (run) => usage_of(run).calls, text: (run) => count_or_dash(usage_of(run).calls) },
  { name: "tokens", value: (run) => tokens_of(run), text: (run) => count_or_dash(tokens_of(run)) },
  { name: "cost", value: (run) => usage_of(run).cost, text: (run) => money(usage_of(run).cost) || "–" },
  { name: "time", value: (run) => usage_of(run).seconds, text: (run) => seconds(usage_of(run).seconds) || "–" },
];

const count_or_dash = (n) => (typeof n === "number" ? number(n) : "–");

function tokens_of(run) {
  const usage = usage_of(run);
  return typeof usage.input_tokens === "number" ? usage.input_tokens + usage.output_tokens : null;
}

const table = { sort: null, down: false, words: "", status: "", grade: "" };

function compare_values(a, b) {
  const nothing = (v) => v === null || v === undefined || v === "";
  if (nothing(a) || nothing(b)) return Number(nothing(a)) - Number(nothing(b));
  const order = a < b ? -1 : a > b ? 1 : 0;
  return table.down ? -order : order;
}

function table_runs() {
  const words = table.words.toLowerCase().split(/\s+/).filter(Boolean);
  const found = roots().filter((run) => {
    const text = [run.question, run.run, run.task, run.batch, run.model, status_of(run)].filter(Boolean).join("\n").toLowerCase();
    return words.every((word) => text.includes(word)) && (!table.status || status_of(run) === table.status)
      && (!table.grade || grade_word(run) === table.grade);
  });
  const column = COLUMNS.find((c) => c.name === table.sort);
  return column ? found.sort((a, b) => compare_values(column.value(a), column.value(b))) : found;
}

function table_totals(list) {
  const count = (word_of) => {
    const counts = new Map();
    for (const run of list) counts.set(word_of(run), (counts.get(word_of(run)) || 0) + 1);
    return [...counts].filter(([word]) => word).map(([word, n]) => number(n) + " " + word).join(", ");
  };
  const graded = list.filter((run) => run.grade && run.grade.passed !== null);
  const passed = graded.filter((run) => run.grade.passed).length;
  return join(plural(list.length, "run"), count(status_of),
    graded.length ? number(passed) + " of " + number(graded.length) + " passed (" + Math.round((100 * passed) / graded.length) + "%)" : null,
    money(sum(list.map(usage_of), "cost")),
    typeof sum(list.map(usage_of), "input_tokens") === "number"
      ? number(sum(list.map(usage_of), "input_tokens") + (sum(list.map(usage_of), "output_tokens") || 0)) + " tokens" : null,
    seconds(sum(list.map(usage_of), "seconds")));
}

function table_row(run) {
  const pick = attributes(element("input"), "type", "checkbox", "aria-label", "Compare " + run.run);
  pick.checked = chosen.has(run.run);
  pick.addEventListener("change", () => choose(run.run, pick.checked));
  const about = element("td", "about", attributes(element("a", "question", question_of(run)), "href", "#run-" + run.run),
    element("span", "soft row-facts", join(run.task !== null && run.task !== undefined ? "task " + as_text(run.task) : null, run.model) + " · ", element("span", "mono", run.run)));
  const row = element("tr", "", element("td", "pick", pick), about);
  for (const column of COLUMNS.slice(1)) {
    const grade = column.name === "grade" ? grade_word(run) : null;
    const inside = column.name === "status" ? pill(run)
      : grade !== null ? element("span", grade === "passed" ? "good" : grade === "failed" ? "failure" : "soft", grade) : column.text(run);
    const cell = element("td", column.text ? "number" : "", inside);
    cell.dataset.name = column.name;
    if (grade !== null && !grade) cell.classList.add("empty");
    row.append(cell);
  }
  row.dataset.row = run.run;
  return row;
}

function choose(id, wanted) {
  if (wanted) chosen.add(id);
  else chosen.delete(id);
  const b = document.getElementById("compare");
  b.disabled = chosen.size !== 2;
  b.textContent = chosen.size === 2 ? "Compare" : "Compare: choose two runs";
}

function select_box(label, words, value, change) {
  const select = attributes(element("select"), "aria-label", label);
  for (const word of ["", ...words]) {
    const option = element("option", "", word || label + ": all");
    option.value = word;
    select.append(option);
  }
  select.value = value;
  select.addEventListener("change", () => change(select.value));
  return select;
}

function table_head(redraw) {
  const row = element("tr", "", element("th", "pick", attributes(element("span"), "aria-label", "compare")));
  for (const column of COLUMNS) {
    if (column.name === "grade" && !roots().some((run) => run.grade)) row.classList.add("no-grades");
    const mark = table.sort === column.name ? (table.down ? " ↓" : " ↑") : "";
    const b = button(column.name + mark, () => {
      table.down = table.sort === column.name ? !table.down : false;
      table.sort = column.name;
      redraw();
      const again = [...document.querySelectorAll(".runs th button")].find((e) => e.textContent.startsWith(column.name));
      if (again) again.focus();
    });
    row.append(attributes(element("th", column.text ? "number" : "", b), "scope", "col",
      "aria-sort", mark ? (table.down ? "descending" : "ascending") : "none"));
  }
  return row;
}

function draw_table(place) {
  const box = element("div");
  const redraw = () => {
    const list = table_runs();
    const body = element("tbody");
    const graded = roots().some((run) => run.grade);
    box.replaceChildren(element("p", "totals", table_totals(list)),
      element("div", "wide", element("table", "runs" + (graded ? "" : " no-grades"), element("thead", "", table_head(redraw)), body)));
    attributes(box.firstChild, "role", "status");
    portions(body, list, table_row, box);
  };
  const words = attributes(element("input"), "type", "search", "placeholder", "question, task, model, id", "aria-label", "Show only runs with these words");
  words.value = table.words;
  words.addEventListener("input", () => {
    table.words = words.value;
    redraw();
  });
  const distinct = (word_of) => [...new Set(roots().map(word_of).filter(Boolean))].sort();
  const filter = (key) => (value) => {
    table[key] = value;
    redraw();
  };
  const compare = button("", () => { location.hash = "compare-" + [...chosen].join(","); });
  compare.id = "compare";
  const row = element("div", "filters", words, select_box("status", distinct(status_of), table.status, filter("status")));
  if (distinct(grade_word).length) row.append(select_box("grade", distinct(grade_word), table.grade, filter("grade")));
  row.append(compare);
  redraw();
  place.append(section("Runs", element("div", "", row, box)));
  choose(null, false);
}

/* ---- two runs, side by side ---- */

const code_of = (turn) => (turn ? turn.steps.filter((step) => step.type === "cell").map((cell) => (cell.code || "").trim()).join("\n") : null);

function compare_head(run) {
  const usage = usage_of(run);
  const box = element("div", "side", element("h3", "", attributes(element("a", "", question_of(run)), "href", "#run-" + run.run)),
    element("p", "note", element("span", "mono", run.run), " ", pill(run), grade_word(run) ? " " + grade_word(run) : "", " "),
    element("p", "note", join(run_facts(run), tokens({ ...usage, estimated: false }))));
  if (run.end && run.end.answer !== null) box.append(answer_box(run));
  if (run.end && run.end.error) box.append(element("p", "why", run.end.error));
  return box;
}

function draw_comparison(place, left, right) {
  const rows = element("div");
  const count = Math.max(left.turns.length, right.turns.length);
  const side = (turn) => (turn ? turn_box(turn, false) : element("p", "note side", "no such turn"));
  portions(rows, Array.from({ length: count }), (_, i) => {
    const pair = [left.turns[i], right.turns[i]];
    const same = pair[0] && pair[1] && code_of(pair[0]) && code_of(pair[0]) === code_of(pair[1]);
    return element("div", "pair", element("p", "note same", same ? "Turn " + number(i + 1) + ": the same code" : ""), ...pair.map(side));
  });
  place.append(section("Comparison", element("div", "compare", element("div", "pair", compare_head(left), compare_head(right)), rows),
    button("Open all", expand_all), button("Close all", close_all)));
}
