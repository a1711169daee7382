// Formats counters in the text format of Prometheus, which its servers and the text file collector
// of node_exporter read.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/completion/status_names.h"
#include "device/datagram/datagrams.h"
#include "provider/statistics.h"

namespace weft::provider {
namespace {

using device::StatisticsRegistry;
using device::status_names;

constexpr double ns_per_s = 1e9;

using Label = std::pair<std::string_view, std::string_view>;

// Within the quotation marks of a label's value, three characters are escaped.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '\n') {
      result += "\\n";
      continue;
    }
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

// `{a="1",b="2"}`. `first` is a list of labels that is formatted already.
std::string label_list(std::string_view first, std::initializer_list<Label> labels) {
  std::string text(first);
  for (const auto& [name, value] : labels) {
    text += fmt::format(R"({}{}="{}")", text.empty() ? "" : ",", name, escaped(value));
  }
  return text.empty() ? text : "{" + text + "}";
}

// The text. All samples of a metric stand together, behind its HELP and TYPE.
class Metrics {
 public:
  void counter(std::string_view name, std::string_view help) { begin(name, "counter", help); }
  void gauge(std::string_view name, std::string_view help) { begin(name, "gauge", help); }
  template <typename Value>
  void sample(std::string_view first, std::initializer_list<Label> labels, Value value) {
    text_ += fmt::format("{}{} {}\n", name_, label_list(first, labels), value);
  }
  [[nodiscard]] std::string text() && { return std::move(text_); }

 private:
  void begin(std::string_view name, std::string_view type, std::string_view help) {
    name_ = fmt::format("weft_{}", name);
    text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name_, help, name_, type);
  }

  std::string text_;
  std::string name_;  // of the metric whose samples follow
};

// An object with the labels that name it.
template <typename Entry>
struct Named {
  const Entry* entry;
  std::string labels;
};

// Numbers may be used again after an object was destroyed. A label `life`, from 2, tells such
// objects apart, because no two samples may have the same labels.
template <typename Entry, typename Number>
std::vector<Named<Entry>> named(const std::vector<Entry>& entries, std::string_view label,
                                Number Entry::*number) {
  std::map<Number, int> lives;
  std::vector<Named<Entry>> result;
  for (const Entry& entry : entries) {
    std::string labels = fmt::format(R"({}="{}")", label, entry.*number);
    if (const int life = ++lives[entry.*number]; life > 1) {
      labels += fmt::format(R"(,life="{}")", life);
    }
    result.push_back({&entry, std::move(labels)});
  }
  return result;
}

using QueuePairs = std::vector<Named<StatisticsRegistry::QueuePairEntry>>;

struct NamedTraffic {
  std::string_view name;
  Traffic QueuePairCounters::*counted;
};

constexpr std::array kinds{NamedTraffic{"send", &QueuePairCounters::sends},
                           NamedTraffic{"write", &QueuePairCounters::writes},
                           NamedTraffic{"read", &QueuePairCounters::reads},
                           NamedTraffic{"atomic", &QueuePairCounters::atomics},
                           NamedTraffic{"local", &QueuePairCounters::local},
                           NamedTraffic{"receive", &QueuePairCounters::receives},
                           NamedTraffic{"received", &QueuePairCounters::received},
                           NamedTraffic{"peer_write", &QueuePairCounters::peer_writes},
                           NamedTraffic{"peer_read", &QueuePairCounters::peer_reads},
                           NamedTraffic{"peer_atomic", &QueuePairCounters::peer_atomics}};

void traffic(Metrics& metrics, const QueuePairs& pairs) {
  metrics.counter("queue_pair_operations_total",
                  "Work requests that were posted, messages that were received, and operations "
                  "of the peer.");
  for (const auto& [entry, labels] : pairs) {
    for (const auto& [name, counted] : kinds) {
      metrics.sample(labels, {{"operation", name}}, (entry->counters.*counted).operations);
    }
  }
  metrics.counter("queue_pair_bytes_total", "The bytes of these operations.");
  for (const auto& [entry, labels] : pairs) {
    for (const auto& [name, counted] : kinds) {
      metrics.sample(labels, {{"operation", name}}, (entry->counters.*counted).bytes);
    }
  }
}

void statuses(Metrics& metrics, std::string_view labels, std::initializer_list<Label> more,
              const StatusCounts& counts) {
  const std::string all = label_list(labels, more);
  // Without the braces, which sample() adds.
  const std::string_view inner = std::string_view(all).substr(1, all.size() - 2);
  for (std::size_t status = 0; status < counts.size(); ++status) {
    if (counts[status] != 0) {
      metrics.sample(inner, {{"status", status_names[status]}}, counts[status]);
    }
  }
}

void waits(Metrics& metrics, const QueuePairs& pairs) {
  metrics.counter("queue_pair_waits_total",
                  "How often messages waited for a receive request, or the send queue for space "
                  "at the peer.");
  for (const auto& [entry, labels] : pairs) {
    metrics.sample(labels, {{"cause", "receiver_not_ready"}}, entry->counters.rnr_waits);
    metrics.sample(labels, {{"cause", "credits"}}, entry->counters.credit_waits);
  }
  const auto seconds = [](std::uint64_t ns) { return static_cast<double>(ns) / ns_per_s; };
  metrics.counter("queue_pair_wait_seconds_total", "The sum of these times.");
  for (const auto& [entry, labels] : pairs) {
    const QueuePairCounters& c = entry->counters;
    metrics.sample(labels, {{"cause", "receiver_not_ready"}}, seconds(c.rnr_wait_ns));
    metrics.sample(labels, {{"cause", "credits"}}, seconds(c.credit_wait_ns));
  }
}

void queue_pairs(Metrics& metrics, const QueuePairs& pairs) {
  metrics.gauge("queue_pair_info", "The queue pairs, also destroyed ones; the value is 1.");
  for (const auto& [entry, labels] : pairs) {
    metrics.sample(labels,
                   {{"type", entry->type},
                    {"state", entry->state},
                    {"carrier", entry->carrier.name},
                    {"carrier_reason", entry->carrier.reason}},
                   1);
  }
  traffic(metrics, pairs);
  metrics.counter("queue_pair_completions_total",
                  "Work completions that were added to completion queues, by their status.");
  for (const auto& [entry, labels] : pairs) {
    statuses(metrics, labels, {{"queue", "send"}}, entry->counters.send_completions);
    statuses(metrics, labels, {{"queue", "receive"}}, entry->counters.receive_completions);
  }
  waits(metrics, pairs);
  metrics.counter("queue_pair_connection_retries_total",
                  "Repeated attempts to connect by GID and queue pair number.");
  for (const auto& [entry, labels] : pairs) {
    metrics.sample(labels, {}, entry->counters.connection_retries);
  }
  metrics.counter("queue_pair_discarded_answer_bytes_total",
                  "Bytes of peers that came where an empty response was due.");
  for (const auto& [entry, labels] : pairs) {
    metrics.sample(labels, {}, entry->counters.discarded_answer_bytes);
  }
  metrics.counter("queue_pair_unreceived_messages_total",
                  "Sends of peers that arrived and that no receive request took.");
  for (const auto& [entry, labels] : pairs) {
    metrics.sample(labels, {}, entry->counters.unreceived.operations);
  }
  metrics.counter("queue_pair_unreceived_bytes_total", "The bytes of these Sends.");
  for (const auto& [entry, labels] : pairs) {
    metrics.sample(labels, {}, entry->counters.unreceived.bytes);
  }
  metrics.counter("queue_pair_unpolled_receives_total",
                  "Received messages that were not polled before the queue pair was destroyed.");
  for (const auto& [entry, labels] : pairs) {
    metrics.sample(labels, {}, entry->counters.unpolled_receives);
  }
}

void completion_queues(Metrics& metrics,
                       const std::vector<StatisticsRegistry::CompletionQueueEntry>& entries) {
  using Entry = StatisticsRegistry::CompletionQueueEntry;
  const auto queues = named(entries, "cq", &Entry::number);
  metrics.gauge("completion_queue_entries", "The size of the completion queue.");
  for (const auto& [entry, labels] : queues) metrics.sample(labels, {}, entry->entries);
  metrics.counter("completion_queue_completions_total",
                  "Work completions that were added to the completion queue, by their status.");
  for (const auto& [entry, labels] : queues) {
    statuses(metrics, labels, {}, entry->counters.completions);
  }
  metrics.counter("completion_queue_polled_total", "Work completions that were polled.");
  for (const auto& [entry, labels] : queues) metrics.sample(labels, {}, entry->counters.polled);
  metrics.counter("completion_queue_events_total", "Events for the completion channel.");
  for (const auto& [entry, labels] : queues) metrics.sample(labels, {}, entry->counters.events);
  metrics.counter("completion_queue_lost_total",
                  "Work completions that were lost because the queue was full.");
  for (const auto& [entry, labels] : queues) metrics.sample(labels, {}, entry->counters.lost);
}

void memory_regions(Metrics& metrics,
                    const std::vector<StatisticsRegistry::MemoryRegionEntry>& entries) {
  using Entry = StatisticsRegistry::MemoryRegionEntry;
  const auto regions = named(entries, "lkey", &Entry::lkey);
  metrics.gauge("memory_region_bytes", "The size of the memory region.");
  for (const auto& [entry, labels] : regions) metrics.sample(labels, {}, entry->bytes);
  constexpr std::array by_peers{std::pair{"peer_write", &MemoryRegionCounters::peer_writes},
                                std::pair{"peer_read", &MemoryRegionCounters::peer_reads},
                                std::pair{"peer_atomic", &MemoryRegionCounters::peer_atomics}};
  metrics.counter("memory_region_operations_total", "Operations of peers on the memory region.");
  for (const auto& [entry, labels] : regions) {
    for (const auto& [name, counted] : by_peers) {
      metrics.sample(labels, {{"operation", name}}, (entry->counters.*counted).operations);
    }
  }
  metrics.counter("memory_region_operation_bytes_total", "The bytes of these operations.");
  for (const auto& [entry, labels] : regions) {
    for (const auto& [name, counted] : by_peers) {
      metrics.sample(labels, {{"operation", name}}, (entry->counters.*counted).bytes);
    }
  }
}

void refusals(Metrics& metrics, const device::Refusals& counted) {
  metrics.counter("refusals_total", "Connections that were not let in, or were ended.");
  const std::initializer_list<std::pair<std::string_view, std::uint64_t>> causes{
      {"timed_out", counted.timed_out},
      {"malformed", counted.malformed},
      {"closed", counted.closed},
      {"evicted", counted.evicted},
      {"out_of_descriptors", counted.out_of_descriptors},
      {"reset", counted.reset},
      {"not_ready", counted.not_ready},
      {"refused", counted.refused},
      {"strangers", counted.strangers},
      {"wrong_psn", counted.wrong_psn},
      {"other_user", counted.other_user},
      {"answered_early", counted.answered_early},
      {"queries_malformed", counted.queries_malformed},
      {"queries_ignored", counted.queries_ignored},
      {"no_first_fpdu", counted.no_first_fpdu},
      {"silent", counted.silent},
      {"terminated_access", counted.terminated_access},
      {"terminated_no_buffer", counted.terminated_no_buffer},
      {"terminated_other", counted.terminated_other},
      {"local_other_user", counted.local_other_user},
      {"local_dropped", counted.local_dropped},
      {"local_refused", counted.local_refused},
      {"local_violations", counted.local_violations},
      {"top_refused", counted.top_refused}};
  for (const auto& [cause, count] : causes) metrics.sample({}, {{"cause", cause}}, count);
}

void datagrams(Metrics& metrics, const device::DatagramCounters& counted) {
  metrics.counter("datagram_problems_total",
                  "Datagrams that were dropped, and those whose ICRC was wrong.");
  const std::initializer_list<std::pair<std::string_view, std::uint64_t>> causes{
      {"malformed", counted.malformed},
      {"no_queue_pair", counted.no_queue_pair},
      {"wrong_queue_key", counted.wrong_queue_key},
      {"no_receive", counted.no_receive},
      {"wrong_icrc", counted.wrong_icrc}};
  for (const auto& [cause, count] : causes) metrics.sample({}, {{"cause", cause}}, count);
}

void faults(Metrics& metrics, const device::DeviceFaults* faults) {
  if (!faults) return;
  metrics.gauge("fault_seed_info", "The seed of the rules of WEFT_FAULT; the value is 1.");
  metrics.sample({}, {{"seed", std::to_string(faults->plan().seed())}}, 1);
  const auto counts = faults->plan().counts();
  // The same rule may be given twice, so its position is a label as well.
  metrics.counter("fault_occurrences_total", "How often the conditions of a rule were looked at.");
  for (std::size_t i = 0; i < counts.size(); ++i) {
    metrics.sample({}, {{"rule", std::to_string(i + 1)}, {"text", counts[i].rule}},
                   counts[i].occurrences);
  }
  metrics.counter("faults_total", "How often a rule applied.");
  for (std::size_t i = 0; i < counts.size(); ++i) {
    metrics.sample({}, {{"rule", std::to_string(i + 1)}, {"text", counts[i].rule}},
                   counts[i].faults);
  }
}

void adapter(Metrics& metrics, const device::Device& device) {
  if (!device.settings().adapter.restricted()) return;
  metrics.gauge("adapter_limit", "The limit that WEFT_ADAPTER sets, or the device's own.");
  for (const faults::CapabilityName& name : faults::capability_names()) {
    metrics.sample({}, {{"name", name.name}}, device.adapter().most(name.capability));
  }
  metrics.gauge("adapter_objects", "The objects of this limit that exist.");
  for (const faults::CapabilityName& name : faults::capability_names()) {
    metrics.sample({}, {{"name", name.name}}, device.adapter().objects(name.capability));
  }
  metrics.counter("adapter_refused_total", "The objects that this limit has refused.");
  for (const faults::CapabilityName& name : faults::capability_names()) {
    metrics.sample({}, {{"name", name.name}}, device.adapter().refused(name.capability));
  }
}

void link(Metrics& metrics, device::DeviceLink* link) {
  if (!link) return;
  const device::LinkCounters& counters = link->counters();
  metrics.gauge("link_info", "The seed of the slower network of WEFT_LINK; the value is 1.");
  metrics.sample({}, {{"seed", std::to_string(link->seed())}}, 1);
  metrics.counter("link_delayed_bytes_total", "Bytes that the link has delayed.");
  metrics.sample({}, {}, counters.delayed_bytes.load());
  metrics.counter("link_stalls_total", "Stalls that stand for losses of TCP.");
  metrics.sample({}, {}, counters.stalls.load());
  metrics.counter("link_lost_datagrams_total", "Datagrams that the link has lost.");
  metrics.sample({}, {}, counters.lost_datagrams.load());
}

}  // namespace

std::string to_prometheus(device::Device& device, const char* occasion) {
  using QueuePairEntry = StatisticsRegistry::QueuePairEntry;
  const StatisticsRegistry::Snapshot snapshot = device.statistics_registry().snapshot();
  Metrics metrics;
  metrics.gauge("device_info", "The process, and when this was written; the value is 1.");
  metrics.sample({}, {{"pid", std::to_string(getpid())}, {"occasion", occasion}}, 1);
  metrics.counter("not_listed_total", "Destroyed objects that are left out below.");
  metrics.sample({}, {}, snapshot.not_listed);
  refusals(metrics, device.refusals());
  datagrams(metrics, device.datagrams().counters());
  adapter(metrics, device);
  link(metrics, device.link());
  faults(metrics, device.faults());
  queue_pairs(metrics, named(snapshot.queue_pairs, "qp", &QueuePairEntry::number));
  completion_queues(metrics, snapshot.completion_queues);
  memory_regions(metrics, snapshot.memory_regions);
  return std::move(metrics).text();
}

}  // namespace weft::provider
