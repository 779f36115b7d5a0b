/* cluster/jetstream.h: what buckets (bucket.c) use of the requests to JetStream (jetstream.c). */
#pragma once

#include "cluster/nats_internal.h"

/* An answer of the interface, read. Free the tree, to which `answer` points. */
struct api_answer {
    struct json_object *tree; /* NULL: it is not JSON */
    struct bus_answer answer;
    int err_code;
};
void api_read(const struct bus *b, nats_message *m, struct api_answer *out);
/* Ends the call with the answer. */
void api_take(struct call *c, nats_message *m);

/* NULL: no id, no operation of a bucket, no expected sequence. */
void publish_send(struct call *c, const char *subject, const void *data, size_t len, const char *id,
    const char *operation, const uint64_t *expected);

/* Asks for the last message of a subject. */
void stored_send(struct call *c, const char *stream, const char *subject);
/* True: the answer has the mark of a deleted key, whose sequence is *sequence. */
bool stored_read_mark(const struct bus *b, nats_message *m, uint64_t *sequence);

/* value_max 0: no limit. */
void stream_make(struct bus *b, const struct bus_stream *s, bool is_bucket, int64_t value_max,
    bus_done_fn *done, void *arg);
