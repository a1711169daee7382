// The pairs of this process with other ones, and the listeners that can be reached through them.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/bytes.h"
#include "device/addresses.h"
#include "device/local/local_channel.h"
#include "device/local/pair_end.h"
#include "device/local/process_pair.h"
#include "device/tcp_ends.h"

namespace weft::device {

class Device;

// Takes the requests of peer processes for one address.
class PairListener {
 public:
  virtual ~PairListener() = default;
  // `end` answers the request: where it is destroyed without that, the request is refused. `ends`:
  // the addresses, as TCP would have them. `frame`: the MPA request. Called without any lock.
  virtual void take(PairEnd end, const TcpEnds& ends, Bytes frame) = 0;
};

// Of a device. Thread-safe.
class ProcessPairs {
 public:
  explicit ProcessPairs(Device& device) : device_(device) {}

  // The dialing side of a connection that has left TCP: `process` serves `destination`. From the
  // second connection to a process on there is a pair, which is introduced over the channel of that
  // connection. A program with one connection has no use for it. `staged`: whether the connection
  // is so; then all connections of the pair are.
  void met(pid_t process, LocalChannel& channel, const sockaddr_storage& destination, bool staged);
  // The other side: the message that introduces it.
  void introduced(pid_t process, LocalChannel::Message message);

  // The pair through which that address can be dialled. Null: use TCP.
  [[nodiscard]] std::shared_ptr<ProcessPair> towards(const sockaddr_storage& destination);
  // The process of the pair does not serve that address, or not in this way: use TCP from now on.
  void refused(const sockaddr_storage& destination);
  void remove(const ProcessPair& pair);

  void add(const sockaddr_storage& address, const std::shared_ptr<PairListener>& listener);
  void remove(const PairListener& listener);
  [[nodiscard]] std::shared_ptr<PairListener> listener_at(const sockaddr_storage& destination);

  // The pair over which the last request was sent or has come: most likely the next event comes
  // from there. Null if there is none.
  [[nodiscard]] std::shared_ptr<ProcessPair> latest();
  void note_request(const std::shared_ptr<ProcessPair>& pair);

  void abandon_after_fork();

 private:
  struct Met {
    pid_t process = 0;
    std::shared_ptr<ProcessPair> dialing;  // null after the first connection
  };
  struct Listening {
    sockaddr_storage address{};
    const PairListener* key = nullptr;
    std::weak_ptr<PairListener> listener;
  };
  struct Destination {
    std::weak_ptr<ProcessPair> pair;
    bool refused = false;
  };
  [[nodiscard]] std::shared_ptr<ProcessPair> introduce(pid_t process, LocalChannel& channel,
                                                       bool staged);
  void limit();

  Device& device_;
  std::mutex mutex_;
  std::vector<Met> met_;                               // the latest one last
  std::vector<std::shared_ptr<ProcessPair>> serving_;  // the same
  std::map<AddressKey, Destination> destinations_;
  std::vector<Listening> listeners_;
  std::weak_ptr<ProcessPair> latest_;
};

}  // namespace weft::device
