/* api/diagnose.c: what works here, what does not, and what to do.
 *
 * Everything that can be tried is tried, with real sandboxes. Nothing uses the network, and the
 * provider's key is never printed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "api/api.h"
#include "api/models.h"
#include "api/options.h"
#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/clock.h"
#include "base/os/file.h"
#include "base/text.h"
#include "env/local/cgroup.h"
#include "env/common/idmap.h"
#include "env/common/users.h"
#include "env/local/nvidia.h"
#include "jail/landlock.h"
#include "lm/lm.h"

enum state { STATE_OK, STATE_MISSING, STATE_NOTE };

static const char *const state_names[] = { "ok", "missing", "note" };

struct doctor {
    droste *d;
    bool works; /* a sandbox at `auto` */
    droste_finding_fn *fn;
    void *arg;
};

/* ---- telling ---- */

static void doctor_tell(struct doctor *doctor, const char *name, enum state state, const char *cure,
    const struct buf *text)
{
    const droste_finding finding = { name, state_names[state], buf_text(text), text->len,
        cure && cure[0] ? cure : NULL };
    doctor->fn(doctor->arg, &finding);
}

static void doctor_say(struct doctor *doctor, const char *name, enum state state, const char *cure,
    const char *format, ...) __attribute__((format(printf, 5, 6)));

static void doctor_say(struct doctor *doctor, const char *name, enum state state, const char *cure,
    const char *format, ...)
{
    cleanup_buf struct buf text = { 0 };
    va_list args;
    va_start(args, format);
    buf_vprintf(&text, format, args);
    va_end(args);
    doctor_tell(doctor, name, state, cure, &text);
}

/* ---- this machine ---- */

static void check_kernel(struct doctor *doctor)
{
    struct utsname u;
    doctor_say(doctor, "droste", STATE_OK, NULL, "%s", droste_version());
    if (uname(&u) == 0)
        doctor_say(doctor, "kernel", STATE_OK, NULL, "%s %s, %s, as %s", u.sysname, u.release,
            u.machine, geteuid() == 0 ? "root" : "an ordinary user");
}

/* Reads a number from a file of the kernel; `fallback` if there is no such file. */
static long doctor_read_number(const char *path, long fallback)
{
    cleanup_buf struct buf text = { 0 };
    if (file_read(path, 4096, &text, NULL) < 0 || text.len == 0)
        return fallback;
    return strtol(text.data, NULL, 10);
}

static bool in_container(void)
{
    return access("/.dockerenv", F_OK) == 0 || access("/run/.containerenv", F_OK) == 0 ||
           getenv("container") != NULL || getenv("KUBERNETES_SERVICE_HOST") != NULL;
}

/* Whether this is root of a user namespace with too few ids to give one to a guest. */
static bool is_root_of_few(void)
{
    cleanup_buf struct buf map = { 0 };
    unsigned long inside, outside, count;
    return geteuid() == 0 && file_read("/proc/self/uid_map", 65536, &map, NULL) == 0 &&
           sscanf(buf_text(&map), "%lu %lu %lu", &inside, &outside, &count) == 3 &&
           count <= JAIL_NOBODY;
}

/* What to do if a sandbox with namespaces fails, judged by the kernel's settings. */
static const char *cure_of_namespaces(void)
{
    bool root = geteuid() == 0;
    if (doctor_read_number("/proc/sys/user/max_user_namespaces", 1) == 0)
        return "user namespaces are switched off: sysctl -w user.max_user_namespaces=15000";
    if (!root && doctor_read_number("/proc/sys/kernel/unprivileged_userns_clone", 1) == 0)
        return "only root may make user namespaces: sysctl -w kernel.unprivileged_userns_clone=1";
    if (!root &&
        doctor_read_number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", 0) != 0)
        return "AppArmor restricts user namespaces: "
               "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0";
    if (is_root_of_few())
        return "this root has no other user ids to give: run as an ordinary user instead";
    if (in_container())
        return "this is a container: start it with --security-opt seccomp=unconfined "
               "--security-opt apparmor=unconfined --security-opt systempaths=unconfined";
    return "for code that you trust, use --isolation process";
}

/* ---- sandboxes ---- */

struct trial {
    double first_ms, next_ms; /* the first start, with the zygote's; the next one */
    char version[64];
    char isolation[16];
    droste_error error;
};

/* Parses {"output": "3.11.2"}. */
static void take_version(const droste_result *r, char *out, size_t size)
{
    cleanup_json struct json_object *o = NULL;
    size_t len;
    const char *submit = droste_result_submit(r, &len);
    if (submit && json_parse(submit, len, &json_limits_small, &o, NULL) == 0)
        snprintf(out, size, "%s", json_get_string(o, "output", ""));
}

static int open_and_run(droste *d, struct trial *t, double *ms)
{
    static const char code[] = "import platform; SUBMIT(platform.python_version())";
    uint64_t start = clock_ns();
    droste_session *s = NULL;
    droste_result *r = NULL;
    int rc = droste_session_open(d, &s, &t->error);
    if (rc == 0)
        snprintf(t->isolation, sizeof t->isolation, "%s", droste_session_isolation(s));
    if (rc == 0)
        rc = droste_session_exec(s, code, sizeof code - 1, 0, &r, &t->error);
    *ms = clock_seconds_since(start) * 1000;
    if (rc == 0 && strcmp(droste_result_status(r), "submitted") != 0) {
        droste_result_error(r, &t->error);
        rc = -1;
        if (t->error.code == DROSTE_ERROR_NONE)
            snprintf(t->error.text, sizeof t->error.text, "a cell ended with '%s'",
                droste_result_status(r));
    } else if (rc == 0) {
        take_version(r, t->version, sizeof t->version);
    }
    droste_result_free(r);
    droste_session_close(s);
    return rc;
}

static int try_isolation(droste *d, const char *isolation, struct trial *t)
{
    *t = (struct trial){ 0 };
    int rc = droste_set(d, "isolation", isolation, &t->error);
    if (rc == 0)
        rc = open_and_run(d, t, &t->first_ms);
    return rc < 0 ? rc : open_and_run(d, t, &t->next_ms);
}

static void say_trial(
    struct doctor *doctor, const char *isolation, int rc, const struct trial *t, const char *cure)
{
    cleanup_buf struct buf text = { 0 };
    if (rc < 0)
        text_append_visible(&text, t->error.text, strlen(t->error.text));
    else
        buf_printf(&text, "a first sandbox ran a cell after %.0f ms, the next after %.1f ms",
            t->first_ms, t->next_ms);
    doctor_tell(doctor, isolation, rc < 0 ? STATE_MISSING : STATE_OK, rc < 0 ? cure : NULL, &text);
}

static void check_python(struct doctor *doctor, int rc, const struct trial *t)
{
    droste_error err;
    const char *path = droste_python(doctor->d, &err);
    if (!path)
        doctor_say(doctor, "python", STATE_MISSING, NULL, "%s", err.text);
    else if (rc < 0)
        doctor_say(doctor, "python", STATE_MISSING, NULL, "%s", t->error.text);
    else
        doctor_say(doctor, "python", STATE_OK, NULL, "CPython %s, %s", t->version, path);
}

static const char *cure_of_landlock(void)
{
    if (landlock_abi() < LANDLOCK_SCOPE_ABI)
        return "it needs Linux 6.12 or later with Landlock: CONFIG_SECURITY_LANDLOCK, and "
               "`landlock` in the list of the boot parameter lsm=";
    return "run as an ordinary user, or give an interpreter that everybody can read";
}

static void check_sandboxes(struct doctor *doctor)
{
    static const char *const levels[] = { "process", "full", "light", "landlock", "auto" };
    enum { PROCESS, FULL, LIGHT, LANDLOCK, AUTO, LEVELS };
    struct trial trials[LEVELS];
    int rc[LEVELS];
    /* The level with the fewest requirements comes first: if it fails, the interpreter is at
         * fault. */
    for (size_t i = 0; i < LEVELS; i++)
        rc[i] = try_isolation(doctor->d, levels[i], &trials[i]);
    doctor->works = rc[AUTO] == 0;
    check_python(doctor, rc[PROCESS], &trials[PROCESS]);
    const char *python = rc[PROCESS] < 0 ? "see python, above" : NULL;
    say_trial(doctor, "full", rc[FULL], &trials[FULL], python ? python : cure_of_namespaces());
    say_trial(doctor, "light", rc[LIGHT], &trials[LIGHT], python ? python : cure_of_namespaces());
    say_trial(
        doctor, "landlock", rc[LANDLOCK], &trials[LANDLOCK], python ? python : cure_of_landlock());
    say_trial(doctor, "process", rc[PROCESS], &trials[PROCESS], python);
    if (rc[AUTO] == 0)
        doctor_say(doctor, "auto", STATE_OK, NULL, "selects `%s` here", trials[AUTO].isolation);
}

static void check_seccomp(struct doctor *doctor)
{
    bool there = access("/proc/sys/kernel/seccomp/actions_avail", F_OK) == 0;
    doctor_say(doctor, "seccomp", there ? STATE_OK : STATE_MISSING,
        there ? NULL : "sandboxes need a kernel with CONFIG_SECCOMP_FILTER", "%s",
        there ? "filters the system calls of all sandboxes except `process`"
              : "this kernel does not have it");
}

static void check_landlock(struct doctor *doctor)
{
    int abi = landlock_abi();
    if (abi >= LANDLOCK_SCOPE_ABI)
        doctor_say(
            doctor, "Landlock", STATE_OK, NULL, "ABI %d: files, abstract sockets and signals", abi);
    else if (abi > 0)
        doctor_say(doctor, "Landlock", STATE_NOTE, "Linux 6.12 adds abstract sockets and signals",
            "ABI %d: files only; siblings at `full` and `light` can meet over abstract sockets",
            abi);
    else
        doctor_say(doctor, "Landlock", STATE_NOTE, cure_of_landlock(),
            "this kernel does not have it (%s); `full` and `light` do without",
            errno == EOPNOTSUPP ? "switched off at boot" : strerror(errno));
}

static void check_cgroup(struct doctor *doctor)
{
    struct cgroups *cgroups = NULL;
    struct error err = { 0 };
    cleanup_fd int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (cgroups_open(doctor->d->loop, root, &cgroups, &err) < 0)
        doctor_say(doctor, "cgroup v2", STATE_NOTE, NULL,
            "%s; the host measures the memory of each sandbox, and --cpus is not supported",
            err.text);
    else
        doctor_say(doctor, "cgroup v2", STATE_OK, NULL,
            "memory and processes are limited for each sandbox as a whole, below %s",
            cgroups_path(cgroups));
    cgroups_close(cgroups);
}

/* The kernel counts processes by user (RLIMIT_NPROC), including those in user namespaces that the
 * user has created. */
static void check_processes(struct doctor *doctor)
{
    struct rlimit limit;
    unsigned long long used = users_count_processes(getuid());
    unsigned long long wanted = (unsigned long long)doctor->d->settings.processes;
    if (getrlimit(RLIMIT_NPROC, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY) {
        doctor_say(doctor, "users", STATE_OK, NULL,
            "sandboxes count as yours, and your processes have no limit");
        return;
    }
    bool fits = used + wanted <= limit.rlim_cur;
    doctor_say(doctor, "users", fits ? STATE_OK : STATE_NOTE,
        fits ? NULL
             : "raise the limit (ulimit -u), or give --processes: else a guest can leave you none",
        "sandboxes count as yours: of %llu processes (ulimit -u) %llu are there, and each sandbox "
        "may have %llu",
        (unsigned long long)limit.rlim_cur, used, wanted);
}

/* Returns the path, or its nearest parent directory that exists. */
static void doctor_nearest(const char *path, struct buf *out)
{
    buf_puts(out, path);
    while (out->len > 1 && access(buf_text(out), F_OK) < 0) {
        while (out->len > 0 && out->data[out->len - 1] != '/')
            out->len--;
        if (out->len > 1)
            out->len--;
        out->data[out->len] = '\0';
    }
    if (out->len == 0)
        buf_puts(out, ".");
}

/* Whether sandboxes with a volume also get users of their own: tries an id-mapped mount. */
static void describe_volume_users(struct doctor *doctor, uint32_t user, struct buf *out)
{
    cleanup_free char *root = NULL;
    cleanup_buf struct buf above = { 0 };
    struct error err = { 0 };
    if (api_volume_root(&doctor->d->settings, &root, &err) < 0)
        return;
    doctor_nearest(root, &above);
    cleanup_fd int directory = open(buf_text(&above), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cleanup_fd int mount = directory < 0 ? -1 : idmap_mount(directory, JAIL_NOBODY, user);
    if (mount >= 0)
        buf_puts(out, "with a volume also (ID-mapped mounts), except at isolation landlock");
    else
        buf_printf(out,
            "sandboxes with a volume or workspace share user %d, because %s has no ID-mapped mounts: %s",
            JAIL_NOBODY, buf_text(&above), strerror(errno));
}

static void check_users(struct doctor *doctor)
{
    cleanup_buf struct buf volumes = { 0 };
    struct user_range range;
    struct error err = { 0 };
    if (geteuid() != 0)
        check_processes(doctor);
    else if (user_range_parse(doctor->d->settings.sandbox_users, &range, &err) < 0)
        doctor_say(doctor, "users", STATE_MISSING, NULL, "%s", err.text);
    else if (range.first == 0)
        doctor_say(doctor, "users", STATE_NOTE,
            "give --sandbox-users FIRST-LAST, with ids of this user namespace",
            "all local sandboxes run as user %d, and share the limits that the kernel counts by "
            "user",
            JAIL_NOBODY);
    else {
        describe_volume_users(doctor, range.first, &volumes);
        doctor_say(doctor, "users", STATE_OK, NULL,
            "each local sandbox has a user of its own, %u to %u; %s", range.first, range.last,
            buf_text(&volumes));
    }
}

/* A machine without a GPU lacks nothing. */
static void check_devices(struct doctor *doctor)
{
    const struct device_request all = { .nvidia = true };
    struct nvidia found;
    struct error err = { 0 };
    int rc = nvidia_find("", &all, &found, &err);
    if (rc == 0)
        doctor_say(doctor, "device nvidia", STATE_OK, NULL, "%u GPU%s, libraries in %s",
            found.count, text_plural(found.count), found.directory);
    else
        doctor_say(doctor, "device nvidia",
            access("/dev/nvidiactl", F_OK) == 0 ? STATE_MISSING : STATE_NOTE, NULL, "%s", err.text);
    if (rc == 0)
        nvidia_clear(&found);
}

/* ---- the configuration ---- */

/* Opening a model checks its settings, without connecting. */
static void check_model(struct doctor *doctor)
{
    struct settings *s = &doctor->d->settings;
    struct models models;
    struct error err = { 0 };
    cleanup_buf struct buf where = { 0 }, cure = { 0 };
    if (!s->model) {
        buf_puts(&cure, "set DROSTE_MODEL to PROVIDER/MODEL, and what its provider needs (");
        lm_list_needs(&cure);
        buf_puts(&cure, "); OPENAI_BASE_URL for any server that speaks OpenAI's protocol; or use "
                        "config.ini");
        doctor_say(doctor, "model", STATE_NOTE, buf_text(&cure),
            "none is configured; `droste run` needs one");
        return;
    }
    if (api_models(doctor->d, &doctor->d->settings, true, &models, &err) < 0) {
        doctor_say(doctor, "model", STATE_MISSING, NULL, "%s: %s", s->model, err.text);
        return;
    }
    lm_describe(models.at[0], &where);
    doctor_say(doctor, "model", STATE_OK, NULL, "%s, %s (not called)", lm_name(models.at[0]),
        buf_text(&where));
    api_models_close(&models);
}

static void check_configuration(struct doctor *doctor)
{
    cleanup_free char *home = NULL;
    cleanup_buf struct buf path = { 0 };
    const char *variable = getenv("DROSTE_CONFIG");
    struct error err = { 0 };
    if (variable) {
        buf_puts(&path, variable);
    } else if (file_config_home(&home, &err) < 0) {
        doctor_say(doctor, "configuration", STATE_NOTE, NULL, "%s", err.text);
        return;
    } else {
        buf_printf(&path, "%s/config.ini", home);
    }
    bool there = access(buf_text(&path), R_OK) == 0;
    doctor_say(doctor, "configuration", there ? STATE_OK : STATE_NOTE, NULL, "%s%s",
        buf_text(&path), there ? "" : " does not exist (it is optional)");
}

/* ---- what lasts ---- */

static void check_data(struct doctor *doctor)
{
    cleanup_free char *home = NULL;
    cleanup_buf struct buf there = { 0 };
    struct error err = { 0 };
    const char *cure = "set DROSTE_HOME to a directory that you can write";
    if (file_data_home(&home, &err) < 0) {
        doctor_say(doctor, "data", STATE_MISSING, cure, "%s", err.text);
        return;
    }
    doctor_nearest(home, &there);
    bool made = strcmp(buf_text(&there), home) == 0;
    if (access(buf_text(&there), W_OK | X_OK) < 0)
        doctor_say(
            doctor, "data", STATE_MISSING, cure, "%s: %s", buf_text(&there), strerror(errno));
    else
        doctor_say(
            doctor, "data", STATE_OK, NULL, "%s%s", home, made ? "" : ", created on first use");
}

static void doctor_print_size(struct buf *out, double bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB" };
    size_t unit = 0;
    for (; bytes >= 1024 && unit < array_length(units) - 1; unit++)
        bytes /= 1024;
    buf_printf(out, unit ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
}

static void check_record(struct doctor *doctor)
{
    cleanup_buf struct buf size = { 0 }, above = { 0 };
    droste_error err;
    struct stat st;
    const char *cure = "give --database FILE, or DROSTE_DATABASE, that you can write";
    const char *path = droste_record_path(doctor->d, &err);
    if (!path) {
        doctor_say(doctor, "record", STATE_MISSING, cure, "%s", err.text);
    } else if (strcmp(path, "none") == 0) {
        doctor_say(doctor, "record", STATE_NOTE, NULL, "turned off (database = none)");
    } else if (stat(path, &st) == 0) {
        bool fine = S_ISREG(st.st_mode) && access(path, R_OK | W_OK) == 0;
        doctor_print_size(&size, (double)st.st_size);
        doctor_say(doctor, "record", fine ? STATE_OK : STATE_MISSING, fine ? NULL : cure, "%s, %s",
            path, fine ? buf_text(&size) : "cannot be read and written");
    } else {
        doctor_nearest(path, &above);
        bool fine = access(buf_text(&above), W_OK | X_OK) == 0;
        doctor_say(doctor, "record", fine ? STATE_OK : STATE_MISSING, fine ? NULL : cure, "%s%s",
            path, fine ? ", created by the first run" : " cannot be made");
    }
}

static void check_volumes(struct doctor *doctor)
{
    cleanup_free char *root = NULL;
    cleanup_buf struct buf above = { 0 };
    struct list names = { 0 };
    struct error err = { 0 };
    const char *cure = "give --volume-root PATH, or DROSTE_VOLUME_ROOT, that you can write";
    int rc = api_volume_root(&doctor->d->settings, &root, &err);
    if (rc == 0)
        rc = volume_names(root, &names, &err);
    if (rc == 0)
        doctor_nearest(root, &above);
    if (rc < 0)
        doctor_say(doctor, "volumes", STATE_MISSING, cure, "%s", err.text);
    else if (access(buf_text(&above), W_OK | X_OK) < 0)
        doctor_say(
            doctor, "volumes", STATE_MISSING, cure, "%s: %s", buf_text(&above), strerror(errno));
    else
        doctor_say(doctor, "volumes", STATE_OK, NULL, "%zu in %s; the host measures their quotas",
            names.count, root);
    list_clear(&names);
}

/* ---- environments elsewhere ---- */

/* The local environment has its own rows above. */
static void check_environments(struct doctor *doctor)
{
    const struct environment_kind *kind;
    for (size_t i = 0; (kind = environment_at(i)); i++) {
        struct error err = { 0 };
        if (strcmp(kind->name, "local") == 0)
            continue;
        if (kind->configured && kind->configured(&err) < 0)
            doctor_say(doctor, kind->name, STATE_NOTE, NULL, "not configured: %s", err.text);
        else
            doctor_say(doctor, kind->name, STATE_OK, NULL,
                "configured; try it with `droste smoke --env %s`", kind->name);
    }
}

int droste_diagnose(droste *d, droste_finding_fn *fn, void *arg)
{
    struct doctor doctor = { .d = d, .fn = fn, .arg = arg };
    cleanup_free char *isolation = d->settings.isolation ? strdup(d->settings.isolation) : NULL;
    check_kernel(&doctor);
    check_sandboxes(&doctor);
    if (isolation)
        droste_set(d, "isolation", isolation, NULL);
    check_seccomp(&doctor);
    check_landlock(&doctor);
    check_cgroup(&doctor);
    check_users(&doctor);
    check_devices(&doctor);
    check_model(&doctor);
    check_configuration(&doctor);
    check_data(&doctor);
    check_record(&doctor);
    check_volumes(&doctor);
    check_environments(&doctor);
    return doctor.works;
}
