/* serve/serve.h: the HTTP server: sandboxes for programs in any language.
 *
 * The layer uses the public interface of the library, as the command line does. libmicrohttpd
 * reads and writes HTTP; docs/internals/serve.md says why, and what is checked beyond it.
 */
#pragma once

#include "base/buf.h"
#include "base/error.h"
#include "droste.h"

struct serve_options {
    const char *listen; /* "127.0.0.1:8080", "[::1]:0", "unix:/run/droste.sock" */
    const char *certificate, *certificate_key; /* PEM files; NULL: plain HTTP */
    const char *keys;         /* the file of keys (keys.h); NULL: none are needed */
    double life_seconds;      /* the longest life of a sandbox, and the default */
    double idle_seconds;      /* the longest time between uses, and the default */
    double request_seconds;   /* for the head of a request */
    double drain_seconds;     /* after SIGTERM, for requests that have begun */
    double queue_seconds;     /* that a request may wait for a place for its sandbox; 0: none */
    int log_level;            /* log.h */
    const char *audit_log;    /* NULL: none */
    const char *traces;       /* lines of OTLP/JSON for runs and requests; NULL: none */
    const char *const *paths; /* from which clients of MCP may load contexts; ends with NULL */
    const struct mcp_extension *mcp_extension; /* what they are offered beside; NULL: nothing */
    const char *join; /* the cluster's NATS servers (cluster/bus.h); NULL: none */
    size_t runs;      /* of the cluster's queue at once */
    size_t max_sandboxes, max_connections, workers;
    const char *models; /* that clients of OpenAI's protocol may name (openai/models.c); NULL: the
                           setting's */
    size_t context_threshold; /* longer texts of theirs become contexts, in bytes */
    size_t files_quota_mib;   /* of each account's files */
    double detach_seconds;    /* a run of theirs goes on so long without a client */
    const char *notebooks;    /* the directory of files for Jupyter's clients; NULL: none */
    bool notebooks_per_key;   /* each key has a directory of its own in it */
    const char *node;         /* its name there */
    const char *advertise;    /* the address at which others reach it; NULL: that of `listen` */
    const char *share;        /* a directory of all nodes, for commits of volumes; NULL: none */
    const char *nats_credentials, *nats_ca; /* files; NULL: none */
    /* What every client may open for its sandboxes, as rules of allow-net; ends with NULL. NULL:
     * nothing. */
    const char *const *client_net;
    char **argv; /* with which a worker is started: this program's, ends with NULL */
    /* Called once, when requests are accepted, with the server's address. */
    void (*ready)(void *arg, const char *address);
    void *arg;
};

/* Serves until SIGTERM or SIGINT, which drain: requests that have begun may end, new connections
 * are refused. A second signal ends the drain. The settings of `d` are those of all sandboxes. */
int serve_run(droste *d, const struct serve_options *options, struct error *err);

/* Checks what serve_run needs (keys, certificate, files, address, a sandbox), without listening. */
int serve_check(droste *d, const struct serve_options *options, struct error *err);

/* Appends the OpenAPI document, generated from the table of routes. */
void serve_openapi(struct buf *out);
