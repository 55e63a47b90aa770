/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include <orch/scope.h>

#include "../reaper/census.h"
#include "helper.h"

void answer_failure(struct helper *helper, enum wire_type type, uint32_t scope, uint32_t subject,
		    const struct setup_error *error)
{
	struct wire_packet packet = wire_packet(type, scope, subject);
	packet.message.code = error->code;
	packet.message.os_errno = error->os_errno;
	wire_copy(packet.message.step, WIRE_STEP_MAX, error->step);
	wire_copy(packet.message.text, WIRE_TEXT_MAX, error->message);
	host_send(helper, &packet);
}

void answer_note(struct helper *helper, uint32_t scope, const char *text)
{
	struct wire_packet packet = wire_packet(WIRE_NOTE, scope, 0);
	wire_copy(packet.message.text, WIRE_TEXT_MAX, text);
	host_send(helper, &packet);
}

void answer_limit(struct helper *helper, uint32_t scope, uint32_t limit, uint32_t state, const char *mechanism)
{
	struct wire_packet packet = wire_packet(WIRE_LIMIT, scope, 0);
	packet.message.value = (int32_t)limit;
	packet.message.code = (int32_t)state;
	wire_copy(packet.message.text, WIRE_TEXT_MAX, mechanism);
	host_send(helper, &packet);
}

void answer_survivors(struct helper *helper, uint32_t scope, const struct census *census)
{
	for (uint32_t i = 0; i < census->stored; i++) {
		const struct census_entry *entry = &census->entries[i];
		struct wire_packet packet = wire_packet(WIRE_SURVIVOR, scope, 0);
		packet.message.value = entry->pid;
		packet.message.number[0] = entry->start_time;
		wire_copy(packet.message.step, WIRE_STEP_MAX, entry->state);
		wire_copy(packet.message.text, WIRE_TEXT_MAX, entry->wchan);
		host_send(helper, &packet);
	}
}

void answer_refusal(struct helper *helper, const struct wire_packet *request, int32_t code,
		    const char *why)
{
	struct setup_error error;
	setup_fail(&error, code, 0, "scope", "%s", why);
	if (request->message.type == WIRE_SPAWN)
		answer_failure(helper, WIRE_FAILED, request->message.scope, request->message.subject,
			       &error);
	else if (request->message.type == WIRE_CONNECT)
		answer_failure(helper, WIRE_CONNECTED, request->message.scope,
			       request->message.subject, &error);
}

void answer_no_scope(struct helper *helper, uint32_t scope, const struct setup_error *error)
{
	answer_failure(helper, WIRE_SCOPE_FAILED, scope, 0, error);
	struct wire_packet death = wire_packet(WIRE_DEATH, scope, 0);
	death.message.value = (int32_t)ORCH_DEATH_DEAD;
	death.message.flags = WIRE_DEATH_NEVER_STOOD;
	death.message.number[3] = (uint64_t)realtime_ms();
	host_send(helper, &death);
}

void scopes_refuse(struct helper *helper, const struct wire_packet *request, const char *why)
{
	struct setup_error error;
	if (request->message.type != WIRE_SCOPE_NEW) {
		answer_refusal(helper, request, ORCH_ESYS, why);
		return;
	}
	setup_fail(&error, ORCH_ESYS, EMFILE, "helper", "%s", why);
	answer_no_scope(helper, request->message.scope, &error);
}
