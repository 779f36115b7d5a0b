/* serve/native/templates.h: templates of clients, from which sandboxes start with everything in
 * place.
 *
 * A template is memory of a worker: it is made of a live sandbox, or of cells, and lasts until it
 * is removed or the worker ends. Its id begins with the worker, as a sandbox's does (relay.c).
 * Other nodes of a cluster make those of cells again (recipes.h).
 */
#pragma once

#include "serve/sandbox/sandbox.h"

/* The template that the request names; NULL: its account has none, and the request was refused. */
droste_template *templates_of(struct request *r);
/* True: this node does not have it, but makes it of its recipe, and the request will be handled
 * again then; or it has an answer. */
bool templates_await(struct request *r);
/* The newest template of the request's account with this name or id, in this worker; NULL: none. */
droste_template *templates_named(struct request *r, const char *name);
/* Removes that of a key; "all": of no key. */
void templates_drop(struct server *s, const char *key, size_t key_len, const char *id);
/* Removes those of revoked keys. */
void templates_sweep(struct server *s);
void templates_close(struct server *s);

void handle_template_create(struct request *r);
void handle_template_save(struct request *r);
void handle_template_list(struct request *r);
void handle_template_get(struct request *r);
void handle_template_delete(struct request *r);
void handle_template_start(struct request *r); /* cells.c */
