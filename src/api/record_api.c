/* api/record_api.c: the record of runs, for programs that read it. */
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/cleanup.h"
#include "base/os/file.h"

const char *droste_record_path(droste *d, droste_error *err)
{
    cleanup_free char *home = NULL;
    struct error why = { 0 };
    struct buf path = { 0 };
    const char *given = d->settings.database;
    int rc = given ? 0 : file_data_home(&home, &why);
    if (rc == 0 && given)
        buf_puts(&path, given);
    else if (rc == 0)
        buf_printf(&path, "%s/runs.db", home);
    char *text = rc == 0 ? buf_steal(&path) : NULL;
    if (!text) {
        api_fail(err, &why, rc < 0 ? rc : error_memory(&why));
        return NULL;
    }
    free(d->record_path);
    return d->record_path = text;
}
