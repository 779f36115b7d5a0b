/* net/connect_options.c: checks connection options, and sets them on a curl handle. */
#include "net/connect_options.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/os/file.h"

int connect_options_check(const struct connect_options *connect_options, struct error *err)
{
    const char *files[] = { connect_options->ca_file, connect_options->cert_file,
        connect_options->key_file };
    for (size_t i = 0; i < array_length(files); i++) {
        struct stat st;
        if (!files[i])
            continue;
        cleanup_fd int fd =
            file_open(files[i], O_RDONLY, FILE_OR_NULL, "the certificate file", err);
        if (fd < 0 && err)
            err->code = ERROR_CONFIG;
        if (fd < 0)
            return -(int)ERROR_CONFIG;
        if (fstat(fd, &st) < 0 || st.st_size > CERTIFICATES_MAX)
            return error_set(err, ERROR_CONFIG, "the certificate file %.200s is larger than %d MiB",
                files[i], CERTIFICATES_MAX >> 20);
    }
    return 0;
}

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
