// Asio for tests that are compiled with the one without Boost and, with WEFT_USE_BOOST_ASIO, with
// Boost's. The names of the suites differ, so that both can be told apart.
#pragma once

#ifdef WEFT_USE_BOOST_ASIO
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
namespace asio = boost::asio;
namespace weft::test {
using AsioCode = boost::system::error_code;
using AsioThrown = boost::system::system_error;
}  // namespace weft::test
#define WEFT_ASIO_SUITE(name) Boost##name
#else
#include <asio/awaitable.hpp>
#include <asio/bind_cancellation_slot.hpp>
#include <asio/bind_executor.hpp>
#include <asio/buffer.hpp>
#include <asio/cancellation_signal.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/strand.hpp>
#include <asio/use_awaitable.hpp>
#include <asio/use_future.hpp>
namespace weft::test {
using AsioCode = asio::error_code;
using AsioThrown = asio::system_error;
}  // namespace weft::test
#define WEFT_ASIO_SUITE(name) name
#endif

#include <gtest/gtest.h>

#include <chrono>

namespace weft::test {

constexpr auto asio_timeout = std::chrono::seconds(60);

// Runs the loop until no operation is left.
inline void run_to_end(asio::io_context& context) {
  context.restart();
  context.run_for(asio_timeout);
  EXPECT_TRUE(context.stopped()) << "operations do not end";
}

// An exception of a coroutine of Asio fails the test.
inline void expect_no_exception(const std::exception_ptr& failed) {
  if (failed) std::rethrow_exception(failed);
}

}  // namespace weft::test
