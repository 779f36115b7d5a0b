/* web/console/cluster.js: the nodes of the cluster, and what they all have: sandboxes, runs, the
 * queue, tokens and cost. A server that is in no cluster has no such place. */

const CLUSTER_MS = 2000;
let cluster_timer = null;

const node_pill = (state) => element("span", "pill " + (state === "up" ? "answered" : "error"), state);
const total = (nodes, name) => nodes.reduce((sum, node) => sum + (Number(node[name]) || 0), 0);

function node_row(node) {
  const row = element("tr", "", element("td"), element("td", "", node_pill(node.state)), element("td", "number", number(node.sandboxes) + " of " + number(node.most)),
    element("td", "number", typeof node.runs === "number" ? number(node.runs) + " of " + number(node.room) : ""),
    element("td", "number", typeof node.tokens === "number" ? number(node.tokens) : ""), element("td", "number", typeof node.cost === "number" ? money(node.cost) : ""),
    element("td"), element("td", "mono"));
  add_text(row.cells[0], node.name);
  add_text(row.cells[6], node.version);
  add_text(row.cells[7], node.address);
  ["node", "state", "sandboxes", "runs", "tokens", "cost", "version", "address"].forEach((name, i) => attributes(row.cells[i], "data-name", name));
  return row;
}

function draw_nodes(answer) {
  const nodes = answer.nodes.slice().sort((a, b) => (a.name < b.name ? -1 : 1));
  const up = nodes.filter((node) => node.state === "up").length;
  at("nodes").replaceChildren(...nodes.map(node_row));
  at("cluster-count").textContent = join(plural(up, "node") + " up", up < nodes.length ? number(nodes.length - up) + " not" : null, number(total(nodes, "sandboxes")) + (total(nodes, "sandboxes") === 1 ? " sandbox" : " sandboxes"),
    plural(total(nodes, "runs"), "run"), number(answer.queued) + " in the queue", number(total(nodes, "tokens")) + " tokens", money(total(nodes, "cost")));
}

async function refresh_cluster() {
  clearTimeout(cluster_timer);
  if (at("cluster").hidden || document.hidden) return;
  const answer = await attempt("The cluster is not shown", () => ask_json("GET", "/v1/cluster"));
  if (answer && !at("cluster").hidden) draw_nodes(answer);
  if (!at("cluster").hidden) cluster_timer = setTimeout(refresh_cluster, CLUSTER_MS);
}

function draw_cluster(place) {
  const table = element("table", "rows");
  const head = element("tr");
  for (const name of ["node", "state", "sandboxes", "runs", "tokens", "cost", "version", "address"])
    head.append(element("th", ["sandboxes", "runs", "tokens", "cost"].includes(name) ? "number" : "", name));
  table.append(element("thead", "", head), attributes(element("tbody"), "id", "nodes"));
  place.append(attributes(element("h1", "", "Cluster"), "tabindex", "-1"), attributes(element("p", "count"), "id", "cluster-count"), table);
}

async function find_cluster() {
  const answer = await attempt("The cluster is not known", () => ask_json("GET", "/v1/cluster"));
  at("to-cluster").hidden = !answer || answer.nodes.length === 0;
}
