/* env/common/custom.h: environments implemented by the embedding program, which executes the cells.
 *
 * The other environments move bytes to a guest. Here there is no guest: custom.c decodes the frames
 * that a session sends, calls the program's functions, and encodes the program's answers as the
 * frames that a guest would send. The layers above (sessions, the broker, the loop, the record) do
 * not notice the difference.
 */
#pragma once

#include "droste/environment.h"
#include "env/common/environment.h"

/* The name, the table and its `about` must outlive the environment. */
int custom_open(struct loop *loop, const char *name, const droste_custom_environment *ops,
    void *arg, struct environment **out, struct error *err);

/* Reports from the program, on the loop's thread. Ignored after the sandbox's end. */
void custom_output(droste_custom_sandbox *s, int stream, const char *data, size_t len);
/* ERROR_ARGUMENT: the operation is not running, or the JSON is not an object. `submit` may be
 * NULL. */
int custom_result(droste_custom_sandbox *s, uint64_t operation, const char *json, size_t len,
    const char *submit, size_t submit_len, struct error *err);
int custom_call(
    droste_custom_sandbox *s, uint64_t call, const char *json, size_t len, struct error *err);
void custom_cancel(droste_custom_sandbox *s, uint64_t call);
void custom_end(droste_custom_sandbox *s, const char *why);
