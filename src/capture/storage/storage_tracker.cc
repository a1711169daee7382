#include "weft/capture/storage_tracker.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "capture/rpc/send_assembly.h"
#include "capture/storage/command_limits.h"
#include "capture/storage/early_answers.h"
#include "capture/storage/iser_wire.h"
#include "capture/storage/nvme_wire.h"
#include "capture/storage/open_commands.h"
#include "capture/storage/recognition.h"
#include "capture/storage/smb_stream.h"
#include "capture/storage/smb_wire.h"
#include "capture/storage/srp_wire.h"
#include "weft/capture/budget.hpp"
#include "weft/capture/connection_map.hpp"

namespace weft::capture {
namespace {

using SmbFiles = std::map<SmbFileId, std::string>;  // the names of open files

// What is known of a connection that carries a storage protocol.
struct Conversation {
  Conversation(RecognisedStorage recognised, Budget& budget)
      : requester(recognised.requester),
        assemblies{SendAssembly(budget), SendAssembly(budget)},
        streams{SmbStream(budget), SmbStream(budget)} {
    traffic.protocol = recognised.protocol;
  }

  Side requester;
  StorageTraffic traffic;
  std::array<SendAssembly, 2> assemblies;  // by side
  OpenCommands open;
  EarlyAnswers early;
  std::optional<std::int64_t> idle_since_ns;  // since the last answer, while no command is open
  std::optional<std::uint16_t> queue;  // NVMe: by the connection request and the Connect command
  SubmissionQueue submissions;         // NVMe
  SmbCredits credits;                  // SMB
  std::array<SmbStream, 2> streams;    // SMB, by side
  SmbFiles files;
};

std::size_t index_of(Side side) {
  return side == Side::a ? 0 : 1;
}

// The bytes up to the first one that was not captured.
StorageBytes known_part(const SendAssembly::Message& message) {
  if (message.assembled == nullptr) return {message.bytes, message.bytes.size()};
  const auto& flaws = message.assembled->flaws();
  const std::size_t end = flaws.empty()
                              ? message.bytes.size()
                              : std::min<std::size_t>(message.bytes.size(), flaws.front().begin);
  return {message.bytes.first(end), message.bytes.size()};
}

// The answer was not ready before the command had come.
void note_wait(const LimitWait& waited, StorageCommand& command) {
  const std::int64_t from_ns = std::max(waited.from_ns, command.request->time_ns);
  if (waited.to_ns <= from_ns) return;
  command.timing.receives_ns += waited.to_ns - from_ns;
  command.timing.receives_frame = waited.frame;
}

void add_answer(StorageCommand& command, const Extent& extent, const StorageAnswer& answer) {
  command.answer = extent.first;
  if (command.last.frame < extent.last.frame) command.last = extent.last;
  command.status = answer.status;
  command.status_text = command.protocol == StorageProtocol::nvme
                            ? nvme_status_text(answer.status, command.name)
                            : answer.text;
}

}  // namespace

class StorageTracker::Work {
 public:
  Work(const ConnectionTable& connections, StorageSink& sink, const StorageLimits& limits)
      : connections_(connections),
        sink_(sink),
        limits_(limits),
        budget_(limits.message_bytes_in_all) {}

  void on_send(const Origin& origin, const SendPart& part);
  void note_transfer(const Origin& origin, std::uint32_t key) {
    State* known = states_.find(origin.connection);
    if (known != nullptr && known->conversation) {
      known->conversation->open.note_transfer(key, origin.stamp);
    }
  }
  void on_gap(const Origin& origin);
  void close(ConnectionId id);
  void forget(ConnectionId id);
  void finish() {
    for (auto& [id, state] : states_) report_open(state);
  }
  [[nodiscard]] const StorageTraffic* of(ConnectionId id) const {
    const State* known = states_.find(id);
    return known == nullptr || !known->conversation ? nullptr : &known->conversation->traffic;
  }

 private:
  struct State {
    StorageRecognition recognition;
    std::unique_ptr<Conversation> conversation;  // set once the protocol is known
  };

  void recognise(State& state, const Origin& origin, const SendPart& part);
  void on_message(Conversation& talk, const Origin& origin, const SendAssembly::Message& message);
  void on_nvme(Conversation& talk, const Origin& origin, const Extent& extent,
               const StorageBytes& bytes);
  void on_transfer(Conversation& talk, const Origin& origin, const Extent& extent,
                   const StorageBytes& bytes);
  void on_chain(Conversation& talk, const Origin& origin, const Extent& extent, Bytes chain);
  void on_smb2(Conversation& talk, const Origin& origin, const Extent& extent, Smb2Message& message,
               std::string& last_file);
  void remember_file(Conversation& talk, const SmbFileId& id, const std::string& name);
  void forget_file(Conversation& talk, SmbFiles::iterator at);
  void add(Conversation& talk, const Origin& origin, const Extent& extent, StorageMessage message);
  void begin(Conversation& talk, const Origin& origin, const Extent& extent,
             StorageCommand command);
  void complete(Conversation& talk, const Origin& origin, const Extent& extent,
                const StorageAnswer& answer);
  void join(Conversation& talk, StorageCommand command, const Extent& extent,
            const StorageAnswer& answer);
  void report_alone(Conversation& talk, const EarlyAnswers::Kept& one);
  void report(StorageCommand& command);
  void report_oldest(Conversation& talk);
  void report_open(State& state);

  const ConnectionTable& connections_;
  StorageSink& sink_;
  StorageLimits limits_;
  Budget budget_;
  ConnectionMap<State> states_;
  std::size_t open_in_all_ = 0;
  std::size_t files_in_all_ = 0;
  std::uint64_t reported_ = 0;
};

void StorageTracker::Work::recognise(State& state, const Origin& origin, const SendPart& part) {
  const StorageBytes seen{part.bytes, part.last ? part.bytes.size() + part.missing_bytes
                                                : part.bytes.size() + part.missing_bytes + 1};
  const auto known = state.recognition.examine(origin.side, seen);
  if (!known) return;
  state.conversation = std::make_unique<Conversation>(*known, budget_);
  const Connection* const its = connections_.find(origin.connection);
  if (its != nullptr && its->beginning == Connection::Beginning::handshake) {
    state.conversation->early.note_all_matched();
  }
  if (its == nullptr || known->protocol != StorageProtocol::nvme) return;
  const Connection::Offer& offer = known->requester == Side::a ? its->offer_a : its->offer_b;
  state.conversation->queue = nvme_requested_queue(offer.private_data);
}

// Only the first part of a message can show the protocol.
void StorageTracker::Work::on_send(const Origin& origin, const SendPart& part) {
  State& state = states_.get(origin.connection);
  if (!state.conversation) {
    if (part.offset != 0 || state.recognition.given_up()) return;
    recognise(state, origin, part);
    if (!state.conversation) return;
  }
  Conversation& talk = *state.conversation;
  talk.assemblies[index_of(origin.side)].add(
      origin, part, [](Bytes) { return true; },
      [&](const SendAssembly::Message& message) { on_message(talk, origin, message); });
}

void StorageTracker::Work::on_message(Conversation& talk, const Origin& origin,
                                      const SendAssembly::Message& message) {
  const StorageBytes bytes = known_part(message);
  const Extent extent{message.first, message.last};
  MessageCounts& counts = talk.traffic.messages;
  while (const auto alone = talk.early.take_expired(extent.first.frame)) {
    report_alone(talk, *alone);
  }
  switch (talk.traffic.protocol) {
    case StorageProtocol::nvme:
      on_nvme(talk, origin, extent, bytes);
      break;
    case StorageProtocol::smb_direct:
      on_transfer(talk, origin, extent, bytes);
      break;
    case StorageProtocol::iser:
      add(talk, origin, extent, decode_iser(bytes, counts));
      break;
    case StorageProtocol::srp:
      add(talk, origin, extent, decode_srp(bytes, counts));
      break;
  }
}

// --- NVMe ----------------------------------------------------------------------------------------

void StorageTracker::Work::on_nvme(Conversation& talk, const Origin& origin, const Extent& extent,
                                   const StorageBytes& bytes) {
  MessageCounts& counts = talk.traffic.messages;
  if (origin.side != talk.requester) {
    add(talk, origin, extent, decode_nvme_completion(bytes, counts));
    return talk.submissions.answered(extent.first, talk.open.size());
  }
  StorageMessage message = decode_nvme_command(bytes, talk.queue, counts);
  if (const auto queue = nvme_connected_queue(bytes)) {
    talk.submissions.connect(*queue, extent.first);
  }
  if (message.command) {
    StorageCommand& command = *message.command;
    command.timing.queue_ns = talk.submissions.sent(extent.first, talk.open.size()).ns();
  }
  add(talk, origin, extent, std::move(message));
}

// --- SMB -----------------------------------------------------------------------------------------

void StorageTracker::Work::on_transfer(Conversation& talk, const Origin& origin,
                                       const Extent& extent, const StorageBytes& bytes) {
  const auto transfer = decode_smb_direct(bytes, talk.traffic.messages);
  SmbStream& stream = talk.streams[index_of(origin.side)];
  if (const auto credits = smb_direct_credits(bytes)) {
    talk.credits.on_direct(index_of(origin.side), extent.first, *credits, !stream.is_open());
  }
  if (!transfer) return;
  stream.add(*transfer, extent, limits_.message_bytes,
             [&](const Extent& whole, Bytes chain) { on_chain(talk, origin, whole, chain); });
}

void StorageTracker::Work::on_chain(Conversation& talk, const Origin& origin, const Extent& extent,
                                    Bytes chain) {
  std::string last_file;  // that the chain opens: later messages of the chain may use it
  const bool alone = talk.open.size() == 0;
  LimitWait within;
  LimitWait before = talk.credits.take_transfers(index_of(origin.side), within);
  for (std::size_t next = 1; next != 0;) {
    Smb2Message message = decode_smb2(chain, talk.traffic.messages);
    next = message.next;
    const bool granted = message.message.answer.has_value();  // by the whole message
    LimitWait smb2 = talk.credits.on_message(message, granted ? extent.last : extent.first);
    if (alone) smb2 = {};
    // The first message of the chain has waited for all.
    if (message.message.command) {
      StorageCommand::Timing& timing = message.message.command->timing;
      timing.credits_ns = joined_ns(std::exchange(before, {}), smb2);
      timing.receives_ns = within.ns();
      timing.receives_frame = std::exchange(within, {}).frame;
    } else if (message.message.answer) {
      message.message.answer->waited = std::exchange(before, {});
    }
    on_smb2(talk, origin, extent, message, last_file);
    chain = chain.subspan(next);
  }
}

// Follows the names of files: a CREATE has the name, its answer the identifier, and all others only
// the identifier.
void StorageTracker::Work::on_smb2(Conversation& talk, const Origin& origin, const Extent& extent,
                                   Smb2Message& message, std::string& last_file) {
  if (message.message.command) {
    StorageCommand& command = *message.message.command;
    if (!command.file.empty()) last_file = command.file;
    if (message.uses_last_file) {
      command.file = last_file;
    } else if (message.file) {
      const auto known = talk.files.find(*message.file);
      if (known == talk.files.end()) return add(talk, origin, extent, std::move(message.message));
      command.file = known->second;
      if (command.name == "SMB2 CLOSE") forget_file(talk, known);
    }
  } else if (message.message.answer && message.file) {
    const StorageCommand* created = talk.open.find(message.message.answer->id);
    if (created != nullptr && !message.message.answer->failed) {
      remember_file(talk, *message.file, created->file);
    }
  }
  add(talk, origin, extent, std::move(message.message));
}

// If there are too many, one of them is forgotten: some client does not close its files.
void StorageTracker::Work::remember_file(Conversation& talk, const SmbFileId& id,
                                         const std::string& name) {
  const auto known = talk.files.find(id);
  if (known != talk.files.end()) {
    known->second = name;
    return;
  }
  const bool full = talk.files.size() >= limits_.files || files_in_all_ >= limits_.files_in_all;
  if (full && talk.files.empty()) return;
  if (full) forget_file(talk, talk.files.begin());
  talk.files.emplace(id, name);
  ++files_in_all_;
}

void StorageTracker::Work::forget_file(Conversation& talk, SmbFiles::iterator at) {
  talk.files.erase(at);
  --files_in_all_;
}

// --- Commands and answers ------------------------------------------------------------------------

void StorageTracker::Work::add(Conversation& talk, const Origin& origin, const Extent& extent,
                               StorageMessage message) {
  if (message.command) begin(talk, origin, extent, std::move(*message.command));
  if (message.answer) complete(talk, origin, extent, *message.answer);
}

void StorageTracker::Work::begin(Conversation& talk, const Origin& origin, const Extent& extent,
                                 StorageCommand command) {
  // The id is used again, so the answer to the older command was not captured.
  if (auto older = talk.open.take(command.id)) {
    --open_in_all_;
    report(*older);
  }
  if (command.keys.size() > limits_.keys) command.keys.resize(limits_.keys);
  command.connection = origin.connection;
  command.requester = origin.side;
  command.request = extent.first;
  command.last = extent.last;
  if (const auto since_ns = std::exchange(talk.idle_since_ns, {})) {
    command.timing.idle_ns = std::max<std::int64_t>(0, extent.first.time_ns - *since_ns);
  }
  if (const auto early = talk.early.take(command.id)) {
    return join(talk, std::move(command), early->extent, early->answer);
  }
  if (talk.open.size() >= limits_.open_commands) report_oldest(talk);
  if (open_in_all_ >= limits_.open_commands_in_all && talk.open.size() > 0) report_oldest(talk);
  if (open_in_all_ >= limits_.open_commands_in_all) return report(command);
  talk.open.add(std::move(command));
  ++open_in_all_;
}

void StorageTracker::Work::complete(Conversation& talk, const Origin& origin, const Extent& extent,
                                    const StorageAnswer& answer) {
  if (answer.interim) {
    return talk.open.note_interim(answer.id, extent.first);
  }
  if (auto known = talk.open.take(answer.id)) {
    --open_in_all_;
    talk.early.note_matched();
    return join(talk, std::move(*known), extent, answer);
  }
  const EarlyAnswers::Kept one{answer, extent, origin};
  if (!talk.early.keep(one)) report_alone(talk, one);
}

void StorageTracker::Work::join(Conversation& talk, StorageCommand command, const Extent& extent,
                                const StorageAnswer& answer) {
  command.outcome =
      answer.failed ? StorageCommand::Outcome::failed : StorageCommand::Outcome::succeeded;
  // The clocks of two captures may differ a little, and the answer may be captured first.
  command.latency_ns = std::max<std::int64_t>(0, extent.first.time_ns - command.request->time_ns);
  command.transfer_ns = std::min(command.transfer_ns, command.latency_ns);
  note_wait(answer.waited, command);
  if (talk.open.size_without_interim() == 0) talk.idle_since_ns = extent.first.time_ns;
  add_answer(command, extent, answer);
  report(command);
}

// The command was not captured.
void StorageTracker::Work::report_alone(Conversation& talk, const EarlyAnswers::Kept& one) {
  StorageCommand command;
  command.protocol = talk.traffic.protocol;
  command.connection = one.origin.connection;
  command.requester = other(one.origin.side);
  command.id = one.answer.id;
  command.outcome = StorageCommand::Outcome::answer_only;
  add_answer(command, one.extent, one.answer);
  report(command);
}

void StorageTracker::Work::report(StorageCommand& command) {
  command.number = ++reported_;
  sink_.on_command(command);
}

void StorageTracker::Work::report_oldest(Conversation& talk) {
  StorageCommand oldest = talk.open.take_oldest();
  --open_in_all_;
  report(oldest);
}

void StorageTracker::Work::report_open(State& state) {
  if (!state.conversation) return;
  while (const auto alone = state.conversation->early.take_oldest()) {
    report_alone(*state.conversation, *alone);
  }
  while (state.conversation->open.size() > 0) report_oldest(*state.conversation);
}

// Commands, answers or grants may be missing, so the limits are unknown from here on.
void StorageTracker::Work::on_gap(const Origin& origin) {
  State* known = states_.find(origin.connection);
  if (known == nullptr || !known->conversation) return;
  known->conversation->submissions.lose();
  known->conversation->credits.lose();
  known->conversation->early.lose();
}

void StorageTracker::Work::close(ConnectionId id) {
  if (State* known = states_.find(id)) report_open(*known);
}

void StorageTracker::Work::forget(ConnectionId id) {
  const State* known = states_.find(id);
  if (known == nullptr) return;
  if (known->conversation) {
    open_in_all_ -= known->conversation->open.size();
    files_in_all_ -= known->conversation->files.size();
  }
  states_.erase(id);
}

// --- The public object ---------------------------------------------------------------------------

StorageTracker::StorageTracker(const ConnectionTable& connections, StorageSink& sink,
                               const StorageLimits& limits)
    : work_(std::make_unique<Work>(connections, sink, limits)) {}

StorageTracker::~StorageTracker() = default;

void StorageTracker::on_send(const Origin& origin, const SendPart& part) {
  work_->on_send(origin, part);
}

void StorageTracker::on_write(const Origin& origin, const WritePart& part) {
  work_->note_transfer(origin, part.key);
}

void StorageTracker::on_read_request(const Origin& origin, const ReadRequest& request) {
  work_->note_transfer(origin, request.key);
}

void StorageTracker::on_read_part(const Origin& origin, const ReadPart& part) {
  if (part.known) work_->note_transfer(origin, part.key);
}

void StorageTracker::on_gap(const Origin& origin, const Gap& /*gap*/) {
  work_->on_gap(origin);
}

void StorageTracker::on_close(ConnectionId connection) {
  work_->close(connection);
}

void StorageTracker::on_forget(ConnectionId connection) {
  work_->forget(connection);
}

void StorageTracker::finish() {
  work_->finish();
}

const StorageTraffic* StorageTracker::of(ConnectionId connection) const {
  return work_->of(connection);
}

}  // namespace weft::capture
