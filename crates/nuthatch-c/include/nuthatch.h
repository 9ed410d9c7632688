/* A durable log broker that speaks NATS and JetStream, in your process.
 *
 * Every function may be called from any thread. None of them ends the process or installs a signal handler.
 * Functions that return an int return NUTHATCH_OK or one of the codes below; nuthatch_last_error has the words.
 * See docs/embedding.md.
 */
#ifndef NUTHATCH_H
#define NUTHATCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Compare with nuthatch_abi_version() where the library is loaded at run time. */
#define NUTHATCH_ABI_VERSION 1

/* A broker. 0 is none; the number of a closed one is never given again. */
typedef uint64_t nuthatch_broker;

enum nuthatch_code {
    NUTHATCH_OK = 0,
    NUTHATCH_NULL = 1,         /* an argument is null */
    NUTHATCH_UTF8 = 2,         /* a text is not UTF-8 */
    NUTHATCH_CONFIG = 3,       /* the configuration is of no use */
    NUTHATCH_OPEN = 4,         /* the broker did not start: a port is taken, a store is in use or damaged */
    NUTHATCH_NOT_READY = 5,    /* it did not start within ready_timeout; nothing is lost */
    NUTHATCH_HANDLE = 6,       /* there is no broker of this number */
    NUTHATCH_CLOSED = 7,       /* this broker was closed */
    NUTHATCH_DEAD = 8,         /* this broker has ended by itself: close it */
    NUTHATCH_FORKED = 9,       /* this process is a fork of one that opened brokers */
    NUTHATCH_SYSTEM = 10,      /* the system refused something, such as descriptors */
    NUTHATCH_NO_LISTENER = 11, /* the broker has no client port */
    NUTHATCH_ROOM = 12,        /* the buffer is too small */
    NUTHATCH_NOT_CLEAN = 13,   /* the broker has ended, but a log did not close cleanly */
    NUTHATCH_FLAGS = 14,       /* flags that this version does not know */
    NUTHATCH_PANIC = 15        /* a fault of the library */
};

/* Flags of nuthatch_open. */
#define NUTHATCH_OPEN_NO_LISTENER 1u /* no client port: nuthatch_connect is the only way in */
#define NUTHATCH_OPEN_LOG_STDERR 2u  /* without a log_file, lines go to the standard error stream, not nowhere */

/* Version of this interface, and of the library. */
uint32_t nuthatch_abi_version(void);
const char *nuthatch_version(void);

/* Opens a broker with the text of a configuration file (UTF-8, ends with a NUL) and waits until it serves. */
int nuthatch_open(const char *config, uint32_t flags, nuthatch_broker *broker);

/* Connects within the process: *fd is one end of a pair of stream sockets on which the broker speaks the protocol of
 * NATS. The caller closes it. Send with MSG_NOSIGNAL, or ignore SIGPIPE: the broker may end first. */
int nuthatch_connect(nuthatch_broker broker, int *fd);

/* Where clients of other processes connect, such as nats://127.0.0.1:4222, with its NUL. */
int nuthatch_client_url(nuthatch_broker broker, char *buffer, size_t size);
int nuthatch_client_port(nuthatch_broker broker, uint16_t *port);

/* NUTHATCH_OK while it serves; NUTHATCH_DEAD once it has ended by itself, with the reason as the last error. */
int nuthatch_check(nuthatch_broker broker);

/* Closes it, and waits until nothing of it runs any more. Whatever comes back, the number is used up. */
int nuthatch_close(nuthatch_broker broker);

/* Copies the text of this thread's last error, cut to fit; returns the length of all of it, 0 if there was none. */
size_t nuthatch_last_error(char *buffer, size_t size);

#ifdef __cplusplus
}
#endif

#endif
