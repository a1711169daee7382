/* Streams through the C interface, both sides in one process. */
#define _DEFAULT_SOURCE

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

enum { MEGABYTE = 1 << 20 };

struct sides {
  weft_stream_listener* listener;
  weft_stream *active, *passive;
};

static void* accept_one(void* argument) {
  struct sides* sides = argument;
  CHECK_IS(weft_stream_accept(sides->listener, &sides->passive, PATIENCE_MS), 0);
  return NULL;
}

static struct sides connected(const weft_stream_options* options) {
  struct sides sides = {NULL, NULL, NULL};
  pthread_t thread;
  CHECK_IS(weft_stream_listen(&sides.listener, "127.0.0.1", 0, options, 0), 0);
  CHECK_IS(pthread_create(&thread, NULL, accept_one, &sides), 0);
  CHECK_IS(weft_stream_connect(&sides.active, "127.0.0.1",
                               weft_stream_listener_port(sides.listener), options, PATIENCE_MS),
           0);
  CHECK_IS(pthread_join(thread, NULL), 0);
  return sides;
}

static void end(struct sides* sides) {
  weft_stream_free(sides->active);
  weft_stream_free(sides->passive);
  weft_stream_listener_free(sides->listener);
}

static void* send_megabyte(void* argument) {
  weft_stream* stream = argument;
  unsigned char* bytes = malloc(MEGABYTE);
  CHECK(bytes != NULL);
  for (size_t i = 0; i < MEGABYTE; ++i) bytes[i] = (unsigned char)(i * 31 >> 3);
  CHECK_IS(weft_stream_send(stream, bytes, MEGABYTE, WEFT_FOREVER), MEGABYTE);
  CHECK_IS(weft_stream_finish(stream), 0);
  free(bytes);
  return NULL;
}

static void bytes_arrive_in_order_and_the_end_stays(void) {
  struct sides sides = connected(NULL);
  static unsigned char into[MEGABYTE + 1];
  size_t got = 0;
  pthread_t thread;
  CHECK_IS(pthread_create(&thread, NULL, send_megabyte, sides.active), 0);
  for (;;) {
    const ssize_t now =
        weft_stream_receive(sides.passive, into + got, sizeof into - got, PATIENCE_MS);
    CHECK(now >= 0);
    if (now == 0) break;
    got += (size_t)now;
  }
  CHECK_IS(pthread_join(thread, NULL), 0);
  CHECK_IS(got, MEGABYTE);
  for (size_t i = 0; i < MEGABYTE; ++i) CHECK_IS(into[i], (unsigned char)(i * 31 >> 3));
  CHECK_IS(weft_stream_receive(sides.passive, into, 1, PATIENCE_MS), 0);
  CHECK_IS(weft_stream_receive(sides.passive, into, 1, 0), 0);
  /* The other direction is still open. */
  CHECK_IS(weft_stream_send(sides.passive, "yes", 3, PATIENCE_MS), 3);
  CHECK_IS(weft_stream_receive(sides.active, into, 3, PATIENCE_MS), 3);
  CHECK_IS(memcmp(into, "yes", 3), 0);
  CHECK_IS(weft_stream_close(sides.active, PATIENCE_MS), 0);
  end(&sides);
}

static void views_need_no_copy(void) {
  struct sides sides = connected(NULL);
  const void* bytes = NULL;
  const void* again = NULL;
  CHECK_IS(weft_stream_view(sides.passive, &bytes, 0), -EAGAIN);
  CHECK_IS(weft_stream_send(sides.active, "one two", 7, PATIENCE_MS), 7);
  CHECK_IS(weft_stream_view(sides.passive, &bytes, PATIENCE_MS), 7);
  CHECK_IS(memcmp(bytes, "one two", 7), 0);
  CHECK_IS(weft_stream_consume(sides.passive, 8), -EINVAL);
  CHECK_IS(weft_stream_consume(sides.passive, 4), 0);
  CHECK_IS(weft_stream_view(sides.passive, &again, 0), 3);
  CHECK(again == (const char*)bytes + 4);
  CHECK_IS(weft_stream_consume(sides.passive, 3), 0);
  CHECK_IS(weft_stream_finish(sides.active), 0);
  CHECK_IS(weft_stream_view(sides.passive, &bytes, PATIENCE_MS), 0);
  end(&sides);
}

static void a_descriptor_reports_room_only(void) {
  weft_stream_options options = WEFT_STREAM_OPTIONS;
  options.send_buffer_bytes = options.receive_buffer_bytes = 4096;
  struct sides sides = connected(&options);
  static char bytes[1 << 16];
  struct pollfd entry = {weft_stream_send_fd(sides.active), POLLIN, 0};
  CHECK(entry.fd >= 0);
  CHECK(weft_stream_send(sides.active, bytes, sizeof bytes, 0) < (ssize_t)sizeof bytes);
  CHECK_IS(weft_stream_send(sides.passive, "x", 1, PATIENCE_MS), 1);
  while (weft_stream_send(sides.active, bytes, sizeof bytes, 0) > 0) continue;
  CHECK_IS(poll(&entry, 1, 0), 0); /* although a byte can be received */
  /* Room comes back when enough of the bytes was received, which may still be on their way. */
  while (poll(&entry, 1, 0) == 0) {
    const ssize_t got = weft_stream_receive(sides.passive, bytes, sizeof bytes, 10);
    CHECK(got > 0 || got == -EAGAIN);
  }
  CHECK(weft_stream_send(sides.active, bytes, 1, 0) == 1);
  end(&sides);
}

static void descriptors_are_readable_when_something_can_be_received(void) {
  struct sides sides = connected(NULL);
  struct pollfd entry = {weft_stream_fd(sides.passive), POLLIN, 0};
  char byte = 0;
  CHECK(entry.fd >= 0);
  CHECK_IS(weft_stream_receive(sides.passive, &byte, 1, 0), -EAGAIN);
  CHECK(strlen(weft_error_text()) > 0);
  CHECK_IS(weft_stream_send(sides.active, "x", 1, PATIENCE_MS), 1);
  CHECK_IS(poll(&entry, 1, PATIENCE_MS), 1);
  CHECK_IS(weft_stream_available(sides.passive), 1);
  CHECK_IS(weft_stream_receive(sides.passive, &byte, 1, 0), 1);
  CHECK_IS(byte, 'x');
  end(&sides);
}

static void an_abort_is_a_reset_at_the_peer(void) {
  struct sides sides = connected(NULL);
  char byte = 0;
  CHECK_IS(weft_stream_abort(sides.active), 0);
  CHECK_IS(weft_stream_receive(sides.passive, &byte, 1, PATIENCE_MS), -ECONNRESET);
  CHECK(strstr(weft_error_text(), "127.0.0.1:") != NULL);
  end(&sides);
}

static void options_addresses_and_private_data_reach_the_other_side(void) {
  weft_stream_options options = WEFT_STREAM_OPTIONS;
  struct sides sides;
  char local[64], peer[64], cut[4];
  size_t count = 0;
  options.private_data = "hello";
  options.private_data_bytes = 5;
  options.keepalive_idle_ms = 60000;
  options.send_buffer_bytes = 4096;
  sides = connected(&options);
  CHECK_IS(memcmp(weft_stream_peer_private_data(sides.passive, &count), "hello", 5), 0);
  CHECK(count >= 5);
  CHECK(weft_stream_local_address(sides.active, local, sizeof local) > 0);
  CHECK(weft_stream_peer_address(sides.passive, peer, sizeof peer) > 0);
  CHECK_IS(strcmp(local, peer), 0);
  CHECK_IS(weft_stream_local_address(sides.active, cut, sizeof cut), strlen(local));
  CHECK_IS(strlen(cut), sizeof cut - 1);
  end(&sides);
}

static void failures_have_a_number_and_a_sentence(void) {
  weft_stream_options options = WEFT_STREAM_OPTIONS;
  weft_stream_listener* listener = NULL;
  weft_stream* stream = NULL;
  uint16_t port;
  CHECK_IS(weft_stream_listen(&listener, "127.0.0.1", 0, NULL, 0), 0);
  CHECK_IS(weft_stream_accept(listener, &stream, 0), -EAGAIN);
  port = weft_stream_listener_port(listener);
  weft_stream_listener_free(listener);
  CHECK_IS(weft_stream_connect(&stream, "127.0.0.1", port, NULL, PATIENCE_MS), -ECONNREFUSED);
  CHECK(strlen(weft_error_text()) > 0);
  CHECK(stream == NULL);
  options.send_buffer_bytes = UINT32_MAX;
  CHECK_IS(weft_stream_connect(&stream, "127.0.0.1", port, &options, PATIENCE_MS), -EINVAL);
  weft_stream_free(NULL);
}

static void structures_need_their_size(void) {
  weft_stream_options options = {0};
  weft_stream_statistics statistics = {0};
  weft_stream_event event = {0};
  weft_stream_events* events = NULL;
  weft_stream_listener* listener = NULL;
  struct sides sides = connected(NULL);
  options.send_queue = 8;
  CHECK_IS(weft_stream_listen(&listener, "127.0.0.1", 0, &options, 0), -EINVAL);
  CHECK_SAYS("WEFT_STREAM_OPTIONS");
  CHECK(listener == NULL);
  /* As memory that was never initialized. */
  options.size = SIZE_MAX / 2;
  CHECK_IS(weft_stream_listen(&listener, "127.0.0.1", 0, &options, 0), -EINVAL);
  CHECK_IS(weft_stream_get_statistics(sides.active, &statistics), -EINVAL);
  CHECK_SAYS("WEFT_STREAM_STATISTICS");
  CHECK_IS(weft_stream_events_new(&events), 0);
  CHECK_IS(weft_stream_events_next(events, &event, 0), -EINVAL);
  CHECK_SAYS("WEFT_STREAM_EVENT");
  weft_stream_events_free(events);
  end(&sides);
}

static void connecting_without_waiting(void) {
  weft_stream_listener* listener = NULL;
  weft_stream *active = NULL, *passive = NULL;
  CHECK_IS(weft_stream_listen(&listener, NULL, 0, NULL, 0), 0);
  CHECK_IS(
      weft_stream_start_connecting(&active, "127.0.0.1", weft_stream_listener_port(listener), NULL),
      0);
  CHECK_IS(weft_stream_accept(listener, &passive, PATIENCE_MS), 0);
  CHECK_IS(weft_stream_await_connected(active, PATIENCE_MS), 0);
  weft_stream_free(active);
  weft_stream_free(passive);
  weft_stream_listener_free(listener);
}

/* A listener that never waits gets each peer, by its descriptor alone. */
static void accepting_without_waiting(void) {
  weft_stream_listener* listener = NULL;
  weft_stream *active = NULL, *passive = NULL;
  struct pollfd entry = {.fd = -1, .events = POLLIN};
  int result = 0;
  CHECK_IS(weft_stream_listen(&listener, "127.0.0.1", 0, NULL, 0), 0);
  entry.fd = weft_stream_listener_fd(listener);
  for (int turn = 0; turn < 20; ++turn) {
    CHECK_IS(weft_stream_accept(listener, &passive, 0), -EAGAIN);
    CHECK_IS(weft_stream_start_connecting(&active, "127.0.0.1", weft_stream_listener_port(listener),
                                          NULL),
             0);
    do {
      CHECK_IS(poll(&entry, 1, PATIENCE_MS), 1);
      result = weft_stream_accept(listener, &passive, 0);
    } while (result == -EAGAIN);
    CHECK_IS(result, 0);
    CHECK_IS(weft_stream_await_connected(active, PATIENCE_MS), 0);
    CHECK_IS(weft_stream_abort(active), 0);
    weft_stream_free(active);
    weft_stream_free(passive);
  }
  weft_stream_listener_free(listener);
}

#ifndef WITH_SANITIZED_LIBRARY /* the runtime of AddressSanitizer needs descriptors itself */
/* A caller that waits must not wait for other peers, which could not be accepted either. */
static void accepting_without_descriptors(void) {
  enum { FEW = 256 };
  struct sides sides = {NULL, NULL, NULL};
  struct rlimit usual, few;
  struct pollfd entry = {.events = POLLIN};
  int taken[FEW], count = 0;
  CHECK_IS(weft_stream_listen(&sides.listener, "127.0.0.1", 0, NULL, 0), 0);
  CHECK_IS(weft_stream_start_connecting(&sides.active, "127.0.0.1",
                                        weft_stream_listener_port(sides.listener), NULL),
           0);
  entry.fd = weft_stream_listener_fd(sides.listener);
  CHECK_IS(poll(&entry, 1, PATIENCE_MS), 1);
  CHECK_IS(getrlimit(RLIMIT_NOFILE, &usual), 0);
  few = usual;
  few.rlim_cur = FEW;
  CHECK_IS(setrlimit(RLIMIT_NOFILE, &few), 0);
  while ((taken[count] = dup(entry.fd)) >= 0) ++count;
  CHECK_IS(weft_stream_accept(sides.listener, &sides.passive, PATIENCE_MS), -EMFILE);
  while (count > 0) close(taken[--count]);
  CHECK_IS(setrlimit(RLIMIT_NOFILE, &usual), 0);
  CHECK_IS(weft_stream_await_connected(sides.active, PATIENCE_MS), -ECONNREFUSED);
  end(&sides);
  sides = connected(NULL);
  end(&sides);
}
#endif

static void a_request_is_accepted_or_rejected(void) {
  weft_stream_options options = WEFT_STREAM_OPTIONS;
  weft_stream_statistics statistics = WEFT_STREAM_STATISTICS;
  struct {
    size_t size;
    uint64_t bytes_sent;
    uint64_t other;
  } brief = {16, 0, 77};
  weft_stream_listener* listener = NULL;
  weft_stream_request* request = NULL;
  weft_stream *active = NULL, *passive = NULL;
  size_t count = 0;
  char address[64];
  options.send_queue = 8;
  options.receive_queue = 8;
  options.spin_us = -1;
  options.linger_ms = 100;
  CHECK_IS(weft_stream_listen(&listener, "127.0.0.1", 0, NULL, 0), 0);
  CHECK_IS(weft_stream_next(listener, &request, 0), -EAGAIN);
  for (int accepts = 0; accepts < 2; ++accepts) {
    options.private_data = "ask";
    options.private_data_bytes = 3;
    CHECK_IS(weft_stream_start_connecting(&active, "127.0.0.1", weft_stream_listener_port(listener),
                                          &options),
             0);
    CHECK_IS(weft_stream_next(listener, &request, PATIENCE_MS), 0);
    CHECK_IS(memcmp(weft_stream_request_private_data(request, &count), "ask", 3), 0);
    CHECK_IS(count, 3);
    CHECK(weft_stream_request_peer_address(request, address, sizeof address) > 0);
    if (!accepts) {
      CHECK_IS(weft_stream_request_reject(request, "no", 2), 0);
      CHECK_IS(weft_stream_await_connected(active, PATIENCE_MS), -ECONNREFUSED);
      weft_stream_free(active);
      continue;
    }
    options.private_data = "answer";
    options.private_data_bytes = 6;
    CHECK_IS(weft_stream_request_accept(request, &passive, &options), 0);
    CHECK_IS(weft_stream_await_connected(active, PATIENCE_MS), 0);
    CHECK_IS(weft_stream_await_connected(passive, PATIENCE_MS), 0);
    CHECK_IS(memcmp(weft_stream_peer_private_data(active, &count), "answer", 6), 0);
    CHECK_IS(weft_stream_send(active, "hello", 5, PATIENCE_MS), 5);
    CHECK_IS(weft_stream_receive(passive, address, 5, PATIENCE_MS), 5);
    CHECK_IS(weft_stream_get_statistics(active, &statistics), 0);
    CHECK_IS(statistics.size, sizeof statistics);
    CHECK_IS(statistics.bytes_sent, 5);
    CHECK_IS(weft_stream_get_statistics(active, (weft_stream_statistics*)&brief), 0);
    CHECK_IS(brief.bytes_sent, 5);
    CHECK_IS(brief.other, 77);
    weft_stream_free(active);
    weft_stream_free(passive);
  }
  weft_stream_listener_free(listener);
}

static void receives_peek_and_wait_for_all(void) {
  struct sides sides = connected(NULL);
  char into[8] = {0};
  CHECK_IS(weft_stream_send(sides.active, "ab", 2, PATIENCE_MS), 2);
  CHECK_IS(weft_stream_receive_with(sides.passive, into, 8, WEFT_STREAM_PEEK, PATIENCE_MS), 2);
  CHECK_IS(weft_stream_receive_with(sides.passive, into, 8, 4, 0), -EINVAL);
  CHECK_IS(weft_stream_send(sides.active, "cd", 2, PATIENCE_MS), 2);
  CHECK_IS(weft_stream_receive_with(sides.passive, into, 4, WEFT_STREAM_WAIT_ALL, PATIENCE_MS), 4);
  CHECK_IS(memcmp(into, "abcd", 4), 0);
  end(&sides);
}

static void registered_memory_is_sent_without_a_copy(void) {
  struct sides sides = connected(NULL);
  char memory[16] = "registered";
  char into[16];
  weft_buffer* buffer = NULL;
  CHECK_IS(weft_stream_register(sides.active, memory, sizeof memory, &buffer), 0);
  CHECK_IS(weft_stream_send_registered(sides.active, buffer, 2, 8, PATIENCE_MS), 8);
  memset(memory, 0, sizeof memory);
  CHECK_IS(weft_stream_receive_with(sides.passive, into, 8, WEFT_STREAM_WAIT_ALL, PATIENCE_MS), 8);
  CHECK_IS(memcmp(into, "gistered", 8), 0);
  CHECK_IS(weft_stream_send_registered(sides.active, buffer, 2, 15, 0), -ERANGE);
  weft_buffer_free(buffer);
  end(&sides);
}

/* A request has a size of 32 bits: the beginning of a longer part is sent. */
static void a_part_may_be_longer_than_a_request(void) {
  const uint64_t size = (uint64_t)5 << 30;
  struct sides sides;
  weft_buffer* buffer = NULL;
  void* memory;
  ssize_t sent;
  if (size > SIZE_MAX) return;
  sides = connected(NULL);
  memory = mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK_IS(weft_stream_register(sides.active, memory, (size_t)size, &buffer), 0);
  sent = weft_stream_send_registered(sides.active, buffer, 0, (size_t)size, 0);
  CHECK(sent > 0 && (uint64_t)sent < size);
  CHECK_IS(weft_stream_send_registered(sides.active, buffer, 1, (size_t)size, 0), -ERANGE);
  CHECK_IS(weft_stream_abort(sides.active), 0);
  end(&sides);
  weft_buffer_free(buffer);
  CHECK_IS(munmap(memory, (size_t)size), 0);
}

static void the_peer_writes_to_a_mapped_buffer(void) {
  weft_stream_options options = WEFT_STREAM_OPTIONS;
  struct sides sides;
  char memory[2][16] = {{0}, {0}};
  char byte;
  int64_t offset;
  options.mapped_buffers = 2;
  options.variant = WEFT_STREAM_WRITE_AND_SEND;
  sides = connected(&options);
  CHECK_IS(weft_stream_map(sides.passive, memory[0], 16, 4096, PATIENCE_MS), 4096);
  offset = weft_stream_map(sides.passive, memory[1], 16, -1, PATIENCE_MS);
  CHECK(offset >= 0);
  CHECK_IS(weft_stream_map(sides.passive, &byte, 1, -1, PATIENCE_MS), -ENOBUFS);
  CHECK_IS(weft_stream_map(sides.passive, &byte, 1, -2, PATIENCE_MS), -EINVAL);
  /* The peer knows of them when it has received what was sent behind. */
  CHECK_IS(weft_stream_send(sides.passive, "!", 1, PATIENCE_MS), 1);
  CHECK_IS(weft_stream_receive(sides.active, &byte, 1, PATIENCE_MS), 1);
  CHECK_IS(weft_stream_write_mapped(sides.active, "mapped", 6, 4098, PATIENCE_MS), 6);
  CHECK_IS(weft_stream_write_mapped(sides.active, "too", 3, (uint64_t)offset, PATIENCE_MS), 3);
  CHECK_IS(weft_stream_write_mapped(sides.active, "beyond", 6, 4096 + 12, 0), -EFAULT);
  /* What is sent behind it arrives behind it. */
  CHECK_IS(weft_stream_send(sides.active, "x", 1, PATIENCE_MS), 1);
  CHECK_IS(weft_stream_receive(sides.passive, &byte, 1, PATIENCE_MS), 1);
  CHECK_IS(memcmp(memory[0] + 2, "mapped", 6), 0);
  CHECK_IS(memcmp(memory[1], "too", 3), 0);
  CHECK_IS(weft_stream_unmap(sides.passive, memory[0], 8, PATIENCE_MS), -EINVAL);
  CHECK_IS(weft_stream_unmap(sides.passive, memory[0], 16, PATIENCE_MS), 0);
  CHECK_IS(weft_stream_send(sides.passive, "y", 1, PATIENCE_MS), 1);
  CHECK_IS(weft_stream_receive(sides.active, &byte, 1, PATIENCE_MS), 1);
  CHECK_IS(weft_stream_write_mapped(sides.active, "gone", 4, 4096, PATIENCE_MS), -EFAULT);
  end(&sides);
  options.variant = 3;
  CHECK_IS(weft_stream_start_connecting(&sides.active, "127.0.0.1", 1, &options), -EINVAL);
  options.variant = 0;
  options.mapped_buffers = 256;
  CHECK_IS(weft_stream_start_connecting(&sides.active, "127.0.0.1", 1, &options), -EINVAL);
}

static weft_stream_event next_of(weft_stream_events* events) {
  weft_stream_event event = WEFT_STREAM_EVENT;
  struct pollfd entry = {weft_stream_events_fd(events), POLLIN, 0};
  CHECK_IS(poll(&entry, 1, PATIENCE_MS), 1);
  CHECK_IS(weft_stream_events_next(events, &event, 0), 0);
  return event;
}

/* One queue and one thread for a listener and two ends of a stream. */
static void one_queue_has_the_events_of_listeners_and_streams(void) {
  weft_stream_options options = WEFT_STREAM_OPTIONS;
  weft_stream_listener *listener = NULL, *other = NULL;
  weft_stream *active = NULL, *passive = NULL;
  weft_stream_events* events = NULL;
  weft_stream_event event = WEFT_STREAM_EVENT;
  uint16_t port;
  size_t count = 0;
  int seen = 0;
  CHECK_IS(weft_stream_events_new(&events), 0);
  CHECK_IS(weft_stream_events_next(events, &event, 0), -EAGAIN);
  options.private_data = "first";
  options.private_data_bytes = 5;
  CHECK_IS(weft_stream_listen(&listener, "127.0.0.1", 0, &options, 0), 0);
  options.private_data = "other";
  CHECK_IS(weft_stream_listen(&other, "127.0.0.1", 0, &options, 0), 0);
  /* Listeners may have the same cookie. */
  CHECK_IS(weft_stream_listener_attach(listener, events, 7), 0);
  CHECK_IS(weft_stream_listener_attach(other, events, 7), 0);
  CHECK_IS(
      weft_stream_start_connecting(&active, "127.0.0.1", weft_stream_listener_port(other), NULL),
      0);
  CHECK_IS(weft_stream_attach(active, events, 1), 0);
  event = next_of(events);
  CHECK_IS(event.size, sizeof event);
  CHECK_IS(event.type, WEFT_STREAM_CONNECT_REQUEST);
  CHECK_IS(event.cookie, 7);
  CHECK(event.request != NULL);
  CHECK_IS(weft_stream_request_accept(event.request, &passive, NULL), 0);
  CHECK_IS(weft_stream_attach(passive, events, 2), 0);
  while (seen != 3) {
    event = next_of(events);
    CHECK_IS(event.type, WEFT_STREAM_CONNECTED);
    CHECK(event.request == NULL);
    seen |= (int)event.cookie;
  }
  CHECK_IS(memcmp(weft_stream_peer_private_data(active, &count), "other", 5), 0);
  CHECK_IS(weft_stream_finish(active), 0);
  event = next_of(events);
  CHECK_IS(event.type, WEFT_STREAM_SHUTDOWN);
  CHECK_IS(event.cookie, 2);
  CHECK_IS(event.error_number, 0);
  weft_stream_free(active);
  weft_stream_free(passive);
  while (weft_stream_events_next(events, &event, 0) == 0)
    CHECK_IS(event.type, WEFT_STREAM_SHUTDOWN);

  /* A request that is in the queue outlives its listener. */
  port = weft_stream_listener_port(listener);
  CHECK_IS(weft_stream_start_connecting(&active, "127.0.0.1", port, NULL), 0);
  CHECK_IS(poll(&(struct pollfd){weft_stream_events_fd(events), POLLIN, 0}, 1, PATIENCE_MS), 1);
  weft_stream_listener_free(listener);
  event = next_of(events);
  CHECK_IS(event.cookie, 7);
  CHECK_IS(weft_stream_request_accept(event.request, &passive, NULL), 0);
  CHECK_IS(weft_stream_await_connected(active, PATIENCE_MS), 0);
  CHECK_IS(memcmp(weft_stream_peer_private_data(active, &count), "first", 5), 0);
  CHECK_IS(weft_stream_events_next(events, &event, 0), -EAGAIN);
  weft_stream_free(active);
  weft_stream_free(passive);

  /* Nothing listens there any more. */
  CHECK_IS(weft_stream_start_connecting(&active, "127.0.0.1", port, NULL), 0);
  CHECK_IS(weft_stream_attach(active, events, 3), 0);
  event = next_of(events);
  CHECK_IS(event.type, WEFT_STREAM_FAILED);
  CHECK_IS(event.error_number, ECONNREFUSED);
  weft_stream_free(active);

  /* A listener that is detached is used as before. */
  CHECK_IS(weft_stream_listener_attach(other, NULL, 0), 0);
  CHECK_IS(
      weft_stream_start_connecting(&active, "127.0.0.1", weft_stream_listener_port(other), NULL),
      0);
  CHECK_IS(weft_stream_accept(other, &passive, PATIENCE_MS), 0);
  CHECK_IS(weft_stream_listener_attach(other, events, 0), 0);
  weft_stream_events_free(events);
  weft_stream_free(active);
  weft_stream_free(passive);
  weft_stream_listener_free(other);
}

int main(void) {
  CHECK(weft_version()[0] != '\0');
  bytes_arrive_in_order_and_the_end_stays();
  views_need_no_copy();
  a_descriptor_reports_room_only();
  descriptors_are_readable_when_something_can_be_received();
  an_abort_is_a_reset_at_the_peer();
  options_addresses_and_private_data_reach_the_other_side();
  failures_have_a_number_and_a_sentence();
  structures_need_their_size();
  connecting_without_waiting();
  accepting_without_waiting();
#ifndef WITH_SANITIZED_LIBRARY
  accepting_without_descriptors();
#endif
  a_request_is_accepted_or_rejected();
  receives_peek_and_wait_for_all();
  registered_memory_is_sent_without_a_copy();
  a_part_may_be_longer_than_a_request();
  the_peer_writes_to_a_mapped_buffer();
  one_queue_has_the_events_of_listeners_and_streams();
  return 0;
}
