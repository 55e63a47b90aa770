/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_HUNG_MOUNT_H
#define ORCH_HUNG_MOUNT_H

/*
 * A file system that answers INIT and nothing more: whoever looks something up in it sleeps uninterruptibly once it
 * was killed. In a mount namespace of the test's own. Root.
 */

#include <pthread.h>
#include <sched.h>
#include <sys/mount.h>

struct hung_mount {
	int fuse;
	char where[128];
	pthread_t thread;
};

static inline void *answer_init(void *argument)
{
	int fd = *(int *)argument;
	struct fuse_request {
		uint32_t length, opcode;
		uint64_t unique, node;
		uint32_t uid, gid, pid, padding;
		uint32_t major, minor;
		char rest[8192 + 4096];
	} *request = malloc(sizeof(*request));
	struct {
		uint32_t length;
		int32_t error;
		uint64_t unique;
		uint32_t major, minor, readahead, flags;
		uint16_t background, threshold;
		uint32_t max_write;
		uint32_t more[10];
	} answer = {.length = sizeof(answer), .major = 7, .minor = 31, .max_write = 4096};
	while (read(fd, request, sizeof(*request)) > 0)
		if (request->opcode == 26) { /* FUSE_INIT */
			answer.unique = request->unique;
			(void)!write(fd, &answer, sizeof(answer));
		}
	free(request);
	return NULL;
}

/* False: there is no /dev/fuse here. */
static inline bool hung_mount_make(struct hung_mount *mount_, const char *parent)
{
	char options[128];
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	mount_->fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (mount_->fuse < 0)
		return false;
	snprintf(mount_->where, sizeof(mount_->where), "%s/hung-%d", parent, (int)getpid());
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", mount_->fuse);
	ck_assert_int_eq(mkdir(mount_->where, 0755), 0);
	ck_assert_int_eq(mount("hung", mount_->where, "fuse", 0, options), 0);
	ck_assert_int_eq(pthread_create(&mount_->thread, NULL, answer_init, &mount_->fuse), 0);
	return true;
}

/* Whoever sleeps in it wakes up. */
static inline void hung_mount_release(const struct hung_mount *mount_)
{
	ck_assert_int_eq(umount2(mount_->where, MNT_FORCE), 0);
}

static inline void hung_mount_end(struct hung_mount *mount_)
{
	umount2(mount_->where, MNT_DETACH);
	pthread_join(mount_->thread, NULL);
	close(mount_->fuse);
	rmdir(mount_->where);
}

#endif
