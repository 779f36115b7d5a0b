/* session/template.h: the memory of a session, from which other sessions continue.
 *
 * The guest writes its memory to a memory file of the host (guest/zygote/image.c). The host seals
 * the file and hands it, unread, to guests that the same zygote has started: each maps it within a
 * sandbox of its own. They share its pages until they write to them.
 */
#pragma once

#include "session/session.h"

/* Counted by references. */
struct template;

struct template *template_hold(struct template *t);
/* NULL is fine. */
void template_drop(struct template *t);

/* Saves the memory of the session, which continues afterwards. `done` comes later, with CELL_OK or
 * with the guest's refusal: open files, subprocesses or threads would be missing. *out can be used
 * once template_seal has succeeded, and may be dropped at any time. ERROR_UNSUPPORTED if the
 * environment has no templates; otherwise as for session_exec. */
int session_save(
    struct session *s, struct template **out, session_done_fn *done, void *arg, struct error *err);
/* After CELL_OK: from now on the file cannot change. */
int template_seal(struct template *t, struct error *err);

/* For session_open, before the greeting: lets a new guest continue from it. ERROR_ARGUMENT if it
 * has another zygote. */
int session_restore(struct session *s, struct template *t, struct error *err);
