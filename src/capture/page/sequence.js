// --- Sequence diagram of one exchange ------------------------------------------------------------

const step = 34;

// Returns the arrows of an operation, as seen on the wire, each with its frame and time.
function arrows_of(one) {
  const named = `${one.kind} ${bytes_text(one.bytes)}`;
  const key = one.key ? ` of 0x${one.key.toString(16)}` : "";
  const arrow = (from, frame, at, text, style) => ({ from, frame, at, text, style, of: one });
  if (one.request) {
    const asked = arrow(one.side, one.frame, one.start, `${named}${key}`, "request");
    if (!one.good) return [{ ...asked, text: `${asked.text}: ${one.outcome}` }];
    return [asked, arrow(1 - one.side, one.last_frame, one.end, `answer to ${named}`, "data")];
  }
  const out = [arrow(one.side, one.frame, one.start, `${named}${key}`, "data")];
  if (one.last_frame !== one.frame) {
    out.push(arrow(one.side, one.last_frame, one.end, `… last part of ${named}`, "data"));
  }
  if (one.confirmed >= 0) {
    out.push(arrow(1 - one.side, one.confirmed_frame, one.confirmed, "acknowledged", "ack"));
  }
  if (!one.good) out.at(-1).text += `: ${one.outcome}`;
  return out;
}

// Orders the arrows by frame; an acknowledgement of several operations becomes one arrow.
function events_of(operations) {
  const all = operations.flatMap(arrows_of)
    .sort((left, right) => left.frame - right.frame || left.at - right.at);
  const out = [];
  for (const event of all) {
    const before = out.find((one) => one.frame === event.frame && one.style === "ack"
      && event.style === "ack");
    if (before) before.text = `acknowledged: ${++before.count}`;
    else out.push({ ...event, count: 1 });
  }
  return out;
}

function arrow_head(x, y, direction, name) {
  const back = x - direction * 8;
  return drawn("polygon", { class: `fill ${name}`,
    points: `${x},${y} ${back},${y - 4} ${back},${y + 4}` });
}

function draw_event(svg, event, y, lines, time) {
  const [from, to] = event.from === 0 ? lines : [lines[1], lines[0]];
  const direction = to > from ? 1 : -1;
  const name = `kind-${event.of.good ? event.of.kind : "failed"}`;
  const end = y + 7;
  svg.append(drawn("line", { class: `stroke ${name}${event.style === "ack" ? " reply" : ""}`,
    x1: from, y1: y, x2: to - direction * 4, y2: end,
    "stroke-width": event.style === "data" ? 2.4 : 1.4 }));
  svg.append(arrow_head(to, end, direction, name));
  svg.append(drawn("text", { class: event.style === "ack" ? "" : "strong",
    x: (lines[0] + lines[1]) / 2, y: y - 2, "text-anchor": "middle" },
  event.text));
  svg.append(drawn("text", { x: lines[0] - 10, y: y + 4, "text-anchor": "end" },
    `+${time}`));
  svg.append(drawn("text", { x: lines[1] + 10, y: y + 4 }, `#${event.frame}`));
  svg.append(tip(drawn("rect", { class: "hit", x: lines[0], y: y - step / 2,
    width: lines[1] - lines[0], height: step }), described(event.of)));
}

// A pause between two frames is drawn if it is a large part of the exchange.
function draw_pause(svg, y, lines, ns) {
  const middle = (lines[0] + lines[1]) / 2;
  for (const x of lines) {
    svg.append(drawn("line", { class: "pause", x1: x, x2: x, y1: y - 10, y2: y + 12 }));
  }
  svg.append(drawn("text", { x: middle, y: y + 5, "text-anchor": "middle" },
    `⋮ ${duration_text(ns)}`));
}

function draw_sequence(parent, exchange, connection) {
  const operations = exchange.operations.map(operation_of);
  const events = events_of(operations);
  if (events.length === 0) {
    parent.append(element("p", { class: "quiet" }, "None of its operations is shown."));
    return;
  }
  const origin = events[0].at;
  const whole = events.at(-1).at - origin;
  const [size, unit] = whole >= 1e9 ? [1e9, "s"] : whole >= 1e6 ? [1e6, "ms"] : [1e3, "µs"];
  const time = (ns) => `${(ns / size).toFixed(size === 1e3 ? 1 : 3)} ${unit}`;
  const is_pause = (at) => at > 0 && whole > 0 && events[at].at - events[at - 1].at > whole * .2;
  const width = Math.max(300, parent.clientWidth);
  const narrow = width < 520;
  const lines = narrow ? [84, width - 58] : [110, width - 90];
  const top = 52;
  const pauses = events.filter((_, at) => is_pause(at)).length;
  const height = top + (events.length + pauses) * step + 10;
  const svg = drawn("svg", { class: "sequence", viewBox: `0 0 ${width} ${height}`, height,
    role: "img", "aria-label": "sequence diagram" });
  lines.forEach((x, side) => {
    const anchor = narrow ? (side === 0 ? "start" : "end") : "middle";
    svg.append(drawn("text", { class: "strong", x: narrow ? side * width : x,
      y: narrow ? 12 + side * 16 : 18, "text-anchor": anchor },
    end_text(connection, sides[side])));
    svg.append(drawn("line", { class: "lifeline", x1: x, x2: x, y1: 34, y2: height }));
  });
  let y = top;
  events.forEach((event, at) => {
    if (is_pause(at)) {
      draw_pause(svg, y, lines, event.at - events[at - 1].at);
      y += step;
    }
    draw_event(svg, event, y, lines, time(event.at - origin));
    y += step;
  });
  parent.append(svg);
}

// --- Choice of the exchange ----------------------------------------------------------------------

function show_exchange(view, exchange, connection) {
  view.replaceChildren(element("p", {}, element("strong", {}, exchange.title), " ",
    exchange.detail, " ",
    element("span", { class: exchange.good ? "quiet" : "bad" }, exchange.outcome)),
  element("p", { class: "quiet" }, `frame ${exchange.frame}, at ${moment_text(exchange.start)}`
    + (exchange.latency >= 0 ? `, done in ${duration_text(exchange.latency)}` : "")
    + (exchange.call ? "" : ", with its neighbours")));
  draw_sequence(view, exchange, connection);
}

function show_exchanges(number) {
  const section = place("exchanges");
  section.replaceChildren();
  const detail = details.get(number);
  if (!detail || detail.exchanges.length === 0) return;
  const connection = data.connections.find((one) => one.connection === number);
  const list = element("ul", { class: "exchange-list" });
  const view = element("div", { class: "sequence-view" });
  const entry = (exchange) => {
    const button = element("button", {
      onclick: () => {
        for (const other of list.querySelectorAll("button")) {
          other.setAttribute("aria-pressed", other === button);
        }
        show_exchange(view, exchange, connection);
      },
    },
    element("span", { class: "number" }, duration_text(exchange.latency)),
    element("span", { class: exchange.good ? "" : "bad" }, exchange.title),
    element("small", {},
      [`frame ${exchange.frame}`, exchange.detail].filter(Boolean).join(" · ")));
    return element("li", {}, button);
  };
  const orders = {
    "slowest first": (left, right) => right.latency - left.latency,
    "by time": (left, right) => left.frame - right.frame,
    "failed first": (left, right) => left.good - right.good || right.latency - left.latency,
  };
  const tabs = element("div", { class: "tabs" }, ...Object.keys(orders).map((name) =>
    element("button", { onclick: () => order(name) }, name)));
  const order = (name) => {
    for (const tab of tabs.children) tab.setAttribute("aria-pressed", tab.textContent === name);
    list.replaceChildren(...[...detail.exchanges].sort(orders[name]).map(entry));
    list.querySelector("button").click();
  };
  section.append(element("div", { class: "heading" }, element("h2", {}, "Exchanges"),
    element("span", { class: "quiet" }, detail.exchanges[0].call
      ? "a call or command and what was read and written for it: the first, the slowest, the failed"
      : "an operation and what happened around it: the first, the slowest, the failed")),
  tabs, element("div", { class: "exchange-view" }, list, view));
  order("slowest first");
}

