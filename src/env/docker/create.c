/* env/docker/create.c: builds the body of a create request.
 *
 * The daemon provides the isolation: no capabilities, no new privileges, no network, a read-only
 * root file system, an unprivileged user. The seccomp profile is that of local guests
 * (jail/filter.c), because the daemon's default allows many more system calls.
 */
#include "env/docker/create.h"

#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "env/common/owner_labels.h"
#include "jail/filter.h"
#include "jail/jail.h"

enum {
    /* Processes in the container besides the guest's: the supervisor, and a keeper for each
     * worker. */
    OWN_PROCESSES = 8,
    OWN_FILES = 1024,         /* descriptors of the supervisor */
    USER_PROCESSES = 32768,   /* of the user, in all containers; PidsLimit bounds this container */
    SHARED_MEMORY = 64 << 20, /* size of /dev/shm, Docker's default */
};

#define DEVICE "device="

static const struct container_spec all_defaults;

static const struct container_spec *container_of(const struct sandbox_spec *spec)
{
    return spec->container ? spec->container : &all_defaults;
}

const char *docker_image(const struct sandbox_spec *spec)
{
    const char *image = container_of(spec)->image;
    return image && image[0] ? image : DOCKER_IMAGE;
}

static const char *network_of(const struct container_spec *c)
{
    const char *host = getenv("RLM_DOCKER_USE_HOST_NETWORK");
    if (c->network && c->network[0])
        return c->network;
    return host && strcmp(host, "1") == 0 ? "host" : "none";
}

/* True for "all", a number, or device=ID,ID. */
static bool is_gpus(const char *text)
{
    if (strncmp(text, DEVICE, sizeof DEVICE - 1) == 0)
        return text[sizeof DEVICE - 1] != '\0';
    return strcmp(text, "all") == 0 ||
           (atoi(text) > 0 && text[strspn(text, "0123456789")] == '\0' && strlen(text) < 5);
}

int docker_check(const struct sandbox_spec *spec, bool local, struct error *err)
{
    if (spec->python && spec->python[0] == '\0')
        return error_set(err, ERROR_ARGUMENT, "python is empty");
    if (!local && (spec->volume || spec->workspace || spec->read_path_count > 0))
        return error_set(err, ERROR_UNSUPPORTED,
            "%s needs a Docker daemon that can access this machine's files, but DOCKER_HOST names "
            "another machine; use a unix:// address",
            spec->volume      ? "a volume (--volume-name)"
            : spec->workspace ? "a repository or context path"
                              : "--read");
    const char *gpus = container_of(spec)->gpus;
    if (gpus && gpus[0] && !is_gpus(gpus))
        return error_set(err, ERROR_ARGUMENT,
            "gpus '%.60s' is neither all, nor a number, nor device=ID,...", gpus);
    return 0;
}

/* ---- parts of the body ---- */

static struct json_object *docker_create_texts(const char *const *items, size_t count)
{
    struct json_object *array = json_object_new_array();
    for (size_t i = 0; array && i < count; i++)
        json_object_array_add(array, json_object_new_string(items[i]));
    return array;
}

static bool docker_create_put_number(struct json_object *o, const char *key, double value)
{
    return json_put(o, key, json_object_new_int64((int64_t)value));
}

static bool put_bool(struct json_object *o, const char *key, bool value)
{
    return json_put(o, key, json_object_new_boolean(value));
}

/* {"NAME": "VALUE", …} from a list of NAME=VALUE. */
static bool put_pairs(struct json_object *o, const struct list *list)
{
    for (size_t i = 0; list && i < list->count; i++) {
        const char *value = strchr(list->items[i], '=') + 1;
        cleanup_free char *name = text_copy(list->items[i], (size_t)(value - list->items[i]) - 1);
        if (!name || !json_put_text(o, name, value))
            return false;
    }
    return true;
}

static struct json_object *docker_create_make_labels(const struct docker_create *c)
{
    struct json_object *labels = json_object_new_object();
    if (labels && put_pairs(labels, container_of(c->spec)->labels) &&
        json_put_text(labels, LABEL_OWNER, c->owner) &&
        json_put_text(labels, LABEL_MACHINE, c->machine))
        return labels;
    json_object_put(labels);
    return NULL;
}

/* Overrides the image's values, which assume another user: the guest can write to one directory
 * only. */
static struct json_object *make_variables(void)
{
    static const char *const own[] = { "HOME=/tmp", "TMPDIR=/tmp", "PYTHONDONTWRITEBYTECODE=1" };
    return docker_create_texts(own, array_length(own));
}

static bool add_mount(
    struct json_object *mounts, const char *source, const char *target, bool read_only)
{
    struct json_object *mount = json_object_new_object();
    bool ok = mount && json_put_text(mount, "Type", "bind") &&
              json_put_text(mount, "Source", source) && json_put_text(mount, "Target", target) &&
              put_bool(mount, "ReadOnly", read_only);
    if (ok && json_object_array_add(mounts, mount) == 0)
        return true;
    json_object_put(mount);
    return false;
}

static struct json_object *make_mounts(const struct docker_create *c)
{
    const struct sandbox_spec *spec = c->spec;
    struct json_object *mounts = json_object_new_array();
    bool ok = mounts != NULL;
    const struct layout *paths = layout_of(spec->layout);
    for (size_t i = 0; i < array_length(paths->volume); i++) {
        if (ok && c->volume && paths->volume[i])
            ok = add_mount(mounts, c->volume, paths->volume[i], false);
        if (ok && c->workspace && paths->workspace[i])
            ok = add_mount(mounts, c->workspace, paths->workspace[i], false);
    }
    for (size_t i = 0; ok && i < spec->read_path_count; i++)
        ok = add_mount(mounts, spec->read_paths[i], spec->read_paths[i], true);
    if (ok)
        return mounts;
    json_object_put(mounts);
    return NULL;
}

/* The same syntax as `docker run --gpus`: all, a number, or device=ID,ID. */
static struct json_object *docker_create_make_devices(const char *gpus)
{
    cleanup_json struct json_object *request = json_object_new_object();
    cleanup_json struct json_object *requests = json_object_new_array();
    struct json_object *kinds = json_object_new_array(),
                       *kind = docker_create_texts((const char *[]){ "gpu" }, 1);
    if (!request || !requests || !kinds || !kind || json_object_array_add(kinds, kind) < 0)
        return NULL;
    bool ok = json_put_text(request, "Driver", "") && json_put(request, "Capabilities", kinds);
    if (ok && strncmp(gpus, DEVICE, sizeof DEVICE - 1) == 0) {
        struct json_object *ids = json_object_new_array();
        for (const char *id = gpus + sizeof DEVICE - 1; ids && *id;) {
            size_t n = strcspn(id, ",");
            json_object_array_add(ids, json_object_new_string_len(id, (int)n));
            id += n + (id[n] == ',');
        }
        ok = json_put(request, "DeviceIDs", ids);
    } else if (ok) {
        ok = docker_create_put_number(request, "Count", strcmp(gpus, "all") == 0 ? -1 : atoi(gpus));
    }
    if (!ok || json_object_array_add(requests, json_object_get(request)) < 0)
        return NULL;
    return steal(&requests);
}

static bool put_limits(struct json_object *host, const struct jail_limits *limits)
{
    bool ok = true;
    if (limits->memory > 0)
        ok = docker_create_put_number(host, "Memory", (double)limits->memory) &&
             docker_create_put_number(host, "MemorySwap", (double)limits->memory);
    if (ok && limits->processes > 0)
        ok = docker_create_put_number(
            host, "PidsLimit", (double)(limits->processes + OWN_PROCESSES));
    if (ok && limits->cpus > 0)
        ok = docker_create_put_number(host, "NanoCpus", limits->cpus * 1e9);
    return ok;
}

static bool add_ulimit(struct json_object *array, const char *name, int resource, rlim_t most)
{
    struct rlimit own;
    if (getrlimit(resource, &own) == 0 && own.rlim_max < most)
        most = own.rlim_max;
    if (most == RLIM_INFINITY)
        return true;
    struct json_object *o = json_object_new_object();
    bool ok = o && json_put_text(o, "Name", name) &&
              docker_create_put_number(o, "Soft", (double)most) &&
              docker_create_put_number(o, "Hard", (double)most);
    if (ok && json_object_array_add(array, o) == 0)
        return true;
    json_object_put(o);
    return false;
}

/* For the whole container; workers set lower limits themselves. Podman's defaults may exceed what
 * its machine allows, and then nothing starts. */
static bool put_ulimits(struct json_object *host, const struct jail_limits *limits)
{
    struct json_object *array = json_object_new_array();
    rlim_t files = limits->open_files > 0 ? limits->open_files + OWN_FILES : RLIM_INFINITY;
    if (array && add_ulimit(array, "nofile", RLIMIT_NOFILE, files) &&
        add_ulimit(array, "nproc", RLIMIT_NPROC, USER_PROCESSES) &&
        add_ulimit(array, "core", RLIMIT_CORE, 0))
        return json_put(host, "Ulimits", array);
    json_object_put(array);
    return false;
}

static bool put_temporary(struct json_object *host, const struct jail_limits *limits)
{
    struct json_object *tmpfs = json_object_new_object();
    cleanup_free char *options = limits->tmp_size > 0
                                     ? text_printf("rw,exec,nosuid,nodev,mode=1777,size=%llu",
                                           (unsigned long long)limits->tmp_size)
                                     : text_printf("rw,exec,nosuid,nodev,mode=1777");
    if (options && tmpfs && json_put_text(tmpfs, "/tmp", options))
        return json_put(host, "Tmpfs", tmpfs);
    json_object_put(tmpfs);
    return false;
}

static bool put_disk(struct json_object *host, uint64_t disk)
{
    struct json_object *options = json_object_new_object();
    cleanup_free char *size = text_printf("%llu", (unsigned long long)disk);
    if (size && options && json_put_text(options, "size", size))
        return json_put(host, "StorageOpt", options);
    json_object_put(options);
    return false;
}

static bool has_profile(const struct container_spec *c)
{
    bool gpus = c->gpus && c->gpus[0];
    return c->seccomp == SECCOMP_DROSTE || (c->seccomp == SECCOMP_AUTO && !gpus);
}

/* NULL: out of memory. */
static struct json_object *make_security(const struct container_spec *c)
{
    cleanup_buf struct buf profile = { 0 };
    static const char *const privileges[] = { "no-new-privileges" };
    cleanup_json struct json_object *options = docker_create_texts(privileges, 1);
    if (!options || !has_profile(c))
        return steal(&options);
    buf_puts(&profile, DOCKER_SECCOMP);
    if (filter_profile(&profile, NULL) < 0 || buf_failed(&profile) ||
        json_object_array_add(options, json_object_new_string(buf_text(&profile))) < 0)
        return NULL;
    return steal(&options);
}

static struct json_object *make_host(const struct docker_create *create)
{
    static const char *const all[] = { "ALL" };
    const struct container_spec *c = container_of(create->spec);
    cleanup_json struct json_object *host = json_object_new_object();
    struct json_object *log = json_object_new_object();
    bool ok =
        host && log && json_put_text(log, "Type", "none") && json_put(host, "LogConfig", log) &&
        json_put_text(host, "NetworkMode", network_of(c)) &&
        json_put(host, "CapDrop", docker_create_texts(all, 1)) &&
        json_put(host, "SecurityOpt", make_security(c)) &&
        put_bool(host, "ReadonlyRootfs", !c->writable_root) && put_bool(host, "AutoRemove", true) &&
        docker_create_put_number(host, "ShmSize", SHARED_MEMORY) &&
        json_put_text(host, "IpcMode", "private") && put_limits(host, &create->spec->limits) &&
        put_ulimits(host, &create->spec->limits) && put_temporary(host, &create->spec->limits) &&
        json_put(host, "Mounts", make_mounts(create));
    if (ok && c->disk > 0)
        ok = put_disk(host, c->disk);
    if (ok && c->gpus && c->gpus[0])
        ok = json_put(host, "DeviceRequests", docker_create_make_devices(c->gpus));
    return ok ? steal(&host) : NULL;
}

/* If the host is root, the guest is nobody. Otherwise the guest is the host's user, whose files may
 * be mounted. */
static char *user_of(const struct container_spec *c)
{
    if (c->user && c->user[0])
        return strdup(c->user);
    return geteuid() == 0 ? text_printf("%d:%d", JAIL_NOBODY, JAIL_NOBODY)
                          : text_printf("%u:%u", geteuid(), getegid());
}

int docker_create_body(const struct docker_create *c, struct json_object **out, struct error *err)
{
    const struct container_spec *container = container_of(c->spec);
    const char *python = c->spec->python ? c->spec->python : "python3";
    const char *command[] = { "-u", "-c", c->loader };
    cleanup_json struct json_object *o = json_object_new_object();
    cleanup_free char *user = user_of(container);
    if (!o || !user)
        return error_memory(err);
    bool ok = json_put_text(o, "Image", docker_image(c->spec)) &&
              json_put(o, "Entrypoint", docker_create_texts(&python, 1)) &&
              json_put(o, "Cmd", docker_create_texts(command, array_length(command))) &&
              json_put(o, "Env", make_variables()) && json_put_text(o, "User", user) &&
              json_put_text(o, "WorkingDir", "/tmp") &&
              json_put(o, "Labels", docker_create_make_labels(c)) &&
              put_bool(o, "OpenStdin", true) && put_bool(o, "StdinOnce", c->input_once) &&
              put_bool(o, "Tty", false) && put_bool(o, "AttachStdin", true) &&
              put_bool(o, "AttachStdout", true) && put_bool(o, "AttachStderr", true) &&
              put_bool(o, "NetworkDisabled", strcmp(network_of(container), "none") == 0) &&
              json_put(o, "HostConfig", make_host(c));
    if (!ok)
        return error_memory(err);
    *out = steal(&o);
    return 0;
}

static struct json_object *security_of(struct json_object *body)
{
    return json_get_typed(
        json_get_typed(body, "HostConfig", json_type_object), "SecurityOpt", json_type_array);
}

bool docker_has_profile(struct json_object *body)
{
    return json_object_array_length(security_of(body)) > 1;
}

void docker_drop_profile(struct json_object *body)
{
    json_object_array_del_idx(security_of(body), 1, 1);
}

void docker_name_profile(struct json_object *body)
{
    json_object_array_put_idx(
        security_of(body), 1, json_object_new_string(DOCKER_SECCOMP "(the list below)"));
}

const enum limit_means docker_limit_means[LIMIT_COUNT] = {
    [LIMIT_MEMORY] = LIMIT_BY_CGROUP,
    [LIMIT_PROCESSES] = LIMIT_BY_CGROUP,
    [LIMIT_CPUS] = LIMIT_BY_CGROUP,
    [LIMIT_CPU_TIME] = LIMIT_BY_RLIMIT,
    [LIMIT_OPEN_FILES] = LIMIT_BY_RLIMIT,
    [LIMIT_FILE_SIZE] = LIMIT_BY_RLIMIT,
    [LIMIT_TMP_SIZE] = LIMIT_BY_MOUNT,
    [LIMIT_VOLUME_SIZE] = LIMIT_BY_HOST,
    [LIMIT_VOLUME_FILES] = LIMIT_BY_HOST,
    [LIMIT_WORKSPACE_SIZE] = LIMIT_BY_HOST,
    [LIMIT_WORKSPACE_FILES] = LIMIT_BY_HOST,
};
