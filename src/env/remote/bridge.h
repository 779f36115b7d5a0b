/* env/remote/bridge.h: environments that are programs, in any language: bridge:PROGRAM of the user's, and Modal (env/clouds/modal.h).
 *
 * The program is started with the first sandbox, and serves all of them over its standard input and output. Each message is
 * a JSON object on a line of its own, whose first member says what it is; one with "bytes" has so many raw bytes behind its
 * newline. `id` is a sandbox's, a number that is never used again.
 *
 *   to it     {"open": ID, "words": [PROGRAM, ARGUMENT, …], "memory": BYTES, "processes": N, …}
 *                              and what the spec asks for beyond that (env/remote/bridge_spec.h)
 *             {"write": ID, "bytes": N}    for the standard input of what was opened
 *             {"pause": ID}, {"resume": ID}  not more of its output for now; on with it
 *             {"close": ID}    end it, with all that it started; nothing more of it is told, except
 *                              "closed" by a program of ours that keeps volumes
 *             {"list": N, "labels": {…}}, {"remove": N, "id": TEXT}  for who can "collect"
 *   from it   {"bridge": 1, "powers": {SETTING: TEXT or true, …}}  the first of all, from who can more than start words
 *             {"joined": ID}   it runs, and can be written to; again, after it was lost
 *             {"read": ID, "bytes": N}     of its standard output
 *             {"lost": ID}     the connection to it is; what was on its way may be, too
 *             {"id": ID, "text": TEXT}     what the provider calls it
 *             {"news": ID, "text": TEXT}   a line for people
 *             {"ended": ID, "why": TEXT, "kind": KIND}   it is gone, or could not be started; "why" is left out where it
 *                              ended by itself; "kind" is an error's name ("permission", "timeout", …)
 *             {"closed": ID}   what it wrote to its volume is durable there; or with "why" (and "kind"): it may not be
 *             {"listed": N, "sandboxes": [{"id": TEXT, "labels": {…}}, …]}, {"removed": N}; or with "why"
 *
 * All bytes arrive as they were sent, or a connection is lost. The end of its standard input means that it is to end
 * what it has opened, and itself. What a spec asks for and the program does not say that it can is refused by name.
 * docs/environments.md has an example.
 */
#ifndef DROSTE_ENV_REMOTE_BRIDGE_H
#define DROSTE_ENV_REMOTE_BRIDGE_H

#include "env/common/environment.h"

/* A program of ours. What it points to lasts as long as the environment. */
struct bridge_program {
    const char *name;            /* of the environment, also in errors */
    const char *path;            /* of the program, looked up as a shell would */
    const char *const *words;    /* its arguments */
    const unsigned char *source; /* that it reads before all messages */
    size_t source_len;
    const struct features *features;
    bool keeps_volumes; /* as TRAIT_VOLUMES; it answers "close" by "closed" */
    bool sweeps;        /* the first sandbox has those of dead hosts removed */
    int goodbye_ms;     /* for it to end what it has opened */
};

int bridge_open_program(struct loop *loop, const struct bridge_program *program,
    struct environment **out, struct error *err);
/* One of the user's. */
int bridge_open(struct loop *loop, const char *path, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
