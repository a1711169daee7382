#include "capture/live_source.h"

#include <fmt/format.h>
#include <pcap/pcap.h>

#include <array>
#include <stdexcept>

namespace weft::capture {
namespace {

constexpr int snap_bytes = 256 * 1024;
constexpr int kernel_buffer_bytes = 64 * 1024 * 1024;
constexpr int timeout_ms = 100;  // until the kernel hands over a buffer that is not full
constexpr std::int64_t second_ns = 1'000'000'000;
constexpr std::int64_t microsecond_ns = 1'000;

class LiveSource final : public PacketSource {
 public:
  LiveSource(const std::string& interface, const std::string& filter) : interface_(interface) {
    std::array<char, PCAP_ERRBUF_SIZE> error{};
    handle_.reset(pcap_create(interface.c_str(), error.data()));
    if (!handle_) throw std::runtime_error(fmt::format("{}: {}", interface, error.data()));
    pcap_set_snaplen(handle_.get(), snap_bytes);
    pcap_set_promisc(handle_.get(), 1);
    pcap_set_timeout(handle_.get(), timeout_ms);
    pcap_set_buffer_size(handle_.get(), kernel_buffer_bytes);
    nanoseconds_ = pcap_set_tstamp_precision(handle_.get(), PCAP_TSTAMP_PRECISION_NANO) == 0;
    activate();
    if (!filter.empty()) set_filter(filter);
    if (pcap_setnonblock(handle_.get(), 1, error.data()) != 0) {
      throw std::runtime_error(fmt::format("{}: {}", interface, error.data()));
    }
  }

  bool next(RawPacket& packet) override {
    pcap_pkthdr* header = nullptr;
    const unsigned char* data = nullptr;
    const int status = pcap_next_ex(handle_.get(), &header, &data);
    if (status == PCAP_ERROR) problem_ = pcap_geterr(handle_.get());
    if (status != 1) return false;
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
    if (pcap_stats(handle_.get(), &statistics) != 0 || statistics.ps_drop == 0) return {};
    return fmt::format("{} packets came too fast and were dropped by the kernel",
                       statistics.ps_drop);
  }
  [[nodiscard]] int descriptor() const override { return pcap_get_selectable_fd(handle_.get()); }

 private:
  struct Close {
    void operator()(pcap_t* handle) const { pcap_close(handle); }
  };

  void activate() {
    const int status = pcap_activate(handle_.get());
    nanoseconds_ = pcap_get_tstamp_precision(handle_.get()) == PCAP_TSTAMP_PRECISION_NANO;
    link_type_ = static_cast<std::uint16_t>(pcap_datalink(handle_.get()));
    if (status >= 0) return;
    const char* why = pcap_geterr(handle_.get());
    if (!*why) why = pcap_statustostr(status);
    const char* advice = status == PCAP_ERROR_PERM_DENIED
                             ? "; run it as root, or give it CAP_NET_RAW with setcap"
                             : "";
    throw std::runtime_error(fmt::format("cannot capture on {}: {}{}", interface_, why, advice));
  }

  void set_filter(const std::string& filter) {
    bpf_program program{};
    if (pcap_compile(handle_.get(), &program, filter.c_str(), 1, PCAP_NETMASK_UNKNOWN) != 0) {
      throw std::runtime_error(
          fmt::format("the filter '{}': {}", filter, pcap_geterr(handle_.get())));
    }
    const int status = pcap_setfilter(handle_.get(), &program);
    pcap_freecode(&program);
    if (status != 0) throw std::runtime_error(pcap_geterr(handle_.get()));
  }

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
