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

static weft_completion completion_of(weft_connection* connection, weft_queue queue) {
  weft_completion completion;
  memset(&completion, 0xEE, sizeof completion);
  CHECK_IS(weft_connection_await_completions(connection, queue, &completion, sizeof completion, 1,
                                             PATIENCE_MS),
           1);
  CHECK_IS(completion.status, 0);
  return completion;
}

static void immediates_and_atomics(void) {
  struct sides sides = {0};
  weft_buffer *text = NULL, *counter = NULL;
  weft_remote_buffer remote;
  weft_completion got;
  uint64_t* value;
  CHECK_IS(establish(&sides), 0);
  CHECK_IS(weft_buffer_allocate(sides.active, 64, WEFT_LOCAL, &text), 0);
  CHECK_IS(
      weft_buffer_allocate(sides.passive, 64,
                           WEFT_REMOTE_READ | WEFT_REMOTE_WRITE | WEFT_REMOTE_ATOMIC, &counter),
      0);
  remote = weft_buffer_remote(counter);
  CHECK_IS(weft_post_send_with_immediate(sides.active, text, 0, 6, 0xABCD1234, 1, 0), 0);
  CHECK_IS(completion_of(sides.active, WEFT_SENDS).opcode, WEFT_SEND);
  got = completion_of(sides.passive, WEFT_RECEIVES);
  CHECK_IS(got.id, 7);
  CHECK_IS(got.opcode, WEFT_RECEIVE);
  CHECK_IS(got.bytes, 6);
  CHECK_IS(got.has_immediate, 1);
  CHECK_IS(got.immediate, 0xABCD1234);
  CHECK_IS(weft_post_receive(sides.passive, sides.landing, 0, 0, 8), 0);
  CHECK_IS(weft_post_receive(sides.passive, sides.landing, 0, 8, 9), 0);
  CHECK_IS(weft_post_write_with_immediate(sides.active, text, 0, 8, &remote, 16, 5, 2, 0), 0);
  CHECK_IS(weft_post_send(sides.active, text, 0, 1, 3, 0), 0);
  got = completion_of(sides.passive, WEFT_RECEIVES);
  CHECK_IS(got.opcode, WEFT_RECEIVE_OF_WRITE);
  CHECK_IS(got.immediate, 5);
  CHECK_IS(completion_of(sides.passive, WEFT_RECEIVES).has_immediate, 0);
  CHECK_IS(completion_of(sides.active, WEFT_SENDS).opcode, WEFT_WRITE);
  CHECK_IS(completion_of(sides.active, WEFT_SENDS).id, 3);

  value = weft_buffer_data(counter);
  *value = 40;
  CHECK_IS(weft_post_fetch_and_add(sides.active, text, 8, &remote, 0, 2, 4, 0), 0);
  CHECK_IS(completion_of(sides.active, WEFT_SENDS).opcode, WEFT_FETCH_AND_ADD);
  CHECK_IS(((uint64_t*)weft_buffer_data(text))[1], 40);
  CHECK_IS(weft_post_compare_and_swap(sides.active, text, 8, &remote, 0, 42, 7, 5, 0), 0);
  CHECK_IS(completion_of(sides.active, WEFT_SENDS).opcode, WEFT_COMPARE_AND_SWAP);
  CHECK_IS(((uint64_t*)weft_buffer_data(text))[1], 42);
  CHECK_IS(*value, 7);
  CHECK_IS(weft_post_fetch_and_add(sides.active, text, 60, &remote, 0, 2, 4, 0), -ERANGE);
  CHECK_IS(weft_post_fetch_and_add(sides.active, text, 8, &remote, 60, 2, 4, 0), -EMSGSIZE);
  /* An rkey that is none of a memory window cannot be invalidated. */
  CHECK_IS(weft_post_receive(sides.passive, sides.landing, 0, 8, 10), 0);
  CHECK_IS(weft_post_send_with_invalidate(sides.active, text, 0, 1, remote.rkey, 6, 0), 0);
  CHECK(outcome_of(sides.active, WEFT_SENDS).status != 0);
  weft_buffer_free(text);
  weft_buffer_free(counter);
  end(&sides);
}

/* A structure of an older release is shorter. */
static void completions_have_the_size_of_the_program(void) {
  struct sides sides = {0};
  struct {
    uint64_t id;
    int32_t status;
    int32_t opcode;
  } got[3];
  weft_buffer* text = NULL;
  memset(got, 0xEE, sizeof got);
  CHECK_IS(establish(&sides), 0);
  CHECK_IS(weft_buffer_allocate(sides.active, 64, WEFT_REMOTE_READ, &text), 0);
  CHECK_IS(weft_post_send(sides.active, text, 0, 6, 1, 0), 0);
  CHECK_IS(weft_post_send(sides.active, text, 0, 6, 2, 0), 0);
  CHECK_IS(weft_post_receive(sides.passive, sides.landing, 0, 64, 8), 0);
  CHECK_IS(weft_connection_await_completions(sides.active, WEFT_SENDS, (weft_completion*)got,
                                             sizeof got[0], 2, PATIENCE_MS),
           2);
  CHECK_IS(got[0].id, 1);
  CHECK_IS(got[1].id, 2);
  CHECK_IS(got[1].opcode, WEFT_SEND);
  CHECK_IS(got[2].id, 0xEEEEEEEEEEEEEEEE);
  weft_buffer_free(text);
  end(&sides);
}

static void structures_need_their_size(void) {
  struct sides sides = {0};
  weft_connection_options options = {0};
  weft_connection_listener* listener = NULL;
  weft_completion got;
  options.queue_depth = 8;
  CHECK_IS(weft_connection_listen(&listener, "127.0.0.1", 0, &options, 0), -EINVAL);
  CHECK_SAYS("WEFT_CONNECTION_OPTIONS");
  CHECK(listener == NULL);
  CHECK_IS(establish(&sides), 0);
  CHECK_IS(weft_connection_await_completions(sides.active, WEFT_SENDS, &got, 0, 1, 0), -EINVAL);
  CHECK_SAYS("sizeof(weft_completion)");
  end(&sides);
}

static void free_memory(void* user) {
  void** memory = user;
  memset(*memory, 0, 16);
  free(*memory);
  *memory = NULL;
}

static void a_kept_buffer_lives_until_the_request_has_completed(void) {
  struct sides sides = {0};
  weft_buffer *into = NULL, *from = NULL;
  void* memory = calloc(1, 16);
  void* unused = calloc(1, 16);
  weft_buffer* target = NULL;
  CHECK_IS(establish(&sides), 0);
  /* A receive whose buffer is freed while it is posted. */
  CHECK_IS(
      weft_buffer_register_owned(sides.active, memory, 16, WEFT_LOCAL, free_memory, &memory, &into),
      0);
  CHECK_IS(weft_post_receive_kept(sides.active, into, 0, 16, 20), 0);
  weft_buffer_free(into);
  CHECK(memory != NULL);
  CHECK_IS(weft_buffer_allocate(sides.passive, 16, WEFT_LOCAL, &from), 0);
  strcpy(weft_buffer_data(from), "kept");
  CHECK_IS(weft_post_send(sides.passive, from, 0, 5, 21, WEFT_KEEP), 0);
  weft_buffer_free(from);
  CHECK_IS(outcome_of(sides.passive, WEFT_SENDS).status, 0);
  CHECK_IS(outcome_of(sides.active, WEFT_RECEIVES).bytes, 5);
  CHECK(memory == NULL);
  /* Without a request, freeing the buffer releases the memory. */
  CHECK_IS(weft_buffer_register_owned(sides.active, unused, 16, WEFT_LOCAL, free_memory, &unused,
                                      &target),
           0);
  weft_buffer_free(target);
  CHECK(unused == NULL);
  /* What cannot be registered is not released. */
  CHECK_IS(weft_buffer_register_owned(sides.active, &sides, 0, WEFT_LOCAL, free_memory, &unused,
                                      &target),
           -EINVAL);
  end(&sides);
}

/* The connection and buffer that free_and_post() uses. */
static struct sides* posting;
static weft_buffer* posted;
static int posted_receive, posted_send;

static void free_and_post(void* user) {
  posted_receive = weft_post_receive_kept(posting->active, posted, 0, 16, 41);
  posted_send = weft_post_send(posting->active, posted, 0, 16, 42, WEFT_KEEP);
  free_memory(user);
}

static void memory_that_becomes_free_is_replaced_by_the_next_request(void) {
  struct sides sides = {0};
  weft_buffer *buffer = NULL, *peer = NULL;
  CHECK_IS(establish(&sides), 0);
  posting = &sides;
  CHECK_IS(weft_buffer_allocate(sides.active, 16, WEFT_LOCAL, &posted), 0);
  CHECK_IS(weft_buffer_allocate(sides.passive, 16, WEFT_LOCAL, &peer), 0);
  for (int receives = 0; receives < 2; ++receives) {
    void* memory = calloc(1, 16);
    const weft_queue queue = receives ? WEFT_RECEIVES : WEFT_SENDS;
    posted_receive = posted_send = 1;
    CHECK_IS(weft_buffer_register_owned(sides.active, memory, 16, WEFT_LOCAL, free_and_post,
                                        &memory, &buffer),
             0);
    if (receives) {
      CHECK_IS(weft_post_receive_kept(sides.active, buffer, 0, 16, 40), 0);
      CHECK_IS(weft_post_send(sides.passive, peer, 0, 16, 43, 0), 0);
    } else {
      CHECK_IS(weft_post_receive(sides.passive, peer, 0, 16, 44), 0);
      CHECK_IS(weft_post_send(sides.active, buffer, 0, 16, 40, WEFT_KEEP), 0);
    }
    weft_buffer_free(buffer);
    CHECK_IS(outcome_of(sides.active, queue).id, 40);
    CHECK(memory == NULL);
    CHECK_IS(posted_receive, 0);
    CHECK_IS(posted_send, 0);
    if (!receives) {
      /* The receive that was posted meanwhile is for the next turn, in front of its own. */
      CHECK_IS(weft_post_send(sides.passive, peer, 0, 16, 45, 0), 0);
      CHECK_IS(outcome_of(sides.active, WEFT_RECEIVES).id, 41);
    }
  }
  weft_buffer_free(posted);
  weft_buffer_free(peer);
  end(&sides);
}

/* Each kind of request keeps its buffer; the last one is signaled and lets all of them go. */
static void immediates_and_atomics_keep_their_buffers(void) {
  struct sides sides = {0};
  weft_buffer *from[5], *counter = NULL;
  weft_remote_buffer remote;
  void* memory[5];
  CHECK_IS(establish(&sides), 0);
  CHECK_IS(
      weft_buffer_allocate(sides.passive, 64,
                           WEFT_REMOTE_READ | WEFT_REMOTE_WRITE | WEFT_REMOTE_ATOMIC, &counter),
      0);
  remote = weft_buffer_remote(counter);
  CHECK_IS(weft_post_receive(sides.passive, sides.landing, 0, 8, 8), 0);
  for (size_t i = 0; i < 5; ++i) {
    memory[i] = calloc(1, 16);
    CHECK_IS(weft_buffer_register_owned(sides.active, memory[i], 16, WEFT_LOCAL, free_memory,
                                        &memory[i], &from[i]),
             0);
  }
  CHECK_IS(
      weft_post_send_with_immediate(sides.active, from[0], 0, 8, 1, 1, WEFT_KEEP | WEFT_UNSIGNALED),
      0);
  CHECK_IS(weft_post_write_with_immediate(sides.active, from[1], 0, 8, &remote, 8, 2, 2,
                                          WEFT_KEEP | WEFT_UNSIGNALED),
           0);
  CHECK_IS(weft_post_fetch_and_add(sides.active, from[2], 0, &remote, 0, 2, 3,
                                   WEFT_KEEP | WEFT_UNSIGNALED),
           0);
  CHECK_IS(weft_post_compare_and_swap(sides.active, from[3], 0, &remote, 0, 2, 3, 4, WEFT_KEEP), 0);
  for (size_t i = 0; i < 4; ++i) {
    weft_buffer_free(from[i]);
    CHECK(memory[i] != NULL);
  }
  CHECK_IS(outcome_of(sides.active, WEFT_SENDS).id, 4);
  for (size_t i = 0; i < 4; ++i) CHECK(memory[i] == NULL);
  CHECK_IS(*(uint64_t*)weft_buffer_data(counter), 3);
  CHECK_IS(outcome_of(sides.passive, WEFT_RECEIVES).status, 0);
  CHECK_IS(outcome_of(sides.passive, WEFT_RECEIVES).status, 0);
  /* An rkey that is none of a memory window; the buffer is let go all the same. */
  CHECK_IS(weft_post_receive(sides.passive, sides.landing, 0, 8, 9), 0);
  CHECK_IS(weft_post_send_with_invalidate(sides.active, from[4], 0, 1, remote.rkey, 6, WEFT_KEEP),
           0);
  weft_buffer_free(from[4]);
  CHECK(outcome_of(sides.active, WEFT_SENDS).status != 0);
  CHECK(memory[4] == NULL);
  weft_buffer_free(counter);
  end(&sides);
}

/* One thread, which never blocks but in poll(2), establishes both ends. */
static void establishing_without_waiting(void) {
  weft_connection_options options = WEFT_CONNECTION_OPTIONS;
  struct sides sides = {0};
  weft_connection* ends[2];
  weft_buffer* text = NULL;
  weft_remote_buffer remote;
  struct pollfd entry = {.fd = -1, .events = POLLIN};
  size_t count = 0;
  int result;
  options.advertisements = 1;
  CHECK_IS(weft_connection_listen(&sides.listener, "127.0.0.1", 0, &options, 0), 0);
  CHECK_IS(weft_connection_start_connecting(&sides.active, "127.0.0.1",
                                            weft_connection_listener_port(sides.listener), &options,
                                            "ask", 3),
           0);
  CHECK_IS(weft_connection_start_establishing(sides.active, NULL, 0), -EISCONN);
  CHECK_IS(weft_connection_establish(sides.active, NULL, 0, PATIENCE_MS), -EISCONN);
  CHECK_IS(weft_connection_disconnect(sides.active), -ENOTCONN);
  do {
    struct pollfd both[2] = {{weft_connection_listener_fd(sides.listener), POLLIN, 0},
                             {weft_connection_establishing_fd(sides.active), POLLIN, 0}};
    CHECK(poll(both, 2, PATIENCE_MS) > 0);
    CHECK_IS(weft_connection_await_established(sides.active, 0), -EAGAIN);
    result = weft_connection_next(sides.listener, &sides.passive, 0);
  } while (result == -EAGAIN);
  CHECK_IS(result, 0);
  CHECK_IS(weft_connection_await_established(sides.passive, 0), -ENOTCONN);
  CHECK_IS(weft_buffer_allocate(sides.passive, 64, WEFT_LOCAL, &sides.landing), 0);
  CHECK_IS(weft_post_receive(sides.passive, sides.landing, 0, 64, 7), 0);
  CHECK_IS(weft_connection_start_establishing(sides.passive, "answer", 6), 0);
  ends[0] = sides.active;
  ends[1] = sides.passive;
  for (int done = 0; done != 3;) {
    struct pollfd both[2] = {{-1, POLLIN, 0}, {-1, POLLIN, 0}};
    for (int i = 0; i < 2; ++i) {
      if ((done & 1 << i) == 0) both[i].fd = weft_connection_establishing_fd(ends[i]);
    }
    CHECK(poll(both, 2, PATIENCE_MS) > 0);
    for (int i = 0; i < 2; ++i) {
      result = weft_connection_await_established(ends[i], 0);
      CHECK(result == 0 || result == -EAGAIN);
      if (result == 0) done |= 1 << i;
    }
  }
  CHECK_IS(weft_connection_await_established(sides.active, 0), 0);
  CHECK_IS(weft_connection_establish(sides.active, NULL, 0, PATIENCE_MS), -EISCONN);
  CHECK_IS(weft_connection_establishing_fd(sides.active), -ENOTCONN);
  CHECK_IS(memcmp(weft_connection_peer_private_data(sides.active, &count), "answer", 6), 0);

  /* The other descriptors. */
  CHECK_IS(weft_buffer_allocate(sides.active, 64, WEFT_REMOTE_READ, &text), 0);
  CHECK_IS(weft_post_send(sides.active, text, 0, 6, 1, 0), 0);
  CHECK_IS(outcome_of(sides.passive, WEFT_RECEIVES).bytes, 6);
  entry.fd = weft_connection_advertisement_fd(sides.passive);
  CHECK_IS(weft_connection_await_advertisement(sides.passive, &remote, 0), -EAGAIN);
  CHECK_IS(weft_connection_advertise(sides.active, text, 3), 0);
  do {
    CHECK_IS(poll(&entry, 1, PATIENCE_MS), 1);
    result = weft_connection_await_advertisement(sides.passive, &remote, 0);
  } while (result == -EAGAIN);
  CHECK_IS(result, 0);
  CHECK_IS(remote.tag, 3);
  entry.fd = weft_connection_disconnect_fd(sides.passive);
  CHECK_IS(weft_connection_await_disconnect(sides.passive, 0), -EAGAIN);
  CHECK_IS(weft_connection_disconnect(sides.active), 0);
  do {
    CHECK_IS(poll(&entry, 1, PATIENCE_MS), 1);
    result = weft_connection_await_disconnect(sides.passive, 0);
  } while (result == -EAGAIN);
  CHECK_IS(result, 0);
  weft_buffer_free(text);
  end(&sides);
}

static void an_attempt_fails_or_is_abandoned(void) {
  weft_connection_listener* listener = NULL;
  weft_connection* connection = NULL;
  uint16_t port;
  CHECK_IS(weft_connection_listen(&listener, "127.0.0.1", 0, NULL, 0), 0);
  port = weft_connection_listener_port(listener);
  CHECK_IS(weft_connection_start_connecting(&connection, "127.0.0.1", port, NULL, NULL, 0), 0);
  CHECK_IS(weft_connection_await_established(connection, 1), -EAGAIN);
  weft_connection_free(connection);
  weft_connection_listener_free(listener);
  CHECK_IS(weft_connection_start_connecting(&connection, "localhost", port, NULL, NULL, 0), 0);
  CHECK_IS(weft_connection_await_established(connection, PATIENCE_MS), -ECONNREFUSED);
  CHECK(strlen(weft_error_text()) > 0);
  CHECK_IS(weft_connection_await_established(connection, 0), -ENOTCONN);
  CHECK_IS(weft_connection_start_establishing(connection, NULL, 0), -ENOTCONN);
  weft_connection_free(connection);
}

/* A buffer of one connection is sent on another one that shares its protection domain. */
static void connections_share_a_domain(void) {
  struct sides first = {0}, second = {0};
  weft_connection_options options = WEFT_CONNECTION_OPTIONS;
  weft_buffer *text = NULL, *landing = NULL;
  weft_connection *active = NULL, *passive = NULL;
  CHECK_IS(establish(&first), 0);
  CHECK_IS(weft_buffer_allocate(first.active, 64, WEFT_LOCAL, &text), 0);
  strcpy(weft_buffer_data(text), "shared");
  CHECK_IS(weft_connection_listen(&second.listener, "127.0.0.1", 0, NULL, 0), 0);
  options.domain_of = first.active;
  CHECK_IS(
      weft_connection_start_connecting(
          &active, "127.0.0.1", weft_connection_listener_port(second.listener), &options, NULL, 0),
      0);
  while (weft_connection_await_established(active, 1) == -EAGAIN) {
    if (passive == NULL && weft_connection_next(second.listener, &passive, 1) == 0) {
      CHECK_IS(weft_buffer_allocate(passive, 64, WEFT_LOCAL, &landing), 0);
      CHECK_IS(weft_post_receive(passive, landing, 0, 64, 1), 0);
      CHECK_IS(weft_connection_start_establishing(passive, NULL, 0), 0);
    }
    if (passive != NULL) (void)weft_connection_await_established(passive, 0);
  }
  CHECK_IS(weft_connection_await_established(passive, PATIENCE_MS), 0);
  CHECK_IS(weft_post_send(active, text, 0, 7, 2, 0), 0);
  CHECK_IS(outcome_of(active, WEFT_SENDS).status, 0);
  CHECK_IS(outcome_of(passive, WEFT_RECEIVES).bytes, 7);
  CHECK_IS(strcmp(weft_buffer_data(landing), "shared"), 0);
  weft_connection_free(active);
  weft_connection_free(passive);
  weft_buffer_free(text);
  weft_buffer_free(landing);
  weft_connection_listener_free(second.listener);
  end(&first);
}

/* The descriptor shows what accepting waits for, and a call with a short timeout loses no peer. */
static void a_peer_is_accepted_in_one_call(void) {
  struct sides sides = {0};
  struct pollfd entry;
  int result;
  CHECK_IS(weft_connection_listen(&sides.listener, "127.0.0.1", 0, NULL, 0), 0);
  CHECK_IS(weft_connection_accept(sides.listener, &sides.passive, NULL, 0, 0), -EAGAIN);
  CHECK_IS(weft_connection_start_connecting(&sides.active, "127.0.0.1",
                                            weft_connection_listener_port(sides.listener), NULL,
                                            "ask", 3),
           0);
  entry.fd = weft_connection_listener_fd(sides.listener);
  entry.events = POLLIN;
  do {
    /* The active side moves in its own calls. */
    result = weft_connection_await_established(sides.active, 0);
    CHECK(result == 0 || result == -EAGAIN);
    if (poll(&entry, 1, 1) == 0) continue;
    result = weft_connection_accept(sides.listener, &sides.passive, "answer", 6, 0);
    CHECK(result == 0 || result == -EAGAIN);
  } while (sides.passive == NULL);
  CHECK_IS(weft_connection_await_established(sides.active, PATIENCE_MS), 0);
  CHECK_IS(weft_connection_establish(sides.passive, NULL, 0, PATIENCE_MS), -EISCONN);
  end(&sides);
}

int main(void) {
  a_send_lands_in_a_receive();
  advertised_memory_is_written_and_read();
  the_descriptor_reports_outcomes_and_the_end_is_seen();
  a_rejection_is_refused_and_the_rest_can_only_be_freed();
  immediates_and_atomics();
  completions_have_the_size_of_the_program();
  structures_need_their_size();
  a_kept_buffer_lives_until_the_request_has_completed();
  memory_that_becomes_free_is_replaced_by_the_next_request();
  immediates_and_atomics_keep_their_buffers();
  establishing_without_waiting();
  a_peer_is_accepted_in_one_call();
  an_attempt_fails_or_is_abandoned();
  connections_share_a_domain();
  return 0;
}
