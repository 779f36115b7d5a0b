/* net/connect_options.c: see connect_options.h. */
#include "net/connect_options.h"

#include <stddef.h>

void connect_options_apply(CURL *easy, const struct connect_options *connect_options)
{
    if (connect_options->unix_path) {
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, connect_options->unix_path);
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    }
    if (connect_options->cert_file)
        curl_easy_setopt(easy, CURLOPT_SSLCERT, connect_options->cert_file);
    if (connect_options->key_file)
        curl_easy_setopt(easy, CURLOPT_SSLKEY, connect_options->key_file);
    if (connect_options->ca_file) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, connect_options->ca_file);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL); /* instead of the system's, not beside them */
    }
}
