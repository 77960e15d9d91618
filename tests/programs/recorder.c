// LD_PRELOAD library that records every change of a process below a folder, and every sync, as JSON lines in order.
// tests/helpers/power-cut.ts reads the record.
//
// FORKD_RECORD_ROOT: the folder, without symlinks. FORKD_RECORD_LOG: the record. FORKD_RECORD_BOOT: a file that is
// opened in place of the host's boot id, so that a later reader of the store sees another boot.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

// Longer writes are memory and disks of VMs; their content is not needed
#define MAX_DATA 16384
#define BOOT_ID "/proc/sys/kernel/random/boot_id"

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static const char *root;
static size_t root_length;
static int log_fd = -1;

#define REAL(type, name, ...) static type (*real_##name)(__VA_ARGS__)
REAL(int, open64, const char *, int, ...);
REAL(ssize_t, write, int, const void *, size_t);
REAL(ssize_t, pwrite64, int, const void *, size_t, off64_t);
REAL(ssize_t, writev, int, const struct iovec *, int);
REAL(ssize_t, pwritev64, int, const struct iovec *, int, off64_t);
REAL(int, rename, const char *, const char *);
REAL(int, link, const char *, const char *);
REAL(int, unlink, const char *);
REAL(int, rmdir, const char *);
REAL(int, unlinkat, int, const char *, int);
REAL(int, mkdir, const char *, mode_t);
REAL(int, ftruncate64, int, off64_t);
REAL(int, fsync, int);
REAL(int, fdatasync, int);

static void *next(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  if (!found) abort();
  return found;
}

__attribute__((constructor)) static void begin(void) {
  real_open64 = next("open64");
  real_write = next("write");
  real_pwrite64 = next("pwrite64");
  real_writev = next("writev");
  real_pwritev64 = next("pwritev64");
  real_rename = next("rename");
  real_link = next("link");
  real_unlink = next("unlink");
  real_rmdir = next("rmdir");
  real_unlinkat = next("unlinkat");
  real_mkdir = next("mkdir");
  real_ftruncate64 = next("ftruncate64");
  real_fsync = next("fsync");
  real_fdatasync = next("fdatasync");
  root = getenv("FORKD_RECORD_ROOT");
  const char *log = getenv("FORKD_RECORD_LOG");
  if (!root || !log) abort();
  root_length = strlen(root);
  log_fd = real_open64(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (log_fd < 0) abort();
}

typedef struct {
  char *text;
  size_t length, room;
} Line;

static void add(Line *line, const char *format, ...) {
  va_list values;
  va_start(values, format);
  char piece[PATH_MAX + 256];
  int length = vsnprintf(piece, sizeof piece, format, values);
  va_end(values);
  if (line->length + length + 1 > line->room) {
    line->room = 2 * (line->length + length + 1);
    line->text = realloc(line->text, line->room);
    if (!line->text) abort();
  }
  memcpy(line->text + line->length, piece, length + 1);
  line->length += length;
}

static void add_bytes(Line *line, const unsigned char *bytes, size_t count) {
  for (size_t at = 0; at < count; at++) add(line, "%02x", bytes[at]);
}

static void finish(Line *line) {
  add(line, "}\n");
  if (real_write(log_fd, line->text, line->length) != (ssize_t)line->length) abort();
  free(line->text);
}

static int is_below(const char *path) {
  return root && strncmp(path, root, root_length) == 0 && (path[root_length] == '/' || path[root_length] == 0);
}

// Whether the path of a descriptor is below the folder
static int is_watched(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) return 0;
  path[length] = 0;
  return is_below(path);
}

// Finds the inode of the parent folder and the name in it; 0: the path is not below the folder
static int place(const char *path, ino_t *folder, char *name) {
  char parent[PATH_MAX], real[PATH_MAX];
  if (path[0] != '/' || strlen(path) >= sizeof parent) return 0;
  strcpy(parent, path);
  char *slash = strrchr(parent, '/');
  while (slash > parent && slash[1] == 0) {
    *slash = 0;
    slash = strrchr(parent, '/');
  }
  strcpy(name, slash + 1);
  *slash = 0;
  struct stat info;
  if (!realpath(parent[0] ? parent : "/", real) || !is_below(real) || stat(real, &info) != 0) return 0;
  *folder = info.st_ino;
  return 1;
}

// Adds all entries of a folder, including those of other processes
static void add_list(Line *line, const char *path) {
  DIR *folder = opendir(path);
  if (!folder) return;
  add(line, ",\"list\":[");
  const char *comma = "";
  for (struct dirent *entry; (entry = readdir(folder));) {
    struct stat info;
    if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..")) continue;
    if (fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) continue;
    add(line, "%s[\"%s\",%lu,%ld]", comma, entry->d_name, info.st_ino, S_ISDIR(info.st_mode) ? -1L : (long)info.st_size);
    comma = ",";
  }
  add(line, "]");
  closedir(folder);
}

static int record_open(const char *path, int flags, mode_t mode) {
  if (!strcmp(path, BOOT_ID) && getenv("FORKD_RECORD_BOOT")) return real_open64(getenv("FORKD_RECORD_BOOT"), flags, mode);
  ino_t folder;
  char name[PATH_MAX];
  if (!(flags & (O_CREAT | O_TRUNC)) || !place(path, &folder, name)) return real_open64(path, flags, mode);
  pthread_mutex_lock(&turn);
  struct stat before, info;
  int is_new = lstat(path, &before) != 0;
  int fd = real_open64(path, flags, mode);
  int error = errno;
  if (fd >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode)) {
    Line line = {0};
    if (is_new) add(&line, "{\"op\":\"create\",\"dir\":%lu,\"name\":\"%s\",\"ino\":%lu", folder, name, info.st_ino);
    else if (flags & O_TRUNC) add(&line, "{\"op\":\"truncate\",\"ino\":%lu,\"size\":0", info.st_ino);
    if (line.text) finish(&line);
  }
  pthread_mutex_unlock(&turn);
  errno = error;
  return fd;
}

#define OPEN(name)                                            \
  int name(const char *path, int flags, ...) {                \
    va_list values;                                           \
    va_start(values, flags);                                  \
    mode_t mode = flags & O_CREAT ? va_arg(values, mode_t) : 0; \
    va_end(values);                                           \
    return record_open(path, flags, mode);                    \
  }
OPEN(open)
OPEN(open64)

static ssize_t record_write(int fd, const struct iovec *parts, int count, off64_t at) {
  struct stat info;
  int is_recorded = is_watched(fd) && fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  if (!is_recorded) return at < 0 ? real_writev(fd, parts, count) : real_pwritev64(fd, parts, count, at);
  pthread_mutex_lock(&turn);
  fstat(fd, &info);
  off64_t where = at >= 0 ? at : fcntl(fd, F_GETFL) & O_APPEND ? info.st_size : lseek64(fd, 0, SEEK_CUR);
  ssize_t written = at < 0 ? real_writev(fd, parts, count) : real_pwritev64(fd, parts, count, at);
  int error = errno;
  if (written > 0) {
    Line line = {0};
    add(&line, "{\"op\":\"write\",\"ino\":%lu,\"at\":%ld,\"length\":%ld", info.st_ino, (long)where, (long)written);
    if (written <= MAX_DATA) {
      add(&line, ",\"data\":\"");
      size_t left = written;
      for (int part = 0; part < count && left > 0; part++) {
        size_t length = parts[part].iov_len < left ? parts[part].iov_len : left;
        add_bytes(&line, parts[part].iov_base, length);
        left -= length;
      }
      add(&line, "\"");
    }
    finish(&line);
  }
  pthread_mutex_unlock(&turn);
  errno = error;
  return written;
}

ssize_t write(int fd, const void *data, size_t length) {
  struct iovec part = {(void *)data, length};
  return record_write(fd, &part, 1, -1);
}

ssize_t writev(int fd, const struct iovec *parts, int count) { return record_write(fd, parts, count, -1); }

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t at) { return record_write(fd, parts, count, at); }

ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t at) { return record_write(fd, parts, count, at); }

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t at) {
  struct iovec part = {(void *)data, length};
  return record_write(fd, &part, 1, at);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t at) { return pwrite64(fd, data, length, at); }

int ftruncate64(int fd, off64_t size) {
  struct stat info;
  if (!is_watched(fd) || fstat(fd, &info) != 0) return real_ftruncate64(fd, size);
  pthread_mutex_lock(&turn);
  int result = real_ftruncate64(fd, size);
  int error = errno;
  if (result == 0) {
    Line line = {0};
    add(&line, "{\"op\":\"truncate\",\"ino\":%lu,\"size\":%ld", info.st_ino, (long)size);
    finish(&line);
  }
  pthread_mutex_unlock(&turn);
  errno = error;
  return result;
}

int ftruncate(int fd, off_t size) { return ftruncate64(fd, size); }

int mkdir(const char *path, mode_t mode) {
  ino_t folder;
  char name[PATH_MAX];
  if (!place(path, &folder, name)) return real_mkdir(path, mode);
  pthread_mutex_lock(&turn);
  struct stat info;
  int result = real_mkdir(path, mode);
  int error = errno;
  if (result == 0 && stat(path, &info) == 0) {
    Line line = {0};
    add(&line, "{\"op\":\"mkdir\",\"dir\":%lu,\"name\":\"%s\",\"ino\":%lu", folder, name, info.st_ino);
    finish(&line);
  }
  pthread_mutex_unlock(&turn);
  errno = error;
  return result;
}

int link(const char *from, const char *to) {
  ino_t folder;
  char name[PATH_MAX];
  if (!place(to, &folder, name)) return real_link(from, to);
  pthread_mutex_lock(&turn);
  struct stat info;
  int result = real_link(from, to);
  int error = errno;
  if (result == 0 && stat(to, &info) == 0) {
    Line line = {0};
    add(&line, "{\"op\":\"link\",\"dir\":%lu,\"name\":\"%s\",\"ino\":%lu,\"size\":%ld", folder, name, info.st_ino, (long)info.st_size);
    finish(&line);
  }
  pthread_mutex_unlock(&turn);
  errno = error;
  return result;
}

static int record_removal(const char *path, int (*remove_it)(const char *)) {
  ino_t folder;
  char name[PATH_MAX];
  if (!place(path, &folder, name)) return remove_it(path);
  pthread_mutex_lock(&turn);
  int result = remove_it(path);
  int error = errno;
  if (result == 0) {
    Line line = {0};
    add(&line, "{\"op\":\"unlink\",\"dir\":%lu,\"name\":\"%s\"", folder, name);
    finish(&line);
  }
  pthread_mutex_unlock(&turn);
  errno = error;
  return result;
}

int unlink(const char *path) { return record_removal(path, real_unlink); }

int rmdir(const char *path) { return record_removal(path, real_rmdir); }

int unlinkat(int at, const char *name, int flags) {
  char link[64], path[2 * PATH_MAX];
  if (name[0] == '/') snprintf(path, sizeof path, "%s", name);
  else {
    snprintf(link, sizeof link, "/proc/self/fd/%d", at);
    ssize_t length = at == AT_FDCWD ? -1 : readlink(link, path, PATH_MAX - 1);
    if (length < 0) return real_unlinkat(at, name, flags);
    snprintf(path + length, PATH_MAX, "/%s", name);
  }
  return record_removal(path, flags & AT_REMOVEDIR ? real_rmdir : real_unlink);
}

int rename(const char *from, const char *to) {
  ino_t folder, to_folder;
  char name[PATH_MAX], to_name[PATH_MAX];
  if (!place(from, &folder, name) || !place(to, &to_folder, to_name)) return real_rename(from, to);
  pthread_mutex_lock(&turn);
  struct stat info;
  int result = real_rename(from, to);
  int error = errno;
  if (result == 0 && stat(to, &info) == 0) {
    Line line = {0};
    add(&line, "{\"op\":\"rename\",\"dir\":%lu,\"name\":\"%s\",\"ino\":%lu,\"to_dir\":%lu,\"to_name\":\"%s\"", folder, name, info.st_ino,
        to_folder, to_name);
    if (S_ISDIR(info.st_mode)) add_list(&line, to);
    finish(&line);
  }
  pthread_mutex_unlock(&turn);
  errno = error;
  return result;
}

// Data written after the start of a sync need not be on disk at its end
static int record_sync(int fd, int (*sync_it)(int)) {
  static unsigned long count;
  struct stat info;
  if (!is_watched(fd)) return sync_it(fd);
  pthread_mutex_lock(&turn);
  // fstat under the lock: a size from before another thread's write would be taken for a truncation
  if (fstat(fd, &info) != 0) abort();
  unsigned long number = ++count;
  Line line = {0};
  add(&line, "{\"op\":\"sync\",\"ino\":%lu,\"number\":\"%d-%lu\",\"size\":%ld", info.st_ino, getpid(), number, S_ISDIR(info.st_mode) ? -1L : (long)info.st_size);
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (S_ISDIR(info.st_mode)) add_list(&line, path);
  finish(&line);
  pthread_mutex_unlock(&turn);
  int result = sync_it(fd);
  int error = errno;
  if (result == 0) {
    pthread_mutex_lock(&turn);
    Line end = {0};
    add(&end, "{\"op\":\"synced\",\"number\":\"%d-%lu\"", getpid(), number);
    finish(&end);
    pthread_mutex_unlock(&turn);
  }
  errno = error;
  return result;
}

int fsync(int fd) { return record_sync(fd, real_fsync); }

int fdatasync(int fd) { return record_sync(fd, real_fdatasync); }
