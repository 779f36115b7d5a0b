/* serve/openai/openai.h: OpenAI's API, so that its clients work unmodified.
 *
 * A model named droste/NAME answers with a run (runs.h): what the client sends becomes its question
 * and its context, and what the record says of it becomes the answer. Requests for other models go
 * to their providers as they are. Which models there are is the operator's configuration.
 */
#pragma once

#include "base/list.h"
#include "serve/native/runs.h"
#include "serve/http/request.h"
#include "serve/openai/errors.h"

enum { OPENAI_MODEL_SIZE = 257 };
/* Attachments come within the body. */
enum { OPENAI_BODY_MAX = 64 << 20 };

extern const struct routes openai_routes;

/* Reads the operator's configuration. */
int openai_open(struct server *s, struct error *err);
void openai_close(struct server *s);

/* ---- models.c ---- */

struct openai_models;

/* MODEL, NAME=MODEL or PROVIDER/ and a star, separated by commas. */
int openai_models_parse(const char *text, struct openai_models **out, struct error *err);
void openai_models_free(struct openai_models *models);

struct openai_model {
    char name[OPENAI_MODEL_SIZE]; /* as in the setting "model" */
    bool is_run;
};
/* The model that the request names; false: it was refused. */
bool openai_model_of(struct request *r, struct openai_model *out);

/* ---- ask.c ---- */

/* What a run is asked: gathered from messages, then finished. */
struct openai_ask {
    struct request *r;
    struct buf instructions, text, question;
    struct json_object *earlier; /* list of {role, content} */
    struct json_object *pieces;  /* contexts by name; bytes are strings, and named in `bytes` */
    struct json_object *bytes;
    struct list files; /* paths of files with an id, in order, and their names */
    struct list file_names;
    droste_value *images; /* with data, in order; and their number */
    size_t image_count, image_room;
    struct list image_urls; /* addresses of others */
    bool shows_images;      /* one was attached, with data, an address, or as a file with an id */
    /* After openai_ask_finish: */
    const void *data;
    size_t len;
    const char *kind;
    const char *const *paths; /* of further contexts; NULL: none */
    const char *path;         /* of the first one, if there is no data */
};

/* Takes a message, whose content is a text or a list of parts. False: the request was refused. */
bool openai_ask_add(struct openai_ask *a, const char *role, struct json_object *content);
/* The next message is what is asked: it is not a part of the conversation. */
bool openai_ask_question(struct openai_ask *a, struct json_object *content);
/* Composes question and context. */
bool openai_ask_finish(struct openai_ask *a);
void openai_ask_free(struct openai_ask *a);
#define cleanup_openai_ask __attribute__((cleanup(openai_ask_free)))

/* ---- answer.c ---- */

struct openai_answer;

/* How an endpoint asks, and how it tells of the run. */
struct openai_form {
    /* False: the request was refused. */
    bool (*ask)(struct openai_ask *a);
    /* Appends settings of the run with this id; NULL: none. False: the request was refused. */
    bool (*settings)(struct request *r, const char *run, struct buf *words);
    /* Whether the run goes on without a client; NULL: no. */
    bool (*is_background)(struct request *r);
    /* The event of the run after which it tells; negative: the request was refused. NULL: 0. */
    int64_t (*from)(struct request *r);
    /* The run is in the record. False: nothing is followed, since the request was refused, or
     * `reply_early` answers it. NULL: true. */
    bool (*begun)(struct openai_answer *a);
    void (*reply_early)(struct openai_answer *a);
    void (*tick)(struct openai_answer *a); /* four times a second; may end it. NULL: nothing */
    bool has_steps;                        /* they are told without a stream, too */
    bool has_all_ends;                     /* `end` is also for runs without an answer */
    /* Of a stream: it begins; a step has ended. */
    void (*begin)(struct openai_answer *a);
    void (*call)(struct openai_answer *a, const droste_record_call *call);
    void (*cell)(struct openai_answer *a, const droste_record_cell *cell);
    /* The run has answered. */
    void (*end)(struct openai_answer *a, const droste_record_run *run);
    /* Of a stream: it has not. */
    void (*fail)(struct openai_answer *a, const struct openai_error *error, const char *text);
};

extern const struct openai_form openai_chat_form, openai_responses_form;

struct openai_answer {
    struct follower f; /* the first member */
    const struct openai_form *form;
    bool streams, follows;
    int64_t created_ms;
    int64_t from;     /* as openai_form.from */
    uint64_t told_ns; /* when the client last got something */
    void *state;      /* the form's */
    void (*free_state)(struct openai_answer *a);
};

/* Starts the run that the request asks for, or joins that of an earlier try, and answers in the
 * form of its route. */
void openai_answer(struct request *r);
/* Goes on with the run of an earlier response, whose id is the request's. */
void openai_answer_again(struct request *r, bool is_interrupted);
/* Tells of all events that the record has by now. */
int openai_answer_read(struct openai_answer *a, droste_record *record);
/* Pushes an event of a stream: the data alone, or with a type. */
void openai_push(struct openai_answer *a, const char *type, const char *data, size_t len);
/* The text of a run's answer: of a string itself, of other values their JSON. */
void openai_answer_text(struct buf *out, const droste_record_run *run);

/* Appends the setting for the format of an answer, whose schema is a member of `holder`. */
bool openai_put_schema(
    struct request *r, struct json_object *format, struct json_object *holder, struct buf *words);

/* ---- forward.c ---- */

/* Passes the request's body on to the provider of a model. */
void openai_forward(struct request *r, const char *model);

/* ---- handlers ---- */

void openai_handle_models(struct request *r);
void openai_handle_model(struct request *r);
void openai_handle_chat(struct request *r);
void openai_handle_response_create(struct request *r);
void openai_handle_response_get(struct request *r);
void openai_handle_response_delete(struct request *r);
void openai_handle_response_cancel(struct request *r);
void openai_handle_response_items(struct request *r);
void openai_handle_file_create(struct request *r);
void openai_handle_file_list(struct request *r);
void openai_handle_file_get(struct request *r);
void openai_handle_file_delete(struct request *r);
void openai_handle_file_content(struct request *r);
void openai_handle_upload_create(struct request *r);
void openai_handle_upload_part(struct request *r);
void openai_handle_upload_complete(struct request *r);
void openai_handle_upload_cancel(struct request *r);

struct openai {
    struct openai_models *models;
    int64_t created_s; /* of the models */
    uint64_t swept_ns; /* expired containers were looked for */
};
