/* env/docker/create.h: what a daemon is told of a container that is to be made (POST /containers/create). */
#ifndef DROSTE_ENV_DOCKER_CREATE_H
#define DROSTE_ENV_DOCKER_CREATE_H

#include "base/json/json.h"
#include "env/common/environment.h"

#define DOCKER_IMAGE "python:3.12-slim"

struct docker_create {
    const struct sandbox_spec *spec;
    const char *loader;             /* Python, for -c */
    const char *volume, *workspace; /* paths of this machine, to be seen in it; NULL: none */
    const char *owner, *machine;    /* the labels */
    bool input_once;                /* its standard input ends with the first connection to it */
};

const char *docker_image(const struct sandbox_spec *spec);
/* Everything of the spec is in the body, or refused by name: ERROR_UNSUPPORTED, ERROR_ARGUMENT. `local`: the
 * daemon sees the files of this machine. */
int docker_check(const struct sandbox_spec *spec, bool local, struct error *err);
/* The body of the request. */
int docker_create_body(
    const struct docker_create *create, struct json_object **out, struct error *err);
/* The body asks for Droste's system call filter; and no longer. */
#define DOCKER_SECCOMP "seccomp="
bool docker_has_profile(struct json_object *body);
void docker_drop_profile(struct json_object *body);
/* Puts a few words in the place of its 20 KB, for people. */
void docker_name_profile(struct json_object *body);
/* What enforces each limit in it. */
extern const enum limit_means docker_limit_means[LIMIT_COUNT];

#endif
