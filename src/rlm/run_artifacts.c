/* rlm/run_artifacts.c: saves and records the artifacts of a run that has ended. */
#include <unistd.h>

#include "base/os/file.h"
#include "rlm/run.h"

/* Reads what was saved, if the record has room for it; otherwise *out stays empty. */
static int artifact_contents(struct rlm_run *r, const struct artifact *artifact, int fd,
    struct buf *out, droste_value *value, struct error *err)
{
    bool fits = artifact->size <= STORE_VALUE_MAX &&
                budget_reserve_result(&r->tree->budget, (size_t)artifact->size);
    if (!fits)
        return 0;
    if (lseek(fd, 0, SEEK_SET) < 0)
        return error_set_errno(err, ERROR_IO, "reading %.300s", artifact->path);
    int rc = file_read_fd(fd, artifact->path, STORE_VALUE_MAX, out, err);
    *value = (droste_value){ .data = buf_text(out), .len = out->len };
    return rc;
}

static int artifact_record(void *arg, const struct artifact *artifact, int fd, struct error *err)
{
    struct rlm_run *r = arg;
    cleanup_buf struct buf contents = { 0 };
    droste_record_artifact kept = {
        .name = artifact->name, .size = (int64_t)artifact->size, .sha256 = artifact->hash
    };
    if (!r->tree->o.store || !r->result.run[0])
        return 0;
    int rc = artifact_contents(r, artifact, fd, &contents, &kept.value, err);
    return rc < 0 ? rc : store_artifact_add(r->tree->o.store, r->result.run, &kept, err);
}

static void artifacts_done(void *arg)
{
    struct rlm_run *r = arg;
    r->artifacts_done(r->artifacts_arg);
}

/* Why there is nothing to copy from; 0: there is. */
static int artifacts_check(const struct rlm_run *r, struct error *err)
{
    if (r->result.status == RLM_CANCELLED)
        return error_set(err, ERROR_CANCELLED, "no artifacts were saved: the run was cancelled");
    if (!r->session || !session_is_alive(r->session))
        return error_set(err, ERROR_LOST, "no artifacts were saved: the sandbox has ended");
    return 0;
}

bool rlm_save_artifacts(struct rlm_run *r, void (*done)(void *arg), void *arg)
{
    const struct rlm_options *o = &r->tree->o;
    struct artifact_options options = { .loop = r->tree->loop,
        .session = r->session,
        .patterns = o->artifacts,
        .directory = o->artifacts_dir,
        .record = artifact_record,
        .done = artifacts_done,
        .arg = r };
    struct artifact_list *list = &r->result.artifacts;
    if (!o->artifacts || o->artifacts->count == 0 || o->again || r->artifacts ||
        r->result.status == RLM_INTERRUPTED)
        return false;
    r->artifacts_done = done;
    r->artifacts_arg = arg;
    return artifacts_check(r, &list->error) == 0 &&
           artifacts_start(&options, list, &r->artifacts, &list->error) == 0;
}

void rlm_save_artifacts_cancel(struct rlm_run *r)
{
    artifacts_cancel(r->artifacts);
}
