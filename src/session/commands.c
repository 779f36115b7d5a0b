/* session/commands.c: calls for commands, which the service of a sandbox answers. */
#include "session/commands.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "session/internal.h"
#include "session/service.h"

enum {
    ANSWER_MS = 60000, /* of calls that do not wait for the command */
    ERRNO_MAX = 4095,
    STATUS_MAX = 255,
    LIST_MAX = 5 << 20,    /* bytes */
    INFO_SIZE = 28,        /* of the fixed part of a command in a list */
    PID_MAX = 1 << 22,     /* the kernel's, PID_MAX_LIMIT */
    TIMEOUT_MAX = 1 << 30, /* ms */
};

struct command_pending {
    struct service_request request; /* first */
    struct session *session;
    enum command_op op;
    size_t length;
    char *program; /* COMMAND_START, or the port of COMMAND_CONNECT: for messages */
    command_done_fn *done;
    void *arg;
};

static const struct {
    const char *name, *doing;
    unsigned answer_ms;
} command_ops[COMMAND_OP_COUNT] = {
    [COMMAND_START] = { "start", "starting", ANSWER_MS },
    [COMMAND_ATTACH] = { "attach", "attaching to", ANSWER_MS },
    [COMMAND_CONNECT] = { "connect", "connecting to", ANSWER_MS },
    [COMMAND_LIST] = { "list", "listing", ANSWER_MS },
    [COMMAND_OUTPUT] = { "output", "reading the output of", 0 },
    [COMMAND_INPUT] = { "input", "writing to", 0 },
    [COMMAND_SIGNAL] = { "signal", "signalling", ANSWER_MS },
    [COMMAND_RESIZE] = { "resize", "resizing the terminal of", ANSWER_MS },
    [COMMAND_RELEASE] = { "release", "ending", ANSWER_MS },
    [COMMAND_DETACH] = { "detach", "detaching from", ANSWER_MS },
};

/* ---- an answer ---- */

/* What of a command could not be had, in place of its program. */
static const struct {
    const char *at, *text;
} command_obstacles[] = {
    { "cwd", "the directory in which to start it: " },
    { "user", "the user to run it as: " },
    { "terminal", "a terminal (at the isolation levels 'landlock' and below there may be none): " },
};

static const char *commands_obstacle(const char *at)
{
    for (size_t i = 0; at && i < array_length(command_obstacles); i++)
        if (strcmp(command_obstacles[i].at, at) == 0)
            return command_obstacles[i].text;
    return "";
}

static void commands_explain(
    const struct command_pending *p, int64_t sys, const char *at, struct error *why)
{
    cleanup_buf struct buf shown = { 0 };
    if (p->program)
        service_quote(&shown, p->program, strlen(p->program));
    enum error_code code = sys == ENOENT || sys == ESRCH                      ? ERROR_NOT_FOUND
                           : sys == EACCES || sys == EPERM                    ? ERROR_PERMISSION
                           : sys == EAGAIN || sys == ENOMEM || sys == ENOBUFS ? ERROR_IO
                                                                              : ERROR_ARGUMENT;
    error_set(why, code, "%s %s in the sandbox: %s%s", command_ops[p->op].doing,
        p->program ? buf_text(&shown) : "a command", commands_obstacle(at),
        sys == EBADF     ? "it has ended, or takes no input"
        : sys == ENOBUFS ? "this reader was 1 MiB behind another"
                         : strerror((int)sys));
    why->sys = (int)sys;
}

static void commands_finish(
    struct command_pending *p, const struct command_answer *answer, const struct error *why)
{
    p->done(p->arg, answer, why);
    free(p->program);
    free(p);
}

static void commands_fail(struct service_request *r, const struct error *why)
{
    commands_finish((struct command_pending *)r, NULL, why);
}

/* A fixed part, little endian, as serve_commands.py packs it. */
bool command_info_next(const struct command_answer *answer, size_t *at, struct command_info *out)
{
    enum { ENDED = 1, TERMINAL = 2, TIMED_OUT = 4, CUT = 8 };
    const char *data = answer->out + *at;
    uint64_t pid;
    uint32_t words[5], nuls = 0;
    if (answer->out_len - *at < INFO_SIZE)
        return false;
    memcpy(&pid, data, sizeof pid);
    memcpy(words, data + sizeof pid, sizeof words);
    for (size_t i = 0; i < array_length(words); i++)
        words[i] = le32toh(words[i]);
    const uint32_t status = words[0], argc = words[1], envc = words[2], flags = words[3],
                   len = words[4];
    data += sizeof pid + sizeof words;
    if (len == 0 || len > answer->out_len - *at - INFO_SIZE || data[len - 1] != '\0' ||
        argc > len || envc > len)
        return false;
    const char *starts[5] = { data };
    for (uint32_t i = 0; i < len; i++) {
        if (data[i] != '\0')
            continue;
        nuls++;
        if (nuls <= 3)
            starts[nuls] = data + i + 1;
        if (nuls == 3 + argc)
            starts[4] = data + i + 1;
    }
    if (nuls != 3 + argc + envc)
        return false;
    *out = (struct command_info){ .pid = (int64_t)le64toh(pid),
        .tag = starts[0],
        .user = starts[1],
        .cwd = starts[2],
        .argv = starts[3],
        .env = starts[4],
        .argc = argc,
        .envc = envc,
        .cut = flags & CUT,
        .terminal = flags & TERMINAL,
        .ended = flags & ENDED,
        .timed_out = flags & TIMED_OUT,
        .status = (int)status };
    *at += INFO_SIZE + len;
    return true;
}

static bool commands_pid_ok(int64_t pid)
{
    return pid > 0 && pid <= PID_MAX;
}

static bool commands_status_ok(int status)
{
    return status >= -COMMANDS_SIGNAL_MAX && status <= STATUS_MAX;
}

static bool commands_list_ok(struct command_answer *a)
{
    struct command_info info;
    size_t at = 0;
    while (command_info_next(a, &at, &info)) {
        if (!commands_pid_ok(info.pid) || !commands_status_ok(info.status))
            return false;
        a->listed++;
    }
    return at == a->out_len && a->listed <= COMMANDS_LISTED_MAX;
}

static bool commands_makes_handle(enum command_op op)
{
    return op == COMMAND_START || op == COMMAND_ATTACH || op == COMMAND_CONNECT;
}

static bool commands_answer_ok(const struct command_pending *p, struct command_answer *a)
{
    size_t most = p->op == COMMAND_OUTPUT ? p->length : p->op == COMMAND_LIST ? LIST_MAX : 0;
    if (a->out_len > most || a->err_len > most)
        return false;
    if (p->op == COMMAND_CONNECT)
        return a->pid == 0;
    if (commands_makes_handle(p->op))
        return commands_pid_ok(a->pid);
    return commands_status_ok(a->status) && (p->op != COMMAND_LIST || commands_list_ok(a));
}

static int commands_take(struct service_request *r, struct json_object *head,
    const struct frame *frame, struct error *err)
{
    struct command_pending *p = (struct command_pending *)r;
    struct command_answer answer = { .pid = json_get_int(head, "pid", 0),
        .ended = json_get_bool(head, "ended", false),
        .timed_out = json_get_bool(head, "timed_out", false) };
    int64_t sys = json_get_int(head, "errno", 0), number = json_get_int(head, "handle", 0);
    int64_t status = json_get_int(head, "status", 0);
    struct frame_parts parts;
    struct error why = { 0 };
    int rc = frame_parts_open(frame->blob, frame->blob_len, 2, &parts, err);
    if (rc < 0 || !frame_parts_next(&parts, &answer.out, &answer.out_len) ||
        !frame_parts_next(&parts, &answer.err, &answer.err_len) || sys < 0 || sys > ERRNO_MAX ||
        status != (int)status)
        return error_set(err, ERROR_PROTOCOL, "an answer that is malformed");
    answer.status = (int)status;
    if (sys != 0) {
        commands_explain(p, sys, json_get_string(head, "at", NULL), &why);
        commands_finish(p, NULL, &why);
        return 0;
    }
    bool makes = commands_makes_handle(p->op);
    if (!commands_answer_ok(p, &answer) || (makes && !service_number_ok(number)))
        return error_set(err, ERROR_PROTOCOL, "an answer of a command with invalid values");
    answer.handle = makes ? service_handle(p->session, number) : 0;
    commands_finish(p, &answer, NULL);
    return 0;
}

static const struct service_request_ops commands_request = { FRAME_COMMAND, FRAME_COMMANDED,
    commands_take, commands_fail };

/* ---- a call ---- */

/* Appends the words, each with a NUL behind it. Returns how many there are. */
static size_t commands_write_words(struct buf *out, const char *const *words)
{
    size_t n = 0;
    for (; words && words[n] && out->len <= COMMANDS_WORDS_MAX; n++)
        buf_append(out, words[n], strlen(words[n]) + 1);
    return n;
}

static bool commands_uses_handle(enum command_op op)
{
    return !commands_makes_handle(op) && op != COMMAND_LIST;
}

static int commands_check_terminal(const struct command_call *call, struct error *err)
{
    bool sized = call->op == COMMAND_RESIZE || (call->op == COMMAND_START && call->terminal);
    if (!sized || (call->columns >= 1 && call->columns <= COMMANDS_SIDE_MAX && call->rows >= 1 &&
                      call->rows <= COMMANDS_SIDE_MAX))
        return 0;
    return error_set(err, ERROR_ARGUMENT, "a terminal has 1 to %d columns and rows, not %u and %u",
        COMMANDS_SIDE_MAX, call->columns, call->rows);
}

static int commands_check_names(const struct command_call *call, struct error *err)
{
    if (call->tag && (strlen(call->tag) > COMMANDS_TAG_MAX || call->tag[0] == '\0'))
        return error_set(err, ERROR_ARGUMENT, "a tag has 1 to %d bytes", COMMANDS_TAG_MAX);
    if (call->user && call->user[0] == '\0')
        return error_set(err, ERROR_ARGUMENT, "the name of a user is empty");
    if (call->op == COMMAND_ATTACH && !call->tag && !commands_pid_ok(call->pid))
        return error_set(err, ERROR_ARGUMENT, "a process id is a number from 1 to %d", PID_MAX);
    return 0;
}

static int commands_check(
    const struct session *s, const struct command_call *call, uint32_t *number, struct error *err)
{
    *number = 0;
    if (commands_check_names(call, err) < 0 || commands_check_terminal(call, err) < 0)
        return -(int)ERROR_ARGUMENT;
    if (call->op == COMMAND_START && (!call->argv || !call->argv[0] || call->argv[0][0] == '\0'))
        return error_set(err, ERROR_ARGUMENT, "a command has no program; give at least one word");
    for (const char *const *e = call->env; e && *e; e++)
        if (**e == '=' || !strchr(*e, '='))
            return error_set(
                err, ERROR_ARGUMENT, "an environment variable is not NAME=value: '%.80s'", *e);
    if (call->len > COMMANDS_PIECE || call->length > COMMANDS_PIECE)
        return error_set(err, ERROR_ARGUMENT, "at most %d bytes in one piece", COMMANDS_PIECE);
    if (call->op == COMMAND_OUTPUT && call->length == 0)
        return error_set(err, ERROR_ARGUMENT, "no bytes of output were asked for");
    if (call->op == COMMAND_SIGNAL && (call->signal < 1 || call->signal > COMMANDS_SIGNAL_MAX))
        return error_set(err, ERROR_ARGUMENT, "a signal is a number from 1 to %d, not %d",
            COMMANDS_SIGNAL_MAX, call->signal);
    if (call->op == COMMAND_CONNECT && (call->port < 1 || call->port > UINT16_MAX))
        return error_set(
            err, ERROR_ARGUMENT, "a port is a number from 1 to 65535, not %u", call->port);
    if (call->timeout_ms > TIMEOUT_MAX)
        return error_set(err, ERROR_ARGUMENT, "a time limit is at most %d s; give none for more",
            TIMEOUT_MAX / 1000);
    if (!commands_uses_handle(call->op))
        return 0;
    return service_number(s, call->handle,
        "the command is not known, or the process that served it was ended", number, err);
}

/* Directory, user, tag, arguments and environment; of COMMAND_ATTACH the tag. */
static int commands_write_blob(
    const struct command_call *call, struct buf *out, size_t *argc, struct error *err)
{
    const char *const names[] = { call->cwd ? call->cwd : "", call->user ? call->user : "",
        call->tag ? call->tag : "", NULL };
    if (call->op == COMMAND_ATTACH)
        commands_write_words(out, names + 2);
    if (call->op != COMMAND_START)
        return buf_failed(out) ? error_memory(err) : 0;
    commands_write_words(out, names);
    *argc = commands_write_words(out, call->argv);
    commands_write_words(out, call->env);
    if (out->len > COMMANDS_WORDS_MAX)
        return error_set(err, ERROR_ARGUMENT,
            "the arguments and the environment of a command may have %d bytes; write them to a file",
            COMMANDS_WORDS_MAX);
    return buf_failed(out) ? error_memory(err) : 0;
}

static unsigned commands_answer_ms(const struct command_call *call)
{
    if (call->op == COMMAND_OUTPUT && call->timeout_ms > 0)
        return (unsigned)call->timeout_ms + ANSWER_MS;
    return command_ops[call->op].answer_ms;
}

static struct command_pending *commands_pend(
    struct session *s, const struct command_call *call, command_done_fn *done, void *arg)
{
    struct command_pending *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    *p = (struct command_pending){ .request = { .ops = &commands_request,
                                       .answer_ms = commands_answer_ms(call) },
        .session = s,
        .op = call->op,
        .length = call->length,
        .done = done,
        .arg = arg };
    if (call->op == COMMAND_START)
        p->program = strdup(call->argv[0]);
    else if (call->op == COMMAND_CONNECT)
        p->program = text_printf("port %u", call->port);
    if (p->program || (call->op != COMMAND_START && call->op != COMMAND_CONNECT))
        return p;
    free(p);
    return NULL;
}

static void commands_write_head(
    const struct command_call *call, uint32_t number, size_t argc, struct buf *head)
{
    static const char *const truth[] = { "false", "true" };
    buf_printf(head, "{\"op\":\"%s\",\"handle\":%u,\"argc\":%zu,\"length\":%zu,",
        command_ops[call->op].name, (unsigned)number, argc, call->length);
    buf_printf(head, "\"signal\":%d,\"alone\":%s,\"pid\":%lld,\"timeout\":%u,", call->signal,
        truth[call->alone], (long long)call->pid, (unsigned)call->timeout_ms);
    buf_printf(head, "\"stdin\":%s,\"merge\":%s,\"drain\":%s,\"eof\":%s,", truth[call->input],
        truth[call->merge], truth[call->drain], truth[call->eof]);
    buf_printf(head, "\"quiet\":%s,\"port\":%u,", truth[call->quiet], call->port);
    buf_printf(head, "\"terminal\":%s,\"columns\":%u,\"rows\":%u}", truth[call->terminal],
        call->columns, call->rows);
}

int session_command(struct session *s, const struct command_call *call, command_done_fn *done,
    void *arg, struct error *err)
{
    cleanup_buf struct buf head = { 0 }, words = { 0 };
    uint32_t number;
    size_t argc = 0;
    int rc = service_ready(s, "commands", err);
    if (rc == 0)
        rc = commands_check(s, call, &number, err);
    if (rc == 0)
        rc = commands_write_blob(call, &words, &argc, err);
    if (rc < 0)
        return rc;
    commands_write_head(call, number, argc, &head);
    struct command_pending *p = buf_failed(&head) ? NULL : commands_pend(s, call, done, arg);
    if (!p)
        return error_memory(err);
    const struct iovec blob = call->op == COMMAND_INPUT
                                  ? (struct iovec){ (void *)(uintptr_t)call->data, call->len }
                                  : (struct iovec){ words.data, words.len };
    rc = service_ask(s, &p->request, &head, &blob, 1, err);
    if (rc < 0) {
        free(p->program);
        free(p);
    }
    return rc;
}
