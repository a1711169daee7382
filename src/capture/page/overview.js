// --- Title and totals ----------------------------------------------------------------------------

function show_header() {
  document.title = `${trace.name} – weft dissect`;
  place("name").textContent = trace.name.split("/").pop();
  place("when").textContent = trace.frames > 0 ? `from ${date_text(trace.first_ns)}` : "no packets";
  const cards = [
    ["duration", duration_text(trace.last_ns - trace.first_ns)],
    ["frames", count_text(trace.frames)],
    ["on the wire", bytes_text(trace.wire_bytes)],
    ["connections", count_text(trace.connections)],
    ["operations", count_text(trace.operations)],
  ];
  if (trace.rpcs.calls > 0) cards.push(["RPCs", count_text(trace.rpcs.calls)]);
  cards.push(["findings", count_text(trace.findings), trace.findings > 0 ? "bad" : ""]);
  for (const [name, value, colour] of cards) {
    place("cards").append(element("div", {}, element("dt", {}, name),
      element("dd", { class: colour || "" }, value)));
  }
}

// What the capture lacks comes first: everything below depends on it.
function show_capture() {
  const { sentences, tunnels } = data.capture[0];
  const lines = [...sentences];
  if (tunnels.length > 0) {
    const names = tunnels.map(({ name, frames }) => `${count_text(frames)} of ${name}`);
    lines.push(`Frames in tunnels: ${names.join(", ")}.`);
  }
  if (lines.length === 0) return;
  place("capture").append(element("h2", {}, "The capture"),
    element("ul", {}, ...lines.map((line) => element("li", {}, line))));
}

// --- Findings ------------------------------------------------------------------------------------

function frames_text({ frames, times }) {
  const shown = frames.slice(0, 12).join(", ");
  const [first, last] = [times[0], times[times.length - 1]];
  const when = `at ${moment_text(first)}${last > first ? ` to ${moment_text(last)}` : ""}`;
  const noun = frames.length === 1 ? "frame" : "frames";
  return `${when}, ${noun} ${shown}${frames.length > 12 ? ", …" : ""}`;
}

function finding_row(finding) {
  return element("div", { class: "finding" },
    element("span", { class: `chip ${finding.severity === "note" ? "" : "bad"}` }, finding.kind),
    element("div", {},
      element("p", {}, finding.sentence),
      element("p", { class: "quiet frames" },
        element("button", { class: "link", onclick: () => choose(finding.connection, true) },
          `connection ${finding.connection}`),
        finding.frames.length > 0 ? `, ${frames_text(finding)}` : "")));
}

function show_findings() {
  const section = place("findings");
  const few = 6;
  const list = element("div", {});
  const kinds_seen = new Map();
  for (const { kind } of data.findings) kinds_seen.set(kind, (kinds_seen.get(kind) || 0) + 1);
  let wanted = null;
  let all = false;
  const show = () => {
    const chosen = data.findings.filter(({ kind }) => wanted === null || kind === wanted);
    list.replaceChildren(...chosen.slice(0, all ? chosen.length : few).map(finding_row));
    if (chosen.length > few && !all) {
      list.append(element("button", { onclick: () => { all = true; show(); } },
        `show all ${chosen.length}`));
    }
  };
  section.append(element("div", { class: "heading" }, element("h2", {}, "Findings"),
    element("span", { class: "quiet" }, data.findings.length === 0
      ? "none: nothing is wrong with this traffic, as far as it can be seen" : "")));
  if (kinds_seen.size > 1) {
    const filter = (kind, text) => element("button", {
      "aria-pressed": kind === wanted,
      onclick: (event) => {
        wanted = kind;
        for (const button of event.target.parentNode.children) {
          button.setAttribute("aria-pressed", button === event.target);
        }
        show();
      },
    }, text);
    section.append(element("div", { class: "tabs" }, filter(null, `all ${data.findings.length}`),
      ...[...kinds_seen].map(([kind, count]) => filter(kind, `${kind} ${count}`))));
  }
  section.append(list);
  show();
}

// --- Connections ---------------------------------------------------------------------------------

// Draws the traffic of a connection on the time axis of the whole trace.
function spark(connection) {
  const [width, height] = [180, 22];
  const svg = drawn("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`,
    "aria-hidden": "true" });
  const x = linear([trace.first_ns, trace.last_ns], [0, width]);
  const [from, to] = [x(connection.first_ns), x(connection.last_ns)];
  svg.append(drawn("rect", { x: from, y: height - 2, width: Math.max(1.5, to - from), height: 2,
    class: "area-a", opacity: .35 }));
  const detail = details.get(connection.connection);
  if (!detail) return svg;
  const sums = new Array(90).fill(0);
  const scale = linear([0, trace.last_ns - trace.first_ns], [0, sums.length]);
  for (const side of sides) {
    detail[side].forEach((bytes, bucket) => {
      const at = Math.floor(scale(detail.from + (bucket + .5) * detail.bucket_ns));
      sums[Math.min(sums.length - 1, at)] += bytes;
    });
  }
  const y = linear([0, Math.max(...sums)], [0, height - 3]);
  sums.forEach((sum, at) => {
    if (sum === 0) return;
    const tall = Math.max(1, y(sum));
    svg.append(drawn("rect", { x: at * 2, y: height - 2 - tall, width: 1.6, height: tall,
      class: "area-a" }));
  });
  return svg;
}

function percentile_of(connection, name) {
  const all = connection.operations.filter((kind) => kind.latency_ns);
  if (all.length === 0) return "";
  return duration_text(Math.max(...all.map((kind) => kind.latency_ns[name])));
}

function connection_row(connection, findings) {
  const { connection: number } = connection;
  const pick = () => choose(number, true);
  return element("tr", {
    class: "choice", tabindex: 0, "data-connection": number, onclick: pick,
    onkeydown: (event) => { if (event.key === "Enter") pick(); },
  },
  element("td", { class: "number" }, String(number)),
  element("td", {}, connection.transport),
  element("td", {}, element("span", { class: "side-a" }, end_text(connection, "a")), " ⇄ ",
    element("span", { class: "side-b" }, end_text(connection, "b"))),
  element("td", {}, connection.end),
  element("td", { class: "number" }, count_text(count_of(connection))),
  element("td", { class: "number" }, bytes_text(bytes_of(connection))),
  element("td", { class: "number" }, percentile_of(connection, "p99")),
  element("td", { class: "number bad" }, findings > 0 ? String(findings) : ""),
  element("td", {}, spark(connection)));
}

function show_connections() {
  const section = place("connections");
  const findings = new Map();
  for (const { connection } of data.findings) {
    findings.set(connection, (findings.get(connection) || 0) + 1);
  }
  const body = element("tbody", {});
  const few = 12;
  const show = (all, words) => {
    const chosen = data.connections.filter((connection) => !words
      || `${connection.connection} ${connection.transport} ${connection.end} `
        .concat(end_text(connection, "a"), " ", end_text(connection, "b")).includes(words));
    body.replaceChildren(...chosen.slice(0, all ? chosen.length : few)
      .map((one) => connection_row(one, findings.get(one.connection) || 0)));
    if (chosen.length > few && !all) {
      body.append(element("tr", {}, element("td", { colspan: 9 },
        element("button", { onclick: () => show(true, words) }, `show all ${chosen.length}`))));
    }
    mark_chosen();
  };
  section.append(element("div", { class: "heading" }, element("h2", {}, "Connections"),
    element("span", { class: "quiet" }, "choose one to see its operations"),
    data.connections.length > few ? element("input", { type: "search", placeholder: "filter",
      "aria-label": "filter connections",
      oninput: (event) => show(false, event.target.value) }) : null));
  const head = ["#", "", "between", "end", "operations", "bytes", "slowest p99", "findings",
    "bytes over time"];
  section.append(element("div", { class: "scroll" }, element("table", {},
    element("thead", {}, element("tr", {}, ...head.map((name, at) => element("th",
      { class: [0, 4, 5, 6, 7].includes(at) ? "number" : "" }, name)))), body)));
  show(false, "");
}

function mark_chosen() {
  for (const row of document.querySelectorAll("tr.choice")) {
    row.classList.toggle("chosen", Number(row.dataset.connection) === chosen_connection);
  }
}

