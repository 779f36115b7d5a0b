/* cli/ask.c: see ask.h. A timer moves the clocks. */
#include "cli/ask.h"

#include <stdio.h>

#include "cli/approvals.h"
#include "cli/cli.h"
#include "cli/terminal/progress.h"

int cli_ask(droste *d, droste_request *request, bool show, droste_result **out, droste_error *err)
{
    cli_approve(d);
    struct progress *progress = show ? progress_open(stderr, d) : NULL;
    *out = NULL;
    request->event = progress ? progress_event : NULL;
    request->all_events = progress != NULL;
    request->arg = progress;
    int rc = droste_ask(d, request, out, err);
    progress_close(progress, rc < 0 ? NULL : *out);
    return rc;
}
