/* serve/notify.h: tells systemd, or another manager, how the server is (sd_notify(3)). */
#ifndef DROSTE_SERVE_NOTIFY_H
#define DROSTE_SERVE_NOTIFY_H

/* "READY=1", "STOPPING=1". Does nothing without $NOTIFY_SOCKET. */
void notify_manager(const char *state);

#endif
