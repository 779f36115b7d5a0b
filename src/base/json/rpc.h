/* base/json/rpc.h: messages of JSON-RPC 2.0, for servers and clients of MCP. */
#pragma once

#include "base/json/json.h"

/* Codes of JSON-RPC and of MCP. */
enum {
    RPC_PARSE = -32700,
    RPC_REQUEST = -32600,
    RPC_METHOD = -32601,
    RPC_PARAMS = -32602,
    RPC_INTERNAL = -32603,
    RPC_NO_RESOURCE = -32002, /* up to 2025-11-25; later RPC_PARAMS */
    RPC_NO_SESSION = -32001,  /* over HTTP, up to 2025-11-25 */
    RPC_HEADER = -32020,      /* these from 2026-07-28 */
    RPC_CAPABILITY = -32021,
    RPC_VERSION = -32022,
};

enum rpc_kind { RPC_CALL, RPC_NOTE, RPC_ANSWER };

/* A message that was read. All but the tree belongs to the tree. */
struct rpc_message {
    enum rpc_kind kind;
    struct json_object *tree;
    struct json_object *id;             /* NULL: none, or none that is valid */
    struct json_object *params;         /* an object; NULL: none */
    struct json_object *result, *error; /* of an answer; one of them may be JSON's null */
    const char *method;                 /* NULL of an answer */
};

/* Reads one message; json_object_put(out->tree) also after an error. Negative: it is none, *code is
 * what its sender is told, and err->text why; out->id is set if it has one. */
int rpc_read(const char *text, size_t len, struct rpc_message *out, int *code, struct error *err);

/* Messages to send; NULL without memory. They take their arguments. Without an id, rpc_call makes a
 * notification; params may be NULL. */
struct json_object *rpc_call(
    struct json_object *id, const char *method, struct json_object *params);
struct json_object *rpc_result(struct json_object *id, struct json_object *result);
struct json_object *rpc_error(
    struct json_object *id, int code, const char *text, struct json_object *data);
