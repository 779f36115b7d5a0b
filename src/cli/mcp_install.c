/* cli/mcp_install.c: see mcp_install.h. Agents keep their servers in a JSON file, by name. */
#include "cli/mcp_install.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "base/suggest.h"
#include "base/text.h"

enum { CONFIGURATION_MAX = 4 << 20 };

static const struct agent {
    const char *name;
    const char *file; /* below the home directory; with a leading "./", the current one */
    const char *key;  /* of the object with the servers */
    bool has_type;    /* an entry names its transport */
} agents[] = {
    { "claude-code", ".claude.json", "mcpServers", true },
    { "claude-desktop", ".config/Claude/claude_desktop_config.json", "mcpServers", false },
    { "cursor", ".cursor/mcp.json", "mcpServers", false },
    { "gemini", ".gemini/settings.json", "mcpServers", false },
    { "windsurf", ".codeium/windsurf/mcp_config.json", "mcpServers", false },
    { "project", "./.mcp.json", "mcpServers", true },
    { "vscode", "./.vscode/mcp.json", "servers", true },
};

static const struct agent *agent_find(const struct command *self, const char *name, int *status)
{
    cleanup_buf struct buf names = { 0 };
    struct suggestion s = { .typed = name, .len = name ? strlen(name) : 0 };
    for (size_t i = 0; i < array_length(agents); i++) {
        if (name && strcmp(name, agents[i].name) == 0)
            return &agents[i];
        buf_printf(&names, "%s%s", i > 0 ? ", " : "", agents[i].name);
        if (name)
            suggestion_consider(&s, agents[i].name);
    }
    const char *best = name ? suggestion_best(&s) : NULL;
    *status = best ? cli_usage(self, "there is no agent '%s'; did you mean %s?", name, best)
                   : cli_usage(self, "install: expected an agent: %s", buf_text(&names));
    return NULL;
}

/* The path of its configuration (free). */
static char *agent_path(const struct agent *agent)
{
    const char *home = getenv("HOME");
    if (strncmp(agent->file, "./", 2) == 0)
        return text_copy(agent->file, strlen(agent->file));
    return home && home[0] ? text_printf("%s/%s", home, agent->file) : NULL;
}

/* A path that will be used from another directory; other words as they are. */
static char *argument_resolve(const char *word)
{
    char *real = word[0] != '-' ? realpath(word, NULL) : NULL;
    return real ? real : text_copy(word, strlen(word));
}

static struct json_object *agent_entry(
    const struct agent *agent, const char *const *words, size_t count)
{
    cleanup_free char *program = realpath("/proc/self/exe", NULL);
    struct json_object *o = json_object_new_object(), *args = json_object_new_array();
    bool ok =
        o && args && program && json_object_array_add(args, json_object_new_string("mcp")) == 0;
    for (size_t i = 0; ok && i < count; i++) {
        cleanup_free char *word = argument_resolve(words[i]);
        ok = word && json_object_array_add(args, json_object_new_string(word)) == 0;
    }
    if (ok && agent->has_type)
        ok = json_put_text(o, "type", "stdio");
    if (ok && json_put_text(o, "command", program) && json_put(o, "args", args))
        return o;
    json_object_put(args);
    json_object_put(o);
    return NULL;
}

/* The configuration as it is; an empty object without a file. */
static int agent_read(const char *path, struct json_object **out, struct error *err)
{
    cleanup_buf struct buf text = { 0 };
    struct error why;
    if (access(path, F_OK) < 0 && errno == ENOENT) {
        *out = json_object_new_object();
        return *out ? 0 : error_memory(err);
    }
    if (file_read(path, CONFIGURATION_MAX, &text, err) < 0)
        return -1;
    if (json_parse(buf_text(&text), text.len, &json_limits_large, out, &why) == 0 &&
        json_object_is_type(*out, json_type_object))
        return 0;
    json_object_put(*out);
    *out = NULL;
    return error_set(err, ERROR_CONFIG, "%s is not plain JSON, and is left as it is", path);
}

static int agent_write(const char *path, struct json_object *all, struct error *err)
{
    cleanup_free char *directory = text_copy(path, strlen(path));
    char *slash = directory ? strrchr(directory, '/') : NULL;
    if (slash && slash > directory) {
        *slash = '\0';
        if (file_make_directories(directory, err) < 0)
            return -1;
    }
    const char *text = json_object_to_json_string_ext(
        all, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE);
    cleanup_free char *line = text ? text_printf("%s\n", text) : NULL;
    if (!line)
        return error_memory(err);
    return file_replace(path, line, strlen(line), err);
}

int mcp_install(const struct command *self, const char *const *words, size_t count)
{
    int status = EXIT_USAGE;
    struct error err;
    const struct agent *agent = agent_find(self, count > 0 ? words[0] : NULL, &status);
    if (!agent)
        return status;
    cleanup_free char *path = agent_path(agent);
    if (!path)
        return cli_usage(self, "install: $HOME is not set");
    cleanup_json struct json_object *entry = agent_entry(agent, words + 1, count - 1);
    cleanup_json struct json_object *all = NULL;
    if (!entry)
        return cli_fail(EXIT_RAISED, "out of memory");
    if (agent_read(path, &all, &err) < 0) {
        fprintf(stderr, "Add this to \"%s\" there, as \"droste\":\n%s\n", agent->key,
            json_object_to_json_string_ext(
                entry, JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_NOSLASHESCAPE));
        return cli_error(&err);
    }
    struct json_object *servers = json_get_typed(all, agent->key, json_type_object);
    if (!servers) {
        servers = json_object_new_object();
        if (!servers || !json_put(all, agent->key, servers))
            return cli_fail(EXIT_RAISED, "out of memory");
    }
    if (!json_put(servers, "droste", json_object_get(entry)))
        return cli_fail(EXIT_RAISED, "out of memory");
    if (agent_write(path, all, &err) < 0)
        return cli_error(&err);
    printf("%s: added the server \"droste\". Restart the agent.\n", path);
    return cli_finish(EXIT_FINE, "the message");
}
