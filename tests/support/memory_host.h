// A Host made of plain vectors: regions with keys and rights, posted receives, recorded
// completions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "iwarp/host.h"

namespace weft::test {

struct Rights {
  bool local_write = true;
  bool remote_write = true;
  bool remote_read = true;
  bool remote_atomic = true;
};

// Registered memory. Its address in the protocol may differ from its real one, so that a capture
// can be replayed. Each region is an allocation of its own, so that a sanitizer detects writes
// beside it.
class Region {
 public:
  Region(std::size_t size, std::uint32_t key, std::uint64_t address, Rights rights, int domain);

  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] MutableBytes bytes() { return {data_.get(), size_}; }
  [[nodiscard]] std::vector<std::byte> copy(std::size_t offset, std::size_t length) const;
  [[nodiscard]] std::vector<std::byte> copy() const { return copy(0, size_); }
  void put(std::size_t offset, Bytes bytes);

  [[nodiscard]] std::uint32_t lkey() const { return key_; }
  [[nodiscard]] std::uint32_t rkey() const { return key_; }
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const { return address_ + offset; }
  [[nodiscard]] iwarp::LocalSlice slice(std::size_t offset, std::size_t length) const;
  [[nodiscard]] iwarp::LocalSlice slice() const { return slice(0, size_); }

  Rights rights;
  int domain;
  bool valid = true;

 private:
  friend class MemoryHost;
  [[nodiscard]] iwarp::Memory find(std::uint64_t address, std::uint64_t length);

  std::size_t size_;
  std::uint32_t key_;
  std::unique_ptr<std::byte[]> data_;
  std::uint64_t address_;
};

class MemoryHost final : public iwarp::Host {
 public:
  // Key 0: the next free one. Address 0: the real address. The reference stays valid.
  Region& add(std::size_t size, Rights rights = {}, std::uint32_t key = 0,
              std::uint64_t address = 0, int domain = 0);
  Region& add(Bytes content, Rights rights = {});

  void post_receive(std::uint64_t wr_id, std::initializer_list<iwarp::LocalSlice> slices) {
    posted_receives.push_back({.wr_id = wr_id, .slices = slices});
  }

  iwarp::Memory remote_memory(std::uint32_t stag, std::uint64_t offset, std::uint64_t length_bytes,
                              iwarp::RemoteRight right) override;
  iwarp::Memory local_memory(const iwarp::LocalSlice& slice, bool for_writing) override;
  bool next_receive(iwarp::ReceiveRequest& request) override;
  bool invalidate(std::uint32_t stag) override;
  void complete_send(const iwarp::SendCompletion& completion) override;
  void complete_receive(const iwarp::ReceiveCompletion& completion) override;
  void on_peer_ready() override { ++ready_calls; }
  void on_end(iwarp::EndReason reason) override;

  std::deque<Region> regions;
  std::deque<iwarp::ReceiveRequest> posted_receives;
  std::vector<iwarp::SendCompletion> sends;
  std::vector<iwarp::ReceiveCompletion> receives;
  std::vector<std::uint32_t> invalidated;
  int ready_calls = 0;
  int end_calls = 0;
  iwarp::EndReason end_reason = iwarp::EndReason::none;
  int domain = 0;  // of the queue pair

 private:
  [[nodiscard]] Region* find(std::uint32_t key);

  std::uint32_t next_key_ = 0x01000100;
};

}  // namespace weft::test
