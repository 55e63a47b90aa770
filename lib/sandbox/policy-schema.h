/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ORCH_SANDBOX_POLICY_SCHEMA_H
#define ORCH_SANDBOX_POLICY_SCHEMA_H

/* schemas/policy.rng, compiled in: a sandbox needs no data files. */
extern const unsigned char orch_policy_schema[];
extern const unsigned int orch_policy_schema_length;

#endif
