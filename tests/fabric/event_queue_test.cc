// The events that an event queue reports for endpoints.
#include <cstring>
#include <map>
#include <thread>

#include "fabric/sides.h"

namespace weft::fabric {
namespace {

class FabricEvents : public BothProtocols {};
WEFT_BOTH_PROTOCOLS(FabricEvents);

TEST_P(FabricEvents, DataGoAlongWithARequestAndItsAnswer) {
  const Info from = get_info("127.0.0.1", "0", FI_SOURCE, hints(GetParam()).get());
  Ground ground(*from);
  const auto listener = ground.listener(*from);
  const Info to = info_to(*listener, GetParam());
  const auto active = ground.endpoint(*to);
  ASSERT_EQ(fi_connect(active.get(), nullptr, "who is there", 12), 0) << "fi_info has the address";
  const Event request = ground.next();
  ASSERT_EQ(request.type, FI_CONNREQ);
  EXPECT_EQ(request.data, "who is there");
  ASSERT_NE(request.info->handle, nullptr);
  EXPECT_EQ(request.info->handle->fclass, static_cast<std::size_t>(FI_CLASS_CONNREQ));
  EXPECT_EQ(request.info->ep_attr->type, FI_EP_SOCK_STREAM);
  EXPECT_NE(request.info->dest_addr, nullptr) << "who asks";
  const auto passive = ground.endpoint(*request.info);
  ASSERT_EQ(fi_accept(passive.get(), "it is me", 8), 0);
  std::map<fid_t, std::string> told;
  for (int i = 0; i < 2; ++i) {
    const Event connected = ground.next();
    EXPECT_EQ(connected.type, FI_CONNECTED);
    told[connected.fid] = connected.data;
  }
  EXPECT_EQ(told[&active->fid], "it is me");
  EXPECT_EQ(told[&passive->fid], "");
  EXPECT_EQ(fi_accept(passive.get(), nullptr, 0), -FI_EOPBADSTATE) << "once";
  EXPECT_LT(fi_connect(active.get(), to->dest_addr, nullptr, 0), 0) << "once";
}

TEST_P(FabricEvents, ARejectionIsAnErrorWithItsData) {
  const Info from = get_info("127.0.0.1", "0", FI_SOURCE, hints(GetParam()).get());
  Ground ground(*from);
  const auto listener = ground.listener(*from);
  const Info to = info_to(*listener, GetParam());
  int mark = 0;
  const auto active = ground.endpoint(*to, &mark);
  ASSERT_EQ(fi_connect(active.get(), to->dest_addr, nullptr, 0), 0);
  const Event request = ground.next();
  ASSERT_EQ(fi_reject(listener.get(), request.info->handle, "full", 4), 0);
  EXPECT_EQ(fi_reject(listener.get(), request.info->handle, "full", 4), -FI_EINVAL) << "once";

  std::uint32_t type = 0;
  fi_eq_cm_entry entry{};
  EXPECT_EQ(fi_eq_sread(ground.events.get(), &type, &entry, sizeof entry, patience_ms, 0),
            -FI_EAVAIL);
  fi_eq_err_entry error{};
  ASSERT_EQ(fi_eq_readerr(ground.events.get(), &error, FI_PEEK), (ssize_t)sizeof error);
  error = {};
  ASSERT_EQ(fi_eq_readerr(ground.events.get(), &error, 0), (ssize_t)sizeof error);
  EXPECT_EQ(error.fid, &active->fid);
  EXPECT_EQ(error.context, &mark);
  EXPECT_EQ(error.err, FI_ECONNREFUSED);
  EXPECT_EQ(std::string(static_cast<char*>(error.err_data), error.err_data_size), "full");
  char text[100] = "";
  fi_eq_strerror(ground.events.get(), error.prov_errno, error.err_data, text, sizeof text);
  EXPECT_STREQ(text, fi_strerror(FI_ECONNREFUSED));
  EXPECT_EQ(fi_eq_readerr(ground.events.get(), &error, 0), -FI_EAGAIN);
  EXPECT_EQ(fi_eq_read(ground.events.get(), &type, &entry, sizeof entry, 0), -FI_EAGAIN);
}

TEST_P(FabricEvents, ARequestWhoseListenerGoesIsRejected) {
  const Info from = get_info("127.0.0.1", "0", FI_SOURCE, hints(GetParam()).get());
  Ground ground(*from);
  auto listener = ground.listener(*from);
  const Info to = info_to(*listener, GetParam());
  const auto active = ground.endpoint(*to);
  ASSERT_EQ(fi_connect(active.get(), nullptr, nullptr, 0), 0);
  const Event request = ground.next();
  listener.reset();
  fid_ep* opened = nullptr;
  EXPECT_EQ(fi_endpoint(ground.domain.get(), request.info.get(), &opened, nullptr), -FI_EINVAL);
  std::uint32_t type = 0;
  fi_eq_cm_entry entry{};
  EXPECT_EQ(fi_eq_sread(ground.events.get(), &type, &entry, sizeof entry, patience_ms, 0),
            -FI_EAVAIL);
}

TEST_P(FabricEvents, NobodyListeningIsAnError) {
  std::string port;
  {
    const Sides gone(GetParam());
    port = port_of(*gone.listener);
  }
  const Info to = get_info("127.0.0.1", port.c_str(), 0, hints(GetParam()).get());
  Ground ground(*to);
  const auto active = ground.endpoint(*to);
  ASSERT_EQ(fi_connect(active.get(), to->dest_addr, nullptr, 0), 0);
  std::uint32_t type = 0;
  fi_eq_cm_entry entry{};
  EXPECT_EQ(fi_eq_sread(ground.events.get(), &type, &entry, sizeof entry, patience_ms, 0),
            -FI_EAVAIL);
  fi_eq_err_entry error{};
  ASSERT_GT(fi_eq_readerr(ground.events.get(), &error, 0), 0);
  EXPECT_EQ(error.err, FI_ECONNREFUSED);
}

TEST_P(FabricEvents, EventsOfAClosedEndpointAreNotTold) {
  Sides sides(GetParam());
  ASSERT_EQ(fi_shutdown(sides.active.get(), 0), 0);
  ASSERT_TRUE(becomes_readable(fd_of(sides.ground.events->fid)));
  std::uint32_t type = 0;
  fi_eq_cm_entry entry{};
  ASSERT_GT(fi_eq_read(sides.ground.events.get(), &type, &entry, sizeof entry, FI_PEEK), 0);
  EXPECT_EQ(type, FI_SHUTDOWN);
  EXPECT_EQ(entry.fid, &sides.passive->fid);
  sides.passive.reset();
  while (fi_eq_read(sides.ground.events.get(), &type, &entry, sizeof entry, 0) > 0) {
    EXPECT_NE(entry.fid, nullptr);
    EXPECT_EQ(entry.fid, &sides.active->fid);
  }
}

// fi_close of an endpoint whose event waits, in another thread than the one that reads the queue.
// When the peer sees the end, the stream is being destroyed: the queue must have forgotten the
// endpoint by then, since it would call it. Repeated, because this takes less than a millisecond.
TEST_P(FabricEvents, AnEndpointThatIsBeingClosedHasNoEvents) {
  for (int round = 0; round < 50; ++round) {
    Sides sides(GetParam());
    fid_eq* const events = sides.ground.events.get();
    const fid_t passive = &sides.passive->fid;
    ASSERT_EQ(fi_shutdown(sides.passive.get(), 0), 0);
    ASSERT_TRUE(becomes_readable(fd_of(events->fid)));
    std::uint32_t type = 0;
    fi_eq_cm_entry entry{};
    ASSERT_GT(fi_eq_read(events, &type, &entry, sizeof entry, FI_PEEK), 0);
    ASSERT_EQ(entry.fid, &sides.active->fid);
    std::thread closer([&] { sides.active.reset(); });
    EXPECT_EQ(receive_some(*sides.passive, 1), "") << "the end";
    const ssize_t bytes = fi_eq_read(events, &type, &entry, sizeof entry, FI_PEEK);
    closer.join();
    if (bytes > 0) {
      ASSERT_EQ(entry.fid, passive) << "in round " << round;
    }
  }
}

TEST_P(FabricEvents, OneQueueServesManyEndpoints) {
  constexpr std::size_t many = 100;
  const Info from = get_info("127.0.0.1", "0", FI_SOURCE, hints(GetParam()).get());
  Ground ground(*from);
  const auto listener = ground.listener(*from);
  const Info to = info_to(*listener, GetParam());
  std::vector<Opened<fid_ep>> active;
  for (std::size_t i = 0; i < many; ++i) {
    active.push_back(ground.endpoint(*to));
    const std::string name = std::to_string(i);
    ASSERT_EQ(fi_connect(active.back().get(), nullptr, name.data(), name.size()), 0);
  }
  std::map<std::string, Opened<fid_ep>> passive;
  std::map<fid_t, int> connected;
  for (std::size_t seen = 0; seen < 3 * many; ++seen) {
    const Event event = ground.next();
    if (event.type == FI_CONNREQ) {
      auto accepted = ground.endpoint(*event.info);
      ASSERT_EQ(fi_accept(accepted.get(), nullptr, 0), 0);
      passive.emplace(event.data, std::move(accepted));
    } else {
      ASSERT_EQ(event.type, FI_CONNECTED);
      ++connected[event.fid];
    }
  }
  ASSERT_EQ(connected.size(), 2 * many);
  for (std::size_t i = 0; i < many; ++i) {
    const std::string name = std::to_string(i);
    send_all(*active[i], name);
    EXPECT_EQ(receive_some(*passive.at(name), name.size()), name);
  }
}

TEST(FabricEventQueue, TakesWhatProgramsWriteIfToldSo) {
  const Info info = get_info(nullptr, nullptr, 0, hints().get());
  const Ground ground(*info);
  fi_eq_entry written{};
  written.data = 42;
  EXPECT_EQ(fi_eq_write(ground.events.get(), FI_NOTIFY, &written, sizeof written, 0), -FI_ENOSYS);

  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_UNSPEC;
  attributes.flags = FI_WRITE;
  fid_eq* opened = nullptr;
  ASSERT_EQ(fi_eq_open(ground.fabric.get(), &attributes, &opened, nullptr), 0);
  const Opened<fid_eq> queue(opened);
  const int fd = fd_of(queue->fid);
  EXPECT_FALSE(becomes_readable(fd, 0));
  EXPECT_EQ(fi_eq_write(queue.get(), FI_NOTIFY, &written, sizeof written, 0),
            (ssize_t)sizeof written);
  EXPECT_TRUE(becomes_readable(fd));
  std::uint32_t type = 99;
  fi_eq_entry read{};
  EXPECT_EQ(fi_eq_read(queue.get(), &type, &read, 4, 0), -FI_ETOOSMALL);
  EXPECT_EQ(fi_eq_read(queue.get(), &type, &read, sizeof read, 0), (ssize_t)sizeof read);
  EXPECT_EQ(type, FI_NOTIFY);
  EXPECT_EQ(read.data, 42U);
  EXPECT_FALSE(becomes_readable(fd, 0));
  EXPECT_EQ(fi_eq_sread(queue.get(), &type, &read, sizeof read, 1, 0), -FI_EAGAIN);
}

TEST(FabricEventQueue, WithoutAWaitObjectNobodyWaits) {
  const Info info = get_info(nullptr, nullptr, 0, hints().get());
  const Ground ground(*info);
  fid_eq* opened = nullptr;
  fi_eq_attr attributes{};
  attributes.wait_obj = FI_WAIT_MUTEX_COND;
  EXPECT_EQ(fi_eq_open(ground.fabric.get(), &attributes, &opened, nullptr), -FI_ENOSYS);
  ASSERT_EQ(fi_eq_open(ground.fabric.get(), nullptr, &opened, nullptr), 0);
  const Opened<fid_eq> queue(opened);
  std::uint32_t type = 0;
  fi_eq_entry entry{};
  EXPECT_EQ(fi_eq_sread(queue.get(), &type, &entry, sizeof entry, 0, 0), -FI_ENOSYS);
  EXPECT_EQ(fi_eq_read(queue.get(), &type, &entry, sizeof entry, 0), -FI_EAGAIN);
  int fd = -1;
  EXPECT_EQ(fi_control(&queue->fid, FI_GETWAIT, &fd), -FI_ENOSYS);
}

}  // namespace
}  // namespace weft::fabric
