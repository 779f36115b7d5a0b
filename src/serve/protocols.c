/* serve/protocols.c: the protocols of the server, in the order in which they are asked. */
#include "base/cleanup.h"
#include "serve/console.h"
#include "serve/e2b/e2b.h"
#include "serve/jupyter/jupyter.h"
#include "serve/mcp/mcp.h"
#include "serve/native/native.h"
#include "serve/openai/openai.h"
#include "serve/sandbox/commits.h"

const struct routes *const serve_protocols[] = { &e2b_envd_routes, &e2b_interpreter_routes,
    &e2b_port_routes, &console_routes, &mcp_routes, &openai_routes, &jupyter_routes, &native_routes,
    &commit_routes, &e2b_control_routes };

const size_t serve_protocol_count = array_length(serve_protocols);
