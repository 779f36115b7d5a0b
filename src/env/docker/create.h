/* env/docker/create.h: translates a specification into a create request (POST /containers/create).
 */
#pragma once

#include "base/json/json.h"
#include "env/common/environment.h"

#define DOCKER_IMAGE "python:3.12-slim"

struct docker_create {
    const struct sandbox_spec *spec;
    const char *loader;             /* Python source for -c */
    const char *volume, *workspace; /* host paths to mount; NULL: none */
    bool input_once;                /* standard input closes with the first connection */
};

const char *docker_image(const struct sandbox_spec *spec);
/* Checks that the request can express the whole specification: ERROR_UNSUPPORTED, ERROR_ARGUMENT.
 * `local`: the daemon shares this machine's files. */
int docker_check(const struct sandbox_spec *spec, bool local, struct error *err);
/* The body of the request. */
int docker_create_body(
    const struct docker_create *create, struct json_object **out, struct error *err);
/* Whether the body has Droste's seccomp profile; removes it. */
#define DOCKER_SECCOMP "seccomp="
bool docker_has_profile(struct json_object *body);
void docker_drop_profile(struct json_object *body);
/* For display: replaces the profile of 20 KB by a few words. */
void docker_name_profile(struct json_object *body);
/* What enforces each limit in a container. */
extern const enum limit_means docker_limit_means[LIMIT_COUNT];
