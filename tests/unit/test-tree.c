/* SPDX-License-Identifier: Apache-2.0 */
#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "pipeline/tree.h"

static char base[64], trees[80], source[80];

/* Valid until eight more were asked for. */
static char *at(const char *dir, const char *name)
{
	static char *paths[8];
	static int turn;
	char *path = orch_strdup_printf("%s/%s", dir, name);
	ck_assert_ptr_nonnull(path);
	turn = (turn + 1) % 8;
	free(paths[turn]);
	return paths[turn] = path;
}

static void put(const char *dir, const char *name, const char *text, mode_t mode)
{
	orch_error *error = NULL;
	int32_t code = tree_write_file(at(dir, name), text, strlen(text), mode, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
}

static void set_up(void)
{
	snprintf(base, sizeof(base), "/tmp/test-tree-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	snprintf(trees, sizeof(trees), "%s/trees", base);
	snprintf(source, sizeof(source), "%s/source", base);
	ck_assert_int_eq(mkdir(source, 0755), 0);
}

static void tear_down(void)
{
	orch_error *error = NULL;
	ck_assert_msg(!tree_remove(base, &error), "%s", orch_error_message(error));
	ck_assert_int_lt(access(base, F_OK), 0);
}

static const char *import(const char *dir)
{
	static char hashes[8][TREE_HASH_SIZE];
	static int turn;
	char *hash = hashes[turn++ % 8];
	orch_error *error = NULL;
	int32_t code = tree_import(dir, trees, NULL, hash, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
	return hash;
}

/* The import is refused with that code, names `part`, and leaves nothing in the store. */
static void refused(const struct tree_limits *limits, int32_t expected, const char *part)
{
	char hash[TREE_HASH_SIZE] = "untouched";
	orch_error *error = NULL;
	int32_t code = tree_import(source, trees, limits, hash, &error);
	ck_assert_msg(code == expected, "%s (%s), not %s", orch_code_name(code),
		      orch_error_message(error), orch_code_name(expected));
	ck_assert_msg(strstr(orch_error_message(error), part), "no '%s' in: %s", part,
		      orch_error_message(error));
	ck_assert_str_eq(hash, "untouched");
	orch_error_free(error);
	DIR *dir = opendir(trees);
	for (struct dirent *entry; dir && (entry = readdir(dir));)
		ck_assert_msg(!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, ".."),
			      "left: %s", entry->d_name);
	if (dir)
		closedir(dir);
}

static unsigned mode_of(const char *path)
{
	struct stat status;
	ck_assert_msg(!lstat(path, &status), "%s", path);
	return status.st_mode & 07777;
}

static void content_is(const char *dir, const char *path, const char *expected)
{
	_cleanup_free_ void *bytes = NULL;
	size_t length = 0;
	orch_error *error = NULL;
	int32_t code = tree_read_file(dir, path, 1000, &bytes, &length, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
	ck_assert_str_eq(bytes, expected);
}

START_TEST(a_tree_comes_in_and_goes_out)
{
	put(source, "README", "hello\n", 0600);
	put(source, "bin/run", "#!/bin/sh\n", 0700);
	put(source, "a/b/c/deep", "", 0644);
	put(source, "s/setuid", "x", 04755);
	ck_assert_int_eq(chmod(at(source, "s/setuid"), 06755), 0);
	ck_assert_int_eq(mkdir(at(source, "empty"), 0755), 0);
	ck_assert_int_eq(symlink("../README", at(source, "a/readme")), 0);
	ck_assert_int_eq(symlink("nowhere/yet", at(source, "a/dangling")), 0);
	const char *hash = import(source);
	ck_assert_str_eq(import(source), hash);

	orch_error *error = NULL;
	_cleanup_free_ char *out = orch_strdup_printf("%s/out", base);
	int32_t code = tree_checkout(trees, hash, out, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
	content_is(out, "README", "hello\n");
	content_is(out, "a/b/c/deep", "");
	ck_assert_uint_eq(mode_of(at(out, "README")), 0644);
	ck_assert_uint_eq(mode_of(at(out, "bin/run")), 0755);
	ck_assert_uint_eq(mode_of(at(out, "s/setuid")), 0755);
	ck_assert_uint_eq(mode_of(at(out, "a/b")), 0755);
	char target[64] = "";
	ck_assert_int_eq(readlink(at(out, "a/readme"), target, sizeof(target)), 9);
	ck_assert_int_lt(access(at(out, "empty"), F_OK), 0);
	ck_assert_str_eq(import(out), hash);
	ck_assert_int_eq(tree_checkout(trees, hash, out, NULL), ORCH_EEXIST);

	/* What is in it makes the hash, and nothing else: not times, not other bits of the mode. */
	ck_assert_int_eq(utimensat(AT_FDCWD, at(out, "README"), NULL, 0), 0);
	ck_assert_int_eq(chmod(at(out, "README"), 0666), 0);
	ck_assert_str_eq(import(out), hash);
	ck_assert_int_eq(chmod(at(out, "README"), 0755), 0);
	ck_assert_str_ne(import(out), hash);
	ck_assert_int_eq(tree_verify(trees, hash, NULL), 0);
}
END_TEST

/* The same manifest, made by other programs: sha256sum and printf. */
START_TEST(the_hash_is_what_the_documents_say)
{
	ck_assert_str_eq(import(source), tree_empty_hash);
	put(source, "b", "two\n", 0644);
	put(source, "a-x", "one\n", 0755);
	put(source, "a/z", "three\n", 0644);
	ck_assert_int_eq(symlink("a/z", at(source, "l")), 0);
	const char *hash = import(source);
	char command[1024], line[128] = "";
	snprintf(
	    command, sizeof(command),
	    "cd %s && h() { sha256sum | cut -c1-64; }; { printf '100755 %%s a-x\\n' $(h <a-x); "
	    "printf '100644 %%s a/z\\n' $(h <a/z); printf '100644 %%s b\\n' $(h <b); "
	    "printf '120000 %%s l\\n' $(printf a/z | h); } | h",
	    source);
	FILE *pipe = popen(command, "re");
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), pipe));
	pclose(pipe);
	line[64] = '\0';
	ck_assert_str_eq(line, hash);
}
END_TEST

START_TEST(drafts_of_the_dead_are_removed)
{
	pid_t dead = fork();
	if (!dead)
		_exit(0);
	ck_assert_int_eq(waitpid(dead, NULL, 0), dead);
	_cleanup_free_ char *stale =
	    orch_strdup_printf("%s/.draft-%d-0123456789abcdef", trees, (int)dead);
	_cleanup_free_ char *living =
	    orch_strdup_printf("%s/.draft-%d-0123456789abcdef", trees, (int)getpid());
	put(stale, "d/f", "x", 0644);
	put(living, "d/f", "x", 0644);
	import(source);
	ck_assert_int_lt(access(stale, F_OK), 0);
	ck_assert_int_eq(access(living, F_OK), 0);
}
END_TEST

START_TEST(the_empty_tree_needs_no_store)
{
	orch_error *error = NULL;
	_cleanup_free_ char *out = orch_strdup_printf("%s/out", base);
	ck_assert_int_eq(mkdir(trees, 0755), 0);
	int32_t code = tree_checkout(trees, tree_empty_hash, out, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
	ck_assert_int_eq(rmdir(out), 0);
	ck_assert_int_eq(tree_verify(trees, tree_empty_hash, NULL), 0);
	char none[TREE_HASH_SIZE];
	memset(none, 'a', 64);
	none[64] = '\0';
	ck_assert_int_eq(tree_verify(trees, none, NULL), ORCH_ENOENT);
	ck_assert_int_eq(tree_checkout(trees, none, out, NULL), ORCH_ENOENT);
	ck_assert_int_eq(tree_checkout(trees, "../source", out, NULL), ORCH_EINVAL);
	ck_assert_int_eq(tree_verify(trees, NULL, NULL), ORCH_EINVAL);
	ck_assert_int_lt(access(out, F_OK), 0);
}
END_TEST

START_TEST(git_folders_stay_outside)
{
	put(source, "f", "x", 0644);
	const char *hash = import(source);
	put(source, ".git/hooks/pre-commit", "evil", 0755);
	put(source, "sub/.git", "gitdir: /elsewhere\n", 0644);
	put(source, "other/.GIT/config", "evil", 0644);
	ck_assert_str_eq(import(source), hash);
	/* .gitignore and the like are files as any other. */
	put(source, ".gitignore", "x", 0644);
	ck_assert_str_ne(import(source), hash);
}
END_TEST

static const struct {
	const char *name, *target;
	const char *part; /* NULL: allowed */
} links[] = {
    {"l", "/etc/passwd", "absolute link"},
    {"l", "..", "leaves the tree"},
    {"d/l", "../..", "leaves the tree"},
    {"d/l", "..", NULL},
    {"d/l", "./../d/x", NULL},
    {"d/l", "x/../../..", "behind a name"},
    {"d/l", "x/..", "behind a name"},
    {"d/l", "../.git/hooks", "into .git"},
    {"d/l", "../.GIT", "into .git"},
    {"d/l", "..//..", "leaves the tree"},
    {"d/l", "new\nline", "control character"},
    {".gitmodules", "d/x", "git refuses"},
    {"l", "d/x", NULL},
};

START_TEST(links_stay_inside)
{
	put(source, "d/x", "x", 0644);
	ck_assert_int_eq(symlink(links[_i].target, at(source, links[_i].name)), 0);
	if (links[_i].part)
		refused(NULL, ORCH_EDENIED, links[_i].part);
	else
		import(source);
}
END_TEST

static const char *const bad_names[] = {
    "new\nline", "\x1b[31m", "\xff\xfe", "back\\slash",
    ".git ",	 ".Git.",    "git~1",	 ".git::$INDEX_ALLOCATION"};

START_TEST(names_are_plain)
{
	put(source, "d/ok", "x", 0644);
	char path[200];
	snprintf(path, sizeof(path), "%s/d/%s", source, bad_names[_i]);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	close(fd);
	refused(NULL, ORCH_EDENIED, "its name");
	ck_assert_int_eq(unlink(path), 0);
	put(source, "d/gr\xc3\xbc\xc3\x9f git~2 .gitx Makefile", "x", 0644);
	put(source, "d/MAKEFILE", "x", 0644);
	put(source, "d/makefile", "y", 0644);
	import(source);
}
END_TEST

START_TEST(only_files_folders_and_links)
{
	ck_assert_int_eq(mkfifo(at(source, "pipe"), 0644), 0);
	refused(NULL, ORCH_EDENIED, "pipe: a named pipe");
	ck_assert_int_eq(unlink(at(source, "pipe")), 0);

	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof(address.sun_path), "%s/socket", source);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	close(fd);
	refused(NULL, ORCH_EDENIED, "socket: a socket");
	ck_assert_int_eq(unlink(address.sun_path), 0);

	if (!geteuid() && !mknod(at(source, "null"), S_IFCHR | 0666, 0x103)) {
		refused(NULL, ORCH_EDENIED, "null: a device");
		ck_assert_int_eq(unlink(at(source, "null")), 0);
	}
	import(source);
}
END_TEST

START_TEST(limits_are_named)
{
	put(source, "a", "1234567890", 0644);
	put(source, "d/b", "1234567890", 0644);
	ck_assert_int_eq(mkdir(trees, 0755), 0);
	refused(&(struct tree_limits){.bytes = 19}, ORCH_ETOOBIG, "more than 19 bytes");
	refused(&(struct tree_limits){.entries = 2}, ORCH_ETOOBIG, "more than 2 entries");
	refused(&(struct tree_limits){.path_length = 2}, ORCH_ETOOBIG, "longer than 2 bytes");

	/* A sparse file is as large as it says. */
	int fd = open(at(source, "sparse"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_eq(ftruncate(fd, (off_t)1 << 40), 0);
	close(fd);
	refused(NULL, ORCH_ETOOBIG, "sparse");
	ck_assert_int_eq(unlink(at(source, "sparse")), 0);
	char hash[TREE_HASH_SIZE];
	ck_assert_int_eq(tree_import(source, trees, &(struct tree_limits){20, 3, 3}, hash, NULL),
			 0);
}
END_TEST

START_TEST(too_many_entries)
{
	/* In memory, if there is such a place: what is looked at is the limit, not the disk. */
	char many[] = "/dev/shm/test-tree-XXXXXX", fallback[] = "/tmp/test-tree-XXXXXX", name[16];
	char *dir = mkdtemp(many) ? many : mkdtemp(fallback);
	ck_assert_ptr_nonnull(dir);
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int made = 0;
	while (made < 50001) {
		snprintf(name, sizeof(name), "d%d", made);
		if (mkdirat(fd, name, 0755) < 0)
			break;
		made++;
	}
	char hash[TREE_HASH_SIZE];
	orch_error *error = NULL;
	int32_t over = tree_import(dir, trees, NULL, hash, &error);
	ck_assert_int_eq(unlinkat(fd, "d0", AT_REMOVEDIR), 0);
	int32_t full = tree_import(dir, trees, NULL, hash, NULL);
	close(fd);
	ck_assert_int_eq(tree_remove(dir, NULL), 0);
	ck_assert_int_eq(made, 50001);
	ck_assert_int_eq(over, ORCH_ETOOBIG);
	ck_assert_ptr_nonnull(strstr(orch_error_message(error), "more than 50000 entries"));
	orch_error_free(error);
	ck_assert_int_eq(full, 0);
	ck_assert_str_eq(hash, tree_empty_hash);
}
END_TEST

static void nest(const char *dir, int levels)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < levels; i++) {
		ck_assert_int_eq(mkdirat(fd, "n", 0755), 0);
		int inner = openat(fd, "n", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		close(fd);
		fd = inner;
	}
	int file = openat(fd, "f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ge(file, 0);
	close(file);
	close(fd);
}

/* Deeper than there are file descriptors, and than a path can be long: still removed (tear_down
 * looks). */
START_TEST(deep_nesting)
{
	nest(source, 64);
	import(source);
	ck_assert_int_eq(tree_remove(source, NULL), 0);
	ck_assert_int_eq(tree_remove(trees, NULL), 0);
	ck_assert_int_eq(mkdir(source, 0755), 0);
	nest(source, 65);
	refused(NULL, ORCH_ETOOBIG, "deeper than 64 levels");
	ck_assert_int_eq(tree_remove(source, NULL), 0);
	ck_assert_int_eq(mkdir(source, 0755), 0);
	nest(source, 5000);
	refused(NULL, ORCH_ETOOBIG, "deeper than 64 levels");
	ck_assert_int_eq(tree_remove(source, NULL), 0);
	ck_assert_int_lt(access(source, F_OK), 0);
}
END_TEST

START_TEST(removal_follows_nothing)
{
	put(base, "precious/file", "x", 0644);
	put(source, "d/f", "x", 0444);
	ck_assert_int_eq(symlink("../precious", at(source, "link")), 0);
	ck_assert_int_eq(symlink(at(base, "precious"), at(source, "d/link")), 0);
	ck_assert_int_eq(chmod(at(source, "d"), 0), 0);
	ck_assert_int_eq(tree_remove(source, NULL), 0);
	ck_assert_int_lt(access(source, F_OK), 0);
	ck_assert_int_eq(tree_remove(source, NULL), 0);
	/* A link in the place of the folder itself. */
	ck_assert_int_eq(symlink("precious", source), 0);
	char slashed[100];
	snprintf(slashed, sizeof(slashed), "%s/", source);
	ck_assert_int_eq(tree_remove(slashed, NULL), 0);
	ck_assert_int_lt(access(source, F_OK), 0);
	content_is(base, "precious/file", "x");
	ck_assert_int_eq(tree_remove("", NULL), ORCH_EINVAL);
	ck_assert_int_eq(tree_remove("/", NULL), ORCH_EINVAL);
}
END_TEST

START_TEST(the_source_itself_is_no_link)
{
	put(base, "outside/secret", "x", 0644);
	ck_assert_int_eq(rmdir(source), 0);
	ck_assert_int_eq(symlink("outside", source), 0);
	refused(NULL, ORCH_EDENIED, "is a link");
	void *bytes = NULL;
	size_t length;
	ck_assert_int_eq(tree_read_file(source, "secret", 10, &bytes, &length, NULL), ORCH_EDENIED);
	char slashed[100];
	snprintf(slashed, sizeof(slashed), "%s///", source);
	ck_assert_int_eq(tree_read_file(slashed, "secret", 10, &bytes, &length, NULL),
			 ORCH_EDENIED);
	ck_assert_int_eq(unlink(source), 0);
	refused(NULL, ORCH_ENOENT, "source");
}
END_TEST

/* --- a tree that changes while it is read ---------------------------------------------------- */

static atomic_bool swapping;
static atomic_uint swaps;

static void *swap(void *userdata)
{
	char a[100], b[100];
	(void)userdata;
	snprintf(a, sizeof(a), "%s/d", source);
	snprintf(b, sizeof(b), "%s/../link", source);
	while (swapping)
		swaps += !renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE);
	return NULL;
}

START_TEST(a_folder_swapped_for_a_link_leads_nowhere)
{
	put(base, "outside/secret", "secret", 0644);
	put(source, "d/secret", "plain", 0644);
	ck_assert_int_eq(symlink("../outside", at(base, "link")), 0);
	pthread_t thread;
	unsigned denied = 0, taken = 0;
	swapping = true;
	ck_assert_int_eq(pthread_create(&thread, NULL, swap, NULL), 0);
	for (int i = 0; i < 300; i++) {
		char hash[TREE_HASH_SIZE];
		int32_t code = tree_import(source, trees, NULL, hash, NULL);
		ck_assert_msg(!code || code == ORCH_EDENIED || code == ORCH_ESYS, "%s",
			      orch_code_name(code));
		denied += code != 0;
		taken += !code;
		_cleanup_free_ void *bytes = NULL;
		size_t length;
		if (!code && strcmp(hash, tree_empty_hash) &&
		    !tree_read_file(at(trees, hash), "d/secret", 100, &bytes, &length, NULL))
			ck_assert_str_eq(bytes, "plain");
		_cleanup_free_ void *direct = NULL;
		if (!tree_read_file(source, "d/secret", 100, &direct, &length, NULL))
			ck_assert_str_eq(direct, "plain");
	}
	swapping = false;
	pthread_join(thread, NULL);
	/* The control: it was swapped, and both states were met. */
	ck_assert_uint_gt(swaps, 100);
	ck_assert_uint_gt(denied, 0);
	ck_assert_uint_gt(taken, 0);
}
END_TEST

/* --- reading, writing ------------------------------------------------------------------------ */

START_TEST(reads_one_file)
{
	put(base, "outside", "secret", 0644);
	put(source, "d/f", "12345", 0644);
	ck_assert_int_eq(symlink("../outside", at(source, "link")), 0);
	ck_assert_int_eq(symlink("d", at(source, "dlink")), 0);
	ck_assert_int_eq(mkfifo(at(source, "pipe"), 0644), 0);
	content_is(source, "d/f", "12345");
	static const struct {
		const char *path;
		int32_t code;
	} cases[] = {
	    {"link", ORCH_EDENIED},	   {"dlink/f", ORCH_EDENIED}, {"../outside", ORCH_EDENIED},
	    {"/etc/passwd", ORCH_EDENIED}, {"pipe", ORCH_EDENIED},    {"d", ORCH_EDENIED},
	    {"none", ORCH_ENOENT},	   {"d/f/x", ORCH_ENOENT},    {"", ORCH_EINVAL},
	};
	void *bytes = NULL;
	size_t length = 7;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		int32_t code = tree_read_file(source, cases[i].path, 100, &bytes, &length, NULL);
		ck_assert_msg(code == cases[i].code, "%s: %s", cases[i].path, orch_code_name(code));
	}
	ck_assert_int_eq(tree_read_file(source, "d/f", 4, &bytes, &length, NULL), ORCH_ETOOBIG);
	ck_assert_ptr_null(bytes);
	ck_assert_uint_eq(length, 7);
	ck_assert_int_eq(tree_read_file(source, "d/f", 5, &bytes, &length, NULL), 0);
	free(bytes);
}
END_TEST

START_TEST(writes_one_file)
{
	mode_t mask = umask(077);
	put(base, "made/of/folders/f", "one", 0640);
	umask(mask);
	ck_assert_uint_eq(mode_of(at(base, "made/of")), 0755);
	ck_assert_uint_eq(mode_of(at(base, "made/of/folders/f")), 0640);
	put(base, "made/of/folders/f", "two", 0);
	ck_assert_uint_eq(mode_of(at(base, "made/of/folders/f")), 0644);
	content_is(base, "made/of/folders/f", "two");
	ck_assert_int_lt(tree_write_file(at(base, "made/of/folders/f/below"), "x", 1, 0, NULL), 0);
	ck_assert_int_eq(tree_write_file(at(base, "made/"), "x", 1, 0, NULL), ORCH_EINVAL);
	ck_assert_int_lt(tree_write_file(at(base, "made/of"), "x", 1, 0, NULL), 0);
	int entries = 0;
	DIR *dir = opendir(at(base, "made"));
	while (readdir(dir))
		entries++;
	closedir(dir);
	ck_assert_int_eq(entries, 3);
}
END_TEST

START_TEST(a_changed_store_is_found_out)
{
	put(source, "f", "x", 0644);
	const char *hash = import(source);
	put(at(trees, hash), "f", "y", 0644);
	ck_assert_int_eq(tree_verify(trees, hash, NULL), ORCH_ECORRUPT);
	ck_assert_int_eq(tree_checkout(trees, hash, at(base, "out"), NULL), ORCH_ECORRUPT);
	ck_assert_int_lt(access(at(base, "out"), F_OK), 0);
	char *text = NULL;
	ck_assert_int_eq(tree_diff(trees, tree_empty_hash, hash, 1000, &text, NULL), ORCH_ECORRUPT);
	put(at(trees, hash), "f", "x", 0644);
	ck_assert_int_eq(tree_verify(trees, hash, NULL), 0);
	ck_assert_int_eq(symlink("/etc/passwd", at(at(trees, hash), "l")), 0);
	ck_assert_int_eq(tree_verify(trees, hash, NULL), ORCH_ECORRUPT);
}
END_TEST

/* --- changes, merge, diff -------------------------------------------------------------------- */

static int32_t collect(void *userdata, char change, const char *path)
{
	orch_buf_printf(userdata, "%c %s\n", change, path);
	return strcmp(path, "stop") ? 0 : 7;
}

START_TEST(changes_are_sorted)
{
	put(source, "same", "x", 0644);
	put(source, "gone/f", "x", 0644);
	put(source, "mode", "x", 0644);
	put(source, "text", "x", 0644);
	const char *from = import(source);
	ck_assert_int_eq(unlink(at(source, "gone/f")), 0);
	put(source, "mode", "x", 0755);
	put(source, "text", "y", 0644);
	put(source, "new/a", "x", 0644);
	put(source, "new-b", "x", 0644);
	const char *to = import(source);
	_cleanup_buf_ struct orch_buf text = {0};
	ck_assert_int_eq(tree_changes(trees, from, to, collect, &text, NULL), 0);
	ck_assert_str_eq(text.data, "D gone/f\nM mode\nA new-b\nA new/a\nM text\n");
	put(source, "stop", "x", 0644);
	ck_assert_int_eq(tree_changes(trees, from, import(source), collect, &text, NULL), 7);
}
END_TEST

/* Three versions of some files ("-": absent), and the merged one or a conflict. */
static const struct {
	const char *base, *ours, *theirs, *result;
} merges[] = {
    {"a", "a", "a", "a"},  {"a", "b", "a", "b"}, {"a", "a", "b", "b"},	 {"a", "b", "b", "b"},
    {"a", "b", "c", NULL}, {"a", "-", "a", "-"}, {"a", "a", "-", "-"},	 {"a", "-", "b", NULL},
    {"a", "b", "-", NULL}, {"-", "a", "-", "a"}, {"-", "-", "a", "a"},	 {"-", "a", "a", "a"},
    {"-", "a", "b", NULL}, {"a", "-", "-", "-"}, {"a", "a", "+a", "+a"}, {"a", "b", "+a", NULL},
};

static const char *version(const char *text, const char *also)
{
	tree_remove(source, NULL);
	mkdir(source, 0755);
	put(source, "other", "kept", 0644);
	put(source, also, "added", 0644);
	if (*text != '-')
		put(source, "d/file", text + (*text == '+'), *text == '+' ? 0755 : 0644);
	return import(source);
}

START_TEST(merges_by_file)
{
	char merged[TREE_HASH_SIZE] = "untouched";
	orch_error *error = NULL;
	const char *from = version(merges[_i].base, "other");
	const char *ours = version(merges[_i].ours, "only-ours");
	const char *theirs = version(merges[_i].theirs, "sub/only-theirs");
	int32_t code = tree_merge(trees, from, ours, theirs, merged, &error);
	if (!merges[_i].result) {
		ck_assert_int_eq(code, ORCH_ECONFLICT);
		ck_assert_ptr_nonnull(strstr(orch_error_message(error), "d/file"));
		ck_assert_str_eq(merged, "untouched");
		orch_error_free(error);
		return;
	}
	ck_assert_msg(!code, "%s", orch_error_message(error));
	version(merges[_i].result, "only-ours");
	put(source, "sub/only-theirs", "added", 0644);
	ck_assert_str_eq(merged, import(source));
	ck_assert_int_eq(tree_verify(trees, merged, NULL), 0);
}
END_TEST

START_TEST(a_file_and_a_folder_conflict)
{
	char merged[TREE_HASH_SIZE];
	orch_error *error = NULL;
	put(source, "place/f", "x", 0644);
	const char *ours = import(source);
	tree_remove(source, NULL);
	put(base, "source/place", "x", 0644);
	const char *theirs = import(source);
	ck_assert_int_eq(tree_merge(trees, tree_empty_hash, ours, theirs, merged, &error),
			 ORCH_ECONFLICT);
	ck_assert_ptr_nonnull(strstr(orch_error_message(error), "place (a file on one side"));
	orch_error_free(error);
	ck_assert_int_eq(symlink("place", at(source, "link")), 0);
	ck_assert_int_eq(tree_merge(trees, theirs, theirs, import(source), merged, NULL), 0);
	ck_assert_str_eq(merged, import(source));
}
END_TEST

static char *diff(const char *from, const char *to, size_t limit)
{
	char *text = NULL;
	orch_error *error = NULL;
	int32_t code = tree_diff(trees, from, to, limit, &text, &error);
	ck_assert_msg(!code, "%s", orch_error_message(error));
	return text;
}

START_TEST(a_diff_for_reading)
{
	put(source, "f", "1\n2\n3\n4\n5\n6\n7\n8\n9", 0644);
	put(source, "bin", "\x01\xff", 0644);
	put(source, "gone", "x\n", 0644);
	ck_assert_int_eq(symlink("f", at(source, "l")), 0);
	const char *from = import(source);
	put(source, "f", "1\n2\n3\n4\n5\nsix\n7\n8\n9", 0755);
	put(source, "bin", "\x02\xff", 0644);
	put(source, "new", "n", 0644);
	ck_assert_int_eq(unlink(at(source, "gone")), 0);
	ck_assert_int_eq(unlink(at(source, "l")), 0);
	ck_assert_int_eq(symlink("new", at(source, "l")), 0);
	_cleanup_free_ char *text = diff(from, import(source), 10000);
	ck_assert_str_eq(
	    text,
	    "diff bin\nBinary file: bin\n"
	    "diff f\nold mode 100644\nnew mode 100755\n--- a/f\n+++ b/f\n@@ -3,7 +3,7 @@\n"
	    " 3\n 4\n 5\n-6\n+six\n 7\n 8\n 9\n\\ No newline at end of file\n"
	    "diff gone\ndeleted file mode 100644\n--- a/gone\n+++ /dev/null\n@@ -1,1 +0,0 @@\n-x\n"
	    "diff l\n--- a/l\n+++ b/l\n@@ -1,1 +1,1 @@\n-f\n\\ No newline at end of file\n"
	    "+new\n\\ No newline at end of file\n"
	    "diff new\nnew file mode 100644\n--- /dev/null\n+++ b/new\n@@ -0,0 +1,1 @@\n+n\n"
	    "\\ No newline at end of file\n");
	_cleanup_free_ char *none = diff(from, from, 10000);
	ck_assert_str_eq(none, "");
	_cleanup_free_ char *shortened = diff(from, tree_empty_hash, 200);
	ck_assert_uint_le(strlen(shortened), 200);
	ck_assert_ptr_nonnull(strstr(shortened, "the rest is left out"));
}
END_TEST

static void random_file(unsigned *seed, const char *before, struct orch_buf *out)
{
	/* A few edits of what was before; many repeated lines, so that alignment matters. */
	for (const char *line = before; *line;) {
		size_t length = strcspn(line, "\n") + 1;
		if (rand_r(seed) % 8)
			orch_buf_add(out, line, length);
		if (!(rand_r(seed) % 8))
			orch_buf_printf(out, "line %d\n", rand_r(seed) % 12);
		line += length;
	}
	while (!(rand_r(seed) % 2))
		orch_buf_printf(out, "line %d\n", rand_r(seed) % 12);
	if (out->data && out->length && !(rand_r(seed) % 5))
		out->data[--out->length] = '\0';
	if (!out->data || !out->length)
		orch_buf_puts(out, "x\n");
}

/* git takes the diff as a patch, and what comes out is the tree it was made for. */
START_TEST(a_diff_can_be_applied)
{
	unsigned seed = 1;
	_cleanup_buf_ struct orch_buf start = {0};
	for (int i = 0; i < 60; i++)
		orch_buf_printf(&start, "line %d\n", rand_r(&seed) % 12);
	for (int round = 0; round < 60; round++) {
		_cleanup_buf_ struct orch_buf old = {0}, new = {0};
		random_file(&seed, start.data, &old);
		if (round % 10)
			random_file(&seed, old.data, &new);
		else
			for (int i = 0; i < 1500; i++) /* more than is searched for */
				orch_buf_printf(&new, "other %d\n", i);
		tree_remove(source, NULL);
		put(source, "d/f", new.data, 0644);
		const char *to = import(source);
		put(source, "d/f", old.data, 0644);
		_cleanup_free_ char *text = diff(import(source), to, 1000000);
		put(base, "patch", text, 0644);
		char command[300];
		snprintf(command, sizeof(command),
			 "cd %s && HOME=/nowhere GIT_CEILING_DIRECTORIES=%s GIT_CONFIG_NOSYSTEM=1 "
			 "GIT_CONFIG_GLOBAL=/dev/null "
			 "git apply --whitespace=nowarn ../patch",
			 source, base);
		if (*text)
			ck_assert_msg(!system(command), "round %d:\n%s", round, text);
		ck_assert_str_eq(import(source), to);
	}
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof(*(array))))

int main(void)
{
	Suite *suite = suite_create("tree");
	TCase *tests = tcase_create("tree");
	tcase_set_timeout(tests, 60);
	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_add_test(tests, a_tree_comes_in_and_goes_out);
	tcase_add_test(tests, the_hash_is_what_the_documents_say);
	tcase_add_test(tests, drafts_of_the_dead_are_removed);
	tcase_add_test(tests, the_empty_tree_needs_no_store);
	tcase_add_test(tests, git_folders_stay_outside);
	tcase_add_loop_test(tests, links_stay_inside, 0, COUNT(links));
	tcase_add_loop_test(tests, names_are_plain, 0, COUNT(bad_names));
	tcase_add_test(tests, only_files_folders_and_links);
	tcase_add_test(tests, limits_are_named);
	tcase_add_test(tests, too_many_entries);
	tcase_add_test(tests, deep_nesting);
	tcase_add_test(tests, removal_follows_nothing);
	tcase_add_test(tests, the_source_itself_is_no_link);
	tcase_add_test(tests, a_folder_swapped_for_a_link_leads_nowhere);
	tcase_add_test(tests, reads_one_file);
	tcase_add_test(tests, writes_one_file);
	tcase_add_test(tests, a_changed_store_is_found_out);
	tcase_add_test(tests, changes_are_sorted);
	tcase_add_loop_test(tests, merges_by_file, 0, COUNT(merges));
	tcase_add_test(tests, a_file_and_a_folder_conflict);
	tcase_add_test(tests, a_diff_for_reading);
	tcase_add_test(tests, a_diff_can_be_applied);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
