/* tests/attack/exec_as.c: what `droste exec --json` does, in a session that has become another way:
 *
 *     exec_as forked|rolled-back|templated [--SETTING VALUE ...] FILE
 *
 * It uses the public interface only. tests/attack/run measures its memory and descriptors as it
 * measures those of `droste`.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/os/file.h"
#include "droste.h"
#include "droste/template.h"

enum { CODE_MAX = 1 << 24 };

static int become_forked(droste *d, droste_session **out, droste_error *err)
{
    droste_session *parent = NULL;
    int rc = droste_session_open(d, &parent, err);
    if (rc == 0)
        rc = droste_session_fork(parent, out, err);
    droste_session_close(parent);
    return rc;
}

static int become_rolled_back(droste *d, droste_session **out, droste_error *err)
{
    static const char end[] = "import os; os._exit(0)";
    droste_result *r = NULL;
    unsigned checkpoint = 0;
    int rc = droste_session_open(d, out, err);
    if (rc == 0)
        rc = droste_session_checkpoint(*out, &checkpoint, err);
    if (rc == 0)
        rc = droste_session_exec(*out, end, strlen(end), 0, &r, err);
    droste_result_free(r);
    return rc < 0 ? rc : droste_session_rollback(*out, checkpoint, err);
}

static int become_templated(droste *d, droste_session **out, droste_error *err)
{
    droste_session *first = NULL;
    droste_template *template = NULL;
    int rc = droste_session_open(d, &first, err);
    if (rc == 0)
        rc = droste_session_template(first, &template, err);
    droste_session_close(first);
    if (rc == 0)
        rc = droste_session_start_from(template, NULL, out, err);
    droste_template_free(template);
    return rc;
}

static const struct {
    const char *name;
    int (*become)(droste *d, droste_session **out, droste_error *err);
} ways[] = {
    { "forked", become_forked },
    { "rolled-back", become_rolled_back },
    { "templated", become_templated },
};

static int exec_as(droste *d, const char *way, const struct buf *code, droste_error *err)
{
    droste_session *s = NULL;
    droste_result *r = NULL;
    int rc = -1;
    for (size_t i = 0; i < array_length(ways); i++)
        if (strcmp(ways[i].name, way) == 0)
            rc = ways[i].become(d, &s, err);
    if (rc == 0)
        rc = droste_session_exec(
            s, buf_text(code), code->len, DROSTE_ECHO | DROSTE_RESULTS, &r, err);
    if (rc == 0)
        puts(droste_result_json(r, NULL));
    droste_result_free(r);
    droste_session_close(s);
    return rc;
}

int main(int argc, char **argv)
{
    cleanup_buf struct buf code = { 0 };
    droste *d = NULL;
    droste_error err = { 0 };
    if (argc < 3 || argc % 2 == 0 || file_read(argv[argc - 1], CODE_MAX, &code, NULL) < 0)
        return EXIT_FAILURE;
    int rc = droste_new(&d, &err);
    for (int i = 2; rc == 0 && i + 1 < argc; i += 2)
        rc = droste_set(d, argv[i] + strlen("--"), argv[i + 1], &err);
    if (rc == 0)
        rc = exec_as(d, argv[1], &code, &err);
    if (rc < 0)
        fprintf(stderr, "%s\n", err.text);
    droste_free(d);
    return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
