/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "../journal-private.h"

const struct setting host_settings[] = {{0}};

bool filesystem_is_remote(uint64_t magic, const char **ret_name)
{
	/* statfs(2), linux/magic.h. FUSE may be anything, sshfs included, and does not say what. */
	/* clang-format off */
	static const struct {
		uint32_t magic;
		const char *name;
	} remote[] = {
		{0x6969, "NFS"},	{0x517b, "SMB"},	{0xff534d42, "CIFS"},
		{0xfe534d42, "SMB2"},	{0x73757245, "Coda"},	{0x5346414f, "AFS"},
		{0x6b414653, "kAFS"},	{0x564c, "NCP"},	{0x00c36400, "Ceph"},
		{0x01021997, "9P"},	{0x65735546, "FUSE"},	{0x0bd00bd0, "Lustre"},
		{0x47504653, "GPFS"},	{0x7461636f, "OCFS2"},	{0x01161970, "GFS2"},
		{0x786f4256, "VBOXSF"}, {0x19830326, "BeeGFS"}, {0x20030528, "OrangeFS"},
		{0xbacbacbc, "VMHGFS"}, {0xaad7aaea, "PanFS"},
	};
	/* clang-format on */
	for (size_t i = 0; i < sizeof(remote) / sizeof(remote[0]); i++)
		if ((uint32_t)magic == remote[i].magic) {
			*ret_name = remote[i].name;
			return true;
		}
	return false;
}

int32_t filesystem_check(const char *folder, orch_error **reterr)
{
	_cleanup_close_ int fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return orch_fail(reterr, journal_code(errno), errno, "folder",
				 "cannot open the journal's folder %s", folder);
	struct statfs status;
	if (fstatfs(fd, &status) < 0)
		return orch_fail(reterr, ORCH_ESYS, errno, "folder",
				 "cannot ask the file system of %s", folder);
	const char *name;
	if (filesystem_is_remote((uint64_t)status.f_type, &name))
		return orch_fail(
			reterr, ORCH_ENETFS, 0, "folder",
			"%s is on a network file system (%s), where locks and syncs cannot be "
			"trusted: put the journal on a local disk",
			folder, name);
	return 0;
}

/*
 * statx(2), and only for the inode number: a stat() of the log before each commit would make the kernel give the next
 * write a time stamp of its own (multigrain time stamps, Linux 6.13), and the sync after it write the inode as well:
 * one more wait for the disk at each commit.
 */
bool file_identity_read(const char *path, struct file_identity *identity)
{
	struct statx status;
	if (statx(AT_FDCWD, path, 0, STATX_INO, &status) < 0)
		return false;
	identity->device = makedev(status.stx_dev_major, status.stx_dev_minor);
	identity->inode = status.stx_ino;
	return true;
}

int file_reserve(int fd, off_t bytes)
{
	/* It writes zeros where the file system has no such call. */
	return posix_fallocate(fd, 0, bytes);
}
