/* env/common/owner_labels.c: creates and judges the labels of remote sandboxes. */
#include "env/common/owner_labels.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/json/fields.h"
#include "base/json/json.h"
#include "base/os/file.h"
#include "base/os/owner.h"

static void this_machine(struct buf *out)
{
    char name[65] = "";
    /* In containers the machine id is often empty or the same everywhere; the host name is not. */
    file_read("/etc/machine-id", 64, out, NULL);
    out->len = out->data ? strcspn(out->data, "\n") : 0;
    gethostname(name, sizeof name - 1);
    buf_printf(out, " %s", name);
}

void owner_labels(struct buf *owner, struct buf *machine)
{
    struct owner self;
    owner_self(&self);
    buf_printf(owner, "%lld %lld %lld %s", (long long)self.pid, (long long)self.start,
        (long long)self.space, self.boot);
    this_machine(machine);
}

void owner_labels_write(struct buf *out, const struct list *own)
{
    cleanup_buf struct buf owner = { 0 }, machine = { 0 };
    owner_labels(&owner, &machine);
    for (size_t i = 0; own && i < own->count; i++) {
        const char *equals = strchr(own->items[i], '=');
        if (!equals)
            continue;
        field_text(out, NULL, own->items[i], (size_t)(equals - own->items[i]));
        buf_putc(out, ':');
        json_append_string(out, equals + 1, strlen(equals + 1));
    }
    field_string(out, LABEL_OWNER, buf_text(&owner));
    field_string(out, LABEL_MACHINE, buf_text(&machine));
    out->failed |= buf_failed(&owner) || buf_failed(&machine);
}

bool owner_labels_are_orphan(const char *owner, const char *machine)
{
    struct owner of = { 0 }, self;
    cleanup_buf struct buf here = { 0 };
    long long pid, start, space;
    this_machine(&here);
    if (strcmp(machine, buf_text(&here)) != 0 ||
        sscanf(owner, "%lld %lld %lld %39s", &pid, &start, &space, of.boot) != 4)
        return false;
    of.pid = pid;
    of.start = start;
    of.space = space;
    owner_self(&self);
    return owner_is_gone(&of, &self);
}
