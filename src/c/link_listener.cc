// The C interface of listeners and requests: weft/c/message.h.
#include <memory>
#include <utility>

#include "c/link.h"
#include "c/loop.h"
#include "c/outcome.h"

using namespace weft::c;
using weft::message::Handlers;
using weft::message::Listener;
using weft::message::Request;

struct weft_link_listener {
  Listener listener;
  Maker maker;
};

struct weft_link_request {
  Request request;
  Maker maker;
};

int weft_link_connect(weft_loop* loop, weft_link** link, const char* host, uint16_t port,
                      const weft_link_handlers* handlers, void* user,
                      const weft_link_options* options) {
  return guarded([&] {
    const auto made = std::make_shared<weft_link>(handlers, user);
    made->begin([&](Handlers calls) {
      return loop->loop.connect(address_of(host, port), std::move(calls), link_options_of(options));
    });
    // The pointer is valid without `made`: the link holds itself for the program (weft_link::held).
    *link = made.get();
    return 0;
  });
}

int weft_link_listen(weft_loop* loop, weft_link_listener** listener, const char* host,
                     uint16_t port, void (*on_request)(weft_link_request* request, void* user),
                     void* user, int backlog) {
  return guarded([&] {
    if (on_request == nullptr) return fail(EINVAL, "a listener needs a callback for requests");
    *listener = new weft_link_listener{
        loop->loop.listen(
            address_of(host, port),
            [on_request, user](Request request) {
              // The program owns the request, and frees it by accepting or rejecting it.
              on_request(new weft_link_request{std::move(request), {}}, user);
            },
            backlog),
        {}};
    return 0;
  });
}

uint16_t weft_link_listener_port(weft_link_listener* listener) {
  return guarded_or(0, [&] { return listener->listener.port(); });
}

void weft_link_listener_free(weft_link_listener* listener) {
  if (listener != nullptr && !listener->maker.is_parent()) delete listener;
}

int weft_link_accept(weft_link_request* request, weft_link** link,
                     const weft_link_handlers* handlers, void* user,
                     const weft_link_options* options) {
  if (request->maker.is_parent()) return fail(EPERM, "the request is that of the parent process");
  // The request is freed in any case, also if it cannot be accepted.
  const std::unique_ptr<weft_link_request> owner(request);
  return guarded([&] {
    const auto made = std::make_shared<weft_link>(handlers, user);
    made->begin([&](Handlers calls) {
      return request->request.accept(std::move(calls), link_options_of(options));
    });
    *link = made.get();
    return 0;
  });
}

int weft_link_reject(weft_link_request* request, const void* private_data,
                     size_t private_data_bytes) {
  if (request->maker.is_parent()) return 0;
  const std::unique_ptr<weft_link_request> owner(request);
  return guarded([&] {
    request->request.reject(bytes_of(private_data, private_data_bytes));
    return 0;
  });
}

// The bytes belong to the request, which ends when it is accepted or rejected.
const void* weft_link_request_private_data(weft_link_request* request, size_t* count) {
  *count = 0;
  return guarded_or(nullptr, [&]() -> const void* {
    const auto bytes = request->request.private_data();
    *count = bytes.size();
    return bytes.data();
  });
}

int weft_link_request_peer_address(weft_link_request* request, char* text, size_t room) {
  return guarded([&] { return copy_text(request->request.peer_address(), text, room); });
}
