/* api/settings.h: every setting once, by name.
 *
 * The table in settings_table.c feeds droste_set, the configuration file, the environment variables, the
 * command line's flags and its help, and the documentation.
 */
#ifndef DROSTE_API_SETTINGS_H
#define DROSTE_API_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/list.h"
#include "droste.h"

enum { SETTINGS_MAX = 128 };

struct settings {
    /* models */
    char *model, *sub_model, *base_url, *api_key, *ca_file, *record, *cache, *prices;
    char *anthropic_key, *anthropic_url, *gemini_key, *gemini_url, *azure_key, *azure_url,
        *azure_version, *openrouter_key, *openrouter_url, *portkey_key, *portkey_url, *vllm_key,
        *vllm_url;
    bool stream, deduplicate;
    struct list sampling, sub_sampling;
    int64_t concurrency, model_concurrency, retries, max_tokens, sub_max_tokens;
    double call_timeout, connect_timeout, first_timeout, stall_timeout;
    /* sandboxes */
    char *env, *isolation, *sandbox_users, *python;
    struct list preload, read, include, allow_import, depth_model, answer_field;
    struct list tools, tool_data, tool, restore_name;
    bool rules, sub_tools, helpers, literal_grep, setup_each, standard_imports;
    char *setup_code;
    char *image, *snapshot, *network, *user, *gpus, *pull, *seccomp, *reuse, *region, *app_name,
        *sandbox, *on_close;
    struct list env_var, label, network_allow;
    double idle_timeout;
    bool read_only_root;
    int64_t disk_size;
    double timeout, execute_timeout, execute_timeout_cap, broker_timeout, grace, cpus, cpu_time,
        tool_timeout;
    int64_t pool, memory, processes, open_files, file_size, tmp_size, output_limit;
    char *layout;
    char *volume_name, *volume_root, *volume_subpath;
    int64_t volume_size, volume_files;
    char *repo_url, *repo_ref;
    struct list context_path;
    double repo_timeout;
    int64_t workspace_size, workspace_files, context_size;
    /* runs */
    int64_t max_iterations, max_recursion_depth, delegate_max_iterations, max_children,
        max_llm_calls, max_input_tokens, max_output_tokens, max_total_tokens, max_output_chars,
        max_errors, max_tool_calls, max_record_size, model_window;
    double max_cost, compaction;
    char *context_type, *instructions, *system_prompt, *answer_schema, *database;
    /* which of them somebody has set, by their place in the table */
    bool given[SETTINGS_MAX];
};

int settings_init(struct settings *s, struct error *err);
void settings_free(struct settings *s);
/* *to, which is free of anything to be freed, becomes the same; after an error too it is to be freed. */
int settings_copy(struct settings *to, const struct settings *from, struct error *err);
/* `source` names where the value comes from, for errors: "--retries", "OPENAI_BASE_URL"… */
int settings_set(
    struct settings *s, const char *name, const char *value, const char *source, struct error *err);
/* What is told of a setting; NULL: there is none of this name. */
const droste_option *settings_option(const char *name);
/* Tokens of an answer that code asks for; 0: the provider's default. */
int64_t settings_sub_max_tokens(const struct settings *s);
/* The value of one that is a text; NULL: it has none, is a secret, or is no text. */
const char *settings_text(const struct settings *s, const char *name);
/* True unless it has its default because nobody said otherwise. */
bool settings_given(const struct settings *s, const char *name);
/* What somebody has set, as a JSON object of names and values that settings_restore takes; relative
 * paths are made whole, and the texts are what was in the files that were named. Neither keys nor the
 * record's own place are in it. */
struct settings_texts {
    const char *setup_code, *instructions, *system_prompt, *answer_schema; /* NULL: none */
    const char *commit; /* that repo-ref was; NULL: there is no repository */
};
void settings_save(const struct settings *s, const struct settings_texts *texts, struct buf *out);
int settings_restore(struct settings *s, const char *json, size_t len, struct error *err);
/* The keys, and where the record is, from another one. */
int settings_take_secrets(struct settings *s, const struct settings *from, struct error *err);
int settings_from_environment(struct settings *s, struct error *err);
/* ERROR_CONFIG with the line. A missing file is fine if `may_be_absent`. */
int settings_from_file(struct settings *s, const char *path, bool may_be_absent, struct error *err);

#endif
