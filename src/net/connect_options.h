/* net/connect_options.h: connection options: CA, client certificate, socket. */
#pragma once

#include <curl/curl.h>

#include "base/error.h"

struct connect_options {
    const char *unix_path;            /* a Unix socket to connect to instead; NULL: none */
    const char *ca_file;              /* certificates to trust; NULL: the system's */
    const char *cert_file, *key_file; /* the client's certificate; NULL: none */
};

/* Checks that the three files are regular and at most CERTIFICATES_MAX bytes; libcurl would wait
 * for a FIFO on the loop's thread. ERROR_CONFIG. */
enum { CERTIFICATES_MAX = 16 << 20 };
int connect_options_check(const struct connect_options *connect_options, struct error *err);

/* libcurl copies the texts. */
void connect_options_apply(CURL *easy, const struct connect_options *connect_options);
