/* env/powers.c: see powers.h. */
#include "env/powers.h"

#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"

static const struct {
    const char *name, *settings;
} table[POWER_COUNT] = {
    [POWER_STREAM] = { "stream", "" },
    [POWER_REATTACH] = { "re-attach", "" },
    [POWER_SNAPSHOT] = { "snapshot", "snapshot" },
    [POWER_RESUME] = { "resume", "sandbox on-close" },
    [POWER_IDLE] = { "idle stop", "idle-timeout" },
    [POWER_IMAGE] = { "image", "image" },
    [POWER_PULL] = { "pull", "pull" },
    [POWER_VOLUME] = { "volume", "volume-name" },
    [POWER_WORKSPACE] = { "staged files", "repo-url context-path" },
    [POWER_READ] = { "this machine's files", "read" },
    [POWER_NETWORK] = { "network policy", "network" },
    [POWER_ALLOW] = { "allow list", "network-allow" },
    [POWER_MEMORY] = { "memory", "memory" },
    [POWER_PROCESSES] = { "processes", "processes" },
    [POWER_CPUS] = { "processors", "cpus" },
    [POWER_DISK] = { "disk", "disk-size" },
    [POWER_GPUS] = { "GPU", "gpus" },
    [POWER_USER] = { "user", "user" },
    [POWER_READ_ONLY] = { "read-only files", "read-only-root" },
    [POWER_LABELS] = { "labels", "label" },
    [POWER_REUSE] = { "shared sandboxes", "reuse" },
    [POWER_REGION] = { "region", "region" },
    [POWER_APP] = { "app", "app-name" },
    [POWER_ISOLATION] = { "isolation", "isolation" },
    [POWER_PRELOAD] = { "preload", "preload" },
};

const char *power_name(enum power p)
{
    return table[p].name;
}

const char *power_settings(enum power p)
{
    return table[p].settings;
}

/* True if `word` is one of the words of the text. */
static bool has_word(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = text; (at = strstr(at, word)); at += n)
        if ((at == text || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' '))
            return true;
    return false;
}

enum power power_of_setting(const char *setting)
{
    for (enum power p = 0; p < POWER_COUNT; p++)
        if (has_word(table[p].settings, setting))
            return p;
    return POWER_COUNT;
}

/* "--sandbox, --on-close". */
static void name_settings(const char *settings, struct buf *out)
{
    for (size_t n; *settings; settings += n + (settings[n] == ' ')) {
        n = strcspn(settings, " ");
        buf_printf(out, "%s--%.*s", out->len ? ", " : "", (int)n, settings);
    }
}

int powers_check(
    const struct powers *powers, const char *environment, uint64_t asked, struct error *err)
{
    for (enum power p = 0; p < POWER_COUNT; p++) {
        const struct power_state *state = &powers->of[p];
        cleanup_buf struct buf settings = { 0 };
        if (!(asked & (uint64_t)1 << p) || state->given)
            continue;
        name_settings(table[p].settings, &settings);
        return error_set(err, ERROR_UNSUPPORTED,
            "the environment '%.40s' cannot give %s (%s)%s%.100s", environment, table[p].name,
            buf_text(&settings), state->text ? ": " : "", state->text ? state->text : "");
    }
    return 0;
}
