/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "demo.h"

/*
 * The control socket of the living instance, STATE/control.sock, mode 0600: one JSON request in a line, one JSON answer in
 * a line. The folder's own mode (0700) keeps others out already.
 */

#define CLIENTS 8
#define REQUEST_LIMIT 262144

struct client {
	int fd;
	char *request;
	size_t length;
};

struct control {
	int listen_fd;
	char *path;
	orch_pipeline *pipeline;
	struct client clients[CLIENTS];
};

/* sun_path holds 107 bytes; a path of any length is reached through its folder's descriptor (unix(7)). */
static int folder_address(const char *state, struct sockaddr_un *address)
{
	int folder = open(state, O_PATH | O_DIRECTORY | O_CLOEXEC);
	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d/control.sock", folder);
	return folder;
}

struct control *control_new(const char *state, orch_pipeline *pipeline)
{
	struct control *control = calloc(1, sizeof(*control));
	struct sockaddr_un address;
	control->pipeline = pipeline;
	control->path = format_text("%s/control.sock", state);
	for (int i = 0; i < CLIENTS; i++)
		control->clients[i].fd = -1;
	/* The journal's lock is ours: whoever left this socket is dead. */
	unlink(control->path);
	control->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int folder = folder_address(state, &address);
	bool good = folder >= 0 && control->listen_fd >= 0 && fchmod(control->listen_fd, 0600) == 0 &&
		    bind(control->listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
		    chmod(control->path, 0600) == 0 && listen(control->listen_fd, CLIENTS) == 0;
	if (!good)
		fail_text(EXIT_ERROR, "%s: %m: status, answer and stop will not reach this instance", control->path);
	if (folder >= 0)
		close(folder);
	return control;
}

static void drop(struct client *client)
{
	if (client->fd >= 0)
		close(client->fd);
	free(client->request);
	*client = (struct client){.fd = -1};
}

int control_fds(const struct control *control, int *fds, int limit)
{
	int count = 0;
	if (control->listen_fd >= 0 && count < limit)
		fds[count++] = control->listen_fd;
	for (int i = 0; i < CLIENTS && count < limit; i++)
		if (control->clients[i].fd >= 0)
			fds[count++] = control->clients[i].fd;
	return count;
}

static char *error_answer(const char *code, const char *message)
{
	json_t *answer = json_pack("{s:b, s:s, s:s}", "ok", 0, "code", code, "message", message);
	char *text = json_dumps(answer, JSON_COMPACT);
	json_decref(answer);
	return text;
}

static char *answer_request(struct control *control, const char *request, bool *ret_stop)
{
	json_error_t where;
	json_t *root = json_loads(request, 0, &where);
	if (!root)
		return error_answer("ORCH_EPARSE", where.text);
	const char *command = json_string_value(json_object_get(root, "command"));
	orch_error *error = NULL;
	char *text = NULL;
	int32_t code = ORCH_EINVAL;
	if (command && strcmp(command, "status") == 0) {
		code = orch_pipeline_status(control->pipeline, &text, &error);
	} else if (command && strcmp(command, "stop") == 0) {
		code = orch_pipeline_stop(control->pipeline, "stopped by the user", &error);
		*ret_stop = code == 0;
	} else if (command && strcmp(command, "answer") == 0) {
		char *answers = json_dumps(json_object_get(root, "answers"), JSON_COMPACT);
		code = json_is_true(json_object_get(root, "recommended"))
			       ? orch_pipeline_accept_recommended(control->pipeline, &error)
			       : orch_pipeline_answer(control->pipeline, answers ? answers : "", strlen(answers ? answers : ""),
						      &error);
		free(answers);
	}
	json_decref(root);
	if (code < 0) {
		orch_string_free(text);
		text = error_answer(orch_code_name(code), error ? orch_error_message(error) : "unknown command");
		orch_error_free(error);
		return text;
	}
	if (!text)
		return strdup("{\"ok\":true}");
	char *copy = strdup(text);
	orch_string_free(text);
	return copy;
}

static void serve(struct control *control, struct client *client, bool *ret_stop)
{
	char buffer[4096];
	ssize_t got = recv(client->fd, buffer, sizeof(buffer), MSG_DONTWAIT);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0 || client->length + (size_t)got > REQUEST_LIMIT) {
		drop(client);
		return;
	}
	client->request = realloc(client->request, client->length + (size_t)got + 1);
	memcpy(client->request + client->length, buffer, (size_t)got);
	client->length += (size_t)got;
	client->request[client->length] = '\0';
	char *newline = strchr(client->request, '\n');
	if (!newline)
		return;
	*newline = '\0';
	char *answer = answer_request(control, client->request, ret_stop);
	size_t length = strlen(answer), sent = 0;
	while (sent < length) {
		ssize_t put = send(client->fd, answer + sent, length - sent, MSG_NOSIGNAL);
		if (put <= 0)
			break;
		sent += (size_t)put;
	}
	free(answer);
	drop(client);
}

void control_process(struct control *control, bool *ret_stop)
{
	int fd = control->listen_fd < 0 ? -1 : accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC);
	for (int i = 0; i < CLIENTS && fd >= 0; i++)
		if (control->clients[i].fd < 0) {
			control->clients[i].fd = fd;
			fd = -1;
		}
	if (fd >= 0)
		close(fd);
	for (int i = 0; i < CLIENTS; i++)
		if (control->clients[i].fd >= 0)
			serve(control, &control->clients[i], ret_stop);
}

struct control *control_free(struct control *control)
{
	if (!control)
		return NULL;
	for (int i = 0; i < CLIENTS; i++)
		drop(&control->clients[i]);
	if (control->listen_fd >= 0)
		close(control->listen_fd);
	unlink(control->path);
	free(control->path);
	free(control);
	return NULL;
}

char *control_ask(const char *state, const char *request)
{
	struct sockaddr_un address;
	int folder = folder_address(state, &address);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct timeval patience = {.tv_sec = 10};
	char *answer = NULL;
	size_t length = 0;

	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	if (folder >= 0 && connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 &&
	    send(fd, request, strlen(request), MSG_NOSIGNAL) >= 0 && send(fd, "\n", 1, MSG_NOSIGNAL) == 1) {
		char buffer[4096];
		ssize_t got;
		while ((got = recv(fd, buffer, sizeof(buffer), 0)) > 0) {
			answer = realloc(answer, length + (size_t)got + 1);
			memcpy(answer + length, buffer, (size_t)got);
			length += (size_t)got;
			answer[length] = '\0';
		}
	}
	if (folder >= 0)
		close(folder);
	if (fd >= 0)
		close(fd);
	return answer;
}
