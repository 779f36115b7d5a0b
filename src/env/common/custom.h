/* env/common/custom.h: environments of the embedding program, which executes the cells itself.
 *
 * The other environments carry bytes to a guest of ours. Here there is no guest: this file decodes the frames that a
 * session sends and calls the program's functions, and writes the program's answers as the frames that a guest would
 * have sent. So everything above (sessions, the broker, the loop, the record) is the same.
 */
#ifndef DROSTE_ENV_COMMON_CUSTOM_H
#define DROSTE_ENV_COMMON_CUSTOM_H

#include "env/common/environment.h"

struct custom_sandbox;

/* droste.h, droste_custom_environment, has what each is for. */
struct custom_ops {
    size_t size;
    const char *about;
    int (*open)(void *arg, struct custom_sandbox *s, void **own);
    void (*set)(void *own, uint64_t operation, const char *name, const char *kind, const void *data,
        size_t len);
    void (*execute)(void *own, uint64_t operation, const char *code, size_t len);
    void (*interrupt)(void *own, uint64_t operation);
    void (*reply)(void *own, uint64_t call, const char *json, size_t len);
    void (*close)(void *own);
};

/* The name, the ops and `about` last as long as the environment. */
int custom_open(struct loop *loop, const char *name, const struct custom_ops *ops, void *arg,
    struct environment **out, struct error *err);

/* What the program tells of a sandbox, in the loop's thread. After its end they do nothing. */
void custom_output(struct custom_sandbox *s, int stream, const char *data, size_t len);
/* ERROR_ARGUMENT: the operation is not under way, or the JSON is no object. `submit` may be NULL. */
int custom_result(struct custom_sandbox *s, uint64_t operation, const char *json, size_t len,
    const char *submit, size_t submit_len, struct error *err);
int custom_call(
    struct custom_sandbox *s, uint64_t call, const char *json, size_t len, struct error *err);
void custom_cancel(struct custom_sandbox *s, uint64_t call);
void custom_end(struct custom_sandbox *s, const char *why);

#endif
