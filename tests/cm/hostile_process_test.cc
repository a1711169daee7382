// A process of the same user that has agreed honestly to leave TCP, and then changes what it shares
// while this process uses it, until it kills itself (hostile_process.cc). This process must neither
// end nor hang, must read and write what was granted and nothing beside it, and must serve others
// as before.
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "cm/hostile_fixture.h"
#include "cm/hostile_process.h"

extern char** environ;

namespace weft::cm {
namespace {

using hostile::Granted;
using hostile::Tally;

// Pages that may be granted, between two with the secret, between two that end the process that
// accesses them.
class FencedPages {
 public:
  static constexpr std::size_t bytes = std::size_t{64} << 10;

  FencedPages()
      : all_(static_cast<std::byte*>(
            mmap(nullptr, bytes + 4 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
    EXPECT_EQ(mprotect(all_ + page, bytes + 2 * page, PROT_READ | PROT_WRITE), 0);
    for (std::byte* fence : {all_ + page, all_ + 2 * page + bytes}) {
      for (std::size_t at = 0; at < page; at += sizeof hostile::secret) {
        std::memcpy(fence + at, &hostile::secret, sizeof hostile::secret);
      }
    }
  }
  ~FencedPages() { munmap(all_, bytes + 4 * page); }
  FencedPages(const FencedPages&) = delete;
  FencedPages& operator=(const FencedPages&) = delete;

  [[nodiscard]] std::byte* data() const { return all_ + 2 * page; }
  [[nodiscard]] std::uint64_t address() const { return reinterpret_cast<std::uint64_t>(data()); }
  [[nodiscard]] bool fences_stand() const {
    for (const std::byte* fence : {all_ + page, all_ + 2 * page + bytes}) {
      for (std::size_t at = 0; at < page; at += sizeof hostile::secret) {
        if (std::memcmp(fence + at, &hostile::secret, sizeof hostile::secret) != 0) return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t page = 4096;
  std::byte* all_;
};

// Memory of a file that a program which is started inherits.
class SharedTally {
 public:
  SharedTally() : file_(memfd_create("tally", 0)) {
    EXPECT_EQ(ftruncate(file_.get(), sizeof(Tally)), 0);
    at_ = mmap(nullptr, sizeof(Tally), PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
    EXPECT_NE(at_, MAP_FAILED);
  }
  ~SharedTally() { munmap(at_, sizeof(Tally)); }
  SharedTally(const SharedTally&) = delete;
  SharedTally& operator=(const SharedTally&) = delete;

  [[nodiscard]] int file() const { return file_.get(); }
  [[nodiscard]] const Tally& operator*() const {
    return *std::launder(reinterpret_cast<const Tally*>(at_));
  }

 private:
  device::sys::Descriptor file_;
  void* at_ = nullptr;
};

class Attacker {
 public:
  Attacker(std::uint16_t port, std::uint64_t seed, int tally) {
    std::array<std::string, 4> words{WEFT_HOSTILE_PROCESS, std::to_string(port),
                                     std::to_string(seed), std::to_string(tally)};
    std::array<char*, 5> all{words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                             nullptr};
    EXPECT_EQ(posix_spawn(&pid_, all[0], nullptr, nullptr, all.data(), environ), 0) << words[0];
  }
  ~Attacker() {
    if (!runs()) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;

  [[nodiscard]] bool runs() {
    if (pid_ > 0 && waitpid(pid_, &status_, WNOHANG) != 0) pid_ = 0;
    return pid_ > 0;
  }
  // It has killed itself, and did not end for another reason: then it would have tested little.
  [[nodiscard]] bool was_killed() const {
    return WIFSIGNALED(status_) && WTERMSIG(status_) == SIGKILL;
  }

 private:
  pid_t pid_ = 0;
  int status_ = 0;
};

class HostileProcess : public HostilePair {
 protected:
  struct Connection {
    rdma_cm_id* id = nullptr;
    Granted peer;
  };

  void SetUp() override {
#ifdef __SANITIZE_THREAD__
    GTEST_SKIP() << "the other process writes while this one reads: that is what is tested";
#endif
    HostilePair::SetUp();
    if (IsSkipped()) return;
    domain_.reset(context_->allocate_domain());
    granted_region_ = add(granted_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                        IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC);
    source_region_ = add(sources_, 0);
    target_region_ = add(targets_, IBV_ACCESS_LOCAL_WRITE);
    source_ = test::pattern(FencedPages::bytes);
    std::ranges::copy(source_, sources_.data());
  }
  void TearDown() override {
    for (ibv_mr* region : regions_) context_->deregister_memory(region);
    domain_.reset();
    HostilePair::TearDown();
  }

  ibv_mr* add(const FencedPages& pages, unsigned access) {
    regions_.push_back(context_->register_memory(*domain_, pages.data(), FencedPages::bytes,
                                                 pages.address(), access));
    EXPECT_NE(regions_.back(), nullptr);
    return regions_.back();
  }

  // Accepts what comes, and gives up what has ended.
  void serve_events() {
    while (!quiet(strangers_)) {
      auto event = next(strangers_);
      rdma_cm_id* const id = event->id;
      if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) {
        Connection made{.id = id, .peer = {}};
        const rdma_conn_param& data = event->param.conn;
        std::memcpy(&made.peer, data.private_data,
                    std::min<std::size_t>(data.private_data_len, sizeof made.peer));
        event.reset();
        accept(made);
      } else if (event->event != RDMA_CM_EVENT_ESTABLISHED) {
        event.reset();
        end(id);
      }
    }
  }
  void accept(const Connection& made) {
    auto attributes = queue_pair_attributes();
    ASSERT_EQ(manager_->create_qp(made.id, &domain_->pd, &attributes), 0);
    post_receives(made.id);
    const Granted granted{.address = granted_.address(),
                          .length_bytes = FencedPages::bytes,
                          .rkey = granted_region_->rkey,
                          .other_address = sources_.address(),
                          .other_key = source_region_->rkey,
                          .other_bytes = FencedPages::bytes};
    rdma_conn_param parameters{};
    parameters.private_data = &granted;
    parameters.private_data_len = sizeof granted;
    parameters.responder_resources = parameters.initiator_depth = 4;
    parameters.rnr_retry_count = 1;
    (void)manager_->accept(made.id, &parameters);
    connections_.push_back(made);
  }
  void end(rdma_cm_id* id) {
    std::erase_if(connections_, [id](const Connection& one) { return one.id == id; });
    destroy(id);
  }
  void end_all() {
    while (!connections_.empty()) end(connections_.back().id);
    serve_events();
  }

  void post_receives(const rdma_cm_id* id) const {
    ibv_sge piece{targets_.address(), 16384, target_region_->lkey};
    ibv_recv_wr receive{};
    receive.sg_list = &piece;
    receive.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    while (ibv_post_recv(id->qp, &receive, &bad) == 0) continue;
  }

  // A request of any kind, to memory that the peer grants, and what has completed.
  void use(const Connection& connection, test::Random& random) const {
    const ibv_wr_opcode operation = any_operation(random);
    const bool atomic = operation >= IBV_WR_ATOMIC_CMP_AND_SWP;
    const bool fetches = atomic || operation == IBV_WR_RDMA_READ;
    const auto bytes =
        static_cast<std::uint32_t>(atomic ? 8 : random.below(random.chance(3) ? 16'000 : 200));
    ibv_sge piece{(fetches ? targets_ : sources_).address() + 8 * random.below(1024), bytes,
                  (fetches ? target_region_ : source_region_)->lkey};
    ibv_send_wr request{};
    request.sg_list = &piece;
    request.num_sge = 1;
    request.opcode = operation;
    const Granted& peer = connection.peer;
    const bool file = random.chance(2);
    const std::uint64_t at = (file ? peer.other_address : peer.address) + 8 * random.below(2048);
    const std::uint32_t key = file ? peer.other_key : peer.rkey;
    if (atomic) {
      request.wr.atomic = {.remote_addr = at, .compare_add = 1, .swap = 2, .rkey = key};
    } else {
      request.wr.rdma = {.remote_addr = at, .rkey = key};
    }
    ibv_send_wr* bad = nullptr;
    (void)ibv_post_send(connection.id->qp, &request, &bad);
    poll(connection);
  }
  void poll(const Connection& connection) const {
    std::array<ibv_wc, 8> found;
    (void)ibv_poll_cq(connection.id->send_cq, found.size(), found.data());
    const int received = ibv_poll_cq(connection.id->recv_cq, found.size(), found.data());
    for (int i = 0; i < received; ++i) {
      const ibv_wc& completion = found[static_cast<std::size_t>(i)];
      // What the program reads of its receive.
      if (completion.status != IBV_WC_SUCCESS || completion.opcode != IBV_WC_RECV) continue;
      EXPECT_LE(completion.byte_len, 16384U);
    }
    if (received > 0) post_receives(connection.id);
  }

  // While the process lives.
  void bear(Attacker& attacker, test::Random& random) {
    while (attacker.runs() && !HasFatalFailure()) {
      serve_events();
      for (std::size_t i = 0; i < connections_.size(); ++i) {
        for (std::uint64_t times = random.below(20); times > 0; --times) {
          use(connections_[i], random);
        }
      }
      // Memory that is deregistered while the peer copies.
      if (random.chance(20)) context_->deregister_memory(add_short_lived());
    }
  }
  ibv_mr* add_short_lived() {
    return context_->register_memory(*domain_, targets_.data(), 4096, targets_.address(),
                                     IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  }

  FencedPages granted_;
  FencedPages sources_;  // of Sends and Writes: the peer gets copies
  FencedPages targets_;  // of receives and Reads
  std::unique_ptr<device::ProtectionDomain> domain_;
  std::vector<ibv_mr*> regions_;
  ibv_mr* granted_region_ = nullptr;
  ibv_mr* source_region_ = nullptr;
  ibv_mr* target_region_ = nullptr;
  std::vector<std::byte> source_;
  std::vector<Connection> connections_;
  SharedTally tally_;
};

TEST_F(HostileProcess, ChangesWhatItSharesUntilItDies) {
  sockaddr_storage address = target();
  const std::uint16_t port = ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  const auto seeds = test::seeds(12);
  std::size_t killed = 0;
  for (const std::uint64_t seed : seeds) {
    SCOPED_TRACE(test::seed_trace(seed));
    test::Random random(seed);
    {
      Attacker attacker(port, seed, tally_.file());
      bear(attacker, random);
      killed += attacker.was_killed() ? 1 : 0;
    }
    end_all();
    EXPECT_TRUE(granted_.fences_stand());
    EXPECT_TRUE(sources_.fences_stand());
    EXPECT_TRUE(targets_.fences_stand());
    EXPECT_EQ(std::memcmp(sources_.data(), source_.data(), source_.size()), 0);
    EXPECT_EQ((*tally_).leaks, 0U);
    ASSERT_NO_FATAL_FAILURE(expect_service());
  }
  RecordProperty("changes", std::to_string((*tally_).changes));
  RecordProperty("connections", std::to_string((*tally_).connections));
  RecordProperty("killed", std::to_string(killed));
  if ((*tally_).areas == 0) GTEST_SKIP() << "processes cannot share memory here";
  EXPECT_GE((*tally_).changes, 500 * seeds.size());
  EXPECT_GE((*tally_).connections, seeds.size());
}

}  // namespace
}  // namespace weft::cm
