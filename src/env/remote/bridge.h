/* env/remote/bridge.h: environments that are programs, in any language: the user's bridge:PROGRAM,
 * and built-in ones (env/clouds/modal.c).
 *
 * The program starts with the first sandbox and serves all of them over its standard input and
 * output. A message is a JSON object on one line, whose first member is its type; if it has
 * "bytes", so many raw bytes follow the newline. ID is the number of a sandbox and is never reused.
 *
 *   to it     {"open": ID, "words": [PROGRAM, ARGUMENT, …], "memory": BYTES, "processes": N, …}
 *                              and whatever else the specification asks for (bridge_spec.h)
 *             {"write": ID, "bytes": N}      bytes for the standard input of the opened program
 *             {"pause": ID}, {"resume": ID}  stop and continue sending its output
 *             {"close": ID}                  end it with all its processes; no message about it may
 *                              follow, except "closed" by a built-in bridge that keeps volumes
 *             {"list": N, "labels": {…}}, {"remove": N, "id": TEXT}   if it can "collect"
 *   from it   {"bridge": 1, "features": {SETTING: TEXT or true, …}}   the first message, if it
 *                              can do more than start programs
 *             {"joined": ID}                 it runs and can be written to; again after "lost"
 *             {"read": ID, "bytes": N}       bytes of its standard output
 *             {"lost": ID}                   its connection is lost, maybe with bytes in transit
 *             {"id": ID, "text": TEXT}       the provider's id of it
 *             {"notice": ID, "text": TEXT}     a line for the user
 *             {"ended": ID, "why": TEXT, "kind": KIND}   it has ended or could not start; without
 *                              "why", it ended by itself; "kind" is the name of an error
 *                              ("permission", "timeout", …)
 *             {"closed": ID}                 its writes to the volume are durable; with "why" (and
 *                              "kind"): they may not be
 *             {"listed": N, "sandboxes": [{"id": TEXT, "labels": {…}}, …]}, {"removed": N}; or with
 *                              "why"
 *
 * Bytes arrive as they were sent, or a connection is lost. At the end of its standard input the
 * bridge must end everything that it has opened, and then itself. A setting that the bridge has not
 * declared is an error. docs/environments.md has an example.
 */
#pragma once

#include "env/common/environment.h"

/* A built-in bridge. The pointers must outlive the environment. */
struct bridge_program {
    const char *name;            /* of the environment, also in errors */
    const char *label;           /* in front of errors about the program */
    const char *path;            /* of the program, looked up in PATH */
    const char *const *words;    /* its arguments */
    const unsigned char *source; /* written to its standard input before all messages */
    size_t source_len;
    const struct feature_state *features; /* indexed by enum feature */
    bool keeps_volumes;                   /* TRAIT_VOLUMES; it answers "close" with "closed" */
    bool sweeps;    /* the first sandbox triggers the removal of dead hosts' sandboxes */
    int goodbye_ms; /* time for it to end everything */
};

int bridge_open_program(struct loop *loop, const struct bridge_program *program,
    struct environment **out, struct error *err);
/* Opens a user's bridge. */
int bridge_open(struct loop *loop, const char *path, const struct environment_options *options,
    struct environment **out, struct error *err);
