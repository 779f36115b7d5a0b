/* serve/mcp/host.c: the Python sessions and runs of MCP clients are sandboxes and runs of the
 * server: counted, limited and ended as all others. */
#include <stdlib.h>

#include "base/clock.h"
#include "serve/mcp/mcp.h"
#include "serve/access/spending.h"
#include "serve/sandbox/sandbox.h"

/* Room that was asked for. */
struct mcp_ticket {
    struct admission admission;
    struct mcp_place *place;
    double held_cost; /* of a run: see spending.h */
};

static struct mcp_ticket *ticket_of(struct admission *a)
{
    return (struct mcp_ticket *)a; /* its first member */
}

static void ticket_free(struct mcp_ticket *t)
{
    const struct admission *a = &t->admission;
    if (t->held_cost > 0)
        table_hold(a->account->row, a->server->worker, -t->held_cost);
    admission_leave(&t->admission);
    free(t);
}

static void ticket_refuse(
    struct admission *a, unsigned status, const char *code, const char *text, double wait)
{
    struct mcp_ticket *t = ticket_of(a);
    struct mcp_place *place = t->place;
    droste_error err = { .code = DROSTE_ERROR_ENVIRONMENT };
    (void)status;
    if (wait > 0)
        snprintf(err.text, sizeof err.text, "%s (%s; try again in %.0f s)", text, code, wait);
    else
        snprintf(err.text, sizeof err.text, "%s (%s)", text, code);
    place->host = NULL;
    ticket_free(t);
    place->go(place, &err);
}

static void ticket_go(struct admission *a)
{
    struct mcp_ticket *t = ticket_of(a);
    struct mcp_place *place = t->place;
    double most = 0;
    if (place->is_run) {
        droste_get_number(a->server->d, "max-cost", &most);
        t->held_cost = spending_take(a->server, a->account, most);
    }
    if (t->held_cost < 0)
        ticket_refuse(a, 429, "cost", "models have cost this key what it may spend a day (UTC)", 0);
    else
        place->go(place, NULL);
}

static void host_ask(void *user, struct mcp_place *place)
{
    const struct mcp_party *party = user;
    struct mcp_ticket *t = calloc(1, sizeof *t);
    if (!t) {
        const droste_error err = { .code = DROSTE_ERROR_MEMORY, .text = "out of memory" };
        place->go(place, &err);
        return;
    }
    t->admission = (struct admission){
        .server = party->server, .account = party->account, .go = ticket_go, .refuse = ticket_refuse
    };
    t->place = place;
    place->host = t;
    admission_seek(&t->admission);
}

static void host_leave(struct mcp_place *place)
{
    struct mcp_ticket *t = place->host;
    place->host = NULL;
    ticket_free(t);
}

static void host_settle(struct mcp_place *place)
{
    struct mcp_ticket *t = place->host;
    admission_settle(&t->admission);
}

static bool host_may_run(void *user)
{
    const struct mcp_party *party = user;
    return (party->account->key.scopes & (SCOPE_RUNS | SCOPE_ADMIN)) != 0;
}

static double host_life(const struct mcp_party *party)
{
    double most = party->server->options->life_seconds;
    double of_key = party->account->key.limits.life_seconds;
    return of_key > 0 && of_key < most ? of_key : most;
}

static const char **host_settings(const struct mcp_place *place)
{
    const struct mcp_ticket *t = place->host;
    const struct mcp_party party = { t->admission.server, t->admission.account };
    const struct key_limits *limits = &party.account->key.limits;
    struct {
        const char *words[10];
        char timeout[32], cost[32];
    } *all = calloc(1, sizeof *all);
    size_t n = 0;
    double timeout = 0;
    if (!all)
        return NULL;
    if (limits->memory[0]) {
        all->words[n++] = "memory";
        all->words[n++] = limits->memory;
    }
    if (limits->cpus[0]) {
        all->words[n++] = "cpus";
        all->words[n++] = limits->cpus;
    }
    if (t->held_cost > 0) {
        snprintf(all->cost, sizeof all->cost, "%.9f", t->held_cost);
        all->words[n++] = "max-cost";
        all->words[n++] = all->cost;
    }
    if (place->is_run) { /* the life of a sandbox limits the run, too */
        double most = host_life(&party);
        droste_get_number(party.server->d, "timeout", &timeout);
        snprintf(all->timeout, sizeof all->timeout, "%.3f",
            timeout > 0 && timeout < most ? timeout : most);
        all->words[n++] = "timeout";
        all->words[n++] = all->timeout;
    }
    return all->words;
}

/* ---- sandboxes ---- */

static void host_idle(struct sandbox *sb)
{
    mcp_session_idle(sb->mcp);
}

static void host_lost(struct sandbox *sb)
{
    mcp_session_lost(sb->mcp);
}

static const struct sandbox_hooks host_hooks = { .idle = host_idle, .close = host_lost };

static void *host_add(struct mcp_place *place, struct mcp_session *s, droste_session *session)
{
    struct mcp_ticket *t = place->host;
    struct server *server = t->admission.server;
    struct account *account = t->admission.account;
    struct sandbox *sb = sandbox_add(server, &t->admission, account, session);
    host_leave(place);
    if (!sb)
        return NULL;
    table_count(server->figures, COUNT_CREATED, 1);
    const struct mcp_party party = { server, account };
    double idle = account->key.limits.idle_seconds;
    sb->life_seconds = host_life(&party);
    if (idle > 0 && idle < sb->idle_seconds)
        sb->idle_seconds = idle;
    sb->metadata = json_object_new_object();
    if (sb->metadata)
        json_put_text(sb->metadata, "client", "mcp");
    sb->mcp = s;
    sb->hooks = &host_hooks;
    return sb;
}

static void host_close(void *held)
{
    struct sandbox *sb = held;
    sb->hooks = NULL;
    sandbox_close(sb);
}

static void host_on_done(
    struct sandbox *sb, struct request *r, droste_result *result, const droste_error *err)
{
    (void)r;
    cell_end(&sb->cell, result);
    if (sb->hooks)
        mcp_session_done(sb->mcp, result, err);
}

static void host_begin(void *held, void *stream)
{
    struct sandbox *sb = held;
    const struct mcp_stream *st = stream;
    sandbox_begin(sb, NULL, host_on_done);
    if (st)
        cell_begin(&sb->cell, sb, sb->session, st->r, "python");
}

static bool host_is_busy(void *held)
{
    const struct sandbox *sb = held;
    return sb->done != NULL;
}

static void host_use(void *held)
{
    struct sandbox *sb = held;
    sb->used_ns = clock_ns();
}

/* ---- runs ---- */

static const char *host_account(void *user)
{
    const struct mcp_party *party = user;
    return party->account->key.id;
}

static int host_make_run_id(void *user, char id[DROSTE_RUN_ID_SIZE])
{
    const struct mcp_party *party = user;
    char made[SERVE_ID_SIZE];
    int rc = server_make_id(party->server, made);
    if (rc == 0) {
        snprintf(id, DROSTE_RUN_ID_SIZE, "%s", made);
        table_count(party->server->figures, COUNT_RUNS, 1);
    }
    return rc;
}

static int host_on_spent(void *arg, const droste_record_run *run, droste_error *err)
{
    struct account *account = arg;
    (void)err;
    if (run->ended_ms > 0)
        table_spend(account->row, run->input_tokens, run->output_tokens, run->cost);
    return 0;
}

static void host_ran(void *user, const char *id)
{
    const struct mcp_party *party = user;
    struct server *s = party->server;
    if (server_record(s, NULL))
        droste_record_get(s->record, id, host_on_spent, party->account, NULL);
}

const struct mcp_host serve_mcp_host = { .ask = host_ask,
    .leave = host_leave,
    .settle = host_settle,
    .may_run = host_may_run,
    .settings = host_settings,
    .add = host_add,
    .close = host_close,
    .begin = host_begin,
    .is_busy = host_is_busy,
    .use = host_use,
    .account = host_account,
    .make_run_id = host_make_run_id,
    .ran = host_ran };
