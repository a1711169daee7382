// The common parts of the page: the data, elements, quantities, scales and the tooltip. All scripts
// of this directory become one function, so their names are visible only to each other.

const data = JSON.parse(document.getElementById("data").textContent);
const trace = data.trace[0];
const kinds = ["send", "write", "read", "fetch_add", "compare_swap", "atomic", "immediate"];
const outcomes = ["complete", "incomplete", "unanswered", "refused"];
const sides = ["a", "b"];
const troubles = ["sent again", "RNR NAK", "sequence error", "refused", "not captured"];
const details = new Map(data.details.map((detail) => [detail.connection, detail]));

// Converts a row of `operations` to an object.
function operation_of(row) {
  const [kind, side, outcome, bytes, start, end, confirmed, frame, last_frame, confirmed_frame,
    key] = row;
  return {
    kind: kinds[kind], side, outcome: outcomes[outcome], bytes, start, end, confirmed, frame,
    last_frame, confirmed_frame, key,
    done: confirmed >= 0 ? confirmed : end,
    good: outcome === 0,
    request: kind >= 2 && kind <= 5,
  };
}

// --- Elements ------------------------------------------------------------------------------------

// Text is always added as text, never as markup, because it may come from the wire.
function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) node.setAttribute(name, value);
  }
  for (const child of children) {
    if (child !== null && child !== undefined) node.append(child);
  }
  return node;
}

function element(name, attributes, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function drawn(name, attributes, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function place(id) {
  return document.getElementById(id);
}

// --- The view, which the address carries ----------------------------------------------------------

// The part of the address after "#" has the chosen connection, the time range, and the order and
// filter of tables, so that a link shows the same view.
const view = new URLSearchParams(location.hash.slice(1));

function keep_view(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === "") view.delete(name);
    else view.set(name, String(value));
  }
  history.replaceState(null, "", `#${view}`);
}

// --- Tables ----------------------------------------------------------------------------------------

// Adds a table that is sorted by a click on a heading; a second click reverses the order. Each column
// has a name, and functions from an item to the value that it is sorted by and to what its cell
// shows. `name` distinguishes the table in the address. Returns a function that shows those items
// that a predicate selects.
function sortable_table(parent, { name, columns, items, attributes, few, begin }) {
  let [column, descending] = begin || [0, false];
  const from_link = columns.findIndex((one) => one.name === view.get(`${name}-by`));
  if (from_link >= 0) {
    column = from_link;
    descending = view.get(`${name}-order`) === "descending";
  }
  let all = false;
  let selected = () => true;
  const body = element("tbody", {});
  const heads = columns.map((one, at) => element("th", { class: one.number ? "number" : "" },
    element("button", { class: "link", onclick: () => sort_by(at) }, one.name)));
  const compare = (left, right) => {
    const [one, two] = [left, right].map(columns[column].value);
    const order = typeof one === "string" ? one.localeCompare(two) : one - two;
    return descending ? -order : order;
  };
  const show = () => {
    heads.forEach((head, at) => head.setAttribute("aria-sort",
      at !== column ? "none" : descending ? "descending" : "ascending"));
    const chosen = items.filter(selected).sort(compare);
    body.replaceChildren(...chosen.slice(0, all ? chosen.length : few).map((item) =>
      element("tr", attributes(item), ...columns.map((one) =>
        element("td", { class: one.number ? "number" : "" }, one.cell(item))))));
    if (chosen.length > few && !all) {
      body.append(element("tr", {}, element("td", { colspan: columns.length },
        element("button", { onclick: () => { all = true; show(); } },
          `show all ${chosen.length}`))));
    }
    mark_chosen();
  };
  // Numbers are most interesting from the largest on.
  const sort_by = (at) => {
    descending = at === column ? !descending : Boolean(columns[at].number);
    column = at;
    keep_view({ [`${name}-by`]: columns[at].name,
      [`${name}-order`]: descending ? "descending" : null });
    show();
  };
  parent.append(element("div", { class: "scroll" }, element("table", { "data-table": name },
    element("thead", {}, element("tr", {}, ...heads)), body)));
  show();
  return (predicate) => {
    selected = predicate;
    all = false;
    show();
  };
}

// --- Quantities ----------------------------------------------------------------------------------

function scaled(value, units) {
  let unit = 0;
  while (value >= 999.5 && unit + 1 < units.length) {
    value /= 1000;
    ++unit;
  }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

const bytes_text = (bytes) => scaled(bytes, ["B", "kB", "MB", "GB", "TB", "PB"]);
const rate_text = (rate) => scaled(rate, ["B/s", "kB/s", "MB/s", "GB/s", "TB/s"]);
const duration_text = (ns) => (ns < 0 ? "–" : scaled(ns, ["ns", "µs", "ms", "s"]));
const count_text = (count) => count.toLocaleString("en").replaceAll(",", "\u202f");
const moment_text = (ns) => `${(ns / 1e9).toFixed(6)} s`;
const plural = (count, noun) => `${count_text(count)} ${noun}${count === 1 ? "" : "s"}`;

function date_text(ns) {
  return new Date(ns / 1e6).toISOString().replace("T", " ").replace("Z", " UTC");
}

function end_text(connection, side) {
  const end = connection[side];
  if (end.port !== undefined) {
    const address = end.address.includes(":") ? `[${end.address}]` : end.address;
    return `${address}:${end.port}`;
  }
  return end.qp === undefined ? end.address : `${end.address} QP 0x${end.qp.toString(16)}`;
}

function bytes_of(connection) {
  return connection.operations.reduce((sum, kind) => sum + kind.bytes, 0);
}

function count_of(connection) {
  return connection.operations.reduce((sum, kind) => sum + kind.count, 0);
}

function described(operation) {
  const lines = [
    `${operation.kind} of ${bytes_text(operation.bytes)}, ${operation.outcome}`,
    `from ${moment_text(operation.start)}, ${duration_text(operation.done - operation.start)}`,
    `frames ${operation.frame}–${operation.confirmed_frame || operation.last_frame}`,
  ];
  if (operation.key) lines.push(`key 0x${operation.key.toString(16)}`);
  return lines.join("\n");
}

// --- Scales --------------------------------------------------------------------------------------

function linear([low, high], [from, to]) {
  const scale = (value) => from + ((value - low) / (high - low || 1)) * (to - from);
  scale.invert = (at) => low + ((at - from) / (to - from)) * (high - low);
  return scale;
}

// Returns about `wanted` round numbers in [low, high].
function ticks(low, high, wanted) {
  const rough = (high - low) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
  const out = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) out.push(at);
  return out;
}

// Formats the times on an axis: all in one unit, with enough digits to distinguish them.
function time_format(values) {
  const step = values.length > 1 ? values[1] - values[0] : 1e9;
  const largest = Math.max(...values.map(Math.abs), 1);
  const [size, unit] = largest >= 1e9 ? [1e9, "s"] : largest >= 1e6 ? [1e6, "ms"]
    : largest >= 1e3 ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.min(9, Math.max(0, -Math.floor(Math.log10(step / size) + 1e-9)));
  return (value) => `${(value / size).toFixed(digits)} ${unit}`;
}

// --- Tooltip -------------------------------------------------------------------------------------

function tip(node, text) {
  const box = place("tip");
  const follow = (event) => {
    box.textContent = typeof text === "function" ? text(event) : text;
    box.hidden = !box.textContent;
    const right = event.clientX + 14 + box.offsetWidth > window.innerWidth;
    box.style.left = `${right ? event.clientX - 14 - box.offsetWidth : event.clientX + 14}px`;
    const below = event.clientY + 14 + box.offsetHeight > window.innerHeight;
    box.style.top = `${below ? event.clientY - 10 - box.offsetHeight : event.clientY + 14}px`;
  };
  node.addEventListener("pointermove", follow);
  node.addEventListener("pointerleave", () => { box.hidden = true; });
  return node;
}

