/* env/common/features.c: names of features and the settings that ask for them. */
#include "env/common/features.h"

#include <string.h>

#include "base/buf.h"

static const struct {
    const char *name, *settings;
} table[FEATURE_COUNT] = {
    [FEATURE_STREAM] = { "stream", "" },
    [FEATURE_REATTACH] = { "re-attach", "" },
    [FEATURE_SNAPSHOT] = { "snapshot", "snapshot" },
    [FEATURE_RESUME] = { "resume", "sandbox on-close" },
    [FEATURE_IDLE] = { "idle stop", "idle-timeout" },
    [FEATURE_IMAGE] = { "image", "image" },
    [FEATURE_PULL] = { "pull", "pull" },
    [FEATURE_VOLUME] = { "volume", "volume-name" },
    [FEATURE_WORKSPACE] = { "staged files", "repo-url context-path" },
    [FEATURE_FILES] = { "files", "" },
    [FEATURE_READ] = { "this machine's files", "read" },
    [FEATURE_NETWORK] = { "network policy", "network" },
    [FEATURE_ALLOW] = { "allow list", "network-allow" },
    [FEATURE_MEMORY] = { "memory", "memory" },
    [FEATURE_PROCESSES] = { "processes", "processes" },
    [FEATURE_CPUS] = { "processors", "cpus" },
    [FEATURE_DISK] = { "disk", "disk-size" },
    [FEATURE_GPUS] = { "GPU", "gpus" },
    [FEATURE_DEVICE] = { "this machine's devices", "device" },
    [FEATURE_USER] = { "user", "user" },
    [FEATURE_SECCOMP] = { "system call filter", "seccomp" },
    [FEATURE_READ_ONLY] = { "read-only files", "read-only-root" },
    [FEATURE_ROOT] = { "private root", "root" },
    [FEATURE_ROOTFS] = { "root file system", "rootfs" },
    [FEATURE_LABELS] = { "labels", "label" },
    [FEATURE_REUSE] = { "shared sandboxes", "reuse" },
    [FEATURE_REGION] = { "region", "region" },
    [FEATURE_APP] = { "app", "app-name" },
    [FEATURE_ISOLATION] = { "isolation", "isolation" },
    [FEATURE_PRELOAD] = { "preload", "preload" },
    [FEATURE_PACKAGES] = { "packages",
        "packages requirements find-links package-index package-hosts sdists allow-install "
        "max-installs packages-size packages-timeout" },
    [FEATURE_HUGE_PAGES] = { "huge pages", "huge-pages" },
    [FEATURE_LOOPBACK] = { "loopback network", "loopback" },
    [FEATURE_EGRESS] = { "egress by permission",
        "allow-net max-net-bytes max-net-requests net-timeout net-ca secret" },
};

const char *feature_name(enum feature p)
{
    return table[p].name;
}

const char *feature_settings(enum feature p)
{
    return table[p].settings;
}

static bool features_has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if ((at == text || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
            return true;
    return false;
}

enum feature feature_of_setting(const char *setting)
{
    for (enum feature p = 0; p < FEATURE_COUNT; p++)
        if (features_has_word(table[p].settings, setting))
            return p;
    return FEATURE_COUNT;
}

/* Prints "--sandbox, --on-close". */
static void name_settings(const char *settings, struct buf *out)
{
    for (size_t n; *settings; settings += n + (settings[n] == ' ')) {
        n = strcspn(settings, " ");
        buf_printf(out, "%s--%.*s", out->len ? ", " : "", (int)n, settings);
    }
}

int features_check(const struct feature_state features[FEATURE_COUNT], const char *environment,
    uint64_t asked, struct error *err)
{
    for (enum feature p = 0; p < FEATURE_COUNT; p++) {
        const struct feature_state *state = &features[p];
        cleanup_buf struct buf settings = { 0 };
        if (!(asked & (uint64_t)1 << p) || state->given)
            continue;
        name_settings(table[p].settings, &settings);
        return error_set(err, ERROR_UNSUPPORTED,
            "the environment '%.40s' does not support %s (%s)%s%.100s", environment, table[p].name,
            buf_text(&settings), state->text ? ": " : "", state->text ? state->text : "");
    }
    return 0;
}
