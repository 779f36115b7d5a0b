/* bench/prompts.c: many prompts in one llm_query_batched, beside curl's own multi client:
 * prompts SLOW_MODEL [PROMPTS]
 *
 * Both send the same number of the same requests, to the same server in the same run, in turns,
 * over as many connections. Ours are made and sent out of a sandbox, recorded nowhere, and their
 * answers are read, checked and compared; curl throws its answers away.
 */
#include <curl/curl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "droste.h"

enum { ROUNDS = 5, CONNECTIONS = 64 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- curl ---- */

struct transfer {
    CURL *easy;
    char body[400];
};

static size_t drop(char *data, size_t size, size_t count, void *arg)
{
    (void)data;
    (void)arg;
    return size * count;
}

static void prepare(struct transfer *t, const char *url, struct curl_slist *headers)
{
    t->easy = curl_easy_init();
    curl_easy_setopt(t->easy, CURLOPT_URL, url);
    curl_easy_setopt(t->easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(t->easy, CURLOPT_WRITEFUNCTION, drop);
    curl_easy_setopt(t->easy, CURLOPT_PRIVATE, t);
    curl_easy_setopt(t->easy, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(t->easy, CURLOPT_NOSIGNAL, 1L);
}

static void begin(CURLM *multi, struct transfer *t, long number)
{
    snprintf(t->body, sizeof t->body,
        "{\"model\":\"bench\",\"messages\":[{\"role\":\"user\",\"content\":\"What is %ld plus two? "
        "Answer with one word.\"}]}",
        number);
    curl_easy_setopt(t->easy, CURLOPT_POSTFIELDS, t->body);
    curl_multi_add_handle(multi, t->easy);
}

/* Requests a second; negative: some failed. */
static double run_curl(const char *url, long prompts)
{
    static struct transfer transfers[CONNECTIONS];
    static const char *const ours[] = { "Content-Type: application/json", "User-Agent: droste",
        "Idempotency-Key: 0123456789abcdef0123456789abcdef" };
    struct curl_slist *headers = NULL;
    CURLM *multi = curl_multi_init();
    CURLMsg *m;
    long begun = 0, done = 0, failed = 0;
    int running = 0, left;
    double start = now();
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        headers = curl_slist_append(headers, ours[i]);
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)CONNECTIONS);
    for (; begun < CONNECTIONS && begun < prompts; begun++) {
        prepare(&transfers[begun], url, headers);
        begin(multi, &transfers[begun], begun);
    }
    while (done < prompts) {
        curl_multi_perform(multi, &running);
        while ((m = curl_multi_info_read(multi, &left))) {
            struct transfer *t;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&t);
            failed += m->data.result != CURLE_OK;
            done++;
            curl_multi_remove_handle(multi, t->easy);
            if (begun < prompts)
                begin(multi, t, begun++);
        }
        if (done < prompts)
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
    double seconds = now() - start;
    for (size_t i = 0; i < CONNECTIONS; i++)
        curl_easy_cleanup(transfers[i].easy);
    curl_multi_cleanup(multi);
    curl_slist_free_all(headers);
    return failed ? -1 : (double)prompts / seconds;
}

/* ---- ours ---- */

static double run_ours(const char *base, long prompts, droste_error *err)
{
    char code[256], connections[16];
    size_t len = 0;
    droste *d = NULL;
    droste_session *s = NULL;
    droste_result *r = NULL;
    double seconds = -1;
    snprintf(connections, sizeof connections, "%d", CONNECTIONS);
    int rc = droste_new(&d, err);
    const char *const settings[][2] = { { "model", "bench" }, { "base-url", base },
        { "database", "none" }, { "max-llm-calls", "1000000000" }, { "concurrency", connections },
        { "stream", "no" }, { "timeout", "0" }, { "execute-timeout", "0" } };
    for (size_t i = 0; rc == 0 && i < sizeof settings / sizeof settings[0]; i++)
        rc = droste_set(d, settings[i][0], settings[i][1], err);
    if (rc == 0)
        rc = droste_session_open(d, &s, err);
    if (rc == 0)
        rc = droste_session_exec(s, "llm_query('warm up')", 20, 0, &r, err);
    droste_result_free(r);
    r = NULL;
    snprintf(code, sizeof code,
        "SUBMIT(sum(r == '1' for r in llm_query_batched(["
        "'What is %%d plus two? Answer with one word.' %% i for i in range(%ld)])))",
        prompts);
    double start = now();
    if (rc == 0)
        rc = droste_session_exec(s, code, strlen(code), 0, &r, err);
    if (rc == 0) {
        char wanted[40];
        const char *submit = droste_result_submit(r, &len);
        snprintf(wanted, sizeof wanted, "{\"output\": %ld}", prompts);
        if (submit && strcmp(submit, wanted) == 0)
            seconds = now() - start;
        else
            droste_result_error(r, err);
    }
    droste_result_free(r);
    droste_session_close(s);
    droste_free(d);
    return seconds > 0 ? (double)prompts / seconds : -1;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

int main(int argc, char **argv)
{
    long prompts = argc > 2 ? atol(argv[2]) : 10000;
    char port[16] = "", url[80], base[40];
    double curls[ROUNDS], ours[ROUNDS], ratios[ROUNDS];
    int input[2], output[2];
    droste_error err = { 0 };
    if (argc < 2 || pipe(input) < 0 || pipe(output) < 0) {
        fprintf(stderr, "usage: prompts SLOW_MODEL [PROMPTS]\n");
        return 2;
    }
    pid_t pid = fork();
    if (pid == 0) {
        dup2(input[0], 0);
        dup2(output[1], 1);
        for (int fd = 3; fd < 64; fd++)
            close(fd);
        execl(argv[1], argv[1], "0", "0", (char *)NULL);
        _exit(127);
    }
    close(output[1]);
    if (pid < 0 || read(output[0], port, sizeof port - 1) <= 0)
        return 1;
    snprintf(base, sizeof base, "http://127.0.0.1:%d/v1", atoi(port));
    snprintf(url, sizeof url, "%s/chat/completions", base);
    setenv("OPENAI_API_KEY", "none", 1);
    run_curl(url, 500);
    for (int i = 0; i < ROUNDS; i++) {
        curls[i] = run_curl(url, prompts);
        ours[i] = run_ours(base, prompts, &err);
        if (curls[i] < 0 || ours[i] < 0) {
            fprintf(stderr, "prompts: %s\n", err.text[0] ? err.text : "some answers are wrong");
            return 1;
        }
        ratios[i] = ours[i] / curls[i];
    }
    qsort(curls, ROUNDS, sizeof *curls, compare);
    qsort(ours, ROUNDS, sizeof *ours, compare);
    qsort(ratios, ROUNDS, sizeof *ratios, compare);
    printf("prompts  %ld prompts in one llm_query_batched     %8.0f a second, curl's multi client "
           "%8.0f: "
           "×%.2f of it (%.2f to %.2f in %d rounds)\n",
        prompts, ours[ROUNDS / 2], curls[ROUNDS / 2], ratios[ROUNDS / 2], ratios[0],
        ratios[ROUNDS - 1], ROUNDS);
    return 0;
}
