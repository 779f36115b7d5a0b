/* mcp/sampling.c: runs whose model is the client's, which needs no key: each call of a model is a
 * question to the client that asked for the run. */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "mcp/run.h"
#include "mcp/session.h"

/* Of a reply; the protocol wants a number. */
enum { SAMPLING_TOKENS = 16384 };

/* The run whose model "callback:mcp-N" is. */
static struct mcp_run *sampling_run(const struct mcp_server *server, const char *opened)
{
    static const char prefix[] = "callback:mcp-";
    bool is_ours = opened && strncmp(opened, prefix, sizeof prefix - 1) == 0;
    unsigned long long number = is_ours ? strtoull(opened + sizeof prefix - 1, NULL, 16) : 0;
    for (const struct mcp *mcp = server->users; mcp && number; mcp = mcp->next)
        for (struct mcp_run *run = mcp->runs; run; run = run->next)
            if (run->number == number)
                return run;
    return NULL;
}

static struct json_object *sampling_text(const char *text, size_t len)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "type", "text") && json_put_string(o, "text", text, len))
        return o;
    json_object_put(o);
    return NULL;
}

static struct json_object *sampling_part(const droste_part *part)
{
    if (part->kind == DROSTE_PART_TEXT)
        return sampling_text(part->data, part->len);
    cleanup_buf struct buf data = { 0 };
    struct json_object *o = json_object_new_object();
    json_append_base64(&data, part->data, part->len);
    if (part->kind == DROSTE_PART_IMAGE && o && json_put_text(o, "type", "image") &&
        json_put_text(o, "mimeType", part->media_type) &&
        json_put_string(o, "data", buf_text(&data), data.len))
        return o;
    json_object_put(o);
    static const char none[] = "[a document, which this model cannot be given]";
    return sampling_text(none, sizeof none - 1);
}

/* Adds a message, one for each part: earlier revisions have one content in each. */
static bool sampling_add(struct json_object *list, const droste_message *m)
{
    size_t count = m->part_count > 0 ? m->part_count : 1;
    const char *role = strcmp(m->role, "assistant") == 0 ? "assistant" : "user";
    for (size_t i = 0; i < count; i++) {
        struct json_object *o = json_object_new_object();
        struct json_object *content =
            m->part_count > 0 ? sampling_part(&m->parts[i]) : sampling_text(m->text, m->len);
        bool ok = o && content && json_put_text(o, "role", role);
        if (ok)
            ok = json_put(o, "content", steal(&content));
        json_object_put(content);
        if (!ok || json_object_array_add(list, o) < 0) {
            json_object_put(o);
            return false;
        }
    }
    return true;
}

static struct json_object *sampling_params(const droste_message *messages, size_t count)
{
    struct json_object *params = json_object_new_object(), *list = json_object_new_array();
    cleanup_buf struct buf system = { 0 };
    bool ok = params && list;
    for (size_t i = 0; ok && i < count; i++)
        if (strcmp(messages[i].role, "system") == 0) {
            buf_puts(&system, system.len > 0 ? "\n\n" : "");
            buf_append(&system, messages[i].text, messages[i].len);
        } else {
            ok = sampling_add(list, &messages[i]);
        }
    if (ok)
        ok = json_put(params, "messages", steal(&list));
    json_object_put(list);
    if (ok && system.len > 0)
        ok = json_put_string(params, "systemPrompt", buf_text(&system), system.len);
    if (ok && !buf_failed(&system) &&
        json_put(params, "maxTokens", json_object_new_int(SAMPLING_TOKENS)))
        return params;
    json_object_put(params);
    return NULL;
}

/* The text of a reply: of one content, or of several. */
static bool sampling_read(struct json_object *result, struct buf *out)
{
    struct json_object *content = NULL;
    if (!json_object_object_get_ex(result, "content", &content))
        return false;
    bool is_list = json_object_is_type(content, json_type_array);
    size_t count = is_list ? json_length(content) : 1, texts = 0;
    for (size_t i = 0; i < count; i++) {
        struct json_object *one = is_list ? json_object_array_get_idx(content, i) : content;
        struct json_object *text = json_get_typed(one, "text", json_type_string);
        if (!text)
            continue;
        texts++;
        buf_append(out, json_object_get_string(text), (size_t)json_object_get_string_len(text));
    }
    return texts > 0;
}

static void sampling_on_answer(
    void *arg, struct mcp_call *c, struct json_object *result, const char *why)
{
    droste_call *call = arg;
    cleanup_buf struct buf text = { 0 };
    (void)c;
    if (result && sampling_read(result, &text) && !buf_failed(&text))
        droste_answer(call, buf_text(&text), text.len);
    else
        droste_refuse(call, why ? why : "the client's model gave no text");
}

bool mcp_take_model_call(
    struct mcp_server *server, const droste_message *messages, size_t count, droste_call *call)
{
    struct mcp_run *run = sampling_run(server, droste_call_opened(call));
    char key[32];
    if (!run)
        return false;
    if (!run->call) {
        droste_refuse(call, "the client that asked for this run has gone");
        return true;
    }
    snprintf(key, sizeof key, "model_%llu", (unsigned long long)++run->call->peer->questions);
    mcp_call_ask(run->call, key, "sampling/createMessage", sampling_params(messages, count),
        sampling_on_answer, call);
    return true;
}

static void sampling_on_call(
    void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    if (!mcp_take_model_call(arg, messages, count, call))
        droste_refuse(call, "the client that asked for this run has gone");
}

void mcp_runs_prepare(struct mcp_server *server)
{
    mcp_approvals_prepare(server);
    if (server->host == &mcp_own_host) /* others have models of other clients, too */
        droste_set_model(server->d, sampling_on_call, server);
}
