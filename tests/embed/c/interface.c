/* The C interface, from C: what it does, and what becomes of every wrong use of it.
 * interface DIR: brokers have their stores below DIR. */
#define _GNU_SOURCE
#include <nuthatch.h>

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *dir;

static void fail(const char *file, int line, const char *what) {
    char text[512] = "";
    nuthatch_last_error(text, sizeof text);
    fprintf(stderr, "%s:%d: %s (last error: %s)\n", file, line, what, text);
    exit(1);
}

#define CHECK(holds) ((holds) ? (void)0 : fail(__FILE__, __LINE__, #holds))
/* It fails with this code, and the words say so. */
#define REFUSED(call, code, word)                                        \
    do {                                                                 \
        CHECK((call) == (code));                                         \
        char words[1024] = "";                                           \
        CHECK(nuthatch_last_error(words, sizeof words) == strlen(words)); \
        CHECK(strstr(words, word) != NULL);                              \
    } while (0)

static nuthatch_broker open_broker(const char *name, const char *more, uint32_t flags) {
    char config[1024];
    nuthatch_broker broker = 0;
    snprintf(config, sizeof config, "jetstream { store_dir: '%s/%s' }\n%s", dir, name, more);
    CHECK(nuthatch_open(config, flags, &broker) == NUTHATCH_OK);
    CHECK(broker != 0);
    return broker;
}

/* Reads until `end` stands at the end of what came, or the stream ends. */
static size_t read_until(int fd, const char *end, char *text, size_t size) {
    size_t used = 0;
    text[0] = 0;
    while (used + 1 < size) {
        ssize_t count = read(fd, text + used, size - 1 - used);
        if (count <= 0) break;
        used += (size_t)count;
        text[used] = 0;
        if (used >= strlen(end) && strcmp(text + used - strlen(end), end) == 0) break;
    }
    return used;
}

static void say(int fd, const char *text) {
    CHECK(send(fd, text, strlen(text), MSG_NOSIGNAL) == (ssize_t)strlen(text));
}

static int connect_to(nuthatch_broker broker) {
    char text[4096];
    int fd = -1;
    CHECK(nuthatch_connect(broker, &fd) == NUTHATCH_OK);
    say(fd, "CONNECT {\"verbose\":false}\r\nPING\r\n");
    read_until(fd, "PONG\r\n", text, sizeof text);
    CHECK(strncmp(text, "INFO {", 6) == 0);
    return fd;
}

static void versions(void) {
    CHECK(nuthatch_abi_version() == NUTHATCH_ABI_VERSION);
    CHECK(strlen(nuthatch_version()) > 0);
}

static void wrong_arguments(void) {
    char text[8];
    int fd = 77;
    uint16_t port = 0;
    nuthatch_broker broker = 0;
    REFUSED(nuthatch_open(NULL, 0, &broker), NUTHATCH_NULL, "config is null");
    REFUSED(nuthatch_open("", 0, NULL), NUTHATCH_NULL, "broker is null");
    REFUSED(nuthatch_open("port: \xff\xfe", 0, &broker), NUTHATCH_UTF8, "not UTF-8");
    REFUSED(nuthatch_open("prot: 1", 0, &broker), NUTHATCH_CONFIG, "prot");
    REFUSED(nuthatch_open("", 64, &broker), NUTHATCH_FLAGS, "0x40");
    REFUSED(nuthatch_open("jetstream { store_dir: '/dev/null/x' }", NUTHATCH_OPEN_NO_LISTENER, &broker),
            NUTHATCH_OPEN, "/dev/null/x");
    CHECK(broker == 0);
    REFUSED(nuthatch_connect(12345, &fd), NUTHATCH_HANDLE, "12345");
    REFUSED(nuthatch_close(0), NUTHATCH_HANDLE, "0 is no broker");
    CHECK(fd == 77);
    broker = open_broker("arguments", "port: -1", 0);
    REFUSED(nuthatch_connect(broker, NULL), NUTHATCH_NULL, "fd is null");
    REFUSED(nuthatch_client_port(broker, NULL), NUTHATCH_NULL, "port is null");
    REFUSED(nuthatch_client_url(broker, NULL, 100), NUTHATCH_NULL, "buffer is null");
    REFUSED(nuthatch_client_url(broker, text, sizeof text), NUTHATCH_ROOM, "are needed");
    /* A last error is cut to fit, and its length is that of all of it. */
    CHECK(nuthatch_last_error(NULL, 0) > sizeof text);
    CHECK(nuthatch_last_error(text, sizeof text) > sizeof text && strlen(text) == sizeof text - 1);
    char url[64];
    CHECK(nuthatch_client_url(broker, url, sizeof url) == NUTHATCH_OK);
    CHECK(nuthatch_last_error(text, sizeof text) == 0 && text[0] == 0);
    CHECK(nuthatch_client_port(broker, &port) == NUTHATCH_OK && port != 0);
    char expected[64];
    snprintf(expected, sizeof expected, "nats://127.0.0.1:%u", port);
    CHECK(strcmp(url, expected) == 0);
    CHECK(nuthatch_close(broker) == NUTHATCH_OK);
}

static void messages(void) {
    char text[4096];
    nuthatch_broker broker = open_broker("messages", "", NUTHATCH_OPEN_NO_LISTENER);
    uint16_t port = 0;
    REFUSED(nuthatch_client_port(broker, &port), NUTHATCH_NO_LISTENER, "no client port");
    REFUSED(nuthatch_client_url(broker, text, sizeof text), NUTHATCH_NO_LISTENER, "no client port");
    int one = connect_to(broker), other = connect_to(broker);
    say(other, "SUB greetings 1\r\nPING\r\n");
    read_until(other, "PONG\r\n", text, sizeof text);
    say(one, "PUB greetings 5\r\nhello\r\n");
    read_until(other, "hello\r\n", text, sizeof text);
    CHECK(strstr(text, "MSG greetings 1 5\r\nhello\r\n") != NULL);
    CHECK(nuthatch_check(broker) == NUTHATCH_OK);
    CHECK(nuthatch_close(broker) == NUTHATCH_OK);
    /* Connections end with it; its number is used up. */
    read_until(one, "never", text, sizeof text);
    close(one);
    close(other);
    REFUSED(nuthatch_close(broker), NUTHATCH_CLOSED, "closed");
    REFUSED(nuthatch_connect(broker, &one), NUTHATCH_CLOSED, "closed");
    REFUSED(nuthatch_check(broker), NUTHATCH_CLOSED, "closed");
    CHECK(open_broker("messages", "", NUTHATCH_OPEN_NO_LISTENER) == broker + 1);
    CHECK(nuthatch_close(broker + 1) == NUTHATCH_OK);
}

/* The default action of SIGPIPE would end this program. */
static void client_that_goes(void) {
    char text[4096];
    signal(SIGPIPE, SIG_DFL);
    nuthatch_broker broker = open_broker("goes", "", NUTHATCH_OPEN_NO_LISTENER);
    int publisher = connect_to(broker);
    for (int round = 0; round < 50; round++) {
        int reader = connect_to(broker);
        say(reader, "SUB x 1\r\nPING\r\n");
        read_until(reader, "PONG\r\n", text, sizeof text);
        close(reader);
        for (int n = 0; n < 20; n++) say(publisher, "PUB x 5\r\nhello\r\n");
        say(publisher, "PING\r\n");
        read_until(publisher, "PONG\r\n", text, sizeof text);
    }
    close(publisher);
    CHECK(nuthatch_close(broker) == NUTHATCH_OK);
}

static nuthatch_broker shared;
static int closed_by;

/* Connects until another thread has closed the broker. */
static void *connect_until_closed(void *arg) {
    for (;;) {
        int fd = -1, code = nuthatch_connect(shared, &fd);
        if (code == NUTHATCH_CLOSED) return arg;
        CHECK(code == NUTHATCH_OK);
        close(fd);
    }
}

static void *close_shared(void *arg) {
    int code = nuthatch_close(shared);
    CHECK(code == NUTHATCH_OK || code == NUTHATCH_CLOSED);
    if (code == NUTHATCH_OK) __atomic_add_fetch(&closed_by, 1, __ATOMIC_SEQ_CST);
    return arg;
}

static void *own_broker(void *name) {
    for (int round = 0; round < 2; round++) {
        nuthatch_broker broker = open_broker(name, "", NUTHATCH_OPEN_NO_LISTENER);
        close(connect_to(broker));
        CHECK(nuthatch_close(broker) == NUTHATCH_OK);
    }
    return name;
}

static void threads(void) {
    pthread_t all[7];
    shared = open_broker("threads", "", NUTHATCH_OPEN_NO_LISTENER);
    for (int n = 0; n < 2; n++) CHECK(pthread_create(&all[n], NULL, connect_until_closed, NULL) == 0);
    for (int n = 2; n < 5; n++) CHECK(pthread_create(&all[n], NULL, n < 4 ? close_shared : own_broker, "own-a") == 0);
    CHECK(pthread_create(&all[5], NULL, own_broker, "own-b") == 0);
    CHECK(pthread_create(&all[6], NULL, own_broker, "own-c") == 0);
    for (int n = 0; n < 7; n++) CHECK(pthread_join(all[n], NULL) == 0);
    CHECK(closed_by == 1);
}

static void fork_of_a_host(void) {
    nuthatch_broker broker = open_broker("fork", "", NUTHATCH_OPEN_NO_LISTENER), other = 0;
    int fd = -1, status = 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        REFUSED(nuthatch_connect(broker, &fd), NUTHATCH_FORKED, "fork");
        REFUSED(nuthatch_check(broker), NUTHATCH_FORKED, "fork");
        REFUSED(nuthatch_close(broker), NUTHATCH_FORKED, "fork");
        REFUSED(nuthatch_open("", 0, &other), NUTHATCH_FORKED, "fork");
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    /* It is as it was. */
    close(connect_to(broker));
    CHECK(nuthatch_close(broker) == NUTHATCH_OK);
}

/* The host's handlers and mask are its own. */
static void signals_of_the_host(void) {
    int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE};
    enum { COUNT = sizeof numbers / sizeof *numbers };
    struct sigaction before[COUNT], now;
    /* Whoever started this may have had some of them ignored, as nohup does. */
    for (size_t n = 0; n < COUNT; n++) {
        CHECK(sigaction(numbers[n], NULL, &before[n]) == 0);
    }
    nuthatch_broker broker = open_broker("signals", "", NUTHATCH_OPEN_NO_LISTENER);
    for (size_t n = 0; n < COUNT; n++) {
        CHECK(sigaction(numbers[n], NULL, &now) == 0 && now.sa_handler == before[n].sa_handler);
    }
    CHECK(nuthatch_close(broker) == NUTHATCH_OK);
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    dir = argv[1];
    versions();
    wrong_arguments();
    messages();
    client_that_goes();
    threads();
    fork_of_a_host();
    signals_of_the_host();
    puts("the C interface is as its header says");
    return 0;
}
