/* web/console/api.js: requests to the server. The key goes in a header, never in an address. */

const KEY = "droste.key";
let key = sessionStorage.getItem(KEY);

class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

function say(words, is_bad) {
  const state = document.getElementById("state");
  state.replaceChildren();
  add_text(state, words);
  state.classList.toggle("failure", Boolean(is_bad));
}

async function refusal_of(answer) {
  let error = null;
  try {
    error = (await answer.json()).error;
  } catch (_) { /* not JSON */ }
  if (answer.status === 401) show_login();
  return new Refusal(answer.status, String((error && error.message) || "the server answered " + answer.status));
}

/* The answer of a request that succeeded; throws a Refusal. */
async function ask(method, path, body) {
  const headers = {};
  if (key) headers.Authorization = "Bearer " + key;
  if (typeof body === "string") headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, body, headers, redirect: "error", credentials: "omit", cache: "no-store" });
  if (!answer.ok) throw await refusal_of(answer);
  return answer;
}

const ask_json = async (method, path, body) => (await ask(method, path, body === undefined ? undefined : JSON.stringify(body))).json();

/* Does something and says what failed; null if it did. For a key that is refused, show_login() has
 * said it. */
async function attempt(what, act) {
  try {
    return await act();
  } catch (error) {
    if (error.status !== 401) say(what + ": " + error.message, true);
    return null;
  }
}

/* Calls on_event(name, data) for each server-sent event. */
async function follow(answer, on_event) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const event of events) {
      const lines = event.split("\n");
      const name = lines.find((line) => line.startsWith("event: "));
      const data = lines.find((line) => line.startsWith("data: "));
      if (name && data) on_event(name.slice(7), JSON.parse(data.slice(6)));
    }
  }
}

/* Whether the user says so, in a dialog. */
function confirmed(words, act) {
  const dialog = document.getElementById("question");
  const [yes, no] = dialog.querySelectorAll("button");
  dialog.querySelector("p").replaceChildren(element("span", "", words));
  yes.textContent = act;
  dialog.showModal();
  no.focus();
  /* Not by the event `close`: the next question may be open before it comes. */
  return new Promise((done) => {
    yes.onclick = () => done(true);
    no.onclick = dialog.oncancel = () => done(false);
  });
}

/* For attributes, which cannot mark what is invisible. */
const plain = (text) => one_line(text).replace(STRANGE, show_strange);
