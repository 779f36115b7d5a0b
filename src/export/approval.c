/* export/approval.c: a call that asks for an approval, as JSON. */
#include "base/buf.h"
#include "base/json/fields.h"
#include "base/json/json.h"
#include "droste.h"
#include "base/error.h"

int droste_approval_json(
    const droste_approval *a, droste_piece_fn *fn, void *arg, droste_error *err)
{
    cleanup_buf struct buf out = { 0 };
    field_open(&out, NULL, '{');
    field_int(&out, "id", a->id);
    field_string(&out, "run", a->run);
    field_string(&out, "root", a->root);
    field_string(&out, "tool", a->tool);
    if (json_check(a->arguments, a->len, &json_limits_large, NULL) == 0)
        field_json(&out, "arguments", a->arguments);
    else
        field_text(&out, "arguments", a->arguments, a->len);
    field_time(&out, "asked", a->asked_ms);
    field_time(&out, "until", a->until_ms);
    field_bool(&out, "repeated", a->repeated);
    field_bool(&out, "interrupted", a->interrupted);
    field_string(&out, "decision", a->decision);
    field_time(&out, "decided", a->decided_ms);
    field_string(&out, "by", a->decided_by);
    field_string(&out, "reason", a->decision_reason);
    field_time(&out, "begun", a->begun_ms);
    field_close(&out, '}');
    if (buf_failed(&out))
        return error_memory(err);
    fn(arg, buf_text(&out), out.len);
    return 0;
}
