/* serve/jupyter/jupyter.h: Jupyter's server API, so that its clients use sandboxes as kernels.
 *
 * Cells run in one session of their kernel; %fork adds more. Each session is a sandbox of the
 * account, which is counted, limited and ended like any other. A kernel ends by DELETE,
 * shutdown_request, or with the sandbox of its first session, as at the idle limit. It has any
 * number of WebSockets ("channels"); their requests wait in one queue, and go on when a client has
 * left.
 *
 * The kernels of an account are on one worker, which its id chooses, so that a notebook's session
 * (sessions.c) and its kernel are in one place; ids name the worker, as a sandbox's do.
 */
#pragma once

#include "base/text.h"
#include "serve/sandbox/sandbox.h"
#include "serve/http/socket.h"

/* An id as clients of Jupyter want it: 32 hexadecimal digits with four dashes. */
enum { JUPYTER_ID_SIZE = 37 };
enum { JUPYTER_MESSAGE_MAX = 8 << 20, JUPYTER_QUEUE_MAX = 32 << 20 };

#define JUPYTER_PROTOCOL "5.3"

enum jupyter_channel_name { CHANNEL_SHELL, CHANNEL_CONTROL, CHANNEL_STDIN, CHANNEL_IOPUB };

struct jupyter_kernel;

/* A client's WebSocket. */
struct jupyter_channel {
    struct web_socket socket;
    struct request *r;
    struct jupyter_kernel *kernel; /* NULL: it has ended, or the client has left */
    bool is_binary;                /* v1.kernel.websocket.jupyter.org */
    uint64_t lost;                 /* bytes of output that a slow client did not get */
    struct jupyter_channel *next;
};

/* A request of a client. */
struct jupyter_message {
    enum jupyter_channel_name channel;
    struct jupyter_channel *from; /* NULL: it has left */
    struct json_object *header, *content;
    char type[64];
    size_t size;
    struct jupyter_message *next;
};

/* What the session in use does now. */
enum jupyter_phase {
    PHASE_IDLE,
    PHASE_STARTING,  /* a session */
    PHASE_PREPARING, /* the module of _notebook.py */
    PHASE_CELL,
    PHASE_EXPRESSIONS, /* of a cell */
    PHASE_ASKING,      /* completion, inspection, whether a cell is complete */
    PHASE_CHECKPOINT,
    PHASE_ROLLBACK,
    PHASE_PLACE, /* waits for room for a sandbox: a fork, or a restart */
    PHASE_FORK,
};

struct jupyter_session {
    struct jupyter_kernel *kernel;
    char name[SERVE_NAME_SIZE];
    struct sandbox *sandbox; /* NULL: while it is replaced */
    bool is_prepared;
    struct jupyter_session *next;
};

struct jupyter_cell {
    char *code;
    uint64_t count;
};

/* What a kernel does with the requests of its clients. */
struct jupyter_requests {
    /* Begins the first message of the queue, or answers it. False: the kernel has ended. */
    bool (*begin)(struct jupyter_kernel *k);
    /* The operation for the first message has ended. */
    void (*done)(struct jupyter_kernel *k, enum jupyter_phase phase, droste_result *result,
        const droste_error *err);
    /* Code calls input(). */
    void (*input)(struct jupyter_kernel *k, droste_tool_call *call, const char *json, size_t len);
};

enum { JUPYTER_HISTORY = 1000, JUPYTER_HISTORY_BYTES = 1 << 20 };

struct jupyter_kernel {
    struct server *server;
    struct account *owner;
    const struct jupyter_requests *requests;
    char id[SERVE_ID_SIZE];
    const char *spec; /* its kernelspec */
    char version[16]; /* of the sandbox's Python */
    struct buf settings;
    int64_t activity_ms;
    struct jupyter_session *sessions, *used; /* the first one is "main" */
    struct jupyter_channel *channels;
    struct jupyter_message *queue; /* the first may be under way */
    size_t queue_bytes;
    enum jupyter_phase phase;
    bool is_stepping, is_ended;
    bool is_silent;                  /* the cell that runs shows nothing */
    uint64_t count, sent;            /* cells, messages */
    struct text_rest rest[2];        /* of the streams of the cell */
    struct droste_tool_call *asking; /* input() waits for an answer */
    struct admission admission;      /* for a fork or a restart */
    struct request *waiting;         /* for the end of a restart, or its start; NULL: none */
    bool waiting_is_new;             /* it has not started yet */
    void (*ready)(
        struct jupyter_kernel *k, struct request *r); /* answers the request for a new one */
    char fork_name[SERVE_NAME_SIZE];
    struct json_object *reply;                    /* of the cell, which its expressions complete */
    struct jupyter_cell history[JUPYTER_HISTORY]; /* by number of the cell */
    size_t history_bytes;
    uint64_t history_first, history_end;
    struct jupyter_kernel *next;
};

/* A notebook that is open in a client, and its kernel. */
struct jupyter_notebook {
    char id[SERVE_ID_SIZE];
    struct jupyter_kernel *kernel;
    char *path, *name, *type;
    struct jupyter_notebook *next;
};

struct jupyter {
    int64_t started_ms;
    struct jupyter_kernel *kernels;
    struct jupyter_notebook *notebooks;
    int notebooks_fd; /* the directory of files (contents.h); -1: none */
    size_t answers;   /* bytes of contents that are being sent */
};

extern const struct routes jupyter_routes;

/* The directory of files of notebooks; negative with a reason. */
int jupyter_open_directory(const char *path, struct error *err);
int jupyter_open(struct server *s, struct error *err);
void jupyter_close(struct server *s);

/* ---- ids.c ---- */

void jupyter_print_id(const char id[SERVE_ID_SIZE], char out[JUPYTER_ID_SIZE]);
/* False: it is no such id. */
bool jupyter_parse_id(const char *text, char id[SERVE_ID_SIZE]);

/* ---- kernels.c ---- */

/* Of the request's account; NULL: the request was refused. */
struct jupyter_kernel *jupyter_kernel_of(struct request *r);
/* Without refusing. */
struct jupyter_kernel *jupyter_kernel_find(struct request *r, const char *id);
/* Starts one for the request, which `ready` answers. */
void jupyter_kernel_start(struct request *r, const char *spec,
    const struct jupyter_requests *requests,
    void (*ready)(struct jupyter_kernel *k, struct request *r));
struct json_object *jupyter_kernel_json(const struct jupyter_kernel *k);
/* Ends it with its sandboxes and connections. */
void jupyter_kernel_end(struct jupyter_kernel *k, const char *why);
/* Replaces the sandbox of the session in use by a new one; `all`: and ends the other sessions, and
 * the requests that wait. Without room the kernel ends. */
void jupyter_kernel_restart(struct jupyter_kernel *k, bool all);
void jupyter_kernel_interrupt(struct jupyter_kernel *k);
/* Does what is next, if nothing is under way. */
void jupyter_kernel_step(struct jupyter_kernel *k);
/* An operation of the session in use was started (`rc`), or failed. False: it failed, and the
 * caller tells its client. */
bool jupyter_kernel_begin(struct jupyter_kernel *k, enum jupyter_phase phase, int rc);
/* Copies the session in use under this name. */
void jupyter_kernel_fork(struct jupyter_kernel *k, const char *name);
struct jupyter_session *jupyter_session_find(struct jupyter_kernel *k, const char *name);

/* ---- kernel_routes.c ---- */

/* Starts one of this specification (NULL: the default), as jupyter_kernel_start. */
void jupyter_kernel_create(struct request *r, const char *name,
    void (*ready)(struct jupyter_kernel *k, struct request *r));
/* Answers with a list, which clients get as it is and other workers by this name. */
void jupyter_reply_list(struct request *r, const char *name, struct json_object *own);

void jupyter_handle_contents(struct request *r);
void jupyter_handle_kernels(struct request *r);
void jupyter_handle_kernel_create(struct request *r);
void jupyter_handle_kernel_get(struct request *r);
void jupyter_handle_kernel_end(struct request *r);
void jupyter_handle_kernel_interrupt(struct request *r);
void jupyter_handle_kernel_restart(struct request *r);
void jupyter_handle_specs(struct request *r);
void jupyter_handle_spec(struct request *r);

/* ---- answer.c: requests of clients, and what their operations come to ---- */

/* Takes the message, which is freed when it is answered. */
void jupyter_take(struct jupyter_kernel *k, struct jupyter_message *m);
extern const struct jupyter_requests jupyter_requests;

/* ---- reply.c ---- */

/* The fork, or the new session, that the first message waits for was refused. */
void jupyter_fail(struct jupyter_kernel *k, const char *type, const char *text);
/* Ends all requests that wait, and the one under way, without what they asked for. */
void jupyter_abort(struct jupyter_kernel *k);
/* A client has left: nothing is sent to it. */
void jupyter_forget(struct jupyter_kernel *k, const struct jupyter_channel *ch);
void jupyter_message_free(struct jupyter_message *m);

/* ---- history.c ---- */

void jupyter_history_add(struct jupyter_kernel *k, const char *code);
/* Appends the answer to a history_request with this content. */
void jupyter_history_put(struct jupyter_kernel *k, struct json_object *o, struct buf *out);

/* ---- show.c: what a cell shows ---- */

void jupyter_show_output(struct jupyter_kernel *k, int stream, const char *data, size_t len);
void jupyter_show_rest(struct jupyter_kernel *k);
void jupyter_show_result(struct jupyter_kernel *k, const droste_bundles *bundles, size_t index);

/* ---- channels.c: connections, and messages of clients ---- */

void jupyter_handle_channels(struct request *r);

/* ---- send.c: messages to clients ---- */

extern const char *const jupyter_channel_names[];
/* The parts of a message, in the order of the binary format. */
enum { PART_CHANNEL, PART_HEADER, PART_PARENT, PART_METADATA, PART_CONTENT, PARTS };
/* Sends a message to a client, or (NULL) to all of them, as an answer to `parent` (may be NULL). */
void jupyter_send(struct jupyter_kernel *k, struct jupyter_channel *to,
    enum jupyter_channel_name channel, const struct jupyter_message *parent, const char *type,
    const struct buf *content);
/* To all clients on iopub, as a part of the request under way. */
void jupyter_publish(struct jupyter_kernel *k, const char *type, const struct buf *content);
void jupyter_tell_status(
    struct jupyter_kernel *k, const struct jupyter_message *parent, const char *state);
void jupyter_channels_close(struct jupyter_kernel *k, const char *why);

/* ---- sessions.c ---- */

void jupyter_handle_notebooks(struct request *r);
void jupyter_handle_notebook_create(struct request *r);
void jupyter_handle_notebook_get(struct request *r);
void jupyter_handle_notebook_change(struct request *r);
void jupyter_handle_notebook_end(struct request *r);

/* ---- notebooks.c ---- */

void jupyter_notebook_free(struct jupyter_notebook *n);
void jupyter_notebook_remove(struct jupyter *j, struct jupyter_notebook *n);
/* The kernel ends, and its notebooks with it. */
void jupyter_notebooks_forget(struct jupyter_kernel *k);
void jupyter_notebooks_free(struct jupyter *j);
