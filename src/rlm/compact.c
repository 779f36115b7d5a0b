/* rlm/compact.c: shortens a conversation that exceeds the model's context window.
 *
 *   before a turn: too long? ─► ask for a summary ─► system, question, summary, the last turn
 *                                     └─ not shorter ─► cut the oldest outputs instead
 *
 * The guest then has the original conversation in `history`. The record has the summary's request
 * and answer as a call of the loop, in the turn that has just ended. A resumed run reads from the
 * record whether there was a summary instead of deciding again.
 */
#include <stdlib.h>
#include <string.h>

#include "lm/context_window.h"
#include "lm/request.h"
#include "rlm/prompt.h"
#include "rlm/run.h"

/* The system prompt and the question are kept. */
enum { FIRST = 2, OUTPUT_KEPT = 600 };

/* ---- how long it is ---- */

/* Uses the provider's count for the last call, plus one token per four bytes of new text. */
static int64_t tokens_now(const struct rlm_run *r)
{
    size_t bytes = 0;
    for (size_t i = r->counted; i < r->message_count; i++)
        bytes += r->messages[i].len + LM_IMAGE_WEIGHT * r->messages[i].images.count;
    return r->counted_tokens + (int64_t)(bytes / 4);
}

static int64_t tokens_wanted(const struct rlm_run *r)
{
    int64_t window = r->tree->o.window;
    if (window <= 0)
        window = lm_window(r->place.model ? r->place.model : lm_name(r->lm));
    return (int64_t)(r->tree->o.compaction * (double)window);
}

void compact_count(struct rlm_run *r, const struct lm_usage *usage)
{
    if (usage->input_tokens <= 0 || r->compacting)
        return;
    r->counted = r->message_count;
    r->counted_tokens = usage->input_tokens;
}

/* Returns the start of the last turn: the last message of the model. */
static size_t last_turn(const struct rlm_run *r)
{
    size_t i = r->message_count;
    while (i > FIRST && strcmp(r->messages[i - 1].role, "assistant") != 0)
        i--;
    return i > FIRST ? i - 1 : FIRST;
}

/* Counts messages between the question and the last turn that are not summaries. */
static bool has_old_turns(const struct rlm_run *r)
{
    return last_turn(r) > FIRST + (r->summaries > 0);
}

bool compact_is_due(struct rlm_run *r)
{
    struct recorded_call *next =
        r->resume ? replay_log_next_root(resume_recorded(r->resume)) : NULL;
    if (next)
        return next->summary;
    if (r->tree->o.compaction <= 0 || r->tree->o.again || !has_old_turns(r))
        return false;
    int64_t wanted = tokens_wanted(r), now = tokens_now(r);
    /* Does not retry where the last attempt did not help. */
    return now >= wanted && now >= r->compacted_tokens + wanted / 4;
}

/* ---- history ---- */

bool compact_has_history(const struct rlm_run *r)
{
    return !session_about(r->session);
}

/* Appends new messages before any of them is removed or cut. The first time these are all
 * messages, which replace the questions and answers of the history. */
static int keep_history(struct rlm_run *r, struct error *err)
{
    struct chat *c = &r->chat;
    int rc = 0;
    if (!r->shortened) {
        json_object_put(c->history);
        c->history = json_object_new_array();
        r->in_history = 1;
        if (!c->history)
            return error_memory(err);
    }
    for (size_t i = r->in_history; rc == 0 && i < r->message_count; i++)
        rc = chat_say(c, r->messages[i].role, r->messages[i].text, r->messages[i].len, err);
    r->shortened = true;
    r->in_history = r->message_count;
    return rc;
}

void compact_take_over(struct rlm_run *r, const struct rlm_run *last)
{
    r->counted = last->counted;
    r->counted_tokens = last->counted_tokens;
    r->compacted_tokens = last->compacted_tokens;
    r->summaries = last->summaries;
    r->shortened = last->shortened;
    r->in_history = last->in_history;
}

/* ---- making it shorter ---- */

static size_t bytes_between(const struct rlm_run *r, size_t from, size_t to)
{
    size_t bytes = 0;
    for (size_t i = from; i < to; i++)
        bytes += r->messages[i].len + LM_IMAGE_WEIGHT * r->messages[i].images.count;
    return bytes;
}

/* Puts the summary in place of the messages before the last turn. */
static int put_summary(struct rlm_run *r, size_t last, struct buf *text, struct error *err)
{
    size_t len = text->len;
    char *summary = buf_steal(text);
    if (!summary)
        return error_memory(err);
    for (size_t i = FIRST; i < last; i++)
        message_free(&r->messages[i]);
    /* Cannot fail: a message was removed before. */
    memmove(r->messages + FIRST + 1, r->messages + last,
        (r->message_count - last) * sizeof *r->messages);
    r->messages[FIRST] = (struct message){ .role = "user", .text = summary, .len = len };
    r->message_count -= last - FIRST - 1;
    r->summaries++;
    return 0;
}

/* Cuts outputs of the oldest turns until it is short enough; keeps the last turn's. */
static int cut_outputs(struct rlm_run *r, size_t last, struct error *err)
{
    int64_t wanted = tokens_wanted(r);
    for (size_t i = FIRST; i < last && tokens_now(r) >= wanted; i++) {
        struct message *m = &r->messages[i];
        struct buf text = { 0 };
        if (strcmp(m->role, "user") != 0 || m->len <= 2 * OUTPUT_KEPT)
            continue;
        prompt_shortened(&text, m->text, m->len, OUTPUT_KEPT, compact_has_history(r));
        size_t len = text.len;
        char *cut = buf_steal(&text);
        if (!cut)
            return error_memory(err);
        message_free(m);
        m->text = cut;
        m->len = len;
    }
    return 0;
}

static int compact_shorten(struct rlm_run *r, const char *summary, size_t len, struct error *err)
{
    size_t last = last_turn(r);
    struct buf text = { 0 };
    bool shorter;
    int rc = keep_history(r, err);
    if (rc < 0)
        return rc;
    prompt_summary(&text, summary, len, compact_has_history(r));
    shorter = len > 0 && text.len < bytes_between(r, FIRST, last);
    r->counted = 0;
    r->counted_tokens = 0;
    rc = shorter ? put_summary(r, last, &text, err) : cut_outputs(r, last, err);
    buf_free(&text);
    r->recorded = 0; /* the next call sends all messages */
    r->in_history = r->message_count;
    r->compacted_tokens = tokens_now(r);
    return rc;
}

static void compact_tell(struct rlm_run *r, int64_t before)
{
    cleanup_buf struct buf text = { 0 };
    buf_printf(&text, "the conversation was shortened, from about %lld tokens to %lld",
        (long long)before, (long long)r->compacted_tokens);
    run_tell(r, RLM_EVENT_NOTICE, buf_text(&text), text.len);
}

int compact_begin(struct rlm_run *r, struct error *err)
{
    struct buf text = { 0 };
    buf_puts(&text, prompt_text(PROMPT_SUMMARY_REQUEST));
    r->compacting = true;
    int rc = message_add_buf(r, "user", &text, err);
    return rc < 0 ? rc : model_call_begin(r, err);
}

int compact_take_summary(struct rlm_run *r, const char *summary, size_t len, struct error *err)
{
    r->compacting = false;
    message_free(&r->messages[--r->message_count]); /* the question for it */
    int64_t before = tokens_now(r);
    int rc = compact_shorten(r, summary, len, err);
    if (rc == 0)
        compact_tell(r, before);
    return rc;
}
