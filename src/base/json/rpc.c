/* base/json/rpc.c: see rpc.h. */
#include "base/json/rpc.h"

#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"

static bool rpc_id_is_valid(struct json_object *id)
{
    return json_object_is_type(id, json_type_string) || json_object_is_type(id, json_type_int);
}

/* What a message that is an object says. */
static int rpc_take(struct rpc_message *m, int *code, struct error *err)
{
    struct json_object *id = NULL, *params = NULL, *method = NULL;
    bool has_id = json_object_object_get_ex(m->tree, "id", &id);
    bool has_params = json_object_object_get_ex(m->tree, "params", &params);
    bool has_method = json_object_object_get_ex(m->tree, "method", &method);
    bool has_result = json_object_object_get_ex(m->tree, "result", &m->result);
    bool has_error = json_object_object_get_ex(m->tree, "error", &m->error);
    *code = RPC_REQUEST;
    if (has_id && rpc_id_is_valid(id))
        m->id = id;
    if (strcmp(json_get_string(m->tree, "jsonrpc", ""), "2.0") != 0)
        return error_set(err, ERROR_PROTOCOL, "expected a JSON-RPC 2.0 message");
    m->kind = !has_method ? RPC_ANSWER : has_id ? RPC_CALL : RPC_NOTE;
    if (!has_method && (has_result || has_error)) /* an error may be about an unknown request */
        return 0;
    if (!has_method)
        return error_set(err, ERROR_PROTOCOL, "expected `method`, `result` or `error`");
    if (has_id && !m->id)
        return error_set(err, ERROR_PROTOCOL, "`id` is not a string or an integer");
    if (!json_object_is_type(method, json_type_string))
        return error_set(err, ERROR_PROTOCOL, "`method` is not a string");
    *code = RPC_PARAMS;
    m->method = json_object_get_string(method);
    if (has_params && !json_object_is_type(params, json_type_object))
        return error_set(err, ERROR_PROTOCOL, "`params` is not an object");
    m->params = params;
    return 0;
}

int rpc_read(const char *text, size_t len, struct rpc_message *out, int *code, struct error *err)
{
    *out = (struct rpc_message){ 0 };
    *code = RPC_PARSE;
    if (!text_is_utf8(text, len, NULL))
        return error_set(err, ERROR_PROTOCOL, "the message is not JSON: it is not UTF-8");
    if (json_parse(text, len, &json_limits_large, &out->tree, err) < 0)
        return error_wrap(err, "the message is not JSON");
    *code = RPC_REQUEST;
    if (!json_object_is_type(out->tree, json_type_object))
        return error_set(err, ERROR_PROTOCOL, "expected one JSON-RPC message, an object");
    return rpc_take(out, code, err);
}

/* {"jsonrpc", "id"}; takes the id. */
static struct json_object *rpc_begin(struct json_object *id, bool has_id)
{
    struct json_object *o = json_object_new_object();
    if (o && json_put_text(o, "jsonrpc", "2.0") && (!has_id || json_put(o, "id", steal(&id))))
        return o;
    json_object_put(id);
    json_object_put(o);
    return NULL;
}

/* Adds the last member, which it takes. */
static struct json_object *rpc_end(
    struct json_object *o, const char *key, struct json_object *value)
{
    if (o && value && json_put(o, key, steal(&value)))
        return o;
    json_object_put(value);
    json_object_put(o);
    return NULL;
}

struct json_object *rpc_call(struct json_object *id, const char *method, struct json_object *params)
{
    struct json_object *o = rpc_begin(id, id != NULL);
    if (!o || !json_put_text(o, "method", method)) {
        json_object_put(params);
        json_object_put(o);
        return NULL;
    }
    return params ? rpc_end(o, "params", params) : o;
}

struct json_object *rpc_result(struct json_object *id, struct json_object *result)
{
    return rpc_end(rpc_begin(id, true), "result", result);
}

struct json_object *rpc_error(
    struct json_object *id, int code, const char *text, struct json_object *data)
{
    struct json_object *o = json_object_new_object();
    bool ok =
        o && json_put(o, "code", json_object_new_int(code)) && json_put_text(o, "message", text);
    if (ok && data)
        ok = json_put(o, "data", steal(&data));
    json_object_put(data);
    if (!ok) {
        json_object_put(o);
        o = NULL;
    }
    return rpc_end(rpc_begin(id, true), "error", o);
}
