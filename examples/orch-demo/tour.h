/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOUR_H
#define TOUR_H

/*
 * orch-demo tour: four acts, each of them tried on this machine beside what happens without the library. All that it makes
 * is below one folder, and all that it starts is in `children`, or stops by itself within two minutes.
 */

#include <sys/types.h>

#include "demo.h"

#define TOUR_CHILDREN 8
#define TOUR_SECRET "ORCH_TOUR_SECRET" /* as in tour-attempt.c */

/* A program that was started plainly, without the library. */
struct tour_child {
	pid_t pid; /* 0: none */
	int pidfd, output;
	char *text; /* what it wrote and nobody took yet */
	size_t length;
};

struct tour {
	bool json, interrupted;
	orch_ctx *ctx;
	int signals; /* signalfd of what interrupts */
	char *folder, *attempt;
	char secret[33];
	int act;
	unsigned held, failed, incomparable;
	struct tour_child children[TOUR_CHILDREN];
	int stray; /* pidfd of a daemon that is no child; -1: none */
};

/* --- saying: lines for people, or objects with --json -------------------------------------------------------------- */

/* For people only. */
void tour_say(const struct tour *tour, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* An empty line. */
void tour_gap(const struct tour *tour);
/* A text of several lines. */
void tour_quote(const struct tour *tour, const char *text);
/* A promise, and whether it held; returns that. */
bool tour_expect(struct tour *tour, bool held, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* An object of the act for programs; takes the reference. */
void tour_object(const struct tour *tour, json_t *object);

/* --- doing ------------------------------------------------------------------------------------------------------------ */

/* A child with an empty standard input; in a process group of its own if `group`. NULL with a message. */
struct tour_child *tour_start(struct tour *tour, const char *const *argv, bool group);
/* This program with these arguments. */
struct tour_child *tour_start_demo(struct tour *tour, const char *const *arguments);
/* The next line of its output, without the newline; the caller frees. NULL: no more, or time or patience are over. */
char *tour_line(struct tour *tour, struct tour_child *child, int timeout_ms);
/* All of its output up to its end. */
char *tour_output(struct tour *tour, struct tour_child *child, int timeout_ms);
/* Waits until it is a zombie, which keeps its number. */
bool tour_ended(struct tour *tour, struct tour_child *child, int timeout_ms);
/* Ends it if it lives, and reaps it; the wait status. */
int tour_reap(struct tour_child *child);
/* Sleeps, unless there is an interruption: false then. */
bool tour_sleep(struct tour *tour, int ms);
/* A program in a sandbox that stands already or not; text and status are the caller's. Failures are told. */
int tour_inside(orch_sandbox *sandbox, const char *const *argv, char **ret_text, int *ret_status);

/* --- the acts: EXIT_FINE, or what kept them from being tried ------------------------------------------------------------- */

int tour_escape(struct tour *tour);
int tour_daemon(struct tour *tour);
int tour_liar(struct tour *tour);
int tour_twice(struct tour *tour);

#endif
