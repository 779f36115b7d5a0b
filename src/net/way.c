/* net/way.c: see way.h. */
#include "net/way.h"

#include <stddef.h>

void way_take(CURL *easy, const struct way *way)
{
    if (way->unix_path) {
        curl_easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, way->unix_path);
        curl_easy_setopt(easy, CURLOPT_PROXY, "");
    }
    if (way->cert_file)
        curl_easy_setopt(easy, CURLOPT_SSLCERT, way->cert_file);
    if (way->key_file)
        curl_easy_setopt(easy, CURLOPT_SSLKEY, way->key_file);
    if (way->ca_file) {
        curl_easy_setopt(easy, CURLOPT_CAINFO, way->ca_file);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL); /* instead of the system's, not beside them */
    }
}
