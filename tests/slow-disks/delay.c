/* Makes a process wait before each sync, as a disk does that takes long for one: DELAY_MS milliseconds. To be preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>

static void delay(void)
{
    const char *text = getenv("DELAY_MS");
    long ms = text ? strtol(text, NULL, 10) : 0;
    struct timespec left = { ms / 1000, ms % 1000 * 1000000 };
    while (nanosleep(&left, &left) != 0) { }
}

static int delayed(const char *name, int fd)
{
    int (*sync_file)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    delay();
    return sync_file(fd);
}

int fsync(int fd) { return delayed("fsync", fd); }

int fdatasync(int fd) { return delayed("fdatasync", fd); }
