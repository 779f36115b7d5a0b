/* api/network_api.c: the program decides about requests to the network, and about rules
 * (droste/network.h). */
#include "api/api.h"
#include "egress/egress.h"
#include "egress/policy.h"

void droste_on_network(droste *d, droste_network_fn *fn, void *arg)
{
    d->network_fn = fn;
    d->network_arg = arg;
}

void droste_network_answer(droste_network_request *request, int allow, const char *reason)
{
    egress_answer(request, allow != 0, reason);
}

int droste_network_covers(const char *rule, const char *asked, droste_error *err)
{
    bool covers = false;
    int rc = egress_rule_covers(rule, asked, &covers, api_error(err));
    return rc < 0 ? rc : covers;
}
