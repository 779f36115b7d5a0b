/* jail/builder.c: appends operations and strings to a plan. */
#include "jail/builder.h"

#include <string.h>

uint32_t plan_add_text(struct builder *b, const char *text)
{
    if (!text)
        return 0;
    size_t at = b->text.len;
    buf_append(&b->text, text, strlen(text) + 1);
    return (uint32_t)at;
}

uint32_t plan_add_bytes(struct builder *b, const void *bytes, size_t len)
{
    size_t at = b->text.len;
    buf_append(&b->text, bytes, len);
    buf_putc(&b->text, '\0');
    return (uint32_t)at;
}

struct jail_op *plan_add(struct builder *b, enum jail_op_kind kind, const char *t0, const char *t1,
    uint64_t a, uint64_t value)
{
    struct jail_op op = {
        .kind = (uint16_t)kind,
        .stage = (uint16_t)b->stage,
        .text = { plan_add_text(b, t0), plan_add_text(b, t1), 0 },
        .a = a,
        .b = value,
    };
    static struct jail_op
        nowhere; /* a dummy after running out of memory, which plan_finish reports */
    buf_append(&b->ops, &op, sizeof op);
    return b->ops.failed ? &nowhere : (struct jail_op *)(b->ops.data + b->ops.len) - 1;
}

void plan_add_mount(
    struct builder *b, const char *type, const char *target, const char *data, uint64_t flags)
{
    uint32_t at = plan_add_text(b, data);
    plan_add(b, JAIL_MOUNT, type, target, flags, 0)->text[2] = at;
}

void plan_begin(struct builder *b)
{
    *b = (struct builder){ 0 };
    buf_append(&b->text, "", 1); /* offset 0 is the empty string */
}

int plan_finish(
    struct builder *b, const struct jail_plan *fields, struct jail_plan **out, struct error *err)
{
    struct jail_plan head = *fields;
    cleanup_buf struct buf block = { 0 };
    head.count = (uint32_t)(b->ops.len / sizeof(struct jail_op));
    head.size = (uint32_t)(sizeof head + b->ops.len + b->text.len);
    buf_append(&block, &head, sizeof head);
    buf_append(&block, b->ops.data, b->ops.len);
    buf_append(&block, b->text.data, b->text.len);
    bool failed = b->ops.failed || b->text.failed || block.failed;
    buf_free(&b->ops);
    buf_free(&b->text);
    *out = failed ? NULL : (struct jail_plan *)(void *)buf_steal(&block);
    return *out ? 0 : error_memory(err);
}

void plan_add_rule(struct builder *b, const char *path, uint64_t rights)
{
    plan_add(b, JAIL_RULE, path, NULL, rights, 0);
}
