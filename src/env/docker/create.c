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
#include "base/json/fields.h"
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

const char *docker_image(const struct sandbox_spec *spec)
{
    const char *image = sandbox_container(spec)->image;
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
    const char *gpus = sandbox_container(spec)->gpus;
    if (gpus && gpus[0] && !is_gpus(gpus))
        return error_set(err, ERROR_ARGUMENT,
            "gpus '%.60s' is neither all, nor a number, nor device=ID,...", gpus);
    return 0;
}

/* ---- parts of the body ---- */

static void write_mount(struct buf *out, const char *source, const char *target, bool read_only)
{
    field_open(out, NULL, '{');
    field_string(out, "Type", "bind");
    field_string(out, "Source", source);
    field_string(out, "Target", target);
    field_bool(out, "ReadOnly", read_only);
    field_close(out, '}');
}

static void write_mounts(struct buf *out, const struct docker_create *c)
{
    const struct sandbox_spec *spec = c->spec;
    const struct layout *paths = layout_of(spec->layout);
    field_open(out, "Mounts", '[');
    for (size_t i = 0; i < array_length(paths->volume); i++) {
        if (c->volume && paths->volume[i])
            write_mount(out, c->volume, paths->volume[i], false);
        if (c->workspace && paths->workspace[i])
            write_mount(out, c->workspace, paths->workspace[i], false);
    }
    for (size_t i = 0; i < spec->read_path_count; i++)
        write_mount(out, spec->read_paths[i], spec->read_paths[i], true);
    field_close(out, ']');
}

/* The same syntax as `docker run --gpus`: all, a number, or device=ID,ID. */
static void write_devices(struct buf *out, const char *gpus)
{
    buf_puts(out, ",\"DeviceRequests\":[{\"Driver\":\"\",\"Capabilities\":[[\"gpu\"]]");
    if (strncmp(gpus, DEVICE, sizeof DEVICE - 1) == 0) {
        field_open(out, "DeviceIDs", '[');
        for (const char *id = gpus + sizeof DEVICE - 1; *id;) {
            size_t n = strcspn(id, ",");
            field_text(out, NULL, id, n);
            id += n + (id[n] == ',');
        }
        field_close(out, ']');
    } else {
        field_int(out, "Count", strcmp(gpus, "all") == 0 ? -1 : atoi(gpus));
    }
    buf_puts(out, "}]");
}

static void write_limits(struct buf *out, const struct jail_limits *limits)
{
    if (limits->memory > 0) {
        field_int(out, "Memory", (int64_t)limits->memory);
        field_int(out, "MemorySwap", (int64_t)limits->memory);
    }
    if (limits->processes > 0)
        field_int(out, "PidsLimit", (int64_t)limits->processes + OWN_PROCESSES);
    if (limits->cpus > 0)
        field_int(out, "NanoCpus", (int64_t)(limits->cpus * 1e9));
}

static void write_ulimit(struct buf *out, const char *name, int resource, rlim_t most)
{
    struct rlimit own;
    if (getrlimit(resource, &own) == 0 && own.rlim_max < most)
        most = own.rlim_max;
    if (most == RLIM_INFINITY)
        return;
    field_open(out, NULL, '{');
    field_string(out, "Name", name);
    field_int(out, "Soft", (int64_t)most);
    field_int(out, "Hard", (int64_t)most);
    field_close(out, '}');
}

/* For the whole container; workers set lower limits themselves. Podman's defaults may exceed what
 * its machine allows, and then nothing starts. */
static void write_ulimits(struct buf *out, const struct jail_limits *limits)
{
    field_open(out, "Ulimits", '[');
    write_ulimit(out, "nofile", RLIMIT_NOFILE,
        limits->open_files > 0 ? limits->open_files + OWN_FILES : RLIM_INFINITY);
    write_ulimit(out, "nproc", RLIMIT_NPROC, USER_PROCESSES);
    write_ulimit(out, "core", RLIMIT_CORE, 0);
    field_close(out, ']');
}

static void write_temporary(struct buf *out, const struct jail_limits *limits)
{
    buf_puts(out, ",\"Tmpfs\":{\"/tmp\":\"rw,exec,nosuid,nodev,mode=1777");
    if (limits->tmp_size > 0)
        buf_printf(out, ",size=%llu", (unsigned long long)limits->tmp_size);
    buf_puts(out, "\"}");
}

static bool has_profile(const struct container_spec *c)
{
    bool gpus = c->gpus && c->gpus[0];
    return c->seccomp == SECCOMP_DROSTE || (c->seccomp == SECCOMP_AUTO && !gpus);
}

static int write_security(struct buf *out, const struct container_spec *c, struct error *err)
{
    cleanup_buf struct buf profile = { 0 };
    int rc = 0;
    field_open(out, "SecurityOpt", '[');
    field_string(out, NULL, "no-new-privileges");
    if (has_profile(c)) {
        buf_puts(&profile, DOCKER_SECCOMP);
        rc = filter_profile(&profile, err);
        field_text(out, NULL, buf_text(&profile), profile.len);
    }
    field_close(out, ']');
    return rc == 0 && buf_failed(&profile) ? error_memory(err) : rc;
}

static int write_host(struct buf *out, const struct docker_create *create, struct error *err)
{
    static const char *const all[] = { "ALL", NULL };
    const struct container_spec *c = sandbox_container(create->spec);
    const struct jail_limits *limits = &create->spec->limits;
    field_open(out, "HostConfig", '{');
    buf_puts(out, "\"LogConfig\":{\"Type\":\"none\"}");
    field_string(out, "NetworkMode", network_of(c));
    field_strings(out, "CapDrop", all);
    int rc = write_security(out, c, err);
    field_bool(out, "ReadonlyRootfs", !c->writable_root);
    field_bool(out, "AutoRemove", true);
    field_int(out, "ShmSize", SHARED_MEMORY);
    field_string(out, "IpcMode", "private");
    write_limits(out, limits);
    write_ulimits(out, limits);
    write_temporary(out, limits);
    write_mounts(out, create);
    if (c->disk > 0)
        buf_printf(out, ",\"StorageOpt\":{\"size\":\"%llu\"}", (unsigned long long)c->disk);
    if (c->gpus && c->gpus[0])
        write_devices(out, c->gpus);
    field_close(out, '}');
    return rc;
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
    /* Override the image's values, which assume another user: the guest can write to one directory
     * only. */
    static const char *const variables[] = { "HOME=/tmp", "TMPDIR=/tmp",
        "PYTHONDONTWRITEBYTECODE=1", NULL };
    const struct container_spec *container = sandbox_container(c->spec);
    const char *python[] = { c->spec->python ? c->spec->python : "python3", NULL };
    const char *command[] = { "-u", "-c", c->loader, NULL };
    cleanup_free char *user = user_of(container);
    cleanup_buf struct buf text = { 0 };
    if (!user)
        return error_memory(err);
    buf_putc(&text, '{');
    field_string(&text, "Image", docker_image(c->spec));
    field_strings(&text, "Entrypoint", python);
    field_strings(&text, "Cmd", command);
    field_strings(&text, "Env", variables);
    field_string(&text, "User", user);
    field_string(&text, "WorkingDir", "/tmp");
    field_open(&text, "Labels", '{');
    owner_labels_write(&text, container->labels);
    field_close(&text, '}');
    field_bool(&text, "OpenStdin", true);
    field_bool(&text, "StdinOnce", c->input_once);
    field_bool(&text, "Tty", false);
    field_bool(&text, "AttachStdin", true);
    field_bool(&text, "AttachStdout", true);
    field_bool(&text, "AttachStderr", true);
    field_bool(&text, "NetworkDisabled", strcmp(network_of(container), "none") == 0);
    int rc = write_host(&text, c, err);
    buf_putc(&text, '}');
    return rc < 0 ? rc : json_parse_written(&text, out, err);
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
