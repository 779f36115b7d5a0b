/* net/retry.h: the pause before a retry, for services and models alike.
 *
 * The pause doubles from half a second to half a minute and is shortened at random by up to half,
 * so that requests that failed together do not return together. A pause that the server requested
 * (Retry-After) takes precedence, up to a minute, and is only lengthened at random. A pause that
 * would exceed the deadline is not started, because the server's message is more useful than
 * "timeout". The caller decides what to retry, and how often.
 */
#pragma once

/* The seconds of a requested pause that are honoured. */
double retry_asked_seconds(double asked);
/* Seconds until the next try after `tries` tries; negative: it would exceed the `left` seconds
 * (INFINITY: no deadline). `asked` is 0 if the server requested nothing. */
double retry_pause_seconds(unsigned tries, double asked, double left);
