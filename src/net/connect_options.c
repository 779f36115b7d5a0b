/* net/connect_options.c: checks connection options, and sets them on a curl handle. */
#include "net/connect_options.h"

#include <fcntl.h>
#include <stddef.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* A libcurl that was built for every system (make wheel) has no path of certificates of its own:
 * returns the first of the usual ones that exists, as Go's crypto/x509 lists them. NULL where
 * libcurl has one, or none exists. */
static const char *system_certificates(void)
{
    static const char *const files[] = {
        "/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch, NixOS */
        "/etc/pki/tls/certs/ca-bundle.crt",                  /* Fedora, Red Hat 6 and later */
        "/etc/ssl/ca-bundle.pem",                            /* openSUSE */
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* CentOS, Red Hat 7 */
        "/etc/ssl/cert.pem",                                 /* Alpine */
    };
    const curl_version_info_data *about = curl_version_info(CURLVERSION_NOW);
    if (about->age < CURLVERSION_SEVENTH || about->cainfo || about->capath)
        return NULL;
    for (size_t i = 0; i < array_length(files); i++)
        if (access(files[i], R_OK) == 0)
            return files[i];
    return NULL;
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
        return;
    }
    const char *found = system_certificates();
    if (found)
        curl_easy_setopt(easy, CURLOPT_CAINFO, found);
}
