// Linked into the coverage builds of the warden and the agent. Keeps their counters in a memory-mapped file (LLVM's
// continuous mode, "%c"), because both end by SIGKILL or not at all, and neither gets an environment from its parent.
// Their forked children count into the same file. LLVM derives some counts by subtraction, so one of the two paths
// after a fork may count as not executed.

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void __llvm_profile_set_filename(const char *name);

// Runs before LLVM's runtime, which would otherwise register an exit handler that prints an error.
#define FIRST __attribute__((constructor(101)))

#ifdef GUEST

// PID 1 of a guest: the file is in the initramfs, which the agent deletes. The descriptor remains as /proc/1/fd/900.
#define KEPT 900

FIRST static void begin(void) {
  if (getpid() != 1) return;
  int fd = open("/agent.profraw", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  dup3(fd, KEPT, O_CLOEXEC);
  close(fd);
  __llvm_profile_set_filename("/agent.profraw%c");
}

#else

// On the host, DIR/bin/forkd-warden writes to DIR/raw. A copy elsewhere, without such a folder, writes nothing.
FIRST static void begin(void) {
  static char path[4096], name[4160];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length <= 0) return;
  for (int level = 0; level < 2; level++) {
    char *slash = strrchr(path, '/');
    if (slash == NULL) return;
    *slash = 0;
  }
  strncat(path, "/raw", sizeof path - strlen(path) - 1);
  if (access(path, W_OK) != 0) return;
  snprintf(name, sizeof name, "%s/warden-%%p%%c.profraw", path);
  __llvm_profile_set_filename(name);
}

#endif
