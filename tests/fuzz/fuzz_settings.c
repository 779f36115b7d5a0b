/* A configuration file: it is taken, or refused with a reason; and then read once more on top. */
#include "fuzz.h"

#include "api/settings.h"

static void expect_sane(const struct settings *s)
{
    expect(s->concurrency >= 1 && s->retries >= 0 && s->max_iterations >= 1);
    expect(s->call_timeout >= 0 && s->timeout >= 0 && s->grace >= 0);
    expect(s->memory >= 33554432 && s->output_limit >= 1024);
    expect(s->env == NULL || s->env[0]);
    for (size_t i = 0; i < s->read.count; i++)
        expect(s->read.items[i][0]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *path = input_file(data, size);
    struct settings s;
    expect(settings_init(&s, NULL) == 0);
    for (int i = 0; i < 2; i++) {
        struct error err = { 0 };
        int rc = settings_from_file(&s, path, false, &err);
        if (rc < 0) {
            expect_error(rc, &err);
            expect(err.code == ERROR_CONFIG);
        }
        expect_sane(&s);
    }
    settings_free(&s);
    return 0;
}
