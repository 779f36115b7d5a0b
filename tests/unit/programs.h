/* tests/unit/programs.h: shell scripts in a directory of their own. */
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/os/tree.h"
#include "test.h"

enum { PROGRAM_PATH = 128 };

struct programs {
    char dir[64], path[PROGRAM_PATH];
};

static inline void programs_begin(struct programs *p)
{
    snprintf(p->dir, sizeof p->dir, "/tmp/droste-programs-XXXXXX");
    assert_non_null(mkdtemp(p->dir));
}

static inline void programs_end(struct programs *p)
{
    assert_true(tree_remove(AT_FDCWD, p->dir));
}

/* Writes a file; returns its path, valid until the next call. */
static inline const char *programs_write(
    struct programs *p, const char *name, const char *text, mode_t mode)
{
    snprintf(p->path, sizeof p->path, "%s/%s", p->dir, name);
    int fd = open(p->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    return p->path;
}

/* A program of these lines. */
static inline const char *programs_make(struct programs *p, const char *name, const char *lines)
{
    char text[2048];
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", lines);
    return programs_write(p, name, text, 0755);
}
