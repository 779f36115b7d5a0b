/* serve/e2b/pause.c: a paused sandbox keeps its processes, which are stopped, and its memory, and
 * answers nothing but the control plane.
 */
#include <errno.h>

#include "base/clock.h"
#include "serve/e2b/e2b.h"

enum { PAUSE_SECONDS = 10 };

int e2b_sandbox_pause(struct e2b_sandbox *e, droste_error *err)
{
    int rc = droste_session_pause(e->sandbox->session, 1, err);
    e->paused = rc == 0;
    if (rc == 0)
        e2b_log(e, E2B_INFO, "sandbox_pause", NULL, "Sandbox paused");
    return rc;
}

/* A sandbox that was just created may be starting a process, of a context, say. */
void e2b_sandbox_pause_for(struct e2b_sandbox *e)
{
    struct request *r = e->pausing;
    droste_error err;
    int rc = e2b_sandbox_pause(e, &err);
    if (rc < 0 && err.sys == EAGAIN && clock_seconds_since(r->began_ns) < PAUSE_SECONDS)
        return; /* until the next sweep */
    e->pausing = NULL;
    r->state = NULL;
    if (rc < 0)
        request_fail(r, &err);
    else
        request_reply(r, 204, NULL, NULL, 0);
}

void e2b_sandbox_resume(struct e2b_sandbox *e)
{
    droste_session_pause(e->sandbox->session, 0, NULL);
    if (e->paused)
        e2b_log(e, E2B_INFO, "sandbox_resume", NULL, "Sandbox resumed");
    e->paused = false;
}
