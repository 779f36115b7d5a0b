/* serve/native/contexts.h: contexts of any size, which clients store for their runs.
 *
 * They are the files of OpenAI's interface (openai/file_store.h): one store and one quota of each
 * key, and what one interface has stored the other has, too.
 */
#pragma once

#include "serve/http/request.h"

/* The path of one; free it. NULL: the account has none with this id here, and another node answers,
 * or the request was refused. */
char *contexts_path(struct request *r, const char *id);

/* The directory of the account's; free it. NULL: the request was refused. */
char *contexts_directory(struct request *r);
/* Whether such a directory has the context with this id. */
bool contexts_have(const char *directory, const char *id);

void handle_context_create(struct request *r);
void handle_context_list(struct request *r);
void handle_context_get(struct request *r);
void handle_context_delete(struct request *r);
