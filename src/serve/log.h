/* serve/log.h: JSON lines: what the server does (standard error), and who changed what (the audit
 * log). Neither has keys, tokens, code or bodies.
 */
#pragma once

#include "base/error.h"

enum log_level { LOG_ERROR, LOG_WARNING, LOG_INFO, LOG_DEBUG };

struct server;
struct request;

/* -1: there is no such level. */
int log_level_parse(const char *name);
/* One line on standard error, if the level is at most the server's. */
void log_event(struct server *s, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The end of a request: an info line, or a debug line for health checks; and a line of the audit
 * log if it may have changed something, or was refused. */
void log_request(struct request *r);
/* A file to append to, readable by its owner only; `what` it is, for errors. */
int log_open_file(const char *path, const char *what, int *fd, struct error *err);
