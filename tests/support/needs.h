// Skips tests that use what the tested device does not have, after asking it. Weft's own device has
// all that the tests use, so there the device's refusal fails the test.
#pragma once

#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "support/device.h"
#include "weft/error.hpp"
#include "weft/verbs/context.hpp"

namespace weft::test {

// What the device answers to `use` if it does not have it, else an empty text.
template <typename Use>
std::string refusal(Use use) {
  try {
    use();
  } catch (const Error& error) {
    const int number = error.error_number();
    if (own_device() || (number != EOPNOTSUPP && number != ENOSYS)) throw;
    return error.what();
  }
  return {};
}

// What a post on the data path returns for an operation that another device than Weft's lacks.
[[nodiscard]] inline bool is_refusal(int error) {
  return !own_device() && (error == EOPNOTSUPP || error == EINVAL);
}

// An iWARP adapter or the kernel's siw. Its queue pairs are connected by rdma_cm only, it has no
// INIT state, and a completion means that TCP has taken the bytes, so that errors at the peer do
// not reach the request. Weft's own device differs from that, also in the personality iwarp.
[[nodiscard]] inline bool is_foreign_iwarp(const verbs::Context& context) {
  return !own_device() && context.raw()->device->transport_type == IBV_TRANSPORT_IWARP;
}

[[nodiscard]] inline bool has_atomics(const verbs::Context& context) {
  return own_device() || context.query().atomic_cap != IBV_ATOMIC_NONE;
}

// The kernel's software devices are slow, so they get a sample of a large number of turns.
[[nodiscard]] inline std::size_t turns(std::size_t all, std::size_t sample) {
  return own_device() ? all : sample;
}

}  // namespace weft::test

#define WEFT_NEEDS(use)                                                                  \
  if (const std::string why = ::weft::test::refusal([&] { (void)(use); }); !why.empty()) \
  GTEST_SKIP() << why

#define WEFT_NEEDS_NUMBERS(context)            \
  if (::weft::test::is_foreign_iwarp(context)) \
  GTEST_SKIP() << "iWARP devices connect queue pairs by rdma_cm only"

#define WEFT_NEEDS_PEER_ERRORS(context)        \
  if (::weft::test::is_foreign_iwarp(context)) \
  GTEST_SKIP() << "completions of this iWARP device do not report errors at the peer"

#define WEFT_NEEDS_STATES(context)             \
  if (::weft::test::is_foreign_iwarp(context)) \
  GTEST_SKIP() << "the device does not report the states of queue pairs"

#define WEFT_NEEDS_IMMEDIATES(context) \
  if (::weft::test::is_foreign_iwarp(context)) GTEST_SKIP() << "the device has no immediate data"
