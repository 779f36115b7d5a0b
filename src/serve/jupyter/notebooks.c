/* serve/jupyter/notebooks.c: the list of notebooks that are open in clients. They end with their
 * kernel.
 */
#include <stdlib.h>

#include "serve/jupyter/jupyter.h"

void jupyter_notebook_free(struct jupyter_notebook *n)
{
    free(n->path);
    free(n->name);
    free(n->type);
    free(n);
}

void jupyter_notebook_remove(struct jupyter *j, struct jupyter_notebook *n)
{
    struct jupyter_notebook **at = &j->notebooks;
    while (*at != n)
        at = &(*at)->next;
    *at = n->next;
    jupyter_notebook_free(n);
}

void jupyter_notebooks_forget(struct jupyter_kernel *k)
{
    struct jupyter *j = k->server->jupyter;
    struct jupyter_notebook *next;
    for (struct jupyter_notebook *n = j->notebooks; n; n = next) {
        next = n->next;
        if (n->kernel == k)
            jupyter_notebook_remove(j, n);
    }
}

void jupyter_notebooks_free(struct jupyter *j)
{
    while (j->notebooks)
        jupyter_notebook_remove(j, j->notebooks);
}
