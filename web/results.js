/* web/results.js: rich results of cells.
 *
 * An image is shown by <img>, in which an SVG runs no scripts and loads nothing. Of HTML only the
 * texts of its tables are taken, from a document that is never shown. Nothing else of a guest becomes
 * markup.
 */

const IMAGES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"];
const TABLE_CELLS = 20000;    // of one table

/* The server's console forbids to make markup of texts, but for this document. */
const unshown = { createHTML: (html) => html };
const table_markup = window.trustedTypes ? trustedTypes.createPolicy("droste-tables", unshown) : unshown;

function result_image(result) {
  const type = IMAGES.find((t) => typeof result[t] === "string");
  if (!type) return null;
  const img = element("img", "shown");
  try {
    const svg = type === "image/svg+xml";
    img.src = "data:" + type + (svg ? ";charset=utf-8," + encodeURIComponent(result[type]) : ";base64," + result[type]);
  } catch (_) {                 // half a character
    return null;
  }
  img.alt = one_line(typeof result["text/plain"] === "string" ? result["text/plain"] : type);
  return img;
}

function result_row(cells) {
  const row = element("tr");
  for (const cell of cells) {
    const own = element(cell.tagName === "TH" ? "th" : "td", "", cell.textContent.trim());
    own.colSpan = Math.min(cell.colSpan, 100);
    own.rowSpan = Math.min(cell.rowSpan, 1000);
    row.append(own);
  }
  return row;
}

function result_tables(html) {
  const found = new DOMParser().parseFromString(table_markup.createHTML(html), "text/html").querySelectorAll("table");
  if (found.length === 0) return null;
  const box = element("div", "shown");
  let left = TABLE_CELLS;
  for (const table of found) {
    if (table.parentElement.closest("table")) continue;
    const own = element("table", "data");
    for (const row of table.rows) {
      left -= row.cells.length;
      if (left >= 0) own.append(result_row(row.cells));
    }
    box.append(own);
  }
  if (left < 0) box.append(element("p", "note", "Further rows are left out."));
  return box;
}

function result_text(result) {
  const type = ["text/plain", "text/markdown", "text/latex", "application/json"].find((t) => typeof result[t] === "string")
    || Object.keys(result).find((t) => result[t] !== null && !IMAGES.includes(t) && t !== "text/html");
  return type === undefined ? null : element("pre", "out", as_text(result[type]));
}

function result_shown(result) {
  return result_image(result) || (typeof result["text/html"] === "string" && result_tables(result["text/html"])) || result_text(result);
}

function cell_results(card, cell) {
  for (const [i, result] of (cell.results || []).entries()) {
    const left_out = Object.keys(result).filter((t) => result[t] === null)
      .map((t) => t + " of " + bytes((cell.cut || {})["results." + i + "." + t] || 0));
    part(card, "result", element("div", "label", join("result " + (i + 1), ...Object.keys(result))),
      mark_drawn("text " + cell.id + " result" + i, element("div", "", result_shown(result))),
      left_out.length ? element("p", "note", "Not in this page: " + left_out.join(", ") +
        ". To get it: droste runs show " + cell.run + " --save-results DIR") : null);
  }
}
