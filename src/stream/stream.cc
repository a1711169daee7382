// The handle of a stream: it forwards to Endpoint, which is shared with the stream thread.
#include "weft/stream/stream.hpp"

#include "base/simulated_kernel.h"
#include "stream/endpoint.h"

namespace weft::stream {

using detail::Gather;
using detail::Scatter;

Stream::Stream(const Options& options) : endpoint_(std::make_shared<detail::Endpoint>(options)) {}
Stream::Stream(std::shared_ptr<detail::Endpoint> endpoint) : endpoint_(std::move(endpoint)) {}
Stream::Stream(Stream&&) noexcept = default;

// The old stream is closed like by its destructor, after the new one has taken its place.
Stream& Stream::operator=(Stream&& other) noexcept {
  Stream ended(std::move(*this));
  endpoint_ = std::move(other.endpoint_);
  return *this;
}

Stream::~Stream() {
  if (!endpoint_) return;
  try {
    close(endpoint_->options().linger);
  } catch (const std::exception&) {
    // A destructor cannot report it; what was lost is lost.
  } catch (const ProgramKilled&) {
    // The next wait of the program ends by it.
  }
}

// --- Connecting ----------------------------------------------------------------------------------

void Stream::set_options(const Options& options) {
  endpoint_->set_options(options);
}

Options Stream::options() const {
  return endpoint_->options();
}

void Stream::bind(const Address& local) {
  endpoint_->bind(local);
}

// An attempt that is late is aborted, so that it cannot succeed after the call has failed.
void Stream::connect(const Address& peer, Deadline deadline,
                     std::span<const std::byte> private_data) {
  start_connecting(peer, private_data);
  if (await_connected(deadline)) return;
  abort();
  const std::string name = peer.host + " port " + std::to_string(peer.port);
  throw Error(ETIMEDOUT, "no answer from " + name, {.object = "stream", .peer = name});
}

void Stream::start_connecting(const Address& peer, std::span<const std::byte> private_data) {
  endpoint_->start(peer, private_data);
}

bool Stream::await_connected(Deadline deadline) {
  return endpoint_->await_connected(deadline);
}

State Stream::state() const {
  return endpoint_->state();
}

int Stream::error_number() const {
  return endpoint_->error_number();
}

std::span<const std::byte> Stream::peer_private_data() const {
  return endpoint_->peer_private_data();
}

Variant Stream::variant() const {
  return endpoint_->variant();
}

std::string Stream::local_address() const {
  return id().local_address();
}

std::string Stream::peer_address() const {
  return id().peer_address();
}

const verbs::Id& Stream::id() const {
  return endpoint_->id();
}

const verbs::ProtectionDomain& Stream::domain() const {
  return endpoint_->domain();
}

// --- Bytes ---------------------------------------------------------------------------------------

namespace {

// In a simulation the program goes on polling, so others must have their turn now and then.
Transfer after_look(const Transfer& outcome) {
  SimulatedKernel* const kernel = SimulatedKernel::current();
  if (kernel && outcome.would_block()) kernel->looked();
  return outcome;
}

}  // namespace

Transfer Stream::send(std::span<const std::byte> bytes, Deadline deadline) {
  return after_look(endpoint_->send(Gather(std::span(&bytes, 1)), deadline));
}

Transfer Stream::send(std::span<const std::span<const std::byte>> pieces, Deadline deadline) {
  return after_look(endpoint_->send(Gather(pieces), deadline));
}

Transfer Stream::send_registered(const verbs::LocalSlice& bytes, Deadline deadline) {
  return endpoint_->send_registered(bytes, deadline);
}

Transfer Stream::receive(std::span<std::byte> into, Deadline deadline, ReceiveFlags flags) {
  return after_look(endpoint_->receive(Scatter(std::span(&into, 1)), deadline, flags));
}

Transfer Stream::receive(std::span<const std::span<std::byte>> into, Deadline deadline,
                         ReceiveFlags flags) {
  return after_look(endpoint_->receive(Scatter(into), deadline, flags));
}

Transfer Stream::peek_send() {
  return after_look(endpoint_->peek_send());
}

Transfer Stream::peek_receive() {
  return after_look(endpoint_->peek_receive());
}

std::size_t Stream::bytes_available() {
  return endpoint_->bytes_available();
}

View Stream::view(Deadline deadline) {
  return endpoint_->view(deadline);
}

void Stream::consume(std::size_t bytes) {
  endpoint_->consume(bytes);
}

int Stream::fd() {
  return endpoint_->fd();
}

int Stream::send_fd() {
  return endpoint_->send_fd();
}

// --- Mapped buffers ------------------------------------------------------------------------------

std::int64_t Stream::map_buffer(std::span<std::byte> memory, std::int64_t offset,
                                Deadline deadline) {
  return endpoint_->map_buffer(memory, offset, deadline);
}

void Stream::unmap_buffer(std::span<const std::byte> memory, Deadline deadline) {
  endpoint_->unmap_buffer(memory, deadline);
}

Transfer Stream::write_mapped(std::span<const std::byte> bytes, std::uint64_t offset,
                              Deadline deadline) {
  return endpoint_->write_mapped(bytes, offset, deadline);
}

// --- The end -------------------------------------------------------------------------------------

void Stream::finish() {
  endpoint_->finish();
}

void Stream::stop_receiving() {
  endpoint_->stop_receiving();
}

bool Stream::close(Deadline linger) {
  return endpoint_->close(linger);
}

bool Stream::close_if_sent() {
  return endpoint_->close_if_sent();
}

void Stream::abort() {
  endpoint_->abort();
}

Statistics Stream::statistics() const {
  return endpoint_->statistics();
}

void Stream::attach(EventQueue* queue, std::uint64_t cookie) {
  endpoint_->attach(queue ? queue->events_.get() : nullptr, cookie);
}

Stream::Readiness Stream::watch(Watcher* watcher) {
  return endpoint_->watch(watcher);
}

void Stream::unwatch(Watcher* watcher) {
  endpoint_->unwatch(watcher);
}

Stream::Readiness Stream::readiness() {
  return endpoint_->readiness();
}

void Stream::look() {
  endpoint_->look();
}

bool Stream::report_again() {
  return endpoint_->report_again();
}

}  // namespace weft::stream
