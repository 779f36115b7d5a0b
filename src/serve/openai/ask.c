/* serve/openai/ask.c: what a run is asked, from the messages of a conversation.
 *
 * The last user message is the question. What a model cannot read at once becomes the context,
 * which its code reads: attached files, what the client calls context, texts above the threshold,
 * and a conversation above it. Shorter conversations and instructions come before the question, so
 * that the run has one question in the record, and resumes with it. One context is a value of its
 * own; several are a dict by name, in which bytes, which JSON does not have, are
 * {"base64": "…"}.
 */
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "serve/http/relay.h"
#include "serve/openai/file_store.h"
#include "serve/openai/openai.h"

/* Bytes of a long text that the question shows from its beginning and its end. */
enum { ASK_EXCERPT = 400 };
enum { ASK_NAME_MAX = 200, ASK_PIECES_MAX = 1000, ASK_IMAGES_MAX = 100 };

void openai_ask_free(struct openai_ask *a)
{
    buf_free(&a->instructions);
    buf_free(&a->text);
    buf_free(&a->question);
    json_object_put(a->earlier);
    json_object_put(a->pieces);
    json_object_put(a->bytes);
    list_clear(&a->files);
    list_clear(&a->file_names);
    for (size_t i = 0; i < a->image_count; i++)
        free((void *)(uintptr_t)a->images[i].data);
    free(a->images);
    list_clear(&a->image_urls);
}

static bool ask_refuse(struct openai_ask *a, const char *code, const char *text)
{
    const char *param =
        json_object_object_get_ex(a->r->json, "messages", NULL) ? "messages" : "input";
    openai_refuse(
        a->r, &(struct openai_error){ .status = 400, .code = code, .param = param }, "%s", text);
    return false;
}

static bool ask_has_memory(struct openai_ask *a, bool fine)
{
    if (!fine && !a->r->reply)
        request_refuse_memory(a->r);
    return fine;
}

/* ---- contexts ---- */

/* A name that no other context has. */
static void ask_name(struct openai_ask *a, const char *wanted, char out[ASK_NAME_MAX + 16])
{
    size_t len = text_utf8_floor(wanted, strlen(wanted), ASK_NAME_MAX);
    snprintf(out, ASK_NAME_MAX + 16, "%.*s", (int)len, wanted);
    for (unsigned n = 2; a->pieces && json_object_object_get_ex(a->pieces, out, NULL); n++)
        snprintf(out, ASK_NAME_MAX + 16, "%.*s (%u)", (int)len, wanted, n);
}

/* Adds a context. Takes the value. */
static bool openai_ask_context(struct openai_ask *a, const char *name, struct json_object *value)
{
    char own[ASK_NAME_MAX + 16];
    if (!a->pieces)
        a->pieces = json_object_new_object();
    if (a->pieces && json_object_object_length(a->pieces) >= ASK_PIECES_MAX) {
        json_object_put(value);
        return ask_refuse(a, "too_many_contexts", "a request has at most 1000 contexts and files");
    }
    ask_name(a, name, own);
    if (!a->pieces || !json_put(a->pieces, own, value))
        return ask_has_memory(a, false);
    size_t len = (size_t)json_object_get_string_len(value);
    if (!json_object_is_type(value, json_type_string) ||
        text_is_utf8(json_object_get_string(value), len, NULL))
        return true;
    if (!a->bytes)
        a->bytes = json_object_new_object();
    return ask_has_memory(a, a->bytes && json_put(a->bytes, own, json_object_new_boolean(1)));
}

static bool ask_add_bytes(struct openai_ask *a, const char *name, const char *data, size_t len)
{
    struct json_object *value = json_object_new_string_len(data, (int)len);
    return ask_has_memory(a, value != NULL) && openai_ask_context(a, name, value);
}

/* The bytes of "data:TYPE;base64,…", or of the base64 alone; NULL: the request was refused. */
static char *ask_read_data(struct openai_ask *a, struct json_object *text, size_t *count)
{
    static const char refused[] = "a file or an image has a data URL with base64 here";
    const char *from = json_object_get_string(text);
    size_t len = (size_t)json_object_get_string_len(text);
    if (strncmp(from, "data:", 5) == 0) {
        const char *comma = memchr(from, ',', len < 1024 ? len : 1024);
        if (!comma || comma - from < 7 || strncmp(comma - 7, ";base64", 7) != 0) {
            ask_refuse(a, "invalid_file_data", refused);
            return NULL;
        }
        len -= (size_t)(comma + 1 - from);
        from = comma + 1;
    }
    char *bytes = json_base64_bytes(from, len, count);
    if (!bytes)
        ask_refuse(a, "invalid_file_data", "the data of a file or an image is not valid base64");
    return bytes;
}

static bool ask_add_data(struct openai_ask *a, const char *name, struct json_object *text)
{
    size_t count = 0;
    cleanup_free char *bytes = ask_read_data(a, text, &count);
    return bytes && ask_add_bytes(a, name, bytes, count);
}

/* It is read when the run begins. */
static bool ask_add_stored(struct openai_ask *a, const char *id)
{
    cleanup_fd int directory = file_store_is_id(id, "file-") ? file_store_open(a->r) : -1;
    cleanup_json struct json_object *object = directory < 0 ? NULL : file_store_read(directory, id);
    cleanup_free char *path = object ? file_store_path(a->r, id) : NULL;
    if (!path && file_store_is_id(id, "file-") && relay_elsewhere(a->r, "file", id))
        return false;
    if (!path)
        return !a->r->reply && ask_refuse(a, "file_not_found", "this key has no file with that id");
    return ask_has_memory(
        a, list_add(&a->files, path, NULL) == 0 &&
               list_add(&a->file_names, json_get_string(object, "filename", "file"), NULL) == 0);
}

/* A file of chat completions has its members in an object; one of responses is the part itself. */
static bool ask_add_file(struct openai_ask *a, struct json_object *file)
{
    struct json_object *data = json_get_typed(file, "file_data", json_type_string);
    const char *id = json_get_string(file, "file_id", NULL);
    if (data)
        return ask_add_data(a, json_get_string(file, "filename", "file"), data);
    if (id)
        return ask_add_stored(a, id);
    return ask_refuse(a, "invalid_file", "a file has file_data or file_id here");
}

/* An image of chat completions has its URL in an object; one of responses has it itself. The model
 * sees it with the question. Its data is a context of its own; an address is for the provider. */
static bool ask_add_image(struct openai_ask *a, struct json_object *part)
{
    struct json_object *inner = json_get_typed(part, "image_url", json_type_object);
    struct json_object *url = inner ? json_get_typed(inner, "url", json_type_string)
                                    : json_get_typed(part, "image_url", json_type_string);
    const char *id = json_get_string(part, "file_id", NULL);
    a->shows_images = true;
    if (id)
        return ask_add_stored(a, id);
    const char *text = url ? json_object_get_string(url) : "";
    bool is_address = strncmp(text, "https://", 8) == 0;
    if (!is_address && strncmp(text, "data:", 5) != 0)
        return ask_refuse(
            a, "invalid_image_url", "an image has a data URL, an https: URL or a file_id here");
    if (a->image_count + a->image_urls.count >= ASK_IMAGES_MAX)
        return ask_refuse(a, "too_many_images", "a request has at most 100 images");
    if (is_address)
        return ask_has_memory(a, list_add(&a->image_urls, text, NULL) == 0);
    if (!ask_has_memory(a, array_room(a->images, a->image_count, &a->image_room)))
        return false;
    droste_value *image = &a->images[a->image_count];
    *image = (droste_value){ 0 };
    image->data = ask_read_data(a, url, &image->len);
    a->image_count += image->data != NULL;
    return image->data != NULL;
}

/* ---- texts ---- */

static bool ask_is_long(const struct openai_ask *a, size_t len)
{
    return len > a->r->server->options->context_threshold;
}

/* A long text of the question: a context, and in its place what it is. */
static bool ask_add_long(struct openai_ask *a, const char *text, size_t len)
{
    char name[ASK_NAME_MAX + 16];
    size_t head = text_utf8_floor(text, len, ASK_EXCERPT);
    size_t tail = text_utf8_floor(text, len, len - ASK_EXCERPT);
    ask_name(a, "message", name);
    buf_printf(&a->text, "[A text of %zu bytes is in the context, as '%s'. It begins: ", len, name);
    json_append_string(&a->text, text, head);
    buf_puts(&a->text, " and it ends: ");
    json_append_string(&a->text, text + tail, len - tail);
    buf_puts(&a->text, "]");
    return ask_add_bytes(a, name, text, len);
}

static bool ask_add_text(
    struct openai_ask *a, struct buf *out, struct json_object *text, bool is_question)
{
    const char *from = json_object_get_string(text);
    size_t len = (size_t)json_object_get_string_len(text);
    if (memchr(from, '\0', len))
        return ask_refuse(a, "invalid_text", "a text has a NUL character");
    if (out->len > 0 && len > 0)
        buf_puts(out, "\n\n");
    if (is_question && ask_is_long(a, len) && len > 2 * ASK_EXCERPT)
        return ask_add_long(a, from, len);
    buf_append(out, from, len);
    return true;
}

static bool ask_add_part(
    struct openai_ask *a, struct buf *out, struct json_object *part, bool is_question)
{
    static const char *const texts[] = { "text", "input_text", "output_text" };
    const char *type = json_get_string(part, "type", "");
    for (size_t i = 0; i < array_length(texts); i++) {
        struct json_object *text =
            strcmp(type, texts[i]) == 0 ? json_get_typed(part, "text", json_type_string) : NULL;
        if (text)
            return ask_add_text(a, out, text, is_question);
    }
    struct json_object *refusal = json_get_typed(part, "refusal", json_type_string);
    if (strcmp(type, "refusal") == 0 && refusal)
        return ask_add_text(a, out, refusal, is_question);
    if (strcmp(type, "image_url") == 0 || strcmp(type, "input_image") == 0)
        return ask_add_image(a, part);
    if (strcmp(type, "file") == 0)
        return ask_add_file(a, json_get_typed(part, "file", json_type_object));
    if (strcmp(type, "input_file") == 0)
        return ask_add_file(a, part);
    return ask_refuse(a, "unsupported_content",
        "models that answer with a run take texts, files and images; this part is none of them "
        "(docs/openai.md)");
}

/* Appends the text of a message; its files become contexts. */
static bool ask_add_content(
    struct openai_ask *a, struct buf *out, struct json_object *content, bool is_question)
{
    if (json_object_is_type(content, json_type_string))
        return ask_add_text(a, out, content, is_question);
    for (size_t i = 0; i < json_length(content); i++)
        if (!ask_add_part(a, out, json_object_array_get_idx(content, i), is_question))
            return false;
    return true;
}

bool openai_ask_add(struct openai_ask *a, const char *role, struct json_object *content)
{
    cleanup_buf struct buf text = { 0 };
    if (strcmp(role, "system") == 0 || strcmp(role, "developer") == 0)
        return ask_add_content(a, &a->instructions, content, false);
    if (!ask_add_content(a, &text, content, false))
        return false;
    if (text.len == 0)
        return true;
    struct json_object *message = json_object_new_object();
    if (!a->earlier)
        a->earlier = json_object_new_array();
    bool fine = message && a->earlier && !buf_failed(&text) &&
                json_put_text(message, "role", role) &&
                json_put_string(message, "content", text.data, text.len);
    if (fine && json_object_array_add(a->earlier, message) == 0)
        return true;
    json_object_put(message);
    return ask_has_memory(a, false);
}

bool openai_ask_question(struct openai_ask *a, struct json_object *content)
{
    if (!ask_add_content(a, &a->text, content, true))
        return false;
    if (a->text.len == 0 && !a->shows_images)
        return ask_refuse(a, "empty_question", "the last user message has no text to answer");
    return ask_has_memory(a, !buf_failed(&a->text));
}

/* ---- the question ---- */

/* Instructions above the threshold are a context that the question names. */
static bool ask_put_instructions(struct openai_ask *a)
{
    if (a->instructions.len == 0)
        return true;
    if (!ask_is_long(a, a->instructions.len)) {
        buf_printf(&a->question, "Instructions:\n\n%s\n\n", buf_text(&a->instructions));
        return true;
    }
    buf_puts(&a->question, "The instructions for your answer are in the context, as "
                           "'instructions': read them first.\n\n");
    return ask_add_bytes(a, "instructions", a->instructions.data, a->instructions.len);
}

static bool ask_put_earlier(struct openai_ask *a)
{
    cleanup_buf struct buf conversation = { 0 };
    size_t count = json_length(a->earlier);
    for (size_t i = 0; i < count; i++) {
        struct json_object *message = json_object_array_get_idx(a->earlier, i);
        buf_printf(&conversation, "%s: %s\n\n", json_get_string(message, "role", ""),
            json_get_string(message, "content", ""));
    }
    if (count == 0 || buf_failed(&conversation))
        return ask_has_memory(a, count == 0);
    if (!ask_is_long(a, conversation.len)) {
        buf_printf(&a->question, "The conversation so far:\n\n%sNow the user asks:\n\n",
            conversation.data);
        return true;
    }
    buf_printf(&a->question,
        "The conversation so far has %zu messages. It is in the context, as 'conversation': a list "
        "of dicts with \"role\" and \"content\". Now the user asks:\n\n",
        count);
    return openai_ask_context(a, "conversation", json_object_get(a->earlier));
}

/* What is in the first context, unless that is a file with an id. */
static void ask_put_pieces(struct openai_ask *a, size_t count)
{
    const char *comma = "";
    const char *several = a->files.count + a->image_count > 0 ? "JSON text of a dict by name, of "
                                                              : "a dict by name, of ";
    buf_puts(&a->question, count == 1 ? "" : several);
    json_object_object_foreach(a->pieces, name, value)
    {
        buf_printf(&a->question, "%s'%s'", comma, name);
        if (json_object_is_type(value, json_type_string))
            buf_printf(&a->question, " (%d bytes)", json_object_get_string_len(value));
        comma = ", ";
    }
}

static void ask_put_names(struct openai_ask *a)
{
    size_t count = a->pieces ? (size_t)json_object_object_length(a->pieces) : 0, index = 0;
    size_t all = (count > 0) + a->image_count + a->files.count;
    if (all == 0)
        return;
    buf_puts(&a->question, all == 1 ? "\n\nThe context is " : "\n\nThe contexts are `context_0`, ");
    if (count > 0) {
        ask_put_pieces(a, count);
        index++;
    }
    for (size_t i = 0; i < a->image_count + a->files.count; i++, index++) {
        if (index > 0)
            buf_printf(&a->question, "; `context_%zu`, ", index);
        if (i < a->image_count)
            buf_printf(&a->question, "the attached image %zu", i + 1);
        else
            buf_printf(&a->question, "the file '%s'", a->file_names.items[i - a->image_count]);
    }
    buf_puts(&a->question, ".");
}

static void ask_put_image_urls(struct openai_ask *a)
{
    for (size_t i = 0; i < a->image_urls.count; i++)
        buf_printf(&a->question, "%s%s",
            i ? ", " : "\n\nAddresses of attached images: ", a->image_urls.items[i]);
}

/* ---- the context ---- */

static bool ask_wrap_bytes(struct openai_ask *a)
{
    if (!a->bytes)
        return true;
    json_object_object_foreach(a->bytes, name, unused)
    {
        struct json_object *value = NULL, *wrapped = json_object_new_object();
        cleanup_buf struct buf text = { 0 };
        (void)unused;
        json_object_object_get_ex(a->pieces, name, &value);
        json_append_base64(
            &text, json_object_get_string(value), (size_t)json_object_get_string_len(value));
        if (!wrapped || buf_failed(&text) || !json_put_text(wrapped, "base64", text.data) ||
            json_object_object_add(a->pieces, name, wrapped) < 0)
            return ask_has_memory(a, false);
    }
    return true;
}

static bool ask_join_contexts(struct openai_ask *a)
{
    struct json_object *only = NULL;
    size_t count = a->pieces ? (size_t)json_object_object_length(a->pieces) : 0;
    if (count == 0)
        return true;
    if (count == 1) {
        struct json_object_iterator first = json_object_iter_begin(a->pieces);
        only = json_object_iter_peek_value(&first);
    }
    if (only && json_object_is_type(only, json_type_string)) {
        a->data = json_object_get_string(only);
        a->len = (size_t)json_object_get_string_len(only);
        a->kind = a->bytes ? "bytes" : "text";
        return true;
    }
    if (!ask_wrap_bytes(a))
        return false;
    a->data = json_text(only ? only : a->pieces, &a->len);
    a->kind = "json";
    return ask_has_memory(a, a->data != NULL);
}

bool openai_ask_finish(struct openai_ask *a)
{
    struct json_object *context = NULL;
    if (json_object_object_get_ex(a->r->json, "context", &context) && context &&
        !openai_ask_context(a, "context", json_object_get(context)))
        return false;
    if (!ask_put_instructions(a) || !ask_put_earlier(a))
        return false;
    buf_append(&a->question, buf_text(&a->text), a->text.len);
    ask_put_names(a);
    ask_put_image_urls(a);
    if (!ask_has_memory(a, !buf_failed(&a->question)) || !ask_join_contexts(a))
        return false;
    if (a->files.count > 0 && !ask_has_memory(a, list_add_end(&a->files, NULL) == 0))
        return false;
    if (a->files.count + a->image_count > 0)
        a->kind = "auto"; /* one for all contexts: text, or bytes */
    bool is_first = !a->data && a->image_count == 0 && a->files.count > 0;
    a->path = is_first ? a->files.items[0] : NULL;
    a->paths = a->files.count > is_first ? (const char *const *)a->files.items + is_first : NULL;
    return true;
}
