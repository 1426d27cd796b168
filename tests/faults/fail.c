/*
 * Counts the calls of a process that may fail, by kind, and has one or more of them fail. To be preloaded.
 *
 *   FAULT_COUNTS  file to which the numbers of calls are written at exit, a kind a line
 *   FAULT_KIND    which kind fails: alloc, open, read, write, rename, thread, sync
 *   FAULT_AT      which call of that kind, from 1
 *   FAULT_TIMES   how many calls fail from there on; 1 by default
 *   FAULT_PATH    only calls with this text in their file's path are counted
 *   FAULT_ERRNO   the error; by default each kind has its own
 *   FAULT_ACTION  instead of failing: kill or stop ends or stops the process, fork starts a child that lives for 2 s
 *   FAULT_LOG     file to which the call that failed is written
 *
 * Allocations count from 64 KiB on. Standard error can always be written, or nothing could be said about a fault.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { ALLOC, OPEN, READ, WRITE, RENAME, THREAD, SYNC, KINDS };
// The library reports a lack of memory for what is larger. The command's list of options has 84 KiB.
enum { LARGE_BYTES = 88 << 10 };

static const char *const names[KINDS] = { "alloc", "open", "read", "write", "rename", "thread", "sync" };
static const int errors[KINDS] = { ENOMEM, EMFILE, EIO, ENOSPC, EIO, EAGAIN, EIO };

static atomic_long counts[KINDS];
static int armed, failing = -1, failing_errno;
static long failing_at, failing_times = 1;
static const char *failing_path, *failing_action;

/* The C library's own, under their other names: what `dlsym` would find them by allocates itself. */
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *old, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);

__attribute__((constructor)) static void start(void) {
  const char *kind = getenv("FAULT_KIND"), *at = getenv("FAULT_AT");
  for (int i = 0; kind && i < KINDS; i++)
    if (!strcmp(kind, names[i]))
      failing = i;
  const char *times = getenv("FAULT_TIMES"), *error = getenv("FAULT_ERRNO");
  failing_at = at ? atol(at) : 0;
  failing_times = times ? atol(times) : 1;
  failing_errno = error ? atoi(error) : 0;
  failing_path = getenv("FAULT_PATH");
  failing_action = getenv("FAULT_ACTION");
  armed = 1;
}

static void put(const char *variable, const char *text) {
  const char *path = getenv(variable);
  if (!path)
    return;
  int file = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file < 0 || syscall(SYS_write, file, text, strlen(text)) < 0)
    abort();
  syscall(SYS_close, file);
}

__attribute__((destructor)) static void end(void) {
  char line[64];
  armed = 0;
  for (int i = 0; i < KINDS; i++) {
    snprintf(line, sizeof line, "%s %ld\n", names[i], (long)counts[i]);
    put("FAULT_COUNTS", line);
  }
}

/* What happens instead of a failure. A child makes system calls only: it has the locks of all other threads. */
static void act(void) {
  if (!strcmp(failing_action, "fork")) {
    if (syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) == 0) {
      struct timespec two_seconds = { 2, 0 };
      syscall(SYS_nanosleep, &two_seconds, 0);
      syscall(SYS_exit_group, 0);
    }
  } else {
    syscall(SYS_kill, syscall(SYS_getpid), strcmp(failing_action, "kill") ? SIGSTOP : SIGKILL);
  }
}

/* Whether this call is one to fail. */
static int fails(int kind, const char *call, const char *what) {
  char line[512];
  if (!armed || (failing_path && !strstr(what, failing_path)))
    return 0;
  long call_number = atomic_fetch_add(&counts[kind], 1) + 1;
  if (call_number < failing_at || call_number - failing_at >= failing_times || kind != failing)
    return 0;
  snprintf(line, sizeof line, "%s %s\n", call, what);
  put("FAULT_LOG", line);
  if (failing_action) {
    act();
    return 0;
  }
  errno = failing_errno ? failing_errno : errors[kind];
  return 1;
}

static int fails_at_size(const char *call, size_t size) {
  char text[32];
  if (!armed || size < LARGE_BYTES)
    return 0;
  snprintf(text, sizeof text, "of %zu bytes", size);
  return fails(ALLOC, call, text);
}

static int fails_at_file(int kind, const char *call, int file) {
  char link[32], path[256];
  if (!armed || file == STDERR_FILENO)
    return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  long len = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path - 1);
  path[len < 0 ? 0 : len] = 0;
  return fails(kind, call, path);
}

void *malloc(size_t size) { return fails_at_size("malloc", size) ? NULL : __libc_malloc(size); }

void *calloc(size_t count, size_t size) {
  return fails_at_size("calloc", count * size) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *old, size_t size) { return fails_at_size("realloc", size) ? NULL : __libc_realloc(old, size); }

int posix_memalign(void **out, size_t alignment, size_t size) {
  if (fails_at_size("posix_memalign", size))
    return ENOMEM;
  *out = __libc_memalign(alignment, size);
  return *out ? 0 : ENOMEM;
}

void *aligned_alloc(size_t alignment, size_t size) {
  return fails_at_size("aligned_alloc", size) ? NULL : __libc_memalign(alignment, size);
}

void *mmap64(void *address, size_t size, int protection, int flags, int file, off64_t offset) {
  if (flags & MAP_ANONYMOUS && fails_at_size("mmap", size))
    return MAP_FAILED;
  return (void *)syscall(SYS_mmap, address, size, protection, flags, file, offset);
}

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset) {
  return mmap64(address, size, protection, flags, file, offset);
}

static int open_at(int folder, const char *path, int flags, va_list rest) {
  mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
  return fails(OPEN, "open", path) ? -1 : (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define OPEN_LIKE(name, folder, ...)                                                                                   \
  int name(__VA_ARGS__, int flags, ...) {                                                                              \
    va_list rest;                                                                                                      \
    va_start(rest, flags);                                                                                             \
    int file = open_at(folder, path, flags, rest);                                                                     \
    va_end(rest);                                                                                                      \
    return file;                                                                                                       \
  }

OPEN_LIKE(open, AT_FDCWD, const char *path)
OPEN_LIKE(open64, AT_FDCWD, const char *path)
OPEN_LIKE(openat, folder, int folder, const char *path)
OPEN_LIKE(openat64, folder, int folder, const char *path)

ssize_t read(int file, void *to, size_t size) {
  return fails_at_file(READ, "read", file) ? -1 : syscall(SYS_read, file, to, size);
}

ssize_t pread64(int file, void *to, size_t size, off64_t offset) {
  return fails_at_file(READ, "pread", file) ? -1 : syscall(SYS_pread64, file, to, size, offset);
}

ssize_t readv(int file, const struct iovec *to, int count) {
  return fails_at_file(READ, "readv", file) ? -1 : syscall(SYS_readv, file, to, count);
}

ssize_t write(int file, const void *from, size_t size) {
  return fails_at_file(WRITE, "write", file) ? -1 : syscall(SYS_write, file, from, size);
}

ssize_t pwrite64(int file, const void *from, size_t size, off64_t offset) {
  return fails_at_file(WRITE, "pwrite", file) ? -1 : syscall(SYS_pwrite64, file, from, size, offset);
}

ssize_t writev(int file, const struct iovec *from, int count) {
  return fails_at_file(WRITE, "writev", file) ? -1 : syscall(SYS_writev, file, from, count);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to) {
  return fails(RENAME, "rename", to) ? -1 : (int)syscall(SYS_renameat2, from_folder, from, to_folder, to, 0);
}

int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int fsync(int file) { return fails_at_file(SYNC, "fsync", file) ? -1 : (int)syscall(SYS_fsync, file); }

int fdatasync(int file) { return fails_at_file(SYNC, "fdatasync", file) ? -1 : (int)syscall(SYS_fdatasync, file); }

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *argument) {
  static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
  if (!real)
    real = (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))(uintptr_t)dlsym(RTLD_NEXT,
                                                                                                     "pthread_create");
  return fails(THREAD, "pthread_create", "") ? EAGAIN : real(thread, attributes, run, argument);
}
