/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "core-private.h"
#include "os.h"

struct orch_error {
	int32_t code;
	int32_t os_errno;
	char *message;
	char *step;
};

/* What ORCH_ENOMEM uses when there is no memory to describe it with: shared and never freed. */
static orch_error memory_error = {.code = ORCH_ENOMEM, .os_errno = ENOMEM};

const char *orch_code_name(int32_t code)
{
	switch (code) {
#define CASE(name, value, text)                                                                     \
	case value:                                                                                \
		return "ORCH_" #name;
		ORCH_ERROR_LIST(CASE)
#undef CASE
	case ORCH_OK:
		return "ORCH_OK";
	default:
		return "ORCH_E?";
	}
}

const char *orch_code_text(int32_t code)
{
	switch (code) {
#define CASE(name, value, text)                                                                     \
	case value:                                                                                \
		return text;
		ORCH_ERROR_LIST(CASE)
#undef CASE
	case ORCH_OK:
		return "success";
	default:
		return "unknown error";
	}
}

int32_t orch_error_code(const orch_error *error)
{
	return error ? error->code : 0;
}

int32_t orch_error_errno(const orch_error *error)
{
	return error ? error->os_errno : 0;
}

const char *orch_error_message(const orch_error *error)
{
	if (!error)
		return "";
	return error->message ? error->message : orch_code_text(error->code);
}

const char *orch_error_step(const orch_error *error)
{
	return error && error->step ? error->step : "";
}

orch_error *orch_error_free(orch_error *error)
{
	if (!error || error == &memory_error)
		return NULL;
	free(error->message);
	free(error->step);
	free(error);
	return NULL;
}

int32_t orch_fail_memory(orch_error **reterr)
{
	if (reterr)
		*reterr = &memory_error;
	return ORCH_ENOMEM;
}

int32_t orch_fail(orch_error **reterr, int32_t code, int os_errno, const char *step, const char *format,
		  ...)
{
	if (!reterr)
		return code;
	orch_error *error = calloc(1, sizeof(*error));
	if (!error)
		return orch_fail_memory(reterr), code;
	error->code = code;
	error->os_errno = os_errno;
	if (step && *step)
		error->step = strdup(step);

	va_list arguments;
	va_start(arguments, format);
	char *text = NULL;
	if (vasprintf(&text, format, arguments) < 0)
		text = NULL;
	va_end(arguments);
	if (text && os_errno) {
		char room[256];
		error->message =
			orch_strdup_printf("%s: %s", text, orch_errno_text(os_errno, room, sizeof(room)));
		free(text);
	} else {
		error->message = text;
	}
	*reterr = error;
	return code;
}

orch_error *orch_error_copy(const orch_error *error)
{
	if (!error)
		return NULL;
	orch_error *copy = calloc(1, sizeof(*copy));
	if (!copy)
		return &memory_error;
	copy->code = error->code;
	copy->os_errno = error->os_errno;
	copy->message = error->message ? strdup(error->message) : NULL;
	copy->step = error->step ? strdup(error->step) : NULL;
	return copy;
}

void orch_opts_init(void *opts, uint32_t size, const void *defaults, size_t known_size)
{
	if (!opts)
		return;
	memset(opts, 0, size);
	memcpy(opts, defaults, size < known_size ? size : known_size);
	if (size >= sizeof(size))
		memcpy(opts, &size, sizeof(size));
}

int32_t orch_opts_read(const void *opts, void *known, size_t known_size, const char *type_name,
		       orch_error **reterr)
{
	memset(known, 0, known_size);
	*(uint32_t *)known = (uint32_t)known_size;
	if (!opts)
		return 0;
	uint32_t size = *(const uint32_t *)opts;
	if (size < 2 * sizeof(uint32_t))
		return orch_fail(reterr, ORCH_EINVAL, 0, NULL,
				 "%s.size is %u: call %s_init() before filling it in", type_name, size,
				 type_name);
	memcpy(known, opts, size < known_size ? size : known_size);
	*(uint32_t *)known = (uint32_t)known_size;
	for (size_t i = known_size; i < size; i++)
		if (((const unsigned char *)opts)[i] != 0)
			return orch_fail(reterr, ORCH_E2BIG, 0, NULL,
					 "%s has a value at byte %zu that liborch %s does not know: use a "
					 "newer library",
					 type_name, i, ORCH_VERSION_STRING);
	return 0;
}
