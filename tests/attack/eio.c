/* For LD_PRELOAD: a disk with errors. One in three reads, or with EIO_WRITES one in
   three writes, flushes and renames, fails with EIO in the folder $EIO_IN. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fails(const char *path, int is_write)
{
    const char *folder = getenv("EIO_IN");
    int writes_fail = getenv("EIO_WRITES") != NULL;
    if (!folder || !strstr(path, folder) || is_write != writes_fail)
        return 0;
    static int is_seeded;
    if (!is_seeded++)
        srand(getpid());
    if (rand() % 3)
        return 0;
    errno = EIO;
    return 1;
}

static int file_fails(int file, int is_write)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    path[length < 0 ? 0 : length] = 0;
    return fails(path, is_write);
}

ssize_t read(int file, void *bytes, size_t n)
{
    ssize_t (*real)(int, void *, size_t) = dlsym(RTLD_NEXT, "read");
    return file_fails(file, 0) ? -1 : real(file, bytes, n);
}

ssize_t write(int file, const void *bytes, size_t n)
{
    ssize_t (*real)(int, const void *, size_t) = dlsym(RTLD_NEXT, "write");
    return file_fails(file, 1) ? -1 : real(file, bytes, n);
}

int fsync(int file)
{
    int (*real)(int) = dlsym(RTLD_NEXT, "fsync");
    return file_fails(file, 1) ? -1 : real(file);
}

int rename(const char *old, const char *new)
{
    int (*real)(const char *, const char *) = dlsym(RTLD_NEXT, "rename");
    /* the package renames by paths such as /proc/self/fd/5/name */
    char *source = realpath(old, NULL);
    int is_hit = source && fails(source, 1);
    free(source);
    return is_hit ? -1 : real(old, new);
}
