/* env/local/interpreter.h: finds the Python interpreter. */
#pragma once

#include "base/error.h"
#include "base/list.h"

/* The path of the executable for `wanted`: a path, a name in PATH, or NULL for the default
 * ($VIRTUAL_ENV/bin/python3, else python3 in PATH). A shell script (a wrapper of pyenv, asdf or
 * conda) is run once, with the caller's environment, to learn which interpreter it starts: the
 * guest's environment is empty, so the script would not work there. The caller frees the path.
 * ERROR_NOT_FOUND, ERROR_ENVIRONMENT. */
int interpreter_find(const char *wanted, char **out, struct error *err);

/* The same in an image: an absolute path in it, or a name to look up in its PATH. `root` is its
 * root directory. Scripts are left to run as they are. */
int interpreter_find_in_image(const char *root, const char *wanted, const struct list *variables,
    char **out, struct error *err);
