/* env/environments.c: the table of environments, by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/suggest.h"
#include "base/text.h"
#include "env/common/environment.h"
#include "env/remote/bridge.h"

#define BRIDGE "bridge:" /* the user's own, with the path of a program behind it */

static const struct environment_kind *const kinds[] = { &local_environment, &docker_environment,
    &daytona_environment, &prime_environment, &e2b_environment, &modal_environment };

const struct environment_kind *environment_at(size_t i)
{
    return i < array_length(kinds) ? kinds[i] : NULL;
}

const struct environment_kind *environment_named(const char *name)
{
    for (size_t i = 0; i < array_length(kinds); i++)
        if (strcmp(kinds[i]->name, name) == 0)
            return kinds[i];
    return NULL;
}

/* The i-th layout, of which some are NULL; the default comes first. */
enum { LAYOUTS = array_length(kinds) + 1 };
static const struct layout *layout_at(size_t i)
{
    return i == 0 ? &default_layout : kinds[i - 1]->layout;
}

int environment_layout(const char *name, const struct layout **out, struct error *err)
{
    const char *names[LAYOUTS];
    size_t count = 0;
    *out = &default_layout;
    for (size_t i = 0; name && i < LAYOUTS; i++) {
        const struct layout *layout = layout_at(i);
        if (layout && strcmp(layout->name, name) == 0) {
            *out = layout;
            return 0;
        }
        if (layout)
            names[count++] = layout->name;
    }
    return name ? suggest_refuse("layout", name, names, sizeof *names, count, err) : 0;
}

const char *environment_volume_path(const char *path)
{
    for (size_t i = 0; i < LAYOUTS; i++)
        for (size_t k = 0; layout_at(i) && k < array_length(layout_at(i)->volume); k++) {
            const char *volume = layout_at(i)->volume[k];
            const char *below = volume ? text_below(path, volume) : NULL;
            if (below)
                return below;
        }
    return path;
}

int environment_circumstances(
    const char *name, char out[ENVIRONMENT_CIRCUMSTANCES_SIZE], struct error *err)
{
    cleanup_buf struct buf all = { 0 };
    const struct environment_kind *kind = environment_named(name);
    const char *at = kind ? kind->variables : "";
    for (size_t n; *at; at += n + (at[n] == ' ')) {
        char variable[64];
        n = strcspn(at, " ");
        snprintf(variable, sizeof variable, "%.*s", (int)n, at);
        const char *value = getenv(variable);
        buf_printf(&all, "%s%s\n", value ? "=" : "", value ? value : "");
    }
    if (buf_failed(&all))
        return error_memory(err);
    if (all.len == 0) { /* libcrypto reads its configuration at the first hash of a process */
        out[0] = '\0';
        return 0;
    }
    return hash_sha256(all.data, all.len, out, err);
}

int environment_open(const char *name, struct loop *loop, const struct environment_options *options,
    struct environment **out, struct error *err)
{
    static const struct environment_options none = { 0 };
    if (!options)
        options = &none;
    const struct environment_kind *kind = environment_named(name);
    if (kind)
        return kind->open(loop, options, out, err);
    if (strncmp(name, BRIDGE, strlen(BRIDGE)) == 0)
        return bridge_open(loop, name + strlen(BRIDGE), options, out, err);
    const char *names[array_length(kinds) + 1];
    for (size_t i = 0; i < array_length(kinds); i++)
        names[i] = kinds[i]->name;
    names[array_length(kinds)] = BRIDGE "PATH";
    return suggest_refuse("environment", name, names, sizeof *names, array_length(names), err);
}
