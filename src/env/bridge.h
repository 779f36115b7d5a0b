/* env/bridge.h: environments that are programs of the user's, in any language: bridge:PROGRAM.
 *
 * The program is started with the first sandbox, without arguments, and serves all of them over its standard input and
 * output. Each message is a JSON object on a line of its own; one with "bytes" has so many raw bytes behind
 * its newline. `id` is a sandbox's, a number that is never used again.
 *
 *   to it     {"open": ID, "words": [PROGRAM, ARGUMENT, …], "memory": BYTES, "processes": N}
 *             {"write": ID, "bytes": N}    for the standard input of what was opened
 *             {"pause": ID}, {"resume": ID}  not more of its output for now; on with it
 *             {"close": ID}    end it, with all that it started; nothing more of it is told
 *   from it   {"joined": ID}   it runs, and can be written to; again, after it was lost
 *             {"read": ID, "bytes": N}     of its standard output
 *             {"lost": ID}     the connection to it is; what was on its way may be, too
 *             {"ended": ID, "why": TEXT}   it is gone, or could not be started; "why" is left out where it ended by itself
 *
 * All bytes arrive as they were sent, or a connection is lost. The end of its standard input means that it is to end
 * what it has opened, and itself. docs/environments.md has an example.
 */
#ifndef DROSTE_ENV_BRIDGE_H
#define DROSTE_ENV_BRIDGE_H

#include "env/environment.h"

int bridge_open(struct loop *loop, const char *path, const struct environment_options *options,
    struct environment **out, struct error *err);

#endif
