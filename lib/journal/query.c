/* SPDX-License-Identifier: Apache-2.0 */
#include "journal-private.h"

int32_t orch_journal_find(orch_journal *journal, const char *key, orch_action **ret_action,
			  orch_error **reterr)
{
	struct action_row row;
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!key || !ret_action)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "key or ret_action is NULL");
	store_lock(journal);
	r = store_action_by_key(journal, key, &row, reterr);
	store_unlock(journal);
	if (r == ORCH_ENOENT)
		return orch_fail(reterr, r, 0, NULL, "%s has no action with the key %s",
				 journal->path, key);
	if (r < 0)
		return r;
	orch_action *action = action_new(journal, &row);
	if (!action)
		return orch_fail_memory(reterr);
	*ret_action = action;
	return 0;
}

int32_t orch_journal_each(orch_journal *journal, const char *kind_prefix, orch_action_fn fn,
			  void *userdata, orch_error **reterr)
{
	int32_t r = store_check(journal, reterr);
	if (r < 0)
		return r;
	if (!fn)
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL, "the callback is NULL");
	_cleanup_free_ uint64_t *ids = NULL;
	size_t count = 0;
	store_lock(journal);
	r = store_ids(journal, STATEMENT_ACTIONS, kind_prefix, &ids, &count, reterr);
	store_unlock(journal);
	/* One by one, so that the callback may move actions on. */
	for (size_t i = 0; r == 0 && i < count; i++) {
		struct action_row row;
		r = store_check(journal, reterr);
		if (r < 0)
			return r;
		store_lock(journal);
		r = store_action_by_id(journal, ids[i], &row, reterr);
		store_unlock(journal);
		if (r < 0)
			return r;
		orch_action *action = action_new(journal, &row);
		if (!action)
			return orch_fail_memory(reterr);
		r = fn(userdata, action);
		orch_action_unref(action);
	}
	return r;
}
