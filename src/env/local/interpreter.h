/* env/local/interpreter.h: which Python is meant. */
#ifndef DROSTE_ENV_LOCAL_INTERPRETER_H
#define DROSTE_ENV_LOCAL_INTERPRETER_H

#include "base/error.h"

/* The path of the executable for `wanted`: a path, a name in PATH, or NULL for the default:
 * $VIRTUAL_ENV/bin/python3, else python3 in PATH. A shell script in its place (pyenv, asdf, conda
 * wrappers) is run once, with the caller's environment, to say which interpreter it stands for:
 * the guest's own environment is empty, and the script could not find it there. The path is the
 * caller's (free). ERROR_NOT_FOUND, ERROR_ENVIRONMENT. */
int interpreter_find(const char *wanted, char **out, struct error *err);

#endif
