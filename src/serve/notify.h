/* serve/notify.h: tells systemd, or another manager, how the server is (sd_notify(3)). */
#pragma once

/* "READY=1", "STOPPING=1". Does nothing without $NOTIFY_SOCKET. */
void notify_manager(const char *state);
