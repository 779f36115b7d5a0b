/* The body of a call to envd, as the server reads it: one envelope with a JSON message. What is
 * accepted is just that, and its members are found by either of their names.
 */
#include "fuzz.h"

#include <arpa/inet.h>

#include "base/envelope.h"
#include "serve/e2b/connect.h"

/* What connect.c needs of the other files. */
static unsigned refused;

void request_refuse(struct request *r, unsigned status, const char *code, const char *format, ...)
{
    expect(!refused && status >= 400 && code[0] && format[0]);
    expect(strcmp(connect_code(status), "internal") != 0);
    refused = status;
}

const char *request_header_of(struct request *r, const char *name)
{
    return r->state; /* of the input, in place of the header */
}

void request_stream(struct request *r, const char *type)
{
}
void request_push(struct request *r, const void *data, size_t len)
{
}
void request_end(struct request *r)
{
}
void request_cut(struct request *r)
{
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct request r = { 0 };
    struct input in = { data, size };
    size_t len = 0;
    char *header = input_piece(&in, input_byte(&in) % 16, &len);
    r.state = calloc(1, len + 1);
    expect(r.state);
    memcpy(r.state, header, len);
    expect(connect_timeout_ms(&r) <= 9999999999u);
    char *body = input_piece(&in, in.left, &len);
    r.body.data = body; /* without the NUL that a buffer has: nothing may read it */
    r.body.len = len;
    refused = 0;
    bool taken = len > 0 && connect_take_message(&r);
    expect(len == 0 || taken == (refused == 0));
    if (taken) {
        uint32_t length;
        expect(len >= ENVELOPE_HEAD);
        memcpy(&length, body + 1, sizeof length);
        expect(body[0] == 0 && ntohl(length) == len - ENVELOPE_HEAD);
        expect(r.json && (len > ENVELOPE_HEAD || json_object_object_length(r.json) == 0));
        if (json_object_is_type(r.json, json_type_object)) {
            struct json_object *found = json_get_typed(r.json, "cwdPath", json_type_string);
            expect(!found || json_object_is_type(found, json_type_string));
        }
    }
    json_object_put(r.json);
    free(r.state);
    free(header);
    free(body);
    return 0;
}
