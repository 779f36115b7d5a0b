/* api/session_api.h: opening sessions, and what concerns all of them. */
#pragma once

#include "droste.h"

struct error;
struct settings;
struct workspace;

/* Opens a session with a workspace, which it takes; NULL: as the settings say. */
int api_session_open_staged(
    droste *d, struct workspace *workspace, droste_session **out, droste_error *err);
/* Opens one with these settings instead of the droste's. */
int api_session_open_with(
    droste *d, const struct settings *s, droste_session **out, struct error *err);
/* Opens one for the files of a provider's volume, which must exist. */
int api_session_open_volume(
    droste *d, struct workspace *workspace, droste_session **out, droste_error *err);

/* Interrupts the active cells and the staging of all sessions. */
void api_interrupt_sessions(droste *d);
void api_drop_session_stagings(droste *d);
