/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>

#include "core/os.h"
#include "journal-private.h"

int32_t snapshot_take(struct snapshot *snapshot, const char *path, const char *wal_path,
		      orch_error **reterr)
{
	const char *temp = orch_getenv_trusted("TMPDIR");
	memset(snapshot, 0, sizeof(*snapshot));
	char *folder =
		orch_strdup_printf("%s/orch-journal-XXXXXX", temp && *temp == '/' ? temp : "/tmp");
	if (!folder)
		return orch_fail_memory(reterr);
	if (!mkdtemp(folder)) {
		int32_t r = orch_fail(reterr, journal_code(errno), errno, "copy",
				      "cannot make a folder %s to copy the journal to", folder);
		free(folder);
		return r;
	}
	snapshot->folder = folder;
	/* SQLite is told to follow no symbolic link, and TMPDIR may be one. */
	_cleanup_free_ char *real = realpath(folder, NULL);
	if (!real) {
		int32_t r = orch_fail(reterr, journal_code(errno), errno, "copy", "cannot find %s",
				      folder);
		snapshot_remove(snapshot);
		return r;
	}
	snapshot->path = orch_strdup_printf("%s/journal", real);
	_cleanup_free_ char *wal = orch_strdup_printf("%s/journal-wal", folder);
	if (!snapshot->path || !wal) {
		snapshot_remove(snapshot);
		return orch_fail_memory(reterr);
	}
	int os_errno = file_copy(path, snapshot->path);
	const char *failed = os_errno ? path : wal_path;
	if (!os_errno && wal_path)
		os_errno = file_copy(wal_path, wal);
	if (!os_errno || (failed == wal_path && os_errno == ENOENT))
		return 0;
	int32_t r = os_errno == FILE_IS_NONE
			    ? orch_fail(reterr, ORCH_ECORRUPT, 0, "copy", "%s is not a file", failed)
			    : orch_fail(reterr, journal_code(os_errno), os_errno, "copy",
					"cannot copy %s to %s", failed, folder);
	snapshot_remove(snapshot);
	return r;
}

void snapshot_remove(struct snapshot *snapshot)
{
	if (snapshot->path) {
		_cleanup_free_ char *wal = orch_strdup_printf("%s-wal", snapshot->path);
		unlink(snapshot->path);
		if (wal)
			unlink(wal);
	}
	if (snapshot->folder)
		rmdir(snapshot->folder);
	free(ORCH_STEAL(snapshot->path));
	free(ORCH_STEAL(snapshot->folder));
}
