/* web/search.js: finds words in all runs of the page, drawn or not, and goes from error to error.
 *
 * The search goes over the record in idle slices. What it finds is opened when it is visited, and
 * marked by the browser's highlights, which change no element.
 */

const MOST_HITS = 10000;
const SLICE_MS = 12;

/* One hit: in which run, turn and step, in which of its texts, and the how many-th there. */
const search = { words: "", hits: [], at: -1, token: 0, more: false };
const errors = { hits: [], at: -1 };

/* Texts that are searched, in the order of the page. */
function* texts_of(run) {
  const text = (value) => (value === null || value === undefined ? "" : as_text(value));
  for (const r of tree_order(run)) {
    yield { run: r, id: r.run, field: "question", text: text(r.question) };
    if (r.end) {
      yield { run: r, id: r.run, field: "answer", text: text(r.end.answer) };
      yield { run: r, id: r.run, field: "error", text: text(r.end.error) };
    }
    for (const turn of r.turns) {
      for (const step of steps_of(turn)) {
        const at = { run: r, turn, step, id: step.id };
        const loop = step.type === "call" && !step.cell;
        if (step.type === "cell") {
          for (const field of ["code", "stdout", "stderr", "submit"]) yield { ...at, field, text: text(step[field]) };
          yield { ...at, field: "error", text: text(failure_text(step)) };
          for (const [i, result] of (step.results || []).entries()) yield { ...at, field: "result" + i, text: text(result["text/plain"]) };
          continue;
        }
        if (!loop) yield { ...at, field: "request", text: text(step.request) };
        yield { ...at, field: "reply", text: loop ? prose(step.reply || "", has_cells(turn)) : text(step.reply) };
        yield { ...at, field: "error", text: text(step.error) };
      }
    }
  }
}

function* all_texts() {
  for (const run of roots()) yield* texts_of(run);
}

const pattern_of = (words) => new RegExp(words.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\s+/g, "\\s+"), "gi");

function start_search(words) {
  const token = ++search.token;
  Object.assign(search, { words: words.trim(), hits: [], at: -1, more: false });
  clear_marks();
  delete document.documentElement.dataset.searched;
  if (!search.words) return search_says();
  const pattern = pattern_of(search.words);
  const texts = all_texts();
  const work = () => {
    if (token !== search.token) return;
    const until = performance.now() + SLICE_MS;
    for (let next = texts.next(); ; next = texts.next()) {
      if (next.done || search.hits.length >= MOST_HITS) return end_search(!next.done);
      let nth = 0;
      for (const found of next.value.text.matchAll(pattern)) {
        if (search.hits.length < MOST_HITS) search.hits.push({ ...next.value, text: null, nth: nth++, index: found.index });
      }
      if (performance.now() > until) break;
    }
    search_says();
    later(work);
  };
  work();
}

function end_search(more) {
  search.more = more;
  document.documentElement.dataset.searched = search.words;
  const here = search.hits.findIndex((hit) => in_view(root_of(hit.run)));
  if (here >= 0) visit_hit(here);       // another run is opened only on demand
  else search_says();
}

function search_says() {
  const n = number(search.hits.length) + (search.more ? " or more" : "");
  const words = !search.words ? "" : search.hits.length === 0 ? (search.words === document.documentElement.dataset.searched ? "not found" : "…")
    : search.at < 0 ? n + (search.hits.length === 1 ? " match" : " matches") : number(search.at + 1) + " of " + n;
  document.getElementById("found").textContent = words;
  for (const id of ["search-next", "search-previous"]) document.getElementById(id).disabled = search.hits.length === 0;
}

/* ---- marks ---- */

const can_mark = typeof Highlight === "function" && CSS.highlights;

function clear_marks() {
  if (can_mark) CSS.highlights.clear();
}

/* The ranges of the words in the text of an element, across the elements in it. */
function ranges_in(e, pattern) {
  const nodes = [];
  const walker = document.createTreeWalker(e, NodeFilter.SHOW_TEXT);
  let text = "";
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    nodes.push({ node, from: text.length });
    text += node.data;
  }
  const ranges = [];
  let i = 0;
  const place = (at, end) => {
    while (i + 1 < nodes.length && (end ? nodes[i + 1].from < at : nodes[i + 1].from <= at)) i++;
    return [nodes[i].node, at - nodes[i].from];
  };
  for (const found of text.matchAll(pattern)) {
    if (found[0] === "") continue;
    const range = document.createRange();
    range.setStart(...place(found.index, false));
    range.setEnd(...place(found.index + found[0].length, true));
    ranges.push(range);
    if (ranges.length >= 2000) break;
  }
  return ranges;
}

/* Marks what is drawn of the texts around the hit; the hit's own range is returned. */
function mark_hits(hit) {
  const pattern = pattern_of(search.words);
  const all = [];
  let own = null;
  const seen = new Set();
  for (const h of search.hits.slice(Math.max(0, search.at - 200), search.at + 200)) {
    const name = "text " + h.id + " " + h.field;
    const e = drawn.get(name);
    if (!e || seen.has(name)) continue;
    seen.add(name);
    const ranges = ranges_in(e, pattern);
    all.push(...ranges);
    if (h.id === hit.id && h.field === hit.field) own = ranges[Math.min(hit.nth, ranges.length - 1)] || null;
  }
  if (can_mark) {
    CSS.highlights.set("found", new Highlight(...all));
    CSS.highlights.set("current", own ? new Highlight(own) : new Highlight());
  }
  return own;
}

function visit_hit(index) {
  if (search.hits.length === 0) return;
  search.at = (index + search.hits.length) % search.hits.length;
  const hit = search.hits[search.at];
  const e = reveal(hit);
  const range = mark_hits(hit);
  search_says();
  scroll_to_range(range, e);
}

/* Also what scrolls within the page, such as long output. */
function scroll_to_range(range, e) {
  if (!range) return e && scroll_to(e);
  const node = range.startContainer.parentElement;
  open_around(node);
  node.scrollIntoView({ block: "center" });
  for (let box = node; box && box !== document.body; box = box.parentElement) {
    const own = box.getBoundingClientRect();
    const at = range.getBoundingClientRect();
    if (box.scrollHeight > box.clientHeight + 1) box.scrollTop += at.top - own.top - own.height / 2;
  }
  const at = range.getBoundingClientRect();
  if (at.top < 90 || at.bottom > innerHeight) scrollBy(0, at.top - innerHeight / 2);
}

/* ---- errors ---- */

/* Where something failed: steps, and runs without an answer. */
function find_errors() {
  errors.hits = [];
  for (const root of roots()) {
    for (const run of tree_order(root)) {
      for (const turn of run.turns)
        for (const step of steps_of(turn)) if (failed(step)) errors.hits.push({ run, turn, step, id: step.id, field: "error" });
      if (run.end && failed(run.end)) errors.hits.push({ run, id: run.run, field: "error" });
    }
  }
  errors_say();
}

function errors_say() {
  const n = errors.hits.length;
  document.getElementById("errors").textContent = n === 0 ? "no errors" : errors.at < 0 ? plural(n, "error")
    : "error " + number(errors.at + 1) + " of " + number(n);
  for (const id of ["error-next", "error-previous"]) document.getElementById(id).disabled = n === 0;
}

function visit_error(index) {
  const n = errors.hits.length;
  if (n === 0) return;
  errors.at = (index + n) % n;
  errors_say();
  const e = reveal(errors.hits[errors.at]);
  if (e) scroll_to(e);
}

const next_error = () => visit_error(errors.at + 1);
const previous_error = () => visit_error(errors.at < 0 ? -1 : errors.at - 1);
const next_hit = () => visit_hit(search.at + 1);
const previous_hit = () => visit_hit(search.at < 0 ? -1 : search.at - 1);
