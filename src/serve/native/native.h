/* serve/native/native.h: the native interface (docs/serve.md). */
#pragma once

#include "serve/sandbox/sandbox.h"

extern const struct routes native_routes;

/* The end of an operation that makes sb->forked: a sandbox of its own. */
sandbox_done_fn fork_on_done;

/* Handlers of routes; routes.c says what each does. */
void handle_metrics(struct request *r);
void handle_create(struct request *r);
void handle_list(struct request *r);
void handle_get(struct request *r);
void handle_close(struct request *r);
void handle_execute(struct request *r);
void handle_interrupt(struct request *r);
void handle_fork(struct request *r);
void handle_expect(struct request *r);
void handle_cluster(struct request *r);
void cluster_put_metrics(const struct server *s, struct buf *out);
void handle_checkpoint_create(struct request *r);
void handle_checkpoint_list(struct request *r);
void handle_checkpoint_remove(struct request *r);
void handle_checkpoint_fork(struct request *r);
void handle_rollback(struct request *r);
void handle_variable_get(struct request *r);
void handle_variable_set(struct request *r);
void handle_file_read(struct request *r);
void handle_file_write(struct request *r);
void handle_file_list(struct request *r);
void handle_file_glob(struct request *r);
void handle_file_describe(struct request *r);
void handle_file_move(struct request *r);
void handle_directory_create(struct request *r);
void handle_directory_remove(struct request *r);
void handle_command_start(struct request *r);
void handle_command_list(struct request *r);
void handle_command_output(struct request *r);
void handle_command_input(struct request *r);
void handle_command_signal(struct request *r);
void handle_command_resize(struct request *r);
void handle_terminal(struct request *r);
void handle_file_remove(struct request *r);
