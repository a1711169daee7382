// The other side of one connection, played by hand. A test then reads like a trace:
//
//   peer.send(write(stag, to, payload));
//   peer.send(empty_read(1));
//   peer.expect(read_response(0, 0, {}));
//   peer.expect_nothing();
#pragma once

#include <initializer_list>
#include <vector>

#include "iwarp/connection.h"
#include "support/fpdu.h"
#include "support/memory_host.h"
#include "support/options.h"

namespace weft::test {

class ScriptedPeer {
 public:
  // `options`: of the connection under test.
  explicit ScriptedPeer(const iwarp::Connection::Options& options);

  // The connection under test receives an FPDU, or bytes of any kind.
  void send(const Ulpdu& ulpdu);
  void send_raw(Bytes bytes);
  // It must have sent this, next.
  void expect(const Ulpdu& ulpdu);
  // The next FPDU, whatever it is.
  [[nodiscard]] Ulpdu next();
  void expect_nothing();
  // Wants the Terminate, and nothing after it, and the stream ended by it.
  void expect_terminate(const Ulpdu& ulpdu);

  void post(iwarp::WorkRequest request, std::initializer_list<iwarp::LocalSlice> slices = {});
  // Of the side under test, as a program does it while the connection runs.
  void post_receive(std::uint64_t wr_id, std::initializer_list<iwarp::LocalSlice> slices = {});
  [[nodiscard]] std::vector<iwarp::Status> statuses() const;
  [[nodiscard]] std::vector<std::uint64_t> received_ids() const;
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }

  // Of the side under test.
  MemoryHost host;
  iwarp::Connection connection;

 private:
  void collect();

  bool crc_;
  std::vector<Ulpdu> received_;  // not yet expected
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace weft::test
