/* web/markdown.js: a safe part of Markdown: headings, lists, quotes, code, emphasis, tables, links.
 *
 * A line at a time makes blocks, and one pass over a block its emphasis. No HTML, no images, and
 * links only with http and https; a link shows the host that it leads to. Time is linear in the
 * text: a search for an end that failed once is not repeated.
 */

const MARKDOWN_MOST = 256 << 10;        // characters; longer texts stay as they are
const MARKDOWN_DEPTH = 4;               // emphasis in emphasis
const LIST_DEPTH = 8;

/* ---- within a block ---- */

const LINK = /^\[([^[\]\n]{1,300})\]\(([^\s()<>]{1,1000})(?:\s+"[^"\n]{0,200}")?\)/;
const ADDRESS = /^https?:\/\/[^\s<>"'`()[\]{}]{1,1000}/;
const EMPHASIS = { "**": "strong", "__": "strong", "*": "em", "_": "em", "~~": "s" };

/* The address if it may be a link, else null. */
function web_address(text) {
  try {
    const url = new URL(text);
    return /^https?:$/.test(url.protocol) && /^https?:\/\//i.test(text) && !url.username && !url.password ? url : null;
  } catch (_) {
    return null;
  }
}

function link(url, words) {
  const a = attributes(element("a", "", words), "href", url.href, "rel", "noopener noreferrer nofollow", "target", "_blank");
  return words.includes(url.host) && web_address(words) ? [a] : [a, element("span", "soft", " (" + url.host + ")")];
}

/* The end of emphasis that began with `mark` before `at`, or -1. */
function emphasis_end(text, mark, at) {
  if (/\s/.test(text[at] || " ")) return -1;
  for (let tries = 0, end = at; tries < 8; tries++) {
    end = text.indexOf(mark, end + 1);
    if (end < 0) return -1;
    const after = text[end + mark.length] || "";
    if (mark.length === 1 && (after === mark || text[end - 1] === mark)) continue;
    if (!/\s/.test(text[end - 1]) && !(mark[0] === "_" && /\w/.test(after))) return end;
  }
  return -1;
}

function add_inline(parent, text, depth = 0) {
  const missing = new Set();            // ends that are nowhere in the rest
  let from = 0;
  const put = (until, next, ...nodes) => {
    add_text(parent, text.slice(from, until));
    parent.append(...nodes);
    from = next;
    return next;
  };
  for (let at = 0; at < text.length;) {
    const rest = text.slice(at).search(/[\\`*_~[]|https?:\/\//);
    if (rest < 0) break;
    at += rest;
    const c = text[at];
    let next = at + 1;
    if (c === "\\" && /[!-/:-@[-`{-~]/.test(text[at + 1] || "")) {
      put(at, at + 1);
      next = at + 2;
    } else if (c === "`") {
      const ticks = text.slice(at, at + 64).match(/^`+/)[0];
      const end = missing.has(ticks) ? -1 : text.indexOf(ticks, at + ticks.length);
      if (end < 0) missing.add(ticks);
      next = end < 0 ? at + ticks.length : put(at, end + ticks.length, element("code", "", text.slice(at + ticks.length, end)));
    } else if (c === "[" || c === "h") {
      const found = text.slice(at, at + 1600).match(c === "[" ? LINK : ADDRESS);
      const words = found && found[0].replace(/[.,;:!?]+$/, "");
      const url = found && web_address(c === "[" ? found[2] : words);
      if (url) next = put(at, at + (c === "[" ? found[0] : words).length, ...link(url, c === "[" ? found[1] : words));
      else if (found) next = at + found[0].length;
    } else if (EMPHASIS[text.slice(at, at + 2)] || EMPHASIS[c]) {
      const mark = EMPHASIS[text.slice(at, at + 2)] ? text.slice(at, at + 2) : c;
      const inside = mark[0] === "_" && /\w/.test(text[at - 1] || "");
      const end = inside || depth >= MARKDOWN_DEPTH || missing.has(mark) ? -1 : emphasis_end(text, mark, at + mark.length);
      if (end < 0 && !inside && text.indexOf(mark, at + mark.length) < 0) missing.add(mark);
      next = at + mark.length;
      if (end >= 0) {
        const e = element(EMPHASIS[mark]);
        add_inline(e, text.slice(next, end), depth + 1);
        next = put(at, end + mark.length, e);
      }
    }
    at = next;
  }
  add_text(parent, text.slice(from));
  return parent;
}

/* ---- blocks ---- */

const FENCE = /^ {0,3}(`{3,}|~{3,})[ \t]*([\w+-]*)/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])[ \t]+(.*)$/;
const RULE = /^ {0,3}([-*_])(?:[ \t]*\1){2,}[ \t]*$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const TABLE = /^[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t:-]*)*$/;

const is_block = (line) => FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || RULE.test(line) || QUOTE.test(line);

/* Each takes the lines from `at` and returns where it ends. */
function markdown_fence(box, lines, at, found) {
  const end = new RegExp("^ {0,3}" + found[1][0] + "{" + found[1].length + ",}[ \\t]*$");
  const inside = [];
  for (at++; at < lines.length && !end.test(lines[at]); at++) inside.push(lines[at]);
  const text = inside.join("\n");
  box.append(/^(?:py|python|repl)$/.test(found[2]) ? add_code(element("pre"), text) : element("pre", "", text));
  return at + 1;
}

/* Items of lists, also of lists in them: each is one level deeper than what stands further left. */
function markdown_list(box, lines, at) {
  const stack = [];
  for (let found; at < lines.length; at++) {
    found = lines[at].match(ITEM);
    if (!found || RULE.test(lines[at])) {
      const open = stack[stack.length - 1];
      if (lines[at].trim() === "" && at + 1 < lines.length && ITEM.test(lines[at + 1])) continue;
      if (!/^[ \t]+\S/.test(lines[at]) || FENCE.test(lines[at])) break;
      add_inline(open.list.lastChild, "\n" + lines[at].trim());
      continue;
    }
    const indent = found[1].replace(/\t/g, "    ").length;
    while (stack.length > 1 && indent < stack[stack.length - 1].indent) stack.pop();
    const open = stack[stack.length - 1];
    if (!open || (indent > open.indent + 1 && stack.length < LIST_DEPTH)) {
      const list = element(/\d/.test(found[2]) ? "ol" : "ul");
      if (list.tagName === "OL") list.start = parseInt(found[2], 10);
      (open ? open.list.lastChild : box).append(list);
      stack.push({ indent, list });
    }
    stack[stack.length - 1].list.append(add_inline(element("li"), found[3]));
  }
  return at;
}

function table_cells(line) {
  return line.trim().replace(/^\||\|$/g, "").split("|").slice(0, 50).map((text) => text.trim());
}

function markdown_table(box, lines, at) {
  const head = table_cells(lines[at]);
  const row = (kind, cells) => element("tr", "", ...head.map((_, i) => add_inline(element(kind), cells[i] || "")));
  const table = element("table", "md-table", row("th", head));
  for (const cell of table.querySelectorAll("th")) cell.scope = "col";
  for (at += 2; at < lines.length && lines[at].includes("|"); at++) table.append(row("td", table_cells(lines[at])));
  box.append(element("div", "wide", table));
  return at;
}

function markdown_quote(box, lines, at) {
  const inside = [];
  for (let found; at < lines.length && (found = lines[at].match(QUOTE)); at++) inside.push(found[1]);
  box.append(add_inline(element("blockquote"), inside.join("\n")));
  return at;
}

function markdown_paragraph(box, lines, at) {
  const from = at;
  for (at++; at < lines.length && lines[at].trim() !== "" && !is_block(lines[at]); at++);
  box.append(add_inline(element("p"), lines.slice(from, at).join("\n")));
  return at;
}

function markdown(text) {
  if (text.length > MARKDOWN_MOST) return element("pre", "", text);
  const box = element("div", "md");
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  for (let at = 0; at < lines.length;) {
    const line = lines[at];
    const fence = line.match(FENCE);
    const heading = line.match(HEADING);
    if (line.trim() === "") {
      at++;
    } else if (fence) {
      at = markdown_fence(box, lines, at, fence);
    } else if (heading) {
      box.append(add_inline(element("h" + Math.min(6, 3 + heading[1].length)), heading[2].replace(/(?<![ \t])[ \t]+#+[ \t]*$/, "")));
      at++;
    } else if (RULE.test(line)) {
      box.append(element("hr"));
      at++;
    } else if (ITEM.test(line)) {
      at = markdown_list(box, lines, at);
    } else if (QUOTE.test(line)) {
      at = markdown_quote(box, lines, at);
    } else if (line.includes("|") && TABLE.test(lines[at + 1] || "") && lines[at + 1].includes("-")) {
      at = markdown_table(box, lines, at);
    } else {
      at = markdown_paragraph(box, lines, at);
    }
  }
  return box;
}
