/* env/local/interpreter.c: searches PATH, and resolves wrapper scripts. */
#include "env/local/interpreter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"

static bool is_executable_file(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static int find_in_path(const char *name, char **out, struct error *err)
{
    const char *path = getenv("PATH");
    for (const char *p = path ? path : "/usr/local/bin:/usr/bin:/bin"; *p;) {
        size_t n = strcspn(p, ":");
        cleanup_buf struct buf candidate = { 0 };
        buf_append(&candidate, p, n);
        buf_printf(&candidate, "/%s", name);
        if (n > 0 && p[0] == '/' && is_executable_file(buf_text(&candidate))) {
            *out = buf_steal(&candidate);
            return *out ? 0 : error_memory(err);
        }
        p += n + (p[n] == ':');
    }
    return error_set(err, ERROR_NOT_FOUND,
        "'%.80s' was not found in PATH: install python3, or give an interpreter with --python PATH",
        name);
}

static bool is_script(const char *path)
{
    char start[2] = { 0 };
    cleanup_fd int fd = file_open(path, O_RDONLY, 0, "the interpreter", NULL);
    return fd >= 0 && read(fd, start, 2) == 2 && start[0] == '#' && start[1] == '!';
}

/* Runs `path -I -c CODE` and returns the first line of its output. */
static int ask_script(const char *path, char **out, struct error *err)
{
    static char code[] = "import sys; print(sys.executable)", isolated[] = "-I", command[] = "-c";
    char *argv[] = { (char *)(uintptr_t)path, isolated, command, code, NULL };
    cleanup_buf struct buf output = { 0 };
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int ends[2], status = 0;
    char words[80];
    cleanup_fd int complaints = file_memfd("complaints", err);
    if (complaints < 0)
        return complaints;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_IO, "making a pipe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_adddup2(&actions, complaints, 2);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    int rc = posix_spawn(&pid, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (rc == 0)
        file_read_fd(ends[0], path, 65536, &output, NULL);
    close(ends[0]); /* before the wait: a program that writes endlessly must get EPIPE */
    while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    output.len = strcspn(buf_text(&output), "\n");
    if (output.data)
        output.data[output.len] = '\0';
    file_last_line(complaints, words, sizeof words);
    if (rc != 0 || status != 0 || output.len == 0 || output.data[0] != '/' ||
        !is_executable_file(output.data))
        return error_set(err, ERROR_ENVIRONMENT,
            "'%.80s' did not run as a Python interpreter%s%s; give one with --python PATH", path,
            words[0] ? ": " : "", words);
    *out = buf_steal(&output);
    return *out ? 0 : error_memory(err);
}

int interpreter_find(const char *wanted, char **out, struct error *err)
{
    cleanup_free char *found = NULL;
    const char *venv = getenv("VIRTUAL_ENV");
    cleanup_buf struct buf path = { 0 };
    if (!wanted && venv && venv[0] == '/') {
        buf_printf(&path, "%s/bin/python3", venv);
        if (is_executable_file(buf_text(&path)))
            wanted = buf_text(&path);
    }
    if (!wanted)
        wanted = "python3";
    if (strchr(wanted, '/')) {
        if (!is_executable_file(wanted))
            return error_set(err, ERROR_NOT_FOUND,
                "'%.100s' is not an executable file; give an interpreter with --python PATH",
                wanted);
        /* Absolute, but with symbolic links: a venv is found by the location of the link. */
        found = wanted[0] == '/' ? strdup(wanted) : NULL;
        if (wanted[0] != '/') {
            cleanup_free char *here = getcwd(NULL, 0);
            struct buf full = { 0 };
            buf_printf(&full, "%s/%s", here ? here : "", wanted);
            found = buf_steal(&full);
        }
        if (!found)
            return error_memory(err);
    } else {
        int rc = find_in_path(wanted, &found, err);
        if (rc < 0)
            return rc;
    }
    if (is_script(found))
        return ask_script(found, out, err);
    *out = steal(&found);
    return 0;
}

/* ---- in an image ---- */

static bool image_has_executable(int root, const char *path)
{
    struct open_how how = { .flags = O_PATH | O_CLOEXEC,
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS };
    struct stat st;
    cleanup_fd int fd = (int)syscall(SYS_openat2, root, path, &how, sizeof how);
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_mode & 0111;
}

static const char *image_search_path(const struct list *variables)
{
    for (size_t i = 0; i < variables->count; i++)
        if (strncmp(variables->items[i], "PATH=", 5) == 0)
            return variables->items[i] + 5;
    return "/usr/local/bin:/usr/bin:/bin";
}

int interpreter_find_in_image(const char *root, const char *wanted, const struct list *variables,
    char **out, struct error *err)
{
    const char *name = wanted ? wanted : "python3", *path = image_search_path(variables);
    cleanup_fd int top = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return error_set_errno(err, ERROR_IO, "opening the root file system '%.200s'", root);
    for (const char *p = strchr(name, '/') ? "" : path; *p;) {
        size_t n = strcspn(p, ":");
        cleanup_buf struct buf candidate = { 0 };
        buf_append(&candidate, p, n);
        buf_printf(&candidate, "/%s", name);
        if (p[0] == '/' && image_has_executable(top, buf_text(&candidate))) {
            *out = buf_steal(&candidate);
            return *out ? 0 : error_memory(err);
        }
        p += n + (p[n] == ':');
    }
    if (name[0] == '/' && image_has_executable(top, name)) {
        *out = strdup(name);
        return *out ? 0 : error_memory(err);
    }
    return error_set(err, ERROR_NOT_FOUND,
        "the image has no '%.80s'%s%.100s; use one with Python, or name it with --python PATH, as it "
        "is called in the image",
        name, strchr(name, '/') ? "" : " in its PATH, ", strchr(name, '/') ? "" : path);
}
