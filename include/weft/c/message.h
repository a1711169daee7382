/* Messages over RDMA, with callbacks from an event loop. See weft.h and weft/message.hpp.
 *
 * All work of a loop, including the callbacks, is done inside weft_loop_step() and weft_loop_run(),
 * in the thread that calls them. weft_loop_post(), weft_loop_wake(), weft_loop_stop() and
 * weft_loop_fd() may be called from any thread. All other functions are to be called in the loop's
 * thread: the one that is inside of step or run or, while none is, any one thread; in another
 * thread they return -EPERM. Objects are freed in the loop's thread, too, but for a
 * weft_message_buffer, which may be freed in any. */
#pragma once

#include "weft/c/common.h"
#include "weft/c/connection.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_loop weft_loop;                     /* an event loop */
typedef struct weft_link weft_link;                     /* a connection for messages */
typedef struct weft_link_listener weft_link_listener;   /* accepts links */
typedef struct weft_link_request weft_link_request;     /* a peer that wants to connect */
typedef struct weft_message_buffer weft_message_buffer; /* memory of a loop for messages */

/* The limits of one loop, for all of its links; weft::message::Limits has the reasons. */
typedef struct weft_loop_limits {
  size_t size; /* of this structure */
  /* The longest message in both directions (2^30). */
  uint64_t max_message_bytes;
  /* Messages up to this length are sent at once; longer ones are fetched by the receiver (8192). */
  uint32_t eager_bytes;
  /* Frames, of one message or several short ones, that a peer may send ahead: 1 to 32767 (32). */
  uint32_t credits;
  /* Messages, and bytes, of one link that may wait to be sent (1024, and 64 MiB). */
  size_t send_queue_messages;
  uint64_t send_queue_bytes;
  /* Memory for long messages that arrive, and for kept ones; at least max_message_bytes (2^30). */
  uint64_t pool_bytes;
  /* Links and requests of one listener; more are rejected (16384). */
  uint32_t max_connections;
  /* How long step and run poll before they sleep (50); below 0: never. */
  int64_t spin_us;
} weft_loop_limits;
/* Initializes weft_loop_limits: all defaults. */
#define WEFT_LOOP_LIMITS \
  { .size = sizeof(weft_loop_limits) }

/* By whom an established link was ended. */
typedef enum weft_ending {
  WEFT_ENDED_BY_US = 0,     /* by weft_link_disconnect() or weft_link_finish() on this side */
  WEFT_ENDED_BY_PEER = 1,   /* by the peer; all that it has sent was received */
  WEFT_ENDED_CUT = 2,       /* by the peer at once, or the peer no longer exists */
  WEFT_ENDED_BY_FAILURE = 3 /* see the error number */
} weft_ending;

/* A message that has arrived. Valid until the callback returns; weft_message_keep() keeps its
 * memory. */
typedef struct weft_message {
  const void* bytes; /* the first byte */
  size_t count;      /* of bytes */
  uint32_t type;     /* chosen by the sender */
  uint64_t tag;      /* chosen by the sender */
} weft_message;

/* The state of a message that was sent. */
typedef struct weft_sent {
  uint64_t number;  /* that weft_link_send() has returned */
  uint32_t type;    /* that was passed when it was sent */
  uint64_t tag;     /* that was passed when it was sent */
  uint64_t count;   /* of bytes */
  int error_number; /* of a message that has failed; otherwise 0 */
} weft_sent;

/* Callbacks of a link; each may be null. `user` is the pointer that was passed with them. Without
 * `message`, all messages that arrive are discarded. A callback may free its link, and others. */
typedef struct weft_link_handlers {
  size_t size; /* of this structure */
  /* Messages can be sent from now on. */
  void (*established)(weft_link* link, void* user);
  /* A message has arrived; messages are in order. */
  void (*message)(weft_link* link, const weft_message* message, void* user);
  /* Once for each message that was accepted for sending: it was sent, or has failed. */
  void (*sent)(weft_link* link, const weft_sent* sent, void* user);
  void (*failed)(weft_link* link, const weft_sent* sent, void* user);
  /* A message that was sent with WEFT_CONFIRM: the peer's callback for it has returned. */
  void (*delivered)(weft_link* link, const weft_sent* sent, void* user);
  /* After -EAGAIN: half of the queue is free again. */
  void (*writable)(weft_link* link, void* user);
  /* The link could not be established, or has failed: then `ended` follows. `text` is a sentence,
   * valid until the callback returns. */
  void (*error)(weft_link* link, int error_number, const char* text, void* user);
  /* An established link has ended. Called once, after all other callbacks. The error number is 0 if
   * one of the programs has ended it in order. */
  void (*ended)(weft_link* link, weft_ending by, int error_number, void* user);
} weft_link_handlers;
/* Initializes weft_link_handlers: no callbacks. */
#define WEFT_LINK_HANDLERS \
  { .size = sizeof(weft_link_handlers) }

/* Options of a link. */
typedef struct weft_link_options {
  size_t size;                 /* of this structure */
  const void* private_data;    /* sent to the peer's program; at most 32 bytes */
  size_t private_data_bytes;   /* its length */
  uint32_t connect_timeout_ms; /* until the link is established, or has failed (10 000) */
  uint32_t keepalive_ms;       /* answered by the peer's device; 0: no keepalive */
  /* 1: messages may be sent before the link is established. They wait, within the limits of the
   * loop, and go first when it is; if it never is, each has the callback `failed` before `error`.
   * One that is longer than the peer allows fails then with EMSGSIZE. */
  uint8_t queue_while_connecting;
} weft_link_options;
/* Initializes weft_link_options: all defaults. */
#define WEFT_LINK_OPTIONS \
  { .size = sizeof(weft_link_options) }

/* Counters of a link. Set `size` before the call: members that the library does not have are 0. */
typedef struct weft_link_statistics {
  size_t size;                    /* of this structure */
  uint64_t messages_sent;         /* that had the callback `sent` */
  uint64_t bytes_sent;            /* of these messages */
  uint64_t frames_sent;           /* that carried messages, one or several */
  uint64_t messages_received;     /* that had the callback `message` */
  uint64_t bytes_received;        /* of these messages */
  uint64_t messages_waiting;      /* to be sent */
  uint64_t credit_waits;          /* how often sending had to wait for credits of the peer */
  uint64_t waited_for_credits_ns; /* how long in all */
} weft_link_statistics;
/* Initializes weft_link_statistics. */
#define WEFT_LINK_STATISTICS \
  { .size = sizeof(weft_link_statistics) }

/* A part of a registered buffer. */
typedef struct weft_part {
  weft_buffer* buffer; /* that it is a part of */
  size_t offset;       /* of its first byte in the buffer */
  size_t bytes;        /* its length */
} weft_part;

/* --- Loops */

/* Makes a loop, which belongs to the caller: weft_loop_free(). Null limits are the defaults.
 * -EINVAL for limits that are out of range. */
WEFT_C_API int weft_loop_new(weft_loop** loop, const weft_loop_limits* limits);
/* Ends the links of the loop without callbacks; they and the listeners can only be freed then. Not
 * from a callback of this loop. */
WEFT_C_API void weft_loop_free(weft_loop* loop);
/* Does all work that is due, and returns how much it was. If there is none, waits for work until
 * the timeout, and returns 0 then. -EDEADLK when called from a callback, or while another thread is
 * in it. */
WEFT_C_API ssize_t weft_loop_step(weft_loop* loop, int timeout_ms);
/* Calls weft_loop_step() until weft_loop_stop(). -EDEADLK as there. */
WEFT_C_API int weft_loop_run(weft_loop* loop);
/* Ends weft_loop_run(), the one that runs or the next one. Any thread. */
WEFT_C_API void weft_loop_stop(weft_loop* loop);
/* Makes weft_loop_step() return, the one that runs or the next one. Any thread. */
WEFT_C_API void weft_loop_wake(weft_loop* loop);
/* A descriptor for poll(2), readable while step has work to do. It belongs to the loop. EOPNOTSUPP
 * with WEFT_PROGRESS=manual: then data arrives only while the loop runs. */
WEFT_C_API int weft_loop_fd(weft_loop* loop);
/* Calls `work` in the loop's thread, soon. What one thread posts is called in its order. Work that
 * was not called when the loop is freed is dropped, so `user` must exist until then. Any thread. */
WEFT_C_API int weft_loop_post(weft_loop* loop, void (*work)(void* user), void* user);
/* Calls `work` once, after the delay. `*timer` identifies it, and may be null. */
WEFT_C_API int weft_loop_after(weft_loop* loop, uint32_t delay_ms, void (*work)(void* user),
                               void* user, uint64_t* timer);
/* Removes a timer: `work` will not be called. -ENOENT if it was called already. */
WEFT_C_API int weft_loop_cancel(weft_loop* loop, uint64_t timer);

/* --- Links */

/* Begins to connect; the callback `established` or `error` follows, with `user`. The handlers are
 * copied. The name of a host is looked up in a thread of the library. `*link` belongs to the
 * caller, who frees it by weft_link_free() in any case. */
WEFT_C_API int weft_link_connect(weft_loop* loop, weft_link** link, const char* host, uint16_t port,
                                 const weft_link_handlers* handlers, void* user,
                                 const weft_link_options* options);
/* Listens, and calls `on_request` for each peer that wants to connect. A request must be accepted
 * or rejected, then or later; both free it. A null or empty host is any local address, port 0 a
 * free port, and backlog 0 the default. -EADDRINUSE if the port is taken. */
WEFT_C_API int weft_link_listen(weft_loop* loop, weft_link_listener** listener, const char* host,
                                uint16_t port,
                                void (*on_request)(weft_link_request* request, void* user),
                                void* user, int backlog);
/* The port that it listens on; the one that was chosen where 0 was asked for. */
WEFT_C_API uint16_t weft_link_listener_port(weft_link_listener* listener);
/* Stops to listen. Links and requests that the program has are not affected. */
WEFT_C_API void weft_link_listener_free(weft_link_listener* listener);

/* Accepts; the callback `established` or `error` follows, as for weft_link_connect(). Frees the
 * request, also if it fails. */
WEFT_C_API int weft_link_accept(weft_link_request* request, weft_link** link,
                                const weft_link_handlers* handlers, void* user,
                                const weft_link_options* options);
/* Rejects, and frees the request, also if it fails: the peer gets ECONNREFUSED, and at most 32
 * bytes of private data. */
WEFT_C_API int weft_link_reject(weft_link_request* request, const void* private_data,
                                size_t private_data_bytes);
/* What the peer's program sent with its request, of `*count` bytes. Valid as long as the request.
 */
WEFT_C_API const void* weft_link_request_private_data(weft_link_request* request, size_t* count);
/* Writes the address of the peer, as weft_link_local_address(). */
WEFT_C_API int weft_link_request_peer_address(weft_link_request* request, char* text, size_t room);

/* Flags of messages. */
enum {
  /* call `delivered` when the peer has processed the message */
  WEFT_CONFIRM = 1
};

/* Sends one message; the bytes are copied. `*number` identifies it in the callbacks, and may be
 * null. -EAGAIN if too much waits to be sent: the callback `writable` follows. -EMSGSIZE if it is
 * longer than either side allows, -ENOTCONN if the link is not established and its options have no
 * `queue_while_connecting`. */
WEFT_C_API int weft_link_send(weft_link* link, const void* bytes, size_t count, uint32_t type,
                              uint64_t tag, int flags, uint64_t* number);
/* Allocates a buffer of `bytes` bytes, to be filled and sent on links of the same loop. It belongs
 * to the caller: weft_message_buffer_free(). -ENOMEM if there is not that much memory. */
WEFT_C_API int weft_link_allocate(weft_link* link, size_t bytes, weft_message_buffer** buffer);
/* Sends a buffer without a copy. The message shares its memory until it is sent or has failed: the
 * buffer must not be changed until then, and may be freed at once. Errors are those of
 * weft_link_send(). */
WEFT_C_API int weft_link_send_buffer(weft_link* link, weft_message_buffer* buffer, uint32_t type,
                                     uint64_t tag, int flags, uint64_t* number);
/* Registers memory of the program, to be sent on links of the same loop. It must outlive the
 * buffer. -ENOTCONN while the link has no device yet: before it is established. */
WEFT_C_API int weft_link_register(weft_link* link, void* memory, size_t bytes,
                                  weft_buffer** buffer);
/* Sends parts of registered buffers, at most 16, as one message without a copy. Buffers and memory
 * must stay as they are until the callback `sent` or `failed`; `parts` is used during the call
 * only. -EINVAL for more parts, -ERANGE for one that is not within its buffer or has 4 GiB or more;
 * the other errors are
 * those of weft_link_send(). */
WEFT_C_API int weft_link_send_parts(weft_link* link, const weft_part* parts, size_t count,
                                    uint32_t type, uint64_t tag, int flags, uint64_t* number);
/* In the callback `message`: takes over the memory of the message, which stays valid until the
 * buffer is freed. Kept memory counts against `pool_bytes`. -EALREADY if it was kept before. */
WEFT_C_API int weft_message_keep(const weft_message* message, weft_message_buffer** buffer);
/* The first byte of the buffer. Valid as long as the buffer. */
WEFT_C_API void* weft_message_buffer_data(weft_message_buffer* buffer);
/* The length of the buffer, and of a message that it is sent as. */
WEFT_C_API size_t weft_message_buffer_size(weft_message_buffer* buffer);
/* Shortens the buffer to `bytes`: a message is as long as its buffer. A buffer that is not longer
 * stays as it is. */
WEFT_C_API void weft_message_buffer_truncate(weft_message_buffer* buffer, size_t bytes);
/* Frees the buffer; its memory goes back to the loop when no message uses it. Any thread, also
 * after the end of the loop. */
WEFT_C_API void weft_message_buffer_free(weft_message_buffer* buffer);
/* 1 if a message of a few bytes would be accepted for sending, else 0. */
WEFT_C_API int weft_link_is_writable(weft_link* link);
/* Copies the counters, also after the end of the link. */
WEFT_C_API int weft_link_get_statistics(weft_link* link, weft_link_statistics* statistics);
/* The longest message that both sides allow; 0 before the link is established. */
WEFT_C_API uint64_t weft_link_max_message_bytes(weft_link* link);
/* What the peer's program sent when it connected or accepted, of `*count` bytes. Valid as long as
 * the link. */
WEFT_C_API const void* weft_link_peer_private_data(weft_link* link, size_t* count);
/* Writes the address of this side, "192.0.2.1:7174" or "[::1]:7174" with a terminating zero, into
 * `text`, which has `room` bytes; empty while it is not known, and after the end. Returns its
 * length, as snprintf(3) does: the text was cut if that is not less than `room`. */
WEFT_C_API int weft_link_local_address(weft_link* link, char* text, size_t room);
/* Writes the address of the peer, as weft_link_local_address(). */
WEFT_C_API int weft_link_peer_address(weft_link* link, char* text, size_t room);
/* Ends the link at once. Messages that are not sent fail. The loop calls their callbacks, and
 * `ended`, later. */
WEFT_C_API int weft_link_disconnect(weft_link* link);
/* Ends the link when all messages are sent. No more can be sent. */
WEFT_C_API int weft_link_finish(weft_link* link);
/* Ends the link at once if it has not ended, and frees it. No callback is called for it any more.
 */
WEFT_C_API void weft_link_free(weft_link* link);

#ifdef __cplusplus
}
#endif
