// --- Plots of one connection ---------------------------------------------------------------------

const margin = { left: 64, right: 12, top: 8, bottom: 22 };

// Creates an empty plot with the given height in pixels, as wide as its container.
function canvas(parent, height, label) {
  const width = Math.max(280, parent.clientWidth);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img",
    "aria-label": label });
  parent.append(svg);
  return { svg, width, height,
    x: [margin.left, width - margin.right], y: [height - margin.bottom, margin.top] };
}

function time_axis(plot, x, domain) {
  const values = ticks(domain[0], domain[1], Math.max(3, Math.floor(plot.width / 120)));
  const text = time_format(values);
  for (const value of values) {
    plot.svg.append(drawn("line", { class: "grid", x1: x(value), x2: x(value), y1: plot.y[1],
      y2: plot.y[0] }));
    plot.svg.append(drawn("text", { x: x(value), y: plot.y[0] + 15, "text-anchor": "middle" },
      text(value)));
  }
}

function value_axis(plot, y, values, text) {
  for (const value of values) {
    plot.svg.append(drawn("line", { class: "grid", x1: plot.x[0], x2: plot.x[1], y1: y(value),
      y2: y(value) }));
    plot.svg.append(drawn("text", { x: plot.x[0] - 8, y: y(value) + 4, "text-anchor": "end" },
      text(value)));
  }
}

// Dragging over a plot selects a time range in all plots.
function zoomable(plot, x, zoom) {
  const { svg } = plot;
  svg.classList.add("zoomable");
  let from = null;
  const brush = drawn("rect", { class: "brush", y: plot.y[1], height: plot.y[0] - plot.y[1] });
  const at = (event) => {
    const box = svg.getBoundingClientRect();
    const position = (event.clientX - box.left) * (plot.width / box.width);
    return Math.min(plot.x[1], Math.max(plot.x[0], position));
  };
  svg.addEventListener("pointerdown", (event) => {
    from = at(event);
    svg.append(brush);
    brush.setAttribute("width", 0);
  });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const to = at(event);
    brush.setAttribute("x", Math.min(from, to));
    brush.setAttribute("width", Math.abs(to - from));
  });
  const end = (event) => {
    if (from === null) return;
    const to = at(event);
    brush.remove();
    const range = [x.invert(Math.min(from, to)), x.invert(Math.max(from, to))];
    if (Math.abs(to - from) > 4) zoom(range);
    from = null;
  };
  svg.addEventListener("pointerup", end);
  svg.addEventListener("pointerleave", end);
}

// Marks what went wrong: a line through the plot, and a triangle that shows what it was.
function draw_marks(plot, x, marks, domain) {
  for (const [kind, side, at, frame] of marks) {
    if (at < domain[0] || at > domain[1]) continue;
    const [left, top] = [x(at), plot.y[1]];
    const name = `trouble-${kind}`;
    plot.svg.append(drawn("line", { class: `stroke trouble ${name}`, x1: left, x2: left, y1: top,
      y2: plot.y[0] }));
    plot.svg.append(tip(drawn("polygon", { class: `fill trouble-head ${name}`,
      points: `${left - 4},${top - 7} ${left + 4},${top - 7} ${left},${top}` }),
    `${troubles[kind]}, ${sides[side]}\nframe ${frame}, at ${moment_text(at)}`));
  }
}

// Plots what told each side to slow down, interval by interval: packets with a congestion mark, and
// congestion notifications. Those of `a` are drawn upwards, those of `b` downwards.
function draw_congestion(parent, { series, offset }, domain, zoom) {
  const plot = canvas(parent, 110, "congestion over time");
  const x = linear(domain, plot.x);
  const begin = (at) => offset + at * series.interval_ns;
  const counts = sides.map((side) => series[`${side}_congestion`] || []);
  const most = counts.map((all) => Math.max(0, ...all));
  const y = linear([-(most[1] || most[0] * .05), most[0] || most[1] * .05], plot.y);
  time_axis(plot, x, domain);
  value_axis(plot, y, ticks(-most[1], most[0], 3).filter(Number.isInteger),
    (value) => count_text(Math.abs(value)));
  counts.forEach((all, side) => all.forEach((count, at) => {
    if (count === 0 || begin(at + 1) <= domain[0] || begin(at) >= domain[1]) return;
    const from = Math.max(plot.x[0], x(begin(at)));
    const to = Math.min(plot.x[1], x(begin(at + 1)));
    const edge = y(side === 0 ? count : -count);
    plot.svg.append(tip(drawn("rect", { class: "congestion", x: from, y: Math.min(edge, y(0)),
      width: Math.max(.8, to - from - .3), height: Math.max(.8, Math.abs(edge - y(0))) }),
    `${sides[side]}: ${plural(count, "packet")} with congestion, or notifications of it\n`
      + `from ${moment_text(begin(at))} for ${duration_text(series.interval_ns)}`));
  }));
  plot.svg.append(drawn("line", { class: "axis", x1: plot.x[0], x2: plot.x[1], y1: y(0),
    y2: y(0) }));
  zoomable(plot, x, zoom);
}

// Plots message bytes over time: those that `a` sends upwards, those that `b` sends downwards.
function draw_throughput(parent, detail, domain, zoom) {
  const plot = canvas(parent, 150, "throughput over time");
  const x = linear(domain, plot.x);
  const seconds = detail.bucket_ns / 1e9;
  const rates = sides.map((side) => detail[side].map((bytes) => bytes / seconds));
  const begin = (at) => detail.from + at * detail.bucket_ns;
  const shown = (at) => begin(at + 1) > domain[0] && begin(at) < domain[1];
  const most = rates.map((rate) => Math.max(0, ...rate.filter((_, at) => shown(at))));
  const y = linear([-(most[1] || most[0] * .05), most[0] || most[1] * .05], plot.y);
  time_axis(plot, x, domain);
  value_axis(plot, y, ticks(...[-most[1], most[0]], 4), (value) => rate_text(Math.abs(value)));
  rates.forEach((rate, side) => rate.forEach((value, at) => {
    if (value === 0 || !shown(at)) return;
    const from = Math.max(plot.x[0], x(begin(at)));
    const to = Math.min(plot.x[1], x(begin(at + 1)));
    const edge = y(side === 0 ? value : -value);
    plot.svg.append(tip(drawn("rect", { class: `area-${sides[side]}`, x: from,
      y: Math.min(edge, y(0)), width: Math.max(.8, to - from - .3),
      height: Math.max(.8, Math.abs(edge - y(0))) }),
    `${rate_text(value)}\nfrom ${moment_text(begin(at))} `
      + `for ${duration_text(detail.bucket_ns)}`));
  }));
  plot.svg.append(drawn("line", { class: "axis", x1: plot.x[0], x2: plot.x[1], y1: y(0),
    y2: y(0) }));
  draw_marks(plot, x, detail.marks, domain);
  zoomable(plot, x, zoom);
}

function powers(low, high) {
  const out = [];
  for (let at = Math.floor(Math.log10(low)); at <= Math.ceil(Math.log10(high)); ++at) out.push(at);
  return out;
}

// Plots the latency of each operation at its start, on a logarithmic scale.
function draw_latency(parent, { operations, marks }, domain, zoom) {
  const dots = operations.filter((one) => (one.request ? one.good : one.confirmed >= 0)
    && one.start >= domain[0] && one.start <= domain[1]);
  const plot = canvas(parent, 190, "latency of operations over time");
  const x = linear(domain, plot.x);
  time_axis(plot, x, domain);
  if (dots.length === 0) {
    plot.svg.append(drawn("text", { x: (plot.x[0] + plot.x[1]) / 2, y: 90,
      "text-anchor": "middle" }, "no latency is known: nothing was confirmed"));
    return;
  }
  const latencies = dots.map((one) => Math.max(100, one.done - one.start));
  const levels = powers(Math.min(...latencies), Math.max(...latencies));
  if (levels.length === 1) levels.push(levels[0] + 1);
  const y = linear([levels[0], levels.at(-1)], plot.y);
  value_axis(plot, y, levels, (level) => duration_text(10 ** level));
  dots.forEach((one, at) => {
    plot.svg.append(tip(drawn("circle", { class: `mark fill kind-${one.kind}`, r: 2.6,
      opacity: .75, cx: x(one.start), cy: y(Math.log10(latencies[at])) }), described(one)));
  });
  draw_marks(plot, x, marks, domain);
  zoomable(plot, x, zoom);
}

// Plots which percentage of the operations of a kind took at most which time.
function draw_distribution(parent, detail) {
  const plot = canvas(parent, 230, "distribution of latencies");
  const all = detail.latencies;
  if (all.length === 0) {
    parent.replaceChildren(element("p", { class: "quiet" }, "No latency is known."));
    return;
  }
  const value = (ns) => Math.log10(Math.max(100, ns));
  const levels = powers(Math.min(...all.map((one) => Math.max(100, one.ns[0]))),
    Math.max(...all.map((one) => Math.max(101, one.ns.at(-1)))));
  const x = linear([levels[0], levels.at(-1)], plot.x);
  const y = linear([0, 100], plot.y);
  value_axis(plot, y, [0, 25, 50, 75, 90, 100], (percent) => `${percent} %`);
  const every = Math.ceil(levels.length / Math.max(2, plot.width / 75));
  levels.forEach((level, at) => {
    plot.svg.append(drawn("line", { class: "grid", x1: x(level), x2: x(level), y1: plot.y[0],
      y2: plot.y[1] }));
    if (at % every !== 0) return;
    plot.svg.append(drawn("text", { x: x(level), y: plot.y[0] + 15, "text-anchor": "middle" },
      duration_text(10 ** level)));
  });
  for (const one of all) {
    const points = one.ns.map((ns, at) => `${x(value(ns)).toFixed(1)},${y(data.percents[at])}`);
    plot.svg.append(tip(drawn("polyline", { class: `stroke kind-${kinds[one.kind]}`,
      points: points.join(" "), "stroke-width": 2.2,
      "stroke-dasharray": one.side === 0 ? "none" : "6 3" }),
    `${kinds[one.kind]} of ${sides[one.side]}, ${plural(one.count, "time")}\n`
      + [50, 90, 99, 99.9].map((percent) =>
        `p${percent} ${duration_text(one.ns[data.percents.indexOf(percent)])}`).join("\n")));
  }
}

