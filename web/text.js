/* web/text.js: elements, and words for numbers.
 *
 * A record holds texts of models, guests and files. Each becomes a text node and nothing else, with
 * control and direction characters made visible. What can be long is drawn when it is opened or when
 * the browser is idle, and lists in portions, so that a run of ten thousand calls opens at once.
 */

const PORTION = 100;            // items of a list that are drawn at once
const FIRST_PARTS = 300;        // closed parts that are drawn at once: also for text fragments in an address
const IDLE_ELEMENTS = 60000;    // closed parts are drawn while the page has fewer
const IDLE_TEXT = 32 << 20;     // and fewer characters

/* Control characters (but newline and tab), and those that are invisible or change directions. */
const STRANGE = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u115f\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]+/gu;

let drawn_text = 0;

function show_strange(found) {
  return Array.from(found, (c) => {
    const code = c.codePointAt(0);
    return code < 256 ? "\\x" + code.toString(16).padStart(2, "0") : "\\u" + code.toString(16).padStart(4, "0");
  }).join("");
}

function add_text(parent, text) {
  text = String(text).replace(/\r\n/g, "\n");
  drawn_text += text.length;
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

/* attributes(e, "role", "search", "aria-label", "…") */
function attributes(e, ...pairs) {
  for (let i = 0; i < pairs.length; i += 2) e.setAttribute(pairs[i], pairs[i + 1]);
  return e;
}

function button(words, act, title) {
  const b = element("button", "", words);
  b.type = "button";
  if (title) attributes(b, "title", title, "aria-label", title);
  b.addEventListener("click", act);
  return b;
}

/* ---- what is drawn later ---- */

let waiting = [];               // closed parts that were not drawn
const later = window.requestIdleCallback
  || ((work) => requestAnimationFrame(() => work({ timeRemaining: () => 8 })));

/* What is inside is made when it is opened for the first time, or by draw_waiting(). */
function folded(classes, summary, fill, open) {
  const d = element("details", classes, summary);
  let filled = false;
  d.draw = () => {
    if (filled) return;
    filled = true;
    fill(d);
  };
  d.addEventListener("toggle", () => d.open && d.draw());
  d.open = Boolean(open);
  if (d.open) d.draw();
  else waiting.push(d);
  return d;
}

function open_fully(d) {
  d.open = true;
  d.draw();
}

/* Draws closed parts while nothing else is to be done: the browser's own search finds only what is
 * in the document, and opens the part that has it. */
function draw_waiting() {
  const mine = waiting;
  let at = 0;
  const room = () => drawn_text < IDLE_TEXT && document.getElementById("run").getElementsByTagName("*").length < IDLE_ELEMENTS;
  const work = (idle) => {
    if (mine !== waiting) return;               // another view is shown
    while (at < mine.length && room() && idle.timeRemaining() > 1) mine[at++].draw();
    if (at < mine.length && room()) later(work);
    else document.documentElement.dataset.idle = "yes";
  };
  while (at < Math.min(mine.length, FIRST_PARTS) && drawn_text < 1 << 20) mine[at++].draw();
  later(work);
}

/* A list in portions, with a button for the next one in `foot`. Returns a function that draws it up
 * to an index. */
function portions(parent, items, draw, foot = parent) {
  let at = 0;
  const more = button("", () => until(at));
  more.className = "more";
  const until = (index) => {
    more.remove();
    for (const end = Math.min(Math.max(index + 1, at + PORTION), items.length); at < end; at++) parent.append(draw(items[at], at));
    if (at < items.length) {
      more.textContent = "show " + number(Math.min(PORTION, items.length - at)) + " more of " + number(items.length - at);
      foot.append(more);
    }
  };
  until(0);
  return (index) => {
    if (index >= at) until(index);
  };
}

/* ---- words ---- */

/* 12,345. Texts of a record that should be numbers stay what they are. */
function number(n) {
  return typeof n === "number" ? n.toLocaleString("en-US") : as_text(n);
}

const plural = (n, what) => number(n) + " " + what + (n === 1 ? "" : "s");
const time = (text) => (text ? Date.parse(text) : NaN);
const join = (...parts) => parts.filter((part) => part !== null && part !== undefined && part !== "").join(" · ");
const one_line = (text) => String(text).slice(0, 400).replace(/\s+/g, " ").trim();

/* No line breaks between a number and its unit. */
function seconds(s) {
  if (typeof s !== "number") return null;
  if (s < 0.1) return s > 0 && s < 0.001 ? "<\u00a01\u00a0ms" : Math.round(1000 * s) + "\u00a0ms";
  if (s >= 100) return number(Math.floor(s / 60)) + "\u00a0min " + Math.round(s % 60) + "\u00a0s";
  return (s >= 10 ? s.toFixed(1) : s.toFixed(2)) + "\u00a0s";
}

function money(dollars) {
  return typeof dollars === "number" ? "$" + dollars.toLocaleString("en-US", { minimumFractionDigits: 4, maximumFractionDigits: 4 }) : null;
}

function bytes(n) {
  for (const unit of ["bytes", "KiB", "MiB"]) {
    if (n < 1024 || unit === "MiB") return (unit === "bytes" ? number(n) : n.toFixed(1)) + " " + unit;
    n /= 1024;
  }
}
