/* Connections through the C interface, both sides in one process. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

#include "check.h"

struct sides {
  weft_connection_listener* listener;
  weft_connection *active, *passive;
  weft_buffer* landing; /* of a receive that was posted before the connection was established */
  int rejects;
};

static void* serve_one(void* argument) {
  struct sides* sides = argument;
  size_t count = 0;
  CHECK_IS(weft_connection_next(sides->listener, &sides->passive, PATIENCE_MS), 0);
  CHECK_IS(memcmp(weft_connection_peer_private_data(sides->passive, &count), "ask", 3), 0);
  CHECK(count >= 3);
  if (sides->rejects) {
    CHECK_IS(weft_connection_reject(sides->passive, "no", 2), 0);
    return NULL;
  }
  CHECK_IS(weft_buffer_allocate(sides->passive, 64, WEFT_LOCAL, &sides->landing), 0);
  CHECK_IS(weft_post_receive(sides->passive, sides->landing, 0, 64, 7), 0);
  CHECK_IS(weft_connection_establish(sides->passive, "answer", 6, PATIENCE_MS), 0);
  return NULL;
}

static int establish(struct sides* sides) {
  weft_connection_options options = WEFT_CONNECTION_OPTIONS;
  pthread_t thread;
  int result;
  options.advertisements = 1;
  CHECK_IS(weft_connection_listen(&sides->listener, "127.0.0.1", 0, &options, 0), 0);
  CHECK_IS(pthread_create(&thread, NULL, serve_one, sides), 0);
  CHECK_IS(weft_connection_prepare(&sides->active, "127.0.0.1",
                                   weft_connection_listener_port(sides->listener), &options,
                                   PATIENCE_MS),
           0);
  result = weft_connection_establish(sides->active, "ask", 3, PATIENCE_MS);
  CHECK_IS(pthread_join(thread, NULL), 0);
  return result;
}

static void end(struct sides* sides) {
  weft_buffer_free(sides->landing);
  weft_connection_free(sides->active);
  weft_connection_free(sides->passive);
  weft_connection_listener_free(sides->listener);
}

static weft_outcome outcome_of(weft_connection* connection, weft_queue queue) {
  weft_outcome outcome;
  CHECK_IS(weft_connection_await(connection, queue, &outcome, 1, PATIENCE_MS), 1);
  return outcome;
}

static void a_send_lands_in_a_receive(void) {
  struct sides sides = {0};
  weft_buffer* text = NULL;
  weft_outcome outcome;
  size_t count = 0;
  CHECK_IS(establish(&sides), 0);
  CHECK_IS(memcmp(weft_connection_peer_private_data(sides.active, &count), "answer", 6), 0);
  CHECK_IS(weft_buffer_allocate(sides.active, 64, WEFT_LOCAL, &text), 0);
  strcpy(weft_buffer_data(text), "hello");
  CHECK_IS(weft_post_send(sides.active, text, 0, 6, 1, 0), 0);
  outcome = outcome_of(sides.active, WEFT_SENDS);
  CHECK_IS(outcome.id, 1);
  CHECK_IS(outcome.status, 0);
  outcome = outcome_of(sides.passive, WEFT_RECEIVES);
  CHECK_IS(outcome.id, 7);
  CHECK_IS(outcome.bytes, 6);
  CHECK_IS(strcmp(weft_buffer_data(sides.landing), "hello"), 0);
  CHECK_IS(weft_post_send(sides.active, text, 60, 6, 1, 0), -ERANGE);
  CHECK_IS(weft_post_send(sides.active, text, 0, 6, 1, 1 << 20), -EINVAL);
  weft_buffer_free(text);
  end(&sides);
}

static void advertised_memory_is_written_and_read(void) {
  struct sides sides = {0};
  weft_buffer *shared = NULL, *from = NULL;
  weft_remote_buffer remote;
  char memory[16] = {0};
  CHECK_IS(establish(&sides), 0);
  CHECK_IS(weft_buffer_register(sides.active, memory, sizeof memory,
                                WEFT_REMOTE_READ | WEFT_REMOTE_WRITE, &shared),
           0);
  CHECK_IS(weft_connection_advertise(sides.active, shared, 42), 0);
  CHECK_IS(weft_connection_await_advertisement(sides.passive, &remote, PATIENCE_MS), 0);
  CHECK_IS(remote.tag, 42);
  CHECK_IS(remote.bytes, sizeof memory);
  CHECK_IS(weft_buffer_allocate(sides.passive, 16, WEFT_LOCAL, &from), 0);
  memcpy(weft_buffer_data(from), "written", 8);
  CHECK_IS(weft_post_write(sides.passive, from, 0, 8, &remote, 4, 1, WEFT_UNSIGNALED), 0);
  CHECK_IS(weft_post_read(sides.passive, from, 8, 8, &remote, 4, 2, 0), 0);
  CHECK_IS(outcome_of(sides.passive, WEFT_SENDS).id, 2);
  CHECK_IS(memcmp(memory + 4, "written", 8), 0);
  CHECK_IS(memcmp((char*)weft_buffer_data(from) + 8, "written", 8), 0);
  CHECK_IS(weft_post_write(sides.passive, from, 0, 8, &remote, 12, 3, 0), -EMSGSIZE);
  CHECK_IS(weft_connection_await_advertisement(sides.passive, &remote, 0), -EAGAIN);
  weft_buffer_free(from);
  weft_buffer_free(shared);
  end(&sides);
}

static void the_descriptor_reports_outcomes_and_the_end_is_seen(void) {
  struct sides sides = {0};
  struct pollfd entry;
  weft_buffer* text = NULL;
  weft_outcome outcomes[4];
  CHECK_IS(establish(&sides), 0);
  entry.fd = weft_connection_fd(sides.passive, WEFT_RECEIVES);
  entry.events = POLLIN;
  CHECK_IS(weft_connection_await(sides.passive, WEFT_RECEIVES, outcomes, 4, 0), 0);
  CHECK_IS(weft_connection_await_disconnect(sides.passive, 0), -EAGAIN);
  CHECK_IS(weft_buffer_allocate(sides.active, 4, WEFT_LOCAL, &text), 0);
  CHECK_IS(weft_post_send(sides.active, text, 0, 4, 1, 0), 0);
  CHECK_IS(poll(&entry, 1, PATIENCE_MS), 1);
  CHECK_IS(weft_connection_await(sides.passive, WEFT_RECEIVES, outcomes, 1, PATIENCE_MS), 1);
  /* A receive that is posted when the connection ends is flushed. */
  CHECK_IS(weft_post_receive(sides.passive, sides.landing, 0, 4, 9), 0);
  CHECK_IS(weft_connection_disconnect(sides.active), 0);
  CHECK_IS(weft_connection_await_disconnect(sides.passive, PATIENCE_MS), 0);
  CHECK_IS(weft_connection_await(sides.passive, WEFT_RECEIVES, outcomes, 4, PATIENCE_MS), 1);
  CHECK_IS(outcomes[0].id, 9);
  CHECK(outcomes[0].status != 0);
  CHECK(strlen(weft_status_text(outcomes[0].status)) > 0);
  weft_buffer_free(text);
  end(&sides);
}

static void a_rejection_is_refused_and_the_rest_can_only_be_freed(void) {
  struct sides sides = {.rejects = 1};
  weft_buffer* buffer = NULL;
  CHECK_IS(establish(&sides), -ECONNREFUSED);
  CHECK_IS(weft_connection_establish(sides.active, NULL, 0, PATIENCE_MS), -ENOTCONN);
  CHECK_IS(weft_connection_disconnect(sides.active), -ENOTCONN);
  CHECK_IS(weft_buffer_allocate(sides.active, 64, WEFT_LOCAL, &buffer), -ENOTCONN);
  end(&sides);
}

int main(void) {
  a_send_lands_in_a_receive();
  advertised_memory_is_written_and_read();
  the_descriptor_reports_outcomes_and_the_end_is_seen();
  a_rejection_is_refused_and_the_rest_can_only_be_freed();
  return 0;
}
