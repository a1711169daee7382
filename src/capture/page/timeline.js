// --- Operations over time ------------------------------------------------------------------------

const lane_rows = 5;
const row_height = 9;

// Assigns a row of its lane to each operation, so that simultaneous ones are below each other while
// there are rows left; the others share the last row.
function arrange(operations, least) {
  const free = [];
  return operations.map((one) => {
    let row = free.findIndex((from) => from <= one.start);
    if (row < 0) row = free.length < lane_rows ? free.length : lane_rows - 1;
    free[row] = Math.max(one.done, one.start + least);
    return row;
  });
}

function lanes_of(operations) {
  const lanes = new Map();
  for (const one of operations) {
    const name = `${one.side} ${one.kind}`;
    if (!lanes.has(name)) lanes.set(name, []);
    lanes.get(name).push(one);
  }
  return [...lanes].sort(([left], [right]) => {
    const order = ([side, kind]) => Number(side) * 10 + kinds.indexOf(kind);
    return order(left.split(" ")) - order(right.split(" "));
  });
}

function draw_lane(plot, x, top, name, operations, rows) {
  const [side, kind] = name.split(" ");
  plot.svg.append(drawn("text", { class: "strong", x: plot.x[0] - 8, y: top + 9,
    "text-anchor": "end" },
  `${side === "0" ? "→" : "←"} ${kind.replace("compare_swap", "swap").replace("fetch_", "")}`));
  operations.forEach((one, at) => {
    const from = Math.max(plot.x[0], x(one.start));
    const to = Math.min(plot.x[1], x(one.done));
    plot.svg.append(tip(drawn("rect", {
      class: `mark fill kind-${one.good ? one.kind : "failed"}`, x: from, rx: 1.5,
      y: top + rows[at] * row_height, width: Math.max(1.6, to - from), height: row_height - 2,
      opacity: .85 }), described(one)));
  });
}

function draw_timeline(parent, { operations, marks }, domain, zoom) {
  const shown = operations.filter((one) => one.done >= domain[0] && one.start <= domain[1])
    .sort((left, right) => left.start - right.start);
  const width = Math.max(280, parent.clientWidth);
  const x_range = [margin.left, width - margin.right];
  const least = ((domain[1] - domain[0]) / (x_range[1] - x_range[0])) * 2;
  const lanes = lanes_of(shown).map(([name, list]) => {
    const rows = arrange(list, least);
    return { name, list, rows, height: (Math.max(...rows) + 1) * row_height + 8 };
  });
  const height = lanes.reduce((sum, lane) => sum + lane.height, 0) + margin.top + margin.bottom;
  const plot = canvas(parent, Math.max(70, height), "operations over time");
  const x = linear(domain, plot.x);
  time_axis(plot, x, domain);
  let top = plot.y[1];
  for (const lane of lanes) {
    draw_lane(plot, x, top, lane.name, lane.list, lane.rows);
    top += lane.height;
  }
  draw_marks(plot, x, marks, domain);
  zoomable(plot, x, zoom);
}

// --- One connection ------------------------------------------------------------------------------

function kinds_table(connection) {
  const head = ["", "count", "bytes", "p50", "p90", "p99", "max", "not complete"];
  const rows = connection.operations.map((one) => {
    const time = (name) => (one.latency_ns ? duration_text(one.latency_ns[name]) : "");
    const cells = [count_text(one.count), bytes_text(one.bytes), time("p50"), time("p90"),
      time("p99"), time("max"), one.not_complete || ""];
    return element("tr", {},
      element("td", {}, element("span", { class: `side-${one.side}` },
        one.side === "a" ? "→ " : "← "), one.kind),
      ...cells.map((text, at) => element("td",
        { class: `number${at === 6 ? " bad" : ""}` }, String(text))));
  });
  return element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {},
      ...head.map((name, at) => element("th", { class: at > 0 ? "number" : "" }, name)))),
    element("tbody", {}, ...rows)));
}

function facts(connection) {
  const out = [`${connection.transport}, ${connection.end}`,
    `frames ${connection.first_frame}–${connection.last_frame}`];
  if (connection.mtu_bytes) out.push(`MTU ${connection.mtu_bytes}`);
  if (connection.transport === "iwarp") out.push(connection.crc ? "CRC" : "no CRC");
  if (connection.beginning === "traffic") out.push("recognised in mid-stream");
  if (connection.upper) {
    const { protocol, messages } = connection.upper;
    out.push(`${protocol}: `
      + Object.entries(messages).map(([name, count]) => `${count} ${name}`).join(", "));
  }
  const trouble = (name, text) => {
    const sum = connection.side_a[name] + connection.side_b[name];
    if (sum > 0) out.push(`${text(sum)}`);
  };
  trouble("repeated_bytes", (sum) => `${bytes_text(sum)} sent again`);
  trouble("receiver_not_ready", (sum) => plural(sum, "RNR NAK"));
  trouble("receiver_not_ready_ns", (sum) => `${duration_text(sum)} to wait`);
  trouble("lost_packets", (sum) => `${plural(sum, "packet")} not captured`);
  return out.join(" · ");
}

function legend(operations, marks) {
  const seen = [...new Set(operations.filter((one) => one.good).map((one) => one.kind))];
  if (operations.some((one) => !one.good)) seen.push("failed");
  return element("div", { class: "legend" }, ...seen.map((kind) => element("span", {},
    element("i", { class: `swatch kind-${kind}` }), kind === "failed" ? "not complete" : kind)),
  ...troubles.flatMap((name, kind) => (marks.some((mark) => mark[0] === kind)
    ? [element("span", {}, element("i", { class: `swatch trouble-${kind}` }), name)] : [])));
}

// Returns the time range that the link has, or the whole time of the connection.
function domain_of(full) {
  const [from, to] = ["from", "to"].map((name) => Number(view.get(name)));
  return view.has("from") && to > from ? [from, to] : full;
}

function show_connection(number) {
  const section = place("connection");
  const connection = data.connections.find((one) => one.connection === number);
  const detail = details.get(number);
  section.replaceChildren(element("div", { class: "heading" },
    element("h2", {}, `Connection ${number}`),
    element("span", {}, element("span", { class: "side-a" }, `a → ${end_text(connection, "a")}`),
      "  ⇄  ", element("span", { class: "side-b" }, `b ← ${end_text(connection, "b")}`)),
    element("span", { class: "quiet" }, facts(connection))), kinds_table(connection));
  if (!detail) {
    section.append(element("p", { class: "quiet" }, count_of(connection) === 0
      ? "It carried no messages." : "Nothing more of it is kept in this page."));
    return;
  }
  const operations = detail.operations.map(operation_of);
  const full = [connection.first_ns - trace.first_ns, connection.last_ns - trace.first_ns];
  if (full[1] <= full[0]) full[1] = full[0] + 1000;
  const sampled = operations.length < detail.count
    ? `${count_text(operations.length)} of ${count_text(detail.count)} operations, evenly chosen`
    : plural(operations.length, "operation");
  const plots = element("div", {});
  const back = element("button", { hidden: true, onclick: () => show(full) }, "whole time");
  section.append(element("div", { class: "heading" }, element("h3", {}, "Over time"),
    element("span", { class: "quiet" }, `${sampled} · drag to look closer`), back),
  legend(operations, detail.marks), plots);
  const { marks } = detail;
  const { throughput: series } = connection;
  const show = (domain) => {
    back.hidden = domain === full;
    keep_view(domain === full ? { from: null, to: null }
      : { from: Math.round(domain[0]), to: Math.round(domain[1]) });
    plots.replaceChildren();
    const titled = (title, draw, what) => {
      const box = element("div", {});
      plots.append(element("h3", {}, title), box);
      draw(box, what, domain, show);
    };
    titled("Operations", draw_timeline, { operations, marks });
    titled("Throughput of messages", draw_throughput, detail);
    if (series && (series.a_congestion || series.b_congestion)) {
      titled("Congestion", draw_congestion,
        { series, offset: series.from_ns - trace.first_ns });
    }
    titled("Latency", draw_latency, { operations, marks });
  };
  show(domain_of(full));
  const box = element("div", {});
  section.append(element("h3", {}, "Latencies of all operations, by share"), box);
  draw_distribution(box, detail);
}

