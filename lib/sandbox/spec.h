/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_SPEC_H
#define ORCH_SANDBOX_SPEC_H

/*
 * The specification that lib/sandbox writes into a sealed memfd and orch-reaper reads
 * (confine_load()): one header, then tables and a string table at the offsets that it names. Both
 * sides are of one version and one machine, so structures are stored as they are; the reader checks
 * every offset and count all the same.
 */

#include <stdint.h>

#define ORCH_SPEC_MAGIC "ORCHSPEC"
#define ORCH_SPEC_VERSION 2u
#define ORCH_SPEC_MAX_BYTES (16u << 20)
#define ORCH_SPEC_MAX_RULES 16384u
#define ORCH_SPEC_MAX_ENV 4096u
#define ORCH_SPEC_MAX_FILTER 4096u /* BPF_MAXINSNS */

/*
 * What a test build of orch-reaper leaves out, each by itself: a test then sees what that protection alone keeps closed.
 * The groups of the seccomp program are left out by who writes it.
 */
#define ORCH_SPEC_WITHOUT_OWN_UID (1ull << 0) /* as root: the load stays uid 0 outside */
#define ORCH_SPEC_WITHOUT_PIDNS (1ull << 1)   /* and with it the /proc of its own */
#define ORCH_SPEC_WITHOUT_NETNS (1ull << 2)
#define ORCH_SPEC_WITHOUT_IPCNS (1ull << 3)
#define ORCH_SPEC_WITHOUT_UTSNS (1ull << 4)
#define ORCH_SPEC_WITHOUT_CGROUPNS (1ull << 5)
#define ORCH_SPEC_WITHOUT_ROOT (1ull << 6)	 /* the host's folders are there as well */
#define ORCH_SPEC_WITHOUT_ATTRIBUTES (1ull << 7) /* mounts are writable, with set-id programs and devices */
#define ORCH_SPEC_WITHOUT_PROC (1ull << 8)	 /* /proc has all its files */
#define ORCH_SPEC_WITHOUT_NESTING (1ull << 9)	 /* user namespaces may be nested */
#define ORCH_SPEC_WITHOUT_CAPABILITIES (1ull << 10)
#define ORCH_SPEC_WITHOUT_SECUREBITS (1ull << 11)
#define ORCH_SPEC_WITHOUT_KEYRING (1ull << 12)
#define ORCH_SPEC_WITHOUT_CLOSING (1ull << 13) /* of descriptors, once the helper knows the specification */
#define ORCH_SPEC_WITHOUT_UMASK (1ull << 14)
#define ORCH_SPEC_WITHOUT_SESSION (1ull << 15)
#define ORCH_SPEC_WITHOUT_LANDLOCK (1ull << 16)
#define ORCH_SPEC_WITHOUT_SECCOMP (1ull << 17)
#define ORCH_SPEC_WITHOUT_SECCOMP_KERNEL (1ull << 18)	  /* interfaces of the kernel and of the machine */
#define ORCH_SPEC_WITHOUT_SECCOMP_NAMESPACES (1ull << 19) /* and mounts */
#define ORCH_SPEC_WITHOUT_SECCOMP_SOCKETS (1ull << 20)
#define ORCH_SPEC_WITHOUT_SECCOMP_TERMINALS (1ull << 21)
#define ORCH_SPEC_WITHOUT_SECCOMP_GROUPS                                                                               \
	(ORCH_SPEC_WITHOUT_SECCOMP_KERNEL | ORCH_SPEC_WITHOUT_SECCOMP_NAMESPACES | ORCH_SPEC_WITHOUT_SECCOMP_SOCKETS | \
	 ORCH_SPEC_WITHOUT_SECCOMP_TERMINALS)
#define ORCH_SPEC_WITHOUT_PROCESSES (1ull << 22) /* the limits */
#define ORCH_SPEC_WITHOUT_OPEN_FILES (1ull << 23)
#define ORCH_SPEC_WITHOUT_FILE_SIZE (1ull << 24)
#define ORCH_SPEC_WITHOUT_NO_CORE (1ull << 25)
#define ORCH_SPEC_WITHOUT_TMP_SIZE (1ull << 26)
#define ORCH_SPEC_WITHOUT_UNDUMPABLE (1ull << 27) /* init can be looked into by who has its uid */
/* tmp_bytes of a policy that says nothing about it. */
#define ORCH_SPEC_TMP_DEFAULT (UINT64_C(256) << 20)

/* The only uid and gid inside. */
#define ORCH_SPEC_INNER_ID 1000u

/* Uids that root gives to loads: no distribution, and not macOS, uses them for anybody. */
#define ORCH_SPEC_UID_FIRST 0x60000000u
#define ORCH_SPEC_UID_COUNT 0x10000000u

struct orch_spec_header {
	char magic[8];
	uint32_t version;
	uint32_t length;   /* of the whole file */
	uint32_t root;	   /* ORCH_ROOT_* */
	uint32_t net;	   /* ORCH_NET_* */
	uint32_t namespaces; /* ORCH_PROTECT_* */
	uint32_t landlock;
	uint32_t seccomp;
	uint32_t reserved;
	uint32_t max_processes;
	uint32_t max_open_files;
	uint64_t max_file_bytes;
	uint64_t tmp_bytes; /* of the private file system */
	/* Tests only: any but a test build of orch-reaper refuses them. */
	uint64_t without;      /* ORCH_SPEC_WITHOUT_* */
	uint32_t landlock_abi; /* at most this one; 0: the kernel's */
	uint32_t reserved_too;
	uint32_t hostname;	/* offset into the strings */
	uint32_t cwd;		/* the same */
	uint32_t mounts_offset; /* struct orch_spec_mount[mounts_count]; parents before children */
	uint32_t mounts_count;
	uint32_t env_offset; /* uint32_t[env_count]: offsets of "NAME=value" */
	uint32_t env_count;
	uint32_t filter_offset; /* struct sock_filter[filter_count]: the seccomp program; 0: none */
	uint32_t filter_count;
	uint32_t bare_offset; /* the same, of programs without namespaces; 0: namespaces are required */
	uint32_t bare_count;
	uint32_t strings_offset; /* NUL-terminated strings; the last byte is NUL */
	uint32_t strings_length;
};

struct orch_spec_mount {
	uint32_t host;	 /* string offset: absolute path outside */
	uint32_t inner;	 /* string offset: absolute, normalised path inside */
	uint32_t access; /* ORCH_PATH_* */
	uint32_t kind;	 /* ORCH_SPEC_* */
};

#define ORCH_SPEC_BIND 1u
#define ORCH_SPEC_OVERLAY 2u /* host: the lower side */
#define ORCH_SPEC_DENY 3u    /* no host, no access */
/* The same, and what is missing is made as a folder. */
#define ORCH_SPEC_DENY_FOLDER 4u

#endif
