/* cli/ask.c: see ask.h. A timer moves the clocks. */
#include "cli/ask.h"

#include <stdio.h>

#include "cli/approvals.h"
#include "cli/terminal/progress.h"

static void cli_ask_on_event(void *arg, const droste_event *e)
{
    (void)arg;
    cli_approval_event(e);
}

int cli_ask(droste *d, droste_request *request, bool show, droste_result **out, droste_error *err)
{
    cli_approve(d);
    struct progress *progress = show ? progress_open(stderr, d) : NULL;
    *out = NULL;
    request->event = progress ? progress_event : cli_ask_on_event;
    request->all_events = progress != NULL;
    request->arg = progress;
    int rc = droste_ask(d, request, out, err);
    progress_close(progress, rc < 0 ? NULL : *out);
    return rc;
}
