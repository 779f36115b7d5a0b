/* cluster/message.c: names and messages of the bus. */
#include <stdlib.h>
#include <string.h>

#include "cluster/nats_internal.h"

/* ---- names ---- */

static const char bus_word[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";

bool bus_name_is_ok(const char *name)
{
    size_t len = name ? strlen(name) : 0;
    return len > 0 && len <= BUS_NAME_MAX && strspn(name, bus_word) == len;
}

bool bus_subject_is_ok(const char *subject, bool may_be_filter)
{
    size_t len = subject ? strlen(subject) : 0;
    if (len == 0 || len > BUS_SUBJECT_MAX)
        return false;
    for (const char *p = subject;; p++) {
        size_t word = strspn(p, bus_word);
        while (p[word] == '=' || p[word] == '/' || p[word] == '$')
            word += 1 + strspn(p + word + 1, bus_word);
        if (word == 0 && may_be_filter && (*p == '*' || (*p == '>' && p[1] == '\0')))
            word = 1;
        p += word;
        if (word == 0 || (*p != '.' && *p != '\0'))
            return false;
        if (*p == '\0')
            return true;
    }
}

/* ---- messages ---- */

const char *message_field(const struct bus *b, nats_message *m, const char *name)
{
    const char *value = NULL;
    return b->nats->header_get(m, name, &value) == 0 ? value : NULL;
}

int message_status(const struct bus *b, nats_message *m)
{
    if (b->nats->length(m) > 0)
        return 0;
    const char *status = message_field(b, m, "Status");
    return status ? (int)strtol(status, NULL, 10) : 0;
}

/* "$JS.ACK.[DOMAIN.ACCOUNT.]STREAM.CONSUMER.DELIVERED.SEQUENCE.CONSUMER_SEQUENCE.TIME.WAITING" and,
 * with a domain, a random word. */
bool message_read_origin(const char *reply, struct message_origin *out)
{
    enum { WORDS = 12 };
    const char *words[WORDS];
    size_t count = 0;
    if (!reply || strncmp(reply, "$JS.ACK.", 8) != 0)
        return false;
    for (const char *p = reply; p && count < WORDS; count++) {
        words[count] = p;
        p = strchr(p, '.');
        p = p ? p + 1 : NULL;
    }
    size_t at = count >= 11 ? 6 : 4;
    if (count < at + 5)
        return false;
    *out = (struct message_origin){ .consumer = words[at - 1],
        .consumer_len = strcspn(words[at - 1], "."),
        .delivered = strtoull(words[at], NULL, 10),
        .sequence = strtoull(words[at + 1], NULL, 10),
        .consumer_sequence = strtoull(words[at + 2], NULL, 10),
        .time_ns = strtoull(words[at + 3], NULL, 10),
        .waiting = strtoull(words[at + 4], NULL, 10) };
    return true;
}

struct bus_message *message_new(struct bus *b, nats_message *m)
{
    struct message *message = calloc(1, sizeof *message);
    if (!message) {
        b->nats->message_free(m);
        return NULL;
    }
    const char *data = b->nats->data(m), *id = message_field(b, m, "Nats-Msg-Id");
    *message = (struct message){ .b = b,
        .nats = m,
        .public = { .subject = b->nats->subject(m),
            .data = data ? data : "",
            .len = (size_t)b->nats->length(m),
            .id = id ? id : "" } };
    struct message_origin origin;
    if (message_read_origin(b->nats->reply(m), &origin)) {
        message->public.delivered = origin.delivered;
        message->public.sequence = origin.sequence;
        message->public.waiting = origin.waiting;
        message->public.stored_ms = (int64_t)(origin.time_ns / 1000000);
    }
    return &message->public;
}

void bus_message_free(struct bus_message *m)
{
    struct message *message = (struct message *)m;
    if (!message)
        return;
    message->b->nats->message_free(message->nats);
    free(message);
}

/* ---- sending ---- */

bool bus_send_as(struct bus *b, const char *subject, const char *reply, const void *data,
    size_t len, const struct field *fields)
{
    nats_message *m = NULL;
    if (len > BUS_MESSAGE_MAX || b->nats->message_new(&m, subject, reply, data, (int)len) != 0)
        return false;
    for (; fields && fields->name; fields++)
        if (b->nats->header_set(m, fields->name, fields->value) != 0) {
            b->nats->message_free(m);
            return false;
        }
    return handover_add_out(b->x, m);
}

bool bus_send(struct bus *b, const char *subject, const void *data, size_t len)
{
    return bus_send_as(b, subject, NULL, data, len, NULL);
}

bool bus_tell(struct bus *b, const char *subject, const void *data, size_t len)
{
    return bus_subject_is_ok(subject, false) && bus_send(b, subject, data, len);
}

void message_respond(struct bus_message *m, const void *data, size_t len)
{
    const struct message *message = (const struct message *)m;
    const char *reply = message->b->nats->reply(message->nats);
    if (reply && *reply)
        bus_send(message->b, reply, data, len);
}

void bus_reply(struct bus_message *m, const void *data, size_t len)
{
    message_respond(m, data, len);
    bus_message_free(m);
}

void bus_nak(struct bus_message *m, int64_t delay_ms)
{
    char text[64];
    int len = snprintf(text, sizeof text, "-NAK {\"delay\": %lld}", (long long)delay_ms * 1000000);
    message_respond(m, text, delay_ms > 0 ? (size_t)len : 4);
    bus_message_free(m);
}

void bus_progress(struct bus_message *m)
{
    message_respond(m, "+WPI", 4);
}

void bus_term(struct bus_message *m)
{
    message_respond(m, "+TERM", 5);
    bus_message_free(m);
}
