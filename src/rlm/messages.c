/* rlm/messages.c: the messages between a run and its model. */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "rlm/prompt.h"
#include "rlm/run.h"

int message_add(struct rlm_run *r, const char *role, char *text, size_t len, struct error *err)
{
    if (!text || !array_room(r->messages, r->message_count, &r->message_cap)) {
        free(text);
        return error_memory(err);
    }
    r->messages[r->message_count++] = (struct message){ .role = role, .text = text, .len = len };
    return 0;
}

void message_free(struct message *m)
{
    free(m->text);
    images_free(&m->images);
}

int message_add_buf(struct rlm_run *r, const char *role, struct buf *text, struct error *err)
{
    size_t len = text->len;
    return message_add(r, role, buf_steal(text), len, err);
}

/* Some providers refuse an assistant's message without text. */
int message_add_reply(struct rlm_run *r, const char *text, size_t len, struct error *err)
{
    static const char nothing[] = "(no reply)";
    return len > 0 ? message_add(r, "assistant", text_copy(text, len), len, err)
                   : message_add(r, "assistant", strdup(nothing), sizeof nothing - 1, err);
}

static int add_next_question(struct rlm_run *r, struct error *err)
{
    struct buf text = { 0 };
    struct prompt_next next = { .answer = r->tree->o.after->result.answer,
        .question = r->question,
        .lost = r->chat.lost,
        .contexts = r->place.contexts,
        .first = r->chat.own,
        .variables = r->variables,
        .turns = r->place.iterations };
    prompt_next_question(&text, &next);
    return message_add_buf(r, "user", &text, err);
}

int message_add_first(struct rlm_run *r, struct error *err)
{
    struct buf text = { 0 };
    if (r->message_count > 0)
        return add_next_question(r, err);
    struct prompt_session session = { .system = r->tree->system_prompt,
        .model = r->model ? r->model : lm_name(r->lm),
        .instructions = r->tree->instructions,
        .volume = session_volume(r->session),
        .workspace = r->tree->o.session.spec.workspace,
        .answer = run_answer_type(r),
        .rules = r->tree->o.session.rules,
        .no_standard_imports = r->tree->o.session.no_standard_imports,
        .children = run_may_have_children(r),
        .several = run_context_count(r) > 1,
        .helpers = !r->tree->o.session.no_helpers,
        .literal_grep = r->tree->o.session.literal_grep,
        .about = session_about(r->session),
        .images = images_most(r) > 0,
        .prepared = &r->prepared,
        .contexts = r->place.contexts };
    prompt_system(&text, &session);
    int rc = message_add_buf(r, "system", &text, err);
    if (rc < 0)
        return rc;
    prompt_question(&text, r->question, r->place.contexts, r->variables, r->place.iterations);
    rc = images_take_contexts(r, err);
    images_tell(r, "of the context", &text);
    if (rc == 0)
        rc = message_add_buf(r, "user", &text, err);
    if (rc == 0)
        images_attach(r);
    return rc;
}
