/* env/modal.c: see modal.h. */
#include "env/modal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "env/bridge.h"
#include "env/embedded.h"

enum { GOODBYE_MS = 60000 }; /* volumes are written back meanwhile */

/* The guest has no lease: a host whose program does nothing for an hour says nothing either. The bridge ends it with the
 * host, and where both are gone at once, its time does (--timeout). */

const struct powers
    modal_powers = { .of = {
                         [POWER_STREAM] =
                             POWER_YES("standard streams of a program that Modal executes"),
                         [POWER_REATTACH] = POWER_YES(
                             "Modal keeps what was said: it is read again from any offset"),
                         [POWER_SNAPSHOT] = POWER_NO("Modal's are images: --image im-…"),
                         [POWER_RESUME] = POWER_YES("by its id, as long as its time is not over; "
                                                    "nothing is billed less meanwhile"),
                         [POWER_IDLE] = POWER_YES("where nothing is executed for so long; 300 s"),
                         [POWER_IMAGE] =
                             POWER_YES("a name, an id (im-…), or slim:PYTHON:PACKAGE,…; made from "
                                       "that by Modal"),
                         [POWER_PULL] = POWER_NO("Modal decides"),
                         [POWER_VOLUME] =
                             POWER_YES("Modal's, by name; written back when the session ends"),
                         [POWER_WORKSPACE] = POWER_YES("sent at the start"),
                         [POWER_READ] = POWER_NO("this machine's files are not there"),
                         [POWER_NETWORK] = POWER_YES("blocked, or open"),
                         [POWER_ALLOW] = POWER_YES("addresses and domains"),
                         [POWER_MEMORY] =
                             POWER_YES("of the sandbox as a whole by Modal, and of each process"),
                         [POWER_PROCESSES] = POWER_NO("Modal has no such limit"),
                         [POWER_CPUS] = POWER_YES("of the sandbox as a whole"),
                         [POWER_DISK] = POWER_NO("Modal has no such limit for sandboxes"),
                         [POWER_GPUS] = POWER_YES("Modal's kinds: T4, A100:2, …"),
                         [POWER_USER] = POWER_NO("Modal's sandboxes run as root, inside"),
                         [POWER_READ_ONLY] =
                             POWER_NO("a sandbox's files can be written to, and go with it"),
                         [POWER_LABELS] = POWER_YES("its tags"),
                         [POWER_REUSE] = POWER_NO("each session has a sandbox of its own"),
                         [POWER_REGION] = POWER_YES("Modal's regions"),
                         [POWER_APP] = POWER_YES("it is made if it is missing"),
                         [POWER_ISOLATION] = POWER_NO("it is Modal's"),
                         [POWER_PRELOAD] = POWER_YES("in the worker, before the session"),
                     } };

int modal_configured(struct error *err)
{
    char path[PATH_MAX];
    const char *named = getenv("MODAL_CONFIG_PATH"), *home = getenv("HOME");
    const char *id = getenv("MODAL_TOKEN_ID"), *secret = getenv("MODAL_TOKEN_SECRET");
    snprintf(path, sizeof path, "%s%s",
        named  ? named
        : home ? home
               : "",
        named ? "" : "/.modal.toml");
    if ((id && *id && secret && *secret) || access(path, R_OK) == 0)
        return 0;
    return error_set(err, ERROR_CONFIG,
        "set MODAL_TOKEN_ID and MODAL_TOKEN_SECRET, or run `modal token new`; it needs the package "
        "modal (pip install 'droste[modal]')");
}

int modal_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    /* Takes the source from its input, byte by byte as far as it goes: what follows are messages. */
    static const char boot[] = "import os, sys\n"
                               "n, b = int(sys.argv[1]), b''\n"
                               "while len(b) < n:\n"
                               " c = os.read(0, n - len(b))\n"
                               " if not c: os._exit(0)\n"
                               " b += c\n"
                               "exec(compile(b, '<the bridge for modal>', 'exec'))\n";
    static char length[24];
    static const char *const words[] = { "-u", "-c", boot, length, NULL };
    const char *python = getenv("DROSTE_MODAL_PYTHON");
    snprintf(length, sizeof length, "%zu", embedded_bridge_size);
    struct bridge_program program = { .name = "modal",
        .path = python && *python ? python : "python3",
        .words = words,
        .source = embedded_bridge,
        .source_len = embedded_bridge_size,
        .powers = &modal_powers,
        .keeps_volumes = true,
        .sweeps = true,
        .goodbye_ms = GOODBYE_MS };
    return bridge_open_program(loop, &program, out, err);
}
