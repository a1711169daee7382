/* Messages through the C interface: two links of one loop. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "check.h"

struct record {
  weft_loop* loop;
  weft_link *active, *passive;
  int established, messages, sent, delivered, failed, ended, errors, posted;
  int error_number;
  weft_ending by;
  uint64_t last_number;
  char text[64];
  int free_in_message; /* free the passive link in its callback */
  int keep;            /* keep the memory of messages */
  weft_message_buffer* kept;
};

static void on_established(weft_link* link, void* user) {
  struct record* record = user;
  CHECK(link != NULL);
  ++record->established;
}

static void on_message(weft_link* link, const weft_message* message, void* user) {
  struct record* record = user;
  ++record->messages;
  CHECK_IS(link == record->passive, 1);
  CHECK_IS(message->type, 3);
  CHECK_IS(message->tag, 99);
  CHECK(message->count < sizeof record->text);
  memcpy(record->text, message->bytes, message->count);
  record->text[message->count] = '\0';
  if (record->keep) {
    weft_message_buffer* again = NULL;
    CHECK_IS(weft_message_keep(message, &record->kept), 0);
    CHECK_IS(weft_message_keep(message, &again), -EALREADY);
  }
  if (record->free_in_message) {
    record->passive = NULL;
    weft_link_free(link);
  }
}

static void on_sent(weft_link* link, const weft_sent* sent, void* user) {
  struct record* record = user;
  CHECK(link == record->active);
  CHECK(sent->number > 0);
  CHECK_IS(sent->tag, 99);
  record->last_number = sent->number;
  ++record->sent;
}

static void on_delivered(weft_link* link, const weft_sent* sent, void* user) {
  struct record* record = user;
  CHECK(link == record->active);
  CHECK_IS(sent->number, record->last_number);
  ++record->delivered;
}

static void on_failed(weft_link* link, const weft_sent* sent, void* user) {
  struct record* record = user;
  CHECK(link == record->active);
  CHECK(sent->error_number > 0);
  ++record->failed;
}

static void on_error(weft_link* link, int error_number, const char* text, void* user) {
  struct record* record = user;
  CHECK(link != NULL);
  CHECK(strlen(text) > 0);
  record->error_number = error_number;
  ++record->errors;
}

static void on_ended(weft_link* link, weft_ending by, int error_number, void* user) {
  struct record* record = user;
  CHECK(link != NULL);
  CHECK_IS(error_number != 0, by == WEFT_ENDED_CUT || by == WEFT_ENDED_BY_FAILURE);
  record->by = by;
  ++record->ended;
}

static weft_link_handlers all_handlers(void) {
  weft_link_handlers handlers = WEFT_LINK_HANDLERS;
  handlers.established = on_established;
  handlers.message = on_message;
  handlers.sent = on_sent;
  handlers.delivered = on_delivered;
  handlers.failed = on_failed;
  handlers.error = on_error;
  handlers.ended = on_ended;
  return handlers;
}

static void on_request(weft_link_request* request, void* user) {
  struct record* record = user;
  const weft_link_handlers handlers = all_handlers();
  size_t count = 0;
  CHECK_IS(memcmp(weft_link_request_private_data(request, &count), "key", 3), 0);
  CHECK_IS(count, 3);
  CHECK_IS(weft_link_accept(request, &record->passive, &handlers, record, NULL), 0);
}

static void on_unwanted(weft_link_request* request, void* user) {
  CHECK(user != NULL);
  CHECK_IS(weft_link_reject(request, "why", 3), 0);
}

/* Of the loops: the default, no polling, and a time. */
static int64_t spin_us = 0;
/* Of the links that connect. */
static uint8_t queue_while_connecting = 0;

static weft_link_listener* begin(struct record* record,
                                 void (*request)(weft_link_request*, void*)) {
  const weft_link_handlers handlers = all_handlers();
  weft_link_options options = WEFT_LINK_OPTIONS;
  weft_loop_limits limits = WEFT_LOOP_LIMITS;
  weft_link_listener* listener = NULL;
  limits.spin_us = spin_us;
  options.private_data = "key";
  options.private_data_bytes = 3;
  options.queue_while_connecting = queue_while_connecting;
  CHECK_IS(weft_loop_new(&record->loop, &limits), 0);
  CHECK_IS(weft_link_listen(record->loop, &listener, "127.0.0.1", 0, request, record, 0), 0);
  CHECK_IS(weft_link_connect(record->loop, &record->active, "127.0.0.1",
                             weft_link_listener_port(listener), &handlers, record, &options),
           0);
  return listener;
}

static void run_until(struct record* record, const int* counter, int wanted) {
  while (*counter < wanted) CHECK(weft_loop_step(record->loop, PATIENCE_MS) >= 0);
}

static void end(struct record* record, weft_link_listener* listener) {
  weft_link_free(record->active);
  weft_link_free(record->passive);
  weft_link_listener_free(listener);
  weft_loop_free(record->loop);
}

static void a_message_is_sent_received_and_delivered(void) {
  struct record record = {0};
  weft_link_listener* listener = begin(&record, on_request);
  uint64_t number = 0;
  char address[64];
  CHECK_IS(weft_link_send(record.active, "early", 5, 3, 99, 0, NULL), -ENOTCONN);
  run_until(&record, &record.established, 2);
  CHECK_IS(weft_link_is_writable(record.active), 1);
  CHECK(weft_link_max_message_bytes(record.active) > 0);
  CHECK(weft_link_peer_address(record.active, address, sizeof address) > 0);
  CHECK_IS(weft_link_send(record.active, "hello", 5, 3, 99, WEFT_CONFIRM, &number), 0);
  run_until(&record, &record.delivered, 1);
  CHECK_IS(record.last_number, number);
  CHECK_IS(record.sent, 1);
  CHECK_IS(record.messages, 1);
  CHECK_IS(strcmp(record.text, "hello"), 0);
  CHECK_IS(weft_link_send(record.active, "x", 1, 3, 99, 64, NULL), -EINVAL);
  CHECK_IS(weft_link_finish(record.active), 0);
  run_until(&record, &record.ended, 2);
  CHECK_IS(record.failed, 0);
  end(&record, listener);
}

static void a_link_may_be_freed_in_its_callback(void) {
  struct record record = {.free_in_message = 1};
  weft_link_listener* listener = begin(&record, on_request);
  run_until(&record, &record.established, 2);
  CHECK_IS(weft_link_send(record.active, "hello", 5, 3, 99, 0, NULL), 0);
  run_until(&record, &record.ended, 1);
  CHECK_IS(record.messages, 1);
  CHECK_IS(record.by, WEFT_ENDED_CUT);
  end(&record, listener);
}

static void a_rejection_is_an_error(void) {
  struct record record = {0};
  weft_link_listener* listener = begin(&record, on_unwanted);
  run_until(&record, &record.errors, 1);
  CHECK_IS(record.error_number, ECONNREFUSED);
  CHECK_IS(record.ended, 0);
  end(&record, listener);
}

static void count_call(void* user) {
  struct record* record = user;
  ++record->posted;
  /* A step in a callback would never end. */
  CHECK_IS(weft_loop_step(record->loop, 0), -EDEADLK);
  if (record->posted == 2) weft_loop_stop(record->loop);
}

static void posted_work_and_timers_are_called(void) {
  struct record record = {0};
  uint64_t timer = 0;
  CHECK_IS(weft_loop_new(&record.loop, NULL), 0);
  CHECK(weft_loop_fd(record.loop) >= 0);
  CHECK_IS(weft_loop_post(record.loop, count_call, &record), 0);
  CHECK_IS(weft_loop_after(record.loop, 1, count_call, &record, &timer), 0);
  CHECK_IS(weft_loop_run(record.loop), 0);
  CHECK_IS(record.posted, 2);
  CHECK_IS(weft_loop_cancel(record.loop, timer), -ENOENT);
  CHECK_IS(weft_loop_after(record.loop, 1000000, count_call, &record, &timer), 0);
  CHECK_IS(weft_loop_cancel(record.loop, timer), 0);
  weft_loop_free(record.loop);
}

static void messages_wait_for_the_connection(void) {
  struct record record = {0};
  weft_link_listener* listener;
  queue_while_connecting = 1;
  listener = begin(&record, on_request);
  CHECK_IS(weft_link_send(record.active, "early", 5, 3, 99, WEFT_CONFIRM, NULL), 0);
  run_until(&record, &record.delivered, 1);
  CHECK_IS(strcmp(record.text, "early"), 0);
  end(&record, listener);
  /* One that is never established lets them fail. */
  memset(&record, 0, sizeof record);
  listener = begin(&record, on_unwanted);
  CHECK_IS(weft_link_send(record.active, "early", 5, 3, 99, 0, NULL), 0);
  run_until(&record, &record.errors, 1);
  CHECK_IS(record.failed, 1);
  end(&record, listener);
  queue_while_connecting = 0;
}

static void messages_without_a_copy(void) {
  struct record record = {.keep = 1};
  weft_link_listener* listener = begin(&record, on_request);
  weft_link_statistics statistics = WEFT_LINK_STATISTICS;
  weft_message_buffer* buffer = NULL;
  weft_buffer* registered = NULL;
  weft_part parts[2];
  char memory[] = "of two parts: one";
  run_until(&record, &record.established, 2);

  CHECK_IS(weft_link_allocate(record.active, 64, &buffer), 0);
  CHECK_IS(weft_message_buffer_size(buffer), 64);
  memcpy(weft_message_buffer_data(buffer), "of the pool", 11);
  weft_message_buffer_truncate(buffer, 11);
  CHECK_IS(weft_link_send_buffer(record.active, buffer, 3, 99, 0, NULL), 0);
  weft_message_buffer_free(buffer);
  run_until(&record, &record.messages, 1);
  CHECK_IS(strcmp(record.text, "of the pool"), 0);
  /* The memory that was kept is still there when the link has ended. */
  buffer = record.kept;
  record.kept = NULL;

  CHECK_IS(weft_link_register(record.active, memory, sizeof memory, &registered), 0);
  parts[0].buffer = registered;
  parts[0].offset = 14;
  parts[0].bytes = 3;
  parts[1].buffer = registered;
  parts[1].offset = 2;
  parts[1].bytes = 10;
  CHECK_IS(weft_link_send_parts(record.active, parts, 2, 3, 99, WEFT_CONFIRM, NULL), 0);
  run_until(&record, &record.delivered, 1);
  CHECK_IS(strcmp(record.text, "one two parts"), 0);
  weft_message_buffer_free(record.kept);
  parts[1].bytes = 100;
  CHECK_IS(weft_link_send_parts(record.active, parts, 2, 3, 99, 0, NULL), -ERANGE);
  CHECK_IS(weft_link_send_parts(record.active, parts, 17, 3, 99, 0, NULL), -EINVAL);

  CHECK_IS(weft_link_get_statistics(record.active, &statistics), 0);
  CHECK_IS(statistics.size, sizeof statistics);
  CHECK_IS(statistics.messages_sent, 2);
  CHECK_IS(statistics.bytes_sent, 24);
  weft_buffer_free(registered);
  end(&record, listener);
  CHECK_IS(memcmp(weft_message_buffer_data(buffer), "of the pool", 11), 0);
  weft_message_buffer_free(buffer);
}

static void structures_need_their_size(void) {
  struct record record = {0};
  weft_link_listener* listener = begin(&record, on_request);
  weft_loop_limits limits = {0};
  weft_link_handlers handlers = all_handlers();
  weft_link_options options = {0};
  weft_link_statistics statistics = {0};
  const uint16_t port = weft_link_listener_port(listener);
  weft_loop* loop = NULL;
  weft_link* link = NULL;
  limits.credits = 8;
  CHECK_IS(weft_loop_new(&loop, &limits), -EINVAL);
  CHECK_SAYS("WEFT_LOOP_LIMITS");
  CHECK_IS(weft_link_connect(record.loop, &link, "127.0.0.1", port, &handlers, &record, &options),
           -EINVAL);
  CHECK_SAYS("WEFT_LINK_OPTIONS");
  handlers.size = 0;
  CHECK_IS(weft_link_connect(record.loop, &link, "127.0.0.1", port, &handlers, &record, NULL),
           -EINVAL);
  CHECK_SAYS("WEFT_LINK_HANDLERS");
  CHECK_IS(weft_link_get_statistics(record.active, &statistics), -EINVAL);
  CHECK_SAYS("WEFT_LINK_STATISTICS");
  CHECK(loop == NULL && link == NULL);
  run_until(&record, &record.established, 2);
  end(&record, listener);
}

struct running {
  weft_loop* loop;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int runs;
};

static void on_running(void* user) {
  struct running* running = user;
  pthread_mutex_lock(&running->mutex);
  running->runs = 1;
  pthread_cond_signal(&running->changed);
  pthread_mutex_unlock(&running->mutex);
}

static void* run_loop(void* user) {
  struct running* running = user;
  CHECK_IS(weft_loop_run(running->loop), 0);
  return NULL;
}

/* Also those whose result cannot be an error number. */
static void calls_in_another_thread_are_refused(void) {
  struct record record = {0};
  weft_link_listener* listener = begin(&record, on_request);
  weft_link_statistics statistics = WEFT_LINK_STATISTICS;
  struct running running = {0};
  pthread_t thread;
  size_t count = 1;
  char text[64];
  run_until(&record, &record.established, 2);
  running.loop = record.loop;
  pthread_mutex_init(&running.mutex, NULL);
  pthread_cond_init(&running.changed, NULL);
  CHECK_IS(weft_loop_post(record.loop, on_running, &running), 0);
  CHECK_IS(pthread_create(&thread, NULL, run_loop, &running), 0);
  pthread_mutex_lock(&running.mutex);
  while (!running.runs) pthread_cond_wait(&running.changed, &running.mutex);
  pthread_mutex_unlock(&running.mutex);

  CHECK_IS(weft_link_send(record.active, "x", 1, 3, 99, 0, NULL), -EPERM);
  CHECK_IS(weft_link_is_writable(record.active), -EPERM);
  CHECK_IS(weft_link_get_statistics(record.active, &statistics), -EPERM);
  CHECK_IS(weft_link_peer_address(record.active, text, sizeof text), -EPERM);
  CHECK_IS(weft_link_max_message_bytes(record.active), 0);
  CHECK_SAYS("thread");
  CHECK(weft_link_peer_private_data(record.active, &count) == NULL);
  CHECK_IS(count, 0);
  CHECK_IS(weft_loop_step(record.loop, 0), -EDEADLK);

  weft_loop_stop(record.loop);
  CHECK_IS(pthread_join(thread, NULL), 0);
  pthread_cond_destroy(&running.changed);
  pthread_mutex_destroy(&running.mutex);
  end(&record, listener);
}

int main(void) {
  const int64_t spins[] = {0, -1, 200};
  for (int i = 0; i < 3; ++i) {
    spin_us = spins[i];
    a_message_is_sent_received_and_delivered();
  }
  a_link_may_be_freed_in_its_callback();
  a_rejection_is_an_error();
  posted_work_and_timers_are_called();
  messages_wait_for_the_connection();
  messages_without_a_copy();
  structures_need_their_size();
  calls_in_another_thread_are_refused();
  return 0;
}
