/* A message of JSON-RPC. What is read has the parts of its kind and no others, and is read in the
 * same way from its own text; what is refused says why.
 */
#include "fuzz.h"

#include "base/json/rpc.h"

static void see(const struct rpc_message *m)
{
    expect(m->tree);
    expect((m->kind == RPC_ANSWER) == (m->method == NULL));
    expect(m->kind != RPC_CALL || m->id);
    expect(m->kind != RPC_NOTE || !m->id);
    expect(!m->params || json_object_is_type(m->params, json_type_object));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = { data, size };
    struct rpc_message m = { 0 }, again = { 0 };
    struct error err = { 0 };
    int code = 0;
    size_t len;
    char *text = input_piece(&in, SIZE_MAX, &len);
    int rc = rpc_read(text, len, &m, &code, &err);
    if (rc < 0) {
        expect_error(rc, &err);
        expect(code == RPC_PARSE || code == RPC_REQUEST || code == RPC_PARAMS);
    } else {
        const char *same = json_text(m.tree, &len);
        see(&m);
        expect(same && rpc_read(same, len, &again, &code, &err) == 0);
        expect(again.kind == m.kind && !again.id == !m.id && !again.params == !m.params);
    }
    json_object_put(again.tree);
    json_object_put(m.tree);
    free(text);
    return 0;
}
