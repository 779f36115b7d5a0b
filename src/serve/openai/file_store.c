/* serve/openai/file_store.c: see file_store.h. */
#include "serve/openai/file_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/os/file.h"
#include "base/os/random.h"
#include "base/text.h"

enum { STORE_ID_DIGITS = 24, STORE_COPY = 1 << 20 };

static const char store_new[] = ".new-";

char *file_store_directory(const struct request *r, struct error *err)
{
    cleanup_free char *home = NULL;
    if (file_data_home(&home, err) < 0)
        return NULL;
    char *path = text_printf("%s/openai/%s", home, r->account->key.id);
    if (!path)
        error_memory(err);
    return path;
}

int file_store_open(struct request *r)
{
    struct error err = { 0 };
    cleanup_free char *path = file_store_directory(r, &err);
    int fd = -1;
    if (path && file_make_directories(path, &err) == 0)
        fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        request_refuse(r, 503, "storage", "the directory of files cannot be opened: %s",
            err.text[0] ? err.text : strerror(errno));
    return fd;
}

bool file_store_make_id(struct request *r, const char *prefix, char id[STORE_ID_SIZE])
{
    size_t n = strlen(prefix);
    memcpy(id, prefix, n);
    if (random_hex(id + n, STORE_ID_DIGITS, NULL) == 0)
        return true;
    request_refuse(r, 503, "random", "there is no randomness for an id");
    return false;
}

bool file_store_is_id(const char *id, const char *prefix)
{
    size_t n = strlen(prefix);
    return strncmp(id, prefix, n) == 0 && strlen(id) == n + STORE_ID_DIGITS &&
           strspn(id + n, "0123456789abcdef") == STORE_ID_DIGITS;
}

static void file_store_object_name(char out[STORE_NAME_SIZE], const char *id)
{
    snprintf(out, STORE_NAME_SIZE, "%s.json", id);
}

void file_store_remove(int directory, const char *id)
{
    char object[STORE_NAME_SIZE];
    file_store_object_name(object, id);
    unlinkat(directory, object, 0);
    unlinkat(directory, id, 0);
}

static DIR *file_store_walk(int directory)
{
    int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *walk = fd < 0 ? NULL : fdopendir(fd);
    if (!walk && fd >= 0)
        close(fd);
    return walk;
}

void file_store_remove_parts(int directory, const char *upload)
{
    DIR *walk = file_store_walk(directory);
    const struct dirent *entry;
    size_t n = strlen(upload);
    while (walk && (entry = readdir(walk)))
        if (strncmp(entry->d_name, upload, n) == 0 && strncmp(entry->d_name + n, ".part_", 6) == 0)
            unlinkat(directory, entry->d_name, 0);
    if (walk)
        closedir(walk);
}

struct json_object *file_store_read(int directory, const char *id)
{
    char name[STORE_NAME_SIZE];
    cleanup_buf struct buf text = { 0 };
    struct json_object *object = NULL;
    file_store_object_name(name, id);
    cleanup_fd int fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || file_read_fd(fd, name, STORE_OBJECT_MAX, &text, NULL) < 0 ||
        json_parse(buf_text(&text), text.len, &json_limits_large, &object, NULL) < 0)
        return NULL;
    int64_t expires_s = json_get_int(object, "expires_at", 0);
    if (expires_s == 0 || expires_s > clock_wall_ms() / 1000)
        return object;
    file_store_remove(directory, id);
    file_store_remove_parts(directory, id);
    json_object_put(object);
    return NULL;
}

int file_store_write(int directory, const char *id, struct json_object *object)
{
    char name[STORE_NAME_SIZE], temporary[STORE_NAME_SIZE + 8];
    size_t len = 0;
    const char *text = json_text(object, &len);
    file_store_object_name(name, id);
    snprintf(temporary, sizeof temporary, "%s%s", store_new, name);
    cleanup_fd int fd =
        openat(directory, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (!text || fd < 0 || file_write_all(fd, text, len) < 0 || fsync(fd) < 0 ||
        renameat(directory, temporary, directory, name) < 0) {
        int failed = errno;
        unlinkat(directory, temporary, 0);
        errno = failed;
        return -1;
    }
    return 0;
}

struct json_object *file_store_object(
    const char *id, const char *name, const char *purpose, uint64_t bytes, int64_t expires_seconds)
{
    struct json_object *o = json_object_new_object();
    int64_t now_s = clock_wall_ms() / 1000;
    if (o && json_put_text(o, "id", id) && json_put_text(o, "object", "file") &&
        json_put(o, "bytes", json_object_new_int64((int64_t)bytes)) &&
        json_put(o, "created_at", json_object_new_int64(now_s)) &&
        json_put_text(o, "filename", name) && json_put_text(o, "purpose", purpose) &&
        json_put_text(o, "status", "processed") &&
        (expires_seconds == 0 ||
            json_put(o, "expires_at", json_object_new_int64(now_s + expires_seconds))))
        return o;
    json_object_put(o);
    return NULL;
}

/* ---- all of an account ---- */

/* Nothing of these outlives its time: what came in when a server died, uploads, and responses.
 * Seconds; 0: for ever. */
static int64_t file_store_life(const char *name)
{
    static const struct {
        const char *prefix;
        int64_t seconds;
    } lives[] = { { store_new, 86400 }, { "upload_", 86400 }, { "resp_", 31 * 86400 } };
    for (size_t i = 0; i < array_length(lives); i++)
        if (strncmp(name, lives[i].prefix, strlen(lives[i].prefix)) == 0)
            return lives[i].seconds;
    return 0;
}

uint64_t file_store_used(int directory, size_t *files)
{
    DIR *walk = file_store_walk(directory);
    uint64_t used = 0;
    const struct dirent *entry;
    time_t now = (time_t)(clock_wall_ms() / 1000);
    *files = 0;
    while (walk && (entry = readdir(walk))) {
        struct stat st;
        if (fstatat(directory, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        int64_t life = file_store_life(entry->d_name);
        if (life > 0 && now - st.st_mtime > life) {
            unlinkat(directory, entry->d_name, 0);
            continue;
        }
        used += (uint64_t)st.st_size;
        *files += strncmp(entry->d_name, "file-", 5) == 0;
    }
    if (walk)
        closedir(walk);
    return used;
}

struct json_object *file_store_list(int directory, const char *prefix)
{
    DIR *walk = file_store_walk(directory);
    struct json_object *all = json_object_new_array();
    const struct dirent *entry;
    while (all && walk && (entry = readdir(walk))) {
        size_t len = strlen(entry->d_name);
        char id[STORE_ID_SIZE];
        if (len < 5 || len - 5 >= sizeof id || strcmp(entry->d_name + len - 5, ".json") != 0)
            continue;
        snprintf(id, sizeof id, "%.*s", (int)(len - 5), entry->d_name);
        struct json_object *object =
            file_store_is_id(id, prefix) ? file_store_read(directory, id) : NULL;
        if (object && json_object_array_add(all, object) < 0)
            json_object_put(object);
    }
    if (walk)
        closedir(walk);
    return all;
}

char *file_store_path(struct request *r, const char *id)
{
    cleanup_fd int directory = file_store_is_id(id, "file-") ? file_store_open(r) : -1;
    cleanup_json struct json_object *object = directory < 0 ? NULL : file_store_read(directory, id);
    cleanup_free char *path = object ? file_store_directory(r, NULL) : NULL;
    return path ? text_printf("%s/%s", path, id) : NULL;
}

/* ---- jobs ---- */

/* Appends a part to the new file. */
static int job_copy(const struct store_job *job, int to, const char *part)
{
    char name[2 * STORE_ID_SIZE];
    snprintf(name, sizeof name, "%s.%s", job->upload, part);
    cleanup_fd int from = openat(job->directory, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    cleanup_free char *piece = malloc(STORE_COPY);
    ssize_t n = from < 0 || !piece ? -1 : 1;
    while (n > 0) {
        n = read(from, piece, STORE_COPY);
        if (n > 0 && file_write_all(to, piece, (size_t)n) < 0)
            n = -1;
    }
    return n < 0 ? -1 : 0;
}

/* Makes the file of what came in, or of an upload's parts. No other thread knows of it yet. */
static int job_make(const struct store_job *job)
{
    char name[STORE_NAME_SIZE];
    snprintf(name, sizeof name, "%s%s", store_new, job->id);
    cleanup_fd int fd =
        openat(job->directory, name, O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return -1;
    for (size_t i = 0; i < json_length(job->parts); i++)
        if (job_copy(job, fd, json_object_get_string(json_object_array_get_idx(job->parts, i))) < 0)
            return -1;
    if (fsync(fd) < 0 || file_store_write(job->directory, job->id, job->object) < 0 ||
        renameat(job->directory, name, job->directory, job->id) < 0)
        return -1;
    return fsync(job->directory);
}

static void job_run(struct work *w)
{
    struct store_job *job = (struct store_job *)w;
    if (job_make(job) == 0)
        return;
    char name[STORE_NAME_SIZE];
    job->failed = errno ? errno : EIO;
    snprintf(name, sizeof name, "%s%s", store_new, job->id);
    unlinkat(job->directory, name, 0);
    file_store_remove(job->directory, job->id);
}

static void job_answer(struct store_job *job)
{
    struct request *r = job->w.r;
    if (job->failed)
        request_refuse(r, job->failed == ENOSPC ? 507 : 500, "storage",
            "the file was not stored: %s", strerror(job->failed));
    else if (job->reply)
        job->reply(r, job->answer);
    else
        request_reply_json(r, 200, json_object_get(job->answer));
}

static void job_free(struct store_job *job)
{
    close(job->directory);
    json_object_put(job->parts);
    json_object_put(job->object);
    json_object_put(job->answer);
    free(job);
}

/* The upload has become a file, or can be completed again. */
static void job_end_upload(struct store_job *job)
{
    if (job->failed)
        json_put_text(job->answer, "status", "pending");
    file_store_write(job->directory, job->upload, job->answer);
    if (!job->failed)
        file_store_remove_parts(job->directory, job->upload);
}

static void job_end(struct work *w)
{
    struct store_job *job = (struct store_job *)w;
    if (job->upload[0])
        job_end_upload(job);
    if (w->r)
        job_answer(job);
    job_free(job);
}

void file_store_start_job(struct store_job *job)
{
    job->w.run = job_run;
    job->w.end = job_end;
    work_start(&job->w);
}
