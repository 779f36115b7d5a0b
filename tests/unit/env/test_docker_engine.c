/* The Docker daemon's address, from the environment variables of Docker's own client. */
#include "../test.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "env/docker/engine.h"

static const char *const variables[] = { "DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH" };

static int engine_clear(void **state)
{
    for (size_t i = 0; i < array_length(variables); i++)
        unsetenv(variables[i]);
    return 0;
}

static int engine_setup(void **state)
{
    engine_clear(state);
    return loop_open((struct loop **)state, &(struct error){ 0 });
}

static int engine_teardown(void **state)
{
    loop_close(*state);
    return engine_clear(state);
}

static void a_socket_is_this_machines(void **state)
{
    struct engine *e = NULL;
    assert_ok(engine_open(*state, &e, err));
    assert_string_equal(engine_address(e), "unix:///var/run/docker.sock");
    assert_true(engine_is_local(e));
    engine_close(e);
    setenv("DOCKER_HOST", "unix:///run/user/1/podman.sock", 1);
    assert_ok(engine_open(*state, &e, err));
    assert_string_equal(engine_address(e), "unix:///run/user/1/podman.sock");
    assert_true(engine_is_local(e));
    engine_close(e);
}

static void tcp_may_leave_its_port_out(void **state)
{
    static const char *const hosts[] = { "tcp://127.0.0.1:2375", "tcp://docker.example",
        "tcp://docker.example:65535/", "tcp://127.0.0.1:", "tcp://[::1]", "tcp://[::1]:2375" };
    struct engine *e = NULL;
    for (size_t i = 0; i < array_length(hosts); i++) {
        setenv("DOCKER_HOST", hosts[i], 1);
        assert_ok(engine_open(*state, &e, err));
        assert_string_equal(engine_address(e), hosts[i]);
        assert_false(engine_is_local(e));
        engine_close(e);
    }
}

static void other_addresses_are_refused(void **state)
{
    static const char *const wrong[] = { "ssh://host", "unix://docker.sock", "docker.example:2375",
        "npipe:////./pipe/docker", "tcp://", "tcp://:2375", "tcp://host:65536", "tcp://host:0",
        "tcp://host:2375x", "tcp://host:port", "tcp://::1", "tcp://host:23752375237523752375" };
    struct engine *e = NULL;
    for (size_t i = 0; i < array_length(wrong); i++) {
        setenv("DOCKER_HOST", wrong[i], 1);
        assert_fails_saying(ERROR_CONFIG, "DOCKER_HOST", engine_open(*state, &e, err));
        assert_null(e);
    }
}

/* With DOCKER_TLS_VERIFY all three files must be there; the message names the variable. */
static void tls_needs_its_certificates(void **state)
{
    static const char *const files[] = { "ca.pem", "cert.pem", "key.pem" };
    char place[] = "/tmp/droste-docker-XXXXXX", path[64];
    struct engine *e = NULL;
    assert_non_null(mkdtemp(place));
    setenv("DOCKER_HOST", "tcp://127.0.0.1", 1);
    setenv("DOCKER_TLS_VERIFY", "1", 1);
    setenv("DOCKER_CERT_PATH", place, 1);
    for (size_t i = 0; i < array_length(files); i++) {
        assert_fails_saying(ERROR_CONFIG, "DOCKER_CERT_PATH", engine_open(*state, &e, err));
        snprintf(path, sizeof path, "%s/%s", place, files[i]);
        close(open(path, O_CREAT | O_WRONLY, 0600));
    }
    assert_ok(engine_open(*state, &e, err));
    engine_close(e);
    for (size_t i = 0; i < array_length(files); i++) {
        snprintf(path, sizeof path, "%s/%s", place, files[i]);
        unlink(path);
    }
    rmdir(place);
}

/* Before anything is sent: a socket that is not there is named, with what to do. */
static void a_missing_socket_is_named(void **state)
{
    setenv("DOCKER_HOST", "unix:///nowhere/docker.sock", 1);
    struct error why = { 0 };
    assert_true(engine_configured(&why) < 0);
    assert_non_null(strstr(why.text, "/nowhere/docker.sock"));
    setenv("DOCKER_HOST", "tcp://127.0.0.1", 1);
    assert_ok(engine_configured(err));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, engine_setup, engine_teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_socket_is_this_machines),
        TEST(tcp_may_leave_its_port_out),
        TEST(other_addresses_are_refused),
        TEST(tls_needs_its_certificates),
        TEST(a_missing_socket_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
