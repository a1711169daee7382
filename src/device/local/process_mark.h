// Marks the memory of a process, so that its peers can distinguish it from another program image
// with the same process number: one page with a random number at a random address.
//
// A process that executes another program (execve(2)) keeps its number but loses the page. Each
// copy between two processes begins with the page, within one system call, and the kernel ends the
// call where the page does not exist. So a copy never reaches an image that the peer has not agreed
// with, and neither a process that got the number of one that has ended.
#pragma once

#include <cstdint>

namespace weft::device {

// Not thread safe. The page is unmapped by the destructor.
class ProcessMark {
 public:
  ProcessMark() = default;
  ~ProcessMark();
  ProcessMark(const ProcessMark&) = delete;
  ProcessMark& operator=(const ProcessMark&) = delete;

  // What a peer has to know of it.
  struct Name {
    std::uint64_t address = 0;  // in the address space of the marked process
    std::uint64_t number = 0;   // at that address
    // Of a file that the marked process keeps open, and sends to its peers. An execve(2) closes it.
    // By it they recognise the process where they may not read its memory.
    std::int64_t descriptor = -1;

    bool operator==(const Name&) const = default;
  };

  // Makes the page; does nothing on a second call. False where there is no memory for it.
  bool make();
  [[nodiscard]] Name name() const;

 private:
  std::uint64_t* at_ = nullptr;
};

}  // namespace weft::device
