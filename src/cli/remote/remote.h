/* cli/remote/remote.h: commands on a server of `droste serve` instead of this machine.
 *
 * A command with --server, or $DROSTE_SERVER, uses the server's native interface (docs/serve.md)
 * and prints what it prints of this machine. $DROSTE_API_KEY is the key.
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "base/list.h"
#include "droste.h"

#define FLAG_SERVER(to)                                                                            \
    {                                                                                              \
        "server", "URL", "Use the server at this address ($DROSTE_SERVER).", (to)                  \
    }

/* Of a command that uses no server: an empty address is this machine. */
#define FLAG_NO_SERVER(to)                                                                         \
    {                                                                                              \
        "server", "URL", "Not supported; \"\" overrides $DROSTE_SERVER: use this machine.", (to)   \
    }

/* The server's address: that of the flag, or else of the environment; NULL: this machine. */
const char *remote_address(const char *flag);

/* Refuses a command that uses no server; -1: none is named. `flag` as in remote_address. */
int remote_refuse(const char *command, const char *flag);

/* ---- http.c ---- */

struct remote;
struct curl_slist;

int remote_server_open(const char *address, struct remote **out, struct error *err);
void remote_server_close(struct remote *r);
#define cleanup_remote __attribute__((cleanup(remote_close_at)))
static inline void remote_close_at(struct remote **r)
{
    remote_server_close(*r);
}

/* Returns 0 to continue. */
typedef int remote_piece_fn(void *arg, const char *data, size_t len, struct error *err);

/* A request. Unused members are zero or NULL. */
struct remote_request {
    const char *method, *path;
    const char *const *query; /* a name, its value, …, NULL; a value that is NULL is left out */
    struct json_object *json; /* the body; or */
    int file;                 /* a descriptor that it is read from, if `has_file`; and its type */
    bool has_file;
    const char *type;
    bool creates;           /* never twice */
    remote_piece_fn *piece; /* takes the answer's body */
    void *arg;
};
/* ERROR_CANCELLED after Ctrl-C. An answer that is an error is one. */
int remote_ask(struct remote *r, const struct remote_request *request, struct error *err);
/* The same with the answer as JSON, which the caller frees; NULL: it is empty. */
int remote_ask_json(struct remote *r, const struct remote_request *request,
    struct json_object **answer, struct error *err);
/* Writes the answer to a file of this machine, which is complete or unchanged; "-": to standard
 * output. */
int remote_fetch(
    struct remote *r, const struct remote_request *request, const char *local, struct error *err);
/* The address as it was given. */
const char *remote_server_address(const struct remote *r);
/* A handle of libcurl for a request beside others, with the server, the key and the method, and a
 * body of JSON unless it is a GET or DELETE. NULL without memory. Free *headers behind it. */
void *remote_handle(
    const struct remote *r, const char *method, const char *path, struct curl_slist **headers);
/* A path with one component that is escaped; free it. NULL without memory. */
char *remote_path(const char *before, const char *name, const char *behind);

/* Returns 0 to continue. */
typedef int remote_event_fn(
    void *arg, const char *kind, struct json_object *data, struct error *err);
/* Asks for a stream of events, until it ends or the function returns something else. */
int remote_follow(struct remote *r, const struct remote_request *request, remote_event_fn *fn,
    void *arg, struct error *err);

/* ---- the settings of the command line (parse.c): names, each before its value ---- */

/* Settings, as the server takes them. Free it. */
struct json_object *remote_options(const struct list *settings);

/* ---- the commands; they return exit statuses ---- */

struct transfer;
struct remote_exec {
    const char *server;
    const char *code;
    size_t len;
    const char **argv; /* sys.argv, up to a NULL */
    const struct transfer *files;
    bool json;
};
int remote_exec(const struct remote_exec *e, const struct list *settings);

struct remote_run {
    const char *server, *question;
    bool json, quiet;
};
int remote_run(const struct remote_run *q, const struct list *settings);

struct remote_runs {
    const char *server, *status, *model, *format, *out;
    int64_t limit;
    bool json;
};
int remote_runs(const struct remote_runs *o, const char *verb, const char **ids, size_t count);

struct remote_volume {
    const char *server, *size, *files, *snapshot;
    int64_t levels, most;
    bool snapshots, json;
};
int remote_volume(
    const struct remote_volume *o, const char *verb, const char **words, size_t count);

struct remote_batch {
    const char *server;
    const droste_batch_options *options;
    bool verbose;
};
/* Runs the batch of these options, and fetches its results. */
int remote_batch(const struct remote_batch *o, const struct list *settings,
    droste_batch_state *state, struct error *err);

struct remote_queue {
    const char *cluster; /* URLs of nodes, with commas between them */
    const droste_batch_options *options;
    int64_t priority;
    bool cancels; /* ends the runs that have no result yet */
    droste_batch_fn *fn;
    void *arg;
};
/* Has the batch's runs done by the nodes of a cluster, through its queue. */
int remote_queue(droste *d, const struct remote_queue *o, const struct list *settings,
    droste_batch_state *state, struct error *err);

/* Follows a run to its end and prints its answer. */
int remote_watch(struct remote *r, const char *run, bool json, bool quiet);
/* Stores a file as a context on the server; *id is to be freed. */
int remote_store_context(struct remote *r, const char *name, int fd, char **id, struct error *err);
