/* serve/check.c: `droste serve --check`: tries what a start needs, and serves nothing. */
#include "base/cleanup.h"
#include "serve/access/keys.h"
#include "serve/http/listen.h"
#include "serve/http/tls.h"
#include "serve/jupyter/jupyter.h"
#include "serve/log.h"
#include "serve/openai/openai.h"
#include "serve/serve.h"

static int serve_check_sandbox(droste *d, struct error *err)
{
    droste_session *session = NULL;
    droste_result *result = NULL;
    droste_error why;
    int rc = droste_session_open(d, &session, &why);
    if (rc == 0)
        rc = droste_session_exec(session, "", 0, 0, &result, &why);
    droste_result_free(result);
    droste_session_close(session);
    return rc < 0 ? error_set(err, (enum error_code)why.code, "%s", why.text) : 0;
}

int serve_check(droste *d, const struct serve_options *o, struct error *err)
{
    struct keys keys = { 0 };
    struct openai_models *models = NULL;
    cleanup_fd int audit = -1, traces = -1, notebooks = -1;
    int rc = openai_models_parse(o->models ? o->models : "", &models, err);
    openai_models_free(models);
    if (rc == 0 && o->keys)
        rc = keys_read(o->keys, &keys, err);
    keys_free(&keys);
    if (rc == 0)
        rc = listen_check(o->listen, o->keys != NULL, err);
    if (rc == 0 && o->certificate)
        rc = tls_load(o->certificate, o->certificate_key, err);
    tls_close();
    if (rc == 0 && o->audit_log)
        rc = log_open_file(o->audit_log, "audit log", &audit, err);
    if (rc == 0 && o->traces)
        rc = log_open_file(o->traces, "file of traces", &traces, err);
    if (rc == 0 && o->notebooks)
        notebooks = jupyter_open_directory(o->notebooks, err);
    rc = rc == 0 && o->notebooks && notebooks < 0 ? notebooks : rc;
    return rc == 0 ? serve_check_sandbox(d, err) : rc;
}
