/* serve/native/recipes.h: templates of cells on other nodes of a cluster.
 *
 * The body of POST /v1/templates is the template's recipe. Its node writes it into the bucket
 * droste-templates, with the key "KEY.ID", where it stays for a week, or until the template is
 * removed. A node that is asked for a template which it does not have (its own node is full, or
 * lost) makes one of the same id from the recipe, by a request to itself, while whatever asks for
 * it waits. A template of a live sandbox has no recipe, and stays on its node.
 */
#pragma once

#include "cluster/bus.h"
#include "serve/http/request.h"

struct recipe_build;

void recipes_make_bucket(struct bus *b, bus_done_fn *done, void *arg);
/* Told of each template that any node removes. */
int recipes_open(struct server *s, struct error *err);
void recipes_close(struct server *s);

/* Publishes the request's body as the recipe of this template. */
void recipes_put(struct request *r, const char *id);
/* The request waits until this node has the template, and its handler is called again; or it is
 * passed on, or refused, because there is no recipe. False: it is in no cluster. */
bool recipes_await(struct request *r);
/* The template is removed, on all nodes. */
void recipes_remove(struct request *r);
/* The id of the template that this request of the node to itself makes; NULL: it is another one. */
const char *recipes_id_of(struct request *r);
