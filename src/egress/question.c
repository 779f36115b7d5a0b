/* egress/question.c: see question.h. */
#include "egress/question.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "egress/connection.h"

struct egress_question {
    droste_network_request shown;  /* the first member: the program has a pointer to it */
    struct connection *connection; /* NULL: it does not wait any more */
    bool is_asking;                /* the program's function has not returned */
    bool is_decided, allow;
    char why[EGRESS_WHY_SIZE];
    char method[EGRESS_METHOD_SIZE];
    char *host, *path;
    char *secrets[SECRETS_MAX + 1];
};

static void question_free(struct egress_question *q)
{
    for (size_t i = 0; i <= SECRETS_MAX; i++)
        free(q->secrets[i]);
    free(q->host);
    free(q->path);
    free(q);
}

/* The names of the secrets in the request, each once. */
static bool question_take_secrets(struct egress_question *q, const struct connection *c)
{
    size_t count = 0;
    for (size_t i = 0; i < egress_policy_secret_count(c->proxy->policy); i++) {
        const char *name = egress_policy_secret(c->proxy->policy, i)->name;
        bool is_new = c->target.secrets & 1u << i;
        for (size_t k = 0; k < count && is_new; k++)
            is_new = strcmp(q->secrets[k], name) != 0;
        if (is_new && !(q->secrets[count++] = strdup(name)))
            return false;
    }
    return true;
}

static struct egress_question *question_new(struct connection *c)
{
    const struct egress_target *t = &c->target;
    struct egress_question *q = calloc(1, sizeof *q);
    if (!q)
        return NULL;
    memcpy(q->method, t->method, sizeof q->method);
    q->host = strdup(t->host.name);
    q->path = t->path ? strdup(t->path) : NULL;
    if (!q->host || (t->path && !q->path) || !question_take_secrets(q, c)) {
        question_free(q);
        return NULL;
    }
    q->shown = (droste_network_request){ q->method, q->host, t->port, q->path,
        (const char *const *)q->secrets };
    q->connection = c;
    return q;
}

bool question_ask(struct connection *c)
{
    struct egress_question *q = question_new(c);
    if (!q)
        return false;
    c->question = q;
    q->is_asking = true;
    egress_policy_ask(c->proxy->policy, &q->shown);
    q->is_asking = false;
    return true;
}

bool question_approve(struct connection *c, bool whole)
{
    struct egress *proxy = c->proxy;
    struct egress_question *q = proxy->arg && proxy->events->approve ? question_new(c) : NULL;
    if (!q)
        return false;
    q->shown.path = whole ? NULL : q->path;
    c->question = q;
    q->is_asking = true;
    bool asked = proxy->events->approve(proxy->arg, &q->shown);
    q->is_asking = false;
    if (asked)
        return true;
    c->question = NULL;
    question_free(q);
    return false;
}

bool question_is_decided(struct connection *c, bool *allow)
{
    struct egress_question *q = c->question;
    if (!q->is_decided)
        return false;
    *allow = q->allow;
    memcpy(c->why, q->allow ? "" : q->why, q->allow ? 1 : sizeof c->why);
    c->question = NULL;
    question_free(q);
    return true;
}

void question_forget(struct connection *c)
{
    if (c->question)
        c->question->connection = NULL;
    c->question = NULL;
}

void egress_answer(droste_network_request *shown, bool allow, const char *reason)
{
    struct egress_question *q = (struct egress_question *)(void *)shown;
    if (!q->connection) {
        question_free(q);
        return;
    }
    q->is_decided = true;
    q->allow = allow;
    reason = reason && reason[0] ? reason : "the program refuses it";
    size_t len = strlen(reason);
    snprintf(q->why, sizeof q->why, "%.*s",
        (int)(len < sizeof q->why ? len : text_utf8_floor(reason, len, sizeof q->why - 1)), reason);
    if (!q->is_asking)
        connection_decided(q->connection);
}
