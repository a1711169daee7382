// Memory that hostile peers get access to: around the granted pages are others that no peer may
// change.
#pragma once

#include <dirent.h>
#include <infiniband/verbs.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstring>

#include "interop/endpoint.h"

namespace interop {

inline int entries(const char* directory) {
  DIR* open = must(::opendir(directory), directory);
  int count = 0;
  while (const dirent* entry = ::readdir(open)) count += entry->d_name[0] != '.';
  ::closedir(open);
  return count;
}

class HostileMemory {
 public:
  static constexpr std::size_t page_bytes = 16384;
  // The others are canaries.
  enum Page : std::size_t { writable_page = 1, readable_page = 3, pages = 7 };

  explicit HostileMemory(ibv_pd* domain)
      : domain_(domain),
        memory_(
            static_cast<unsigned char*>(::mmap(nullptr, pages * page_bytes, PROT_READ | PROT_WRITE,
                                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    std::memset(memory_, canary, pages * page_bytes);
    constexpr int write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    writable_ = grant(writable_page, write | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    readable_ = grant(readable_page, IBV_ACCESS_REMOTE_READ);
  }

  [[nodiscard]] const ibv_mr& writable() const { return *writable_; }
  [[nodiscard]] const ibv_mr& readable() const { return *readable_; }
  [[nodiscard]] static Region region(const ibv_mr& mr) {
    return {reinterpret_cast<std::uint64_t>(mr.addr), mr.rkey,
            static_cast<std::uint32_t>(mr.length)};
  }

  // Posts a receive into the page that may be written.
  template <typename Post, typename Queue>
  void post_receive(Post post, Queue* queue, std::uint32_t bytes) const {
    ibv_sge piece{reinterpret_cast<std::uint64_t>(writable_->addr), bytes, writable_->lkey};
    ibv_recv_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    post(queue, &request, &bad);
  }

  [[nodiscard]] const char* state() const {
    bool intact = true;
    for (std::size_t i = 0; i < pages * page_bytes; ++i) {
      intact &= i / page_bytes == writable_page || memory_[i] == canary;
    }
    return intact ? "intact" : "changed";
  }

 private:
  static constexpr unsigned char canary = 0xC5;

  ibv_mr* grant(Page page, int access) {
    return must(ibv_reg_mr(domain_, memory_ + page * page_bytes, page_bytes, access), "ibv_reg_mr");
  }

  ibv_pd* domain_;
  unsigned char* memory_;
  ibv_mr* writable_ = nullptr;
  ibv_mr* readable_ = nullptr;
};

}  // namespace interop
