/* web/json.js: JSON on lines of its own, without recursion: a record may hold any depth. */

const SHORT_JSON = 90;          // characters that stay on one line
const COLORED_JSON = 32 << 10;  // characters; longer ones have one color
const DEEPEST_INDENT = 40;      // what is deeper stays on its line

function as_text(value) {
  if (typeof value === "string") return value;
  try {
    return JSON.stringify(value);
  } catch (_) {
    return "(too deep to be shown)";            // the engine's stack; only deeper than any record
  }
}

/* The index behind the token of valid JSON that begins at `at`. */
function json_token_end(text, at) {
  if ("{}[],:".includes(text[at])) return at + 1;
  if (text[at] !== '"') {
    let end = at + 1;
    while (end < text.length && !'{}[],:" \n\t\r'.includes(text[end])) end++;
    return end;
  }
  for (let i = at + 1; i < text.length; i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === '"') return i + 1;
  }
  return text.length;
}

/* Whether the object or list that begins at `at` fits on a line. */
function json_is_short(text, at) {
  let depth = 0;
  for (let i = at; i < text.length && i < at + SHORT_JSON; i = json_token_end(text, i)) {
    if (text[i] === "{" || text[i] === "[") depth++;
    if ((text[i] === "}" || text[i] === "]") && --depth === 0) return true;
  }
  return false;
}

function json_class(token, text, end) {
  if (token[0] === '"') return text[end] === ":" ? "o" : "s";
  return /^[-\d]/.test(token) ? "n" : /^[tfn]/.test(token) ? "k" : "";
}

/* The text of JSON, without white space between its tokens, as an element. */
function json_block(text) {
  const pre = element("pre", "json");
  const colored = text.length <= COLORED_JSON;
  const line = (depth) => (depth > DEEPEST_INDENT ? "" : "\n" + "  ".repeat(depth));
  let plain = "";               // what has no color, up to here
  let depth = 0;
  let short = -1;               // the depth around something that stays on its line
  for (let at = 0, end; at < text.length; at = end) {
    end = json_token_end(text, at);
    const token = text.slice(at, end);
    const closes = token === "}" || token === "]";
    const empty = closes && /[[{]/.test(text[at - 1]);
    if (closes) depth--;
    if (closes && short < 0 && !empty) plain += line(depth);
    const kind = colored ? json_class(token, text, end) : "";
    if (kind) {
      add_text(pre, plain);
      pre.append(element("span", kind, token));
      plain = "";
    } else {
      plain += token;
    }
    if (token === "{" || token === "[") {
      if (short < 0 && (json_is_short(text, at))) short = depth;
      depth++;
      if (short < 0) plain += line(depth);
    }
    if (closes && depth === short) short = -1;
    if (token === ",") plain += short < 0 ? line(depth) : " ";
    if (token === ":") plain += " ";
  }
  return add_text(pre, plain);
}

/* The same JSON without white space, with its numbers as they were written; null: it is not JSON. */
function json_compact(text) {
  try {
    JSON.parse(text);
  } catch (_) {
    return null;
  }
  const parts = [];
  for (let at = 0, end; at < text.length; at = end) {
    end = json_token_end(text, at);
    const token = text.slice(at, end).trim();
    if (token) parts.push(token);
  }
  return parts.join("");
}
