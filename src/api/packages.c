/* api/packages.c: see packages.h.
 *
 * A request is what the settings ask for, with all that its resolution depends on: the interpreter,
 * the configuration of pip, the wheels in --find-links. Its hash finds the set that it was resolved
 * to, in this object or on disk; only if there is none, the set is built.
 */
#include "api/packages.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "api/recipe.h"
#include "api/templates.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "base/os/spawn.h"
#include "base/text.h"
#include "env/local/interpreter.h"
#include "packages/contents.h"
#include "packages/shown.h"

enum { FACTS_MAX = 200, ANSWER_MAX = 1 << 20, CONFIGURATION_MAX = 1 << 20 };

/* A set that this object uses. */
struct package_use {
    struct package_use *next;
    struct package_set *set;
    char key[HASH_TEXT_SIZE];
};

bool api_packages_are_wanted(const struct settings *s)
{
    return s->packages.count > 0 || s->requirements.count > 0;
}

/* ---- what a resolution depends on ---- */

int api_packages_ask(const char *executable, const char *code, const char *argument,
    struct buf *out, struct error *err)
{
    const char *const words[] = { executable, "-I", "-c", code, argument, NULL };
    int ends[2];
    pid_t pid;
    cleanup_fd int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || pipe2(ends, O_CLOEXEC) < 0)
        return error_set_errno(err, ERROR_IO, "making a pipe");
    int rc = spawn_program(words, "the interpreter ", (int[]){ null, ends[1], null }, &pid, err);
    close(ends[1]);
    if (rc == 0)
        rc = file_read_fd(ends[0], executable, ANSWER_MAX, out, err);
    close(ends[0]);
    if (pid > 0)
        spawn_end(pid);
    if (rc == 0 && buf_failed(out))
        rc = error_memory(err);
    return rc;
}

static void add_stat(struct buf *out, const char *path)
{
    struct stat st = { 0 };
    cleanup_free char *real = realpath(path, NULL);
    (void)!stat(path, &st);
    buf_printf(out, "%s\n%s\n%llu %llu %lld %lld.%ld\n", path, real ? real : "",
        (unsigned long long)st.st_dev, (unsigned long long)st.st_ino, (long long)st.st_size,
        (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
}

/* Version, ABI, platform and C library of the interpreter, which is asked once for each file. */
static int find_facts(
    struct package_cache *cache, const char *executable, char **out, struct error *err)
{
    static const char code[] =
        "import platform,sys,sysconfig\n"
        "print('%s %d.%d %s %s'%((sysconfig.get_config_var('SOABI') or "
        "sys.implementation.cache_tag,)"
        "+sys.version_info[:2]+(sysconfig.get_platform(),'-'.join(platform.libc_ver()))),end='')";
    cleanup_buf struct buf identity = { 0 }, facts = { 0 };
    char hash[HASH_TEXT_SIZE];
    add_stat(&identity, executable);
    if (buf_failed(&identity))
        return error_memory(err);
    int rc = hash_sha256(identity.data, identity.len, hash, err);
    if (rc == 0)
        rc = package_cache_read_note(cache, hash, out, err);
    if (rc < 0 || *out)
        return rc;
    rc = api_packages_ask(executable, code, NULL, &facts, err);
    if (rc == 0 && (facts.len == 0 || facts.len > FACTS_MAX ||
                       !text_is_utf8(buf_text(&facts), facts.len, NULL)))
        rc = error_set(err, ERROR_ENVIRONMENT,
            "'%.100s' did not run as a Python interpreter; give one with --python PATH",
            executable);
    if (rc == 0)
        rc = package_cache_write_note(cache, hash, buf_text(&facts), err);
    if (rc == 0 && !(*out = buf_steal(&facts)))
        rc = error_memory(err);
    return rc;
}

/* Where pip and uv read their configuration; what they say is part of the request. */
static int add_configuration(struct buf *out, struct error *err)
{
    static const char *const files[][2] = { { NULL, "/etc/pip.conf" }, { "HOME", "/.pip/pip.conf" },
        { "HOME", "/.config/pip/pip.conf" }, { "XDG_CONFIG_HOME", "/pip/pip.conf" },
        { "VIRTUAL_ENV", "/pip.conf" }, { "PIP_CONFIG_FILE", "" } };
    for (char **v = environ; *v; v++)
        if (strncmp(*v, "PIP_", 4) == 0 || strncmp(*v, "UV_", 3) == 0)
            buf_printf(out, "%s\n", *v);
    for (size_t i = 0; i < array_length(files); i++) {
        const char *before = files[i][0] ? getenv(files[i][0]) : "";
        cleanup_free char *path = text_printf("%s%s", before ? before : "", files[i][1]);
        cleanup_buf struct buf text = { 0 };
        if (!path)
            return error_memory(err);
        if (before && path[0] && file_read(path, CONFIGURATION_MAX, &text, NULL) == 0)
            buf_append(out, buf_text(&text), text.len);
    }
    return 0;
}

static int add_find_links(const struct settings *s, struct buf *out, struct error *err)
{
    for (size_t i = 0; i < s->find_links.count; i++) {
        struct package_contents wheels = { 0 };
        const char *path = s->find_links.items[i];
        cleanup_fd int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int rc = fd < 0 ? error_set_errno(err, ERROR_NOT_FOUND,
                              "find-links '%.200s' must be a directory of wheels", path)
                        : package_contents_look(fd, &wheels, err);
        package_contents_free(&wheels);
        if (rc < 0)
            return rc;
        buf_printf(out, "%s %llu\n", path, (unsigned long long)wheels.stamp);
    }
    return 0;
}

static int read_request(const struct settings *s, struct package_request *r, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < s->packages.count; i++)
        rc = package_request_add(r, s->packages.items[i], err);
    for (size_t i = 0; rc == 0 && i < s->requirements.count; i++)
        rc = package_request_add_file(r, s->requirements.items[i], err);
    return rc;
}

static int hash_request(const struct settings *s, const struct package_request *r,
    const char *facts, char key[HASH_TEXT_SIZE], struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "1\n%s\n%s\n%s\n%s\n%d %s\n", facts, buf_text(&r->requirements),
        buf_text(&r->constraints), buf_text(&r->documents), s->sdists,
        s->package_index ? s->package_index : "");
    int rc = add_find_links(s, &text, err);
    if (rc == 0)
        rc = add_configuration(&text, err);
    if (rc == 0 && buf_failed(&text))
        rc = error_memory(err);
    return rc < 0 ? rc : hash_sha256(text.data, text.len, key, err);
}

/* ---- the set ---- */

static struct package_use *find_use(droste *d, const char *key)
{
    struct package_use *use = d->packages;
    while (use && strcmp(use->key, key) != 0)
        use = use->next;
    return use;
}

int api_packages_add(droste *d, const char *key, struct package_set *set, struct error *err)
{
    struct package_use *use = find_use(d, key);
    if (!use && !(use = calloc(1, sizeof *use))) {
        package_set_drop(set);
        return error_memory(err);
    }
    if (!use->set) {
        snprintf(use->key, sizeof use->key, "%s", key);
        use->next = d->packages;
        d->packages = use;
    }
    package_set_drop(use->set);
    use->set = set;
    return 0;
}

void api_packages_free(droste *d)
{
    while (d->packages) {
        struct package_use *use = d->packages;
        d->packages = use->next;
        package_set_drop(use->set);
        free(use);
    }
}

bool api_packages_cancelled(void *interrupt)
{
    struct pollfd p = { .fd = *(const int *)interrupt, .events = POLLIN };
    return poll(&p, 1, 0) > 0;
}

static bool packages_cancelled(void *job)
{
    return api_packages_cancelled(&((struct package_job *)job)->interrupt);
}

static void packages_wait(void *arg)
{
    const struct package_job *job = arg;
    if (job->d->notice && !job->beside)
        job->d->notice(job->d->notice_arg, "waiting for another process that builds packages");
}

static int find_or_build(
    struct package_job *job, bool again, struct package_set **out, struct error *err)
{
    int rc = again ? 0 : package_cache_find(job->cache, job->key, out, err);
    if (rc < 0 || *out)
        return rc;
    rc = package_cache_lock(job->cache, packages_cancelled, packages_wait, job, err);
    if (rc == 0 && !again) /* built meanwhile */
        rc = package_cache_find(job->cache, job->key, out, err);
    return rc < 0 || *out ? rc : job->d->build_packages(job, out, err);
}

/* With the job's cache. *out is NULL if the droste uses the set already. */
static int resolve_job(struct package_job *job, bool again, char key[HASH_TEXT_SIZE],
    struct package_set **out, struct error *err)
{
    cleanup_free char *executable = NULL, *facts = NULL;
    int rc = interpreter_find(job->settings->python, &executable, err);
    if (rc == 0)
        rc = find_facts(job->cache, executable, &facts, err);
    if (rc == 0)
        rc = hash_request(job->settings, job->request, facts, key, err);
    if (rc < 0 || (!again && !job->beside && find_use(job->d, key)))
        return rc;
    job->executable = executable;
    job->facts = facts;
    job->key = key;
    return find_or_build(job, again, out, err);
}

int api_packages_resolve(const struct package_wish *wish, char key[HASH_TEXT_SIZE],
    struct package_set **out, struct error *err)
{
    struct package_job job = { .d = wish->d,
        .settings = wish->settings,
        .request = wish->request,
        .interrupt = wish->interrupt,
        .beside = true };
    int rc = package_cache_open(&job.cache, err);
    if (rc == 0)
        rc = resolve_job(&job, false, key, out, err);
    package_cache_close(job.cache);
    return rc;
}

int api_packages_set(droste *d, const struct settings *s, bool again,
    const struct package_set **out, struct error *err)
{
    struct package_request request = { 0 };
    struct package_job job = {
        .d = d, .settings = s, .request = &request, .interrupt = d->interrupt_fd
    };
    struct package_set *set = NULL;
    char key[HASH_TEXT_SIZE];
    int rc = read_request(s, &request, err);
    if (rc == 0)
        rc = package_cache_open(&job.cache, err);
    if (rc == 0)
        rc = resolve_job(&job, again, key, &set, err);
    if (rc == 0 && set)
        rc = api_packages_add(d, key, set, err);
    if (rc == 0)
        *out = find_use(d, key)->set;
    package_cache_close(job.cache);
    package_request_free(&request);
    return rc;
}

/* ---- sessions ---- */

int api_packages_show(droste *d, const struct settings *s, struct error *err)
{
    struct package_cache *cache = NULL;
    if (s->rules)
        return error_set(err, ERROR_CONFIG,
            "allow-install cannot be set with rules, which packages of the code's own choice "
            "escape; leave out one of them");
    if (s->rootfs || s->image)
        return error_set(err, ERROR_UNSUPPORTED,
            "allow-install installs packages for an interpreter of this machine: leave out rootfs "
            "and image, or use an image that has them");
    if (d->shown)
        return 0;
    int rc = package_cache_open(&cache, err);
    if (rc == 0)
        rc = package_shown_open(cache, &d->shown, err);
    package_cache_close(cache);
    return rc;
}

/* Besides what the settings and rules have put there. */
static int show_path(const struct settings *s, const char *path, struct list *shown,
    struct session_options *o, struct error *err)
{
    int rc = shown->count == 0 ? list_add_all(shown, &s->read, err) : 0;
    if (rc == 0)
        rc = list_add(shown, path, err);
    o->spec.read_paths = (const char *const *)shown->items;
    o->spec.read_path_count = shown->count;
    return rc;
}

int api_packages_use(droste *d, const struct settings *s, struct list *shown,
    const struct package_set **set, struct session_options *o, struct error *err)
{
    if (s->allow_install) {
        int rc = api_packages_show(d, s, err);
        if (rc == 0)
            rc = show_path(s, package_shown_path(d->shown), shown, o, err);
        if (rc < 0)
            return rc;
    }
    if (!api_packages_are_wanted(s))
        return 0;
    if (s->rootfs || s->image)
        return error_set(err, ERROR_UNSUPPORTED,
            "packages are built for an interpreter of this machine: leave out rootfs and image, or "
            "use an image that has them");
    int rc = api_packages_set(d, s, false, set, err);
    if (rc < 0)
        return rc;
    o->packages = package_set_site(*set);
    rc = show_path(s, o->packages, shown, o, err);
    o->spec.preload = NULL;
    o->spec.preload_count = 0;
    o->imports = &s->preload;
    return rc;
}

/* Everything that its zygote and its memory depend on. */
static int image_name(
    const struct package_set *set, const struct settings *s, struct buf *name, struct error *err)
{
    struct settings shape = { 0 };
    const struct recipe none = { 0 };
    const struct settings_texts texts = { 0 };
    int rc = settings_copy(&shape, s, err);
    if (rc == 0)
        rc = recipe_prepare(&none, &shape, err);
    buf_printf(name, "packages %s ", package_set_id(set));
    if (rc == 0)
        settings_save(&shape, &texts, name);
    settings_free(&shape);
    return rc == 0 && buf_failed(name) ? error_memory(err) : rc;
}

static droste_template *find_image(droste *d, const char *name)
{
    droste_template *t = d->templates;
    while (t && (!t->name || strcmp(t->name, name) != 0))
        t = t->next;
    return t;
}

/* Executes nothing but the imports, in a session with these settings. A failure is none of the
 * session that wanted it, which then imports the modules itself, and reports what fails there. */
static int make_image(droste *d, const char *name, const struct settings *s, struct error *err)
{
    const struct recipe none = { 0 };
    droste_template *t = NULL;
    struct error why = { 0 };
    d->makes_image = true;
    int rc = d->make_template(d, "packages", &none, s, &t, &why);
    d->makes_image = false;
    if (rc < 0)
        rc = api_template_new(d, &t, err);
    if (rc < 0)
        return rc;
    t->name = strdup(name);
    return t->name ? 0 : error_memory(err);
}

int api_packages_image(droste *d, const struct settings *s, const struct package_set *set,
    struct template **out, struct error *err)
{
    cleanup_buf struct buf name = { 0 };
    bool local = !s->env || strcmp(s->env, "local") == 0;
    if (!api_packages_are_wanted(s) || s->preload.count == 0 || !local || !s->warm_up ||
        s->volume_name || s->repo_url || s->context_path.count > 0 || d->waits || d->makes_image)
        return 0;
    int rc = set ? 0 : api_packages_set(d, s, false, &set, err);
    if (rc == 0)
        rc = image_name(set, s, &name, err);
    if (rc == 0 && !find_image(d, buf_text(&name)))
        rc = make_image(d, buf_text(&name), s, err);
    const droste_template *t = rc == 0 ? find_image(d, buf_text(&name)) : NULL;
    if (t && t->image)
        *out = template_hold(t->image);
    return rc;
}

bool api_packages_forget_image(droste *d, const struct template *image)
{
    for (droste_template *t = d->templates; t; t = t->next) {
        if (t->image != image || !t->name || strncmp(t->name, "packages ", 9) != 0)
            continue;
        droste_template_free(t);
        return true;
    }
    return false;
}
