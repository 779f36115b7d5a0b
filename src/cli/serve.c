/* cli/serve.c: droste serve: sandboxes over HTTP. */
#include "serve/serve.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/list.h"
#include "base/text.h"
#include "cli/cli.h"
#include "serve/access/keys.h"
#include "serve/log.h"
#include "serve/table.h"

static void serve_print_address(void *arg, const char *address)
{
    printf("%s\n", address);
    cli_flush(stdout);
}

static int serve_print_openapi(void)
{
    cleanup_buf struct buf out = { 0 };
    serve_openapi(&out);
    if (buf_failed(&out))
        return cli_fail(EXIT_RAISED, "out of memory");
    cli_print_json(buf_text(&out));
    return cli_finish(EXIT_FINE, "the document");
}

/* A flag whose value is a time, or a number. */
struct serve_time {
    const char *flag, *text; /* NULL: it was not given */
    double *out;
    bool may_be_zero;
};

struct serve_number {
    const char *flag, *text;
    size_t *out;
};

/* Both return -1 to continue. */
static int serve_read_time(const struct command *self, const struct serve_time *t)
{
    double seconds = 0;
    if (t->text && (!droste_parse_seconds(t->text, &seconds) || seconds < 0 ||
                       (seconds == 0 && !t->may_be_zero)))
        return cli_usage(self, "--%s %s: expected a time such as 30, 10m or 2h", t->flag, t->text);
    if (t->text)
        *t->out = seconds;
    return -1;
}

static int serve_read_number(const struct command *self, const struct serve_number *n)
{
    int64_t number;
    if (!n->text)
        return -1;
    if (!cli_count(n->text, 1, &number) || number > 1000000)
        return cli_usage(self, "--%s %s: expected a number from 1 to 1000000", n->flag, n->text);
    *n->out = (size_t)number;
    return -1;
}

static int serve_print_check(int rc, const struct error *err)
{
    if (rc == 0)
        printf("ok\n");
    return cli_end(rc, err, "the check");
}

/* The command line of this program, for its workers. */
static char **serve_words(int argc, char **argv)
{
    static char program[] = "droste", command[] = "serve";
    char **out = calloc((size_t)argc + 2, sizeof *out);
    if (!out)
        return NULL;
    out[0] = program;
    out[1] = command;
    for (int i = 1; i < argc; i++)
        out[i + 1] = argv[i];
    return out;
}

static struct list client_net; /* of --client-net */

/* Returns -1 to continue. */
static int serve_take_net(droste *d, struct serve_options *o)
{
    const char *own = droste_get(d, "allow-net");
    droste_error err;
    for (size_t i = 0; i < client_net.count; i++)
        if (droste_network_covers(client_net.items[i], client_net.items[i], &err) < 0)
            return cli_fail(EXIT_USAGE, "--client-net: %s", err.text);
    if (list_add_end(&client_net, NULL) < 0)
        return cli_fail(EXIT_RAISED, "out of memory");
    o->client_net = (const char *const *)client_net.items;
    /* "none" stands alone; clients may ask for rules beside the server's */
    if (own && strcmp(own, "none") == 0 && droste_set(d, "allow-net", "", &err) < 0)
        return cli_error(&err);
    return -1;
}

/* Serves, or only checks, with the keys of this path (NULL: of the default one, if it exists). */
static int serve_start(
    droste *d, struct serve_options *o, const char *keys, bool check, int argc, char **argv)
{
    cleanup_free char *default_keys = NULL;
    struct error err = { 0 };
    int status = serve_take_net(d, o);
    if (status >= 0)
        return status;
    if (keys_default_path(&default_keys, &err) < 0)
        return cli_error(&err);
    o->keys = keys && strcmp(keys, "none") != 0          ? keys
              : !keys && access(default_keys, F_OK) == 0 ? default_keys
                                                         : NULL;
    if (check)
        return serve_print_check(serve_check(d, o, &err), &err);
    cleanup_free char **words_again = serve_words(argc, argv);
    o->argv = words_again;
    if (!o->argv)
        return cli_fail(EXIT_RAISED, "out of memory");
    cli_raise_descriptors();
    return cli_end(serve_run(d, o, &err), &err, "the address");
}

static const char *serve_host_name(void)
{
    static char name[65];
    bool is_known = gethostname(name, sizeof name - 1) == 0;
    name[strcspn(name, ".")] = '\0';
    return is_known && text_is_name(name) ? name : "node";
}

/* Returns -1 to continue. */
static int serve_check_join(const struct command *self, struct serve_options *o)
{
    o->node = o->node ? o->node : serve_host_name();
    if (!text_is_name(o->node))
        return cli_usage(self, "--node %s: use letters, digits, '.', '_' and '-'", o->node);
    if (o->workers > 1)
        return cli_usage(self, "--join: a node has one worker; start more nodes on this machine");
    if (o->certificate)
        return cli_usage(self, "--join: nodes reach each other over HTTP; end TLS in a proxy");
    if (strncmp(o->listen, "unix:", 5) == 0 && !o->advertise)
        return cli_usage(self, "--join: listen on IP:PORT, which other nodes can reach");
    return -1;
}

/* Each worker would use the whole limit. Returns -1 to continue. */
static int serve_check_workers(const struct command *self, droste *d, struct serve_options *o)
{
    static const char *const shared[] = { "requests-per-minute", "tokens-per-minute" };
    for (size_t i = 0; o->workers > 1 && i < array_length(shared); i++) {
        double most = 0;
        if (droste_get_number(d, shared[i], &most) && most > 0)
            return cli_usage(
                self, "--%s: workers do not share it; use --join or one worker", shared[i]);
    }
    return o->join ? serve_check_join(self, o) : -1;
}

static const struct serve_options serve_defaults = {
    .listen = "127.0.0.1:8710",
    .life_seconds = 86400,
    .idle_seconds = 3600,
    .request_seconds = 10,
    .drain_seconds = 30,
    .queue_seconds = 10,
    .workers = 1,
    .runs = 16,
    .max_sandboxes = 256,
    .max_connections = 8192,
    .context_threshold = 8192,
    .detach_seconds = 60,
    .files_quota_mib = 1024,
    .ready = serve_print_address,
};

static int serve_command(const struct command *self, droste *d, int argc, char **argv)
{
    const char *words[1], *life = NULL, *idle = NULL, *request = NULL, *drain = NULL;
    const char *sandboxes = NULL, *connections = NULL, *workers = NULL, *runs = NULL, *files = NULL;
    const char *keys = NULL, *queue = NULL, *level = "warning", *threshold = NULL, *detach = NULL;
    const char *paths[2] = { 0 };
    bool openapi = false, check = false;
    size_t count;
    struct serve_options o = serve_defaults;
    const struct flag flags[] = {
        { "listen", "ADDRESS", "IP:PORT or unix:PATH (127.0.0.1:8710).", &o.listen },
        { "keys", "PATH", "The file of keys; none: loopback only.", &keys },
        { "tls-cert", "PATH", "Serve HTTPS with these certificates (PEM).", &o.certificate },
        { "tls-key", "PATH", "The private key of the certificate (PEM).", &o.certificate_key },
        { "life", "TIME", "Maximum life of a sandbox (1d).", &life },
        { "idle", "TIME", "End sandboxes that are unused for this long (1h).", &idle },
        { "client-net", "RULE", "What clients may ask for (allow_net).", .words = &client_net },
        { "max-sandboxes", "N", "Sandboxes at once (256).", &sandboxes },
        { "queue", "TIME", "How long a request waits for a place (10).", &queue },
        { "join", "URLS", "Join the cluster of these NATS servers.", &o.join },
        { "runs", "N", "Runs of the cluster's queue at once (16).", &runs },
        { "mcp-path", "PATH", "Clients of /mcp may load files below this path.", &paths[0] },
        { "notebooks", "DIR", "Files for Jupyter's clients (/api/contents).", &o.notebooks },
        { "notebooks-per-key", NULL, "Give each key its own directory there.", NULL,
            &o.notebooks_per_key },
        { "workers", "N", "Number of worker processes (1).", &workers },
        { "node", "NAME", "Name of this node (default: the host name).", &o.node },
        { "advertise", "ADDRESS", "IP:PORT at which other nodes reach it.", &o.advertise },
        { "share", "DIR", "A directory that all nodes share, for volumes.", &o.share },
        { "nats-creds", "PATH", "Credentials for NATS (JWT and NKey).", &o.nats_credentials },
        { "nats-ca", "PATH", "Authorities of NATS' certificates (PEM).", &o.nats_ca },
        { "max-connections", "N", "Connections of a worker at once (8192).", &connections },
        { "models", "LIST", "Models for OpenAI's clients (default: --model).", &o.models },
        { "context-threshold", "N", "Longer texts become contexts (8192 bytes).", &threshold },
        { "files-quota", "N", "MiB of files of each key (1024).", &files },
        { "detach", "TIME", "How long their runs go on without a client (60).", &detach },
        { "request-timeout", "TIME", "Time for the head of a request to arrive (10).", &request },
        { "drain", "TIME", "Time after SIGTERM for requests to end (30).", &drain },
        { "log-level", "LEVEL", "error, warning, info or debug (warning).", &level },
        { "audit-log", "PATH", "Append a JSON line for each change.", &o.audit_log },
        { "traces", "PATH", "Append each ended run's spans (OTLP/JSON).", &o.traces },
        { "check", NULL, "Check settings, files and a sandbox, and exit.", NULL, &check },
        { "openapi", NULL, "Print the OpenAPI document and exit.", NULL, &openapi },
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, words, 0, &count);
    const struct serve_time times[] = { { "life", life, &o.life_seconds },
        { "idle", idle, &o.idle_seconds }, { "request-timeout", request, &o.request_seconds },
        { "drain", drain, &o.drain_seconds }, { "queue", queue, &o.queue_seconds, true },
        { "detach", detach, &o.detach_seconds } };
    const struct serve_number numbers[] = { { "max-sandboxes", sandboxes, &o.max_sandboxes },
        { "max-connections", connections, &o.max_connections },
        { "context-threshold", threshold, &o.context_threshold },
        { "files-quota", files, &o.files_quota_mib }, { "workers", workers, &o.workers },
        { "runs", runs, &o.runs } };
    for (size_t i = 0; status < 0 && i < array_length(times); i++)
        status = serve_read_time(self, &times[i]);
    for (size_t i = 0; status < 0 && i < array_length(numbers); i++)
        status = serve_read_number(self, &numbers[i]);
    if (status < 0 && o.workers > TABLE_WORKERS)
        status = cli_usage(self, "--workers %s: there are at most %d", workers, TABLE_WORKERS);
    o.paths = paths;
    o.log_level = log_level_parse(level);
    if (status < 0 && o.log_level < 0)
        status = cli_usage(self, "--log-level %s: expected error, warning, info or debug", level);
    if (status < 0 && !o.certificate != !o.certificate_key)
        status = cli_usage(self, "--tls-cert and --tls-key belong together");
    status = status < 0 ? serve_check_workers(self, d, &o) : status;
    if (status >= 0)
        return status;
    return openapi ? serve_print_openapi() : serve_start(d, &o, keys, check, argc, argv);
}

const struct command command_serve = {
    .name = "serve",
    .synopsis = "[--listen ADDRESS] [--life TIME] [--idle TIME] [--SETTING VALUE ...]",
    .summary = "serve sandboxes over HTTP to programs in any language",
    .details = "Prints its address once it accepts requests. The settings are those of all\n"
               "sandboxes. SIGTERM drains: requests that have begun may end. Without keys (droste\n"
               "keys) only loopback and unix sockets are served; --keys is keys.json in the data\n"
               "directory, if that exists. GET /openapi.json describes the interface, and\n"
               "docs/serve.md explains it.\n"
               "\n"
               "Exit status: 0 after a signal, 1 the address is in use, 2 usage error.\n",
    .examples = "  droste serve\n"
                "  droste serve --listen unix:/run/user/1000/droste.sock --memory 1G\n"
                "  curl -X POST http://127.0.0.1:8710/v1/sandboxes\n",
    .settings = SETTINGS_SANDBOX,
    .run = serve_command,
};
