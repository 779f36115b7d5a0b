/* lm/cache.c: an index over a recording, and the calls in progress. */
#include "lm/cache.h"

#include <fcntl.h>
#include <search.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/line_reader.h"
#include "base/os/file.h"
#include "lm/record.h"

struct cache_entry {
    char key[HASH_TEXT_SIZE];
    off_t at;
    size_t len;            /* of its line; 0: no line */
    struct lm_call *asker; /* NULL: none */
};

struct cache {
    struct record *record; /* NULL after a failed write, or without a file */
    int fd;                /* for reading */
    char *path;            /* NULL: no file */
    void *entries;         /* a tsearch(3) tree by key */
};

struct shared_answer *shared_answer_new(
    const struct error *error, const char *text, size_t len, const char *finish)
{
    struct shared_answer *a = calloc(1, sizeof *a);
    if (!a)
        return NULL;
    a->holders = 1;
    a->error = *error;
    buf_append(&a->text, text, len);
    a->finish = strdup(finish ? finish : "");
    if (!a->finish || buf_failed(&a->text)) {
        shared_answer_drop(a);
        return NULL;
    }
    return a;
}

struct shared_answer *shared_answer_of(const struct lm_reply *reply)
{
    const char *text = reply->message ? reply->message : reply->text;
    size_t len = reply->message ? strlen(text) : reply->len;
    return shared_answer_new(&reply->error, text, len, reply->finish);
}

void shared_answer_drop(struct shared_answer *a)
{
    if (!a || --a->holders > 0)
        return;
    buf_free(&a->text);
    free(a->finish);
    free(a);
}

static int cache_compare(const void *a, const void *b)
{
    return strcmp(((const struct cache_entry *)a)->key, ((const struct cache_entry *)b)->key);
}

static struct cache_entry *cache_find_entry(struct cache *cache, const char *key)
{
    struct cache_entry wanted = { 0 };
    snprintf(wanted.key, sizeof wanted.key, "%s", key);
    struct cache_entry **found = tfind(&wanted, &cache->entries, cache_compare);
    return found ? *found : NULL;
}

static struct cache_entry *cache_make_entry(struct cache *cache, const char *key)
{
    struct cache_entry *entry = cache_find_entry(cache, key);
    if (entry)
        return entry;
    entry = calloc(1, sizeof *entry);
    if (!entry)
        return NULL;
    snprintf(entry->key, sizeof entry->key, "%s", key);
    if (!tsearch(entry, &cache->entries, cache_compare)) {
        free(entry);
        return NULL;
    }
    return entry;
}

/* ---- the file ---- */

static int cache_add_line(void *arg, const struct line *line, struct error *err)
{
    struct cache *cache = arg;
    cleanup_json struct json_object *o = NULL;
    struct error why = { 0 };
    if (line_is_blank(line))
        return 0;
    if (json_parse(line->text, line->len, &json_limits_large, &o, &why) < 0)
        return error_set(err, ERROR_ARGUMENT, "the cache %.90s, line %zu: %.100s", cache->path,
            line->number, why.text);
    const char *key = json_get_string(o, "key", "");
    if (strlen(key) != HASH_TEXT_SIZE - 1 || !json_get_string(o, "content", NULL))
        return error_set(err, ERROR_ARGUMENT,
            "the cache %.90s, line %zu: the line is not a "
            "recorded call; remove it",
            cache->path, line->number);
    if (json_get_typed(o, "error", json_type_object))
        return 0;
    struct cache_entry *entry = cache_make_entry(cache, key);
    if (!entry)
        return error_memory(err);
    entry->at = line->at;
    entry->len = line->len;
    return 0;
}

static int cache_fill(struct cache *cache, struct error *err)
{
    int rc = record_open(cache->path, &cache->record, err);
    if (rc < 0)
        return rc;
    cache->fd = file_open(cache->path, O_RDONLY, 0, "the cache", err);
    if (cache->fd < 0)
        return cache->fd;
    char name[140];
    snprintf(name, sizeof name, "the cache %.100s", cache->path);
    return line_reader_read(cache->fd, name, cache_add_line, cache, err);
}

int cache_open(const char *path, struct cache **out, struct error *err)
{
    struct cache *cache = calloc(1, sizeof *cache);
    if (!cache)
        return error_memory(err);
    cache->fd = -1;
    cache->path = path ? strdup(path) : NULL;
    int rc = !path ? 0 : cache->path ? cache_fill(cache, err) : error_memory(err);
    if (rc < 0) {
        cache_close(cache);
        return rc;
    }
    *out = cache;
    return 0;
}

void cache_close(struct cache *cache)
{
    if (!cache)
        return;
    record_close(cache->record);
    close_fd(&cache->fd);
    tdestroy(cache->entries, free);
    free(cache->path);
    free(cache);
}

/* ---- answers ---- */

struct shared_answer *cache_find(struct cache *cache, const char *key)
{
    static const struct error none = { 0 };
    const struct cache_entry *entry = cache_find_entry(cache, key);
    cleanup_json struct json_object *o = NULL;
    struct json_object *content = NULL;
    if (!entry || entry->len == 0)
        return NULL;
    cleanup_free char *line = malloc(entry->len);
    if (!line || pread(cache->fd, line, entry->len, entry->at) != (ssize_t)entry->len ||
        json_parse(line, entry->len, &json_limits_large, &o, NULL) < 0 ||
        strcmp(json_get_string(o, "key", ""), key) != 0)
        return NULL;
    json_object_object_get_ex(o, "content", &content);
    if (!json_object_is_type(content, json_type_string))
        return NULL;
    return shared_answer_new(&none, json_object_get_string(content),
        (size_t)json_object_get_string_len(content), json_get_string(o, "finish", ""));
}

void cache_keep(
    struct cache *cache, const char *key, const struct lm_call *call, const struct lm_reply *reply)
{
    struct cache_entry *entry = cache->record ? cache_make_entry(cache, key) : NULL;
    off_t at = 0;
    size_t len = 0;
    if (!entry)
        return;
    if (record_append(cache->record, key, call, reply, NULL) < 0 ||
        record_last(cache->record, &at, &len) < 0) {
        record_close(cache->record);
        cache->record = NULL;
        return;
    }
    entry->at = at;
    entry->len = len;
}

struct lm_call *cache_asker(struct cache *cache, const char *key)
{
    const struct cache_entry *entry = cache_find_entry(cache, key);
    return entry ? entry->asker : NULL;
}

/* An entry without an asker or an answer can be removed. */
static void forget_asker(struct cache *cache, const char *key)
{
    struct cache_entry *entry = cache_find_entry(cache, key);
    if (!entry)
        return;
    entry->asker = NULL;
    if (entry->len > 0)
        return;
    tdelete(entry, &cache->entries, cache_compare);
    free(entry);
}

int cache_set_asker(struct cache *cache, const char *key, struct lm_call *call, struct error *err)
{
    if (!call) {
        forget_asker(cache, key);
        return 0;
    }
    struct cache_entry *entry = cache_make_entry(cache, key);
    if (!entry)
        return error_memory(err);
    entry->asker = call;
    return 0;
}
