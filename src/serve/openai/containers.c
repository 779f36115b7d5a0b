/* serve/openai/containers.c: containers, and those of responses. See containers.h. */
#include "serve/openai/containers.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/json/fields.h"
#include "base/os/beneath.h"
#include "base/os/file.h"
#include "base/text.h"
#include "serve/http/relay.h"
#include "serve/openai/container_job.h"
#include "serve/openai/openai.h"
#include "serve/openai/response_id.h"
#include "serve/sandbox/sandbox.h"
#include "serve/sandbox/volume.h"
#include "serve/options.h"

enum { CONTAINER_DIGITS = 24, CONTAINER_MINUTES = 20, CONTAINER_MINUTES_MOST = 30 * 24 * 60 };
enum { CONTAINER_TOUCH_SECONDS = 10 }; /* between writes of when it was last used */

static const char container_prefix[] = "cntr_", container_kept[] = "container_id";
static const char container_automatic[] = "auto"; /* the name of those that responses make */
#define CONTAINER_SWEEP_NS (60ull * 1000000000)

static void container_refuse(
    struct request *r, unsigned status, const char *code, const char *param, const char *text)
{
    openai_refuse(
        r, &(struct openai_error){ .status = status, .code = code, .param = param }, "%s", text);
}

static void container_refuse_absent(struct request *r, const char *id, const char *param)
{
    openai_refuse(r, &(struct openai_error){ .status = 404, .code = "not_found", .param = param },
        "Container with id '%.80s' not found, or it has expired.", id);
}

/* Another node may have it. */
static void container_pass_on(struct request *r, const char *id, const char *param)
{
    if (!file_store_is_id(id, container_prefix) || !relay_elsewhere(r, "container", id))
        container_refuse_absent(r, id, param);
}

/* ---- their time ---- */

static bool container_is_expired(struct json_object *o)
{
    struct json_object *after = json_get_typed(o, "expires_after", json_type_object);
    int64_t minutes = json_get_int(after, "minutes", CONTAINER_MINUTES);
    return clock_wall_ms() / 1000 >= json_get_int(o, "last_active_at", 0) + 60 * minutes;
}

/* NULL: there is none, or it has expired. */
static struct json_object *container_read(int directory, const char *id)
{
    struct json_object *o =
        file_store_is_id(id, container_prefix) ? file_store_read(directory, id) : NULL;
    if (!o || !container_is_expired(o))
        return o;
    json_object_put(o);
    return NULL;
}

static void container_touch(int directory, struct json_object *o)
{
    int64_t now_s = clock_wall_ms() / 1000;
    if (now_s - json_get_int(o, "last_active_at", 0) >= CONTAINER_TOUCH_SECONDS &&
        json_put(o, "last_active_at", json_object_new_int64(now_s)))
        file_store_write(directory, json_get_string(o, "id", ""), o);
}

/* Its object goes last, so that what was interrupted is done again. */
static int container_remove(int directory, droste *d, const char *id, droste_error *err)
{
    cleanup_json struct json_object *marks = file_store_list(directory, CONTAINER_FILE_PREFIX);
    if (droste_volume_remove(d, id, err) < 0 && err->code != DROSTE_ERROR_NOT_FOUND)
        return -1;
    for (size_t i = 0; i < json_length(marks); i++) {
        struct json_object *mark = json_object_array_get_idx(marks, i);
        if (strcmp(json_get_string(mark, "container_id", ""), id) == 0)
            file_store_remove(directory, json_get_string(mark, "id", ""));
    }
    file_store_remove(directory, id);
    return 0;
}

/* Of one account. One that is in use stays. */
static void container_sweep_in(int directory, droste *d)
{
    cleanup_json struct json_object *all = file_store_list(directory, container_prefix);
    droste_error why;
    for (size_t i = 0; i < json_length(all); i++) {
        struct json_object *o = json_object_array_get_idx(all, i);
        if (container_is_expired(o))
            container_remove(directory, d, json_get_string(o, "id", ""), &why);
    }
}

static int container_sweep(
    struct container_job *job, droste *d, droste_volume *none, droste_error *err)
{
    (void)none;
    (void)err;
    container_sweep_in(job->directory, d);
    return 0;
}

/* Of the account without a key, and of those with one, which have directories below it. */
static int container_sweep_all(
    struct container_job *job, droste *d, droste_volume *none, droste_error *err)
{
    cleanup_fd int own = dup(job->directory);
    DIR *walk = own < 0 ? NULL : fdopendir(own);
    const struct dirent *entry;
    container_sweep(job, d, none, err);
    if (walk)
        steal_fd(&own);
    while (walk && (entry = readdir(walk))) {
        cleanup_free char *root = text_printf("%s.keys/%s", job->root, entry->d_name);
        cleanup_fd int directory = -1;
        if (root && text_is_name(entry->d_name) && droste_set(d, "volume-root", root, err) == 0)
            directory = openat(
                job->directory, entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (directory >= 0)
            container_sweep_in(directory, d);
    }
    if (walk)
        closedir(walk);
    return 0;
}

void containers_sweep(struct server *s, uint64_t now_ns)
{
    struct error err = { 0 };
    droste_error why;
    cleanup_free char *home = NULL;
    bool is_due = !s->openai->swept_ns || now_ns - s->openai->swept_ns > CONTAINER_SWEEP_NS;
    if (s->worker > 0 || s->draining || !is_due || droste_volumes_are_remote(s->d))
        return;
    s->openai->swept_ns = now_ns;
    const char *root = droste_volume_root(s->d, &why);
    cleanup_free char *path =
        root && file_data_home(&home, &err) == 0 ? text_printf("%s/openai", home) : NULL;
    cleanup_fd int directory =
        path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    struct container_job *job = directory < 0 ? NULL : calloc(1, sizeof *job);
    if (!job)
        return; /* there are none yet */
    *job = (struct container_job){
        .w = { .server = s, .run = container_job_run, .end = container_job_end },
        .act = container_sweep_all,
        .is_closed = true,
        .root = strdup(root),
        .directory = steal_fd(&directory),
        .fd = -1
    };
    snprintf(job->quota, sizeof job->quota, "%zuM", s->options->files_quota_mib);
    if (job->root)
        container_job_start(job);
    else
        container_job_free(job);
}

/* Those that live; the others are removed beside the loop. NULL: the request was refused. */
static struct json_object *container_all(struct request *r, int directory)
{
    cleanup_json struct json_object *all = file_store_list(directory, container_prefix);
    struct json_object *alive = json_object_new_array();
    for (size_t i = 0; all && alive && i < json_length(all); i++) {
        struct json_object *o = json_object_array_get_idx(all, i);
        if (!container_is_expired(o) && json_object_array_add(alive, json_object_get(o)) < 0)
            json_object_put(o);
    }
    if (!all || !alive) {
        json_object_put(alive);
        request_refuse_memory(r);
        return NULL;
    }
    if (json_length(alive) < json_length(all)) {
        struct container_job *job = container_job_new(r, "", container_sweep, NULL);
        if (job) {
            job->w.r = NULL;
            job->is_closed = true;
        }
        container_job_start(job);
    }
    return alive;
}

/* ---- a new one ---- */

static struct json_object *container_object(const char *id, const char *name, int64_t minutes)
{
    struct json_object *o = json_object_new_object(), *after = json_object_new_object();
    int64_t now_s = clock_wall_ms() / 1000;
    bool fine = o && after && json_put_text(after, "anchor", "last_active_at") &&
                json_put(after, "minutes", json_object_new_int64(minutes)) &&
                json_put_text(o, "id", id) && json_put_text(o, "object", "container") &&
                json_put(o, "created_at", json_object_new_int64(now_s)) &&
                json_put_text(o, "name", name) && json_put_text(o, "status", "running") &&
                json_put(o, "last_active_at", json_object_new_int64(now_s)) &&
                json_put_text(o, "memory_limit", NULL);
    if (fine && json_put(o, "expires_after", steal(&after)))
        return o;
    json_object_put(after);
    json_object_put(o);
    return NULL;
}

/* The automatic container that was not used for the longest expires. False: there is none, and the
 * request was refused. */
static bool container_make_room(struct request *r, int directory, struct json_object *all)
{
    struct json_object *oldest = NULL;
    for (size_t i = 0; i < json_length(all); i++) {
        struct json_object *o = json_object_array_get_idx(all, i);
        if (strcmp(json_get_string(o, "name", ""), container_automatic) == 0 &&
            (!oldest ||
                json_get_int(o, "last_active_at", 0) < json_get_int(oldest, "last_active_at", 0)))
            oldest = o;
    }
    if (!oldest) {
        container_refuse(
            r, 413, "quota", NULL, "this key has 100 containers, which is the most; delete some");
        return false;
    }
    json_put(oldest, "last_active_at", json_object_new_int64(0));
    file_store_write(directory, json_get_string(oldest, "id", ""), oldest);
    json_object_put(container_all(r, directory)); /* removes it */
    return !r->reply;
}

/* NULL: the request was refused. */
static struct json_object *container_make(
    struct request *r, const char *id, const char *name, int64_t minutes)
{
    cleanup_free char *root = sandbox_volume_root(r);
    cleanup_fd int directory = root ? file_store_open(r) : -1;
    cleanup_json struct json_object *all = directory < 0 ? NULL : container_all(r, directory);
    if (!all)
        return NULL;
    if (json_length(all) >= CONTAINERS_MOST && !container_make_room(r, directory, all))
        return NULL;
    struct json_object *o = container_object(id, name, minutes);
    if (o && file_store_write(directory, id, o) == 0)
        return o;
    json_object_put(o);
    request_refuse(r, 503, "storage", "the container cannot be stored");
    return NULL;
}

/* Takes the paths of stored files. False: the request was refused. */
static bool container_take_files(
    struct request *r, struct container_job *job, struct json_object *ids)
{
    for (size_t i = 0; i < json_length(ids); i++) {
        struct json_object *one = json_object_array_get_idx(ids, i);
        const char *id =
            json_object_is_type(one, json_type_string) ? json_object_get_string(one) : "";
        cleanup_json struct json_object *o =
            file_store_is_id(id, "file-") ? file_store_read(job->directory, id) : NULL;
        cleanup_free char *path = o ? file_store_path(r, id) : NULL;
        if (!path && file_store_is_id(id, "file-") && relay_elsewhere(r, "file", id))
            return false;
        if (!path) {
            container_refuse(
                r, 404, "file_not_found", "file_ids", "this key has no file with that id");
            return false;
        }
        if (list_add(&job->paths, path, NULL) < 0 ||
            list_add(&job->names, json_get_string(o, "filename", "file"), NULL) < 0) {
            request_refuse_memory(r);
            return false;
        }
    }
    return true;
}

static void container_reply(struct request *r, struct container_job *job)
{
    struct json_object *o = container_read(job->directory, job->id);
    if (o)
        request_reply_json(r, 200, o);
    else
        container_refuse_absent(r, job->id, NULL);
}

void openai_handle_container_create(struct request *r)
{
    struct json_object *after = json_get_typed(r->json, "expires_after", json_type_object);
    struct json_object *policy = json_get_typed(r->json, "network_policy", json_type_object);
    int64_t minutes = json_get_int(after, "minutes", CONTAINER_MINUTES);
    char id[STORE_ID_SIZE];
    if (policy && strcmp(json_get_string(policy, "type", ""), "disabled") != 0) {
        container_refuse(r, 400, "unsupported_parameter", "network_policy",
            "which destinations a sandbox reaches is the operator's setting");
        return;
    }
    if (minutes < 1 || minutes > CONTAINER_MINUTES_MOST) {
        container_refuse(r, 400, "invalid_expiry", "expires_after", "minutes are from 1 to 43200");
        return;
    }
    struct container_job *job = file_store_make_id(r, container_prefix, id)
                                    ? container_job_new(r, id, container_put_files, container_reply)
                                    : NULL;
    if (!job)
        return;
    struct json_object *ids = json_get_typed(r->json, "file_ids", json_type_array), *o = NULL;
    if (container_take_files(r, job, ids))
        o = container_make(r, id, json_get_string(r->json, "name", ""), minutes);
    job->is_closed = job->paths.count == 0;
    if (o)
        container_job_start(job);
    else
        container_job_free(job);
    json_object_put(o);
}

/* ---- those that are there ---- */

/* NULL: another node answers, or the request was refused. */
static struct json_object *container_find_here(struct request *r, int *directory)
{
    *directory = file_store_open(r);
    struct json_object *o = *directory < 0 ? NULL : container_read(*directory, r->id);
    if (!o && !r->reply)
        container_pass_on(r, r->id, "id");
    return o;
}

struct json_object *container_use(struct request *r)
{
    cleanup_fd int directory = -1;
    struct json_object *o = container_find_here(r, &directory);
    if (o)
        container_touch(directory, o);
    return o;
}

void openai_handle_container_get(struct request *r)
{
    cleanup_fd int directory = -1;
    struct json_object *o = container_find_here(r, &directory);
    if (o)
        request_reply_json(r, 200, o);
}

void openai_handle_container_list(struct request *r)
{
    struct file_page page;
    if (!file_page_read(r, &page))
        return;
    cleanup_fd int directory = file_store_open(r);
    struct json_object *all = directory < 0 ? NULL : container_all(r, directory);
    if (all)
        relay_gather_shared(r, "data", all, file_page_reply);
}

static int container_end(
    struct container_job *job, droste *d, droste_volume *none, droste_error *err)
{
    (void)none;
    return container_remove(job->directory, d, job->id, err);
}

static void container_reply_deleted(struct request *r, struct container_job *job)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '{');
    field_string(&out, "id", job->id);
    field_string(&out, "object", "container.deleted");
    field_bool(&out, "deleted", true);
    field_close(&out, '}');
    request_reply_written(r, 200, &out);
}

void openai_handle_container_delete(struct request *r)
{
    cleanup_json struct json_object *o = container_use(r);
    struct container_job *job =
        o ? container_job_new(r, r->id, container_end, container_reply_deleted) : NULL;
    if (job)
        job->is_closed = true;
    container_job_start(job);
}

/* ---- of responses ---- */

struct json_object *container_tool(struct json_object *asked)
{
    struct json_object *tools = json_get_typed(asked, "tools", json_type_array);
    for (size_t i = 0; i < json_length(tools); i++) {
        struct json_object *tool = json_object_array_get_idx(tools, i);
        if (strcmp(json_get_string(tool, "type", ""), "code_interpreter") == 0)
            return tool;
    }
    return NULL;
}

/* The one that the request names; NULL: it names none. */
static const char *container_named(struct json_object *asked)
{
    return json_get_string(container_tool(asked), "container", NULL);
}

bool container_check(struct request *r)
{
    const char *id = container_named(r->json);
    cleanup_fd int directory = id ? file_store_open(r) : -1;
    cleanup_json struct json_object *o = directory < 0 ? NULL : container_read(directory, id);
    if (id && !o && !r->reply)
        container_pass_on(r, id, "tools");
    return !r->reply && !r->is_relayed;
}

static struct json_object *container_wanted_files(struct json_object *asked)
{
    return json_get_typed(json_get_typed(container_tool(asked), "container", json_type_object),
        "file_ids", json_type_array);
}

bool container_prepare(struct request *r, void (*next)(struct request *r))
{
    struct json_object *ids = container_wanted_files(r->json), *tool = container_tool(r->json);
    char id[STORE_ID_SIZE], hash[HASH_TEXT_SIZE];
    if (json_length(ids) == 0)
        return false;
    if (hash_sha256(r->body.data, r->body.len, hash, NULL) < 0) {
        request_refuse_memory(r);
        return true;
    }
    /* The client's next try finds it again. */
    snprintf(id, sizeof id, "%s%.*s", container_prefix, CONTAINER_DIGITS, hash);
    struct container_job *job = container_job_new(r, id, container_put_files, NULL);
    cleanup_json struct json_object *had = job ? container_read(job->directory, id) : NULL;
    bool fine = job && (had || container_take_files(r, job, ids));
    cleanup_json struct json_object *made =
        fine && !had ? container_make(r, id, container_automatic, CONTAINER_MINUTES) : NULL;
    if (fine && (had || made) && json_put_text(tool, "container", id)) {
        job->next = next;
        container_job_start(job);
    } else if (job) {
        container_job_free(job);
    }
    return true;
}

void container_of(
    char out[STORE_ID_SIZE], struct request *r, struct json_object *asked, const char *run)
{
    const char *id = container_named(asked);
    const char *before = json_get_string(asked, "previous_response_id", NULL);
    cleanup_fd int directory = -1;
    cleanup_json struct json_object *previous = NULL, *o = NULL;
    id = id ? id : json_get_string(asked, container_kept, NULL);
    if (!id && before && response_is_id(before) && (directory = file_store_open(r)) >= 0)
        previous = file_store_read(directory, before);
    if (previous) {
        id = json_get_string(previous, container_kept, NULL);
        o = id ? container_read(directory, id) : NULL;
        id = o ? id : NULL;
    }
    if (id && file_store_is_id(id, container_prefix))
        snprintf(out, STORE_ID_SIZE, "%s", id);
    else
        snprintf(out, STORE_ID_SIZE, "%s%.*s", container_prefix, CONTAINER_DIGITS,
            run + strlen(run) - (strlen(run) > CONTAINER_DIGITS ? CONTAINER_DIGITS : strlen(run)));
}

bool container_put_settings(struct request *r, const char *run, struct buf *words)
{
    char id[STORE_ID_SIZE], size[24];
    if (!container_tool(r->json) || droste_volumes_are_remote(r->server->d))
        return true;
    cleanup_free char *root = sandbox_volume_root(r);
    cleanup_fd int directory = root ? file_store_open(r) : -1;
    if (directory < 0)
        return false;
    container_of(id, r, r->json, run);
    cleanup_json struct json_object *o = container_read(directory, id);
    if (o)
        container_touch(directory, o);
    else
        o = container_make(r, id, container_automatic, CONTAINER_MINUTES);
    if (!o || !json_put_text(r->json, container_kept, id))
        return false;
    snprintf(size, sizeof size, "%zuM", r->server->options->files_quota_mib);
    sandbox_setting(words, "volume-name", id);
    sandbox_setting(words, "volume-root", root);
    sandbox_setting(words, "volume-size", size);
    return true;
}

/* ---- citations ---- */

static size_t container_characters(const char *text, size_t len)
{
    size_t count = 0;
    for (size_t i = 0; i < len; i++)
        count += ((unsigned char)text[i] & 0xc0) != 0x80;
    return count;
}

/* Whether the volume has a regular file of this name. */
static bool container_has(int root, const char *container, const char *path)
{
    cleanup_free char *below = text_printf("%s/data/%s", container, path);
    cleanup_fd int fd = below ? open_beneath(root, below, O_PATH, 0) : -1;
    struct stat st;
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static void container_put_citation(
    struct buf *out, const char *container, const char *path, size_t from, size_t until)
{
    const char *slash = strrchr(path, '/');
    char id[STORE_ID_SIZE];
    if (!container_file_id(id, container, path))
        return;
    buf_puts(out, out->len > 0 ? ", " : "");
    field_open(out, NULL, '{');
    field_string(out, "type", "container_file_citation");
    field_string(out, "container_id", container);
    field_string(out, "file_id", id);
    field_string(out, "filename", slash ? slash + 1 : path);
    field_int(out, "start_index", (int64_t)from);
    field_int(out, "end_index", (int64_t)until);
    field_close(out, '}');
}

void container_cite(
    struct buf *out, struct request *r, const char *container, const char *text, size_t len)
{
    static const char mount[] = "/data/", link[] = "sandbox:";
    const size_t prefix = sizeof mount - 1, scheme = sizeof link - 1;
    cleanup_free char *directory = sandbox_volume_root(r);
    cleanup_fd int root = directory ? open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
    const char *at = text;
    while (root >= 0 && (at = strstr(at, mount))) {
        size_t n = strcspn(at, " \t\r\n\"'`()[]<>*,;");
        const char *from = at;
        if ((size_t)(at - text) >= scheme && strncmp(at - scheme, link, scheme) == 0)
            from -= scheme;
        while (n > prefix && strchr(".:!?", at[n - 1]))
            n--;
        cleanup_free char *path = n > prefix ? text_copy(at + prefix, n - prefix) : NULL;
        if (path && container_has(root, container, path))
            container_put_citation(out, container, path,
                container_characters(text, (size_t)(from - text)),
                container_characters(text, (size_t)(at - text) + n));
        at += n > prefix ? n : prefix;
    }
}
