/* serve/jupyter/contents.h: files below the directory that the operator permits (--notebooks).
 *
 * contents_routes.c takes requests apart and starts a piece of work (http/work.h); contents_files.c
 * does it, in a thread; notebook.c reads and writes notebooks as Jupyter's own server does.
 *
 * A path is checked as text, and then opened below the directory (base/os/beneath.h): no part of it
 * is a link, and what is neither a file nor a directory is not opened. Names that begin with a dot
 * do not exist for clients. A file is written as a hidden draft beside it, which takes its name
 * when it is complete, so that no reader and no crash finds half of it. A file's checkpoint is
 * where Jupyter's own server has it: .ipynb_checkpoints/NAME-checkpoint.EXT. An upload in chunks is
 * collected in that directory too.
 */
#pragma once

#include "serve/http/work.h"

enum {
    CONTENTS_MAX = 16 << 20,         /* bytes of a file that one request reads or writes */
    CONTENTS_BODY_MAX = 24 << 20,    /* bytes of the request, with the file in base64 */
    CONTENTS_FILE_MAX = 1 << 30,     /* bytes of a file that is uploaded in chunks, or copied */
    CONTENTS_ENTRIES = 10000,        /* of a directory */
    CONTENTS_ANSWERS_MAX = 128 << 20 /* bytes of all answers that a worker has in memory */
};

struct contents_job {
    struct work w;
    void (*act)(struct contents_job *job);
    int root;
    char *path; /* "" is the root; without slashes at its ends */
    char checkpoint[SERVE_NAME_SIZE];
    /* The query of GET. */
    char type[16], format[16];
    bool has_content, has_hash;
    struct json_object *body;

    unsigned status; /* of the answer */
    struct buf out;  /* JSON; empty: none */
    int file;        /* that is downloaded; -1: none */
    uint64_t size;
    const char *media;
    char *location;
    const char *code; /* NULL: it was not refused */
    struct buf why;
};

/* Whether clients may use this file name: not hidden, UTF-8, without control characters. */
bool contents_may_name(const char *name);
/* Normalizes the path of a request: no slashes at its ends. False: it has a name that clients may
 * not use, and the request was refused. */
bool contents_take_path(struct contents_job *job, const char *path, char **out);
void contents_refuse(struct contents_job *job, unsigned status, const char *code,
    const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- contents_files.c and contents_checkpoints.c, in a thread ---- */

void contents_get(struct contents_job *job);
void contents_download(struct contents_job *job);
void contents_post(struct contents_job *job);
void contents_put(struct contents_job *job);
void contents_rename(struct contents_job *job);
void contents_delete(struct contents_job *job);
void contents_list_checkpoints(struct contents_job *job);
void contents_make_checkpoint(struct contents_job *job);
void contents_restore_checkpoint(struct contents_job *job);
void contents_delete_checkpoint(struct contents_job *job);

/* ---- contents_place.c, in a thread ---- */

/* A name in a directory below the root. */
struct contents_place {
    int directory; /* -1: not open */
    char *path, name[256];
    struct stat st; /* of what has this name */
};

/* Refuses the request as the errno says. */
void contents_fail(struct contents_job *job, const char *path);
/* Opens the directory that the path is in. False: there is none, and the request was refused. */
bool contents_enter(struct contents_job *job, const char *path, struct contents_place *p);
/* The same, for a file or directory that exists. */
bool contents_find(struct contents_job *job, const char *path, struct contents_place *p);
/* Looks again. Negative, with errno: there is nothing, or no file and no directory. */
int contents_look(struct contents_place *p);
/* Opens the file. Negative, with errno. */
int contents_open_file(int directory, const char *name);
void contents_leave(struct contents_place *p);
#define cleanup_place __attribute__((cleanup(contents_leave)))

bool contents_ends(const char *name, const char *ending);
/* NULL: it is not known. */
const char *contents_media_type(const char *name);
const char *contents_type(const struct contents_place *p);
/* All but the content, its format and its media type; the object stays open. `hash` may be NULL. */
void contents_put_head(
    struct buf *out, const struct contents_place *p, const char *type, const char *hash);
void contents_put_empty(
    struct buf *out, const struct contents_place *p, const char *type, const char *hash);
/* Describes a file or directory without its content. */
void contents_put_model(struct buf *out, const struct contents_place *p, const char *type);

/* A file under way to its name. */
struct contents_draft {
    int directory, fd;
    char name[256]; /* "": it has its place */
};
#define cleanup_draft __attribute__((cleanup(contents_draft_drop)))

/* Negative, with errno: as all of these. */
int contents_draft_open(struct contents_draft *d, int directory);
int contents_draft_copy(struct contents_draft *d, int from);
/* Gives it the name, in this directory; flags are those of renameat2. A file that it replaces
 * leaves it its mode, if that lets this process write. */
int contents_draft_place(struct contents_draft *d, int directory, const char *name, unsigned flags);
void contents_draft_drop(struct contents_draft *d);

/* ---- between contents_files.c and contents_checkpoints.c ---- */

/* Adds a chunk to an upload; the last one (-1) makes it the file. False: it was answered. */
bool contents_take_chunk(struct contents_job *job, const struct contents_place *p, int64_t chunk,
    const struct buf *bytes);
/* The file was renamed, or removed. */
void contents_move_checkpoint(const struct contents_place *from, const struct contents_place *to);
void contents_forget_checkpoint(const struct contents_place *p);
/* Removes the checkpoints of a directory in which there is nothing else. */
void contents_clear_checkpoints(const struct contents_place *p);
