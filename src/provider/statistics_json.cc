// Formats counters as JSON. Completion statuses with a count of zero are left out.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <string_view>

#include "device/addresses.h"
#include "device/completion/status_names.h"
#include "device/datagram/datagrams.h"
#include "device/gid_table.h"
#include "device/system.h"
#include "provider/statistics.h"

namespace weft::provider {
namespace {

using device::StatisticsRegistry;
using device::status_names;

std::string traffic(std::string_view name, const Traffic& counted) {
  return fmt::format(R"("{}": {{"operations": {}, "bytes": {}}})", name, counted.operations,
                     counted.bytes);
}

std::string statuses(std::string_view name, const StatusCounts& counts) {
  std::string text = fmt::format(R"("{}": {{)", name);
  std::string_view comma;
  for (std::size_t status = 0; status < counts.size(); ++status) {
    if (counts[status] == 0) continue;
    text += fmt::format(R"({}"{}": {})", comma, status_names[status], counts[status]);
    comma = ", ";
  }
  return text + "}";
}

std::string object(const StatisticsRegistry::QueuePairEntry& entry) {
  const QueuePairCounters& c = entry.counters;
  return fmt::format(
      R"({{"number": {}, "type": "{}", "state": "{}", "carrier": "{}", "carrier_reason": "{}", )"
      R"({}, {}, {}, {}, {}, {}, {}, {}, {}, {}, )"
      R"({}, {}, "connection_retries": {}, "rnr_waits": {}, "rnr_wait_ns": {}, )"
      R"("credit_waits": {}, "credit_wait_ns": {}, "discarded_answer_bytes": {}, )"
      R"({}, "unpolled_receives": {}}})",
      entry.number, entry.type, entry.state, entry.carrier.name, entry.carrier.reason,
      traffic("sends", c.sends), traffic("writes", c.writes), traffic("reads", c.reads),
      traffic("atomics", c.atomics), traffic("local", c.local), traffic("receives", c.receives),
      traffic("received", c.received), traffic("peer_writes", c.peer_writes),
      traffic("peer_reads", c.peer_reads), traffic("peer_atomics", c.peer_atomics),
      statuses("send_completions", c.send_completions),
      statuses("receive_completions", c.receive_completions), c.connection_retries, c.rnr_waits,
      c.rnr_wait_ns, c.credit_waits, c.credit_wait_ns, c.discarded_answer_bytes,
      traffic("unreceived", c.unreceived), c.unpolled_receives);
}

std::string object(const StatisticsRegistry::CompletionQueueEntry& entry) {
  const CompletionQueueCounters& c = entry.counters;
  return fmt::format(
      R"({{"number": {}, "entries": {}, "destroyed": {}, {}, "polled": {}, "events": {}, )"
      R"("lost": {}}})",
      entry.number, entry.entries, entry.destroyed, statuses("completions", c.completions),
      c.polled, c.events, c.lost);
}

std::string object(const StatisticsRegistry::MemoryRegionEntry& entry) {
  const MemoryRegionCounters& c = entry.counters;
  return fmt::format(R"({{"lkey": {}, "bytes": {}, "shared": {}, "destroyed": {}, {}, {}, {}}})",
                     entry.lkey, entry.bytes, entry.shared, entry.destroyed,
                     traffic("peer_writes", c.peer_writes), traffic("peer_reads", c.peer_reads),
                     traffic("peer_atomics", c.peer_atomics));
}

// The text as a JSON string. It has no line ends and no other control characters.
std::string quoted(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c == '\t' ? ' ' : c;
  }
  return result + '"';
}

std::string object(const faults::Plan::Count& count) {
  return fmt::format(R"({{"rule": {}, "occurrences": {}, "faults": {}}})", quoted(count.rule),
                     count.occurrences, count.faults);
}

// The buckets of latencies that are not empty: {"write": [[BUCKET, COUNT], ...]}.
std::string latencies(const device::LiveQueuePair& live) {
  constexpr std::array<std::string_view, device::latency_kinds> names{"send", "write", "read",
                                                                      "atomic"};
  std::string text = "{";
  std::string_view comma;
  for (std::size_t kind = 0; kind < names.size(); ++kind) {
    if (live.latencies[kind].empty()) continue;
    text += fmt::format(R"({}"{}": [)", comma, names[kind]);
    std::string_view between;
    for (const auto& [bucket, count] : live.latencies[kind]) {
      text += fmt::format("{}[{}, {}]", between, bucket, count);
      between = ", ";
    }
    text += ']';
    comma = ", ";
  }
  return text + "}";
}

std::string address_text(const ibv_gid& gid) {
  if (gid.global.interface_id == 0 && gid.global.subnet_prefix == 0) return {};
  std::string text = device::to_string(device::address_of(gid));
  text.erase(text.rfind(':'));  // the port
  return text;
}

std::string object(const StatisticsRegistry::Live::Pair& pair) {
  const device::LiveQueuePair& live = pair.live;
  std::string text = object(pair.entry);
  text.pop_back();
  return text +
         fmt::format(R"(, "peer": "{}", "send_depth": {}, "send_size": {}, "receive_depth": {}, )"
                     R"("receive_size": {}, "shared_receives": {}, "awaits_connection": {}, )"
                     R"("awaits_room": {}, "awaits_credits": {}, "awaits_receive": {}, )"
                     R"("room_wait_ns": {}, "latencies": {}}})",
                     address_text(live.peer), live.send_depth, live.send_size, live.receive_depth,
                     live.receive_size, live.shared_receives, live.awaits_connection,
                     live.waits.room, live.waits.credits, live.waits.receive, live.room_wait_ns,
                     latencies(live));
}

std::string object(const StatisticsRegistry::Live::Queue& queue) {
  std::string text = object(queue.entry);
  text.pop_back();
  return text + fmt::format(R"(, "depth": {}}})", queue.depth);
}

template <typename Entry>
std::string list(std::string_view name, const std::vector<Entry>& entries) {
  std::string text = fmt::format("  \"{}\": [", name);
  std::string_view separator = "\n    ";
  for (const Entry& entry : entries) {
    text += separator;
    text += object(entry);
    separator = ",\n    ";
  }
  return text + "]";
}

// The connections that were not let in, or were ended.
std::string object(const device::Refusals& refusals) {
  return fmt::format(
      R"({{"timed_out": {}, "malformed": {}, "closed": {}, "evicted": {}, )"
      R"("out_of_descriptors": {}, "reset": {}, "not_ready": {}, "refused": {}, )"
      R"("strangers": {}, "wrong_psn": {}, "other_user": {}, )"
      R"("answered_early": {}, "queries_malformed": {}, "queries_ignored": {}, )"
      R"("no_first_fpdu": {}, "silent": {}, )"
      R"("terminated_access": {}, "terminated_no_buffer": {}, )"
      R"("terminated_other": {}, "local_other_user": {}, "local_dropped": {}, )"
      R"("local_refused": {}, "local_violations": {}, "top_refused": {}}})",
      refusals.timed_out.load(), refusals.malformed.load(), refusals.closed.load(),
      refusals.evicted.load(), refusals.out_of_descriptors.load(), refusals.reset.load(),
      refusals.not_ready.load(), refusals.refused.load(), refusals.strangers.load(),
      refusals.wrong_psn.load(), refusals.other_user.load(), refusals.answered_early.load(),
      refusals.queries_malformed.load(), refusals.queries_ignored.load(),
      refusals.no_first_fpdu.load(), refusals.silent.load(), refusals.terminated_access.load(),
      refusals.terminated_no_buffer.load(), refusals.terminated_other.load(),
      refusals.local_other_user.load(), refusals.local_dropped.load(),
      refusals.local_refused.load(), refusals.local_violations.load(), refusals.top_refused.load());
}

// Datagrams that were dropped, and those whose ICRC was wrong.
std::string object(const device::DatagramCounters& datagrams) {
  return fmt::format(R"({{"malformed": {}, "no_queue_pair": {}, "wrong_queue_key": {}, )"
                     R"("no_receive": {}, "wrong_icrc": {}}})",
                     datagrams.malformed.load(), datagrams.no_queue_pair.load(),
                     datagrams.wrong_queue_key.load(), datagrams.no_receive.load(),
                     datagrams.wrong_icrc.load());
}

// The rules of faults and how often they applied; nothing where there are none.
std::string fault_list(const device::DeviceFaults* faults) {
  if (!faults) return {};
  return fmt::format("  \"fault_seed\": {},\n{},\n", faults->plan().seed(),
                     list("faults", faults->plan().counts()));
}

// The limits of a smaller adapter (WEFT_ADAPTER); nothing where all is granted.
std::string adapter_object(const device::Device& device) {
  if (!device.settings().adapter.restricted()) return {};
  const device::Adapter& adapter = device.adapter();
  std::string text = "  \"adapter\": {";
  std::string_view separator = "\n    ";
  for (const faults::CapabilityName& name : faults::capability_names()) {
    text += fmt::format(R"({}"{}": {{"limit": {}, "objects": {}, "refused": {}}})", separator,
                        name.name, adapter.most(name.capability), adapter.objects(name.capability),
                        adapter.refused(name.capability));
    separator = ",\n    ";
  }
  return text + "},\n";
}

// The slower network (WEFT_LINK); nothing where there is none.
std::string link_object(device::DeviceLink* link) {
  if (!link) return {};
  const faults::Link& asked = link->link();
  const device::LinkCounters& counters = link->counters();
  return fmt::format(
      "  \"link\": {{\"latency_ns\": {}, \"jitter_ns\": {}, \"bits_per_second\": {}, "
      "\"loss\": {}, \"seed\": {}, \"delayed_bytes\": {}, \"stalls\": {}, "
      "\"lost_datagrams\": {}}},\n",
      asked.latency_ns, asked.jitter_ns, asked.bits_per_second, asked.loss, link->seed(),
      counters.delayed_bytes.load(), counters.stalls.load(), counters.lost_datagrams.load());
}

// The sums of the queue pairs that are destroyed, in the form of one queue pair.
std::string destroyed_object(const StatisticsRegistry::Live& live) {
  std::string text = object(StatisticsRegistry::QueuePairEntry{
      .type = {}, .state = "destroyed", .carrier = {}, .counters = live.destroyed_counters});
  text.pop_back();
  return text + fmt::format(R"(, "room_wait_ns": {}}})", live.destroyed_room_wait_ns);
}

}  // namespace

std::string to_live_json(device::Device& device) {
  const StatisticsRegistry::Live live = device.statistics_registry().live();
  std::string address = device::to_string(device.addresses().front().address);
  address.erase(address.rfind(':'));
  return fmt::format(
      "{{\n  \"version\": 1,\n  \"pid\": {},\n  \"device\": \"{}\",\n  \"address\": \"{}\",\n"
      "  \"time_ns\": {},\n  \"destroyed\": {},\n  \"skipped\": {},\n"
      "  \"destroyed_queue_pairs\": {},\n{},\n{}\n}}\n",
      getpid(), device.verbs()->name, address, device::sys::now_ns(), live.destroyed, live.skipped,
      destroyed_object(live), list("queue_pairs", live.queue_pairs),
      list("completion_queues", live.completion_queues));
}

std::string to_json(device::Device& device, const char* occasion) {
  const StatisticsRegistry::Snapshot snapshot = device.statistics_registry().snapshot();
  return fmt::format(
      "{{\n  \"version\": 1,\n  \"pid\": {},\n  \"occasion\": \"{}\",\n"
      "  \"not_listed\": {},\n  \"refusals\": {},\n  \"datagrams\": {},\n{}{}{}{},\n{},\n{}\n}}\n",
      getpid(), occasion, snapshot.not_listed, object(device.refusals()),
      object(device.datagrams().counters()), adapter_object(device), link_object(device.link()),
      fault_list(device.faults()), list("queue_pairs", snapshot.queue_pairs),
      list("completion_queues", snapshot.completion_queues),
      list("memory_regions", snapshot.memory_regions));
}

}  // namespace weft::provider
