/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "targets.h"

extern char **environ;

static int join(char *path, size_t size, const struct probe_targets *targets, const char *name)
{
	return snprintf(path, size, "%s/%s", targets->folder, name);
}

static int write_text_file(const struct probe_targets *targets, const char *name)
{
	char path[64];

	join(path, sizeof(path), targets, name);
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	/* fchmod, because the host's umask is its own business. */
	return fd >= 0 && write(fd, "outside\n", 8) == 8 ? fchmod(fd, 0666) : -1;
}

static int make_folder(const struct probe_targets *targets, const char *name)
{
	char path[64];

	join(path, sizeof(path), targets, name);
	return mkdir(path, 0700) < 0 ? -1 : chmod(path, 0777);
}

static int make_files(struct probe_targets *targets)
{
	static const char *const places[] = {"/tmp", "/var/tmp", "/dev/shm"};

	for (size_t i = 0; i < 3; i++) {
		snprintf(targets->folder, sizeof(targets->folder), "%s/orch-report-XXXXXX",
			 places[i]);
		if (mkdtemp(targets->folder))
			break;
		targets->folder[0] = '\0';
	}
	if (!targets->folder[0] || chmod(targets->folder, 0755) < 0 ||
	    write_text_file(targets, "secret") < 0 || write_text_file(targets, "mute") < 0 ||
	    make_folder(targets, "shared") < 0 ||
	    write_text_file(targets, "shared/file") < 0 || make_folder(targets, "work") < 0)
		return -1;
	return 0;
}

static int listen_at(int family, const void *address, socklen_t length)
{
	int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd >= 0 && (bind(fd, address, length) < 0 || listen(fd, 16) < 0))
		orch_close_fd(&fd);
	return fd;
}

static int listen_unix(const char *name, bool abstract)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(name);

	memcpy(address.sun_path + (abstract ? 1 : 0), name, length);
	return listen_at(AF_UNIX, &address,
			 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length + 1));
}

static int listen_tcp(struct in_addr where, uint16_t *ret_port)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = where};
	socklen_t length = sizeof(address);
	int fd = listen_at(AF_INET, &address, length);

	if (fd >= 0 && getsockname(fd, (struct sockaddr *)&address, &length) == 0)
		*ret_port = ntohs(address.sin_port);
	return fd;
}

/* An address of the host that is not loopback; without a network a second loopback address stands
 * in. */
static struct in_addr outside_address(void)
{
	struct in_addr found = {.s_addr = htonl(0x7f000009)};
	struct ifaddrs *list = NULL;

	if (getifaddrs(&list) < 0)
		return found;
	for (struct ifaddrs *entry = list; entry; entry = entry->ifa_next)
		if (entry->ifa_addr && entry->ifa_addr->sa_family == AF_INET &&
		    entry->ifa_flags & IFF_UP && !(entry->ifa_flags & IFF_LOOPBACK)) {
			found = ((struct sockaddr_in *)entry->ifa_addr)->sin_addr;
			break;
		}
	freeifaddrs(list);
	return found;
}

static int open_sockets(struct probe_targets *targets)
{
	const struct in_addr loopback = {.s_addr = htonl(INADDR_LOOPBACK)},
			     outside = outside_address();
	char path[64], digits[17];

	join(path, sizeof(path), targets, "socket");
	orch_random_hex(digits, 8);
	snprintf(targets->abstract_name, sizeof(targets->abstract_name), "orch-report-%s", digits);
	inet_ntop(AF_INET, &outside, targets->outside_address, sizeof(targets->outside_address));
	targets->unix_fd = listen_unix(path, false);
	targets->abstract_fd = listen_unix(targets->abstract_name, true);
	targets->loopback_fd = listen_tcp(loopback, &targets->loopback_port);
	targets->outside_fd = listen_tcp(outside, &targets->outside_port);
	if (targets->unix_fd < 0 || targets->abstract_fd < 0 || targets->loopback_fd < 0)
		return -1;
	return chmod(path, 0777);
}

/* Marked for removal at once: it lasts as long as our attachment, whatever becomes of this process.
 */
static void open_memory(struct probe_targets *targets)
{
	targets->shm_id = shmget(IPC_PRIVATE, 4096, IPC_CREAT | 0666);
	if (targets->shm_id < 0)
		return;
	targets->shm = shmat(targets->shm_id, NULL, 0);
	if (targets->shm == (void *)-1)
		targets->shm = NULL;
	shmctl(targets->shm_id, IPC_RMID, NULL);
}

/* A variable of the host that the sandbox has no business to have. */
static char *choose_variable(const orch_sandbox *sandbox)
{
	for (char **entry = environ; entry && *entry; entry++) {
		size_t length = strcspn(*entry, "=");
		bool own = length == 0 || length > 100 || memchr(*entry, ':', length);

		for (size_t i = 0; !own && i < sandbox->variable_count; i++)
			own = strncmp(sandbox->variables[i].text, *entry, length + 1) == 0;
		if (!own)
			return strndup(*entry, length);
	}
	return NULL;
}

int32_t orch_targets_open(struct probe_targets *targets, const orch_sandbox *sandbox,
			  orch_error **reterr)
{
	memset(targets, 0, sizeof(*targets));
	targets->unix_fd = targets->abstract_fd = targets->loopback_fd = targets->outside_fd = -1;
	if (make_files(targets) < 0 || open_sockets(targets) < 0) {
		int32_t code = orch_fail(
			reterr, ORCH_ESYS, errno, "report.targets",
			"the targets of the probes can not be made (a folder in /tmp, sockets)");

		orch_targets_close(targets);
		return code;
	}
	open_memory(targets);
	targets->variable = choose_variable(sandbox);
	return 0;
}

void orch_targets_close(struct probe_targets *targets)
{
	static const char *const files[] = {"secret", "mute", "socket", "shared/file"};
	static const char *const folders[] = {"shared", "work"};
	char path[64];

	orch_close_fd(&targets->unix_fd);
	orch_close_fd(&targets->abstract_fd);
	orch_close_fd(&targets->loopback_fd);
	orch_close_fd(&targets->outside_fd);
	if (targets->shm)
		shmdt(targets->shm);
	free(targets->variable);
	for (size_t i = 0; targets->folder[0] && i < sizeof(files) / sizeof(files[0]); i++) {
		join(path, sizeof(path), targets, files[i]);
		unlink(path);
	}
	for (size_t i = 0; targets->folder[0] && i < 2; i++) {
		join(path, sizeof(path), targets, folders[i]);
		rmdir(path);
	}
	if (targets->folder[0])
		rmdir(targets->folder);
}
