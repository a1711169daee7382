#include "provider/port_counters.h"

#include <infiniband/verbs.h>

#include "device/datagram/datagrams.h"
#include "device/device.h"
#include "device/statistics_registry.h"

namespace weft::provider {
namespace {

QueuePairCounters sums_of(device::Device& device) {
  const auto live = device.statistics_registry().live();
  QueuePairCounters sums = live.destroyed_counters;
  for (const auto& pair : live.queue_pairs) device::add_to(sums, pair.entry.counters);
  return sums;
}

// Requests and answers that left. A Read and an atomic are a request here and an answer there.
Traffic sent_by(const QueuePairCounters& sums) {
  return {.operations = sums.sends.operations + sums.writes.operations + sums.reads.operations +
                        sums.atomics.operations + sums.peer_reads.operations +
                        sums.peer_atomics.operations,
          .bytes = sums.sends.bytes + sums.writes.bytes + sums.peer_reads.bytes};
}

// Those that came.
Traffic received_by(const QueuePairCounters& sums) {
  return {.operations = sums.received.operations + sums.peer_writes.operations +
                        sums.reads.operations + sums.atomics.operations +
                        sums.peer_reads.operations + sums.peer_atomics.operations,
          .bytes = sums.received.bytes + sums.peer_writes.bytes + sums.reads.bytes};
}

std::uint64_t errors_in(const StatusCounts& counts) {
  std::uint64_t errors = 0;
  for (std::size_t status = IBV_WC_SUCCESS + 1; status < counts.size(); ++status) {
    errors += counts[status];
  }
  return errors;
}

std::vector<PortCounter> counters_of(const QueuePairCounters& sums, std::uint64_t dropped_datagrams,
                                     std::uint64_t out_of_buffer, std::uint64_t refused_accesses) {
  constexpr std::uint64_t unit_bytes = 4;
  const Traffic sent = sent_by(sums);
  const Traffic received = received_by(sums);
  const StatusCounts& sends = sums.send_completions;
  const StatusCounts& receives = sums.receive_completions;
  return {
      {"counters/port_xmit_data", sent.bytes / unit_bytes},
      {"counters/port_xmit_packets", sent.operations},
      {"counters/unicast_xmit_packets", sent.operations},
      {"counters/port_rcv_data", received.bytes / unit_bytes},
      {"counters/port_rcv_packets", received.operations},
      {"counters/unicast_rcv_packets", received.operations},
      {"counters/port_rcv_errors", dropped_datagrams},
      {"counters/port_xmit_discards"},
      {"counters/port_xmit_wait"},
      {"counters/port_xmit_constraint_errors"},
      {"counters/port_rcv_constraint_errors"},
      {"counters/port_rcv_remote_physical_errors"},
      {"counters/port_rcv_switch_relay_errors"},
      {"counters/symbol_error"},
      {"counters/link_downed"},
      {"counters/link_error_recovery"},
      {"counters/local_link_integrity_errors"},
      {"counters/excessive_buffer_overrun_errors"},
      {"counters/VL15_dropped"},
      {"hw_counters/rx_write_requests", sums.peer_writes.operations},
      {"hw_counters/rx_read_requests", sums.peer_reads.operations},
      {"hw_counters/rx_atomic_requests", sums.peer_atomics.operations},
      {"hw_counters/out_of_buffer", sums.rnr_waits + out_of_buffer},
      {"hw_counters/resp_remote_access_errors", refused_accesses},
      {"hw_counters/resp_cqe_error", errors_in(receives)},
      {"hw_counters/resp_cqe_flush_error", receives[IBV_WC_WR_FLUSH_ERR]},
      {"hw_counters/req_cqe_error", errors_in(sends)},
      {"hw_counters/req_cqe_flush_error", sends[IBV_WC_WR_FLUSH_ERR]},
      {"hw_counters/req_remote_access_errors", sends[IBV_WC_REM_ACCESS_ERR]},
      {"hw_counters/req_remote_invalid_request", sends[IBV_WC_REM_INV_REQ_ERR]},
      {"hw_counters/rnr_nak_retry_err", sends[IBV_WC_RNR_RETRY_EXC_ERR]},
      {"hw_counters/local_ack_timeout_err", sends[IBV_WC_RETRY_EXC_ERR]},
  };
}

}  // namespace

std::vector<PortCounter> port_counters(device::Device& device) {
  const auto& datagrams = device.datagrams().counters();
  const std::uint64_t dropped =
      datagrams.malformed + datagrams.no_queue_pair + datagrams.wrong_queue_key;
  return counters_of(sums_of(device), dropped, datagrams.no_receive,
                     device.refusals().terminated_access);
}

std::vector<std::string_view> port_counter_paths() {
  std::vector<std::string_view> paths;
  for (const PortCounter& counter : counters_of({}, 0, 0, 0)) paths.push_back(counter.path);
  return paths;
}

}  // namespace weft::provider
