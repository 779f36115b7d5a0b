/* Uploads to envd: byte 0 chooses what the body is (multipart, plain, gzip, multipart that was
 * compressed), byte 1 the size of the pieces in which it comes, byte 2 whether the query has a
 * path, and how late the sandbox answers. Files are opened, written and closed in turn. An answer
 * is valid JSON that has each of them, and each byte of a plain body was written.
 */
#include "fuzz.h"

#include <sys/socket.h>
#include <zlib.h>

#include "base/cleanup.h"
#include "serve/e2b/filesystem.h"
#include "serve/sandbox/sandbox.h"

enum { FILES_HANDLE = 7 };

/* An upload, and the sandbox that it goes to. */
static struct {
    struct input body;
    enum form { MULTIPART, PLAIN, GZIP, GZIP_MULTIPART, FORMS } form;
    size_t piece;
    struct sandbox sandbox;
    struct e2b_sandbox e2b;
    droste_file_fn *done; /* of what the sandbox was asked for and has not answered yet */
    void *arg;
    bool is_open, is_late, has_path;
    unsigned closed, status, answered;
    size_t written;
} files;

/* What files.c and exchange.c need of the others. */
void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    expect(status >= 400 && code[0] && format[0]);
    if (!files.status)
        files.status = status;
}

void request_reply_json(struct request *r, unsigned status, struct json_object *tree)
{
    size_t len = 0;
    const char *text = json_text(tree, &len);
    expect(!files.answered++ && status == 200 && !files.is_open && text);
    expect(json_object_array_length(tree) == files.closed);
    expect(text_is_utf8(text, len, NULL));
    json_object_put(tree);
}

const char *request_header_of(struct request *r, const char *name)
{
    return MHD_lookup_connection_value(r->connection, MHD_HEADER_KIND, name);
}

const char *request_query(struct request *r, const char *name, const char *fallback)
{
    return fallback;
}

void request_suspend(struct request *r)
{
    r->suspended = true;
}

void request_resume(struct request *r)
{
    r->suspended = false;
}

void transfer_read(struct request *r, const char *path)
{
}

struct e2b_sandbox *e2b_running_of(struct request *r)
{
    return &files.e2b;
}

struct json_object *e2b_metadata(const droste_file_entry *entry)
{
    return NULL;
}

char *e2b_path(struct request *r, const struct e2b_sandbox *e, const char *path)
{
    expect(path[0]);
    return text_printf("/%s", path);
}

char *e2b_parent(const char *path)
{
    return strdup("/");
}

unsigned e2b_file_status(const droste_error *err)
{
    return 400;
}

struct sandbox *sandbox_find(struct server *s, const char *id)
{
    return &files.sandbox;
}

struct sandbox *sandbox_of(struct request *r)
{
    return &files.sandbox;
}

void request_fail(struct request *r, const droste_error *err)
{
    expect(false); /* E2B's clients get another answer */
}

void request_cut(struct request *r)
{
    expect(false);
}

int droste_command_start(droste_session *session, const droste_command_request *request,
    droste_command_fn *done, void *arg, droste_error *err)
{
    expect(false);
    return -1;
}

void trace_step_begin(
    struct trace_step *step, const struct sandbox *sb, const struct request *r, const char *program)
{
}

void trace_command_end(struct trace_step *step, int64_t pid, const droste_command_reply *end)
{
}

/* ---- the sandbox ---- */

static void sandbox_answer(void)
{
    const droste_file_reply reply = { .handle = FILES_HANDLE };
    droste_file_fn *done = files.done;
    files.done = NULL;
    done(files.arg, &reply, NULL);
}

int droste_file_start(droste_session *session, const droste_file_request *request,
    droste_file_fn *done, void *arg, droste_error *err)
{
    expect(!files.done); /* one at a time */
    if (strcmp(request->op, "open") == 0) {
        expect(!files.is_open && request->path && request->path[0] == '/');
        files.is_open = true;
    } else if (strcmp(request->op, "write") == 0) {
        expect(files.is_open && request->handle == FILES_HANDLE);
        expect(request->len <= DROSTE_FILE_PIECE && request->data);
        files.written += request->len;
    } else if (strcmp(request->op, "close") == 0) {
        expect(files.is_open && request->handle == FILES_HANDLE);
        files.is_open = false;
        files.closed++;
    } else {
        expect(strcmp(request->op, "mkdir") == 0);
    }
    files.done = done;
    files.arg = arg;
    return 0;
}

/* ---- the client ---- */

/* The server calls on_piece only while nothing is under way, and frees the request at its end. */
static void client_send(struct request *r)
{
    while (r->on_piece && files.body.left > 0 && !files.status && !r->gone) {
        size_t len;
        char *piece = input_piece(&files.body, files.piece, &len);
        r->on_piece(r, piece, len);
        free(piece);
        while (files.done && !(files.is_late && files.body.left == 0))
            sandbox_answer();
    }
    if (r->on_complete && files.body.left == 0 && !files.status && !files.done)
        r->on_complete(r);
    while (files.done && !files.is_late)
        sandbox_answer();
    if (r->on_free)
        r->on_free(r);
    while (files.done)
        sandbox_answer();
    expect(!files.is_open && files.sandbox.transfers == 0);
}

static enum MHD_Result on_access(void *arg, struct MHD_Connection *connection, const char *path,
    const char *method, const char *version, const char *data, size_t *len, void **state)
{
    static struct server server;
    struct request r = { .server = &server, .connection = connection };
    size_t sent = files.body.left;
    e2b_handle_file_write(&r);
    while (files.done)
        sandbox_answer();
    client_send(&r);
    expect(files.answered <= 1 && !(files.answered && files.status));
    if (files.answered && files.form == PLAIN)
        expect(files.closed == 1 && files.written == sent);
    return MHD_NO;
}

/* The head of the request, from which libmicrohttpd takes the boundary. */
static void client_connect(struct MHD_Daemon *daemon)
{
    struct sockaddr address = { .sa_family = AF_UNIX };
    int ends[2];
    cleanup_buf struct buf head = { 0 };
    bool multipart = files.form == MULTIPART || files.form == GZIP_MULTIPART;
    bool gzip = files.form == GZIP || files.form == GZIP_MULTIPART;
    buf_printf(&head, "POST /files%s HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n%s%s\r\n",
        files.has_path ? "?path=x" : "",
        multipart ? "Content-Type: multipart/form-data; boundary=limit\r\n" : "",
        gzip ? "Content-Encoding: gzip\r\n" : "");
    expect(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
    expect(write(ends[0], head.data, head.len) == (ssize_t)head.len);
    expect(MHD_add_connection(daemon, ends[1], &address, sizeof address) == MHD_YES);
    for (int i = 0; i < 4; i++)
        MHD_run(daemon);
    close(ends[0]);
    for (int i = 0; i < 2; i++)
        MHD_run(daemon);
}

static uint8_t *gzip_of(struct input *in)
{
    z_stream z = { 0 };
    size_t room = in->left + in->left / 1000 + 128;
    uint8_t *out = malloc(room);
    expect(out && deflateInit2(&z, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, 0) == Z_OK);
    z.next_in = (uint8_t *)(uintptr_t)in->p;
    z.avail_in = (unsigned)in->left;
    z.next_out = out;
    z.avail_out = (unsigned)room;
    expect(deflate(&z, Z_FINISH) == Z_STREAM_END);
    *in = (struct input){ out, z.total_out };
    deflateEnd(&z);
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct MHD_Daemon *daemon;
    struct input in = { data, size };
    uint8_t *compressed = NULL;
    if (!daemon)
        daemon = MHD_start_daemon(MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET, 0, NULL, NULL,
            on_access, NULL, MHD_OPTION_END);
    expect(daemon);
    memset(&files, 0, sizeof files);
    files.form = (enum form)(input_byte(&in) % FORMS);
    files.piece = (size_t)input_byte(&in) * 8 + 1;
    uint8_t flags = input_byte(&in);
    files.has_path = flags & 1;
    files.is_late = flags & 2;
    if (files.form == GZIP_MULTIPART)
        compressed = gzip_of(&in);
    files.body = in;
    client_connect(daemon);
    free(compressed);
    return 0;
}
