/* web/console/terminal.js: a terminal of a sandbox: bytes over a WebSocket, drawn as text.
 *
 * It is a simple one (TERM=dumb): lines, backspace and carriage return. Other sequences of a program
 * are taken out, none is obeyed, so that nothing of a guest controls the page. Programs that draw
 * whole screens need a real terminal.
 */

const TERMINAL_SHOWN = 256 << 10;       // characters
const TERMINAL_KEYS = { Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b", ArrowUp: "\x1b[A", ArrowDown: "\x1b[B", ArrowRight: "\x1b[C",
  ArrowLeft: "\x1b[D", Home: "\x1b[H", End: "\x1b[F", Delete: "\x1b[3~", PageUp: "\x1b[5~", PageDown: "\x1b[6~" };
/* Control sequences, strings up to their end, and other escapes (ECMA-48). */
const TERMINAL_SEQUENCE = /\x1b(?:\[([0-?]*)[ -/]*([@-~])|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-~])/y;
const TERMINAL_OPEN = /\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]{0,4096}\x1b?|[ -/]*)$/;

/* The text so far: whole lines, and the one that the cursor is in. */
class Lines {
  constructor() {
    this.done = [];
    this.length = 0;
    this.line = [];                     // characters
    this.column = 0;
    this.rest = "";                     // of a sequence that is not whole yet
  }

  end_line() {
    const text = this.line.join("");
    this.done.push(text);
    this.length += text.length + 1;
    this.line = [];
    this.column = 0;
    while (this.length > TERMINAL_SHOWN) this.length -= this.done.shift().length + 1;
  }

  control(last, number) {
    if (last === "K" && !number) this.line.length = this.column;
    else if (last === "D") this.column = Math.max(0, this.column - (number || 1));
    else if (last === "C") this.column = Math.min(this.line.length, this.column + (number || 1));
    else if (last === "P") this.line.splice(this.column, number || 1);
    else if (last === "@") this.line.splice(this.column, 0, ...new Array(Math.min(number || 1, 1000)).fill(" "));
  }

  put(character) {
    if (character === "\n") this.end_line();
    else if (character === "\r") this.column = 0;
    else if (character === "\b") this.column = Math.max(0, this.column - 1);
    else if (character === "\t") while (this.put(" "), this.column % 8);
    else if (character >= " ") {
      if (this.column >= TERMINAL_SHOWN) this.end_line();
      this.line[this.column++] = character;
    }
  }

  add(text) {
    text = this.rest + text;
    this.rest = "";
    for (let at = 0; at < text.length;) {
      if (text[at] !== "\x1b") {
        const character = String.fromCodePoint(text.codePointAt(at));
        this.put(character);
        at += character.length;
        continue;
      }
      TERMINAL_SEQUENCE.lastIndex = at;
      const found = TERMINAL_SEQUENCE.exec(text);
      if (!found && TERMINAL_OPEN.test(text.slice(at, at + 5000)) && text.length - at < 5000) {
        this.rest = text.slice(at);
        return;
      }
      if (found && found[2]) this.control(found[2], Number(found[1]) || 0);
      at = found ? TERMINAL_SEQUENCE.lastIndex : at + 1;
    }
  }

  text() {
    return [...this.done, this.line.join("")].join("\n");
  }
}

/* ---- the connection ---- */

const terminals = new Map();            // by id of the sandbox

/* As many characters as fit. */
function terminal_size(screen) {
  const probe = element("span", "probe", "x".repeat(100));
  screen.append(probe);
  const box = probe.getBoundingClientRect();
  probe.remove();
  const side = (room, size) => Math.min(1000, Math.max(2, Math.floor(room / size) || 2));
  return { columns: side(screen.clientWidth - 24, box.width / 100), rows: side(screen.clientHeight - 16, box.height) };
}

function draw_terminal_text(t) {
  t.waits = false;
  const at_end = t.screen.scrollHeight - t.screen.scrollTop - t.screen.clientHeight < 40;
  t.screen.replaceChildren();
  add_text(t.screen, t.lines.text());
  if (!t.ended) t.screen.append(element("span", "cursor", " "));
  if (at_end) t.screen.scrollTop = t.screen.scrollHeight;
}

/* Once for all that comes before the next frame. */
function draw_terminal_soon(t) {
  if (t.waits) return;
  t.waits = true;
  requestAnimationFrame(() => draw_terminal_text(t));
}

function end_terminal(t, words) {
  if (t.ended) return;
  t.ended = true;
  t.note.replaceChildren();
  add_text(t.note, words);
  draw_terminal_soon(t);
}

function send_size(t) {
  const size = terminal_size(t.screen);
  if (t.socket.readyState !== WebSocket.OPEN || t.ended || (size.columns === t.size.columns && size.rows === t.size.rows)) return;
  t.size = size;
  t.socket.send(JSON.stringify(size));
}

function take_terminal_text(t, message) {
  if (message.error) end_terminal(t, "There is no terminal: " + message.error);
  else if (message.exit_code !== undefined) end_terminal(t, "The shell has ended with " + message.exit_code + ".");
}

function open_terminal(id) {
  const address = (location.protocol === "https:" ? "wss://" : "ws://") + location.host + path_of(id, "/terminal");
  const screen = attributes(element("pre", "screen"), "tabindex", "0", "role", "textbox", "aria-multiline", "true", "aria-label",
    "Terminal; what you type goes to the shell; Shift+Tab leaves it");
  const t = { id, screen, note: element("p", "note"), lines: new Lines(), decoder: new TextDecoder(), size: null, ended: false, waits: false,
    socket: new WebSocket(address, key ? ["droste.terminal", "droste.key." + key] : ["droste.terminal"]) };
  t.socket.binaryType = "arraybuffer";
  t.socket.addEventListener("open", () => {
    t.size = terminal_size(screen);
    t.socket.send(JSON.stringify({ ...t.size, env: { TERM: "dumb" } }));
  });
  t.socket.addEventListener("message", (event) => {
    if (typeof event.data === "string") {
      take_terminal_text(t, JSON.parse(event.data));
      return;
    }
    t.lines.add(t.decoder.decode(event.data, { stream: true }));
    draw_terminal_soon(t);
  });
  t.socket.addEventListener("close", () => end_terminal(t, "The connection has ended."));
  t.type = (text) => t.socket.readyState === WebSocket.OPEN && !t.ended && t.socket.send(new TextEncoder().encode(text));
  screen.addEventListener("keydown", (event) => terminal_key(t, event));
  screen.addEventListener("paste", (event) => {
    event.preventDefault();
    t.type(event.clipboardData.getData("text").replace(/\r?\n/g, "\r"));
  });
  new ResizeObserver(() => t.size && screen.isConnected && send_size(t)).observe(screen);
  return t;
}

/* Copying, and what has Alt or Meta, stays the browser's. */
function terminal_key(t, event) {
  const copies = event.ctrlKey && event.key === "c" && String(getSelection());
  const pastes = event.ctrlKey && event.key.toLowerCase() === "v";
  if (event.altKey || event.metaKey || copies || pastes || (event.key === "Tab" && event.shiftKey)) return;
  let text = TERMINAL_KEYS[event.key] || (event.key.length === 1 || event.key.codePointAt(0) > 0xffff ? event.key : "");
  if (event.ctrlKey && /^[a-z@[\\\]^_ ]$/i.test(event.key)) text = String.fromCharCode(event.key.toUpperCase().charCodeAt(0) & 31);
  if (!text) return;
  event.preventDefault();
  t.type(text);
}

/* One for each sandbox of this tab, which goes on while something else is shown. */
function draw_terminal(known) {
  let t = terminals.get(known.id);
  if (!t) {
    t = open_terminal(known.id);
    terminals.set(known.id, t);
  }
  const again = button("New terminal", () => {
    t.socket.close();
    terminals.delete(known.id);
    box.replaceWith(draw_terminal(known));
  });
  const box = element("div", "terminal", t.screen, t.note, element("div", "beside", again,
    element("span", "note", "A simple terminal: programs that draw whole screens do not work in it.")));
  draw_terminal_text(t);
  setTimeout(() => t.screen.focus(), 0);
  return box;
}
