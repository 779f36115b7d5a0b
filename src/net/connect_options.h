/* net/connect_options.h: how a server is reached, but for its address: through which socket, trusting whom, and as whom. */
#ifndef DROSTE_NET_CONNECT_OPTIONS_H
#define DROSTE_NET_CONNECT_OPTIONS_H

#include <curl/curl.h>

struct connect_options {
    const char *unix_path; /* the socket that takes the connections instead; NULL: none */
    const char *ca_file;   /* certificates to trust; NULL: the system's */
    const char *cert_file, *key_file; /* to show the server who we are; NULL: nothing */
};

/* libcurl copies the texts. */
void connect_options_apply(CURL *easy, const struct connect_options *connect_options);

#endif
