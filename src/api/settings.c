/* api/settings.c: the table of settings and the ways to fill it; see settings.h.
 *
 * Sources in rising order: the defaults here, the environment, the configuration file, what the
 * program or its command line sets.
 */
#include "api/settings.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/file.h"
#include "base/json.h"
#include "broker/budget.h"

enum { FILE_MAX = 1 << 20 };

enum type { TYPE_TEXT, TYPE_LIST, TYPE_SWITCH, TYPE_NUMBER, TYPE_DECIMAL, TYPE_SECONDS, TYPE_SIZE };

static const struct setting {
    droste_option option;
    enum type type;
    size_t offset;
    double min, max;               /* of numbers, seconds and sizes */
    const char *other_environment; /* another variable, weaker than the option's own; NULL: none */
} table[] = {
#define AT(field) offsetof(struct settings, field)
    { { "model", "MODEL", "", "DROSTE_MODEL",
          "The language model: PROVIDER/MODEL, a name of OpenAI's, replay:FILE, or callback.", 0 },
        TYPE_TEXT, AT(model), 0, 0 },
    { { "sub-model", "MODEL", "", "DROSTE_SUB_MODEL",
          "The model that answers llm_query and writes child runs; the same one by default.", 0 },
        TYPE_TEXT, AT(sub_model), 0, 0 },
    { { "depth-model", "N=MODEL", "", NULL,
          "The model from this depth on, up to the next that has one: 1 for what the root's code "
          "asks, 2 for what its children's code asks; may be repeated.",
          0 },
        TYPE_LIST, AT(depth_model), 0, 0 },
    { { "base-url", "URL", "", "OPENAI_BASE_URL",
          "An OpenAI-compatible server, such as http://127.0.0.1:8000/v1.", 0 },
        TYPE_TEXT, AT(base_url), 0, 0 },
    { { "api-key", "KEY", "", "OPENAI_API_KEY",
          "OpenAI's key, or that of base-url's server; from the environment or the configuration "
          "file only.",
          1 },
        TYPE_TEXT, AT(api_key), 0, 0 },
    { { "anthropic-api-key", "KEY", "", "ANTHROPIC_API_KEY", "Anthropic's key; as api-key.", 1 },
        TYPE_TEXT, AT(anthropic_key), 0, 0 },
    { { "anthropic-base-url", "URL", "", "ANTHROPIC_BASE_URL",
          "Another server that speaks Anthropic's Messages.", 0 },
        TYPE_TEXT, AT(anthropic_url), 0, 0 },
    { { "gemini-api-key", "KEY", "", "GEMINI_API_KEY",
          "Gemini's key, also from GOOGLE_API_KEY; as api-key.", 1 },
        TYPE_TEXT, AT(gemini_key), 0, 0, "GOOGLE_API_KEY" },
    { { "gemini-base-url", "URL", "", "GOOGLE_GEMINI_BASE_URL",
          "Another server that speaks Gemini's generateContent.", 0 },
        TYPE_TEXT, AT(gemini_url), 0, 0 },
    { { "azure-api-key", "KEY", "", "AZURE_OPENAI_API_KEY", "Azure's key; as api-key.", 1 },
        TYPE_TEXT, AT(azure_key), 0, 0 },
    { { "azure-endpoint", "URL", "", "AZURE_OPENAI_ENDPOINT",
          "Your Azure resource, such as https://NAME.openai.azure.com.", 0 },
        TYPE_TEXT, AT(azure_url), 0, 0 },
    { { "azure-api-version", "VERSION", "", "AZURE_OPENAI_API_VERSION",
          "A version of Azure's older interface, with deployments in the URL.", 0 },
        TYPE_TEXT, AT(azure_version), 0, 0 },
    { { "openrouter-api-key", "KEY", "", "OPENROUTER_API_KEY", "OpenRouter's key; as api-key.", 1 },
        TYPE_TEXT, AT(openrouter_key), 0, 0 },
    { { "openrouter-base-url", "URL", "", "OPENROUTER_BASE_URL",
          "Another server in OpenRouter's place.", 0 },
        TYPE_TEXT, AT(openrouter_url), 0, 0 },
    { { "vllm-api-key", "KEY", "", "VLLM_API_KEY", "The key of a vLLM server; as api-key.", 1 },
        TYPE_TEXT, AT(vllm_key), 0, 0 },
    { { "vllm-base-url", "URL", "", "VLLM_BASE_URL",
          "A vLLM server; by default base-url's, else http://127.0.0.1:8000/v1.", 0 },
        TYPE_TEXT, AT(vllm_url), 0, 0 },
    { { "ca-file", "PATH", "", NULL, "Certificates to trust instead of the system's.", 0 },
        TYPE_TEXT, AT(ca_file), 0, 0 },
    { { "record", "FILE", "", NULL,
          "Append every model call to this file, for --model replay:FILE.", 0 },
        TYPE_TEXT, AT(record), 0, 0 },
    { { "cache", "FILE", "", NULL,
          "Keep model answers in this file, and give them again to the same calls.", 0 },
        TYPE_TEXT, AT(cache), 0, 0 },
    { { "prices", "FILE", "", NULL,
          "Prices of models, before the built-in ones: MODEL INPUT OUTPUT [CACHED] a line.", 0 },
        TYPE_TEXT, AT(prices), 0, 0 },
    { { "stream", "yes|no", "yes", NULL, "Ask the provider for streamed answers.", 0 }, TYPE_SWITCH,
        AT(stream), 0, 0 },
    { { "concurrency", "N", "64", NULL, "Model calls in flight at once, to one host.", 0 },
        TYPE_NUMBER, AT(concurrency), 1, 10000 },
    { { "model-concurrency", "N", "0", NULL,
          "Model calls in flight at once, to one model; 0: only concurrency.", 0 },
        TYPE_NUMBER, AT(model_concurrency), 0, 10000 },
    { { "retries", "N", "5", NULL, "Further attempts after a failure that may pass.", 0 },
        TYPE_NUMBER, AT(retries), 0, 100 },
    { { "max-tokens", "N", "0", NULL, "Tokens of one answer; 0: the provider's default.", 0 },
        TYPE_NUMBER, AT(max_tokens), 0, 1e9 },
    { { "llm-call-timeout", "SECONDS", "60", NULL, "Time of one model call; 0: none.", 0 },
        TYPE_SECONDS, AT(call_timeout), 0, 1e7 },
    { { "connect-timeout", "SECONDS", "10", NULL, "Time to connect to a provider.", 0 },
        TYPE_SECONDS, AT(connect_timeout), 0, 1e6 },
    { { "first-token-timeout", "SECONDS", "0", NULL,
          "Time to the first byte of an answer; 0: only llm-call-timeout.", 0 },
        TYPE_SECONDS, AT(first_timeout), 0, 1e6 },
    { { "stall-timeout", "SECONDS", "60", NULL, "Time between two pieces of an answer.", 0 },
        TYPE_SECONDS, AT(stall_timeout), 0, 1e6 },

    { { "env", "NAME", "local", "DROSTE_ENVIRONMENT", "The environment of the sandbox.", 0 },
        TYPE_TEXT, AT(env), 0, 0 },
    { { "isolation", "LEVEL", "auto", NULL,
          "How strong the local wall is: auto, full, light, landlock, process.", 0 },
        TYPE_TEXT, AT(isolation), 0, 0 },
    { { "python", "PATH", "", "DROSTE_PYTHON",
          "The interpreter, 3.8 or newer; by default the venv's or PATH's python3.", 0 },
        TYPE_TEXT, AT(python), 0, 0 },
    { { "preload", "MODULE", "", NULL, "Import this once for all sandboxes; may be repeated.", 0 },
        TYPE_LIST, AT(preload), 0, 0 },
    { { "read", "PATH", "", NULL, "Show this path read-only in the sandbox; may be repeated.", 0 },
        TYPE_LIST, AT(read), 0, 0 },
    { { "setup-code", "CODE|@FILE", "", NULL,
          "Python to run when a session starts, before anything else in it.", 0 },
        TYPE_TEXT, AT(setup_code), 0, 0 },
    { { "tools", "FILE", "", NULL,
          "Python whose documented functions code may call, in the sandbox; may be repeated.", 0 },
        TYPE_LIST, AT(tools), 0, 0 },
    { { "tool-data", "NAME=FILE", "", NULL,
          "A JSON file, bound as a variable of this name; may be repeated.", 0 },
        TYPE_LIST, AT(tool_data), 0, 0 },
    { { "tool", "NAME=PROGRAM", "", NULL,
          "A program of this machine, with your rights, that code may call as a function; may be "
          "repeated.",
          0 },
        TYPE_LIST, AT(tool), 0, 0 },
    { { "tool-timeout", "SECONDS", "60", NULL, "Time of one call of a tool of the host; 0: none.",
          0 },
        TYPE_SECONDS, AT(tool_timeout), 0, 1e7 },
    { { "max-tool-calls", "N", "1000", NULL,
          "Calls of tools of the host, those of child runs included.", 0 },
        TYPE_NUMBER, AT(max_tool_calls), 0, 1e9 },
    { { "sub-tools", "yes|no", "yes", NULL, "Child runs have the tools too.", 0 }, TYPE_SWITCH,
        AT(sub_tools), 0, 0 },
    { { "rules", "yes|no", "no", NULL,
          "Rules over what cells import, call and open: against accidents, not a wall.", 0 },
        TYPE_SWITCH, AT(rules), 0, 0 },
    { { "allow-import", "MODULE|PATH", "", NULL,
          "With rules: a module, or a directory of modules, that cells may import too; may be "
          "repeated.",
          0 },
        TYPE_LIST, AT(allow_import), 0, 0 },
    { { "pool", "N", "1", NULL,
          "Sandboxes to keep ready for the next start; unless set, from the second start on.", 0 },
        TYPE_NUMBER, AT(pool), 0, 10000 },
    { { "timeout", "SECONDS", "0", NULL, "Life of the session, or of the run; 0: no limit.", 0 },
        TYPE_SECONDS, AT(timeout), 0, 1e7 },
    { { "execute-timeout", "SECONDS", "0", NULL,
          "Time of one cell, which is then interrupted and keeps its state; 0: no limit. "
          "With rules: 30, unless set.",
          0 },
        TYPE_SECONDS, AT(execute_timeout), 0, 1e7 },
    { { "execute-timeout-cap", "SECONDS", "0", NULL,
          "What execute-timeout may be at most; 0: anything. With rules: 300, unless set.", 0 },
        TYPE_SECONDS, AT(execute_timeout_cap), 0, 1e7 },
    { { "broker-timeout", "SECONDS", "0", NULL,
          "Time that a call of the guest's code waits for its answer; 0: no limit. "
          "With rules: 30, unless set.",
          0 },
        TYPE_SECONDS, AT(broker_timeout), 0, 1e7 },
    { { "grace", "SECONDS", "2", NULL, "Time from the interrupt to the kill.", 0 }, TYPE_SECONDS,
        AT(grace), 0, 1e6 },
    { { "memory", "SIZE", "4G", NULL,
          "Memory of the sandbox; where there is no cgroup, of each process in it.", 0 },
        TYPE_SIZE, AT(memory), 33554432, 1e15 },
    { { "processes", "N", "128", NULL, "Processes and threads in the sandbox.", 0 }, TYPE_NUMBER,
        AT(processes), 4, 1e6 },
    { { "cpus", "N", "0", NULL,
          "Processors that the sandbox may keep busy, such as 0.5; needs a cgroup; 0: no limit.",
          0 },
        TYPE_DECIMAL, AT(cpus), 0, 1e4 },
    { { "cpu-time", "SECONDS", "0", NULL,
          "Processor time of each process in the sandbox, in whole seconds; 0: no limit.", 0 },
        TYPE_SECONDS, AT(cpu_time), 0, 1e7 },
    { { "open-files", "N", "1024", NULL, "Open files of each process in the sandbox.", 0 },
        TYPE_NUMBER, AT(open_files), 16, 1e6 },
    { { "file-size", "SIZE", "1G", NULL, "Largest file in the sandbox.", 0 }, TYPE_SIZE,
        AT(file_size), 1, 1e15 },
    { { "tmp-size", "SIZE", "256M", NULL, "The sandbox's private /tmp.", 0 }, TYPE_SIZE,
        AT(tmp_size), 65536, 1e15 },
    { { "output-limit", "SIZE", "1M", NULL,
          "Output of a cell that is kept, of each stream; the middle of more is left out.", 0 },
        TYPE_SIZE, AT(output_limit), 1024, 1e9 },

    { { "max-iterations", "N", "30", NULL, "Turns of the model.", 0 }, TYPE_NUMBER,
        AT(max_iterations), 1, 1e6 },
    { { "max-recursion-depth", "N", "2", NULL,
          "How deep child runs (rlm_query) may stand below each other; 0: none.", 0 },
        TYPE_NUMBER, AT(max_recursion_depth), 0, BUDGET_DEPTH_MAX },
    { { "delegate-max-iterations", "N", "8", NULL, "Turns of the model in a child run.", 0 },
        TYPE_NUMBER, AT(delegate_max_iterations), 1, 1e6 },
    { { "max-children", "N", "8", NULL, "Child runs at work at once, at each depth.", 0 },
        TYPE_NUMBER, AT(max_children), 1, 10000 },
    { { "max-llm-calls", "N", "50", NULL,
          "Model calls that the guest's code may make, the turns of child runs included.", 0 },
        TYPE_NUMBER, AT(max_llm_calls), 0, 1e9 },
    { { "max-cost", "DOLLARS", "0", NULL,
          "Money for the whole run, by the prices that are known; 0: no limit.", 0 },
        TYPE_DECIMAL, AT(max_cost), 0, 1e9 },
    { { "max-input-tokens", "N", "0", NULL, "Input tokens of the whole run; 0: no limit.", 0 },
        TYPE_NUMBER, AT(max_input_tokens), 0, 1e15 },
    { { "max-output-tokens", "N", "0", NULL, "Output tokens of the whole run; 0: no limit.", 0 },
        TYPE_NUMBER, AT(max_output_tokens), 0, 1e15 },
    { { "max-total-tokens", "N", "0", NULL, "All tokens of the whole run; 0: no limit.", 0 },
        TYPE_NUMBER, AT(max_total_tokens), 0, 1e15 },
    { { "max-output-chars", "N", "20000", NULL, "Output of a cell that the model is shown.", 0 },
        TYPE_NUMBER, AT(max_output_chars), 200, 1e9 },
    { { "compaction", "SHARE", "0", NULL,
          "Share of the model's window, such as 0.8, at which earlier turns give way to a summary; "
          "0: "
          "never.",
          0 },
        TYPE_DECIMAL, AT(compaction), 0, 1 },
    { { "model-window", "N", "0", NULL,
          "Tokens that the model can read, for compaction; 0: those of models that are known, else "
          "128000.",
          0 },
        TYPE_NUMBER, AT(model_window), 0, 1e9 },
    { { "max-errors", "N", "0", NULL,
          "Turns in a row whose code fails, after which the run ends; 0: no limit.", 0 },
        TYPE_NUMBER, AT(max_errors), 0, 1e6 },
    { { "context-type", "TYPE", "auto", NULL,
          "What the context becomes: auto, text, bytes, json, jsonl.", 0 },
        TYPE_TEXT, AT(context_type), 0, 0 },
    { { "include", "GLOB", "", NULL,
          "Take only matching files of a directory into the context; may be repeated.", 0 },
        TYPE_LIST, AT(include), 0, 0 },
    { { "instructions", "TEXT|@FILE", "", NULL, "Added to what the model is told.", 0 }, TYPE_TEXT,
        AT(instructions), 0, 0 },
    { { "answer-schema", "JSON|FILE", "", NULL,
          "A JSON Schema that the answer must fit; what does not is given back to the model.", 0 },
        TYPE_TEXT, AT(answer_schema), 0, 0 },
    { { "answer-field", "NAME[:TYPE]", "", NULL,
          "Instead of a schema: a field of the answer, of a JSON type (string, integer, number, "
          "boolean, array, object, null); may be repeated.",
          0 },
        TYPE_LIST, AT(answer_field), 0, 0 },
    { { "database", "FILE|none", "", "DROSTE_DATABASE",
          "The record of runs; by default runs.db in the data directory.", 0 },
        TYPE_TEXT, AT(database), 0, 0 },
#undef AT
};
_Static_assert(array_length(table) <= SETTINGS_MAX, "each setting has its place in `given`");

const droste_option *droste_option_at(size_t index)
{
    return index < array_length(table) ? &table[index].option : NULL;
}

static const struct setting *find(const char *name)
{
    for (size_t i = 0; i < array_length(table); i++)
        if (strcmp(table[i].option.name, name) == 0)
            return &table[i];
    return NULL;
}

static int wrong(const struct setting *s, const char *value, const char *source, struct error *err)
{
    return error_set(err, ERROR_ARGUMENT, "%s: '%.60s' is not a value for %s (%s)", source,
        s->option.secret ? "…" : value, s->option.name, s->option.value);
}

/* A number with an optional unit: bytes (K, M, G, T, powers of 1024), seconds (ms, s, m, h, d). */
static bool parse_number(const char *text, enum type type, double *out)
{
    static const struct {
        enum type type;
        const char *unit;
        double factor;
    } units[] = {
        { TYPE_SIZE, "K", 1024.0 },
        { TYPE_SIZE, "M", 1048576.0 },
        { TYPE_SIZE, "G", 1073741824.0 },
        { TYPE_SIZE, "T", 1099511627776.0 },
        { TYPE_SECONDS, "ms", 0.001 },
        { TYPE_SECONDS, "s", 1 },
        { TYPE_SECONDS, "m", 60 },
        { TYPE_SECONDS, "h", 3600 },
        { TYPE_SECONDS, "d", 86400 },
    };
    char *end;
    if (!isdigit((unsigned char)text[0]) && text[0] != '.')
        return false;
    *out = strtod(text, &end);
    if (!isfinite(*out) || (type == TYPE_NUMBER && *out != floor(*out)))
        return false;
    if (*end == '\0')
        return true;
    for (size_t i = 0; i < array_length(units); i++) {
        if (units[i].type != type || strcmp(units[i].unit, end) != 0)
            continue;
        *out *= units[i].factor;
        return true;
    }
    return false;
}

bool settings_parse_seconds(const char *text, double *seconds)
{
    return parse_number(text, TYPE_SECONDS, seconds);
}

static int set_number(struct settings *s, const struct setting *what, const char *value,
    const char *source, struct error *err)
{
    double number;
    if (!parse_number(value, what->type, &number))
        return wrong(what, value, source, err);
    if (number < what->min || number > what->max)
        return error_set(err, ERROR_ARGUMENT, "%s: %s is not between %g and %g", source, value,
            what->min, what->max);
    if (what->type == TYPE_SECONDS || what->type == TYPE_DECIMAL)
        *(double *)((char *)s + what->offset) = number;
    else
        *(int64_t *)(void *)((char *)s + what->offset) = (int64_t)number;
    return 0;
}

static int set_text(char **field, const char *value, struct error *err)
{
    char *copy = value[0] ? strdup(value) : NULL;
    if (value[0] && !copy)
        return error_memory(err);
    free(*field);
    *field = copy;
    return 0;
}

void list_clear(struct list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->items[i]);
    free(list->items);
    *list = (struct list){ 0 };
}

int list_add(struct list *list, const char *value, struct error *err)
{
    char *copy = strdup(value);
    char **items = copy ? realloc(list->items, (list->count + 1) * sizeof *items) : NULL;
    if (!items) {
        free(copy);
        return error_memory(err);
    }
    list->items = items;
    list->items[list->count++] = copy;
    return 0;
}

int list_add_end(struct list *list, struct error *err)
{
    char **items = realloc(list->items, (list->count + 1) * sizeof *items);
    if (!items)
        return error_memory(err);
    list->items = items;
    items[list->count] = NULL;
    return 0;
}

int list_add_all(struct list *list, const struct list *from, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < from->count; i++)
        rc = list_add(list, from->items[i], err);
    return rc;
}

static int set_switch(bool *field, const struct setting *what, const char *value,
    const char *source, struct error *err)
{
    static const char *const words[] = { "no", "yes", "false", "true", "off", "on", "0", "1" };
    for (size_t i = 0; i < array_length(words); i++) {
        if (strcmp(words[i], value) != 0)
            continue;
        *field = i % 2;
        return 0;
    }
    return wrong(what, value, source, err);
}

static int set(struct settings *s, const struct setting *what, const char *value,
    const char *source, struct error *err)
{
    void *field = (char *)s + what->offset;
    s->given[what - table] = true;
    switch (what->type) {
    case TYPE_TEXT:
        return set_text(field, value, err);
    case TYPE_LIST:
        if (value[0])
            return list_add(field, value, err);
        list_clear(field);
        return 0;
    case TYPE_SWITCH:
        return set_switch(field, what, value, source, err);
    case TYPE_NUMBER:
    case TYPE_DECIMAL:
    case TYPE_SECONDS:
    case TYPE_SIZE:
        return set_number(s, what, value, source, err);
    }
    return 0;
}

int settings_set(
    struct settings *s, const char *name, const char *value, const char *source, struct error *err)
{
    const struct setting *what = find(name);
    if (!what)
        return error_set(err, ERROR_ARGUMENT, "%s: there is no setting '%.60s'", source, name);
    return set(s, what, value, source, err);
}

bool settings_given(const struct settings *s, const char *name)
{
    const struct setting *what = find(name);
    return what && s->given[what - table];
}

int settings_init(struct settings *s, struct error *err)
{
    *s = (struct settings){ 0 };
    for (size_t i = 0; i < array_length(table); i++) {
        if (!table[i].option.fallback[0])
            continue;
        int rc = set(s, &table[i], table[i].option.fallback, "default", err);
        if (rc < 0)
            return rc;
    }
    memset(s->given, 0, sizeof s->given);
    return 0;
}

/* ---- for a run that is resumed ---- */

static bool is_saved(const struct setting *what)
{
    return !what->option.secret && strcmp(what->option.name, "database") != 0;
}

/* Where in the value a path begins that is as seen from the working directory; NULL: nowhere. */
static const char *find_relative(const struct setting *what, const char *value)
{
    const char *kind = what->option.value, *name = what->option.name;
    bool of_depth = strcmp(kind, "N=MODEL") == 0;
    if (of_depth || strcmp(kind, "MODEL") == 0) {
        const char *equals = of_depth ? strchr(value, '=') : NULL;
        value = equals ? equals + 1 : value;
        bool replay = strncmp(value, "replay:", 7) == 0, exec = strncmp(value, "exec:", 5) == 0;
        const char *path = value + (replay ? 7 : 5);
        bool relative = (replay || (exec && strchr(path, '/'))) && path[0] != '/';
        return relative ? path : NULL;
    }
    bool named = strcmp(kind, "NAME=FILE") == 0, program = strcmp(kind, "NAME=PROGRAM") == 0;
    if (named || program) {
        const char *path = strchr(value, '=');
        path = path ? path + 1 : value;
        return path[0] != '/' && (named || strchr(path, '/')) ? path : NULL;
    }
    bool is_path = strcmp(kind, "FILE") == 0 || strcmp(kind, "PATH") == 0;
    bool searched = strcmp(name, "python") == 0 && !strchr(value, '/');
    return is_path && !searched && value[0] != '/' ? value : NULL;
}

static void save_text(struct buf *out, const struct setting *what, const char *value)
{
    cleanup_buf struct buf whole = { 0 };
    const char *path = find_relative(what, value);
    cleanup_free char *directory = path ? getcwd(NULL, 0) : NULL;
    if (directory) {
        buf_append(&whole, value, (size_t)(path - value));
        buf_printf(&whole, "%s/%s", directory, path);
        value = buf_text(&whole);
    }
    json_append_string(out, value, strlen(value));
}

static void save_list(struct buf *out, const struct setting *what, const struct list *list)
{
    buf_putc(out, '[');
    for (size_t i = 0; i < list->count; i++) {
        buf_puts(out, i ? "," : "");
        save_text(out, what, list->items[i]);
    }
    buf_putc(out, ']');
}

static void save_value(struct buf *out, const struct setting *what, const void *field)
{
    switch (what->type) {
    case TYPE_TEXT:
        save_text(out, what, *(char *const *)field ? *(char *const *)field : "");
        return;
    case TYPE_LIST:
        save_list(out, what, field);
        return;
    case TYPE_SWITCH:
        buf_puts(out, *(const bool *)field ? "\"yes\"" : "\"no\"");
        return;
    case TYPE_NUMBER:
    case TYPE_SIZE:
        buf_printf(out, "\"%lld\"", (long long)*(const int64_t *)field);
        return;
    case TYPE_DECIMAL:
    case TYPE_SECONDS:
        buf_printf(out, "\"%.17g\"", *(const double *)field);
        return;
    }
}

/* A text that begins like the name of a file is kept from being one. */
static void save_content(struct buf *out, const char *text)
{
    cleanup_buf struct buf whole = { 0 };
    buf_printf(&whole, "%s%s", text && text[0] == '@' ? "\n" : "", text ? text : "");
    json_append_string(out, buf_text(&whole), whole.len);
}

void settings_save(const struct settings *s, const struct settings_texts *texts, struct buf *out)
{
    buf_putc(out, '{');
    for (size_t i = 0; i < array_length(table); i++) {
        const struct setting *what = &table[i];
        if (!s->given[i] || !is_saved(what))
            continue;
        buf_printf(out, "%s\"%s\":", out->data[out->len - 1] == '{' ? "" : ",", what->option.name);
        if (what->offset == offsetof(struct settings, setup_code))
            save_content(out, texts->setup_code);
        else if (what->offset == offsetof(struct settings, instructions))
            save_content(out, texts->instructions);
        else if (what->offset == offsetof(struct settings, answer_schema))
            save_content(out, texts->answer_schema);
        else
            save_value(out, what, (const char *)s + what->offset);
    }
    buf_putc(out, '}');
}

static int restore_one(
    struct settings *s, const char *name, struct json_object *value, struct error *err)
{
    if (!json_object_is_type(value, json_type_string))
        return error_set(
            err, ERROR_STORE, "the run's setting '%.60s' in the record is damaged", name);
    return settings_set(s, name, json_object_get_string(value), "the run's settings", err);
}

static int restore(
    struct settings *s, const char *name, struct json_object *value, struct error *err)
{
    int rc = 0;
    if (!json_object_is_type(value, json_type_array))
        return restore_one(s, name, value, err);
    rc = settings_set(s, name, "", "the run's settings", err); /* it takes the place of another */
    for (size_t i = 0; rc == 0 && i < json_object_array_length(value); i++)
        rc = restore_one(s, name, json_object_array_get_idx(value, i), err);
    return rc;
}

int settings_restore(struct settings *s, const char *json, size_t len, struct error *err)
{
    cleanup_json struct json_object *o = NULL;
    int rc = json_parse(json, len, &json_limits_large, &o, err);
    if (rc == 0 && !json_object_is_type(o, json_type_object))
        rc = error_set(err, ERROR_STORE, "the run's settings in the record are damaged");
    if (rc < 0)
        return rc;
    json_object_object_foreach(o, name, value)
    {
        rc = restore(s, name, value, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int settings_take_secrets(struct settings *s, const struct settings *from, struct error *err)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < array_length(table); i++) {
        const char *value =
            is_saved(&table[i])
                ? NULL
                : *(char *const *)(const void *)((const char *)from + table[i].offset);
        if (value)
            rc = set(s, &table[i], value, "here", err);
    }
    return rc;
}

void settings_free(struct settings *s)
{
    for (size_t i = 0; i < array_length(table); i++) {
        void *field = (char *)s + table[i].offset;
        if (table[i].type == TYPE_TEXT)
            free(*(char **)field);
        if (table[i].type == TYPE_LIST)
            list_clear(field);
    }
}

int settings_copy(struct settings *to, const struct settings *from, struct error *err)
{
    int rc = 0;
    *to = *from;
    for (size_t i = 0; i < array_length(table); i++) {
        void *field = (char *)to + table[i].offset;
        if (table[i].type == TYPE_TEXT)
            *(char **)field = NULL;
        if (table[i].type == TYPE_LIST)
            *(struct list *)field = (struct list){ 0 };
    }
    for (size_t i = 0; rc == 0 && i < array_length(table); i++) {
        void *field = (char *)to + table[i].offset;
        const void *source = (const char *)from + table[i].offset;
        if (table[i].type == TYPE_TEXT && *(char *const *)source)
            rc = set_text(field, *(char *const *)source, err);
        if (table[i].type == TYPE_LIST)
            rc = list_add_all(field, source, err);
    }
    return rc;
}

int settings_from_environment(struct settings *s, struct error *err)
{
    for (size_t i = 0; i < array_length(table); i++) {
        const char *names[] = { table[i].other_environment, table[i].option.environment };
        for (size_t k = 0; k < array_length(names); k++) {
            const char *value = names[k] ? getenv(names[k]) : NULL;
            if (!value || !value[0])
                continue;
            int rc = set(s, &table[i], value, names[k], err);
            if (rc < 0)
                return rc;
        }
    }
    return 0;
}

static char *trim(char *text)
{
    char *end = text + strlen(text);
    while (end > text && isspace((unsigned char)end[-1]))
        *--end = '\0';
    while (isspace((unsigned char)*text))
        text++;
    return text;
}

/* Nothing, a comment, a [section] (only for the reader's eye), or name = value. A value goes to the
 * end of its line, whatever is in it. */
static int take_line(struct settings *s, char *line, const char *source, struct error *err)
{
    char *name = trim(line), *equals = strchr(name, '=');
    size_t n = strlen(name);
    if (n == 0 || name[0] == '#' || name[0] == ';' || (name[0] == '[' && name[n - 1] == ']'))
        return 0;
    if (!equals || equals == name)
        return error_set(err, ERROR_CONFIG, "%s: expected `name = value`", source);
    *equals = '\0';
    name = trim(name);
    for (char *p = name; *p; p++)
        if (*p == '_')
            *p = '-';
    int rc = settings_set(s, name, trim(equals + 1), source, err);
    if (rc < 0 && err && err->code == ERROR_ARGUMENT)
        err->code = ERROR_CONFIG;
    return rc < 0 ? -(int)ERROR_CONFIG : 0;
}

int settings_from_file(struct settings *s, const char *path, bool may_be_absent, struct error *err)
{
    static const char byte_order_mark[] = "\xEF\xBB\xBF";
    cleanup_buf struct buf text = { 0 };
    /* EACCES is about the directories above: what cannot be seen is not this user's either. */
    if (may_be_absent && access(path, F_OK) < 0 && (errno == ENOENT || errno == EACCES))
        return 0;
    if (file_read(path, FILE_MAX, &text, err) < 0) {
        error_wrap(err, "reading the configuration");
        if (err)
            err->code = ERROR_CONFIG;
        return -(int)ERROR_CONFIG;
    }
    char *line = text.data, *end = text.data + text.len;
    if (strncmp(buf_text(&text), byte_order_mark, 3) == 0)
        line += 3;
    for (unsigned number = 1; line && line < end; number++) {
        char source[160], *newline = memchr(line, '\n', (size_t)(end - line));
        if (newline)
            *newline = '\0';
        snprintf(source, sizeof source, "%.120s, line %u", path, number);
        int rc = take_line(s, line, source, err);
        if (rc < 0)
            return rc;
        line = newline ? newline + 1 : end;
    }
    return 0;
}
