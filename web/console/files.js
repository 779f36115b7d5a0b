/* web/console/files.js: the files of a sandbox: browse, download, upload, remove. */

const FILES_SHOWN = 1000;
const HELD = 1 << 30;                   // a download is held in memory: an address must not have the key

const below = (directory, name) => (directory === "/" ? "" : directory) + "/" + name;
const above = (directory) => directory.replace(/\/+$/, "").replace(/\/[^/]*$/, "") || "/";
const file_path = (known, rest, path) => path_of(known.id, rest + "?path=" + encodeURIComponent(path));

async function download(known, path, name) {
  say("Downloading " + name);
  const blob = await attempt("Downloading " + name, async () => (await ask("GET", file_path(known, "/files", path))).blob());
  if (!blob) return;
  /* Of an opaque type, so that no browser shows it as a page of this origin. */
  const address = URL.createObjectURL(new Blob([blob], { type: "application/octet-stream" }));
  attributes(element("a"), "href", address, "download", name).click();
  setTimeout(() => URL.revokeObjectURL(address), 60000);
  say("Downloaded " + name + ", " + bytes(blob.size));
}

async function upload(known, directory, files) {
  for (const file of files) {
    say("Uploading " + file.name);
    if (!(await attempt("Uploading " + file.name, () => ask("PUT", file_path(known, "/files", below(directory, file.name)), file)))) return;
    say("Uploaded " + file.name + ", " + bytes(file.size));
  }
}

async function remove_entry(known, path, entry) {
  const is_directory = entry.kind === "directory";
  if (!(await confirmed("Remove " + path + (is_directory ? ", with all that is in it?" : "?"), "Remove it"))) return;
  if (await attempt("Removing", () => ask("DELETE", file_path(known, is_directory ? "/directory" : "/files", path)))) say("Removed " + path);
}

function draw_entry(known, path, entry, open) {
  const leads_to = entry.kind === "link" ? entry.target_kind : entry.kind;
  let name = element("span", "", entry.name);
  if (leads_to === "directory") name = button(entry.name + "/", () => open(path));
  else if (leads_to === "file") name = button(entry.name, async () => {
    if (entry.size <= HELD || (await confirmed("It has " + bytes(entry.size) + ", and the browser holds it in memory.", "Download it"))) download(known, path, entry.name);
  });
  name.classList.add("name");
  const remove = attributes(button("Remove", async () => {
    await remove_entry(known, path, entry);
    open(known.directory);
  }), "aria-label", "Remove " + plain(entry.name));
  return element("tr", "", element("td", "about", name, entry.target ? element("span", "soft", " → " + entry.target) : null),
    element("td", "number", leads_to === "file" ? bytes(entry.size) : ""), element("td", "soft", new Date(entry.modified_ms).toLocaleString()),
    element("td", "act", remove));
}

function draw_files(known) {
  const where = attributes(element("input"), "aria-label", "Directory", "spellcheck", "false", "autocomplete", "off", "autocapitalize", "off");
  const rows = element("tbody");
  const note = element("p", "note");
  const open = async (directory) => {
    const list = await attempt("Listing " + directory, () => ask_json("GET", file_path(known, "/directory", directory)));
    if (!list) return;
    known.directory = where.value = directory;
    const entries = list.entries.sort((a, b) => (b.kind === "directory") - (a.kind === "directory") || (a.name < b.name ? -1 : 1));
    rows.replaceChildren(...entries.slice(0, FILES_SHOWN).map((entry) => draw_entry(known, below(directory, entry.name), entry, open)));
    note.textContent = entries.length === 0 ? "The directory is empty." : entries.length > FILES_SHOWN || list.more ? "The first " + number(rows.childElementCount) + " are shown." : "";
    table.hidden = entries.length === 0;
    rows.dataset.path = directory;
  };
  const file = attributes(element("input"), "type", "file", "multiple", "", "hidden", "", "aria-label", "Files to upload");
  file.addEventListener("change", async () => {
    await upload(known, known.directory, Array.from(file.files));
    file.value = "";
    open(known.directory);
  });
  const bar = attributes(element("form", "filters"), "aria-label", "Directory");
  const enter = element("button", "", "Open");
  bar.append(where, enter, button("Up", () => open(above(known.directory))), button("Upload", () => file.click()), file);
  bar.addEventListener("submit", (event) => {
    event.preventDefault();
    open(where.value || "/");
  });
  const head = element("thead", "", element("tr", "", element("th", "", "name"), element("th", "number", "size"), element("th", "", "modified"), element("td")));
  const table = element("table", "rows", head, rows);
  open(known.directory);
  return element("div", "files", bar, table, note);
}
