/* Byte streams over RDMA, which do what TCP sockets do. See weft.h and weft/stream.hpp.
 *
 * Streams, listeners and queues of events may be used by several threads at the same time; requests
 * by one at a time. The bytes of one call are never mixed with those of another. Offsets and
 * lengths are in bytes. */
#pragma once

#include "weft/c/common.h"
#include "weft/c/connection.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_stream weft_stream;                   /* freed by weft_stream_free() */
typedef struct weft_stream_listener weft_stream_listener; /* accepts streams */
typedef struct weft_stream_request weft_stream_request;   /* a peer that wants to connect */
typedef struct weft_stream_events weft_stream_events;     /* a queue of events */

/* How messages are transferred. Both sides must support the variant. */
typedef enum weft_stream_variant {
  WEFT_STREAM_AUTOMATIC = 0,     /* the next one, if both devices support it */
  WEFT_STREAM_IMMEDIATE = 1,     /* RDMA writes with immediate */
  WEFT_STREAM_WRITE_AND_SEND = 2 /* a write and a small send: for devices without immediates */
} weft_stream_variant;

/* Options of a stream, or of all streams of a listener. */
typedef struct weft_stream_options {
  size_t size;                   /* of this structure */
  uint32_t send_buffer_bytes;    /* of the direction to the peer: at most 64 MiB (32 KiB) */
  uint32_t receive_buffer_bytes; /* of the direction from the peer, as well */
  /* The size up to which buffers of the default size grow (1 MiB). */
  uint32_t growth_bytes;
  /* The time without bytes from the peer after which it is probed; 0 is never. The stream fails
   * with ETIMEDOUT when `keepalive_probes` probes, `keepalive_interval_ms` apart, were not
   * answered.
   */
  uint32_t keepalive_idle_ms;
  uint32_t keepalive_interval_ms; /* 75 000 */
  uint32_t keepalive_probes;      /* 9 */
  /* Sent to the peer's program with the request to connect, or with its acceptance. */
  const void* private_data;
  size_t private_data_bytes; /* its length; more than the device can carry is -EINVAL */
  /* Messages that may be under way to the peer, and from it: 2 to 65535 (384). */
  uint32_t send_queue;
  uint32_t receive_queue;
  int64_t spin_us;    /* how long a call polls before it blocks (50); below 0: never */
  uint32_t linger_ms; /* how long weft_stream_free() may wait (5000) */
  /* How many of its buffers the peer may map, for this side to write to: at most 255. */
  uint32_t mapped_buffers;
  int32_t variant;   /* a weft_stream_variant */
  uint8_t ipv6_only; /* 1: a listener on an IPv6 address does not accept IPv4 peers */
} weft_stream_options;
/* Initializes weft_stream_options: all defaults. */
#define WEFT_STREAM_OPTIONS \
  { .size = sizeof(weft_stream_options) }

/* Counters of a stream. Set `size` before the call: members that the library does not have are 0.
 */
typedef struct weft_stream_statistics {
  size_t size;                     /* of this structure */
  uint64_t bytes_sent;             /* that this program has sent */
  uint64_t bytes_received;         /* that have arrived */
  uint64_t data_messages_sent;     /* that carried these bytes */
  uint64_t data_messages_received; /* that carried these bytes */
  uint64_t updates_sent;           /* that return ring space or receives */
  uint64_t updates_received;       /* as well */
  uint64_t refused_sends;          /* calls that returned -EAGAIN */
  uint64_t answered_probes;        /* of the keepalive */
  uint64_t placed_bytes_sent;      /* that this side has copied into the peer's memory itself */
} weft_stream_statistics;
/* Initializes weft_stream_statistics. */
#define WEFT_STREAM_STATISTICS \
  { .size = sizeof(weft_stream_statistics) }

/* Connects to `host`, a name or an address, and waits for the result: -ETIMEDOUT at the timeout,
 * -ECONNREFUSED if the peer rejects. `*stream` is set on success only, and belongs to the caller:
 * weft_stream_free(). */
WEFT_C_API int weft_stream_connect(weft_stream** stream, const char* host, uint16_t port,
                                   const weft_stream_options* options, int timeout_ms);
/* Begins to connect, and does not wait for the result, nor for the look-up of a name:
 * weft_stream_await_connected() returns it. `*stream` belongs to the caller. */
WEFT_C_API int weft_stream_start_connecting(weft_stream** stream, const char* host, uint16_t port,
                                            const weft_stream_options* options);
/* Waits until the stream is connected: -EAGAIN at the timeout, another error if connecting has
 * failed. */
WEFT_C_API int weft_stream_await_connected(weft_stream* stream, int timeout_ms);

/* Sends bytes: waits until all are copied into the stream's buffer, or the timeout has passed.
 * Returns how many were sent; -EAGAIN if the timeout has passed and none was, and -ECONNRESET,
 * -ETIMEDOUT or another error if the stream has failed. `bytes` may be changed when it returns. */
WEFT_C_API ssize_t weft_stream_send(weft_stream* stream, const void* bytes, size_t count,
                                    int timeout_ms);
/* Receives up to `count` bytes: waits for the first one. Returns how many were received; 0 at the
 * end of the stream, again and again; -EAGAIN at the timeout. */
WEFT_C_API ssize_t weft_stream_receive(weft_stream* stream, void* into, size_t count,
                                       int timeout_ms);
/* Flags of weft_stream_receive_with(). */
enum {
  WEFT_STREAM_PEEK = 1,    /* the bytes can be received again */
  WEFT_STREAM_WAIT_ALL = 2 /* wait until there are `count` bytes, the end, or the timeout */
};
/* weft_stream_receive() with WEFT_STREAM_PEEK, WEFT_STREAM_WAIT_ALL or both, as those of recv(2).
 * -EINVAL for other flags. */
WEFT_C_API ssize_t weft_stream_receive_with(weft_stream* stream, void* into, size_t count,
                                            int flags, int timeout_ms);
/* The number of bytes that can be received without waiting. */
WEFT_C_API size_t weft_stream_available(weft_stream* stream);
/* Receiving without a copy: waits as weft_stream_receive(), and sets `*bytes` to where bytes have
 * arrived. Returns how many lie there side by side; 0 at the end. They stay there, and are returned
 * again, until weft_stream_consume(). The pointer is valid until then, or until a call receives or
 * closes. The peer can change these bytes at any time: a program that does not trust it copies what
 * it checks before it checks it. */
WEFT_C_API ssize_t weft_stream_view(weft_stream* stream, const void** bytes, int timeout_ms);
/* The first `count` bytes of the last view are received. -EINVAL if it has fewer. */
WEFT_C_API int weft_stream_consume(weft_stream* stream, size_t count);

/* Sending without a copy: registers memory of the program, which must outlive the buffer. -ENOTCONN
 * while the stream has no device yet: before it is connected. */
WEFT_C_API int weft_stream_register(weft_stream* stream, void* memory, size_t bytes,
                                    weft_buffer** buffer);
/* Sends a part of a registered buffer, as weft_stream_send(). When this returns, the bytes may be
 * changed. At most 4 GiB less one byte are sent by one call. -ERANGE if the part is not within the
 * buffer. */
WEFT_C_API ssize_t weft_stream_send_registered(weft_stream* stream, weft_buffer* buffer,
                                               size_t offset, size_t count, int timeout_ms);

/* --- Mapped buffers (rsocket(7) calls this iomap): memory that the peer writes to directly */

/* Lets the peer write to `memory`, which it addresses by `offset`; with -1 the stream chooses one.
 * Returns the offset, which the peer can use when it has received what this side sends behind it.
 * The memory must stay valid until it is unmapped or the stream is closed. The peer's
 * `mapped_buffers` is the limit: -ENOBUFS beyond it. */
WEFT_C_API int64_t weft_stream_map(weft_stream* stream, void* memory, size_t bytes, int64_t offset,
                                   int timeout_ms);
/* Ends a mapping; `memory` must be the whole of it. The peer cannot write there any more when this
 * returns 0. -EINVAL if it is not mapped, -EAGAIN at the timeout. */
WEFT_C_API int weft_stream_unmap(weft_stream* stream, void* memory, size_t bytes, int timeout_ms);
/* Writes to a buffer that the peer has mapped, in order with what is sent. Returns as
 * weft_stream_send(); -EFAULT if these offsets are not mapped. */
WEFT_C_API ssize_t weft_stream_write_mapped(weft_stream* stream, const void* bytes, size_t count,
                                            uint64_t offset, int timeout_ms);

/* --- Descriptors, and the end */

/* A descriptor for poll(2): readable while bytes, the end or a failure can be received, while the
 * result of connecting was not asked for, and when a send that was short or -EAGAIN can go on. It
 * belongs to the stream. */
WEFT_C_API int weft_stream_fd(weft_stream* stream);
/* A descriptor for poll(2): readable when a send that was short or -EAGAIN can go on or fails, and
 * for nothing else: for a program that receives nothing before it has sent what it has. It belongs
 * to the stream. */
WEFT_C_API int weft_stream_send_fd(weft_stream* stream);

/* Ends the sending direction. The peer receives the end behind all bytes; receiving goes on. */
WEFT_C_API int weft_stream_finish(weft_stream* stream);
/* Ends both directions. Returns 0 when the peer's device has everything that was sent; -EAGAIN if
 * that is not so at the timeout, or the connection was lost. */
WEFT_C_API int weft_stream_close(weft_stream* stream, int linger_ms);
/* Ends the stream at once: the peer gets ECONNRESET behind the bytes that have arrived. */
WEFT_C_API int weft_stream_abort(weft_stream* stream);
/* Closes the stream with the linger time of its options if that was not done, and frees it. */
WEFT_C_API void weft_stream_free(weft_stream* stream);

/* Writes the address of this side, "192.0.2.1:7174" or "[::1]:7174" with a terminating zero, into
 * `text`, which has `room` bytes. Returns its length, as snprintf(3) does: the text was cut if that
 * is not less than `room`. -ENOTCONN before there is an address. */
WEFT_C_API int weft_stream_local_address(weft_stream* stream, char* text, size_t room);
/* Writes the address of the peer, as weft_stream_local_address(). */
WEFT_C_API int weft_stream_peer_address(weft_stream* stream, char* text, size_t room);
/* The private data of the peer's program, of `*count` bytes. Valid as long as the stream. */
WEFT_C_API const void* weft_stream_peer_private_data(weft_stream* stream, size_t* count);

/* Copies the counters; `statistics->size` must be set. */
WEFT_C_API int weft_stream_get_statistics(weft_stream* stream, weft_stream_statistics* statistics);

/* Listens. A null or empty host is any local address, port 0 a free port, and backlog 0 the
 * default. The accepted streams get the options. -EADDRINUSE if the port is taken. */
WEFT_C_API int weft_stream_listen(weft_stream_listener** listener, const char* host, uint16_t port,
                                  const weft_stream_options* options, int backlog);
/* Waits for a peer, and accepts it: -EAGAIN at the timeout. No peer is lost then: with timeout 0,
 * call this whenever the descriptor of the listener is readable. `*stream` belongs to the caller.
 * -EMFILE, -ENFILE, -ENOBUFS or -ENOMEM if this process has no room for a peer, which is rejected.
 */
WEFT_C_API int weft_stream_accept(weft_stream_listener* listener, weft_stream** stream,
                                  int timeout_ms);
/* Waits for a peer, and lets the program decide: -EAGAIN at the timeout. A request must be accepted
 * or rejected; both free it. weft_stream_accept() accepts all peers that have asked, so a program
 * uses either of both. */
WEFT_C_API int weft_stream_next(weft_stream_listener* listener, weft_stream_request** request,
                                int timeout_ms);
/* What the peer's program sent with its request, of `*count` bytes. Valid as long as the request.
 */
WEFT_C_API const void* weft_stream_request_private_data(weft_stream_request* request,
                                                        size_t* count);
/* Writes the address of the peer, as weft_stream_local_address(). */
WEFT_C_API int weft_stream_request_peer_address(weft_stream_request* request, char* text,
                                                size_t room);
/* Accepts, and frees the request, also if it fails. The stream is still connecting, and its calls
 * wait for that; see weft_stream_await_connected(). Null options are those of the listener; the
 * private data is theirs. */
WEFT_C_API int weft_stream_request_accept(weft_stream_request* request, weft_stream** stream,
                                          const weft_stream_options* options);
/* Rejects, and frees the request, also if it fails: the peer gets -ECONNREFUSED, and the private
 * data. */
WEFT_C_API int weft_stream_request_reject(weft_stream_request* request, const void* private_data,
                                          size_t private_data_bytes);
/* The port that it listens on; the one that was chosen where 0 was asked for. */
WEFT_C_API uint16_t weft_stream_listener_port(weft_stream_listener* listener);
/* A descriptor for poll(2), readable while a peer may be waiting. It belongs to the listener. */
WEFT_C_API int weft_stream_listener_fd(weft_stream_listener* listener);
/* Stops to listen. Streams that were accepted are not affected. Requests that are still in a queue
 * of events can be accepted. */
WEFT_C_API void weft_stream_listener_free(weft_stream_listener* listener);

/* --- Events of many streams and listeners in one queue, for several threads if they like */

/* What a weft_stream_event reports. */
typedef enum weft_stream_event_type {
  WEFT_STREAM_CONNECT_REQUEST = 0, /* a peer wants to connect to the listener: see `request` */
  WEFT_STREAM_CONNECTED = 1,       /* the stream is connected */
  WEFT_STREAM_FAILED = 2,          /* the stream could not be connected: see `error_number` */
  /* The peer has sent its last byte or, with an error number, the connection is lost. Reported once
   * for a stream. */
  WEFT_STREAM_SHUTDOWN = 3
} weft_stream_event_type;

/* One event. Set `size` before the call: members that the library does not have are 0. */
typedef struct weft_stream_event {
  size_t size;                  /* of this structure */
  int32_t type;                 /* a weft_stream_event_type */
  int32_t error_number;         /* of WEFT_STREAM_FAILED and WEFT_STREAM_SHUTDOWN; otherwise 0 */
  uint64_t cookie;              /* that was passed when the listener or stream was attached */
  weft_stream_request* request; /* to be accepted or rejected, which frees it; otherwise null */
} weft_stream_event;
/* Initializes weft_stream_event. */
#define WEFT_STREAM_EVENT \
  { .size = sizeof(weft_stream_event) }

/* Makes an empty queue, which belongs to the caller: weft_stream_events_free(). */
WEFT_C_API int weft_stream_events_new(weft_stream_events** events);
/* Waits for the next event: -EAGAIN at the timeout. Each event goes to one of the threads that
 * wait. */
WEFT_C_API int weft_stream_events_next(weft_stream_events* events, weft_stream_event* event,
                                       int timeout_ms);
/* A descriptor for poll(2), readable while there is an event. It belongs to the queue. */
WEFT_C_API int weft_stream_events_fd(weft_stream_events* events);
/* Frees the queue for the program; what is attached to it keeps it. Requests that were not taken
 * from it are rejected when nothing is attached to it any more. */
WEFT_C_API void weft_stream_events_free(weft_stream_events* events);
/* From now on the events of the stream go to the queue, with the cookie; null ends that. */
WEFT_C_API int weft_stream_attach(weft_stream* stream, weft_stream_events* events, uint64_t cookie);
/* From now on the requests of the listener go to the queue, with the cookie; null ends that. The
 * queue has at most 128 of a listener, and further ones wait in its backlog. A listener that is
 * attached must not be used with weft_stream_next() and weft_stream_accept(). */
WEFT_C_API int weft_stream_listener_attach(weft_stream_listener* listener,
                                           weft_stream_events* events, uint64_t cookie);

#ifdef __cplusplus
}
#endif
