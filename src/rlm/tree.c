/* rlm/tree.c: starts, cancels and closes a run with all its child runs. */
#include <stdlib.h>
#include <string.h>

#include "rlm/run.h"

static void close_tree(struct tree *tree)
{
    if (!tree)
        return;
    tree_free_children(tree, true);
    run_free(tree->root);
    timer_free(tree->later);
    budget_free(&tree->budget);
    buf_free(&tree->repeated);
    free(tree->instructions);
    free(tree->system_prompt);
    free(tree->setup);
    free(tree->settings);
    schema_drop(tree->o.session.answer);
    free(tree);
}

static struct tree *open_tree(struct loop *loop, const struct rlm_options *options)
{
    const char *setup = options->session.setup, *instructions = options->instructions;
    const char *settings = options->settings, *system_prompt = options->system_prompt;
    struct tree *tree = calloc(1, sizeof *tree);
    if (!tree)
        return NULL;
    *tree = (struct tree){ .loop = loop,
        .o = *options,
        .instructions = instructions ? strdup(instructions) : NULL,
        .system_prompt = system_prompt ? strdup(system_prompt) : NULL,
        .setup = setup ? strdup(setup) : NULL,
        .settings = settings ? strdup(settings) : NULL };
    TAILQ_INIT(&tree->children);
    schema_hold(tree->o.session.answer);
    budget_init(&tree->budget, &options->limits);
    tree->budget.up = options->part_of;
    tree->later = timer_new(loop, tree_look, tree);
    if (!tree->later || (setup && !tree->setup) || (settings && !tree->settings) ||
        (instructions && !tree->instructions) || (system_prompt && !tree->system_prompt)) {
        close_tree(tree);
        return NULL;
    }
    tree->o.session.setup = tree->setup;
    return tree;
}

int rlm_start(struct loop *loop, const struct rlm_options *options, rlm_done_fn *done, void *arg,
    struct rlm_run **out, struct error *err)
{
    struct run_place place = { .question = options->question,
        .contexts = options->contexts,
        .iterations = options->max_iterations,
        .resume = options->resume };
    struct tree *tree = open_tree(loop, options);
    if (!tree)
        return error_memory(err);
    int rc = run_start(tree, &place, done, arg, out, err);
    if (rc < 0) {
        tree->root = NULL; /* it is gone */
        close_tree(tree);
    }
    return rc;
}

int rlm_open_place(
    struct loop *loop, const struct rlm_options *options, struct rlm_run **out, struct error *err)
{
    struct tree *tree = open_tree(loop, options);
    struct rlm_run *r = tree ? calloc(1, sizeof *r) : NULL;
    if (!r) {
        close_tree(tree);
        return error_memory(err);
    }
    *r = (struct rlm_run){ .tree = tree, .is_place = true };
    tree->root = r;
    *out = r;
    return 0;
}

struct budget *rlm_budget(struct rlm_run *place)
{
    return &place->tree->budget;
}

void rlm_record_in(struct rlm_run *place, struct store *store)
{
    place->tree->o.store = store;
}

const struct broker_children *rlm_children(void)
{
    return &run_children;
}

void rlm_cancel(struct rlm_run *r)
{
    struct error err = { 0 };
    error_set(&err, ERROR_CANCELLED, "the run was cancelled");
    run_end(r, RLM_CANCELLED, &err);
}

void rlm_suspend(struct rlm_run *r, const struct error *why)
{
    run_end(r, RLM_INTERRUPTED, why);
}

void rlm_finish_cancel(struct rlm_run *r)
{
    session_interrupt(r->session);
}

void rlm_close(struct rlm_run *r)
{
    if (!r)
        return;
    if (!r->finished && !r->is_place) {
        r->done = NULL;
        rlm_cancel(r);
    }
    close_tree(r->tree);
}
