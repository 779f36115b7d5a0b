/* api/template_api.c: makes templates of live sessions. */
#include "api/api.h"
#include "api/session_ops.h"
#include "api/templates.h"

static int template_api_start(droste_session *s, droste_template **out, struct error *err)
{
    droste_template *t = NULL;
    int rc = api_template_new(s->d, &t, err);
    if (rc == 0)
        rc = session_api_save(s, &t->image, err);
    if (rc < 0)
        droste_template_free(t);
    else
        *out = t;
    return rc;
}

int droste_session_template_start(droste_session *s, droste_template **out, droste_error *err)
{
    return template_api_start(s, out, api_error(err));
}

int droste_session_template(droste_session *s, droste_template **out, droste_error *err)
{
    err = api_error(err);
    droste_template *t = NULL;
    api_forget_interrupt(s->d);
    int rc = session_api_finish(s, template_api_start(s, &t, err), NULL, err);
    if (rc < 0)
        droste_template_free(t);
    else
        *out = t;
    return rc;
}
