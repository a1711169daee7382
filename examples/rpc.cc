// Remote procedure calls in a few lines: the message type is the procedure, the tag identifies the
// call. The caller may have any number of calls in flight, each with a timeout of its own.
//
//   rpc serve [PORT]               port 0, the default: any; it is printed
//   rpc HOST PORT WORD...          asks for each word, in capitals and backwards
#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <weft/message.hpp>

namespace {

using namespace std::chrono_literals;
using namespace weft::message;  // NOLINT(google-build-using-namespace)

enum Procedure : std::uint32_t { loud = 1, backwards = 2, unknown = 0xFFFFFFFF };

std::string text_of(const Received& message) {
  return {reinterpret_cast<const char*>(message.bytes().data()), message.size_bytes()};
}

void answer(Connection& caller, Received& call) {
  std::string text = text_of(call);
  Procedure reply = static_cast<Procedure>(call.type());
  if (reply == loud) {
    for (char& letter : text) {
      letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
    }
  } else if (reply == backwards) {
    std::reverse(text.begin(), text.end());
  } else {
    reply = unknown;
  }
  caller.send(text, {.type = reply, .tag = call.tag()});
}

class Caller {
 public:
  using Answer = std::function<void(const std::string& answer)>;

  Caller(EventLoop& loop, const weft::verbs::Address& server, std::function<void()> established)
      : loop_(loop) {
    Handlers handlers;
    handlers.established = [established](Connection&) { established(); };
    handlers.message = [this](Connection&, Received& message) { take(message); };
    handlers.error = [](Connection&, const weft::Error& error) { throw error; };
    server_ = loop.connect(server, std::move(handlers));
  }

  void call(Procedure procedure, const std::string& text, Answer answer) {
    const std::uint64_t number = ++last_;
    if (!server_.send(text, {.type = procedure, .tag = number})) {
      throw std::runtime_error("cannot send the call");
    }
    const auto timer = loop_.after(10s, [] { throw std::runtime_error("no answer in time"); });
    open_[number] = {std::move(answer), timer};
  }
  [[nodiscard]] bool idle() const { return open_.empty(); }

 private:
  struct Open {
    Answer answer;
    EventLoop::TimerId timer;
  };

  void take(Received& message) {
    const auto found = open_.find(message.tag());
    if (found == open_.end()) return;
    const Open open = std::move(found->second);
    open_.erase(found);
    loop_.cancel(open.timer);
    if (message.type() == unknown) throw std::runtime_error("the server has no such procedure");
    open.answer(text_of(message));
  }

  EventLoop& loop_;
  Connection server_;
  std::map<std::uint64_t, Open> open_;
  std::uint64_t last_ = 0;
};

int serve(std::uint16_t port) {
  EventLoop loop;
  Handlers handlers;
  handlers.message = answer;
  handlers.disconnected = [&](Connection&, const Ending&) { loop.stop(); };
  const Listener listener =
      loop.listen({"", port}, [&](Request request) { request.accept(handlers); });
  std::printf("port %d\n", listener.port());
  std::fflush(stdout);
  loop.run();
  return 0;
}

int ask(const weft::verbs::Address& server, int count, char** words) {
  EventLoop loop;
  bool all_sent = false;
  Caller caller(loop, server, [&] {
    for (int i = 0; i < count; ++i) {
      const std::string word = words[i];
      caller.call(loud, word, [](const std::string& text) { std::puts(text.c_str()); });
      caller.call(backwards, word, [](const std::string& text) { std::puts(text.c_str()); });
    }
    all_sent = true;
  });
  while (!all_sent || !caller.idle()) loop.step(weft::Deadline::never());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    const std::string first = count > 1 ? arguments[1] : "";
    if (first == "serve" && count <= 3) {
      return serve(static_cast<std::uint16_t>(count > 2 ? std::atoi(arguments[2]) : 0));
    }
    if (count < 4) throw std::runtime_error("usage: rpc serve [PORT] | rpc HOST PORT WORD...");
    const auto port = static_cast<std::uint16_t>(std::atoi(arguments[2]));
    return ask({first, port}, count - 3, arguments + 3);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rpc: %s\n", error.what());
    return 1;
  }
}
