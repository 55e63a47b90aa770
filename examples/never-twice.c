/* SPDX-License-Identifier: Apache-2.0 */
/* never-twice JOURNAL URL...: POSTs to each URL once, however often it is killed and rerun. */
#include <curl/curl.h>
#include <orch/journal.h>

/* The service answers 200 if it has counted the URL, also just now, and 404 if it has not. */
static uint32_t ask(const char *method, const char *url)
{
	long status = 0;
	CURL *curl = curl_easy_init();
	curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
	curl_easy_cleanup(curl);
	return status == 200   ? ORCH_OUTCOME_APPLIED
	       : status == 404 ? ORCH_OUTCOME_NOT_APPLIED : ORCH_OUTCOME_UNKNOWN;
}
static void probe(void *method, orch_action *action, orch_probe_reply *reply)
{
	orch_probe_reply_answer(reply, ask(method, orch_action_key(action)), NULL, 0);
}
int main(int argc, char **argv)
{
	struct orch_journal_opts opts = {.size = sizeof(opts), .path = argv[1]};
	struct orch_recover_opts recover = {.size = sizeof(recover), .probe = probe, .userdata = "GET"};
	orch_journal *journal = NULL;
	orch_action *action = NULL;
	uint32_t outcome = 0;
	int32_t r = argc > 2 ? orch_journal_open(&opts, &journal, NULL) : ORCH_EINVAL;
	r = r < 0 ? r : orch_journal_recover(journal, &recover, NULL, NULL);
	for (char **url = argv + 2; r == 0 && *url; url++, action = orch_action_unref(action)) {
		struct orch_action_opts post = {.size = sizeof(post), .kind = "post", .key = *url};
		r = orch_journal_begin(journal, &post, &outcome, &action, NULL);
		if (!r && outcome == ORCH_BEGIN_FRESH && !(r = orch_action_dispatch(action, NULL)))
			r = orch_action_resolve(action, ask("POST", *url), NULL, 0, NULL);
	}
	orch_journal_unref(journal);
	return r < 0;
}
