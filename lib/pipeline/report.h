/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_REPORT_H
#define ORCH_REPORT_H

/*
 * Renders the report. The model is one JSON object (report.json itself); nothing is computed here but the
 * look.
 *
 *   {"run":ID,"state":"DELIVERED","reason":"","idea":"...","description":"mini, synthetic, ...",
 *    "started_at_ms":N,"ended_at_ms":N,
 *    "channels":[{"channel","state","mechanism","probe","control","detail"}],
 *    "attempts":[{"id","role","stage","task","attempt","end","message","verdict","certificate",
 *                 "started_at_ms","ended_at_ms","seconds","tokens","micro_usd"}],
 *    "verifications":[{"id","task","tree","certificates":["..."],
 *                      "results":[{"check","requirement","hidden","verdict","passed","failed","detail","ms"}]}],
 *    "unknown_actions":[{"kind","key","state_before","probe","decision"}],
 *    "requirements":[{"id","title","state":"verified|not verified","checks":["C1"],"tree","commit","task",
 *                     "micro_usd"}],
 *    "tasks":[{"id","title","state","attempts":N,"requirements":["R1"],"reason"}],
 *    "seals":{"spec":HASH,"checks":HASH,"plan":HASH},
 *    "questions":[{"id","text","answer","by":"user|default"}],
 *    "spent":{"requests":N,"tokens":N,"micro_usd":N},"budget":{...},
 *    "product":{"path","commit","branch","tree","title","kind","start":["argv"],"fetch":["git ..."]} or null,
 *    "records":N of the journal,
 *    "invariants":[{"name","holds":true,"detail"}]}
 *
 * Shown where there: in attempts "executor"; in verifications "purpose" (base, stub: their checks must
 * fail; earlier, task, merged, accept), "attempt", "error"; "base":{"repo","commit"},
 * "reviews":[{"task","veto","reasons"}], "earlier_note",
 * "own_tests":[{"which","tree","tests","passed","output","certificate"}]. "budget" has the members of
 * "spent" and "seconds"; 0 is no cap. Verdicts of checks are pass, fail, timeout, error.
 */

#include <jansson.h>

#include "../core/core-private.h"

/*
 * Self-contained HTML, readable without scripts, at 390 and 1280 pixels; every string escaped. The caller
 * frees.
 */
char *report_html(const json_t *report);
/* One testsuite per verification, one testcase per check (libxml2). The caller frees. */
char *report_junit(const json_t *report);
/* The same as plain text for a terminal of `columns`. The caller frees. */
char *report_text(const json_t *report, unsigned columns);

#endif
