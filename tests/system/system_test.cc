// Which backend a program gets: WEFT_BACKEND, WEFT_REQUIRE and their counterparts in the API. Each
// case is a process of its own, as the libraries are loaded once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "weft/verbs.hpp"

namespace weft::verbs {
namespace {

using Body = std::string (*)();

std::string say_backend() {
  const BackendChoice choice = choose_backend();
  return std::string(to_string(choice.backend)) + ": " + choice.reason;
}

std::string say_devices() {
  std::string names;
  for (const Device& device : devices()) {
    names += device.name() + " of " + std::string(to_string(device.backend())) + "\n";
  }
  return names;
}

std::string insist_on_the_system() {
  require_backend(Backend::system);
  return "granted";
}

std::string ask_for_counters() {
  (void)devices().at(0).open().create_completion_queue(4).counters();
  return "counted";
}

constexpr struct {
  const char* name;
  Body body;
} bodies[] = {{"backend", say_backend},
              {"devices", say_devices},
              {"insist", insist_on_the_system},
              {"counters", ask_for_counters}};

int run_body(const std::string& wanted) {
  for (const auto& entry : bodies) {
    if (wanted != entry.name) continue;
    try {
      std::printf("%s", entry.body().c_str());
    } catch (const Error& error) {
      std::printf("%d %s", error.error_number(), error.what());
    }
    return 0;
  }
  return 2;
}

// What a body returns, or the Error that it throws, in a child with this environment. The loader
// reads LD_LIBRARY_PATH when a program starts, so the child is this program once more.
std::string in_child(const std::string& environment, const std::string& body) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  FILE* child =
      popen(("env " + environment + " SYSTEM_TEST_BODY=" + body + " " + self).c_str(), "r");
  std::string said;
  for (int c = fgetc(child); c != EOF; c = fgetc(child)) said += static_cast<char>(c);
  EXPECT_EQ(pclose(child), 0);
  return said;
}

const std::string stand_in = "LD_LIBRARY_PATH=" STAND_IN_DIRECTORY " ";
const std::string dropin = "LD_LIBRARY_PATH=" DROPIN_DIRECTORY " ";

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(SystemBackend, ListsTheSystemsDevices) {
  EXPECT_EQ(in_child(stand_in + "WEFT_BACKEND=system WEFT_QUIET=1", "devices"),
            "weft0 of system\n");
}

TEST(SystemBackend, IsTakenAutomaticallyWhereAPortIsActive) {
  const std::string said = in_child(stand_in + "WEFT_BACKEND=auto WEFT_QUIET=1", "backend");
  EXPECT_EQ(said, "system: the port of weft0 is active");
}

TEST(SystemBackend, IsNotTheDefault) {
  EXPECT_THAT(in_child(stand_in, "backend"), StartsWith("embedded: "));
}

TEST(SystemBackend, HasNoCountersOfObjects) {
  const std::string said = in_child(stand_in + "WEFT_BACKEND=system WEFT_QUIET=1", "counters");
  EXPECT_THAT(said, StartsWith(std::to_string(EOPNOTSUPP) + " cannot read"));
}

TEST(SystemBackend, RefusesTheDropin) {
  const std::string said = in_child(dropin + "WEFT_BACKEND=system", "backend");
  EXPECT_THAT(said, HasSubstr("is Weft's drop-in (" DROPIN_DIRECTORY));
  EXPECT_THAT(in_child(dropin + "WEFT_BACKEND=auto WEFT_QUIET=1", "backend"),
              StartsWith("embedded: libibverbs.so.1 is Weft's drop-in"));
}

TEST(SystemBackend, ARequirementNamesTheCauseWhenItFails) {
  EXPECT_THAT(in_child(stand_in + "WEFT_REQUIRE=system", "devices"),
              HasSubstr("WEFT_REQUIRE=system, but the backend is embedded"));
  EXPECT_THAT(in_child(stand_in + "WEFT_REQUIRE=embedded WEFT_BACKEND=system", "devices"),
              HasSubstr("WEFT_REQUIRE=embedded, but the backend is system"));
  EXPECT_THAT(in_child(stand_in + "WEFT_REQUIRE=both", "devices"), HasSubstr("must be"));
  EXPECT_EQ(in_child(stand_in + "WEFT_REQUIRE=system WEFT_BACKEND=system", "insist"), "granted");
  EXPECT_THAT(in_child(stand_in, "insist"), HasSubstr("the program requires system"));
}

}  // namespace
}  // namespace weft::verbs

int main(int argc, char** argv) {
  if (const char* body = std::getenv("SYSTEM_TEST_BODY")) return weft::verbs::run_body(body);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
