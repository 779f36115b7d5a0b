/* volume/repository.c: checks URLs and refs, finds commits, and fetches what is missing. */
#include "volume/repository.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/hash.h"
#include "base/text.h"
#include "base/os/tree.h"
#include "volume/internal.h"

enum { REF_MAX = 255, URL_MAX = 2000, LOCK_TRY_MS = 100, ID_SHORT = 7, HASH_USED = 32 };

/* ---- what may be asked for ---- */

static bool has_strange_bytes(const char *text)
{
    for (const char *p = text; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 127 || strchr("\"\\<>^`{|}", *p))
            return true;
    return false;
}

/* Hosts also accept tokens as user names, of 20 characters or more. User names for ssh may be as
 * long. */
static bool is_token(const char *scheme, size_t user_len)
{
    enum { TOKEN = 20 };
    return strcmp(scheme, "https://") == 0 && user_len >= TOKEN;
}

/* The part between the scheme and the path. */
static int check_host(const char *scheme, const char *host, size_t len, struct error *err)
{
    const char *at = memrchr(host, '@', len), *user = at ? host : NULL;
    const char *name = at ? at + 1 : host;
    size_t name_len = len - (size_t)(name - host);
    if (user && (memchr(user, ':', (size_t)(at - user)) || is_token(scheme, (size_t)(at - user))))
        return error_set(err, ERROR_ARGUMENT,
            "the repo-url contains a password or token, which the record would keep: put it into "
            "~/.netrc");
    if (name_len == 0 || name[0] == '-' || (user && user[0] == '-'))
        return error_set(err, ERROR_ARGUMENT, "the repo-url has no host");
    return 0;
}

static int check_url(const char *url, struct error *err)
{
    static const char *const schemes[] = { "https://", "ssh://", "file://" };
    cleanup_buf struct buf shown = { 0 };
    text_append_visible(&shown, url, strnlen(url, 100));
    for (size_t i = 0; i < array_length(schemes); i++) {
        size_t n = strlen(schemes[i]);
        if (strncmp(url, schemes[i], n) != 0)
            continue;
        if (strlen(url) > URL_MAX)
            return error_set(err, ERROR_ARGUMENT, "the repo-url is longer than %d bytes", URL_MAX);
        if (has_strange_bytes(url))
            return error_set(err, ERROR_ARGUMENT,
                "the repo-url '%s' contains bytes that are not allowed in a URL; write them in "
                "the form %%20",
                buf_text(&shown));
        if (strcmp(schemes[i], "file://") != 0)
            return check_host(schemes[i], url + n, strcspn(url + n, "/"), err);
        if (url[n] != '/')
            return error_set(err, ERROR_ARGUMENT,
                "the repo-url '%s' must have an absolute path: file:///...", buf_text(&shown));
        return 0;
    }
    return error_set(err, ERROR_ARGUMENT,
        "the repo-url '%s' must begin with https://, ssh:// or file:///", buf_text(&shown));
}

/* As git-check-ref-format(1), without other abbreviations. */
static bool is_ref(const char *ref)
{
    size_t n = strlen(ref);
    if (n == 0 || n > REF_MAX || strchr("-/.@", ref[0]) || strchr("/.", ref[n - 1]))
        return false;
    for (const char *p = ref; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 127 || strchr("~^:?*[\\", *p))
            return false;
    return !strstr(ref, "..") && !strstr(ref, "//") && !strstr(ref, "/.") && !strstr(ref, "@{") &&
           !strstr(ref, ".lock/") && (n < 5 || strcmp(ref + n - 5, ".lock") != 0);
}

int repository_check(const char *url, const char *ref, struct error *err)
{
    cleanup_buf struct buf shown = { 0 };
    int rc = check_url(url, err);
    if (rc < 0 || !ref || is_ref(ref))
        return rc;
    text_append_visible(&shown, ref, strnlen(ref, 80));
    return error_set(err, ERROR_ARGUMENT,
        "the repo-ref '%s' is not the name of a branch or tag, or a commit id", buf_text(&shown));
}

void repository_name(const char *url, char out[65])
{
    const char *scheme = strstr(url, "://");
    url = scheme ? scheme + 3 : url;
    size_t n = strlen(url), len = 0;
    while (n > 0 && url[n - 1] == '/')
        n--;
    if (n > 4 && strncmp(url + n - 4, ".git", 4) == 0)
        n -= 4;
    while (n > 0 && url[n - 1] == '/')
        n--;
    size_t at = n;
    while (at > 0 && url[at - 1] != '/')
        at--;
    for (; at < n && len < 60; at++)
        if (isalnum((unsigned char)url[at]) || (len > 0 && strchr("._-", url[at])))
            out[len++] = url[at];
        else if (len > 0 && out[len - 1] != '-')
            out[len++] = '-';
    out[len] = '\0';
    if (len == 0)
        strcpy(out, "repository");
    if (strcmp(out, "context") == 0) /* the directory of staged paths */
        strcpy(out, "context-repository");
}

/* A commit id, full or abbreviated. */
static bool is_id(const char *ref, size_t least)
{
    size_t n = strspn(ref, "0123456789abcdefABCDEF");
    return ref[n] == '\0' && n >= least && n < COMMIT_SIZE && (n <= 40 || n == 64);
}

static bool is_whole_id(const char *ref)
{
    return is_id(ref, 40) && (strlen(ref) == 40 || strlen(ref) == 64);
}

/* ---- the cache ---- */

static int cache_failed(const char *path, const char *what, struct error *err)
{
    if (errno == ENOSPC || errno == EDQUOT)
        return error_set(err, ERROR_IO, "%s %.150s: the disk is full; free some space", what, path);
    return error_set_errno(err, ERROR_IO, "%s the cache %.150s", what, path);
}

static int open_cache(const char *url, struct repository *r, struct error *err)
{
    char hash[HASH_TEXT_SIZE];
    cleanup_free char *home = NULL;
    cleanup_buf struct buf path = { 0 };
    int rc = hash_sha256(url, strlen(url), hash, err);
    if (rc == 0)
        rc = file_cache_home(&home, err);
    if (rc < 0)
        return rc;
    buf_printf(&path, "%s/repos/%.*s", home, HASH_USED, hash);
    rc = buf_failed(&path) ? error_memory(err) : file_make_directories(buf_text(&path), err);
    if (rc < 0)
        return rc;
    r->busy_at = open(buf_text(&path), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    r->lock = r->busy_at < 0 ? -1 : openat(r->busy_at, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (r->lock < 0)
        return cache_failed(buf_text(&path), "opening", err);
    buf_puts(&path, "/git");
    r->path = buf_steal(&path);
    return r->path ? 0 : error_memory(err);
}

static int lock_cache(
    const struct repository *r, int operation, const struct git_bounds *bounds, struct error *err)
{
    while (lock_within(r->lock, operation, LOCK_TRY_MS) < 0) {
        if (errno != EWOULDBLOCK)
            return cache_failed(r->path, "locking", err);
        int rc = git_check_bounds(bounds, err);
        if (rc < 0)
            return error_wrap(err, "another session is fetching this repository");
    }
    return 0;
}

static bool is_busy(const struct repository *r)
{
    return faccessat(r->busy_at, "busy", F_OK, 0) == 0;
}

static int mark_busy(const struct repository *r)
{
    cleanup_fd int fd = openat(r->busy_at, "busy", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    return fd < 0 ? -1 : 0;
}

static int set_busy(const struct repository *r, const char *url, struct error *err)
{
    cleanup_fd int text = openat(r->busy_at, "url", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (text < 0 || file_write_all(text, url, strlen(url)) < 0 || mark_busy(r) < 0)
        return cache_failed(r->path, "writing", err);
    return 0;
}

void repository_distrust(const struct repository *r)
{
    (void)mark_busy(r);
}

void repository_close(struct repository *r)
{
    close_fd(&r->lock);
    close_fd(&r->busy_at);
    free(steal(&r->path));
}

/* ---- finding the commit ---- */

/* 1: it is in the cache, and r->commit is its full id; 0: it is not. */
static int find_here(
    struct repository *r, const char *id, const struct git_bounds *bounds, struct error *err)
{
    cleanup_buf struct buf output = { 0 }, what = { 0 };
    struct git_end end;
    struct stat st;
    if (is_busy(r) || fstatat(r->busy_at, "git/HEAD", &st, 0) < 0)
        return 0;
    buf_printf(&what, "%s^{commit}", id);
    const char *words[] = { "rev-parse", "--verify", "--quiet", "--end-of-options", buf_text(&what),
        NULL };
    struct git_call call = { .directory = r->path,
        .words = words,
        .input = -1,
        .lock = -1,
        .take = git_keep,
        .arg = &output };
    int rc = git_run(&call, bounds, &end, err);
    if (rc < 0)
        return end.quiet && (end.status == 1 || end.status == 128) ? 0 : rc;
    size_t n = strcspn(buf_text(&output), "\n");
    if (n < 40 || n >= sizeof r->commit)
        return 0;
    memcpy(r->commit, buf_text(&output), n);
    r->commit[n] = '\0';
    return 1;
}

/* Finds a name in the host's list with lines "ID\tNAME". */
static bool find_line(const char *output, const char *name, char id[COMMIT_SIZE])
{
    for (const char *line = output; *line; line += strcspn(line, "\n"), line += *line == '\n') {
        size_t n = strspn(line, "0123456789abcdef"), len = strcspn(line, "\n");
        if (n >= 40 && n < COMMIT_SIZE && line[n] == '\t' && len - n - 1 == strlen(name) &&
            strncmp(line + n + 1, name, len - n - 1) == 0) {
            memcpy(id, line, n);
            id[n] = '\0';
            return true;
        }
    }
    return false;
}

/* Asks the host for the object of a ref; 0: no such name. */
static int ask_host(const char *url, const char *ref, const struct git_bounds *bounds,
    char id[COMMIT_SIZE], struct error *err)
{
    static const char *const before[] = { "refs/heads/", "refs/tags/", "" };
    char names[array_length(before)][REF_MAX + 16] = { "HEAD" };
    const char *words[8] = { "ls-remote", "--quiet", "--", url };
    cleanup_buf struct buf output = { 0 };
    size_t count = ref ? array_length(before) : 1;
    for (size_t i = 0; i < count; i++) {
        if (ref)
            snprintf(names[i], sizeof names[i], "%s%s", before[i], ref);
        words[4 + i] = names[i];
    }
    struct git_call call = {
        .words = words, .input = -1, .lock = -1, .take = git_keep, .arg = &output
    };
    int rc = git_run(&call, bounds, NULL, err);
    if (rc < 0)
        return rc;
    if (!buf_failed(&output) && strlen(buf_text(&output)) != output.len)
        return error_set(err, ERROR_PROTOCOL, "the host's list of refs contains a zero byte");
    for (size_t i = 0; i < count; i++)
        if (find_line(buf_text(&output), names[i], id))
            return 1;
    return 0;
}

static int no_such_ref(const char *ref, struct error *err)
{
    if (!ref)
        return error_set(err, ERROR_NOT_FOUND, "the repository is empty: it has no commit");
    return error_set(err, ERROR_NOT_FOUND,
        "it has no branch, tag or commit '%.80s'; `git ls-remote` lists them", ref);
}

/* ---- fetching ---- */

static int git_here(const struct repository *r, const char *const *words,
    const struct git_bounds *bounds, struct error *err)
{
    struct git_end end;
    struct git_call call = { .directory = r->path, .words = words, .input = -1, .lock = r->lock };
    int rc = git_run(&call, bounds, &end, err);
    /* If git exited by itself, nothing is half done, except after a full disk. */
    if (rc < 0 && (!end.quiet || rc == -(int)ERROR_IO || rc == -(int)ERROR_ARGUMENT))
        return rc;
    unlinkat(r->busy_at, "busy", 0);
    return rc;
}

static int make_anew(const struct repository *r, const struct git_bounds *bounds, struct error *err)
{
    const char *words[] = { "init", "--quiet", "--bare", "--template=", r->path, NULL };
    struct git_call call = { .directory = r->path, .words = words, .input = -1, .lock = r->lock };
    if (!tree_remove(r->busy_at, "git") && errno != ENOENT)
        return cache_failed(r->path, "removing", err);
    return git_run(&call, bounds, NULL, err);
}

/* Fetches `object`, or the complete history of all branches and tags if it is NULL: an
 * abbreviated id can be looked up only there. */
static int repository_fetch(const struct repository *r, const char *url, const char *object,
    const struct git_bounds *bounds, struct error *err)
{
    struct stat st;
    cleanup_buf struct buf one = { 0 };
    bool anew = is_busy(r) || fstatat(r->busy_at, "git/HEAD", &st, 0) < 0;
    buf_printf(
        &one, "+%s:refs/droste/%s", object ? object : "refs/heads/*", object ? object : "heads/*");
    const char *words[] = { "fetch", "--quiet", "--no-tags", "--no-recurse-submodules",
        "--no-write-fetch-head", "--no-auto-maintenance", "--force",
        object ? "--depth=1" : "--depth=2147483647", "--", url, buf_text(&one),
        object ? NULL : "+refs/tags/*:refs/droste/tags/*", NULL };
    int rc = buf_failed(&one) ? error_memory(err) : set_busy(r, url, err);
    if (rc == 0 && anew)
        rc = make_anew(r, bounds, err);
    return rc < 0 ? rc : git_here(r, words, bounds, err);
}

/* With the cache locked exclusively: another process may have fetched it meanwhile. */
static int fetch_commit(struct repository *r, const char *url, const char *id, bool shortened,
    const struct git_bounds *bounds, struct error *err)
{
    int rc = lock_cache(r, LOCK_EX, bounds, err);
    if (rc == 0)
        rc = find_here(r, id, bounds, err);
    if (rc == 0)
        rc = repository_fetch(r, url, shortened ? NULL : id, bounds, err);
    if (rc == 0)
        rc = find_here(r, id, bounds, err);
    if (rc <= 0)
        return rc;
    rc = lock_cache(r, LOCK_SH, bounds, err);
    return rc < 0 ? rc : 1;
}

static int repository_find(struct repository *r, const char *url, const char *ref,
    const struct git_bounds *bounds, struct error *err)
{
    char id[COMMIT_SIZE];
    bool shortened = false;
    int rc = 0;
    if (ref && is_whole_id(ref)) {
        snprintf(id, sizeof id, "%s", ref);
    } else {
        rc = ask_host(url, ref, bounds, id, err);
        if (rc == 0 && ref && is_id(ref, ID_SHORT)) {
            snprintf(id, sizeof id, "%s", ref);
            shortened = true;
        } else if (rc == 0) {
            return no_such_ref(ref, err);
        }
    }
    if (rc >= 0)
        rc = lock_cache(r, LOCK_SH, bounds, err);
    if (rc == 0)
        rc = find_here(r, id, bounds, err);
    if (rc == 0)
        rc = fetch_commit(r, url, id, shortened, bounds, err);
    return rc == 0 ? no_such_ref(ref, err) : rc < 0 ? rc : 0;
}

int repository_open(const char *url, const char *ref, const struct git_bounds *bounds,
    struct repository *out, struct error *err)
{
    cleanup_buf struct buf shown = { 0 };
    *out = (struct repository){ .lock = -1, .busy_at = -1 };
    int rc = repository_check(url, ref, err);
    if (rc < 0)
        return rc;
    rc = open_cache(url, out, err);
    if (rc == 0)
        rc = repository_find(out, url, ref, bounds, err);
    if (rc == 0)
        return 0;
    repository_close(out);
    text_append_visible(&shown, url, strnlen(url, 90));
    return error_wrap(err, "repository %s", buf_text(&shown));
}
