/* A program in C that knows nothing but the installed header and library. */
#include <stdio.h>
#include <weft.h>

int main(void) {
  weft_stream_listener* listener = NULL;
  if (weft_stream_listen(&listener, "127.0.0.1", 0, NULL, 0) < 0) {
    fprintf(stderr, "%s\n", weft_error_text());
    return 1;
  }
  printf("weft %s listens: %d\n", weft_version(), weft_stream_listener_port(listener) != 0);
  weft_stream_listener_free(listener);
  return 0;
}
