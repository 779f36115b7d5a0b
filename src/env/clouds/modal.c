/* env/clouds/modal.c: the environment `modal`: a bridge (env/remote/bridge.h) that uses Modal's
 * SDK.
 *
 * Modal's wire protocol is private; its SDK is the supported interface. The bridge's source
 * (python/droste/modal_bridge.py) is embedded in this library. The Python that runs it,
 * DROSTE_MODAL_PYTHON or python3, needs only the package `modal`.
 */

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "env/remote/bridge.h"
#include "env/common/embedded.h"

enum { GOODBYE_MS = 60000 }; /* volumes are written back in this time */

/* The guest has no lease, because a host whose program is idle for an hour sends nothing either.
 * The bridge ends the sandbox with the host; if both die, its lifetime (--timeout) ends it. */

static const struct feature_state modal_features[FEATURE_COUNT] = {
    [FEATURE_STREAM] = FEATURE_YES("standard streams of a program that Modal executes"),
    [FEATURE_REATTACH] = FEATURE_YES("Modal keeps what was said: it is read again from any offset"),
    [FEATURE_SNAPSHOT] = FEATURE_NO("Modal's are images: --image im-…"),
    [FEATURE_RESUME] =
        FEATURE_YES("by its id, as long as its time is not over; nothing is billed less meanwhile"),
    [FEATURE_IDLE] = FEATURE_YES("where nothing is executed for so long; 300 s"),
    [FEATURE_IMAGE] =
        FEATURE_YES("a name, an id (im-…), or slim:PYTHON:PACKAGE,…; made from that by Modal"),
    [FEATURE_PULL] = FEATURE_NO("Modal decides"),
    [FEATURE_VOLUME] = FEATURE_YES("Modal's, by name; written back when the session ends"),
    [FEATURE_WORKSPACE] = FEATURE_YES("sent at the start"),
    [FEATURE_READ] = FEATURE_NO("this machine's files are not there"),
    [FEATURE_NETWORK] = FEATURE_YES("blocked, or open"),
    [FEATURE_ALLOW] = FEATURE_YES("addresses and domains"),
    [FEATURE_MEMORY] = FEATURE_YES("of the sandbox as a whole by Modal, and of each process"),
    [FEATURE_PROCESSES] = FEATURE_NO("Modal has no such limit"),
    [FEATURE_CPUS] = FEATURE_YES("of the sandbox as a whole"),
    [FEATURE_DISK] = FEATURE_NO("Modal has no such limit for sandboxes"),
    [FEATURE_GPUS] = FEATURE_YES("Modal's kinds: T4, A100:2, …"),
    [FEATURE_USER] = FEATURE_NO("Modal's sandboxes run as root, inside"),
    [FEATURE_SECCOMP] = FEATURE_NO("the provider has its own"),
    [FEATURE_READ_ONLY] = FEATURE_NO("a sandbox's files can be written to, and go with it"),
    [FEATURE_ROOT] = FEATURE_NO("the sandbox's files are its own"),
    [FEATURE_LABELS] = FEATURE_YES("its tags"),
    [FEATURE_REUSE] = FEATURE_NO("each session has a sandbox of its own"),
    [FEATURE_REGION] = FEATURE_YES("Modal's regions"),
    [FEATURE_APP] = FEATURE_YES("it is made if it is missing"),
    [FEATURE_ISOLATION] = FEATURE_NO("it is Modal's"),
    [FEATURE_DEVICE] = FEATURE_NO("use gpus"),
    FEATURES_OF_REMOTE,
};

/* Whether the package is installed is known only when the bridge runs. */
static int modal_configured(struct error *err)
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

static int modal_open(struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    /* Reads exactly the source from standard input, byte by byte: messages follow it. */
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
        .label = "the bridge for modal: ",
        .path = python && *python ? python : "python3",
        .words = words,
        .source = embedded_bridge,
        .source_len = embedded_bridge_size,
        .features = modal_features,
        .keeps_volumes = true,
        .sweeps = true,
        .goodbye_ms = GOODBYE_MS };
    return bridge_open_program(loop, &program, out, err);
}

const struct environment_kind modal_environment = {
    .name = "modal",
    .about = "sandboxes of Modal, over its own SDK (MODAL_TOKEN_ID)",
    .variables =
        "DROSTE_MODAL_PYTHON MODAL_TOKEN_ID MODAL_TOKEN_SECRET MODAL_SERVER_URL MODAL_PROFILE "
        "MODAL_ENVIRONMENT MODAL_CONFIG_PATH",
    .features = modal_features,
    .keeps_volumes = true,
    .configured = modal_configured,
    .open = modal_open,
};
