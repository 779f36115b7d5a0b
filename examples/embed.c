/* embed.c: Droste inside another program: a model of its own, a session, and a run.
 *
 *   cc embed.c -o embed $(pkg-config --cflags --libs droste) && ./embed embed.c
 */
#include <droste.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The model "callback" is this function. A real program would ask a model here, and may call
 * droste_answer later, from the loop. The run's own questions have instructions before them; a
 * guest's llm_query is one message. */
static void model(void *arg, const droste_message *messages, size_t count, droste_call *call)
{
    static const char code[] = "```repl\n"
                               "lines = len(context.splitlines())\n"
                               "SUBMIT(answer=llm_query(f'Put into words: {lines} lines'))\n"
                               "```";
    char words[200];
    snprintf(words, sizeof words, "I was told: %s", messages[count - 1].text);
    const char *text = count > 1 ? code : words;
    droste_answer(call, text, strlen(text));
}

static void check(int rc, const droste_error *err)
{
    if (rc == 0)
        return;
    fprintf(stderr, "embed: %s\n", err->text);
    exit(1);
}

int main(int argc, char **argv)
{
    static const char first[] = "x = 41", second[] = "SUBMIT(x=x + 1)";
    droste_error err;
    droste *d;
    droste_session *session;
    droste_result *result;

    check(droste_new(&d, &err), &err);
    droste_set_model(d, model, NULL);
    check(droste_set(d, "model", "callback", &err), &err);
    check(droste_set(d, "database", "none", &err), &err); /* else the user's record has the run */

    /* A session: cells go in, variables stay. */
    check(droste_session_open(d, &session, &err), &err);
    check(droste_session_exec(session, first, strlen(first), 0, &result, &err), &err);
    droste_result_free(result);
    check(droste_session_exec(session, second, strlen(second), 0, &result, &err), &err);
    printf("%s, in a sandbox of isolation %s\n", droste_result_submit(result, NULL),
        droste_session_isolation(session));
    droste_result_free(result);
    droste_session_close(session);

    /* A run: the model writes the code, and its code asks the model again. */
    check(droste_run(d, "How many lines has it?", argv[1], NULL, NULL, &result, &err), &err);
    printf("%s: %s\n", droste_result_status(result), droste_result_answer(result, NULL));
    droste_result_free(result);
    droste_free(d);
    return 0;
}
