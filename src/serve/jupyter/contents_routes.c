/* serve/jupyter/contents_routes.c: requests for files below the permitted directory. See
 * contents.h. */
#include "serve/jupyter/contents.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/beneath.h"
#include "base/text.h"
#include "serve/jupyter/jupyter.h"

#define CONTENTS_ROOT "/api/contents"

/* ---- paths ---- */

/* The path of the target, decoded, behind that of the route. NULL: no memory. */
static char *contents_target(const struct request *r)
{
    cleanup_free char *target = text_copy(r->target, strcspn(r->target, "?"));
    if (!target)
        return NULL;
    const char *path = r->route->path, *rest = strstr(path, "/{rest}");
    MHD_http_unescape(target);
    return strdup(target + (rest ? (size_t)(rest - path) : strlen(path)));
}

/* Cuts "/checkpoints" or "/checkpoints/ID" off the path, as Jupyter's own routes do. */
static bool contents_cut_checkpoint(char *path, char checkpoint[SERVE_NAME_SIZE])
{
    static const char word[] = "/checkpoints";
    const size_t n = sizeof word - 1;
    size_t len = strlen(path);
    checkpoint[0] = '\0';
    if (len > n && strcmp(path + len - n, word) == 0) {
        path[len - n] = '\0';
        return true;
    }
    char *last = strrchr(path, '/');
    if (!last || (size_t)(last - path) <= n || strncmp(last - n, word, n) != 0 || !last[1])
        return false;
    snprintf(checkpoint, SERVE_NAME_SIZE, "%s", last + 1);
    last[-(ptrdiff_t)n] = '\0';
    return true;
}

/* ---- the work ---- */

static void contents_run(struct work *w)
{
    struct contents_job *job = (struct contents_job *)w;
    job->act(job);
}

static void contents_free(struct contents_job *job)
{
    close_fd(&job->root);
    close_fd(&job->file);
    buf_free(&job->out);
    buf_free(&job->why);
    json_object_put(job->body);
    free(job->path);
    free(job->location);
    free(job);
}

static void contents_on_sent(struct request *r)
{
    if (r->server->jupyter) /* NULL: the server ends */
        r->server->jupyter->answers -= (size_t)(uintptr_t)r->state;
}

/* /api/contents/PATH, with what a URL cannot have as %XX. */
static void contents_locate(struct request *r, const char *path)
{
    static const char plain[] = "-._~/";
    cleanup_buf struct buf out = { 0 };
    buf_puts(&out, CONTENTS_ROOT "/");
    for (const char *p = path; *p; p++) {
        bool is_word = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                       (*p >= '0' && *p <= '9') || strchr(plain, *p);
        buf_printf(&out, is_word ? "%c" : "%%%02X", (unsigned char)*p);
    }
    request_header(r, MHD_HTTP_HEADER_LOCATION, buf_text(&out));
}

/* Nothing of a file is shown, and nothing in it runs, as a page of the server. */
static void contents_reply_file(struct request *r, struct contents_job *job)
{
    request_reply_fd(r, job->media, steal_fd(&job->file), job->size);
    request_header(r, MHD_HTTP_HEADER_CONTENT_DISPOSITION, "attachment");
    request_header(r, "Content-Security-Policy", "sandbox");
    request_header(r, "X-Content-Type-Options", "nosniff");
}

static void contents_answer_request(struct request *r, struct contents_job *job)
{
    struct jupyter *j = r->server->jupyter;
    if (job->code) {
        request_refuse(r, job->status, job->code, "%s", buf_text(&job->why));
        return;
    }
    if (job->file >= 0) {
        contents_reply_file(r, job);
        return;
    }
    if (buf_failed(&job->out)) {
        request_refuse_memory(r);
        return;
    }
    if (j->answers + job->out.len > CONTENTS_ANSWERS_MAX) {
        request_refuse(r, 503, "busy", "too many files are being read; try again");
        return;
    }
    j->answers += job->out.len;
    r->state = (void *)(uintptr_t)job->out.len;
    r->on_free = contents_on_sent;
    request_reply(r, job->status, job->out.len ? "application/json" : NULL, buf_text(&job->out),
        job->out.len);
    if (job->location)
        contents_locate(r, job->location);
}

static void contents_end(struct work *w)
{
    struct contents_job *job = (struct contents_job *)w;
    if (w->r)
        contents_answer_request(w->r, job);
    contents_free(job);
}

/* ---- requests ---- */

typedef void contents_act(struct contents_job *job);

/* NULL: the path has no such method. */
static contents_act *contents_act_of(const char *method, bool has_checkpoint, bool has_id)
{
    static const struct {
        const char *method;
        contents_act *file, *checkpoints, *checkpoint;
    } rows[] = {
        { "GET", contents_get, contents_list_checkpoints, NULL },
        { "POST", contents_post, contents_make_checkpoint, contents_restore_checkpoint },
        { "PUT", contents_put, NULL, NULL },
        { "PATCH", contents_rename, NULL, NULL },
        { "DELETE", contents_delete, NULL, contents_delete_checkpoint },
    };
    for (size_t i = 0; i < array_length(rows); i++)
        if (strcmp(rows[i].method, method) == 0)
            return has_id           ? rows[i].checkpoint
                   : has_checkpoint ? rows[i].checkpoints
                                    : rows[i].file;
    return NULL;
}

/* A parameter of the query that is one of these words, or absent. False: it was refused. */
static bool contents_take_word(
    struct request *r, const char *name, const char *const *words, char *out, size_t size)
{
    const char *value = request_query(r, name, "");
    for (size_t i = 0; value && words[i]; i++)
        if (strcmp(value, words[i]) == 0) {
            snprintf(out, size, "%s", value);
            return true;
        }
    if (value)
        request_refuse(r, 400, "argument", "the query parameter '%s' has another value", name);
    return false;
}

static bool contents_take_query(struct request *r, struct contents_job *job)
{
    static const char *const types[] = { "", "file", "notebook", "directory", NULL };
    static const char *const formats[] = { "", "text", "base64", "json", NULL };
    static const char *const switches[] = { "", "0", "1", NULL };
    char content[4] = "", hash[4] = "";
    bool is_right = contents_take_word(r, "type", types, job->type, sizeof job->type) &&
                    contents_take_word(r, "format", formats, job->format, sizeof job->format) &&
                    contents_take_word(r, "content", switches, content, sizeof content) &&
                    contents_take_word(r, "hash", switches, hash, sizeof hash);
    job->has_content = strcmp(content, "0") != 0;
    job->has_hash = strcmp(hash, "1") == 0;
    return is_right;
}

/* The directory, or the key's in it, which is made. Negative, with errno. */
static int contents_root(const struct request *r)
{
    int all = r->server->jupyter->notebooks_fd;
    const char *key = r->account->key.id;
    if (!r->server->options->notebooks_per_key)
        return fcntl(all, F_DUPFD_CLOEXEC, 3);
    if (mkdirat(all, key, 0700) < 0 && errno != EEXIST)
        return -1;
    return open_beneath(all, key, O_RDONLY | O_DIRECTORY, 0);
}

/* False: it was refused. */
static bool contents_prepare(struct request *r, struct contents_job *job)
{
    cleanup_free char *target = contents_target(r);
    if (!target) {
        request_refuse_memory(r);
        return false;
    }
    bool is_download = strncmp(r->route->path, CONTENTS_ROOT, strlen(CONTENTS_ROOT)) != 0;
    bool has_checkpoint = !is_download && contents_cut_checkpoint(target, job->checkpoint);
    job->act = is_download
                   ? contents_download
                   : contents_act_of(r->route->method, has_checkpoint, job->checkpoint[0] != '\0');
    if (!job->act) {
        request_refuse(r, 405, "method", "a checkpoint has no method %s", r->route->method);
        return false;
    }
    if (strcmp(r->route->method, "GET") == 0 && !is_download && !contents_take_query(r, job))
        return false;
    job->root = contents_root(r);
    if (job->root < 0)
        request_refuse(r, 503, "storage", "the directory cannot be opened: %s", strerror(errno));
    else if (!contents_take_path(job, target, &job->path))
        request_refuse(r, job->status, job->code, "%s", buf_text(&job->why));
    return job->path != NULL;
}

void jupyter_handle_contents(struct request *r)
{
    if (r->server->jupyter->notebooks_fd < 0) {
        request_refuse(r, 404, "not_found",
            "this server has no files of notebooks; 'droste serve --notebooks DIR' permits them");
        return;
    }
    struct contents_job *job = request_alloc(r, sizeof *job);
    if (!job)
        return;
    job->w = (struct work){ .server = r->server, .r = r, .run = contents_run, .end = contents_end };
    job->root = job->file = -1;
    if (!contents_prepare(r, job)) {
        contents_free(job);
        return;
    }
    job->body = steal(&r->json);
    work_start(&job->w);
}
