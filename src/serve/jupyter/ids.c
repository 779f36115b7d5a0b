/* serve/jupyter/ids.c: ids as clients of Jupyter write them. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "serve/jupyter/jupyter.h"

void jupyter_print_id(const char id[SERVE_ID_SIZE], char out[JUPYTER_ID_SIZE])
{
    snprintf(
        out, JUPYTER_ID_SIZE, "%.8s-%.4s-%.4s-%.4s-%.12s", id, id + 8, id + 12, id + 16, id + 20);
}

bool jupyter_parse_id(const char *text, char id[SERVE_ID_SIZE])
{
    static const size_t dashes[] = { 8, 13, 18, 23 };
    size_t n = 0, next = 0;
    for (size_t i = 0; i < JUPYTER_ID_SIZE - 1; i++) {
        bool is_dash = next < array_length(dashes) && dashes[next] == i;
        next += is_dash;
        if (is_dash ? text[i] != '-' : text[i] == '\0' || !strchr("0123456789abcdef", text[i]))
            return false;
        if (!is_dash)
            id[n++] = text[i];
    }
    id[n] = '\0';
    return text[JUPYTER_ID_SIZE - 1] == '\0';
}
