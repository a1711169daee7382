// Finds the commands of storage protocols in the traffic of all connections, with their answers and
// the RDMA transfers of their data.
//
// Nothing on the wire names these protocols, so a connection is recognised only by messages that
// are correct in every field that can be checked. NVMe without its Connect command is recognised by
// several completions that match commands; earlier commands are not reported.
#pragma once

#include <cstddef>
#include <memory>

#include "weft/capture/connection.hpp"
#include "weft/capture/storage.hpp"
#include "weft/capture/traffic.hpp"
#include "weft/export.hpp"

namespace weft::capture {

struct StorageLimits {
  // Commands without an answer, of one connection and of all. Above a limit the oldest one of the
  // connection is reported as unanswered. Hosts have some hundred open at a time.
  std::size_t open_commands = 4096;
  std::size_t open_commands_in_all = 65'536;
  // Further keys of a command are not kept, so the transfers that they allow are not counted.
  std::size_t keys = 32;
  // Bytes of an SMB message in several Sends; of a larger one the rest is not decoded.
  std::size_t message_bytes = 64U << 10;
  // Bytes of all messages, and of Sends in several packets, that are not complete.
  std::size_t message_bytes_in_all = 64U << 20;
  // SMB: open files whose names are kept, of one connection and of all.
  std::size_t files = 4096;
  std::size_t files_in_all = 65'536;
};

class WEFT_API StorageTracker final : public TrafficSink {
 public:
  // `connections`, of the analysis that it is a sink of, and `sink` must outlive this.
  StorageTracker(const ConnectionTable& connections, StorageSink& sink,
                 const StorageLimits& limits = {});
  ~StorageTracker() override;

  void on_send(const Origin& origin, const SendPart& part) override;
  void on_write(const Origin& origin, const WritePart& part) override;
  void on_read_request(const Origin& origin, const ReadRequest& request) override;
  void on_read_part(const Origin& origin, const ReadPart& part) override;
  void on_gap(const Origin& origin, const Gap& gap) override;
  void on_close(ConnectionId connection) override;
  void on_forget(ConnectionId connection) override;
  // Ends the trace: reports commands without an answer.
  void finish();

  // Returns nullptr if no storage protocol was recognised on the connection.
  [[nodiscard]] const StorageTraffic* of(ConnectionId connection) const;

 private:
  class Work;
  std::unique_ptr<Work> work_;
};

}  // namespace weft::capture
