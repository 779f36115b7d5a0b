/* serve/openai/file_store.h: files of clients, and uploads in parts, in a directory of each
 * account.
 *
 * All are plain files: ID and ID.json (OpenAI's object), UPLOAD.json and UPLOAD.PART. What comes in
 * is written beside them (.new-…), and gets its name when it is whole and on the disk. Workers
 * share the directory.
 */
#pragma once

#include "serve/http/work.h"

enum {
    STORE_ID_SIZE = SERVE_ID_SIZE,
    STORE_NAME_SIZE = 64,
    STORE_OBJECT_MAX = 5 << 20,
    STORE_FILES_MOST = 2000
};
#define STORE_FILE_MAX ((uint64_t)512 << 20)

/* The account's directory, which is made; negative: the request was refused. */
int file_store_open(struct request *r);
/* A new id: the prefix ("file-") and random digits. False: the request was refused. */
bool file_store_make_id(struct request *r, const char *prefix, char id[STORE_ID_SIZE]);
/* True for an id of this kind, which is then a name without a slash. */
bool file_store_is_id(const char *id, const char *prefix);
/* OpenAI's object of a file; NULL without memory. */
struct json_object *file_store_object(
    const char *id, const char *name, const char *purpose, uint64_t bytes, int64_t expires_seconds);
/* An object that has not expired; NULL: there is none. */
struct json_object *file_store_read(int directory, const char *id);
int file_store_write(int directory, const char *id, struct json_object *object);
void file_store_remove(int directory, const char *id);
/* Of an upload. */
void file_store_remove_parts(int directory, const char *upload);
/* Bytes of all files, also of those that are coming in; *files counts those of clients, with their
 * objects. Removes what a dead server has left, and what is past its time. */
uint64_t file_store_used(int directory, size_t *files);
/* The objects of one prefix, in no order; NULL without memory. */
struct json_object *file_store_list(int directory, const char *prefix);
/* The path of the account's directory; free it. */
char *file_store_directory(const struct request *r, struct error *err);
/* The path of a file's content; NULL: there is no such file, or no memory. */
char *file_store_path(struct request *r, const char *id);

/* ---- files.c: a page of a list ---- */

/* What the query asks for; its texts are the request's. */
struct file_page {
    const char *purpose, *after;
    int64_t limit;
    bool is_ascending;
};
/* False: the request was refused. */
bool file_page_read(struct request *r, struct file_page *page);
/* Appends the list, of objects with `id` and `created_at`, which it sorts. */
void file_page_put(struct buf *out, struct json_object *all, const struct file_page *page);
/* Answers with the page of these that the request asks for; takes the list. */
void file_page_reply(struct request *r, struct json_object *all);

/* ---- intake.c: what comes in ---- */

/* A multipart body: one file of the field `field`, and texts. When it is whole, `done` is called
 * with its content in the file .new-ID of the directory. */
struct intake {
    struct request *r; /* NULL: it has ended */
    const char *field;
    uint64_t most; /* bytes of the file; UINT64_MAX: as many as the quota allows */
    void (*done)(struct intake *in);
    char id[STORE_ID_SIZE]; /* of what it becomes */
    int directory, fd;
    uint64_t bytes, room;
    char name[256];
    bool has_file, is_announced;
    struct json_object *fields;
    struct MHD_PostProcessor *parser;
    unsigned status; /* why it is refused; 0: it is not */
    const char *code, *text;
};
/* Reads the body of the request, whose id begins with the prefix. */
void intake_begin(struct request *r, const char *prefix, const char *field, uint64_t most,
    void (*done)(struct intake *in));
/* The same of a body that is the file itself, of any size within the quota. */
void intake_begin_plain(struct request *r, const char *prefix, void (*done)(struct intake *in));
/* Stores what came in as the file of this object; takes both. NULL: there was no memory for the
 * object. `reply` answers the request with it; NULL: it is the answer. */
void intake_keep(struct intake *in, struct json_object *object,
    void (*reply)(struct request *r, struct json_object *object));
/* Frees it and leaves what came in, .new-ID, to the caller. */
void intake_release(struct intake *in);

/* ---- jobs: what takes long, beside the loop ---- */

struct store_job {
    struct work w;
    int directory;              /* its own */
    char id[STORE_ID_SIZE];     /* of the file that is made, from .new-ID */
    char upload[STORE_ID_SIZE]; /* whose parts are joined first; "": none */
    struct json_object *parts;  /* their ids */
    struct json_object *object; /* of the file */
    struct json_object *answer; /* to the client */
    void (*reply)(struct request *r, struct json_object *answer); /* NULL: as it is */
    int failed;                                                   /* errno */
};
/* Takes the job, which it frees; the request is answered with `answer`. */
void file_store_start_job(struct store_job *job);
