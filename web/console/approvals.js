/* web/console/approvals.js: calls of tools that wait for an approval, above the list of runs and
 * above the steps of a run. A call stays in place while it waits, so that a button does not move
 * under the pointer. */

let approvals = null;                   // what is shown: of which run, and the cards by id
let approvals_timer = null;

async function decide(approval, decision, box) {
  const reason = box.querySelector("input").value.trim();
  const body = reason ? { decision, reason } : { decision };
  box.querySelectorAll("button").forEach((one) => (one.disabled = true));
  if (await attempt("The call was not decided", () => ask_json("POST", "/v1/approvals/" + approval.id + "?run=" + approval.root, body)))
    say(approval.tool + " was " + (decision === "approve" ? "approved" : "denied") + "." + (approval.interrupted ? " Its run goes on when it is resumed." : ""));
  refresh_approvals();
}

function approval_card(approval) {
  const name = approval.tool + " " + approval.id;
  const link = attributes(element("a", "mono soft", short_id(approval.root)), "href", "#runs/" + approval.root);
  const until = approval.until ? "until " + new Date(approval.until).toLocaleString() : "";
  const head = element("p", "note", element("strong", "mono", approval.tool), " asks, in run ", link, " ", until);
  const reason = attributes(element("input"), "aria-label", "Reason for " + name, "placeholder", "Reason", "autocomplete", "off", "maxlength", "1000");
  const box = element("section", "card approval", head);
  if (approval.repeated) box.append(element("p", "failure", "A process died while this call was executed. It may have been done."));
  if (approval.interrupted) box.append(element("p", "note", "Its run has no process now."));
  box.append(element("pre", "out typed", as_text(approval.arguments)), element("div", "beside", reason,
    attributes(button("Approve", () => decide(approval, "approve", box)), "aria-label", "Approve " + name),
    attributes(button("Deny", () => decide(approval, "deny", box)), "aria-label", "Deny " + name)));
  return box;
}

/* Nodes of a cluster have the same ids. */
function approval_key(approval) {
  return approval.root + " " + approval.id;
}

function draw_approvals(found) {
  for (const [id, box] of approvals.cards)
    if (!found.some((one) => approval_key(one) === id)) {
      box.remove();
      approvals.cards.delete(id);
    }
  for (const one of found) {
    const old = approvals.cards.get(approval_key(one));
    const state = JSON.stringify([one.repeated, one.interrupted]);
    if (old && old.dataset.state === state && !old.querySelector("button:disabled")) continue;
    const box = attributes(approval_card(one), "data-state", state);
    if (old) old.replaceWith(box);
    else approvals.list.append(box);
    approvals.cards.set(approval_key(one), box);
  }
  approvals.place.hidden = found.length === 0;
}

async function refresh_approvals() {
  clearTimeout(approvals_timer);
  const shown_now = approvals;
  if (!shown_now || !shown_now.place.isConnected || document.hidden || !at("login").hidden) return;
  const answer = await attempt("Calls that wait cannot be listed", () => ask_json("GET", "/v1/approvals"));
  if (approvals !== shown_now) return;
  if (answer) draw_approvals(answer.approvals.filter((one) => !approvals.root || one.root === approvals.root));
  clearTimeout(approvals_timer);
  approvals_timer = setTimeout(refresh_approvals, answer ? REFRESH_MS : 5 * REFRESH_MS);
}

/* The place for those of a run and its children, or of all. It is empty until it is in the page and
 * refresh_approvals() is called. */
function approvals_place(root) {
  const list = element("div");
  approvals = { root, list, place: element("section", "", element("h2", "", "Waiting for an approval"), list), cards: new Map() };
  approvals.place.hidden = true;
  return approvals.place;
}
