/* cli/mcp.c: droste mcp: a server of the Model Context Protocol on standard input and output. */
#include "mcp/mcp.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/mcp_install.h"
#include "cli/mcp_tools.h"

/* Of a message; longer ones end the connection. */
enum { MESSAGE_MAX = 64 << 20, READ_SIZE = 64 << 10 };

static void mcp_print(void *arg, const struct mcp_message *message)
{
    (void)arg;
    fwrite(message->json, 1, message->len, stdout);
    fputc('\n', stdout);
    fflush(stdout);
}

static void mcp_print_notice(void *arg, const char *text)
{
    (void)arg;
    if (text[0])
        fprintf(stderr, "droste: %s\n", text);
}

/* Takes the whole lines. */
static void mcp_take_lines(struct mcp_peer *peer, struct buf *in)
{
    size_t from = 0;
    for (;;) {
        char *end = in->len > from ? memchr(in->data + from, '\n', in->len - from) : NULL;
        if (!end)
            break;
        size_t len = (size_t)(end - in->data) - from;
        if (len > 0 && in->data[from + len - 1] == '\r')
            len--;
        if (len > 0)
            mcp_receive(peer, NULL, in->data + from, len);
        from = (size_t)(end - in->data) + 1;
    }
    buf_consume(in, from);
}

/* 1: go on, 0: the input has ended, negative: an error. */
static int mcp_read(struct mcp_peer *peer, struct buf *in, struct error *err)
{
    if (in->len > MESSAGE_MAX)
        return error_set(err, ERROR_PROTOCOL, "a message of more than %d MiB", MESSAGE_MAX >> 20);
    if (!buf_reserve(in, READ_SIZE))
        return error_memory(err);
    ssize_t n = read(STDIN_FILENO, in->data + in->len, READ_SIZE);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 1;
    if (n < 0)
        return error_set_errno(err, ERROR_IO, "reading standard input");
    in->len += (size_t)n;
    mcp_take_lines(peer, in);
    return n > 0;
}

static int mcp_serve(droste *d, struct mcp_server *server, struct mcp_peer *peer, struct error *err)
{
    cleanup_buf struct buf in = { 0 };
    int fd = droste_fd(d, err), rc = fd;
    while (rc >= 0) {
        struct pollfd polls[] = { { STDIN_FILENO, POLLIN, 0 }, { fd, POLLIN, 0 } };
        mcp_flush(server);
        rc = droste_dispatch(d, err);
        if (rc < 0)
            break;
        mcp_flush(server);
        mcp_sweep(server, clock_ns());
        if (poll(polls, array_length(polls), -1) < 0 && errno != EINTR)
            return error_set_errno(err, ERROR_IO, "waiting for standard input");
        if (!polls[0].revents)
            continue;
        int more = mcp_read(peer, &in, err);
        if (more <= 0 || cli_output_gone())
            return more < 0 ? more : 0;
    }
    return rc;
}

static int mcp_command(const struct command *self, droste *d, int argc, char **argv)
{
    enum { PATHS_MAX = 64 };
    const char *paths[PATHS_MAX + 1] = { 0 }, *sessions = NULL;
    int64_t most = 16;
    size_t count;
    struct error err = { 0 };
    const struct flag flags[] = {
        { "max-sessions", "N", "Python sessions at once (16).", &sessions },
        { 0 },
    };
    int status = cli_parse(self, argc, argv, flags, d, paths, PATHS_MAX, &count);
    if (status < 0 && sessions && (!cli_count(sessions, 1, &most) || most > 10000))
        status = cli_usage(self, "--max-sessions %s: expected a number from 1 to 10000", sessions);
    if (status >= 0)
        return status;
    if (count > 0 && strcmp(paths[0], "install") == 0)
        return mcp_install(self, paths + 1, count - 1);
    if (count > 0 && strcmp(paths[0], "tools") == 0)
        return mcp_tools(self, d, paths + 1, count - 1);
    struct mcp_server *server;
    const struct mcp_options options = {
        .paths = paths, .max_sessions = (size_t)most, .roots_bound = true
    };
    if (mcp_server_new(d, &options, &server, &err) < 0)
        return cli_error(&err);
    droste_on_notice(d, mcp_print_notice, NULL);
    struct mcp *mcp = mcp_new(server, NULL);
    struct mcp_peer *peer = mcp ? mcp_connect(mcp, mcp_print, NULL) : NULL;
    int rc = peer ? mcp_serve(d, server, peer, &err) : error_memory(&err);
    mcp_server_free(server);
    return cli_end(rc, &err, "the messages");
}

const struct command command_mcp = {
    .name = "mcp",
    .synopsis =
        "[install AGENT | tools NAME=SERVER ...] [PATH ...] [--max-sessions N] [--SETTING VALUE ...]",
    .summary = "give Python sandboxes and long contexts to agents that speak MCP",
    .details =
        "Speaks the Model Context Protocol on standard input and output: start it from the\n"
        "configuration of an agent. Its tools run Python in sessions that keep their\n"
        "variables, load files below the PATHs into them, answer questions about long\n"
        "files (--model), and read and write files of the sandboxes. Without a PATH, no\n"
        "file of this machine is given. `droste mcp install AGENT [ARGUMENT ...]` enters the\n"
        "server with these arguments into the configuration of claude-code,\n"
        "claude-desktop, cursor, gemini, windsurf, vscode (this directory) or project\n"
        "(.mcp.json of this directory); settings then stand behind `--`.\n"
        "`droste mcp tools NAME=SERVER ...` prints the functions of other MCP servers as code\n"
        "finds them with --mcp-server.\n"
        "\n"
        "Exit status: 0 at the end of the input, 1 reading failed, 2 usage error.\n",
    .examples = "  droste mcp ~/data\n"
                "  droste mcp --memory 2G --model openai/gpt-5 ./logs ./docs\n"
                "  droste mcp install claude-code ~/data -- --memory 2G\n"
                "  npx @modelcontextprotocol/inspector --cli droste mcp --method tools/list\n",
    .settings = SETTINGS_RUN,
    .arguments = "FILE",
    .run = mcp_command,
};
