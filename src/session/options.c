/* session/options.c: what a session is opened with: defaults, what fits together, and how the guest
 * is told of it in HELLO.
 */
#include "session/options.h"

#include <string.h>

#include "base/json.h"

void session_options_init(struct session_options *o)
{
    *o = (struct session_options){
        .spec = { .isolation = ISOLATION_AUTO, .limits = jail_default_limits },
        .timeout = 0,
        .execute_timeout = 0,
        .grace = 2,
        .output_limit = 1u << 20,
    };
}

int session_check_timeout(double seconds, double cap, struct error *err)
{
    if (cap <= 0 || (seconds > 0 && seconds <= cap))
        return 0;
    if (seconds > 0)
        return error_set(err, ERROR_ARGUMENT,
            "execute-timeout is %g s, but execute-timeout-cap allows no more than %g s; lower the "
            "one or raise the other",
            seconds, cap);
    return error_set(err, ERROR_ARGUMENT,
        "execute-timeout is 0, no limit, but execute-timeout-cap allows no more than %g s; give a "
        "limit, or execute-timeout-cap 0",
        cap);
}

static void put_list(struct buf *head, const char *key, const char *const *words, size_t count)
{
    buf_printf(head, "\"%s\":[", key);
    for (size_t i = 0; i < count; i++) {
        buf_puts(head, i ? "," : "");
        json_append_string(head, words[i], strlen(words[i]));
    }
    buf_putc(head, ']');
}

void session_write_hello(const struct session_options *o, struct buf *head)
{
    size_t count = 0;
    const char *const *fields = o->answer ? schema_names(o->answer, &count) : NULL;
    if (!o->rules && count == 0 && !o->tools)
        return; /* the guest need not decode it */
    buf_putc(head, '{');
    if (count > 0) {
        put_list(head, "output_fields", fields, count);
        buf_puts(head, o->rules || o->tools ? "," : "");
    }
    if (o->rules) {
        buf_puts(head, "\"rules\":{");
        put_list(head, "allow", o->allow_imports, o->allow_import_count);
        buf_putc(head, ',');
        put_list(head, "read", o->spec.read_paths, o->spec.read_path_count);
        buf_puts(head, o->tools ? "}," : "}");
    }
    if (o->tools)
        buf_printf(head, "\"tools\":%s", o->tools);
    buf_putc(head, '}');
}
