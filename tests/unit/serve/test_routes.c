/* The table of routes: which request is for which route, what a key needs, and the document. */
#include "../test.h"

#include "base/cleanup.h"
#include "serve/e2b/e2b.h"

/* The route of a request without headers. */
static const struct route *find(
    struct request *r, const char *method, const char *path, const char **allowed)
{
    *r = (struct request){ 0 };
    return route_find(r, method, path, allowed) ? r->route : NULL;
}

static void parts_of_a_path_are_taken(void **state)
{
    struct request r;
    const char *allowed = NULL;
    const struct route *route = find(&r, "GET", "/v1/sandboxes/ab12/variables/x_1", &allowed);
    assert_non_null(route);
    assert_string_equal(route->path, "/v1/sandboxes/{id}/variables/{name}");
    assert_string_equal(r.id, "ab12");
    assert_string_equal(r.name, "x_1");
    assert_string_equal(find(&r, "POST", "/v1/sandboxes/ab12/execute", &allowed)->path,
        "/v1/sandboxes/{id}/execute");
    assert_string_equal(find(&r, "GET", "/health", &allowed)->path, "/health");
    assert_string_equal(find(&r, "GET", "/", &allowed)->path, "/");
}

static void a_wrong_method_is_answered_with_those_allowed(void **state)
{
    struct request r;
    const char *allowed = NULL;
    assert_null(find(&r, "DELETE", "/v1/sandboxes/ab12/execute", &allowed));
    assert_string_equal(allowed, "POST");
    cleanup_buf struct buf methods = { 0 };
    assert_null(find(&r, "OPTIONS", "/v1/sandboxes/ab12/files", &allowed));
    route_methods(r.routes, "/v1/sandboxes/ab12/files", &methods);
    assert_string_equal(buf_text(&methods), "GET, PUT, DELETE");
    assert_null(find(&r, "get", "/health", &allowed));
    assert_string_equal(allowed, "GET");
}

#define DIGITS32 "0123456789abcdef0123456789abcdef"

static void other_paths_are_none(void **state)
{
    static const char *const wrong[] = { "", "/v1", "/console/", "/v1/sandboxes/", "/health/",
        "//health", "/v1/sandboxes//execute", "/v1/sandboxes/a/b/execute",
        "/v1/sandboxes/a/execute/", "/v1/sandboxes/" DIGITS32 "0",
        "/v1/sandboxes/a/variables/" DIGITS32 DIGITS32 "0" };
    struct request r;
    const char *allowed = NULL;
    for (size_t i = 0; i < array_length(wrong); i++) {
        if (find(&r, "GET", wrong[i], &allowed) || allowed)
            fail_msg("'%s' has a route", wrong[i]);
    }
    assert_non_null(find(&r, "GET", "/v1/sandboxes/" DIGITS32, &allowed));
    assert_non_null(find(&r, "GET", "/v1/sandboxes/a/variables/" DIGITS32 DIGITS32, &allowed));
}

/* Each route is found by its own path, so that none hides another. */
static void each_route_is_found_by_its_path(void **state)
{
    size_t own = 0;
    for (size_t i = 0; route_at(i); i++) {
        const struct route *route = route_at(i);
        assert_non_null(route->handle);
        assert_true(route->body == BODY_JSON || route->status == 101 || !route->schema);
        if (strncmp(route->path, "/v1/", 4) != 0)
            continue;
        char path[128] = "";
        for (const char *p = route->path; *p; p++) {
            if (*p == '{')
                p = strchr(p, '}');
            strncat(path, *p == '}' ? "x" : p, 1);
        }
        struct request r;
        const char *allowed = NULL;
        assert_ptr_equal(find(&r, route->method, path, &allowed), route);
        own++;
    }
    assert_true(own > 20);
}

/* A key that may only read changes nothing; what needs no key is health and the document. */
static void reading_needs_less_than_using(void **state)
{
    for (size_t i = 0; route_at(i); i++) {
        const struct route *route = route_at(i);
        unsigned scopes = route_scopes(route);
        if (route->scopes == 0 && strcmp(route->method, "GET") != 0)
            assert_int_equal(scopes, SCOPE_SANDBOXES);
        else if (route->scopes == 0)
            assert_int_equal(scopes, SCOPE_SANDBOXES | SCOPE_READ);
        assert_true(scopes != 0);
    }
    struct request r;
    const char *allowed = NULL;
    assert_int_equal(route_scopes(find(&r, "GET", "/health", &allowed)), SCOPE_NONE);
    assert_true(route_scopes(find(&r, "GET", "/metrics", &allowed)) & SCOPE_METRICS);
}

static void a_sandboxes_host_names_port_and_id(void **state)
{
    static const char *const right[] = { "49983-abc1.example.org", "1-a.b:8080", "65535-0.x" };
    static const char *const wrong[] = { "localhost", "example-site.org", "49983-abc", "0-a.b",
        "65536-a.b", "123456-a.b", "-a.b", "49983-.b", "49983-ABC.b", "49983-a-b.c", "49983-a:80",
        "x49983-a.b", "49983-" DIGITS32 "0.b" };
    for (size_t i = 0; i < array_length(right); i++)
        assert_true(e2b_host_is_sandbox(right[i]));
    for (size_t i = 0; i < array_length(wrong); i++)
        if (e2b_host_is_sandbox(wrong[i]))
            fail_msg("'%s' is a sandbox's", wrong[i]);
    assert_false(e2b_host_is_sandbox(NULL));
}

static void the_document_is_json_with_each_documented_path(void **state)
{
    cleanup_buf struct buf text = { 0 };
    struct error err = { 0 };
    cleanup_json struct json_object *o = NULL;
    serve_openapi(&text);
    assert_false(buf_failed(&text));
    if (json_parse(buf_text(&text), text.len, &json_limits_large, &o, &err) < 0)
        fail_msg("%s", err.text);
    struct json_object *paths = json_get_typed(o, "paths", json_type_object);
    for (size_t i = 0; i < serve_protocol_count; i++)
        for (size_t j = 0; serve_protocols[i]->is_documented && j < serve_protocols[i]->count; j++)
            assert_non_null(
                json_get_typed(paths, serve_protocols[i]->rows[j].path, json_type_object));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_of_a_path_are_taken),
        cmocka_unit_test(a_wrong_method_is_answered_with_those_allowed),
        cmocka_unit_test(other_paths_are_none),
        cmocka_unit_test(each_route_is_found_by_its_path),
        cmocka_unit_test(reading_needs_less_than_using),
        cmocka_unit_test(a_sandboxes_host_names_port_and_id),
        cmocka_unit_test(the_document_is_json_with_each_documented_path),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
