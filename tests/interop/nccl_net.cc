// Two peers of a network plugin of NCCL, which moves the data of collective operations between
// hosts. They use the plugin by its table of functions, version 8, as NCCL does, with memory of the
// host.
//
//   nccl_net PLUGIN receive        prints the handle to connect to, in hexadecimal digits
//   nccl_net PLUGIN send HANDLE

#include <dlfcn.h>

#include <array>
#include <cstdarg>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "interop/need.h"

namespace {

// What version 8 of the interface defines: the order of the functions, and these sizes.
constexpr std::size_t handle_bytes = 128;
constexpr int pointer_of_host = 1;
using Logger = void (*)(int level, unsigned long flags, const char* file, int line,
                        const char* format, ...);

struct Net {
  const char* name;
  int (*init)(Logger log);
  int (*devices)(int* count);
  int (*properties)(int device, void* found);
  int (*listen)(int device, void* handle, void** listener);
  int (*connect)(int device, void* handle, void** sender, void** offloaded);
  int (*accept)(void* listener, void** receiver, void** offloaded);
  int (*register_memory)(void* connection, void* data, std::size_t bytes, int type, void** region);
  int (*register_dma_buffer)(void* connection, void* data, std::size_t bytes, int type,
                             std::uint64_t offset, int fd, void** region);
  int (*deregister_memory)(void* connection, void* region);
  int (*send)(void* sender, void* data, int bytes, int tag, void* region, void** request);
  int (*receive)(void* receiver, int count, void** data, int* bytes, int* tags, void** regions,
                 void** request);
  int (*flush)(void* receiver, int count, void** data, int* bytes, void** regions, void** request);
  int (*test)(void* request, int* done, int* bytes);
  int (*close_sender)(void* sender);
  int (*close_receiver)(void* receiver);
  int (*close_listener)(void* listener);
};

constexpr std::array<int, 6> sizes{1, 4096, 65536, 1 << 20, 4 << 20, 17};
constexpr int rounds = 8;
constexpr int tag = 42;
constexpr std::size_t most_bytes = 4 << 20;

void log(int /*level*/, unsigned long /*flags*/, const char* /*file*/, int /*line*/,
         const char* format, ...) {
  std::va_list values;
  va_start(values, format);
  std::vfprintf(stderr, format, values);
  va_end(values);
  std::fputs("\n", stderr);
}

char pattern(int round, std::size_t at) {
  return static_cast<char>(at * 131 + static_cast<std::size_t>(round));
}

Net* load(const char* path) {
  void* const library = dlopen(path, RTLD_NOW);
  if (!library) std::printf("%s\n", dlerror());
  NEED(library);
  auto* const net = static_cast<Net*>(dlsym(library, "ncclNetPlugin_v8"));
  NEED(net);
  NEED(net->init(log) == 0);
  int count = 0;
  NEED(net->devices(&count) == 0 && count > 0);
  std::printf("%s has %d devices\n", net->name, count);
  return net;
}

int await(Net& net, void* request) {
  int done = 0;
  int bytes = 0;
  while (!done) NEED(net.test(request, &done, &bytes) == 0);
  return bytes;
}

void receive(Net& net) {
  std::array<unsigned char, handle_bytes> handle{};
  void* listener = nullptr;
  NEED(net.listen(0, handle.data(), &listener) == 0);
  std::printf("handle ");
  for (const unsigned char byte : handle) std::printf("%02x", byte);
  std::printf("\n");
  void* connection = nullptr;
  void* offloaded = nullptr;
  while (!connection) NEED(net.accept(listener, &connection, &offloaded) == 0);
  std::vector<char> memory(most_bytes);
  void* region = nullptr;
  NEED(net.register_memory(connection, memory.data(), memory.size(), pointer_of_host, &region) ==
       0);
  for (int round = 0; round < rounds; ++round) {
    for (const int size : sizes) {
      void* request = nullptr;
      void* data = memory.data();
      int room = size;
      int wanted = tag;
      while (!request) {
        NEED(net.receive(connection, 1, &data, &room, &wanted, &region, &request) == 0);
      }
      NEED(await(net, request) == size);
      for (std::size_t at = 0; at < static_cast<std::size_t>(size); ++at) {
        NEED(memory[at] == pattern(round, at));
      }
    }
  }
  NEED(net.deregister_memory(connection, region) == 0);
  NEED(net.close_receiver(connection) == 0);
  NEED(net.close_listener(listener) == 0);
}

void send(Net& net, const std::string& digits) {
  std::array<unsigned char, handle_bytes> handle{};
  NEED(digits.size() == 2 * handle.size());
  for (std::size_t at = 0; at < handle.size(); ++at) {
    handle[at] = static_cast<unsigned char>(std::stoi(digits.substr(2 * at, 2), nullptr, 16));
  }
  void* connection = nullptr;
  void* offloaded = nullptr;
  while (!connection) NEED(net.connect(0, handle.data(), &connection, &offloaded) == 0);
  std::vector<char> memory(most_bytes);
  void* region = nullptr;
  NEED(net.register_memory(connection, memory.data(), memory.size(), pointer_of_host, &region) ==
       0);
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t at = 0; at < memory.size(); ++at) memory[at] = pattern(round, at);
    for (const int size : sizes) {
      void* request = nullptr;
      while (!request) {
        NEED(net.send(connection, memory.data(), size, tag, region, &request) == 0);
      }
      await(net, request);
    }
  }
  NEED(net.deregister_memory(connection, region) == 0);
  NEED(net.close_sender(connection) == 0);
}

}  // namespace

int main(int argc, char** argv) {
  NEED(argc == 3 || argc == 4);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  Net& net = *load(argv[1]);
  argc == 3 ? receive(net) : send(net, argv[3]);
  std::puts("all data is right");
  return 0;
}
