// The peer of a connection under test, scripted FPDU by FPDU. A test then reads like a trace:
//
//   peer.send(write(stag, to, payload));
//   peer.send(empty_read(1));
//   peer.expect(empty_response());
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
  // `options` are those of the connection under test.
  explicit ScriptedPeer(const iwarp::Connection::Options& options);

  // Delivers an FPDU, or any bytes, to the connection under test.
  void send(const Ulpdu& ulpdu);
  void send_raw(Bytes bytes);
  // Expects this as the next FPDU.
  void expect(const Ulpdu& ulpdu);
  // Returns the next FPDU, whatever it contains.
  [[nodiscard]] Ulpdu next();
  void expect_nothing();
  // Expects the Terminate, nothing after it, and the end of the stream.
  void expect_terminate(const Ulpdu& ulpdu);

  void post(iwarp::WorkRequest request, std::initializer_list<iwarp::LocalSlice> slices = {});
  // Posts on the side under test while the connection runs, as a program does.
  void post_receive(std::uint64_t wr_id, std::initializer_list<iwarp::LocalSlice> slices = {});
  [[nodiscard]] std::vector<iwarp::Status> statuses() const;
  [[nodiscard]] std::vector<std::uint64_t> received_ids() const;
  [[nodiscard]] std::uint64_t sent_bytes() const { return sent_bytes_; }

  // The host of the side under test.
  MemoryHost host;
  iwarp::Connection connection;
  // The time at which send() and post_receive() happen.
  std::uint64_t now_ns = 0;

 private:
  void collect();

  bool crc_;
  std::vector<Ulpdu> received_;  // not yet expected
  std::uint64_t sent_bytes_ = 0;
};

}  // namespace weft::test
