// What the headers for Asio share: which Asio it is, and its errors. With WEFT_USE_BOOST_ASIO
// defined it is Boost's, otherwise the one without Boost. Both may be in one program, in different
// files.
#pragma once

#ifdef WEFT_USE_BOOST_ASIO
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/version.hpp>
#include <boost/system/system_error.hpp>
#define WEFT_ASIO_VERSION BOOST_ASIO_VERSION
#define WEFT_ASIO_NAMESPACE with_boost
#else
#include <asio/any_io_executor.hpp>
#include <asio/associated_executor.hpp>
#include <asio/async_result.hpp>
#include <asio/error.hpp>
#include <asio/execution_context.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/post.hpp>
#include <asio/system_error.hpp>
#include <asio/version.hpp>
#define WEFT_ASIO_VERSION ASIO_VERSION
#define WEFT_ASIO_NAMESPACE standalone
#endif

// Cancellation slots came with this version.
#if WEFT_ASIO_VERSION >= 102000 && defined(WEFT_USE_BOOST_ASIO)
#include <boost/asio/associated_cancellation_slot.hpp>
#elif WEFT_ASIO_VERSION >= 102000
#include <asio/associated_cancellation_slot.hpp>
#endif

namespace weft {
inline namespace WEFT_ASIO_NAMESPACE {
namespace asio_detail {

#ifdef WEFT_USE_BOOST_ASIO
namespace net = boost::asio;
using AsioError = boost::system::error_code;
using AsioException = boost::system::system_error;
#else
namespace net = asio;
using AsioError = asio::error_code;
using AsioException = asio::system_error;
#endif

// An errno value in Asio's words; 0 is no error.
inline AsioError asio_error(int error_number) {
  return {error_number, net::error::get_system_category()};
}

}  // namespace asio_detail
}  // namespace WEFT_ASIO_NAMESPACE
}  // namespace weft
