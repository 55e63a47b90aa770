/* SPDX-License-Identifier: Apache-2.0 */
/* What the attempts are made at: live outside, and of the load's own uid, so that no ordinary permission refuses. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <ftw.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/keyctl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "targets.h"

static char secret[16] = "victim";

const char *below(const char *folder, const char *file)
{
	static char paths[16][256];
	static unsigned next;
	char *path = paths[next++ % 16];

	snprintf(path, sizeof(paths[0]), "%s/%s", folder, file);
	return path;
}

bool copy_program(const char *from, const char *to)
{
	char bytes[65536];
	ssize_t n = -1;
	int source = open(from, O_RDONLY | O_CLOEXEC), copy = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);

	while (source >= 0 && copy >= 0 && (n = read(source, bytes, sizeof(bytes))) > 0)
		if (write(copy, bytes, (size_t)n) != n)
			break;
	bool done = n == 0 && fchmod(copy, 0755) == 0;

	if (!done)
		fprintf(stderr, "%s can not be copied to %s: %m\n", from, to);
	if (source >= 0)
		close(source);
	if (copy >= 0)
		close(copy);
	return done;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

static bool folder_make(const char *path, mode_t mode)
{
	return mkdir(path, mode) == 0 && chmod(path, mode) == 0;
}

/* Root's: with rights, if a mount did not take them away. */
static bool programs_with_rights(const char *attempt_path)
{
	struct vfs_cap_data capability = {
		.magic_etc = VFS_CAP_REVISION_2 | VFS_CAP_FLAGS_EFFECTIVE,
		.data[0].permitted = 1u << CAP_NET_RAW,
	};
	const char *setuid = below(place.base, "programs/setuid"), *capable = below(place.base, "programs/capable");

	return copy_program(attempt_path, setuid) && chmod(setuid, 04755) == 0 && copy_program(attempt_path, capable) &&
	       setxattr(capable, "security.capability", &capability, XATTR_CAPS_SZ_2, 0) == 0 &&
	       mknod(below(place.base, "devices/zero"), S_IFCHR | 0666, makedev(1, 5)) == 0 &&
	       chmod(below(place.base, "devices/zero"), 0666) == 0;
}

bool base_make(const char *attempt_path)
{
	struct utsname name;

	/* Not in /tmp, where a sandbox has a folder of its own. */
	snprintf(place.base, sizeof(place.base), "/var/tmp/orch-matrix-XXXXXX");
	if (!mkdtemp(place.base) || chmod(place.base, 0755) < 0 || !folder_make(below(place.base, "places"), 01777) ||
	    !folder_make(below(place.base, "programs"), 0755) || !folder_make(below(place.base, "devices"), 0755) ||
	    !copy_program(attempt_path, below(place.base, "matrix-attempt")) ||
	    !copy_program(attempt_path, below(place.base, "programs/tool")) || uname(&name) < 0)
		return false;
	snprintf(place.hostname, sizeof(place.hostname), "%s", name.nodename);
	return geteuid() != 0 || programs_with_rights(attempt_path);
}

void base_remove(void)
{
	nftw(place.base, remove_entry, 32, FTW_DEPTH | FTW_PHYS);
}

bool leaks_make(void)
{
	int file = open("/etc/passwd", O_RDONLY | O_CLOEXEC), folder = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	umask(0);
	return dup2(file, 200) == 200 && dup2(folder, 201) == 201 && setenv("MATRIX_SECRET", "1", 1) == 0 &&
	       chdir(place.base) == 0;
}

static bool put(const char *path, const char *text, mode_t mode, uid_t uid)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
	bool done = fd >= 0 && write(fd, text, strlen(text)) >= 0 && fchmod(fd, mode) == 0 &&
		    (geteuid() != 0 || fchown(fd, uid, uid) == 0);

	if (fd >= 0)
		close(fd);
	return done;
}

static bool own_folder(const char *path, uid_t uid)
{
	return folder_make(path, 0777) && (geteuid() != 0 || chown(path, uid, uid) == 0);
}

static bool own_program(const char *path, uid_t uid)
{
	return copy_program(below(place.base, "matrix-attempt"), path) && (geteuid() != 0 || chown(path, uid, uid) == 0);
}

static bool files_make(uid_t uid)
{
	static const char *const folders[] = {"work", "ro", "tmp", "run", "run/dbus"};
	static const char *const files[] = {"secret", "work/file", "ro/file"};
	static const char *const programs[] = {"tool", "work/tool", "ro/tool"};
	const char *folder = place.folder;

	if (chmod(folder, 0777) < 0 || (geteuid() == 0 && chown(folder, uid, uid) < 0))
		return false;
	for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
		if (!own_folder(below(folder, folders[i]), uid))
			return false;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
		if (!put(below(folder, files[i]), "secret", 0666, uid) ||
		    setxattr(below(folder, files[i]), "user.matrix", "1", 1, 0) < 0)
			return false;
	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (!own_program(below(folder, programs[i]), uid))
			return false;
	/* What an earlier load may have left in the workspace. */
	return symlink(below(folder, "secret"), below(folder, "link")) == 0 &&
	       symlink(below(folder, "secret"), below(folder, "work/link-out")) == 0 &&
	       symlink(folder, below(folder, "work/folder-out")) == 0 &&
	       symlink(below(folder, "stream"), below(folder, "work/socket-out")) == 0 &&
	       link(below(folder, "secret"), below(folder, "work/hard")) == 0;
}

/* --- the victim --------------------------------------------------------------------------- */

static bool listen_unix(int type, const char *path, const char *abstract)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t length = sizeof(address);
	int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);

	if (path)
		snprintf(address.sun_path, sizeof(address.sun_path), "%s", below(place.folder, path));
	else
		length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
				     (size_t)snprintf(address.sun_path + 1, sizeof(address.sun_path) - 1, "%s-%d",
						      abstract, type));
	return fd >= 0 && bind(fd, (struct sockaddr *)&address, length) == 0 &&
	       (type == SOCK_DGRAM || listen(fd, 64) == 0);
}

/* Port 0: it is told. */
static int listen_ip(int family, int type, int *ret_port)
{
	struct sockaddr_in6 address = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	struct sockaddr_in *four = (struct sockaddr_in *)(void *)&address;
	socklen_t length = sizeof(address);
	int fd = socket(family, type | SOCK_CLOEXEC, 0);

	if (family == AF_INET)
		*four = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) < 0 || (type == SOCK_STREAM && listen(fd, 64) < 0) ||
	    getsockname(fd, (struct sockaddr *)&address, &length) < 0)
		return -1;
	*ret_port = ntohs(four->sin_port); /* at the same place in both */
	return fd;
}

static bool sockets_make(int *ret_udp)
{
	static const int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
	static const char *const paths[] = {"stream", "dgram", "seqpacket"};

	for (size_t i = 0; i < 3; i++)
		if (!listen_unix(types[i], paths[i], NULL) || !listen_unix(types[i], NULL, place_name()))
			return false;
	*ret_udp = listen_ip(AF_INET, SOCK_DGRAM, &place.udp);
	return *ret_udp >= 0 && listen_unix(SOCK_STREAM, "run/dbus/system_bus_socket", NULL) &&
	       listen_unix(SOCK_STREAM, "run/docker.sock", NULL) && listen_ip(AF_INET, SOCK_STREAM, &place.tcp) >= 0 &&
	       listen_ip(AF_INET6, SOCK_STREAM, &place.tcp6) >= 0;
}

struct objects {
	int shm, msg, sem;
	long key;
	char name[128];
};

static bool objects_make(struct objects *objects)
{
	snprintf(objects->name, sizeof(objects->name), "/%s", place_name());
	place.key = (int)(getpid() | 0x4d000000);
	objects->shm = shmget(place.key, 4096, IPC_CREAT | IPC_EXCL | 0666);
	objects->msg = msgget(place.key, IPC_CREAT | IPC_EXCL | 0666);
	objects->sem = semget(place.key, 1, IPC_CREAT | IPC_EXCL | 0666);
	objects->key = syscall(SYS_add_key, "user", place_name(), "x", 1, KEY_SPEC_USER_KEYRING);
	return objects->shm >= 0 && objects->msg >= 0 && objects->sem >= 0 && objects->key >= 0 &&
	       mq_open(objects->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666, NULL) >= 0 &&
	       shm_open(objects->name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666) >= 0;
}

static void objects_remove(const struct objects *objects)
{
	shmctl(objects->shm, IPC_RMID, NULL);
	msgctl(objects->msg, IPC_RMID, NULL);
	semctl(objects->sem, 0, IPC_RMID);
	syscall(SYS_keyctl, KEYCTL_UNLINK, objects->key, KEY_SPEC_USER_KEYRING);
	mq_unlink(objects->name);
	shm_unlink(objects->name);
}

/* Datagrams are answered; everything else only has to be there. */
static void serve(int keep, int udp)
{
	struct pollfd fds[2] = {{.fd = keep, .events = POLLIN}, {.fd = udp, .events = POLLIN}};
	struct sockaddr_in from;
	char byte;

	while (poll(fds, 2, -1) >= 0 && !fds[0].revents)
		if (fds[1].revents) {
			socklen_t length = sizeof(from);

			if (recvfrom(udp, &byte, 1, 0, (struct sockaddr *)&from, &length) == 1)
				sendto(udp, &byte, 1, 0, (struct sockaddr *)&from, length);
		}
}

static _Noreturn void victim(uid_t uid, int keep, int report)
{
	struct objects objects = {0};
	char text[512];
	int udp = -1;

	if (geteuid() == 0 &&
	    (setgroups(0, NULL) < 0 || setresgid(uid, uid, uid) < 0 || setresuid(uid, uid, uid) < 0))
		_exit(1);
	setsid();
	/* After a change of uid nobody of that uid could look into it. */
	prctl(PR_SET_DUMPABLE, 1);
	place.victim = getpid();
	place.secret = (unsigned long)secret;
	if (!sockets_make(&udp) || !objects_make(&objects)) {
		fprintf(stderr, "the targets can not be made: %m\n");
		objects_remove(&objects);
		_exit(1);
	}
	place_write(text, sizeof(text));
	if (write(report, text, sizeof(text)) == (ssize_t)sizeof(text))
		serve(keep, udp);
	objects_remove(&objects);
	_exit(0);
}

bool targets_make(struct targets *targets, uid_t uid)
{
	int keep[2], report[2];
	char text[512];

	snprintf(place.folder, sizeof(place.folder), "%s/places/XXXXXX", place.base);
	if (!mkdtemp(place.folder) || !files_make(uid) || pipe2(keep, O_CLOEXEC) < 0 || pipe2(report, O_CLOEXEC) < 0)
		return false;
	targets->keep = keep[1];
	targets->victim = fork();
	if (targets->victim == 0) {
		close(keep[1]);
		victim(uid, keep[0], report[1]);
	}
	close(keep[0]);
	close(report[1]);
	ssize_t n = read(report[0], text, sizeof(text));

	close(report[0]);
	return n == (ssize_t)sizeof(text) && place_read(text);
}

void targets_end(struct targets *targets)
{
	close(targets->keep);
	if (targets->victim > 0)
		waitpid(targets->victim, NULL, 0);
	nftw(place.folder, remove_entry, 32, FTW_DEPTH | FTW_PHYS);
}
