/* Objects of a parent that a child of fork(2) frees, while a thread of the parent changes them. */
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { FORKS = 100 };

static atomic_int over;

/* Each child frees the objects. One that waits for a lock of the parent's thread is ended by a
 * signal. */
static void free_in_children(void (*free_objects)(void)) {
  for (int i = 0; i < FORKS; ++i) {
    int status = 0;
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(60);
      free_objects();
      _exit(0);
    }
    CHECK_IS(waitpid(child, &status, 0), child);
    CHECK_IS(status, 0);
  }
}

static weft_stream_listener* listener;
static weft_stream_events* events;

static void* look_for_events(void* unused) {
  while (!over) {
    weft_stream_event event = WEFT_STREAM_EVENT;
    CHECK_IS(weft_stream_events_next(events, &event, 0), -EAGAIN);
  }
  return unused;
}

static void free_events(void) {
  weft_stream_listener_free(listener);
  weft_stream_events_free(events);
}

static void a_child_frees_queues_of_events(void) {
  pthread_t thread;
  over = 0;
  CHECK_IS(weft_stream_listen(&listener, "127.0.0.1", 0, NULL, 0), 0);
  CHECK_IS(weft_stream_events_new(&events), 0);
  CHECK_IS(weft_stream_listener_attach(listener, events, 1), 0);
  CHECK_IS(pthread_create(&thread, NULL, look_for_events, NULL), 0);
  free_in_children(free_events);
  over = 1;
  CHECK_IS(pthread_join(thread, NULL), 0);
  free_events();
}

static weft_loop* loop;
static weft_link_listener* links;
static weft_link *active, *passive;
static weft_message_buffer* kept;
static weft_link_request* request_kept;
static char bytes[3000];

static void answer(weft_link* link, const weft_message* message, void* user) {
  (void)user;
  if (link == passive && kept == NULL) CHECK_IS(weft_message_keep(message, &kept), 0);
  CHECK_IS(weft_link_send(link, bytes, sizeof bytes, 0, 0, 0, NULL), 0);
}

static void begin(weft_link* link, void* user) {
  (void)user;
  if (link == active) CHECK_IS(weft_link_send(link, bytes, sizeof bytes, 0, 0, 0, NULL), 0);
}

static weft_link_handlers handlers = WEFT_LINK_HANDLERS;

static void accept_one(weft_link_request* request, void* user) {
  (void)user;
  if (passive != NULL) {
    request_kept = request;
  } else {
    CHECK_IS(weft_link_accept(request, &passive, &handlers, NULL, NULL), 0);
  }
}

static void* run(void* unused) {
  CHECK_IS(weft_loop_run(loop), 0);
  return unused;
}

static void free_loop(void) {
  weft_link_free(active);
  weft_link_free(passive);
  weft_message_buffer_free(kept);
  weft_link_listener_free(links);
  CHECK_IS(weft_link_reject(request_kept, NULL, 0), 0);
  weft_loop_free(loop);
}

static void a_child_frees_loops_and_links(void) {
  weft_link* waiting = NULL;
  pthread_t thread;
  handlers.message = answer;
  handlers.established = begin;
  CHECK_IS(weft_loop_new(&loop, NULL), 0);
  CHECK_IS(weft_link_listen(loop, &links, "127.0.0.1", 0, accept_one, NULL, 0), 0);
  CHECK_IS(weft_link_connect(loop, &active, "127.0.0.1", weft_link_listener_port(links), &handlers,
                             NULL, NULL),
           0);
  while (kept == NULL) CHECK(weft_loop_step(loop, PATIENCE_MS) >= 0);
  CHECK_IS(weft_link_connect(loop, &waiting, "127.0.0.1", weft_link_listener_port(links), &handlers,
                             NULL, NULL),
           0);
  while (request_kept == NULL) CHECK(weft_loop_step(loop, PATIENCE_MS) >= 0);
  CHECK_IS(pthread_create(&thread, NULL, run, NULL), 0);
  free_in_children(free_loop);
  weft_loop_stop(loop);
  CHECK_IS(pthread_join(thread, NULL), 0);
  weft_link_free(waiting);
  free_loop();
}

int main(void) {
  a_child_frees_queues_of_events();
  a_child_frees_loops_and_links();
  return 0;
}
