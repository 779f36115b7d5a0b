/* serve/openai/response_id.c: the ids of responses. That of the first response of a run has the
 * run's digits, and those of the responses that go on with it have a hash (response_approvals.c).
 */
#include "serve/openai/response_id.h"

#include <string.h>

#include "base/hash.h"

void response_id(char out[RESPONSE_ID_SIZE], const char *run, int64_t from)
{
    char text[SERVE_ID_SIZE + 32], hex[HASH_TEXT_SIZE] = "";
    snprintf(text, sizeof text, "%s %lld", run, (long long)from);
    if (from > 0)
        hash_sha256(text, strlen(text), hex, NULL);
    snprintf(out, RESPONSE_ID_SIZE, "resp_%.*s%.*s", from > 0 ? SERVE_ID_PLACE : SERVE_ID_SIZE - 1,
        run, from > 0 ? SERVE_ID_SIZE - 1 - SERVE_ID_PLACE : 0, hex);
}

void response_locate(struct request *r, const char *path)
{
    static const char prefix[] = "/v1/responses/resp_";
    size_t n = sizeof prefix - 1;
    if (strncmp(path, prefix, n) != 0 || strspn(path + n, "0123456789abcdef") != SERVE_ID_SIZE - 1)
        return;
    memcpy(r->id, path + n, SERVE_ID_SIZE - 1);
    r->id[SERVE_ID_SIZE - 1] = '\0';
}

bool response_is_id(const char *id)
{
    return strncmp(id, "resp_", 5) == 0 && strlen(id) == RESPONSE_ID_SIZE - 1 &&
           strspn(id + 5, "0123456789abcdef") == SERVE_ID_SIZE - 1;
}
