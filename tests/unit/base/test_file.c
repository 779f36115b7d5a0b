/* Files: bounded reads, directories, data directories, and sealed memory files. */
#include "../test.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"

/* ---- a directory of its own for each test ---- */

static char place[64];

static int make_directory(void **state)
{
    snprintf(place, sizeof place, "/tmp/droste-file-XXXXXX");
    return mkdtemp(place) ? 0 : -1;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    return remove(path);
}

static int remove_directory(void **state)
{
    return nftw(place, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#define file_test(f) cmocka_unit_test_setup_teardown(f, make_directory, remove_directory)

/* The path of a name in it, valid until the next but three. */
static const char *at(const char *name)
{
    static char paths[4][160];
    static int next;
    char *path = paths[next++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s", place, name);
    return path;
}

static void put(const char *name, const void *data, size_t len)
{
    cleanup_fd int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(file_write_all(fd, data, len), 0);
}

static bool is_directory(const char *path, unsigned mode)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode) && (st.st_mode & 07777) == mode;
}

/* ---- reading ---- */

/* A file comes back whole, NULs and all, and so does an empty one. */
static void a_file_is_read_whole(void **state)
{
    cleanup_buf struct buf out = { 0 };
    put("x", "a\0b", 3);
    assert_ok(file_read(at("x"), 100, &out, err));
    assert_int_equal(out.len, 3);
    assert_memory_equal(out.data, "a\0b", 4);
    buf_clear(&out);
    put("x", "", 0);
    assert_ok(file_read(at("x"), 0, &out, err));
    assert_string_equal(buf_text(&out), "");
}

/* Exactly the limit passes; a byte more does not. */
static void the_limit_is_exact(void **state)
{
    cleanup_buf struct buf out = { 0 };
    char bytes[4096] = { 0 };
    put("x", bytes, sizeof bytes);
    assert_ok(file_read(at("x"), sizeof bytes, &out, err));
    assert_int_equal(out.len, sizeof bytes);
    buf_clear(&out);
    assert_fails(ERROR_IO, file_read(at("x"), sizeof bytes - 1, &out, err));
}

/* A file without an end, whose size says nothing, is refused at the limit and not read on. */
static void an_endless_file_is_refused(void **state)
{
    cleanup_buf struct buf out = { 0 };
    cleanup_fd int fd = open("/dev/zero", O_RDONLY);
    assert_fails(ERROR_IO, file_read_fd(fd, "/dev/zero", 1 << 20, &out, err));
    assert_true(out.cap < 4 << 20);
}

/* A pipe is read to its end, over what one read gives. */
static void a_pipe_is_read_to_its_end(void **state)
{
    enum { BYTES = 300000 };
    cleanup_buf struct buf out = { 0 };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *bytes = malloc(BYTES);
        close(ends[0]);
        memset(bytes, 'p', BYTES);
        int rc = file_write_all(ends[1], bytes, BYTES);
        free(bytes);
        _exit(rc < 0);
    }
    close(ends[1]);
    assert_ok(file_read_fd(ends[0], "the pipe", BYTES, &out, err));
    assert_int_equal(out.len, BYTES);
    close(ends[0]);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

/* Returns whether file_open accepts a path, or refuses it by naming what it is. */
static bool file_opens(const char *path, int flags, unsigned accepted, const char *kind)
{
    char words[80];
    struct error why = { 0 };
    cleanup_fd int fd = file_open(path, flags, accepted, "the thing", &why);
    if (fd >= 0)
        return true;
    snprintf(words, sizeof words, " is a %s: give a regular file", kind);
    assert_int_equal(fd, -(int)ERROR_ARGUMENT);
    assert_non_null(strstr(why.text, words));
    return false;
}

/* A FIFO without a writer is refused at once, and so are sockets and devices, for reading and for
 * writing; a regular file opens, and what the caller accepts: directories, /dev/null. */
static void only_regular_files_open(void **state)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    cleanup_fd int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s", at("socket"));
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(mkfifo(at("fifo"), 0600), 0);
    put("file", "x", 1);
    const int modes[] = { O_RDONLY, O_RDWR | O_CREAT | O_APPEND };
    for (size_t i = 0; i < array_length(modes); i++) {
        assert_false(file_opens(at("fifo"), modes[i], FILE_OR_DIRECTORY | FILE_OR_NULL, "pipe"));
        assert_false(file_opens(at("socket"), modes[i], FILE_OR_NULL, "socket"));
        assert_false(file_opens("/dev/zero", modes[i], FILE_OR_NULL, "device"));
        assert_false(file_opens("/dev/null", modes[i], 0, "device"));
        assert_true(file_opens("/dev/null", modes[i], FILE_OR_NULL, NULL));
        assert_true(file_opens(at("file"), modes[i], 0, NULL));
    }
    assert_false(file_opens(place, O_RDONLY, FILE_OR_NULL, "directory"));
    assert_true(file_opens(place, O_RDONLY, FILE_OR_DIRECTORY, NULL));
    assert_true(file_opens(at("made"), O_RDWR | O_CREAT, 0, NULL));
}

/* "-" is standard input only where the caller accepts it. */
static void a_dash_is_standard_input(void **state)
{
    struct stat input, opened;
    cleanup_fd int fd = file_open("-", O_RDONLY, FILE_OR_INPUT, "x", NULL);
    assert_true(fd > STDERR_FILENO);
    assert_true(fstat(STDIN_FILENO, &input) == 0 && fstat(fd, &opened) == 0);
    assert_true(input.st_ino == opened.st_ino && input.st_dev == opened.st_dev);
    assert_fails(ERROR_NOT_FOUND, file_open("-", O_RDONLY, 0, "x", err));
}

/* What is not there is not found; a directory is not a file; a bad descriptor is an error. */
static void what_cannot_be_read_says_so(void **state)
{
    cleanup_buf struct buf out = { 0 };
    assert_fails(ERROR_NOT_FOUND, file_read(at("nothing"), 10, &out, err));
    assert_fails(ERROR_ARGUMENT, file_read(place, 10, &out, err));
    assert_fails(ERROR_IO, file_read_fd(-1, "x", 10, &out, err));
    put("x", "text", 4);
    cleanup_fd int fd = open(at("x"), O_WRONLY);
    assert_fails(ERROR_IO, file_read_fd(fd, "x", 10, &out, err));
}

/* Writing to where nothing fits fails with errno. */
static void writing_fails_with_errno(void **state)
{
    cleanup_fd int fd = open("/dev/full", O_WRONLY);
    assert_int_equal(file_write_all(fd, "", 0), 0);
    assert_int_equal(file_write_all(fd, "x", 1), -1);
    assert_int_equal(errno, ENOSPC);
}

/* ---- directories ---- */

/* Parents are made too, for nobody else to read; what is there already is fine. */
static void directories_are_made_with_their_parents(void **state)
{
    mode_t before = umask(0);
    assert_ok(file_make_directories(at("a/b//c/"), err));
    umask(before);
    assert_true(is_directory(at("a"), 0700));
    assert_true(is_directory(at("a/b/c"), 0700));
    assert_ok(file_make_directories(at("a/b/c"), err));
    assert_ok(file_make_directories("/", err));
    assert_ok(file_make_directories(".", err));
}

/* A file in the place of the directory, or of one of its parents, is an error. */
static void a_file_is_no_directory(void **state)
{
    put("x", "", 0);
    assert_fails(ERROR_IO, file_make_directories(at("x"), err));
    assert_fails(ERROR_IO, file_make_directories(at("x/y"), err));
    assert_int_equal(symlink("nothing", at("dangling")), 0);
    assert_fails(ERROR_IO, file_make_directories(at("dangling"), err));
    assert_ok(file_make_directories(at("real"), err));
    assert_int_equal(symlink("real", at("link")), 0);
    assert_ok(file_make_directories(at("link"), err));
}

/* The empty path names no directory. */
static void the_empty_path_is_refused(void **state)
{
    assert_fails(ERROR_IO, file_make_directories("", err));
}

/* ---- places ---- */

static void assert_home(int (*home)(char **, struct error *), const char *expected)
{
    cleanup_free char *path = NULL;
    assert_ok(home(&path, err));
    assert_string_equal(path, expected);
}

/* DROSTE_HOME first, then XDG's, then the home directory's; what is empty or relative of the last
 * two does not count, as their standard says. */
static void places_follow_the_environment(void **state)
{
    setenv("HOME", "/home/x", 1);
    unsetenv("DROSTE_HOME");
    unsetenv("XDG_DATA_HOME");
    unsetenv("XDG_CONFIG_HOME");
    assert_home(file_data_home, "/home/x/.local/share/droste");
    assert_home(file_config_home, "/home/x/.config/droste");
    setenv("XDG_DATA_HOME", "relative", 1);
    assert_home(file_data_home, "/home/x/.local/share/droste");
    setenv("XDG_DATA_HOME", "/data", 1);
    setenv("XDG_CONFIG_HOME", "/config", 1);
    assert_home(file_data_home, "/data/droste");
    assert_home(file_config_home, "/config/droste");
    setenv("DROSTE_HOME", "", 1);
    assert_home(file_data_home, "/data/droste");
    setenv("DROSTE_HOME", "/own", 1);
    assert_home(file_data_home, "/own");
    assert_home(file_config_home, "/config/droste");
}

/* Without HOME the user's entry in the password file counts. */
static void places_do_without_home(void **state)
{
    cleanup_free char *path = NULL;
    unsetenv("DROSTE_HOME");
    unsetenv("XDG_DATA_HOME");
    unsetenv("HOME");
    struct error error = { 0 };
    int rc = file_data_home(&path, &error);
    if (rc < 0)
        assert_int_equal(error.code, ERROR_CONFIG);
    else
        assert_true(path[0] == '/' && strstr(path, "/.local/share/droste"));
}

/* ---- memory files ---- */

/* Before the seal it is a file like any other; it does not leak into programs that are started. */
static void a_memory_file_can_be_written(void **state)
{
    cleanup_fd int fd = file_memfd("test", NULL);
    assert_true(fd >= 0);
    assert_int_equal(file_write_all(fd, "text", 4), 0);
    assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(fcntl(fd, F_GET_SEALS) & F_SEAL_WRITE, 0);
}

/* After it nothing changes: not by writing, growing, shrinking, mapping, nor by unsealing; and what
 * was written can be read. */
static void a_sealed_file_never_changes(void **state)
{
    cleanup_fd int fd = file_memfd("test", NULL);
    char text[5] = "";
    assert_int_equal(file_write_all(fd, "text", 4), 0);
    assert_ok(file_memfd_seal(fd, err));
    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    assert_int_equal(errno, EPERM);
    assert_int_equal(pwrite(fd, "x", 1, 100), -1);
    assert_int_equal(ftruncate(fd, 100), -1);
    assert_int_equal(ftruncate(fd, 1), -1);
    assert_ptr_equal(mmap(NULL, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, 0), -1);
    char own[64];
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    cleanup_fd int again = open(own, O_RDWR);
    if (again >= 0)
        assert_int_equal(pwrite(again, "x", 1, 0), -1);
    assert_int_equal(pread(fd, text, 4, 0), 4);
    assert_string_equal(text, "text");
}

/* Sealing what cannot be sealed, or is mapped for writing, fails. */
static void sealing_can_fail(void **state)
{
    put("x", "", 0);
    cleanup_fd int file = open(at("x"), O_RDWR);
    assert_fails(ERROR_IO, file_memfd_seal(file, err));
    cleanup_fd int fd = file_memfd("test", NULL);
    assert_int_equal(ftruncate(fd, 4096), 0);
    void *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_ptr_not_equal(map, MAP_FAILED);
    assert_fails(ERROR_IO, file_memfd_seal(fd, err));
    munmap(map, 4096);
    assert_ok(file_memfd_seal(fd, err));
}

static void the_last_line_ignores_white_space_at_the_end(void **state)
{
    char line[6];
    put("x", "first\nsecond\n \n", 15);
    cleanup_fd int file = open(at("x"), O_RDWR);
    file_last_line(file, line, sizeof line);
    assert_string_equal(line, "secon");
    assert_int_equal(ftruncate(file, 0), 0);
    file_last_line(file, line, sizeof line);
    assert_string_equal(line, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        file_test(a_file_is_read_whole),
        file_test(the_limit_is_exact),
        file_test(an_endless_file_is_refused),
        file_test(a_pipe_is_read_to_its_end),
        file_test(only_regular_files_open),
        file_test(a_dash_is_standard_input),
        file_test(what_cannot_be_read_says_so),
        file_test(writing_fails_with_errno),
        file_test(directories_are_made_with_their_parents),
        file_test(a_file_is_no_directory),
        file_test(the_empty_path_is_refused),
        file_test(places_follow_the_environment),
        file_test(places_do_without_home),
        file_test(a_memory_file_can_be_written),
        file_test(a_sealed_file_never_changes),
        file_test(sealing_can_fail),
        file_test(the_last_line_ignores_white_space_at_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
