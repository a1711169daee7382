#include <dlfcn.h>
#include <fmt/format.h>
#include <pcap/pcap.h>

#include <array>
#include <stdexcept>

#include "weft/capture/packet_source.hpp"

namespace weft::capture {
namespace {

// This is the default of tcpdump too. Packets that segmentation offload has merged (up to 64 KiB)
// are captured whole.
constexpr int snap_bytes = 256 * 1024;
// On Linux the default of libpcap is 2 MiB, which fast RDMA traffic fills between two reads.
constexpr int kernel_buffer_bytes = 64 * 1024 * 1024;
constexpr int timeout_ms = 100;  // after this the kernel passes on a buffer that is not full
constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t microsecond_ns = 1'000;

// Loads libpcap when a capture begins. Programs that read files or memory do not need it.
class Pcap {
  void* library_ = nullptr;  // declared before the functions that are loaded from it

 public:
  // Loads the library at the first call, until the program ends. Throws std::runtime_error if it is
  // not installed.
  [[nodiscard]] static const Pcap& get() {
    static const Pcap loaded;
    return loaded;
  }

  decltype(&::pcap_create) create = load<decltype(&::pcap_create)>("pcap_create");
  decltype(&::pcap_set_snaplen) set_snaplen =
      load<decltype(&::pcap_set_snaplen)>("pcap_set_snaplen");
  decltype(&::pcap_set_promisc) set_promisc =
      load<decltype(&::pcap_set_promisc)>("pcap_set_promisc");
  decltype(&::pcap_set_timeout) set_timeout =
      load<decltype(&::pcap_set_timeout)>("pcap_set_timeout");
  decltype(&::pcap_set_buffer_size) set_buffer_size =
      load<decltype(&::pcap_set_buffer_size)>("pcap_set_buffer_size");
  decltype(&::pcap_set_tstamp_precision) set_tstamp_precision =
      load<decltype(&::pcap_set_tstamp_precision)>("pcap_set_tstamp_precision");
  decltype(&::pcap_setnonblock) setnonblock =
      load<decltype(&::pcap_setnonblock)>("pcap_setnonblock");
  decltype(&::pcap_next_ex) next_ex = load<decltype(&::pcap_next_ex)>("pcap_next_ex");
  decltype(&::pcap_geterr) geterr = load<decltype(&::pcap_geterr)>("pcap_geterr");
  decltype(&::pcap_stats) stats = load<decltype(&::pcap_stats)>("pcap_stats");
  decltype(&::pcap_get_selectable_fd) get_selectable_fd =
      load<decltype(&::pcap_get_selectable_fd)>("pcap_get_selectable_fd");
  decltype(&::pcap_close) close = load<decltype(&::pcap_close)>("pcap_close");
  decltype(&::pcap_activate) activate = load<decltype(&::pcap_activate)>("pcap_activate");
  decltype(&::pcap_get_tstamp_precision) get_tstamp_precision =
      load<decltype(&::pcap_get_tstamp_precision)>("pcap_get_tstamp_precision");
  decltype(&::pcap_datalink) datalink = load<decltype(&::pcap_datalink)>("pcap_datalink");
  decltype(&::pcap_statustostr) statustostr =
      load<decltype(&::pcap_statustostr)>("pcap_statustostr");
  decltype(&::pcap_compile) compile = load<decltype(&::pcap_compile)>("pcap_compile");
  decltype(&::pcap_setfilter) setfilter = load<decltype(&::pcap_setfilter)>("pcap_setfilter");
  decltype(&::pcap_freecode) freecode = load<decltype(&::pcap_freecode)>("pcap_freecode");

 private:
  Pcap() = default;

  // Loads the functions one by one, so that a library that lacks one gives an error with its name.
  template <typename Function>
  Function load(const char* name) {
    // Debian and its derivatives name the library libpcap.so.0.8, and other distributions
    // libpcap.so.1.
    if (library_ == nullptr) library_ = dlopen("libpcap.so.0.8", RTLD_NOW | RTLD_LOCAL);
    if (library_ == nullptr) library_ = dlopen("libpcap.so.1", RTLD_NOW | RTLD_LOCAL);
    void* found = library_ == nullptr ? nullptr : dlsym(library_, name);
    if (found == nullptr) {
      throw std::runtime_error(
          fmt::format("capturing needs libpcap (apt install libpcap0.8): {}", dlerror()));
    }
    return reinterpret_cast<Function>(found);
  }
};

class LiveSource final : public PacketSource {
 public:
  LiveSource(const std::string& interface, const std::string& filter) : interface_(interface) {
    std::array<char, PCAP_ERRBUF_SIZE> error{};
    handle_.reset(pcap_.create(interface.c_str(), error.data()));
    if (!handle_) throw std::runtime_error(fmt::format("{}: {}", interface, error.data()));
    // These options are refused after the activation, and a filter is refused before it, so the
    // order of the calls is fixed.
    pcap_.set_snaplen(handle_.get(), snap_bytes);
    pcap_.set_promisc(handle_.get(), 1);
    pcap_.set_timeout(handle_.get(), timeout_ms);
    pcap_.set_buffer_size(handle_.get(), kernel_buffer_bytes);
    nanoseconds_ = pcap_.set_tstamp_precision(handle_.get(), PCAP_TSTAMP_PRECISION_NANO) == 0;
    activate();
    if (!filter.empty()) set_filter(filter);
    if (pcap_.setnonblock(handle_.get(), 1, error.data()) != 0) {
      throw std::runtime_error(fmt::format("{}: {}", interface, error.data()));
    }
  }

  // Never blocks: the handle is in non-blocking mode, and next_ex() returns 0 if no packet is
  // available.
  bool next(RawPacket& packet) override {
    pcap_pkthdr* header = nullptr;
    const unsigned char* data = nullptr;
    const int status = pcap_.next_ex(handle_.get(), &header, &data);
    if (status == PCAP_ERROR) problem_ = pcap_.geterr(handle_.get());
    if (status != 1) return false;
    // With nanosecond precision libpcap stores nanoseconds in `tv_usec`
    // (pcap_set_tstamp_precision(3PCAP)).
    packet.time_ns =
        header->ts.tv_sec * second_ns + header->ts.tv_usec * (nanoseconds_ ? 1 : microsecond_ns);
    packet.link_type = link_type_;
    packet.bytes = Bytes(reinterpret_cast<const std::byte*>(data), header->caplen);
    packet.wire_bytes = header->len;
    return true;
  }
  [[nodiscard]] std::string problem() const override { return problem_; }
  [[nodiscard]] std::string leftover() const override {
    pcap_stat statistics{};
    if (pcap_.stats(handle_.get(), &statistics) != 0 || statistics.ps_drop == 0) return {};
    const bool one = statistics.ps_drop == 1;
    return fmt::format("{} packet{} came too fast, and the kernel dropped {}", statistics.ps_drop,
                       one ? "" : "s", one ? "it" : "them");
  }
  [[nodiscard]] int descriptor() const override { return pcap_.get_selectable_fd(handle_.get()); }

 private:
  struct Close {
    void operator()(pcap_t* handle) const { Pcap::get().close(handle); }
  };

  // Activates the capture. A missing right is the most frequent error, so its text has advice.
  void activate() {
    const int status = pcap_.activate(handle_.get());
    // The precision in use counts, not the one that was requested.
    nanoseconds_ = pcap_.get_tstamp_precision(handle_.get()) == PCAP_TSTAMP_PRECISION_NANO;
    link_type_ = static_cast<std::uint16_t>(pcap_.datalink(handle_.get()));
    // A positive status is a warning (pcap_activate(3PCAP)); the capture is active then.
    if (status >= 0) return;
    const char* why = pcap_.geterr(handle_.get());
    if (!*why) why = pcap_.statustostr(status);
    const char* advice = status == PCAP_ERROR_PERM_DENIED
                             ? "; run it as root, or give it CAP_NET_RAW with setcap"
                             : "";
    throw std::runtime_error(fmt::format("cannot capture on {}: {}{}", interface_, why, advice));
  }

  void set_filter(const std::string& filter) {
    // The netmask matters only for tests of IPv4 broadcast addresses, so it may stay unknown.
    bpf_program program{};
    if (pcap_.compile(handle_.get(), &program, filter.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0) {
      throw std::runtime_error(
          fmt::format("the filter '{}': {}", filter, pcap_.geterr(handle_.get())));
    }
    const int status = pcap_.setfilter(handle_.get(), &program);
    // The handle has its own copy of the program by now.
    pcap_.freecode(&program);
    if (status != 0) throw std::runtime_error(pcap_.geterr(handle_.get()));
  }

  const Pcap& pcap_ = Pcap::get();
  std::string interface_;
  std::unique_ptr<pcap_t, Close> handle_;
  std::uint16_t link_type_ = 0;
  bool nanoseconds_ = false;
  std::string problem_;
};

}  // namespace

std::unique_ptr<PacketSource> capture_live(const std::string& interface,
                                           const std::string& filter) {
  return std::make_unique<LiveSource>(interface, filter);
}

}  // namespace weft::capture
