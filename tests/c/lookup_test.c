/* Names of hosts that cannot be looked up at present, or take long, through the C interface. */
#define _GNU_SOURCE

#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static int never[2]; /* a pipe; the look-up of a slow name ends with it */

/* Takes the place of the function of the C library, for the library as well. */
int getaddrinfo(const char* name, const char* service, const struct addrinfo* hints,
                struct addrinfo** result) {
  int (*real)(const char*, const char*, const struct addrinfo*, struct addrinfo**);
  char byte;
  if (name != NULL && strcmp(name, "later.invalid") == 0) return EAI_AGAIN;
  if (name != NULL && strcmp(name, "slow.invalid") == 0) {
    CHECK_IS(read(never[0], &byte, 1), 0);
    return EAI_NONAME;
  }
  *(void**)&real = dlsym(RTLD_NEXT, "getaddrinfo");
  return real(name, service, hints, result);
}

/* -EAGAIN would mean that the object is still connecting. */
static void a_name_server_that_does_not_answer_is_a_failure(void) {
  weft_stream* stream = NULL;
  weft_connection* connection = NULL;
  CHECK_IS(weft_stream_start_connecting(&stream, "later.invalid", 7, NULL), 0);
  CHECK_IS(weft_stream_await_connected(stream, PATIENCE_MS), -EHOSTUNREACH);
  CHECK_SAYS("try again");
  CHECK_IS(weft_stream_await_connected(stream, 0), -EHOSTUNREACH);
  CHECK_IS(weft_stream_send(stream, "x", 1, 0), -EHOSTUNREACH);
  CHECK_SAYS("the stream has failed");
  weft_stream_free(stream);
  CHECK_IS(weft_connection_start_connecting(&connection, "later.invalid", 7, NULL, NULL, 0), 0);
  CHECK_IS(weft_connection_await_established(connection, PATIENCE_MS), -EHOSTUNREACH);
  weft_connection_free(connection);
  CHECK_IS(weft_connection_prepare(&connection, "later.invalid", 7, NULL, PATIENCE_MS),
           -EHOSTUNREACH);
}

static void a_timeout_ends_the_wait_for_a_name(void) {
  weft_stream* stream = NULL;
  weft_connection* connection = NULL;
  char text[64];
  CHECK_IS(weft_connection_prepare(&connection, "slow.invalid", 7, NULL, 1), -ETIMEDOUT);
  CHECK_SAYS("slow.invalid");
  CHECK_IS(weft_stream_start_connecting(&stream, "slow.invalid", 7, NULL), 0);
  CHECK_IS(weft_stream_local_address(stream, text, sizeof text), -ENOTCONN);
  CHECK_IS(weft_stream_peer_address(stream, text, sizeof text), -ENOTCONN);
  weft_stream_free(stream);
}

int main(void) {
  CHECK_IS(pipe(never), 0);
  a_name_server_that_does_not_answer_is_a_failure();
  a_timeout_ends_the_wait_for_a_name();
  CHECK_IS(close(never[1]), 0);
  return 0;
}
