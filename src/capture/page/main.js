// --- The page ------------------------------------------------------------------------------------

let chosen_connection = null;

function choose(number, scroll) {
  if (!data.connections.some((one) => one.connection === number)) return;
  if (number !== chosen_connection && chosen_connection !== null) keep_view({ from: null, to: null });
  chosen_connection = number;
  keep_view({ connection: number });
  mark_chosen();
  show_connection(number);
  show_exchanges(number);
  if (scroll) place("connection").scrollIntoView({ behavior: "smooth" });
}

function show_left_out() {
  const parts = [];
  const without = trace.connections - data.connections.length;
  if (without > 0) parts.push(`${plural(without, "connection")} with fewer bytes or not selected`);
  const bare = data.connections
    .filter((one) => count_of(one) > 0 && !details.has(one.connection)).length;
  if (bare > 0) parts.push(`plots of ${plural(bare, "connection")}`);
  const shown = data.details.reduce((sum, one) => sum + one.operations.length, 0);
  const counted = data.connections.reduce((sum, one) => sum + count_of(one), 0);
  if (shown < counted) {
    parts.push(`${plural(counted - shown, "operation")} in timelines, where an even choice stands `
      + "for all");
  }
  if (trace.findings > data.findings.length) {
    parts.push(plural(trace.findings - data.findings.length, "finding"));
  }
  place("left-out").textContent = (parts.length === 0 ? "Everything that was selected is here."
    : `To keep this page small, it leaves out: ${parts.join("; ")}.`)
    + " Figures in tables, throughput and the distribution of latencies count everything.";
}

show_header();
show_capture();
show_findings();
show_procedures();
show_connections();
show_left_out();
const linked = Number(view.get("connection"));
if (data.connections.some((one) => one.connection === linked)) {
  choose(linked, false);
} else if (data.connections.length > 0) {
  const largest = data.connections.reduce((best, one) => {
    const ahead = details.has(one.connection) - details.has(best.connection)
      || bytes_of(one) - bytes_of(best);
    return ahead > 0 ? one : best;
  });
  choose(largest.connection, false);
}
// A link to another view of the page that is open already.
window.addEventListener("hashchange", () => location.reload());
let drawn_width = window.innerWidth;
window.addEventListener("resize", () => {
  if (window.innerWidth === drawn_width) return;
  drawn_width = window.innerWidth;
  if (chosen_connection !== null) choose(chosen_connection, false);
});
document.body.dataset.ready = "yes";
