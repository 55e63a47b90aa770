/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

static const char *const state_names[] = {"", "enforced", "partial", "absent"};
static const char *const probe_names[] = {"", "passed", "failed", "not run"};

/* Each once, with the channels that it is for: most of them have one cause. */
static void write_remedies(orch_sandbox_report *report)
{
	for (uint32_t i = 0; i < report->count; i++) {
		const struct report_row *row = &report->rows[i];
		bool known = row->state == ORCH_CHANNEL_ENFORCED;

		for (uint32_t j = 0; j < i && !known; j++)
			known = strcmp(report->rows[j].remedy, row->remedy) == 0;
		if (known)
			continue;
		orch_buf_printf(&report->text, "\n%s", row->channel);
		for (uint32_t j = i + 1; j < report->count; j++)
			if (strcmp(report->rows[j].remedy, row->remedy) == 0)
				orch_buf_printf(&report->text, ", %s", report->rows[j].channel);
		orch_buf_printf(&report->text, ":\n    %s\n", row->remedy);
	}
}

static void write_text(orch_sandbox_report *report)
{
	orch_buf_printf(&report->text, "%-15s %-9s %-8s %-8s %s\n", "CHANNEL", "STATE", "PROBE",
			"CONTROL", "MECHANISM (DETAIL)");
	for (uint32_t i = 0; i < report->count; i++) {
		const struct report_row *row = &report->rows[i];

		orch_buf_printf(&report->text, "%-15s %-9s %-8s %-8s %s (%s)\n", row->channel,
				state_names[row->state], probe_names[row->probe],
				probe_names[row->control], row->mechanism, row->detail);
	}
	write_remedies(report);
}

int32_t orch_report_finish(orch_sandbox_report *report, orch_sandbox_report **ret_report,
			   orch_error **reterr)
{
	write_text(report);
	if (report->text.failed) {
		orch_sandbox_report_unref(report);
		return orch_fail_memory(reterr);
	}
	*ret_report = report;
	return 0;
}

orch_sandbox_report *orch_sandbox_report_unref(orch_sandbox_report *report)
{
	if (report)
		orch_buf_free(&report->text);
	free(report);
	return NULL;
}

uint32_t orch_sandbox_report_count(const orch_sandbox_report *report)
{
	return report ? report->count : 0;
}

int32_t orch_sandbox_report_row(const orch_sandbox_report *report, uint32_t index,
				const char **ret_channel, uint32_t *ret_state,
				const char **ret_mechanism, uint32_t *ret_probe,
				uint32_t *ret_control, const char **ret_detail)
{
	if (!report || index >= report->count)
		return ORCH_EINVAL;
	const struct report_row *row = &report->rows[index];

	if (ret_channel)
		*ret_channel = row->channel;
	if (ret_state)
		*ret_state = row->state;
	if (ret_mechanism)
		*ret_mechanism = row->mechanism;
	if (ret_probe)
		*ret_probe = row->probe;
	if (ret_control)
		*ret_control = row->control;
	if (ret_detail)
		*ret_detail = row->detail;
	return 0;
}

const char *orch_sandbox_report_remedy(const orch_sandbox_report *report, uint32_t index)
{
	if (!report || index >= report->count || report->rows[index].state == ORCH_CHANNEL_ENFORCED)
		return NULL;
	return report->rows[index].remedy;
}

const char *orch_sandbox_report_text(const orch_sandbox_report *report)
{
	return report && report->text.data ? report->text.data : "";
}
