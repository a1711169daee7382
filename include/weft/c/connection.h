/* RDMA connections in few steps: buffers, receives, sends, remote writes and reads. See weft.h and
 * weft/connection.hpp.
 *
 * A weft_connection is first prepared, by weft_connection_prepare() or weft_connection_next(). Then
 * buffers can be allocated and receives posted. weft_connection_establish() makes it a connection.
 * Connections and listeners may be used by several threads at the same time, except that
 * establishing and freeing a connection must not overlap with another call on it. The same is true
 * of buffers and of freeing one. Offsets and lengths are in bytes. */
#pragma once

#include "weft/c/common.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_connection weft_connection; /* freed by weft_connection_free() */
typedef struct weft_connection_listener weft_connection_listener; /* accepts connections */
typedef struct weft_buffer weft_buffer; /* registered memory, freed by weft_buffer_free() */

/* Options of a connection, or of all connections of a listener. */
typedef struct weft_connection_options {
  size_t size;            /* of this structure */
  uint32_t queue_depth;   /* sends, and receives, that may be posted at the same time (64) */
  uint32_t inline_bytes;  /* the largest send with WEFT_COPIED (0) */
  uint8_t read_depth;     /* outstanding reads in each direction (4) */
  uint8_t advertisements; /* 1 enables weft_connection_advertise(), if both sides set it */
  /* A connection whose protection domain is shared: buffers of one of them can be used in requests
   * of the other. Used during the call only; null: a domain of its own. */
  weft_connection* domain_of;
} weft_connection_options;
/* Initializes weft_connection_options: all defaults. */
#define WEFT_CONNECTION_OPTIONS \
  { .size = sizeof(weft_connection_options) }

/* What the peer may do with a buffer. */
enum {
  WEFT_LOCAL = 0,        /* nothing */
  WEFT_REMOTE_READ = 1,  /* weft_post_read() */
  WEFT_REMOTE_WRITE = 2, /* weft_post_write() */
  WEFT_REMOTE_ATOMIC = 4 /* weft_post_fetch_and_add(), weft_post_compare_and_swap() */
};

/* Flags of posted requests. */
enum {
  WEFT_UNSIGNALED = 1, /* there is an outcome only if the request fails */
  WEFT_SOLICITED = 2,  /* the peer's completion is a solicited event */
  WEFT_FENCE = 4,      /* the request waits for the reads that were posted before it */
  WEFT_COPIED = 8,     /* the bytes are copied during the call; at most `inline_bytes` */
  /* the connection keeps the buffer and its memory until the request has completed, also if
   * weft_buffer_free() is called before; with WEFT_UNSIGNALED until a later request has completed
   */
  WEFT_KEEP = 16
};

/* One of the two queues of a connection, which have outcomes of their own. */
typedef enum weft_queue {
  WEFT_SENDS = 0,   /* all requests but receives */
  WEFT_RECEIVES = 1 /* weft_post_receive() */
} weft_queue;

/* A buffer of the peer, which it has advertised or sent in a way of its own. */
typedef struct weft_remote_buffer {
  uint64_t address; /* in the peer's memory */
  uint64_t bytes;   /* the length */
  uint32_t rkey;    /* the peer's key, which grants the access */
  uint32_t tag;     /* chosen by the peer when it advertised the buffer */
} weft_remote_buffer;

/* The outcome of a posted request. */
typedef struct weft_outcome {
  uint64_t id;    /* that was passed when the request was posted */
  int32_t status; /* 0, or another value of ibv_wc_status: see weft_status_text() */
  uint32_t bytes; /* of a receive or read that has succeeded */
} weft_outcome;

/* What weft_completion.opcode can be. */
typedef enum weft_opcode {
  WEFT_SEND = 0,              /* weft_post_send(), with an immediate or an invalidation, too */
  WEFT_WRITE = 1,             /* weft_post_write(), with an immediate, too */
  WEFT_READ = 2,              /* weft_post_read() */
  WEFT_COMPARE_AND_SWAP = 3,  /* weft_post_compare_and_swap() */
  WEFT_FETCH_AND_ADD = 4,     /* weft_post_fetch_and_add() */
  WEFT_RECEIVE = 128,         /* weft_post_receive() */
  WEFT_RECEIVE_OF_WRITE = 129 /* the receive that a write with immediate has taken */
} weft_opcode;

/* The outcome of a posted request, with all that came with it. Later releases can append members:
 * see weft_connection_await_completions(). */
typedef struct weft_completion {
  uint64_t id;               /* that was passed when the request was posted */
  int32_t status;            /* 0, or another value of ibv_wc_status: see weft_status_text() */
  int32_t opcode;            /* a weft_opcode; of a request that has succeeded, as the following */
  uint32_t bytes;            /* of a receive or read */
  uint32_t immediate;        /* of the peer's send or write; see `has_immediate` */
  uint32_t invalidated_rkey; /* the peer's send has invalidated this rkey; otherwise 0 */
  uint8_t has_immediate;     /* 1 or 0 */
} weft_completion;

/* The meaning of weft_outcome.status, in a few words; of an unknown value, too. Valid as long as
 * the program runs. */
WEFT_C_API const char* weft_status_text(int32_t status);

/* --- Establishing */

/* Resolves the peer and creates the queues; nothing is sent to the peer's program yet.
 * `*connection` is set on success only, and belongs to the caller. -EHOSTUNREACH or -ENETUNREACH if
 * there is no way to the host, -ENXIO if no host has the name, -EINVAL for options that the device
 * cannot serve. */
WEFT_C_API int weft_connection_prepare(weft_connection** connection, const char* host,
                                       uint16_t port, const weft_connection_options* options,
                                       int timeout_ms);
/* Listens. A null or empty host is any local address, port 0 a free port, and backlog 0 the
 * default. The options are those of the connections. -EADDRINUSE if the port is taken. */
WEFT_C_API int weft_connection_listen(weft_connection_listener** listener, const char* host,
                                      uint16_t port, const weft_connection_options* options,
                                      int backlog);
/* Waits for the next peer that wants to connect: -EAGAIN at the timeout. `*connection` belongs to
 * the caller, who establishes, rejects or frees it; it does not need the listener any more. */
WEFT_C_API int weft_connection_next(weft_connection_listener* listener,
                                    weft_connection** connection, int timeout_ms);
/* Accepts peers, with this private data, until one of them is connected: -EAGAIN at the timeout. A
 * peer that is silent after its request keeps no other one waiting, one that disconnects again is
 * skipped, and one that is not connected at the timeout is kept for the next call. `*connection`
 * belongs to the caller. */
WEFT_C_API int weft_connection_accept(weft_connection_listener* listener,
                                      weft_connection** connection, const void* private_data,
                                      size_t private_data_bytes, int timeout_ms);
/* Connects or accepts, whichever it has to be, and waits until the connection is established.
 * -ECONNREFUSED if the peer has rejected. After a failure the connection can only be freed, except
 * that -EISCONN, if it is established or being established already, changes nothing. */
WEFT_C_API int weft_connection_establish(weft_connection* connection, const void* private_data,
                                         size_t private_data_bytes, int timeout_ms);
/* The same without blocking, for programs with an event loop: begin, then call
 * weft_connection_await_established() with timeout 0 whenever weft_connection_establishing_fd() is
 * readable. The private data is copied. Until the connection is established, all other calls but
 * weft_connection_free(), which abandons the attempt, return -ENOTCONN; a second call that
 * establishes returns -EISCONN. */
WEFT_C_API int weft_connection_start_establishing(weft_connection* connection,
                                                  const void* private_data,
                                                  size_t private_data_bytes);
/* Begins to connect in one step, without weft_connection_prepare(). The name of a host is looked up
 * in a thread of the library. */
WEFT_C_API int weft_connection_start_connecting(weft_connection** connection, const char* host,
                                                uint16_t port,
                                                const weft_connection_options* options,
                                                const void* private_data,
                                                size_t private_data_bytes);
/* Waits until what has begun is established: -EAGAIN at the timeout, and the attempt goes on. Other
 * errors are those of weft_connection_establish(). 0 if it was established before. */
WEFT_C_API int weft_connection_await_established(weft_connection* connection, int timeout_ms);
/* A descriptor for poll(2), readable while weft_connection_await_established() may get on. It
 * changes with the steps: ask for it again after each call that returns -EAGAIN. */
WEFT_C_API int weft_connection_establishing_fd(weft_connection* connection);
/* Rejects the peer of a connection from weft_connection_next(), which can only be freed then.
 * Freeing one that was neither established nor rejected rejects it. */
WEFT_C_API int weft_connection_reject(weft_connection* connection, const void* private_data,
                                      size_t private_data_bytes);
/* What the peer's program sent with its request, or with its acceptance, of `*count` bytes; null
 * where there is none yet. Valid until the connection is established or freed. */
WEFT_C_API const void* weft_connection_peer_private_data(weft_connection* connection,
                                                         size_t* count);
/* Writes the address of this side, "192.0.2.1:7174" or "[::1]:7174" with a terminating zero, into
 * `text`, which has `room` bytes. Returns its length, as snprintf(3) does: the text was cut if that
 * is not less than `room`. -ENOTCONN if the connection was rejected or could not be established. */
WEFT_C_API int weft_connection_local_address(weft_connection* connection, char* text, size_t room);
/* Writes the address of the peer, as weft_connection_local_address(). */
WEFT_C_API int weft_connection_peer_address(weft_connection* connection, char* text, size_t room);
/* The port that it listens on; the one that was chosen where 0 was asked for. */
WEFT_C_API uint16_t weft_connection_listener_port(weft_connection_listener* listener);
/* A descriptor for poll(2), readable while a peer may be waiting: then call weft_connection_next()
 * or weft_connection_accept() with timeout 0. It belongs to the listener. */
WEFT_C_API int weft_connection_listener_fd(weft_connection_listener* listener);
/* Stops to listen, and rejects the peers that wait. Connections of the listener are not affected.
 */
WEFT_C_API void weft_connection_listener_free(weft_connection_listener* listener);

/* --- Buffers. `access` is WEFT_LOCAL or a sum of the others. A buffer must live until the outcomes
 * of the requests that use it, and while the peer may access it; it may outlive its connection. */

/* Allocates and registers `bytes` zero bytes, at least one. They belong to the buffer. -ENOMEM if
 * there is not that much memory, -EINVAL for an unknown `access`. */
WEFT_C_API int weft_buffer_allocate(weft_connection* connection, size_t bytes, int access,
                                    weft_buffer** buffer);
/* Registers memory of the program, which must outlive the buffer. -EFAULT if it is not mapped. */
WEFT_C_API int weft_buffer_register(weft_connection* connection, void* memory, size_t bytes,
                                    int access, weft_buffer** buffer);
/* The same with memory whose owner learns when it is free: calls `release` once, in any thread,
 * when the buffer was freed and the last request that was posted with WEFT_KEEP has completed. It
 * may post to the connection, unless it is called inside of weft_connection_free(), for requests
 * that have not completed. If this fails, `release` is not called. */
WEFT_C_API int weft_buffer_register_owned(weft_connection* connection, void* memory, size_t bytes,
                                          int access, void (*release)(void* user), void* user,
                                          weft_buffer** buffer);
/* The first byte of the buffer. Valid as long as the buffer. */
WEFT_C_API void* weft_buffer_data(weft_buffer* buffer);
/* The length of the buffer. */
WEFT_C_API size_t weft_buffer_size(weft_buffer* buffer);
/* What the peer needs in order to access the buffer; the tag is 0. */
WEFT_C_API weft_remote_buffer weft_buffer_remote(weft_buffer* buffer);
/* Waits for accesses by the peer that are in progress; later ones are refused. If a request that
 * was posted with WEFT_KEEP uses the buffer, that is done when the request has completed. */
WEFT_C_API void weft_buffer_free(weft_buffer* buffer);

/* --- Requests. `offset` and `bytes` are a part of the local buffer: -ERANGE if it is not within
 * the buffer, or has 4 GiB or more, which no request can have. -ENOMEM if the queue is full.
 * -ENOTCONN for all but receives, before the connection is established. */

/* Posts a receive: the peer's next send that finds it first is stored in the part of the buffer.
 * The buffer must live, and is the device's, until the outcome. -ERANGE if the part is not within
 * the buffer, -ENOMEM if the queue is full. */
WEFT_C_API int weft_post_receive(weft_connection* connection, weft_buffer* buffer, size_t offset,
                                 size_t bytes, uint64_t id);
/* weft_post_receive(), where the connection keeps the buffer as with WEFT_KEEP. */
WEFT_C_API int weft_post_receive_kept(weft_connection* connection, weft_buffer* buffer,
                                      size_t offset, size_t bytes, uint64_t id);
/* Posts a send of the part of the buffer, which takes one of the peer's receives. `id` is returned
 * in its outcome, and `flags` is a sum of WEFT_UNSIGNALED and the others, or 0. The bytes must not
 * change until the outcome. -ERANGE if the part is not within the buffer, -ENOMEM if the queue is
 * full, -ENOTCONN before the connection is established. */
WEFT_C_API int weft_post_send(weft_connection* connection, weft_buffer* buffer, size_t offset,
                              size_t bytes, uint64_t id, int flags);
/* Posts a write of the part of the buffer to the peer's buffer, from `remote_offset` on. The peer's
 * program gets no notice. `*remote` is used during the call only. -EMSGSIZE if the part is not
 * within the peer's buffer; the other errors are those of weft_post_send(). */
WEFT_C_API int weft_post_write(weft_connection* connection, weft_buffer* buffer, size_t offset,
                               size_t bytes, const weft_remote_buffer* remote,
                               uint64_t remote_offset, uint64_t id, int flags);
/* Posts a read from the peer's buffer, from `remote_offset` on, into the part of the local buffer,
 * where the bytes are valid when its outcome is. Errors are those of weft_post_write(). */
WEFT_C_API int weft_post_read(weft_connection* connection, weft_buffer* buffer, size_t offset,
                              size_t bytes, const weft_remote_buffer* remote,
                              uint64_t remote_offset, uint64_t id, int flags);
/* weft_post_send() with 32 bits of immediate data, which the receiver finds in its weft_completion.
 * -EOPNOTSUPP if the peer cannot receive them: one that is no Weft device, over iWARP. */
WEFT_C_API int weft_post_send_with_immediate(weft_connection* connection, weft_buffer* buffer,
                                             size_t offset, size_t bytes, uint32_t immediate,
                                             uint64_t id, int flags);
/* weft_post_write() with 32 bits of immediate data. It takes one of the peer's receives, which may
 * be of no bytes, and has its outcome WEFT_RECEIVE_OF_WRITE there. */
WEFT_C_API int weft_post_write_with_immediate(weft_connection* connection, weft_buffer* buffer,
                                              size_t offset, size_t bytes,
                                              const weft_remote_buffer* remote,
                                              uint64_t remote_offset, uint32_t immediate,
                                              uint64_t id, int flags);
/* weft_post_send() that invalidates, at the peer, the rkey of a memory window of type 2. The peer
 * finds it in weft_completion.invalidated_rkey. Another rkey ends the connection. */
WEFT_C_API int weft_post_send_with_invalidate(weft_connection* connection, weft_buffer* buffer,
                                              size_t offset, size_t bytes, uint32_t rkey,
                                              uint64_t id, int flags);
/* Adds to eight bytes of a buffer of the peer that grants WEFT_REMOTE_ATOMIC, where their address
 * is a multiple of eight, in one step that no other atomic of the peer's device interrupts. The
 * previous value is stored in eight bytes of the local buffer, from `offset` on, in the peer's byte
 * order. Errors are those of weft_post_write(). */
WEFT_C_API int weft_post_fetch_and_add(weft_connection* connection, weft_buffer* buffer,
                                       size_t offset, const weft_remote_buffer* remote,
                                       uint64_t remote_offset, uint64_t addend, uint64_t id,
                                       int flags);
/* The same, but stores `desired` there if the previous value is `expected`. */
WEFT_C_API int weft_post_compare_and_swap(weft_connection* connection, weft_buffer* buffer,
                                          size_t offset, const weft_remote_buffer* remote,
                                          uint64_t remote_offset, uint64_t expected,
                                          uint64_t desired, uint64_t id, int flags);
/* Waits for `count` outcomes of one queue, failures included, and writes them to `outcomes`, which
 * has room for as many. Returns how many there are: fewer, and maybe 0, if the timeout has passed
 * or, after the end, no posted request is left that could still complete. Each outcome goes to one
 * of the threads that wait. */
WEFT_C_API int weft_connection_await(weft_connection* connection, weft_queue queue,
                                     weft_outcome* outcomes, size_t count, int timeout_ms);
/* weft_connection_await() with all that came with each request; `size` is sizeof(weft_completion).
 */
WEFT_C_API int weft_connection_await_completions(weft_connection* connection, weft_queue queue,
                                                 weft_completion* completions, size_t size,
                                                 size_t count, int timeout_ms);
/* A descriptor for poll(2), readable when outcomes may have become available; then, and before the
 * first poll, call weft_connection_await() with timeout 0 until it returns fewer than `count`: only
 * such a call makes the descriptor report the next one. It belongs to the connection. With
 * WEFT_PROGRESS=manual data moves only while this process is in a call of the library. */
WEFT_C_API int weft_connection_fd(weft_connection* connection, weft_queue queue);

/* --- Advertising buffers to the peer */

/* Tells the peer where the whole buffer is, and `tag`, which has a meaning for the programs only.
 * The buffer must live while the peer may access it. -EOPNOTSUPP if one side has not enabled it,
 * -EAGAIN if the peer has not taken the last 64 yet, -ENOTCONN after the end. */
WEFT_C_API int weft_connection_advertise(weft_connection* connection, weft_buffer* buffer,
                                         uint32_t tag);
/* Waits for the next buffer that the peer advertises, and stores it in `*remote`: -EAGAIN at the
 * timeout, -ENOTCONN if the connection has ended, -EOPNOTSUPP if one side has not enabled it. */
WEFT_C_API int weft_connection_await_advertisement(weft_connection* connection,
                                                   weft_remote_buffer* remote, int timeout_ms);
/* A descriptor for poll(2), readable when it is time to call weft_connection_await_advertisement()
 * with timeout 0; if that finds nothing, the next time is within 2 ms. Call it once before the
 * first poll. */
WEFT_C_API int weft_connection_advertisement_fd(weft_connection* connection);

/* --- The end */

/* Ends the connection; posted requests are flushed on both sides: their outcomes have a status that
 * is not 0, and can still be taken. May be called twice. */
WEFT_C_API int weft_connection_disconnect(weft_connection* connection);
/* Waits for the end of the connection, by either side: -EAGAIN at the timeout. */
WEFT_C_API int weft_connection_await_disconnect(weft_connection* connection, int timeout_ms);
/* A descriptor for poll(2), readable when the connection may have ended, and always after its end;
 * then call weft_connection_await_disconnect() with timeout 0. */
WEFT_C_API int weft_connection_disconnect_fd(weft_connection* connection);
/* Disconnects if that was not done, and frees the connection. Its buffers are freed by themselves,
 * before or after. Outcomes that were not taken are dropped; the statistics count the received
 * messages among them. */
WEFT_C_API void weft_connection_free(weft_connection* connection);

#ifdef __cplusplus
}
#endif
