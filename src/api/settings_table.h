/* api/settings_table.h: every setting once: its field, its type, its default and its help.
 *
 * The table feeds droste_set, the configuration file, the environment variables, the flags of the
 * command line with their help, and the documentation.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/list.h"
#include "base/rate.h"
#include "droste.h"

enum { SETTINGS_MAX = 192 };

struct settings {
    /* models */
    char *model, *sub_model, *base_url, *api_key, *ca_file, *record, *cache, *prices;
    char *anthropic_key, *anthropic_url, *gemini_key, *gemini_url, *azure_key, *azure_url,
        *azure_version, *openrouter_key, *openrouter_url, *portkey_key, *portkey_url, *vllm_key,
        *vllm_url;
    bool stream, deduplicate;
    struct list sampling, sub_sampling;
    int64_t concurrency, model_concurrency, retries, max_tokens, sub_max_tokens;
    struct rate_amount rate; /* of one model in a minute */
    double call_timeout, connect_timeout, first_timeout, stall_timeout;
    /* sandboxes */
    char *env, *template, *isolation, *sandbox_users, *python;
    struct list preload, read, include, allow_import, depth_model, answer_field;
    struct list tools, tool_data, tool, mcp_server, restore_name, ask;
    char *ask_default, *ask_webhook, *ask_webhook_secret;
    bool rules, sub_tools, helpers, literal_grep, setup_each, standard_imports, warm_up, huge_pages,
        loopback, epoll;
    char *setup_code;
    char *image, *snapshot, *network, *user, *gpus, *pull, *seccomp, *reuse, *region, *app_name,
        *sandbox, *on_close, *checkpoint;
    struct list device, env_var, label, network_allow, allow_net, secret;
    char *net_ca;
    struct list packages, requirements, find_links, package_hosts;
    char *package_index;
    bool sdists, allow_install, show_images;
    struct list image_url;
    int64_t max_installs;
    int64_t packages_size;
    double packages_timeout;
    int64_t max_net_bytes, max_net_requests;
    double net_timeout;
    double idle_timeout;
    bool read_only_root;
    char *root, *rootfs;
    int64_t disk_size;
    double start_wait, timeout, execute_timeout, execute_timeout_cap, broker_timeout, grace, cpus,
        cpu_time, tool_timeout, ask_timeout;
    int64_t pool, checkpoint_memory, memory, processes, open_files, file_size, tmp_size,
        output_limit, results_limit, result_size;
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
        max_images, candidates, max_errors, max_tool_calls, max_record_size, max_results_size,
        model_window;
    struct list artifacts;
    char *artifacts_dir;
    double max_cost, ask_cost, compaction;
    char *select;
    char *traceparent, *context_type, *instructions, *system_prompt, *answer_schema, *client_tools,
        *database;
    /* which of them were set, by their index in the table */
    bool given[SETTINGS_MAX];
};

enum type {
    TYPE_TEXT,
    TYPE_LIST,
    TYPE_NAMES, /* a list; one value may have several items, separated by commas */
    TYPE_SWITCH,
    TYPE_NUMBER,
    TYPE_DECIMAL,
    TYPE_SECONDS,
    TYPE_SIZE
};

struct setting {
    droste_option option;
    enum type type;
    size_t offset;                 /* of its field in struct settings */
    double min, max;               /* of numbers, seconds and sizes */
    const char *other_environment; /* a variable with lower precedence than the option's; or NULL */
};

extern const struct setting settings_table[];
extern const size_t settings_count;
