// One direction of a simulated connection: order, times, and bytes across the end of the ring.
#include "simulation/pipe.h"

#include <gtest/gtest.h>

#include <string>

namespace weft::simulation {
namespace {

void send(Pipe& pipe, std::string text, Time due) {
  const iovec piece{text.data(), text.size()};
  pipe.send({&piece, 1}, text.size(), due);
}

std::string receive(Pipe& pipe, std::size_t most, Time now) {
  std::string text(most, '\0');
  const iovec piece{text.data(), text.size()};
  text.resize(pipe.receive({&piece, 1}, now));
  return text;
}

TEST(SimulatedPipe, BytesArriveAtTheirTimeAndInOrder) {
  Pipe pipe;
  send(pipe, "one", 10);
  send(pipe, "two", 5);  // behind the first ones
  EXPECT_FALSE(pipe.has_bytes(9));
  EXPECT_EQ(receive(pipe, 10, 9), "");
  EXPECT_EQ(pipe.last_due(), 10U);
  EXPECT_EQ(receive(pipe, 4, 10), "onet");
  EXPECT_EQ(receive(pipe, 4, 10), "wo");
}

TEST(SimulatedPipe, BytesCrossTheEndOfTheRing) {
  Pipe pipe;
  std::string sent;
  std::string got;
  for (int i = 0; i < 100; ++i) {
    const std::string part(1000 + static_cast<std::size_t>(i), static_cast<char>('a' + i % 26));
    sent += part;
    send(pipe, part, 1);
    got += receive(pipe, 1037, 1);
  }
  while (pipe.has_bytes(1)) got += receive(pipe, 4096, 1);
  EXPECT_EQ(got, sent);
  EXPECT_EQ(pipe.room(), Pipe::window_bytes);
}

TEST(SimulatedPipe, TheEndComesBehindTheBytes) {
  Pipe pipe;
  send(pipe, "last", 10);
  pipe.end(3);
  EXPECT_FALSE(pipe.ended(10)) << "not before the bytes are read";
  EXPECT_EQ(receive(pipe, 10, 10), "last");
  EXPECT_TRUE(pipe.ended(10));
}

TEST(SimulatedPipe, WhatIsHeldArrivesAfterTheRelease) {
  Pipe pipe;
  send(pipe, "a", 10);
  send(pipe, "b", 20);
  pipe.hold(15);
  send(pipe, "c", never);
  pipe.end(never);
  EXPECT_EQ(receive(pipe, 10, 1000), "a");
  pipe.release(2000);
  EXPECT_FALSE(pipe.has_bytes(1999));
  EXPECT_EQ(receive(pipe, 10, 2000), "bc");
  EXPECT_TRUE(pipe.ended(2000));
}

TEST(SimulatedPipe, AClosedReceiverHasOnlyWhatHadArrived) {
  Pipe pipe;
  send(pipe, "a", 10);
  send(pipe, "b", 20);
  pipe.close(15);
  EXPECT_EQ(pipe.arrived(100), 1U);
}

}  // namespace
}  // namespace weft::simulation
