#include "support/memory_host.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace weft::test {

using iwarp::Fault;
using iwarp::Memory;
using iwarp::RemoteRight;

Region::Region(std::size_t size, std::uint32_t key, std::uint64_t address, Rights granted,
               int owner)
    : rights(granted),
      domain(owner),
      size_(size),
      key_(key),
      data_(std::make_unique<std::byte[]>(size)),
      address_(address != 0 ? address : reinterpret_cast<std::uint64_t>(data_.get())) {}

std::vector<std::byte> Region::copy(std::size_t offset, std::size_t length) const {
  EXPECT_LE(offset + length, size_);
  return {data_.get() + offset, data_.get() + offset + length};
}

void Region::put(std::size_t offset, Bytes bytes) {
  ASSERT_LE(offset + bytes.size(), size_);
  std::ranges::copy(bytes, data_.get() + offset);
}

iwarp::LocalSlice Region::slice(std::size_t offset, std::size_t length) const {
  return {
      .address = address(offset), .length_bytes = static_cast<std::uint32_t>(length), .lkey = key_};
}

Memory Region::find(std::uint64_t address, std::uint64_t length) {
  if (address + length < address) return {nullptr, Fault::wrap};
  if (address < address_ || address + length > address_ + size_) return {nullptr, Fault::bounds};
  return {data_.get() + (address - address_), Fault::none};
}

Region& MemoryHost::add(std::size_t size, Rights rights, std::uint32_t key, std::uint64_t address,
                        int owner) {
  if (key == 0) key = next_key_ += 0x100;
  return regions.emplace_back(size, key, address, rights, owner);
}

Region& MemoryHost::add(Bytes content, Rights rights) {
  Region& region = add(content.size(), rights);
  region.put(0, content);
  return region;
}

Region* MemoryHost::find(std::uint32_t key) {
  const auto found = std::ranges::find(regions, key, &Region::rkey);
  return found != regions.end() && found->valid ? &*found : nullptr;
}

Memory MemoryHost::remote_memory(std::uint32_t stag, std::uint64_t offset,
                                 std::uint64_t length_bytes, RemoteRight right) {
  // An empty access names no memory, so the connection must not ask for any.
  EXPECT_GT(length_bytes, 0U);
  EXPECT_EQ(end_reason, iwarp::EndReason::none) << "memory asked for after the end";
  Region* region = find(stag);
  if (!region) return {nullptr, Fault::invalid_stag};
  if (region->domain != domain) return {nullptr, Fault::foreign_domain};
  const bool granted = right == RemoteRight::write  ? region->rights.remote_write
                       : right == RemoteRight::read ? region->rights.remote_read
                                                    : region->rights.remote_atomic;
  if (!granted) return {nullptr, Fault::access};
  return region->find(offset, length_bytes);
}

Memory MemoryHost::local_memory(const iwarp::LocalSlice& slice, bool for_writing) {
  Region* region = find(slice.lkey);
  if (!region) return {nullptr, Fault::invalid_stag};
  if (region->domain != domain) return {nullptr, Fault::foreign_domain};
  if (for_writing && !region->rights.local_write) return {nullptr, Fault::access};
  return region->find(slice.address, slice.length_bytes);
}

bool MemoryHost::next_receive(iwarp::ReceiveRequest& request) {
  if (posted_receives.empty()) return false;
  request = posted_receives.front();
  posted_receives.pop_front();
  return true;
}

bool MemoryHost::invalidate(std::uint32_t stag) {
  Region* region = find(stag);
  if (!region || region->domain != domain) return false;
  invalidated.push_back(stag);
  region->valid = false;
  return true;
}

void MemoryHost::complete_send(const iwarp::SendCompletion& completion) {
  // After the end every request must be flushed.
  EXPECT_TRUE(end_calls == 0 || completion.status == iwarp::Status::flushed);
  sends.push_back(completion);
}

void MemoryHost::complete_receive(const iwarp::ReceiveCompletion& completion) {
  EXPECT_EQ(end_calls, 0) << "a completion after on_end()";
  receives.push_back(completion);
}

void MemoryHost::on_end(iwarp::EndReason reason) {
  EXPECT_EQ(++end_calls, 1) << "on_end() comes once";
  end_reason = reason;
}

}  // namespace weft::test
