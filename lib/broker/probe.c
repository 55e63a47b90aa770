/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>

#include "broker-private.h"

/* The recorded address with the key in it; NULL: none, or not a request of this broker's. Freed by
 * the caller. */
static char *probe_url(orch_action *action)
{
	size_t length = 0;
	const char *bytes = orch_action_request(action, &length);
	json_t *request = bytes ? json_loadb(bytes, length, 0, NULL) : NULL;
	const char *url = json_string_value(json_object_get(request, "probe_url"));
	char *full = url && !url_problem(url) ? url_with_key(url, orch_action_key(action)) : NULL;
	json_decref(request);
	return full;
}

void orch_broker_probe(void *userdata, orch_action *action, orch_probe_reply *reply)
{
	orch_broker *broker = userdata;
	/* Without an answer the reply counts as UNKNOWN. */
	if (broker_check(broker, NULL) < 0 || !action ||
	    strcmp(orch_action_kind(action), operation_name(OPERATION_NOTIFY)) != 0)
		return;
	_cleanup_free_ char *url = probe_url(action);
	if (!url)
		return;
	_cleanup_buf_ struct orch_buf body = {0};
	_cleanup_free_ char *type = NULL;
	long status = call_wait(broker, url, broker->connect_timeout_ms, &body, &type);
	if (status == 200) {
		_cleanup_free_ char *result =
			notify_result(200, type, &body, body.length == NOTIFY_LIMIT, true);
		orch_probe_reply_answer(reply, ORCH_OUTCOME_APPLIED, result,
					result ? strlen(result) : 0);
	} else if (status == 404) {
		orch_probe_reply_answer(reply, ORCH_OUTCOME_NOT_APPLIED, NULL, 0);
	} else {
		orch_probe_reply_answer(reply, ORCH_OUTCOME_UNKNOWN, NULL, 0);
	}
}
