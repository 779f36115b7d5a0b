/* cli/remote/volume.c: droste volume --server. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "cli/cli.h"
#include "cli/remote/remote.h"
#include "cli/volume_copy.h"
#include "cli/volume_print.h"

struct remote_volume_call {
    struct remote *r;
    const struct remote_volume *o;
    const char **words; /* the volume, and what follows; up to a NULL */
};

static int remote_volume_about(struct remote_volume_call *c, const char *method, const char *below,
    const char *const *query, struct json_object **answer, struct error *err)
{
    cleanup_free char *path = remote_path("/v1/volumes/", c->words[0], below);
    return path ? remote_ask_json(c->r,
                      &(struct remote_request){ .method = method, .path = path, .query = query },
                      answer, err)
                : error_memory(err);
}

/* A limit as the server has it: bytes, or a number. */
static int remote_volume_limit(struct json_object *body, const char *member, const char *flag,
    const char *text, struct error *err)
{
    char *end = NULL;
    long long number = text ? strtoll(text, &end, 10) : 0;
    const char *units = "KMGT";
    if (!text)
        return 0;
    const char *unit = *end ? strchr(units, *end) : NULL;
    for (const char *at = units; unit && at <= unit && number < (1LL << 50); at++)
        number *= 1024;
    if (number < 1 || end == text || (*end && (!unit || end[1])))
        return error_set(
            err, ERROR_ARGUMENT, "--%s: '%.40s' is not a number, such as 2G", flag, text);
    json_put(body, member, json_object_new_int64(number));
    return 0;
}

static int remote_volume_create(struct remote_volume_call *c, struct error *err)
{
    cleanup_json struct json_object *body = json_object_new_object(), *made = NULL;
    json_put_text(body, "name", c->words[0]);
    int rc = remote_volume_limit(body, "size_limit", "volume-size", c->o->size, err);
    if (rc == 0)
        rc = remote_volume_limit(body, "files_limit", "volume-files", c->o->files, err);
    if (rc == 0)
        rc = remote_ask_json(c->r,
            &(struct remote_request){
                .method = "POST", .path = "/v1/volumes", .json = body, .creates = true },
            &made, err);
    if (rc == 0)
        printf("created the volume %s at %s\n", c->words[0], c->o->server);
    return rc;
}

static int remote_volume_names(struct remote_volume_call *c, struct error *err)
{
    cleanup_json struct json_object *found = NULL;
    int rc = remote_ask_json(
        c->r, &(struct remote_request){ .method = "GET", .path = "/v1/volumes" }, &found, err);
    struct json_object *all = json_get_typed(found, "volumes", json_type_array);
    if (rc < 0)
        return rc;
    if (c->o->json)
        cli_print_json(json_text(all, NULL));
    for (size_t i = 0; !c->o->json && i < json_length(all); i++)
        printf("%s\n", json_get_string(json_object_array_get_idx(all, i), "name", ""));
    if (!c->o->json && json_length(all) == 0)
        printf("There are no volumes at %s.\n", c->o->server);
    return 0;
}

static int remote_volume_list(
    struct remote_volume_call *c, int64_t depth, enum volume_style style, struct error *err)
{
    char levels[24], most[24];
    snprintf(levels, sizeof levels, "%lld", (long long)depth);
    snprintf(most, sizeof most, "%lld", (long long)c->o->most);
    const char *const query[] = { "path", c->words[1] ? c->words[1] : ".", "depth", levels, "limit",
        most, NULL };
    cleanup_json struct json_object *found = NULL;
    cleanup_buf struct buf out = { 0 };
    int rc = remote_volume_about(c, "GET", "/directory", query, &found, err);
    struct json_object *all = json_get_typed(found, "entries", json_type_array);
    if (rc < 0)
        return rc;
    volume_print_begin(&out, c->words[0], style);
    for (size_t i = 0; i < json_length(all); i++) {
        struct json_object *o = json_object_array_get_idx(all, i);
        const droste_volume_entry entry = { .path = json_get_string(o, "name", ""),
            .mode = (uint32_t)json_get_int(o, "st_mode", 0),
            .size = (uint64_t)json_get_int(o, "size", 0),
            .mtime = json_get_int(o, "modified_ms", 0) / 1000 };
        volume_print_put(&out, &entry, style);
    }
    volume_print_end(&out, json_get_bool(found, "more", false), (size_t)c->o->most, style);
    return buf_failed(&out) ? error_memory(err) : 0;
}

static int remote_volume_snapshots(struct remote_volume_call *c, struct error *err)
{
    cleanup_json struct json_object *found = NULL, *names = json_object_new_array();
    int rc = remote_volume_about(c, "GET", "/snapshots", NULL, &found, err);
    struct json_object *all = json_get_typed(found, "snapshots", json_type_array);
    for (size_t i = 0; rc == 0 && i < json_length(all); i++) {
        const char *name = json_get_string(json_object_array_get_idx(all, i), "name", "");
        json_object_array_add(names, json_object_new_string(name));
        if (!c->o->json)
            printf("%s\n", name);
    }
    if (rc == 0 && c->o->json)
        cli_print_json(json_text(names, NULL));
    return rc;
}

static int remote_volume_ls(struct remote_volume_call *c, struct error *err)
{
    if (c->o->snapshots)
        return remote_volume_snapshots(c, err);
    return c->words[0] ? remote_volume_list(c, 1, c->o->json ? STYLE_JSON : STYLE_LONG, err)
                       : remote_volume_names(c, err);
}

static int remote_volume_tree(struct remote_volume_call *c, struct error *err)
{
    return remote_volume_list(c, c->o->levels, c->o->json ? STYLE_JSON : STYLE_TREE, err);
}

static int remote_volume_get(struct remote_volume_call *c, struct error *err)
{
    const char *const query[] = { "path", c->words[1], NULL };
    cleanup_free char *path = remote_path("/v1/volumes/", c->words[0], "/files");
    cleanup_buf struct buf target = { 0 };
    const char *to = c->words[2] ? c->words[2] : ".";
    int rc = strcmp(to, "-") == 0 ? 0 : cli_copy_target(c->words[1], to, &target, err);
    if (rc < 0 || !path || buf_failed(&target))
        return rc < 0 ? rc : error_memory(err);
    return remote_fetch(c->r,
        &(struct remote_request){ .method = "GET", .path = path, .query = query },
        strcmp(to, "-") == 0 ? to : buf_text(&target), err);
}

static int remote_volume_put(struct remote_volume_call *c, struct error *err)
{
    cleanup_free char *path = remote_path("/v1/volumes/", c->words[0], "/files");
    cleanup_buf struct buf to = { 0 };
    bool from_input = strcmp(c->words[1], "-") == 0;
    cleanup_fd int fd = file_open(c->words[1], O_RDONLY, FILE_OR_INPUT, "the file", err);
    if (fd < 0)
        return fd;
    buf_puts(&to, c->words[2] ? c->words[2] : "");
    if (!from_input && (to.len == 0 || to.data[to.len - 1] == '/'))
        cli_put_last_name(c->words[1], &to);
    if (!path || buf_failed(&to))
        return error_memory(err);
    if (to.len == 0)
        return error_set(err, ERROR_ARGUMENT, "the source has no name; add its path in the volume");
    const char *const query[] = { "path", buf_text(&to), NULL };
    return remote_ask(c->r,
        &(struct remote_request){
            .method = "PUT", .path = path, .query = query, .file = fd, .has_file = true },
        err);
}

static int remote_volume_rm(struct remote_volume_call *c, struct error *err)
{
    cleanup_json struct json_object *none = NULL;
    const char *const snapshot[] = { "snapshot", c->o->snapshot, NULL };
    if (c->o->snapshot)
        return remote_volume_about(c, "DELETE", "/snapshots", snapshot, &none, err);
    if (!c->words[1])
        return remote_volume_about(c, "DELETE", "", NULL, &none, err);
    int rc = 0;
    for (size_t i = 1; rc == 0 && c->words[i]; i++) {
        const char *const query[] = { "path", c->words[i], NULL };
        rc = remote_volume_about(c, "DELETE", "/files", query, &none, err);
    }
    return rc;
}

/* Makes a snapshot, or goes back to one. */
static int remote_volume_copy(
    struct remote_volume_call *c, const char *below, const char *did, struct error *err)
{
    cleanup_json struct json_object *body = json_object_new_object(), *made = NULL;
    cleanup_free char *path = remote_path("/v1/volumes/", c->words[0], below);
    if (!path || !body || !json_put_text(body, "snapshot", c->words[1]))
        return error_memory(err);
    int rc = remote_ask_json(c->r,
        &(struct remote_request){ .method = "POST", .path = path, .json = body, .creates = true },
        &made, err);
    if (rc == 0 && c->o->json)
        cli_print_json(json_text(made, NULL));
    else if (rc == 0)
        printf("%s %lld bytes\n", did, (long long)json_get_int(made, "bytes", 0));
    return rc;
}

static int remote_volume_snapshot(struct remote_volume_call *c, struct error *err)
{
    return remote_volume_copy(c, "/snapshots", "kept", err);
}

static int remote_volume_restore(struct remote_volume_call *c, struct error *err)
{
    return remote_volume_copy(c, "/restore", "restored", err);
}

static int remote_volume_du(struct remote_volume_call *c, struct error *err)
{
    cleanup_json struct json_object *found = NULL;
    cleanup_buf struct buf out = { 0 };
    int rc = remote_volume_about(c, "GET", "", NULL, &found, err);
    if (rc < 0)
        return rc;
    const droste_volume_usage used = { (uint64_t)json_get_int(found, "size", 0),
        (uint64_t)json_get_int(found, "files", 0), (uint64_t)json_get_int(found, "size_limit", 0),
        (uint64_t)json_get_int(found, "files_limit", 0) };
    if (c->o->json) {
        cli_print_json(json_text(found, NULL));
        return 0;
    }
    volume_print_put_usage(&out, c->words[0], NULL, &used, false);
    cli_print(stdout, buf_text(&out), out.len);
    return 0;
}

static int remote_volume_set_limit(struct remote_volume_call *c, struct error *err)
{
    cleanup_json struct json_object *body = json_object_new_object(), *set = NULL;
    cleanup_free char *path = remote_path("/v1/volumes/", c->words[0], "");
    int rc = remote_volume_limit(body, "size_limit", "volume-size", c->o->size, err);
    if (rc == 0)
        rc = remote_volume_limit(body, "files_limit", "volume-files", c->o->files, err);
    if (rc == 0 && !path)
        rc = error_memory(err);
    if (rc == 0 && (c->o->size || c->o->files))
        rc = remote_ask_json(c->r,
            &(struct remote_request){ .method = "PATCH", .path = path, .json = body }, &set, err);
    return rc < 0 ? rc : remote_volume_du(c, err);
}

int remote_volume(const struct remote_volume *o, const char *verb, const char **words, size_t count)
{
    static const struct {
        const char *verb;
        int (*run)(struct remote_volume_call *c, struct error *err);
    } verbs[] = { { "create", remote_volume_create }, { "ls", remote_volume_ls },
        { "tree", remote_volume_tree }, { "get", remote_volume_get }, { "put", remote_volume_put },
        { "rm", remote_volume_rm }, { "du", remote_volume_du },
        { "snapshot", remote_volume_snapshot }, { "restore", remote_volume_restore },
        { "limit", remote_volume_set_limit } };
    cleanup_remote struct remote *r = NULL;
    cleanup_free const char **all = calloc(count + 3, sizeof *all); /* absent ones are NULL */
    struct error err = { 0 };
    size_t i = 0;
    while (strcmp(verbs[i].verb, verb) != 0) /* every verb of `droste volume` is in the table */
        i++;
    int rc = all ? 0 : error_memory(&err);
    for (size_t k = 0; rc == 0 && k < count; k++)
        all[k] = words[k];
    if (rc == 0)
        rc = remote_server_open(o->server, &r, &err);
    if (rc == 0)
        rc = verbs[i].run(&(struct remote_volume_call){ r, o, all }, &err);
    return cli_end(rc, &err, "the output");
}
