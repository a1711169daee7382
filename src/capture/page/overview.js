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

// What the filter of connections looks at.
function words_of(connection) {
  return `${connection.connection} ${connection.transport} ${connection.end} `
    .concat(end_text(connection, "a"), " ", end_text(connection, "b"));
}

function p99_of(connection) {
  return Math.max(-1, ...connection.operations.map((kind) => kind.latency_ns?.p99 ?? -1));
}

function repeats_of(connection) {
  return connection.side_a.repeats + connection.side_b.repeats;
}

const connection_columns = (findings) => [
  { name: "#", number: true, value: (one) => one.connection, cell: (one) => one.connection },
  { name: "transport", value: (one) => one.transport, cell: (one) => one.transport },
  { name: "between", value: (one) => end_text(one, "a"), cell: (one) => element("span", {},
    element("span", { class: "side-a" }, end_text(one, "a")), " ⇄ ",
    element("span", { class: "side-b" }, end_text(one, "b"))) },
  { name: "end", value: (one) => one.end, cell: (one) => one.end },
  { name: "operations", number: true, value: count_of, cell: (one) => count_text(count_of(one)) },
  { name: "bytes", number: true, value: bytes_of, cell: (one) => bytes_text(bytes_of(one)) },
  { name: "slowest p99", number: true, value: p99_of,
    cell: (one) => (p99_of(one) < 0 ? "" : duration_text(p99_of(one))) },
  { name: "sent again", number: true, value: repeats_of, cell: (one) => repeats_of(one) || "" },
  { name: "findings", number: true, value: (one) => findings.get(one.connection) || 0,
    cell: (one) => element("span", { class: "bad" }, findings.get(one.connection) || "") },
  { name: "bytes over time", value: bytes_of, cell: spark },
];

// Sums the connections of each two hosts: with hundreds of connections this is the overview.
function host_pairs(findings) {
  const pairs = new Map();
  for (const one of data.connections) {
    const hosts = [one.a.address, one.b.address].sort();
    const name = hosts.join(" ⇄ ");
    if (!pairs.has(name)) {
      pairs.set(name, { name, hosts, connections: 0, operations: 0, bytes: 0, repeats: 0,
        findings: 0 });
    }
    const pair = pairs.get(name);
    ++pair.connections;
    pair.operations += count_of(one);
    pair.bytes += bytes_of(one);
    pair.repeats += repeats_of(one);
    pair.findings += findings.get(one.connection) || 0;
  }
  return [...pairs.values()];
}

function show_host_pairs(section, pairs, pick) {
  const numbers = (name, key, text) => ({ name, number: true, value: (pair) => pair[key],
    cell: (pair) => text(pair[key]) });
  sortable_table(section, { name: "hosts", few: 12, items: pairs, begin: [3, true],
    attributes: ({ hosts }) => ({ class: "pair", tabindex: 0, onclick: () => pick(hosts),
      onkeydown: (event) => { if (event.key === "Enter") pick(hosts); } }),
    columns: [
      { name: "hosts", value: ({ name }) => name, cell: ({ name }) => name },
      numbers("connections", "connections", count_text),
      numbers("operations", "operations", count_text),
      numbers("bytes", "bytes", bytes_text),
      numbers("sent again", "repeats", (count) => count || ""),
      numbers("findings", "findings", (count) => count || "")] });
}

function show_connections() {
  const section = place("connections");
  const findings = new Map();
  for (const { connection } of data.findings) {
    findings.set(connection, (findings.get(connection) || 0) + 1);
  }
  const few = 12;
  const many = data.connections.length > few;
  const input = element("input", { type: "search", placeholder: "filter",
    "aria-label": "filter connections", value: view.get("filter") || "",
    oninput: () => filter(input.value) });
  section.append(element("div", { class: "heading" }, element("h2", {}, "Connections"),
    element("span", { class: "quiet" }, "choose one to see its operations; a heading sorts"),
    many ? input : null));
  const pairs = host_pairs(findings);
  if (many && pairs.length > 1) {
    show_host_pairs(section, pairs, (hosts) => {
      input.value = hosts.join(" ");
      filter(input.value);
    });
  }
  const show = sortable_table(section, { name: "connections", few, items: [...data.connections],
    columns: connection_columns(findings), begin: many ? [5, true] : [0, false],
    attributes: ({ connection: number }) => ({ class: "choice", tabindex: 0,
      "data-connection": number, onclick: () => choose(number, true),
      onkeydown: (event) => { if (event.key === "Enter") choose(number, true); } }) });
  // Each of the words must occur.
  const filter = (text) => {
    keep_view({ filter: text });
    const words = text.split(" ").filter(Boolean);
    show((one) => words.every((word) => words_of(one).includes(word)));
  };
  if (many && input.value) filter(input.value);
}

// --- Where the time went -------------------------------------------------------------------------

function show_procedures() {
  const procedures = data.procedures || [];
  if (procedures.length === 0) return;
  const section = place("procedures");
  section.append(element("div", { class: "heading" }, element("h2", {}, "Where the time went"),
    element("span", { class: "quiet" }, "of calls and commands; a heading sorts")));
  const time = (name) => ({ name, number: true, value: (one) => one[name],
    cell: (one) => duration_text(one[name]) });
  // Of the time that the caller waited: before the call, and for the answer.
  const all = (one) =>
    Math.max(1, one.server + one.transfer + one.waits + one.repeats + one.held);
  const share = (name, key) => ({ name, number: true, value: (one) => one[key] / all(one),
    cell: (one) => (one[key] ? `${Math.round((one[key] * 100) / all(one))} %` : "") });
  sortable_table(section, { name: "procedures", few: 16, items: [...procedures], begin: [7, true],
    attributes: () => ({}),
    columns: [
      { name: "procedure", value: (one) => one.name, cell: (one) => one.name },
      { name: "count", number: true, value: (one) => one.count,
        cell: (one) => count_text(one.count) },
      { name: "failed", number: true, value: (one) => one.failed,
        cell: (one) => element("span", { class: "bad" }, one.failed || "") },
      time("p50"), time("p90"), time("p99"), time("max"), time("total"),
      share("server", "server"), share("data", "transfer"), share("not ready", "waits"),
      share("repeats", "repeats"), share("held back", "held"), time("client")] });
}

function mark_chosen() {
  for (const row of document.querySelectorAll("tr.choice")) {
    row.classList.toggle("chosen", Number(row.dataset.connection) === chosen_connection);
  }
}

