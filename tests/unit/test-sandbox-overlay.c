/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlays: what programs write stays away from the host's folder, and is told and exported. The
 * private file system, its one budget, and the reasons of what ran out.
 */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>

#include "sandbox-fixture.h"

/* --- what the host's folder is ------------------------------------------------------------- */

static void add_entry(FILE *out, int parent, const char *name, const char *path);

static void add_entries(FILE *out, int parent, const char *path)
{
	struct dirent **names;
	int copy = openat(parent, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
	    count = scandirat(copy, ".", &names, NULL, alphasort);

	ck_assert(copy >= 0 && count >= 0);
	for (int i = 0; i < count; i++) {
		if (strcmp(names[i]->d_name, ".") != 0 && strcmp(names[i]->d_name, "..") != 0)
			add_entry(out, parent, names[i]->d_name, path);
		free(names[i]);
	}
	free(names);
	close(copy);
}

static void add_entry(FILE *out, int parent, const char *name, const char *path)
{
	char below[512], bytes[4096];
	struct stat st;

	ck_assert(fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0);
	snprintf(below, sizeof(below), "%s/%s", path, name);
	fprintf(out, "%s %llu %o %u:%u %llu %lld %lld.%09ld %lld.%09ld ", below,
		(unsigned long long)st.st_ino, st.st_mode, st.st_uid, st.st_gid,
		(unsigned long long)st.st_nlink, (long long)st.st_size,
		(long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec, (long long)st.st_ctim.tv_sec,
		st.st_ctim.tv_nsec);
	int fd = S_ISLNK(st.st_mode)
			 ? -1
			 : openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

	if (S_ISREG(st.st_mode) && fd >= 0) {
		ssize_t n = read(fd, bytes, sizeof(bytes));

		fwrite(bytes, 1, n > 0 ? (size_t)n : 0, out);
	}
	fputc('\n', out);
	if (S_ISDIR(st.st_mode) && fd >= 0)
		add_entries(out, fd, below);
	if (fd >= 0)
		close(fd);
}

/* Names, inodes, modes, owners, link counts, sizes, times and contents. */
static char *snapshot(const char *path)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	add_entry(out, AT_FDCWD, path, "");
	fclose(out);
	return text;
}

static char *lower_new(void)
{
	char *lower = new_folder();

	ck_assert_int_eq(chmod(lower, 0755), 0);
	ck_assert(mkdir(in(lower, "d"), 0755) == 0 && mkdir(in(lower, "moved"), 0755) == 0 &&
		  mkdir(in(lower, "deep"), 0755) == 0 && mkdir(in(lower, "deep/er"), 0755) == 0);
	put(in(lower, "keep"), "keep\n");
	put(in(lower, "edit"), "edit\n");
	put(in(lower, "gone"), "gone\n");
	put(in(lower, "mode"), "mode\n");
	put(in(lower, "same"), "same\n");
	put(in(lower, "h1"), "hard\n");
	put(in(lower, "d/one"), "one\n");
	put(in(lower, "d/two"), "two\n");
	put(in(lower, "moved/x"), "x\n");
	put(in(lower, "deep/er/file"), "deep\n");
	put(in(lower, "secret"), "secret\n");
	ck_assert(link(in(lower, "h1"), in(lower, "h2")) == 0 &&
		  symlink("keep", in(lower, "link")) == 0 && chmod(in(lower, "secret"), 0600) == 0);
	return lower;
}

static orch_sandbox *overlay_new(orch_ctx *ctx, const struct orch_sandbox_opts *opts,
				 const char *lower)
{
	orch_sandbox *sandbox = sandbox_new(ctx, opts);

	OK(orch_sandbox_set_overlay(sandbox, lower, NULL, e));
	return sandbox;
}

/* Keeps the sandbox; what the program says is in the message of a failure. */
static uint32_t run_kept(orch_sandbox *sandbox, const char *script, int32_t expected)
{
	orch_sandbox_result *result = NULL;

	OK(orch_sandbox_run(sandbox, SH(script), NULL, &result, e));
	size_t length = 0, errors = 0;
	const char *out = orch_sandbox_result_output(result, 1, &length);
	const char *err = orch_sandbox_result_output(result, 2, &errors);
	uint32_t reason = orch_sandbox_result_reason(result);

	ck_assert_msg(orch_sandbox_result_status(result) == expected, "%d: %.*s%.*s",
		      orch_sandbox_result_status(result), (int)length, out, (int)errors, err);
	orch_sandbox_result_unref(result);
	return reason;
}

static orch_changes *changes_of(orch_sandbox *sandbox)
{
	orch_changes *changes = NULL;

	OK(orch_sandbox_changes(sandbox, &changes, e));
	return changes;
}

static void expect_changes(orch_sandbox *sandbox, const char *text)
{
	orch_changes *changes = changes_of(sandbox);

	ck_assert_str_eq(orch_changes_text(changes), text);
	orch_changes_unref(changes);
}

/* --- changes --------------------------------------------------------------------------------- */

START_TEST(changes_are_told_and_the_folder_stays)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *lower = lower_new(), *before = snapshot(lower);
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower);

	run_kept(sandbox,
		 "set -e; test $(pwd) = /work; test $(cat secret) = secret; test $(stat -c %u:%a "
		 "secret) = 1000:600\n"
		 "echo more >> edit; rm gone; echo add > add; mkdir new; echo 1 > new/f\n"
		 "rm -rf d; mkdir d; echo one > d/one; echo three > d/three; test $(ls d | wc -l) "
		 "= 2\n"
		 "mv moved elsewhere; ln -sfn edit link; chmod 600 mode; echo x >> h1; test $(cat "
		 "h2) = hard\n"
		 "cat same > s; mv s same; touch keep deep/er/file; mkfifo pipe\n",
		 0);
	/* The end of the load is no end of its changes. */
	expect_changes(sandbox, "A add\nA d/three\nD d/two\nM edit\nA elsewhere\nA elsewhere/x\nD "
				"gone\nM h1\nM link\nM mode\n"
				"D moved\nD moved/x\nA new\nA new/f\nA pipe\n");
	char *after = snapshot(lower);

	ck_assert_str_eq(before, after);
	free(before);
	free(after);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(rows_and_their_numbers)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower_new());

	run_kept(sandbox,
		 "printf 12345 > file; chmod 640 file; rm gone; ln -s /etc/passwd to; chmod 700 .",
		 0);
	orch_changes *changes = changes_of(sandbox);
	const char *path = NULL;
	uint32_t kind = 0, mode = 0;
	uint64_t bytes = 0;

	ck_assert_uint_eq(orch_changes_count(changes), 4);
	ck_assert_int_eq(orch_changes_row(changes, 0, &path, &kind, &mode, &bytes), 0);
	ck_assert(strcmp(path, ".") == 0 && kind == ORCH_CHANGE_MODIFIED &&
		  mode == (S_IFDIR | 0700) && bytes == 0);
	ck_assert_int_eq(orch_changes_row(changes, 1, &path, &kind, &mode, &bytes), 0);
	ck_assert(strcmp(path, "file") == 0 && kind == ORCH_CHANGE_ADDED &&
		  mode == (S_IFREG | 0640) && bytes == 5);
	ck_assert_int_eq(orch_changes_row(changes, 2, &path, &kind, &mode, &bytes), 0);
	ck_assert(strcmp(path, "gone") == 0 && kind == ORCH_CHANGE_DELETED && mode == 0 &&
		  bytes == 0);
	ck_assert_int_eq(orch_changes_row(changes, 3, NULL, NULL, &mode, NULL), 0);
	ck_assert(S_ISLNK(mode));
	ck_assert_int_eq(orch_changes_row(changes, 4, &path, NULL, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_eq(orch_changes_row(NULL, 0, NULL, NULL, NULL, NULL), ORCH_EINVAL);
	orch_changes_unref(changes);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* A folder becomes a file, a file a folder, a link a file; a name that would be two lines. */
START_TEST(types_and_names)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower_new());

	run_kept(sandbox,
		 "set -e; rm -r d; echo file > d; rm edit; mkdir edit; echo in > edit/in; rm link; "
		 "echo file > link\n"
		 "printf x > \"$(printf 'a\\nD keep')\"; printf x > \"$(printf '\\377')\"",
		 0);
	expect_changes(
		sandbox,
		"A a\\012D keep\nM d\nD d/one\nD d/two\nM edit\nA edit/in\nM link\nA \377\n");
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* Where something lies over the workspace the set-up makes what it lies on: nothing that a program changed. */
START_TEST(paths_over_the_overlay)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *lower = lower_new(), *before = snapshot(lower), *shown = new_folder();
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower);

	put(in(shown, "file"), "shown\n");
	OK(orch_sandbox_add_path(sandbox, in(shown, "file"), "/work/new/on/it", ORCH_PATH_READ, e));
	OK(orch_sandbox_deny_path(sandbox, "/work/secret", e));
	OK(orch_sandbox_deny_path(sandbox, "/work/.git/", e));
	OK(orch_sandbox_deny_path(sandbox, "/work/d", e));
	run_kept(sandbox,
		 "test $(cat new/on/it) = shown && ! cat secret && ! cat d/one && ! mkdir .git/hooks && ! mv .git x &&\n"
		 "echo 1 > new/more && echo 2 > new/on/more && ! rm -rf .git secret",
		 0);
	expect_changes(sandbox, "A new/more\nA new/on/more\n");
	char *after = snapshot(lower);

	ck_assert_str_eq(before, after);
	free(before);
	free(after);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* What was made unreadable, for an ordinary user too; what waits for a writer; a folder that was
 * written while it stood. */
START_TEST(hostile_entries)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower_new());
	char *to = new_folder();

	run_kept(sandbox,
		 "set -e; mkfifo fifo edit.fifo; rm edit; mkfifo edit; ln -s / root; ln -s fifo "
		 "to-fifo; ln -s .. deep/up\n"
		 "mkdir -p shut/in; echo x > shut/in/file; chmod 0 shut/in/file shut/in shut; "
		 "chmod 0 keep",
		 0);
	const char *text = "A deep/up\nM edit\nA edit.fifo\nA fifo\nM keep\nA root\nA shut\nA "
			   "shut/in\nA shut/in/file\nA to-fifo\n";

	expect_changes(sandbox, text);
	orch_changes *changes = changes_of(sandbox);

	OK(orch_changes_export(changes, to, e));
	/* Reading changed nothing. */
	expect_changes(sandbox, text);
	struct stat st;
	char target[16];

	ck_assert(lstat(in(to, "edit"), &st) < 0 && lstat(in(to, "fifo"), &st) < 0);
	ck_assert(stat(in(to, "shut"), &st) == 0 && (st.st_mode & 07777) == 0);
	ck_assert(chmod(in(to, "shut"), 0700) == 0 && chmod(in(to, "shut/in"), 0700) == 0 &&
		  chmod(in(to, "shut/in/file"), 0600) == 0 && holds(in(to, "shut/in/file"), "x\n"));
	ck_assert(readlink(in(to, "root"), target, sizeof(target)) == 1 && target[0] == '/');
	ck_assert(readlink(in(to, "deep/up"), target, sizeof(target)) == 2);
	orch_changes_unref(changes);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(deeper_than_the_limit)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower_new());
	orch_changes *changes = (void *)ctx;

	run_kept(sandbox,
		 "i=0; while [ $i -lt 255 ]; do mkdir d$i && cd d$i || exit 1; i=$((i+1)); done; "
		 "echo x > last",
		 0);
	changes = changes_of(sandbox);
	ck_assert_uint_eq(orch_changes_count(changes), 256);
	orch_changes_unref(changes);
	orch_sandbox_unref(sandbox);
	sandbox = overlay_new(ctx, NULL, lower_new());
	changes = (void *)ctx;
	run_kept(sandbox,
		 "i=0; while [ $i -lt 256 ]; do mkdir n && cd n || exit 1; i=$((i+1)); done; echo "
		 "x > last",
		 0);
	REFUSED(ORCH_ETOOBIG, "deeper than 256", orch_sandbox_changes(sandbox, &changes, e));
	ck_assert_ptr_eq(changes, ctx);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- export ---------------------------------------------------------------------------------- */

START_TEST(exported_files)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower_new());
	char *to = new_folder();
	orch_changes *changes;
	struct stat st;

	run_kept(sandbox,
		 "set -e; echo more >> edit; rm gone; echo two > deep/er/two; mkdir -m 500 closed "
		 "2>/dev/null || true\n"
		 "chmod 700 closed; echo in > closed/in; chmod 500 closed; ln -s /etc/shadow "
		 "link2; chmod 4755 keep\n"
		 "truncate -s 1G sparse; printf end >> sparse; head -c 3000000 /dev/zero | tr "
		 "'\\0' b > big",
		 0);
	changes = changes_of(sandbox);
	OK(orch_changes_export(changes, to, e));
	ck_assert(holds(in(to, "edit"), "edit\nmore\n") && holds(in(to, "deep/er/two"), "two\n") &&
		  holds(in(to, "closed/in"), "in\n"));
	ck_assert(stat(in(to, "closed"), &st) == 0 && (st.st_mode & 07777) == 0500);
	ck_assert(stat(in(to, "keep"), &st) == 0 && (st.st_mode & 07777) == 0755);
	ck_assert(lstat(in(to, "link2"), &st) == 0 && S_ISLNK(st.st_mode));
	ck_assert(stat(in(to, "sparse"), &st) == 0 && st.st_size == (1 << 30) + 3 &&
		  st.st_blocks < 4096);
	ck_assert(stat(in(to, "big"), &st) == 0 && st.st_size == 3000000);
	ck_assert(lstat(in(to, "gone"), &st) < 0 && lstat(in(to, "mode"), &st) < 0);
	ck_assert_uint_eq(st.st_uid, geteuid());

	REFUSED(ORCH_EEXIST, "not empty", orch_changes_export(changes, to, e));
	REFUSED(ORCH_ESYS, "no-such-folder",
		orch_changes_export(changes, in(to, "no-such-folder"), e));
	REFUSED(ORCH_EINVAL, "no path", orch_changes_export(changes, NULL, e));
	if (geteuid() != 0)
		REFUSED(ORCH_ESYS, "belongs to uid 0", orch_changes_export(changes, "/usr", e));
	ck_assert_int_eq(chmod(in(to, "closed"), 0700), 0);
	orch_sandbox_unref(sandbox);
	REFUSED(ORCH_ESTATE, "is gone", orch_changes_export(changes, new_folder(), e));
	ck_assert_ptr_nonnull(strstr(orch_changes_text(changes), "M edit\n"));
	orch_changes_unref(changes);
	orch_ctx_unref(ctx);
}
END_TEST

/* --- states ---------------------------------------------------------------------------------- */

START_TEST(refusals)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	orch_sandbox *sandbox = sandbox_new(ctx, NULL);
	orch_changes *changes = (void *)ctx;
	char *lower = lower_new();

	REFUSED(ORCH_ESTATE, "no overlay", orch_sandbox_changes(sandbox, &changes, e));
	REFUSED(ORCH_EINVAL, "not absolute", orch_sandbox_set_overlay(sandbox, "here", NULL, e));
	REFUSED(ORCH_EINVAL, "own", orch_sandbox_set_overlay(sandbox, lower, "/proc/x", e));
	OK(orch_sandbox_set_overlay(sandbox, lower, "/src", e));
	REFUSED(ORCH_EEXIST, "/src", orch_sandbox_set_overlay(sandbox, lower, "/other", e));
	REFUSED(ORCH_EEXIST, "/src", orch_sandbox_set_workspace(sandbox, lower, NULL, e));
	REFUSED(ORCH_ESTATE, "not stood", orch_sandbox_changes(sandbox, &changes, e));
	run_kept(sandbox, "test $(pwd) = /src && test $(cat keep) = keep", 0);
	expect_changes(sandbox, "");
	REFUSED(ORCH_ESTATE, "started", orch_sandbox_set_overlay(sandbox, lower, "/more", e));
	orch_sandbox_unref(sandbox);

	sandbox = overlay_new(ctx, NULL, in(lower, "missing"));
	REFUSED(ORCH_ENOENT, "missing", orch_sandbox_start_wait(sandbox, 60000, e));
	REFUSED(ORCH_ESTATE, "not stood", orch_sandbox_changes(sandbox, &changes, e));
	orch_sandbox_unref(sandbox);
	sandbox = overlay_new(ctx, NULL, in(lower, "keep"));
	REFUSED(ORCH_EINVAL, "no folder", orch_sandbox_start_wait(sandbox, 60000, e));
	orch_sandbox_unref(sandbox);
	ck_assert_ptr_eq(changes, ctx);
	orch_ctx_unref(ctx);
}
END_TEST

/* While it stands, and two over one folder. */
START_TEST(parallel_sandboxes_do_not_see_each_other)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *lower = lower_new();
	orch_sandbox *sandboxes[2];

	ck_assert_int_eq(chmod(lower, 03755), 0);
	for (int i = 0; i < 2; i++) {
		sandboxes[i] = overlay_new(ctx, NULL, lower);
		OK(orch_sandbox_start_wait(sandboxes[i], 60000, e));
	}
	for (int i = 0; i < 2; i++) {
		struct orch_proc_opts opts;
		orch_proc *proc = NULL;
		int32_t status = -1;

		orch_proc_opts_init(&opts, sizeof(opts));
		opts.argv = SH("test ! -e mine && test $(cat edit) = edit && echo $$ > mine && "
			       "echo changed > edit");
		OK(orch_sandbox_spawn(sandboxes[i], &opts, &proc, e));
		OK(orch_proc_wait(proc, 10000, &status, e));
		ck_assert_int_eq(status, 0);
		orch_proc_unref(proc);
		expect_changes(sandboxes[i], "M edit\nA mine\n");
	}
	for (int i = 0; i < 2; i++)
		orch_sandbox_unref(sandboxes[i]);
	ck_assert(holds(in(lower, "edit"), "edit\n"));
	orch_ctx_unref(ctx);
}
END_TEST

/* Programs reach what the overlay shows, and neither its sides nor the root of the private file
 * system. */
START_TEST(sides_are_out_of_reach)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct outcome outcome = run(
		overlay_new(ctx, NULL, lower_new()),
		SH("echo marked > /work/marked; echo marked > /tmp/marked; find / -name marked "
		   "2>/dev/null | sort; ls -a / | grep private\n"
		   "find / -name upper -o -name .private -o -path /proc -prune -name none "
		   "2>/dev/null; grep -c overlay /proc/self/mountinfo\n"
		   "ls -a /tmp /dev/shm; ln /tmp/marked /dev/shm/x 2>/dev/null || echo no link"));

	ck_assert_str_eq(outcome.out, "/tmp/marked\n/work/marked\n1\n/dev/shm:\n.\n..\n\n/"
				      "tmp:\n.\n..\nhome\nmarked\nno link\n");
	orch_ctx_unref(ctx);
}
END_TEST

static void write_map(const char *path, unsigned int id)
{
	char map[40];

	snprintf(map, sizeof(map), "%u %u 1\n", id, id);
	put(path, map);
}

/* What is mounted from now on is this process's own. */
static void own_mounts(void)
{
	uid_t uid = geteuid();
	gid_t gid = getegid();

	ck_assert_int_eq(unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWUSER | CLONE_NEWNS), 0);
	if (uid != 0) {
		put("/proc/self/setgroups", "deny");
		write_map("/proc/self/uid_map", uid);
		write_map("/proc/self/gid_map", gid);
	}
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
}

/* Where nothing of the host's folder may be run, nothing of an overlay over it may. */
START_TEST(programs_of_the_folder)
{
	char *lowers[2] = {new_folder(), new_folder()};

	own_mounts();
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(mount("tmpfs", lowers[i], "tmpfs", i == 0 ? 0 : MS_NOEXEC, "mode=1777"), 0);
	become(_i);
	orch_ctx *ctx = ctx_new();

	for (int i = 0; i < 2; i++) {
		ck_assert(copy_file("/bin/true", in(lowers[i], "there")));
		orch_sandbox *sandbox = overlay_new(ctx, NULL, lowers[i]);

		run_kept(sandbox, "cp /bin/true here; ./there && ./here", i == 0 ? 0 : 126);
		orch_sandbox_unref(sandbox);
	}
	orch_ctx_unref(ctx);
}
END_TEST

/* A host that holds nothing more holds no memory: the file system is gone. */
START_TEST(nothing_is_left)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *lower = lower_new(), *before = snapshot(lower);
	unsigned files = count_lines("ls /proc/self/fd | wc -l"),
		 mounts = count_lines("wc -l < /proc/self/mountinfo");
	struct statfs fs;
	char path[64];
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower);
	int found = -1, again;

	run_kept(sandbox, "echo more >> edit; echo x > new", 0);
	/* The only tmpfs that this process has open is the sandbox's. */
	for (int fd = 3; fd < 64 && found < 0; fd++)
		if (fstatfs(fd, &fs) == 0 && fs.f_type == 0x01021994 &&
		    faccessat(fd, "upper/new", F_OK, 0) == 0)
			found = fd;
	ck_assert_int_ge(found, 3);
	snprintf(path, sizeof(path), "/proc/self/fd/%d/upper/new", found);
	ck_assert_int_eq(access(path, F_OK), 0);
	orch_scope *scope = orch_scope_ref(orch_sandbox_scope(sandbox));

	orch_sandbox_unref(sandbox);
	for (again = 0; again < 64; again++) {
		ck_assert(!(fstatfs(again, &fs) == 0 && fs.f_type == 0x01021994 &&
			    faccessat(again, "upper/new", F_OK, 0) == 0));
	}
	orch_scope_unref(scope);
	orch_ctx_unref(ctx);
	ck_assert_uint_eq(count_lines("ls /proc/self/fd | wc -l"), files);
	ck_assert_uint_eq(count_lines("wc -l < /proc/self/mountinfo"), mounts);
	char *after = snapshot(lower);

	ck_assert_str_eq(before, after);
	free(before);
	free(after);
}
END_TEST

/* As root the folder's owner may be anybody: his files are the sandbox's own, and others' are what
 * they are. */
START_TEST(owners_of_the_folder)
{
	orch_ctx *ctx = ctx_new();
	char *lower = lower_new();

	if (geteuid() == 0) {
		ck_assert(chown(lower, 1234, 1234) == 0 &&
			  chown(in(lower, "secret"), 1234, 1234) == 0 &&
			  chmod(in(lower, "gone"), 0600) == 0);
	}
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower);

	run_kept(sandbox,
		 geteuid() == 0 ? "echo more >> secret && cat keep && ! cat gone && ! sh -c 'echo "
				  "x >> keep' && ! rm -f keep && echo x > new"
				: "echo more >> secret && echo x > new",
		 0);
	expect_changes(sandbox, "A new\nM secret\n");
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

/* Where no overlay can be made: nothing is begun, the folder stays as it is, and the way out that is named is one. */
START_TEST(refused_by_an_older_kernel)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	char *lower = lower_new(), *before = snapshot(lower);
	orch_sandbox *sandbox = overlay_new(ctx, NULL, lower);
	orch_sandbox_result *result = NULL;
	orch_changes *changes = NULL;
	orch_error *error = NULL;

	ck_assert_int_eq(orch_sandbox_start_wait(sandbox, 10000, &error), ORCH_EUNENFORCEABLE);
	ck_assert_str_eq(orch_error_step(error), "overlay");
	ck_assert_int_eq(orch_error_errno(error), EOPNOTSUPP);
	ck_assert_msg(strstr(orch_error_message(error), "a copy of the folder as workspace"), "%s",
		      orch_error_message(error));
	orch_error_free(error);
	REFUSED(ORCH_ESTATE, "not stood", orch_sandbox_changes(sandbox, &changes, e));
	orch_sandbox_unref(sandbox);
	sandbox = overlay_new(ctx, NULL, lower);
	OVERLAY_REFUSED(orch_sandbox_run(sandbox, ARGV("/bin/true"), NULL, &result, e));
	ck_assert(!result && !changes);
	orch_sandbox_unref(sandbox);
	char *after = snapshot(lower);

	ck_assert_str_eq(before, after);
	free(before);
	free(after);
	sandbox = sandbox_new(ctx, NULL);
	OK(orch_sandbox_set_workspace(sandbox, lower, NULL, e));
	run_kept(sandbox, "echo more >> edit && echo x > new", 0);
	orch_sandbox_unref(sandbox);
	ck_assert(holds(in(lower, "edit"), "edit\nmore\n"));
	orch_ctx_unref(ctx);
}
END_TEST

/* --- what runs out --------------------------------------------------------------------------- */

/* As every sandbox has it, over a folder where that is possible. */
static orch_sandbox *maybe_overlay_new(orch_ctx *ctx, const struct orch_sandbox_opts *opts, const char *lower)
{
	orch_sandbox *sandbox = sandbox_new(ctx, opts);

	if (NO_OVERLAYS)
		OK(orch_sandbox_set_workspace(sandbox, lower, NULL, e));
	else
		OK(orch_sandbox_set_overlay(sandbox, lower, NULL, e));
	return sandbox;
}

START_TEST(one_budget_and_its_reason)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_sandbox_opts opts;
	static const char *const fills[] = {"/tmp/big", "/dev/shm/big", "/work/big"};
	const size_t count = NO_OVERLAYS ? 2 : 3;
	char script[256];

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.tmp_mib = 8;
	for (size_t i = 0; i < count; i++) {
		orch_sandbox *sandbox = maybe_overlay_new(ctx, &opts, lower_new());

		/* What one took the others do not get. */
		snprintf(script, sizeof(script),
			 "head -c 6M /dev/zero > %s && head -c 3M /dev/zero > %s", fills[i],
			 fills[(i + 1) % count]);
		ck_assert_uint_eq(run_kept(sandbox, script, 1), ORCH_REASON_DISK);
		orch_sandbox_unref(sandbox);
		sandbox = maybe_overlay_new(ctx, &opts, lower_new());
		snprintf(script, sizeof(script), "head -c 6M /dev/zero > %s; exit 1", fills[i]);
		ck_assert_uint_eq(run_kept(sandbox, script, 1), ORCH_REASON_EXITED);
		orch_sandbox_unref(sandbox);
		sandbox = maybe_overlay_new(ctx, &opts, lower_new());
		snprintf(script, sizeof(script), "head -c 9M /dev/zero > %s; exit 0", fills[i]);
		ck_assert_uint_eq(run_kept(sandbox, script, 0), ORCH_REASON_EXITED);
		orch_sandbox_unref(sandbox);
	}
	/* Names run out too, and a signal is no success. */
	orch_sandbox *sandbox = maybe_overlay_new(ctx, &opts, lower_new());

	ck_assert_uint_eq(
		run_kept(
			sandbox,
			"i=0; while true > /tmp/$i; do i=$((i+1)); done 2>/dev/null; kill -ABRT $$",
			256 + SIGABRT),
		ORCH_REASON_DISK);
	orch_sandbox_unref(sandbox);
	sandbox = maybe_overlay_new(ctx, &opts, lower_new());
	ck_assert_uint_eq(run_kept(sandbox, "kill -ABRT $$", 256 + SIGABRT), ORCH_REASON_SIGNALED);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

START_TEST(time_limit)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_sandbox_opts opts;
	orch_sandbox *sandbox = NULL;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.time_limit_ms = 5000; /* in which a loaded machine starts a program */
	sandbox = maybe_overlay_new(ctx, &opts, lower_new());
	ck_assert_uint_eq(run_kept(sandbox, "echo begun > begun; sleep 60", 256 + SIGKILL),
			  ORCH_REASON_TIME);
	if (!NO_OVERLAYS)
		expect_changes(sandbox, "A begun\n");
	orch_sandbox_unref(sandbox);
	/* However early it is over: in the set-up, before the program, in it. */
	for (int i = 0; i < 24; i++) {
		orch_sandbox_result *result = NULL;

		opts.time_limit_ms = 1 + i % 8;
		sandbox = sandbox_new(ctx, &opts);
		OK(orch_sandbox_run(sandbox, SH("sleep 60"), NULL, &result, e));
		ck_assert_uint_eq(orch_sandbox_result_reason(result), ORCH_REASON_TIME);
		ck_assert_uint_eq(orch_death_limit(orch_sandbox_result_death(result)), ORCH_LIMIT_TIME);
		int32_t status = orch_sandbox_result_status(result);

		ck_assert_msg(status == ORCH_ETIMEDOUT || status == 256 + SIGKILL, "%d", status);
		orch_sandbox_result_unref(result);
		orch_sandbox_unref(sandbox);
	}
	opts.time_limit_ms = 60000;
	sandbox = maybe_overlay_new(ctx, &opts, lower_new());
	ck_assert_uint_eq(run_kept(sandbox, "exit 3", 3), ORCH_REASON_EXITED);
	orch_sandbox_unref(sandbox);
	opts.time_limit_ms = -1;
	REFUSED(ORCH_EINVAL, "time_limit_ms", orch_sandbox_new(ctx, &opts, &sandbox, e));
	opts.time_limit_ms = INT64_C(1) << 33;
	REFUSED(ORCH_EINVAL, "time_limit_ms", orch_sandbox_new(ctx, &opts, &sandbox, e));
	orch_ctx_unref(ctx);
}
END_TEST

/* Where it is required and there is no controller, nothing starts; where it is not, it does. */
START_TEST(processor_limit)
{
	become(_i);
	orch_ctx *ctx = ctx_new();
	struct orch_sandbox_opts opts;
	uint32_t state = 0;
	const char *mechanism = NULL;

	orch_sandbox_opts_init(&opts, sizeof(opts));
	opts.max_cpu_percent = 50;
	orch_sandbox *sandbox = sandbox_new(ctx, &opts);

	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	OK(orch_scope_limit(orch_sandbox_scope(sandbox), ORCH_LIMIT_CPU, &state, &mechanism));
	ck_assert_uint_ne(state, ORCH_LIMIT_UNASKED);
	orch_sandbox_unref(sandbox);
	sandbox = sandbox_new(ctx, &opts);
	OK(orch_sandbox_set_protection(sandbox, "cpu", ORCH_PROTECT_REQUIRED, e));
	if (state == ORCH_LIMIT_ENFORCED)
		OK(orch_sandbox_start_wait(sandbox, 60000, e));
	else
		REFUSED(ORCH_EUNENFORCEABLE, "cpu", orch_sandbox_start_wait(sandbox, 60000, e));
	orch_sandbox_unref(sandbox);
	sandbox = sandbox_new(ctx, &opts);
	OK(orch_sandbox_set_protection(sandbox, "cpu", ORCH_PROTECT_OFF, e));
	OK(orch_sandbox_start_wait(sandbox, 60000, e));
	OK(orch_scope_limit(orch_sandbox_scope(sandbox), ORCH_LIMIT_CPU, &state, &mechanism));
	ck_assert_uint_eq(state, ORCH_LIMIT_UNASKED);
	orch_sandbox_unref(sandbox);
	orch_ctx_unref(ctx);
}
END_TEST

int main(int argc, char **argv)
{
	Suite *suite = suite_create("sandbox-overlay");
	TCase *both = tcase_create("as root and as a user");

	(void)argc;
	tcase_set_timeout(both, 60);
#define BOTH(name) tcase_add_loop_test(both, name, 0, identities())
	if (NO_OVERLAYS) {
		BOTH(refused_by_an_older_kernel);
	} else {
		BOTH(changes_are_told_and_the_folder_stays);
		BOTH(rows_and_their_numbers);
		BOTH(types_and_names);
		BOTH(paths_over_the_overlay);
		BOTH(hostile_entries);
		BOTH(deeper_than_the_limit);
		BOTH(exported_files);
		BOTH(refusals);
		BOTH(parallel_sandboxes_do_not_see_each_other);
		BOTH(sides_are_out_of_reach);
		BOTH(programs_of_the_folder);
		BOTH(nothing_is_left);
	}
	BOTH(one_budget_and_its_reason);
	BOTH(time_limit);
	BOTH(processor_limit);
	suite_add_tcase(suite, both);
	TCase *once = tcase_create("as who runs it");

	tcase_set_timeout(once, 60);
	if (!NO_OVERLAYS)
		tcase_add_test(once, owners_of_the_folder);
	suite_add_tcase(suite, once);
	return fixture_main(argv, suite);
}
