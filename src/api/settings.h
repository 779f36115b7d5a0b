/* api/settings.h: sets, reads, copies, saves and restores settings by name (settings_table.h). */
#pragma once

#include "api/settings_table.h"
#include "base/buf.h"
#include "base/error.h"

struct json_object;

int settings_init(struct settings *s, struct error *err);
void settings_free(struct settings *s);
/* Copies into `to`, which must own nothing. Free it also after an error. */
int settings_copy(struct settings *to, const struct settings *from, struct error *err);
/* `source` names the origin of the value for errors: "--retries", "OPENAI_BASE_URL"… */
int settings_set(
    struct settings *s, const char *name, const char *value, const char *source, struct error *err);
/* The same for a setting of the table. */
int setting_set(struct settings *s, const struct setting *what, const char *value,
    const char *source, struct error *err);
/* Sets names and values, alternating, up to NULL. `words` may be NULL. */
int settings_set_all(struct settings *s, const char *const *words, struct error *err);
/* The description of a setting; NULL: there is no setting of this name. */
const droste_option *settings_option(const char *name);
/* Maximum tokens of an answer to guest code; 0: the provider's default. */
int64_t settings_sub_max_tokens(const struct settings *s);
/* The value of a text setting, the last one of a list; NULL: it has no value, is a secret, or is
 * not a text. */
const char *settings_text(const struct settings *s, const char *name);
/* The value of a setting that is a number; false: it is none, or was not set. */
bool settings_number(const struct settings *s, const char *name, double *value);
/* Gives the setting at this place in `given` its default, as if it was never set. */
int settings_reset(struct settings *s, size_t index, struct error *err);
/* Its place in `given`; it exists. */
size_t settings_index(const char *name);
/* Whether the values of a list were removed, at this place in `given`. */
bool settings_is_emptied(const struct settings *s, size_t index);
/* Whether the setting was set, even to its default. */
bool settings_is_set(const struct settings *s, const char *name);

/* The contents of files that settings name, for settings_save. NULL: none. */
struct settings_texts {
    const char *setup_code, *instructions, *system_prompt, *answer_schema;
    const char *commit;   /* the commit of repo-ref */
    const char *template; /* the template with its digest */
};
/* Appends all settings that were set, as a JSON object for settings_restore. Relative paths become
 * absolute. Leaves out secrets and the path of the record. */
void settings_save(const struct settings *s, const struct settings_texts *texts, struct buf *out);
int settings_restore(struct settings *s, const char *json, size_t len, struct error *err);
/* One setting of such an object. `source` is for errors. */
int settings_restore_value(struct settings *s, const char *name, struct json_object *value,
    const char *source, struct error *err);
/* Copies the secrets and the path of the record. */
int settings_take_secrets(struct settings *s, const struct settings *from, struct error *err);

int settings_from_environment(struct settings *s, struct error *err);
/* ERROR_CONFIG with the line. A missing file is not an error if `may_be_absent`. */
int settings_from_file(struct settings *s, const char *path, bool may_be_absent, struct error *err);
